package main

import (
	"context"
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/keys"
	"payhook.example/shared/settings"
)

// trust is the configuration of the client certificates that the webhook function
// accepts.
type trust struct {
	*settings.MTLS
	authentication string
	accepted       keys.CertificateReader
}

// trusted is its report.
type trusted struct {
	Authentication string                    `json:"authentication"`
	DaysLeft       float64                   `json:"daysLeft"` // as the metric TrustDaysLeft
	CAs            []authority               `json:"cas"`
	Pins           []string                  `json:"pins,omitempty"`
	Subjects       []string                  `json:"subjects,omitempty"`
	RevokedKeys    []string                  `json:"revokedKeys,omitempty"`
	Last           *keys.AcceptedCertificate `json:"last,omitempty"` // nil: none was accepted yet
}

// authority is one certificate of the truststore.
type authority struct {
	Subject     string    `json:"subject"`
	Issuer      string    `json:"issuer"`
	Fingerprint string    `json:"fingerprint"`
	Pin         string    `json:"pin"`
	NotAfter    time.Time `json:"notAfter"`
}

// lastTimeout is the time to read the certificate that was accepted last. The line of a run does not wait longer.
func lastTimeout(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(time.Second, time.Until(end)/2)
	}
	return time.Second
}

// report returns the report, with only the mechanism if no client certificate is
// required. With an error, the report lacks the certificate that was accepted last.
func (t *trust) report(ctx context.Context, now time.Time) (*trusted, error) {
	if t == nil {
		return &trusted{Authentication: settings.BySignature}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lastTimeout(ctx))
	defer cancel()
	last, err := t.accepted.LastCertificate(ctx)
	out := &trusted{Authentication: t.authentication, Last: last, DaysLeft: keys.TrustDaysLeft(t.Truststore, last, now),
		Subjects: t.Policy.Subjects, Pins: texts(t.Policy.Pins)}
	for _, c := range t.Truststore.Certificates() {
		out.CAs = append(out.CAs, authority{
			clientcert.Subject(c), clientcert.Issuer(c), clientcert.Fingerprint(c), clientcert.PinOf(c).String(),
			c.NotAfter.UTC(),
		})
	}
	return out, err
}

func texts(pins []clientcert.Pin) (texts []string) {
	for _, pin := range pins {
		texts = append(texts, pin.String())
	}
	return texts
}
