package simulation

import (
	"crypto/x509"
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

// pki returns the truststore and the client certificates of the senders, in PEM. All except expired are valid at the
// time of the bubbles.
var pki = sync.OnceValue(func() (p struct {
	truststore                 clientcert.Truststore
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
	p.truststore = clientcert.Truststore{trusted.Certificate, issuing.Certificate}
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
	p, correct := pki(), *d
	certificates := map[forgery]string{authentic: p.client, payloadChanged: p.client, wrongSignature: p.client,
		unknownKeyID: p.untrusted}
	if m == byMTLS {
		certificates = map[forgery]string{authentic: p.client, payloadChanged: p.untrusted, tooOld: p.expired}
	}
	if m == byMTLS || d.forgery == unknownKeyID || d.forgery == tooOld {
		correct.forgery = authentic // the certificate is wrong, and not the signature
	}
	out := correct.signed(at)
	out.Certificate = certificates[d.forgery]
	if m == byMTLS {
		if d.forgery != unknownKeyID {
			out.Headers = map[string]string{}
		} else { // the certificate is in a header, and the signature is correct
			out.Headers["x-amzn-mtls-clientcert"] = p.client
		}
	}
	return out
}
