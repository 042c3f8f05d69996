package keys

import (
	"context"
	"crypto/x509"
	"maps"
	"sync"
	"time"

	"payhook.example/shared/clientcert"
)

// AcceptedCertificate describes the client certificate that was accepted last. Its times are in UTC.
type AcceptedCertificate struct {
	Subject      string `json:"subject"` // RFC 4514
	Issuer       string `json:"issuer"`
	SerialNumber string `json:"serialNumber"` // hexadecimal
	Fingerprint  string `json:"fingerprint"`  // SHA-256, hexadecimal
	// Pin is the SHA-256 of its subject public key info, hexadecimal.
	Pin        string    `json:"pin"`
	NotAfter   time.Time `json:"notAfter"`
	AcceptedAt time.Time `json:"acceptedAt"`
}

// certificateEvery is the minimum time between two writes of a certificate by one instance.
const certificateEvery = 24 * time.Hour

// Certificates records in the table of keys which client certificate was accepted
// last. It is safe for concurrent use.
type Certificates struct {
	store Store

	mu      sync.Mutex
	written map[string]time.Time // by fingerprint
}

// NewCertificates returns a Certificates that writes to store.
func NewCertificates(store Store) *Certificates {
	return &Certificates{store: store, written: map[string]time.Time{}}
}

// Record stores that a certificate was accepted. It writes each certificate at most
// once a day, so AcceptedAt can be up to a day old if several certificates are in
// use. After an error, the next call writes again. A call takes at most half a second.
func (c *Certificates) Record(ctx context.Context, certificate *x509.Certificate, now time.Time) error {
	fingerprint := clientcert.Fingerprint(certificate)
	if !c.due(fingerprint, now) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tableTimeout)
	defer cancel()
	err := c.store.RecordCertificate(ctx, AcceptedCertificate{
		Subject: clientcert.Subject(certificate), Issuer: clientcert.Issuer(certificate),
		SerialNumber: certificate.SerialNumber.Text(16), Fingerprint: fingerprint,
		Pin: clientcert.PinOf(certificate).String(), NotAfter: certificate.NotAfter, AcceptedAt: now,
	})
	if err != nil {
		c.mu.Lock()
		delete(c.written, fingerprint)
		c.mu.Unlock()
	}
	return err
}

// due reports whether a certificate must be written now, and records that it was.
func (c *Certificates) due(fingerprint string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.written, func(_ string, at time.Time) bool { return now.Sub(at) >= certificateEvery })
	if _, written := c.written[fingerprint]; written {
		return false
	}
	c.written[fingerprint] = now
	return true
}

// TrustDaysLeft returns the number of days until a CA of the truststore or the
// certificate that was accepted last expires, whichever is first; 0 if one has
// expired. last can be nil.
func TrustDaysLeft(truststore *clientcert.Truststore, last *AcceptedCertificate, now time.Time) float64 {
	expires := truststore.Expires()
	if last != nil && last.NotAfter.Before(expires) {
		expires = last.NotAfter
	}
	return max(0, expires.Sub(now).Hours()/24)
}
