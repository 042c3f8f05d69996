package clientcert_test

import (
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/paymenttest"
)

// All problems of a truststore are named, each once.
func TestParseTruststoreNamesEveryProblem(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	good := string(ca.PEM())
	key := string(paymenttest.EncodePrivateKey(ca.Key))
	with := func(change func(*x509.Certificate)) string {
		return good + text(ca.NewIntermediate("Other CA", change).Certificate)
	}
	self := func(change func(*x509.Certificate)) string {
		return text(paymenttest.NewCA("a client").SelfSigned(change))
	}
	sha1 := ca.Client(func(c *x509.Certificate) { c.SignatureAlgorithm = x509.ECDSAWithSHA1 }).Leaf
	lines := strings.Count(good, "\n")
	block := func(kind string) string { return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte{1}})) }
	const (
		damaged  = "a certificate's first or last line is damaged (line "
		noClient = "certificate 1 (CN=a client,O=Payment Service) is neither the certificate of a CA nor"
		missing  = "the certificate of CN=Operator CA,O=Payment Service is missing: it issued CN="
		unread   = "certificate 1 can't be read: "
		client   = "certificate 2 (CN=webhooks.payments.example,O=Payment Service) "
		other    = "certificate 2 (CN=Other CA,O=Payment Service) "
		again    = " (CN=Operator CA,O=Payment Service) has the subject of an earlier certificate"
		leaked   = "the truststore contains a private key"
	)
	for text, want := range map[string][]string{ // how the problems begin
		"":                             {"there is no certificate"},
		"hello\n":                      {"there is no certificate"},
		good + key:                     {leaked},
		good + block("EC PRIVATE KEY"): {leaked},
		good + strings.ReplaceAll(key, "-----B", "# -----B"): {leaked},
		good + good[1:]:                             {fmt.Sprint(damaged, lines+1, ")"), fmt.Sprint(damaged, 2*lines)},
		good + good[28:]:                            {fmt.Sprint(damaged, 2*lines-1)},
		good[:90] + "\n\n" + good:                   {unread + "its first or last line is damaged (line 1)"},
		good[:len(good)-4]:                          {unread + "its first or last line is damaged (line 1)"},
		"\n\n" + strings.Replace(good, "M", "*", 1): {unread + "illegal base64 data at input byte 0 (line 3)"},
		good[:92] + good[157:]:                      {unread}, // a line is missing
		strings.ReplaceAll(good, "CERTIFICATE", "TRUSTED CERTIFICATE"): { // of OpenSSL
			"certificate 1 is a TRUSTED CERTIFICATE, not a certificate (line 1)"},
		block("X509 CRL") + strings.Replace(good, "-----\n", "-----\nA: b\n\n", 1) + block("CERTIFICATE") + good +
			good + good: {"certificate 1 is a X509 CRL, not a certificate",
			"certificate 2 can't be read: illegal base64 data at input byte 1 (line 4)",
			"certificate 3 can't be read: ", "certificate 5" + again, "certificate 6" + again},
		string(paymenttest.NewCA("Operator CA").PEM()) + with(nil)[len(good):]: {missing + "Other CA"},
		with(nil)[len(good):]: {missing + "Other CA"},
		good + text(sha1): {client + "is signed with ECDSA-SHA1", client + "is not the certificate of a CA",
			missing + "webhooks.payments.example"},
		with(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }): {other + "expired at"},
		with(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }):   {other + "is not valid before"},
		with(func(c *x509.Certificate) { c.IsCA = false }): {
			other + "is not the certificate of a CA"},
		with(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }): {
			other + "is not the certificate of a CA"},
		self(asClient(x509.ExtKeyUsageServerAuth)): {noClient},
		self(func(c *x509.Certificate) {
			c.IsCA, c.UnknownExtKeyUsage = false, []asn1.ObjectIdentifier{{1, 2, 3, 4}}
		}): {noClient},
		string(chain(ca, 5).PEM()): {"the chain of CN=CA 3,"},
	} {
		_, err := clientcert.ParseTruststore([]byte(text), time.Now())
		got := strings.Split(fmt.Sprint(err), "\n")
		if len(got) != len(want) || strings.Contains(got[0], "BEGIN") || strings.Contains(got[0], "%") {
			t.Errorf("%s\n%d problems, want %d, or one is not readable: %v", text, len(got), len(want), err)
			continue
		}
		for i, want := range want {
			if !strings.HasPrefix(got[i], want) {
				t.Errorf("got %s, want %s", got[i], want)
			}
		}
	}
}

// Tools write other text beside certificates, and people concatenate files.
func TestATruststoreIsReadBesideOtherText(t *testing.T) {
	root := paymenttest.NewCA("Root CA")
	issuing := root.NewIntermediate("Issuing CA", nil)
	want := string(issuing.PEM())
	first, second := text(issuing.Certificate), text(root.Certificate)
	for name, text := range map[string]string{
		"as it is":   want,
		"CR LF":      strings.ReplaceAll(want, "\n", "\r\n"),
		"CR":         strings.ReplaceAll(want, "\n", "\r"),
		"joined":     strings.ReplaceAll(want, "-----\n-----", "----------"),
		"no last LF": strings.TrimSpace(want),
		"marks":      "\uFEFF" + first + "\uFEFF" + second,
		"comments": "\uFEFF# CAs: -----BEGIN\n" + first + " # " +
			strings.ReplaceAll(second, "\n", "\n # ") + "\n#\n" + second + "#",
		"attributes": "Bag Attributes\n    friendlyName: a\nsubject=CN = a\n\n" + first +
			"Bag Attributes: <No>\n" + second + "end",
		"indented": "  " + strings.ReplaceAll(want, "\n", "\n  "),
		"one line": strings.ReplaceAll(want, "\n", " "),
		"Latin-1":  "M\xfcnchen\n" + want,
	} {
		parsed, err := clientcert.ParseTruststore([]byte(text), time.Now())
		read, failed := clientcert.ReadTruststore([]byte(text))
		if err != nil || failed != nil || string(parsed.PEM()) != want || string(read.PEM()) != want {
			t.Errorf("%s: %v, %v", name, err, failed)
		}
	}
}

// The extensions of CAs and clients are optional (RFC 5280, sections 4.2.1.3 and 4.2.1.12).
func TestATruststoreMayHold(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	noUsage := func(c *x509.Certificate) { c.KeyUsage = 0 }
	for name, certificate := range map[string]string{
		"a CA without key usages":            text(ca.SelfSigned(noUsage)),
		"an intermediate without key usages": string(ca.NewIntermediate("Issuing CA", noUsage).PEM()),
		"a client for every purpose":         text(ca.SelfSigned(func(c *x509.Certificate) { c.IsCA = false })),
		"a client":                           text(ca.SelfSigned(asClient())),
		"a client for any purpose":           text(ca.SelfSigned(asClient(x509.ExtKeyUsageAny))),
		"a server and client": text(ca.SelfSigned(asClient(x509.ExtKeyUsageServerAuth,
			x509.ExtKeyUsageClientAuth))),
	} {
		if _, err := clientcert.ParseTruststore([]byte(certificate), time.Now()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadTruststoreReadsOnlyATruststore(t *testing.T) {
	good := string(chain(paymenttest.NewCA("Root CA"), 2).PEM())
	for _, wrong := range []string{"", "hello", good[:100], good + "-----BEGIN CERTIFICATE-----\nAQ==\n"} {
		if s, err := clientcert.ReadTruststore([]byte(wrong)); err == nil || s != nil ||
			!strings.HasPrefix(err.Error(), "clientcert: truststore: ") || strings.Contains(err.Error(), "%") {
			t.Errorf("%q is read as %v, %v", wrong, s, err)
		}
	}
}

// Two CAs that issued each other have no root.
func TestACycleOfCAsEnds(t *testing.T) {
	a, b := paymenttest.NewCA("A"), paymenttest.NewCA("B")
	store, err := clientcert.ParseTruststore([]byte(text(certify(a, b), certify(b, a))), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	_, err = clientcert.NewVerifier(store, clientcert.Policy{}).VerifyCertificate(a.Client(nil).Leaf, time.Now())
	expect(t, err, clientcert.Untrusted)
}
