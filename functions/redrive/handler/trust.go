package handler

import (
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/redrive"
	"payhook.example/shared/settings"
)

// trust is the configuration of the client certificates that the webhook function
// accepts.
type trust struct {
	*settings.MTLS
	authentication string
}

// report returns the report, with only the mechanism if no client certificate is required.
func (t *trust) report(now time.Time) *redrive.Certificates {
	if t == nil {
		return &redrive.Certificates{Authentication: settings.BySignature}
	}
	out := &redrive.Certificates{Authentication: t.authentication, DaysLeft: t.daysLeft(now),
		Subjects: t.Policy.Subjects, Pins: t.Policy.Pins}
	for _, c := range t.Truststore.Certificates() {
		out.CAs = append(out.CAs, redrive.CA{Subject: clientcert.Subject(c), Issuer: clientcert.Issuer(c),
			Fingerprint: clientcert.Fingerprint(c), Pin: clientcert.PinOf(c), NotAfter: c.NotAfter.UTC()})
	}
	return out
}

// daysLeft returns the number of days until the first CA of the truststore expires.
func (t *trust) daysLeft(now time.Time) float64 {
	return clientcert.DaysLeft(t.Truststore.Certificates(), now)
}
