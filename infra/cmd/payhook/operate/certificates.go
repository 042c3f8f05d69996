package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
)

func (p *program) certificatesCommand() *cobra.Command {
	var days int
	cmd := &cobra.Command{
		Use:   "certificates",
		Short: "Show which client certificates are accepted, and for how long",
		Long: `Shows which client certificates the webhook function accepts: the CAs of the
truststore, pins, subjects and revoked certificates; the certificate that was
accepted last; and how many days are left until the first of them expires. The
redrive function reports it, and writes the same days as the metric TrustDaysLeft.

Status 1: fewer days are left than --days.

With --json, one document: authentication, daysLeft, cas (subject, issuer,
serialNumber, fingerprint, notAfter), pins, subjects, revoked, last (as cas, with
pin and acceptedAt).`,
		Example: "  payhook certificates\n  payhook certificates --local --days 60",
		Args:    cli.Args(),
		RunE:    p.on(func(ctx context.Context, s *stack, _ []string) error { return p.certificates(ctx, s, days) }),
	}
	cmd.Flags().IntVar(&days, "days", 30, "how many days must be left")
	return cmd
}

// certificate is a certificate as the redrive function reports it.
type certificate struct {
	Subject      string    `json:"subject"`
	Issuer       string    `json:"issuer"`
	SerialNumber string    `json:"serialNumber"`
	Fingerprint  string    `json:"fingerprint"`
	Pin          string    `json:"pin,omitempty"`
	NotAfter     time.Time `json:"notAfter"`
	AcceptedAt   time.Time `json:"acceptedAt,omitzero"`
}

// certificates is what the redrive function reports.
type certificates struct {
	Authentication string        `json:"authentication"`
	DaysLeft       float64       `json:"daysLeft"`
	CAs            []certificate `json:"cas"`
	Pins           []string      `json:"pins"`
	Subjects       []string      `json:"subjects"`
	Revoked        []string      `json:"revoked"`
	Last           *certificate  `json:"last"`
}

func (p *program) certificates(ctx context.Context, d *stack, days int) error {
	a, err := d.redrive(ctx, request{Certificates: true})
	if err != nil {
		return err
	}
	if a.Certificates == nil {
		return errors.New("the redrive function did not report certificates")
	}
	c := *a.Certificates
	err = p.print(c, func(t cli.Fields) { c.write(t, p.Now()) })
	return attention(err, len(c.CAs) > 0 && c.DaysLeft < float64(days))
}

func (c certificates) write(w cli.Fields, now time.Time) {
	if len(c.CAs) == 0 {
		fmt.Fprintf(w, "authentication is %s: no client certificate is required\n", cli.Plain(c.Authentication))
		return
	}
	fmt.Fprintf(w, "authentication is %s; %.1f days are left\n", cli.Plain(c.Authentication), c.DaysLeft)
	row := func(kind string, one certificate) {
		fmt.Fprintf(w, "%s\t%s\tuntil %s, %.0f days\tserial %s, issuer %s, SHA-256 %s\n", kind, cli.Plain(one.Subject),
			one.NotAfter.UTC().Format(time.RFC3339),
			one.NotAfter.Sub(now).Hours()/24, cli.Plain(one.SerialNumber), cli.Plain(one.Issuer),
			cli.Plain(one.Fingerprint))
	}
	for _, ca := range c.CAs {
		row("CA", ca)
	}
	for _, list := range []struct {
		kind   string
		values []string
	}{{"pin", c.Pins}, {"subject", c.Subjects}, {"revoked", c.Revoked}} {
		for _, value := range list.values {
			fmt.Fprintf(w, "%s\t%s\t\t\n", list.kind, cli.Plain(value))
		}
	}
	if c.Last == nil {
		fmt.Fprintln(w, "last accepted\tnone yet\t\t")
	} else {
		row("last accepted", *c.Last)
		fmt.Fprintf(w, "\tat %s, pin %s\t\t\n", c.Last.AcceptedAt.UTC().Format(time.RFC3339), cli.Plain(c.Last.Pin))
	}
}
