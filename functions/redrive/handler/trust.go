package handler

import (
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/settings"
)

// trust is the configuration of the client certificates that the webhook function
// accepts.
type trust struct {
	*settings.MTLS
	authentication string
}

// report returns the report, with only the mechanism if no client certificate is required.
func (t *trust) report(now time.Time) *intake.Certificates {
	if t == nil {
		return &intake.Certificates{Authentication: settings.BySignature}
	}
	out := &intake.Certificates{Authentication: t.authentication, DaysLeft: t.daysLeft(now),
		Subjects: t.Policy.Subjects, Pins: t.Policy.Pins}
	for _, c := range t.Truststore {
		out.CAs = append(out.CAs, intake.CA{Subject: clientcert.Subject(c), Issuer: clientcert.Issuer(c),
			Fingerprint: clientcert.Fingerprint(c), Pin: clientcert.PinOf(c), NotAfter: c.NotAfter.UTC()})
	}
	return out
}

// daysLeft returns the number of days until the first CA of the truststore expires.
func (t *trust) daysLeft(now time.Time) float64 {
	return clientcert.DaysLeft(t.Truststore, now)
}
