package operate

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
)

// certificates is what the redrive function reports.
type certificates struct {
	Authentication string  `json:"authentication"`
	DaysLeft       float64 `json:"daysLeft"`
	CAs            []struct {
		Subject     string    `json:"subject"`
		Issuer      string    `json:"issuer"`
		Fingerprint string    `json:"fingerprint"`
		Pin         string    `json:"pin"`
		NotAfter    time.Time `json:"notAfter"`
	} `json:"cas"`
	Pins        []string                  `json:"pins,omitempty"`
	Subjects    []string                  `json:"subjects,omitempty"`
	RevokedKeys []string                  `json:"revokedKeys,omitempty"`
	Last        *keys.AcceptedCertificate `json:"last,omitempty"`
}

func (p *program) certificatesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "certificates",
		Short: "Show which client certificates are accepted, and for how long",
		Long: `Shows which client certificates the webhook function accepts: the CAs of the
truststore, pins, subjects and revoked keys; the certificate that was accepted last;
and how many days are left until the first of them expires. A pin is the SHA-256 of a
key, as in the settings clientCertPins and revokedKeys. Without CAs, no client
certificate is required. The redrive function reports it, and writes the same days as
the metric TrustDaysLeft.

Status 1: fewer than 30 days are left.`,
		Example: "  payhook certificates\n  payhook certificates --local",
		Args:    cli.Args(),
		RunE:    p.on(p.certificates),
	}
}

func (p *program) certificates(ctx context.Context, d *stack, _ []string) error {
	a, err := d.redrive(ctx, request{Certificates: true})
	if err != nil {
		return err
	}
	c := a.Certificates
	if c == nil {
		return errors.New("the redrive function did not report certificates")
	}
	rows := cli.Rows{{"SUBJECT", "ISSUER", "FINGERPRINT", "PIN", "NOTAFTER"}}
	for _, ca := range c.CAs {
		rows = append(rows, []any{ca.Subject, ca.Issuer, ca.Fingerprint, ca.Pin, ca.NotAfter})
	}
	pairs := []any{"authentication", c.Authentication, "daysLeft", c.DaysLeft, "pins", c.Pins,
		"subjects", c.Subjects, "revokedKeys", c.RevokedKeys, "cas", rows}
	if last := c.Last; last != nil {
		pairs = append(pairs, "last.subject", last.Subject, "last.issuer", last.Issuer, "last.pin", last.Pin,
			"last.notAfter", last.NotAfter, "last.acceptedAt", last.AcceptedAt)
	}
	return attention(p.Show(c, pairs...), len(c.CAs) > 0 && c.DaysLeft < names.MinTrustDays)
}
