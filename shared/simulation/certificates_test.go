package simulation

import (
	"crypto/x509"
	"maps"
	"slices"
	"sync"
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/paymenttest"
)

// mechanism is what a webhook must prove.
type mechanism int

const (
	bySignature mechanism = iota
	byMTLS
	byBoth
)

// mechanismOf returns the mechanism of a history: every fourth one requires client
// certificates.
func mechanismOf(seed uint64) mechanism {
	switch seed % 8 {
	case 3:
		return byMTLS
	case 5:
		return byBoth
	}
	return bySignature
}

// pki is the truststore, and client certificates that senders present, in PEM. All
// are valid in the time of the bubbles, but for expired.
var pki = sync.OnceValue(func() (p struct {
	truststore                *clientcert.Truststore
	client, stranger, expired string
}) {
	ca := func() *paymenttest.CA {
		a := paymenttest.NewCA("Operator CA")
		a.Certificate = a.SelfSigned(inBubbles)
		return a
	}
	trusted := ca()
	issuing := trusted.NewIntermediate("Issuing CA", inBubbles)
	issue := func(a *paymenttest.CA, change func(*x509.Certificate)) string {
		return string(paymenttest.EncodeCertificate(a.Client(change).Leaf))
	}
	p.truststore = clientcert.TruststoreOf(trusted.Certificate, issuing.Certificate)
	p.client = issue(issuing, inBubbles)
	p.stranger = issue(ca(), inBubbles)
	p.expired = issue(issuing, func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC),
			time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	})
	return p
})

func inBubbles(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
}

// proved returns the delivery as it comes over the wire where a mechanism is
// required. An authentic one has what is required and no more. A forged one lacks one
// thing: by mTLS its certificate is wrong in one of four ways; by both, its signature
// or its certificate is, and the other proof is right.
func (d *delivery) proved(at time.Time, m mechanism) intake.Delivery {
	if m == bySignature {
		return d.signed(at)
	}
	genuine := *d
	genuine.forgery = authentic
	out := genuine.signed(at)
	out.Certificate.PEM = pki().client
	if m == byBoth {
		switch d.forgery {
		case payloadChanged, strangersSignature:
			out = d.signed(at)
			out.Certificate.PEM = pki().client
		case strangersKeyID:
			out.Certificate.PEM = pki().stranger
		case tooOld:
			out.Certificate.PEM = ""
		}
		return out
	}
	out.Headers = map[string]string{}
	switch d.forgery {
	case payloadChanged:
		out.Certificate.PEM = pki().stranger
	case strangersSignature:
		out.Certificate.PEM = ""
	case strangersKeyID: // certificate and signature are right, in the wrong places
		out.Certificate.PEM = ""
		out.Headers = maps.Clone(genuine.signed(at).Headers)
		out.Headers["x-amzn-mtls-clientcert"] = pki().client
	case tooOld:
		out.Certificate.PEM = pki().expired
	}
	return out
}

// rejectsCertificate reports whether an outcome rejects a client certificate.
func rejectsCertificate(o intake.Outcome) bool {
	return slices.Contains(clientcert.Reasons(), clientcert.Reason(o))
}
