package main

import (
	"context"
	"encoding/hex"
	"slices"
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
	client         keys.CertificateReadAPI
	table          string
}

// trusted is its report.
type trusted struct {
	Authentication string                    `json:"authentication"`
	DaysLeft       float64                   `json:"daysLeft"` // as the metric TrustDaysLeft
	CAs            []authority               `json:"cas"`
	Pins           []string                  `json:"pins,omitempty"` // hexadecimal
	Subjects       []string                  `json:"subjects,omitempty"`
	Revoked        []string                  `json:"revoked,omitempty"` // SERIAL@ISSUER
	Last           *keys.AcceptedCertificate `json:"last,omitempty"`    // nil: none was accepted yet
}

// authority is one certificate of the truststore.
type authority struct {
	Subject      string    `json:"subject"`
	Issuer       string    `json:"issuer"`
	SerialNumber string    `json:"serialNumber"`
	Fingerprint  string    `json:"fingerprint"`
	NotAfter     time.Time `json:"notAfter"`
}

// report returns the report, with only the mechanism if no client certificate is
// required. With an error, the report lacks the certificate that was accepted last.
func (t *trust) report(ctx context.Context, now time.Time) (*trusted, error) {
	if t == nil {
		return &trusted{Authentication: settings.BySignature}, nil
	}
	last, err := keys.LastCertificate(ctx, t.client, t.table)
	out := &trusted{Authentication: t.authentication, Last: last, DaysLeft: keys.TrustDaysLeft(t.Truststore, last, now),
		Subjects: slices.Clone(t.Policy.DNSNames)}
	for _, name := range t.Policy.Subjects {
		out.Subjects = append(out.Subjects, string(name))
	}
	for _, c := range t.Truststore.Certificates() {
		out.CAs = append(out.CAs, authority{
			clientcert.Subject(c), clientcert.Issuer(c), clientcert.SerialOf(c).Number, clientcert.Fingerprint(c),
			c.NotAfter.UTC(),
		})
	}
	for _, pin := range t.Policy.Pins {
		out.Pins = append(out.Pins, hex.EncodeToString(pin[:]))
	}
	for _, serial := range t.Policy.Revoked {
		out.Revoked = append(out.Revoked, serial.Number+"@"+string(serial.Issuer))
	}
	return out, err
}
