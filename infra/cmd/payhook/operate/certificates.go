package operate

import (
	"context"
	"encoding/json"
	"encoding/json/jsontext"
	"fmt"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/names"
)

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

// certificates shows what the redrive function reports, as it is.
func (p *program) certificates(ctx context.Context, d *stack, _ []string) error {
	a, err := d.redrive(ctx, request{Certificates: true})
	if err != nil {
		return err
	}
	var reported struct {
		DaysLeft float64          `json:"daysLeft"`
		CAs      []jsontext.Value `json:"cas"`
	}
	if err := json.Unmarshal(a.Certificates, &reported); err != nil {
		return fmt.Errorf("the redrive function did not report certificates: %w", err)
	}
	return attention(p.Print(a.Certificates), len(reported.CAs) > 0 && reported.DaysLeft < names.MinTrustDays)
}
