package handler

import (
	"context"
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/keys"
	"payhook.example/shared/redrive"
	"payhook.example/shared/settings"
)

// trust is the configuration of the client certificates that the webhook function
// accepts.
type trust struct {
	*settings.MTLS
	authentication string
	accepted       keys.CertificateReader
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
func (t *trust) report(ctx context.Context, now time.Time) (*redrive.Certificates, error) {
	if t == nil {
		return &redrive.Certificates{Authentication: settings.BySignature}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lastTimeout(ctx))
	defer cancel()
	last, err := t.accepted.LastCertificate(ctx)
	out := &redrive.Certificates{Authentication: t.authentication, Last: last,
		DaysLeft: keys.TrustDaysLeft(t.Truststore, last, now), Subjects: t.Policy.Subjects, Pins: texts(t.Policy.Pins)}
	for _, c := range t.Truststore.Certificates() {
		out.CAs = append(out.CAs, redrive.CA{Subject: clientcert.Subject(c), Issuer: clientcert.Issuer(c),
			Fingerprint: clientcert.Fingerprint(c), Pin: clientcert.PinOf(c).String(), NotAfter: c.NotAfter.UTC()})
	}
	return out, err
}

func texts(pins []clientcert.Pin) (texts []string) {
	for _, pin := range pins {
		texts = append(texts, pin.String())
	}
	return texts
}
