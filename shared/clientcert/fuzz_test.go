package clientcert_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/paymenttest"
)

// FuzzVerify checks that no certificate is accepted except the one that the CA issued, and that errors contain no PEM.
func FuzzVerify(f *testing.F) {
	ca := paymenttest.NewCA("Operator CA")
	issuing := ca.NewIntermediate("Issuing CA", nil)
	client := issuing.Client(nil)
	good := pemOf(client)
	f.Add(good)
	f.Add(good + good)
	f.Add(good + string(issuing.PEM()))
	f.Add("-----BEGIN CERTIFICATE-----\n!\n" + good)
	f.Add(strings.ReplaceAll(good, "\n", "\r\n"))
	f.Add(string(issuing.PEM()))
	for _, flaw := range flaws {
		if flaw.change != nil {
			f.Add(pemOf(ca.Client(flaw.change)))
		}
	}
	verifier := clientcert.NewVerifier(clientcert.TruststoreOf(ca.Certificate, issuing.Certificate),
		clientcert.Policy{})
	now := time.Now()
	f.Fuzz(func(t *testing.T, text string) {
		chain, err := verifier.Verify(text, now)
		if err == nil {
			if len(chain) != 3 || !bytes.Equal(chain[0].RawTBSCertificate, client.Leaf.RawTBSCertificate) {
				// A CA's own certificate is allowed for every purpose, including clients.
				if c := chain[0]; !c.Equal(ca.Certificate) && !c.Equal(issuing.Certificate) {
					t.Errorf("accepted: %q", text)
				}
			}
			return
		}
		rejected, ok := errors.AsType[*clientcert.Error](err)
		if !ok || rejected.Reason == "" || strings.Contains(err.Error(), "-----") || len(chain) > 1 {
			t.Errorf("rejected with %v and a chain of %d", err, len(chain))
		}
	})
}
