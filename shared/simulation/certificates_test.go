package simulation

import (
	"crypto/x509"
	"maps"
	"sync"
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/paymenttest"
)

// mechanism is how webhooks are authenticated.
type mechanism int

const (
	bySignature mechanism = iota
	byMTLS
	byBoth
)

// mechanismOf returns the mechanism of a history: every fourth history requires client certificates.
func mechanismOf(seed uint64) mechanism {
	switch seed % 8 {
	case 3:
		return byMTLS
	case 5:
		return byBoth
	}
	return bySignature
}

// pki returns the truststore and the client certificates of the senders, in PEM. All except expired are valid at the
// time of the bubbles.
var pki = sync.OnceValue(func() (p struct {
	truststore                 *clientcert.Truststore
	client, untrusted, expired string
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
	p.untrusted = issue(ca(), inBubbles)
	p.expired = issue(issuing, func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC),
			time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	})
	return p
})

func inBubbles(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
}

// proved returns the delivery as the function receives it, with the proofs of a mechanism. An authentic delivery has
// exactly the required proofs. In a forged one, one proof is wrong: with byMTLS, the certificate in one of four ways;
// with byBoth, the signature or the certificate.
func (d *delivery) proved(at time.Time, m mechanism) intake.Delivery {
	if m == bySignature {
		return d.signed(at)
	}
	genuine := *d
	genuine.forgery = authentic
	out := genuine.signed(at)
	out.Certificate = pki().client
	if m == byBoth {
		switch d.forgery {
		case payloadChanged, wrongSignature:
			out = d.signed(at)
			out.Certificate = pki().client
		case unknownKeyID:
			out.Certificate = pki().untrusted
		case tooOld:
			out.Certificate = ""
		}
		return out
	}
	out.Headers = map[string]string{}
	switch d.forgery {
	case payloadChanged:
		out.Certificate = pki().untrusted
	case wrongSignature:
		out.Certificate = ""
	case unknownKeyID: // the certificate is in a header, and the signature is correct
		out.Certificate = ""
		out.Headers = maps.Clone(genuine.signed(at).Headers)
		out.Headers["x-amzn-mtls-clientcert"] = pki().client
	case tooOld:
		out.Certificate = pki().expired
	}
	return out
}
