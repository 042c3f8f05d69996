package clientcert_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/paymenttest"
)

// operator returns a CA and a verifier that trusts only this CA.
func operator(t *testing.T) (*paymenttest.CA, *clientcert.Verifier) {
	t.Helper()
	ca := paymenttest.NewCA("Operator CA")
	return ca, clientcert.NewVerifier(clientcert.TruststoreOf(ca.Certificate), clientcert.Policy{})
}

func pemOf(c tls.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}))
}

// rejected checks that err is a rejection with that reason.
func rejected(t *testing.T, err error, want clientcert.Reason) {
	t.Helper()
	got, ok := errors.AsType[*clientcert.Error](err)
	if !ok {
		t.Fatalf("got %v, want %s", err, want)
	}
	if got.Reason != want {
		t.Errorf("got %v, want rejection with %s", err, want)
	}
	if strings.Contains(err.Error(), "BEGIN") {
		t.Errorf("the error contains the PEM: %v", err)
	}
	if strings.Contains(err.Error(), "%") || strings.Contains(err.Error(), ": x509:") {
		t.Errorf("the error is not readable: %v", err)
	}
}

func TestAcceptsASelfSignedClientCertificate(t *testing.T) {
	self := paymenttest.NewCA("webhooks.payments.example")
	other := paymenttest.NewCA("webhooks.payments.example")
	verifier := clientcert.NewVerifier(clientcert.TruststoreOf(self.Certificate), clientcert.Policy{})
	if _, err := verifier.Verify(string(paymenttest.EncodeCertificate(self.Certificate)),
		time.Now()); err != nil {
		t.Error(err)
	}
	_, err := verifier.Verify(string(paymenttest.EncodeCertificate(other.Certificate)),
		time.Now())
	rejected(t, err, clientcert.Untrusted)
}

// What follows the certificate can only help.
func TestATextBeginsWithTheClientsCertificate(t *testing.T) {
	ca, verifier := operator(t)
	key, err := paymenttest.EncodePrivateKey(ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	good := pemOf(ca.Client(nil))
	crlf := strings.ReplaceAll(good, "\n", "\r\n")
	for name, text := range map[string]string{
		"as it is":                          good,
		"without the last line feed":        strings.TrimSuffix(good, "\n"),
		"CR LF":                             crlf,
		"CR LF, without the last line feed": strings.TrimSuffix(crlf, "\n"),
		"white space around it":             " \n\t" + good + "\n \r\n",
		"CR in a line":                      good[:60] + "\r" + good[60:],
		"CR at the end of a line":           strings.ReplaceAll(good, "\n", "\r"),
		"on one line":                       strings.ReplaceAll(good, "\n", " "),
		"twice":                             good + good,
		"text after":                        good + "text",
		"another end":                       good + "-----END CERTIFICATE-----\n",
		"its root after":                    good + string(ca.PEM()),
		"blocks that can't be read after":   good + strings.Repeat("-----BEGIN CERTIFICATE-----\n!\n", 9),
		"another type after":                good + strings.ReplaceAll(good, "CERTIFICATE", "X509 CRL"),
	} {
		if _, err := verifier.Verify(text, time.Now()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"text before":                       "Bag Attributes\n" + good,
		"its root before":                   string(ca.PEM())[1:] + good,
		"a private key after":               good + string(key),
		"an old private key after":          good + strings.ReplaceAll(string(key), "PRIVATE", "EC PRIVATE"),
		"a private key before":              string(key) + good,
		"two beginnings":                    "-----BEGIN CERTIFICATE-----\n" + good,
		"a block that can't be read before": "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n" + good,
		"white space only":                  " \n",
		"headers":                           strings.Replace(good, "-----\n", "-----\nA: b\n\n", 1),
		"another type":                      strings.ReplaceAll(good, "CERTIFICATE", "X509 CRL"),
		"not PEM":                           "MIIB",
		"not a certificate": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: []byte{0x30, 0}})),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := verifier.Verify(text, time.Now())
			rejected(t, err, clientcert.Malformed)
		})
	}
	_, err = verifier.Verify("", time.Now())
	rejected(t, err, clientcert.Missing)
	// The first certificate is the client's, also if another one of the text is accepted.
	stranger := paymenttest.NewCA("Stranger CA").Client(nil)
	_, err = verifier.Verify(pemOf(stranger)+good, time.Now())
	rejected(t, err, clientcert.Untrusted)
}

// text returns certificates in PEM.
func text(certificates ...*x509.Certificate) (text string) {
	for _, c := range certificates {
		text += string(paymenttest.EncodeCertificate(c))
	}
	return text
}

func TestItsChainCanFollowACertificate(t *testing.T) {
	root := paymenttest.NewCA("Root CA")
	first := root.NewIntermediate("First CA", nil)
	second := first.NewIntermediate("Second CA", nil)
	client, stranger := second.Client(nil).Leaf, paymenttest.NewCA("Stranger CA")
	var others []*x509.Certificate
	for range clientcert.MaxChain {
		others = append(others, root.NewIntermediate("Other CA", nil).Certificate)
	}
	expired := first.NewIntermediate("Expired CA",
		func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	noCA := first.NewIntermediate("No CA", func(c *x509.Certificate) { c.IsCA = false })
	cas := text(second.Certificate, first.Certificate)
	chain := text(client) + cas
	verifier := clientcert.NewVerifier(clientcert.TruststoreOf(root.Certificate), clientcert.Policy{})
	for name, c := range map[string]struct {
		text string
		want clientcert.Reason // "" for accepted
	}{
		"in order":           {chain, ""},
		"in another order":   {text(client, first.Certificate, second.Certificate), ""},
		"with its root":      {chain + text(root.Certificate), ""},
		"with CR LF":         {strings.ReplaceAll(chain, "\n", "\r\n"), ""},
		"on one line":        {strings.ReplaceAll(chain, "-----\n-----", "----------"), ""},
		"indented":           {text(client) + strings.ReplaceAll(cas, "\n", "\n  "), ""},
		"with other text":    {strings.ReplaceAll(chain, "-----\n-----", "-----\nBag Attributes\n\xff\n-----"), ""},
		"the last of four":   {text(client) + text(others[2:]...) + cas, ""},
		"after four others":  {text(client) + text(others...) + cas, clientcert.Untrusted},
		"the certificate":    {text(client), clientcert.Untrusted},
		"one is missing":     {text(client, second.Certificate), clientcert.Untrusted},
		"an expired CA":      {text(expired.Client(nil).Leaf, expired.Certificate) + cas, clientcert.Expired},
		"not a CA":           {text(noCA.Client(nil).Leaf, noCA.Certificate, first.Certificate), clientcert.Untrusted},
		"its own root":       {text(stranger.Client(nil).Leaf, stranger.Certificate), clientcert.Untrusted},
		"the CA as a client": {text(second.Certificate, first.Certificate), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := verifier.Verify(c.text, time.Now())
			if c.want != "" {
				rejected(t, err, c.want)
			} else if err != nil || !got[len(got)-1].Equal(root.Certificate) {
				t.Errorf("a chain of %d, %v", len(got), err)
			}
		})
	}
	// Nothing of an earlier call is trusted.
	_, err := verifier.Verify(text(client), time.Now())
	rejected(t, err, clientcert.Untrusted)
}

// A client chooses the intermediates. The limits bound what it costs to verify with them.
func TestIntermediatesThatAreTooLargeAreIgnored(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	modulus := func(bits int) *rsa.PublicKey {
		return &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), bits-1, 1), E: 65537}
	}
	long := func(c *x509.Certificate) { c.Subject.Locality = []string{strings.Repeat("x", 12<<10)} }
	for name, c := range map[string]struct {
		certificate *x509.Certificate
		want        int
	}{
		"8192 bits":           {issue(t, ca, modulus(8192), nil), 1},
		"8193 bits":           {issue(t, ca, modulus(8193), nil), 0},
		"more than 16 KiB":    {ca.NewIntermediate("a", long).Certificate, 0},
		"signed with its key": {ca.Certificate, 0},
	} {
		if got := clientcert.IntermediatesIn(text(c.certificate)); len(got) != c.want {
			t.Errorf("%s: %d, want %d", name, len(got), c.want)
		}
	}
}

// Another certificate of a revoked CA does not help its clients, whichever of the two is revoked.
func TestAClientCannotAvoidARevokedCA(t *testing.T) {
	a, b, issuing := paymenttest.NewCA("A"), paymenttest.NewCA("B"), paymenttest.NewCA("Issuing CA")
	byA, byB := certify(t, issuing, a), certify(t, issuing, b)
	client := issuing.Client(nil).Leaf
	for _, revoked := range []string{clientcert.Fingerprint(byA), clientcert.PinOf(byA).String(),
		clientcert.Fingerprint(client)} {
		store := clientcert.TruststoreOf(byA, a.Certificate, b.Certificate)
		_, err := clientcert.NewVerifier(store, clientcert.Policy{Revoked: clientcert.Revocations{revoked}}).
			Verify(text(client, byB), time.Now())
		rejected(t, err, clientcert.Revoked)
	}
}

func TestPinsAndRevocation(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	intermediate := ca.NewIntermediate("Issuing CA", nil)
	store := clientcert.TruststoreOf(ca.Certificate, intermediate.Certificate)
	client, other := intermediate.Client(nil), intermediate.Client(nil)
	subject := clientcert.Subject(client.Leaf)
	named := func(names ...string) clientcert.Policy { return clientcert.Policy{Subjects: names} }
	pins := func(certificates ...*x509.Certificate) (pins []clientcert.Pin) {
		for _, c := range certificates {
			pins = append(pins, clientcert.PinOf(c))
		}
		return pins
	}
	for name, c := range map[string]struct {
		policy clientcert.Policy
		want   clientcert.Reason // "" for accepted
	}{
		"its key":                    {clientcert.Policy{Pins: pins(other.Leaf, client.Leaf)}, ""},
		"another key":                {clientcert.Policy{Pins: pins(other.Leaf)}, clientcert.NotPinned},
		"its subject":                {named("CN=other", subject), ""},
		"its subject, in other case": {named(strings.ToUpper(subject)), clientcert.NotPinned},
		"its subject and more":       {named("C=DE," + subject), clientcert.NotPinned},
		"its DNS name":               {named("CN=b", "webhooks.payments.example"), ""},
		"neither of two":             {named("CN=b", "b.example"), clientcert.NotPinned},
		"a part of its DNS name":     {named("payments.example"), clientcert.NotPinned},
		"its key and another subject": {clientcert.Policy{Pins: pins(client.Leaf), Subjects: []string{"CN=b"}},
			clientcert.NotPinned},
		"revoked": {clientcert.Policy{Revoked: keysOf(client.Leaf)}, clientcert.Revoked},
		"revoked by its fingerprint": {clientcert.Policy{Revoked: clientcert.Revocations{
			clientcert.Fingerprint(client.Leaf)}}, clientcert.Revoked},
		"pinned and revoked": {clientcert.Policy{Pins: pins(client.Leaf), Revoked: keysOf(client.Leaf)},
			clientcert.Revoked},
		"its CA is revoked": {clientcert.Policy{Revoked: keysOf(intermediate.Certificate)}, clientcert.Revoked},
		"its CA is revoked by its fingerprint": {clientcert.Policy{Revoked: clientcert.Revocations{
			clientcert.Fingerprint(intermediate.Certificate)}}, clientcert.Revoked},
		"the root is revoked": {clientcert.Policy{Revoked: keysOf(other.Leaf, ca.Certificate)}, clientcert.Revoked},
		"another is revoked":  {clientcert.Policy{Revoked: keysOf(other.Leaf)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := clientcert.NewVerifier(store, c.policy).Verify(pemOf(client), time.Now())
			if c.want != "" {
				rejected(t, err, c.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// keysOf revokes the keys of certificates.
func keysOf(certificates ...*x509.Certificate) (list clientcert.Revocations) {
	for _, c := range certificates {
		list = append(list, clientcert.PinOf(c).String())
	}
	return list
}

// twin returns a certificate with the other valid form of its ECDSA signature.
func twin(t *testing.T, client *x509.Certificate) *x509.Certificate {
	t.Helper()
	var signature struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(client.Signature, &signature); err != nil {
		t.Fatal(err)
	}
	signature.S.Sub(elliptic.P256().Params().N, signature.S)
	second, err := asn1.Marshal(signature)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := asn1.Marshal(struct {
		TBS       asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{asn1.RawValue{FullBytes: client.RawTBSCertificate},
		pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}}, // ECDSA with SHA-256
		asn1.BitString{Bytes: second, BitLength: 8 * len(second)}})
	if err != nil {
		t.Fatal(err)
	}
	twin, err := x509.ParseCertificate(raw)
	if err != nil || clientcert.Fingerprint(twin) == clientcert.Fingerprint(client) {
		t.Fatal("it is the same certificate", err)
	}
	return twin
}

// A signature of ECDSA has a second valid form, so an attacker can change the fingerprint of a certificate that is
// revoked, of a client or of a CA.
func TestARevokedCertificateHasNoOtherForm(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	issuing := ca.NewIntermediate("Issuing CA", nil)
	client := issuing.Client(nil).Leaf
	verify := func(revoked clientcert.Revocations, client, issuing *x509.Certificate) error {
		_, err := clientcert.NewVerifier(clientcert.TruststoreOf(ca.Certificate), clientcert.Policy{Revoked: revoked}).
			Verify(text(client, issuing), time.Now())
		return err
	}
	other, otherCA := twin(t, client), twin(t, issuing.Certificate)
	if err := verify(nil, other, otherCA); err != nil {
		t.Fatal(err)
	}
	for _, revoked := range []clientcert.Revocations{keysOf(client), keysOf(issuing.Certificate),
		{clientcert.Fingerprint(client)}, {clientcert.Fingerprint(other)},
		{clientcert.Fingerprint(issuing.Certificate)},
		{clientcert.Fingerprint(otherCA)}} {
		rejected(t, verify(revoked, client, issuing.Certificate), clientcert.Revoked)
		rejected(t, verify(revoked, other, otherCA), clientcert.Revoked)
	}
	// An RSA signature has one form.
	signer := &paymenttest.CA{Certificate: ca.Certificate, Key: paymenttest.NewKey(2048).Private}
	signer.Certificate = signer.SelfSigned(func(*x509.Certificate) {})
	client = signer.Client(nil).Leaf
	for revoked, want := range map[string]clientcert.Reason{clientcert.Fingerprint(client): clientcert.Revoked,
		clientcert.Fingerprint(other): ""} {
		_, err := clientcert.NewVerifier(clientcert.TruststoreOf(signer.Certificate),
			clientcert.Policy{Revoked: clientcert.Revocations{revoked}}).VerifyCertificate(client, time.Now())
		if want != "" {
			rejected(t, err, want)
		} else if err != nil {
			t.Error(err)
		}
	}
}

// A setting names a subject as Subject writes it, and has no other spelling of it.
func TestASubjectHasOneSpelling(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	var odd pkix.RDNSequence
	for text, id := range map[string]asn1.ObjectIdentifier{
		"DE": {2, 5, 4, 6}, `Payments, "Inc" + Co; <x> a\b /c=1`: {2, 5, 4, 10}, "#x ": {2, 5, 4, 11},
		" Württemberg": {2, 5, 4, 8}, "42": {2, 5, 4, 5}, "odd": {1, 2, 3, 4, 5}, "": {2, 5, 4, 7},
	} {
		odd = append(odd, pkix.RelativeDistinguishedNameSET{{Type: id, Value: text}, {Type: id, Value: "and"}})
	}
	raw, err := asn1.Marshal(odd)
	if err != nil {
		t.Fatal(err)
	}
	c := issue(t, ca, ca.Key.Public(), func(c *x509.Certificate) { c.RawSubject = raw })
	for _, text := range []string{clientcert.Subject(c), "CN=a b,O=Payments", "hooks.payments.example", "*.a_b"} {
		if got, err := clientcert.ParseSubject(text); err != nil || got != text {
			t.Errorf("%q is read as %q, %v", text, got, err)
		}
	}
	if _, err := clientcert.NewVerifier(clientcert.TruststoreOf(ca.Certificate),
		clientcert.Policy{Subjects: []string{clientcert.Subject(c)}}).VerifyCertificate(c, time.Now()); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"", "Payments Ltd", "C = DE, CN = a", "C=DE, CN=a", "/C=DE/CN=a", "subject=CN=a",
		`O="Payments, Inc"`, "CN=Payments, Inc", "cn=a", "CN=a,", ",CN=a", `CN=a\`, "1.=a", "CN=a;CN=b", "CN=\uFFFD"} {
		if got, err := clientcert.ParseSubject(text); err == nil {
			t.Errorf("%q is accepted as %q", text, got)
		}
	}
}

// Everything in a subject is chosen by a CA. A DNS name is not a subject.
func TestADNSNameIsNoSubject(t *testing.T) {
	ca, policy := paymenttest.NewCA("Operator CA"), clientcert.Policy{Subjects: []string{"CN=a"}}
	client := ca.Client(func(c *x509.Certificate) { c.DNSNames = []string{"CN=a"} })
	_, err := clientcert.NewVerifier(clientcert.TruststoreOf(ca.Certificate), policy).Verify(pemOf(client), time.Now())
	rejected(t, err, clientcert.NotPinned)
}

func TestExpiredErrorContainsTheTime(t *testing.T) {
	ca, verifier := operator(t)
	end := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	until := func(c *x509.Certificate) { c.NotAfter = end }
	client := ca.Client(until)
	if _, err := verifier.Verify(pemOf(client), end); err != nil {
		t.Errorf("in its last second: %v", err)
	}
	_, err := verifier.Verify(pemOf(client), end.Add(time.Millisecond))
	rejected(t, err, clientcert.Expired)
	if !strings.HasSuffix(err.Error(), "at "+end.Format(time.RFC3339)) {
		t.Errorf("the error does not contain the time of expiry: %v", err)
	}
	short := ca.NewIntermediate("Issuing CA", until)
	store := clientcert.TruststoreOf(ca.Certificate, short.Certificate)
	for days, want := range map[int]float64{45: 45, 0: 0, -1: 0} {
		if got := clientcert.DaysLeft(store.Certificates(), end.AddDate(0, 0, -days)); got != want {
			t.Errorf("%v days are left, want %v", got, want)
		}
	}
	_, err = clientcert.NewVerifier(store, clientcert.Policy{}).Verify(pemOf(short.Client(nil)), end.Add(time.Hour))
	rejected(t, err, clientcert.Expired)
	if !strings.Contains(err.Error(), "a CA of its chain") {
		t.Error(err)
	}
}

func TestParsePin(t *testing.T) {
	pin := clientcert.PinOf(paymenttest.NewCA("Operator CA").Client(nil).Leaf)
	for _, text := range []string{pin.String(), " " + strings.ReplaceAll(fmt.Sprintf("% X", pin[:]), " ", ":") + " "} {
		if got, err := clientcert.ParsePin(text); err != nil || got != pin {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, wrong := range []string{"", "00", strings.Repeat("0", 63), strings.Repeat("0", 66),
		strings.Repeat("g", 64), strings.Repeat("0", 64) + "g", strings.Repeat("0", 64) + "0g"} {
		if _, err := clientcert.ParsePin(wrong); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}

// ownUse returns a self-signed certificate that is not one of a CA.
func ownUse(usages []x509.ExtKeyUsage, unknown ...asn1.ObjectIdentifier) string {
	c := paymenttest.NewCA("a client").SelfSigned(func(c *x509.Certificate) {
		c.IsCA, c.KeyUsage, c.ExtKeyUsage, c.UnknownExtKeyUsage = false, x509.KeyUsageDigitalSignature, usages, unknown
	})
	return string(paymenttest.EncodeCertificate(c))
}

// All problems of a truststore are named, each once.
func TestParseTruststoreNamesEveryProblem(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	text := string(ca.PEM())
	key, err := paymenttest.EncodePrivateKey(ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	at := func(change func(*x509.Certificate)) string {
		return string(paymenttest.EncodeCertificate(ca.NewIntermediate("Other CA", change).Certificate))
	}
	sha1 := ca.Client(flaws["sha-1"].change)
	long := ca
	for range 4 {
		long = long.NewIntermediate("CA "+strings.Repeat("I", len(long.PEM())/600), nil)
	}
	lines := strings.Count(text, "\n")
	block := func(kind string) string { return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte{1}})) }
	const (
		damaged  = "a certificate's first or last line is damaged (line "
		noClient = "certificate 1 (CN=a client,O=Payment Service) is neither the certificate of a CA nor"
		missing  = "the certificate of CN=Operator CA,O=Payment Service is missing: it issued CN="
		unread   = "certificate 1 can't be read: "
		client   = "certificate 2 (CN=webhooks.payments.example,O=Payment Service) "
		other    = "certificate 2 (CN=Other CA,O=Payment Service) "
		again    = " (CN=Operator CA,O=Payment Service) has the subject of an earlier certificate"
	)
	for name, c := range map[string]struct {
		text string
		want []string // how the problems begin
	}{
		"nothing":       {"", []string{"there is no certificate"}},
		"a private key": {text + string(key), []string{"the truststore contains a private key"}},
		"an old key":    {text + block("EC PRIVATE KEY"), []string{"the truststore contains a private key"}},
		"a private key in a comment": {text + strings.ReplaceAll(string(key), "-----B", "# -----B"),
			[]string{"the truststore contains a private key"}},
		"only text": {"hello\n", []string{"there is no certificate"}},
		"a hyphen too few": {text + text[1:],
			[]string{damaged + fmt.Sprint(lines+1) + ")", damaged + fmt.Sprint(2*lines)}},
		"no first line": {text + text[28:], []string{damaged + fmt.Sprint(2*lines-1)}},
		"no last line": {text[:90] + "\n\n" + text,
			[]string{unread + "its first or last line is damaged (line 1)"}},
		"half a last line": {text[:len(text)-4], []string{unread + "its first or last line is damaged (line 1)"}},
		"not base64": {"\n\n" + strings.Replace(text, "M", "*", 1),
			[]string{unread + "illegal base64 data at input byte 0 (line 3)"}},
		"a line is missing": {text[:92] + text[157:], []string{unread}},
		"OpenSSL's trust": {strings.ReplaceAll(text, "CERTIFICATE", "TRUSTED CERTIFICATE"),
			[]string{"certificate 1 is a TRUSTED CERTIFICATE, not a certificate (line 1)"}},
		"many": {block("X509 CRL") + strings.Replace(text, "-----\n", "-----\nA: b\n\n", 1) + block("CERTIFICATE") +
			text + text + text,
			[]string{"certificate 1 is a X509 CRL, not a certificate",
				"certificate 2 can't be read: illegal base64 data at input byte 1 (line 4)",
				"certificate 3 can't be read: ", "certificate 5" + again, "certificate 6" + again}},
		"another key under the name of the issuer": {string(paymenttest.NewCA("Operator CA").PEM()) + at(nil),
			[]string{missing + "Other CA"}},
		"an issuer missing": {at(nil), []string{missing + "Other CA"}},
		"SHA-1, not of a CA": {text + pemOf(sha1), []string{client + "is signed with ECDSA-SHA1",
			client + "is not the certificate of a CA", missing + "webhooks.payments.example"}},
		"expired": {text + at(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }),
			[]string{other + "expired at"}},
		"not yet valid": {text + at(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }),
			[]string{other + "is not valid before"}},
		"not a CA": {text + at(func(c *x509.Certificate) { c.IsCA = false }),
			[]string{other + "is not the certificate of a CA"}},
		"may not sign": {text + at(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }),
			[]string{other + "is not the certificate of a CA"}},
		"a server's":      {ownUse([]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}), []string{noClient}},
		"another purpose": {ownUse(nil, asn1.ObjectIdentifier{1, 2, 3, 4}), []string{noClient}},
		"a chain of five": {string(long.PEM()), []string{"the chain of CN=CA"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := clientcert.ParseTruststore([]byte(c.text), time.Now())
			if err == nil {
				t.Fatal("no error")
			}
			got := strings.Split(err.Error(), "\n")
			if len(got) != len(c.want) || strings.Contains(err.Error(), "BEGIN") || strings.Contains(err.Error(), "%") {
				t.Fatalf("%d problems, want %d, or one is not readable: %v", len(got), len(c.want), err)
			}
			for i, want := range c.want {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("got %s, want %s", got[i], want)
				}
			}
		})
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
		store, err := clientcert.ParseTruststore([]byte(text), time.Now())
		if err != nil || string(store.PEM()) != want {
			t.Errorf("%s: %v", name, err)
		}
		if store, err = clientcert.ReadTruststore([]byte(text)); err != nil || string(store.PEM()) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The extensions of CAs and clients are optional (RFC 5280, sections 4.2.1.3 and 4.2.1.12).
func TestATruststoreMayHold(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	noUsage := func(c *x509.Certificate) { c.KeyUsage = 0 }
	for name, text := range map[string]string{
		"a CA without key usages":            string(paymenttest.EncodeCertificate(ca.SelfSigned(noUsage))),
		"an intermediate without key usages": string(ca.NewIntermediate("Issuing CA", noUsage).PEM()),
		"a client for every purpose":         ownUse(nil),
		"a client":                           ownUse([]x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}),
		"a client for any purpose":           ownUse([]x509.ExtKeyUsage{x509.ExtKeyUsageAny}),
		"a server and client": ownUse([]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth,
			x509.ExtKeyUsageClientAuth}),
	} {
		if _, err := clientcert.ParseTruststore([]byte(text), time.Now()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadTruststoreReadsOnlyATruststore(t *testing.T) {
	ca := paymenttest.NewCA("Root CA").NewIntermediate("Issuing CA", nil)
	text := ca.PEM()
	store, err := clientcert.ReadTruststore(text)
	if err != nil || len(store.Certificates()) != 2 {
		t.Fatal(store, err)
	}
	if _, err := clientcert.NewVerifier(store, clientcert.Policy{}).VerifyCertificate(ca.Client(nil).Leaf,
		time.Now()); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{"", "hello", string(text[:100]),
		string(text) + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{1}}))} {
		if s, err := clientcert.ReadTruststore([]byte(wrong)); err == nil || s != nil ||
			!strings.HasPrefix(err.Error(), "clientcert: truststore: ") || strings.Contains(err.Error(), "%") {
			t.Errorf("%q is read as %v, %v", wrong, s, err)
		}
	}
}

// issue returns a certificate of a CA for any public key.
func issue(t *testing.T, ca *paymenttest.CA, public any, change func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: paymenttest.ClientSubject,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Certificate, public, ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// API Gateway accepts RSA keys of at least 2048 bits, and ECDSA keys on three curves.
func TestKeysThatAreStrongEnough(t *testing.T) {
	modulus := func(bits uint) *big.Int { return new(big.Int).SetBit(big.NewInt(1), int(bits)-1, 1) }
	curve := func(c elliptic.Curve) any {
		key, err := ecdsa.GenerateKey(c, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key.Public()
	}
	ca, verifier := operator(t)
	// A serial number has at most 20 octets (RFC 5280, section 4.1.2.2).
	largest := func(c *x509.Certificate) {
		c.SerialNumber = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 159), big.NewInt(1))
	}
	for name, test := range map[string]struct {
		key  any
		want string
	}{
		"2047 bits":       {&rsa.PublicKey{N: modulus(2047), E: 65537}, "an RSA key of 2047 bits, fewer than 2048"},
		"2048 bits":       {&rsa.PublicKey{N: modulus(2048), E: 65537}, ""},
		"8193 bits":       {&rsa.PublicKey{N: modulus(8193), E: 65537}, "an RSA key of 8193 bits, more than 8192"},
		"8192 bits":       {&rsa.PublicKey{N: modulus(8192), E: 65537}, ""},
		"4096 bits":       {&rsa.PublicKey{N: modulus(4096), E: 65537}, ""},
		"an even modulus": {&rsa.PublicKey{N: new(big.Int).Lsh(modulus(2047), 1), E: 65537}, "an even modulus"},
		"exponent 65535":  {&rsa.PublicKey{N: modulus(2048), E: 65535}, "the exponent 65535"},
		"exponent 65538":  {&rsa.PublicKey{N: modulus(2048), E: 65538}, "the exponent 65538"},
		"exponent 65539":  {&rsa.PublicKey{N: modulus(2048), E: 65539}, ""},
		"P-256":           {curve(elliptic.P256()), ""},
		"P-384":           {curve(elliptic.P384()), ""},
		"P-521":           {curve(elliptic.P521()), ""},
	} {
		_, err := verifier.VerifyCertificate(issue(t, ca, test.key, largest), time.Now())
		if test.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		rejected(t, err, clientcert.Weak)
		if !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each CA of a chain must be as strong as a client certificate, and the chain as short as API Gateway accepts.
func TestEveryCAOfAChainIsChecked(t *testing.T) {
	weak := paymenttest.NewCA("Weak CA")
	key, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	c := issue(t, &paymenttest.CA{Certificate: weak.Certificate, Key: weak.Key}, key.Public(),
		func(c *x509.Certificate) {
			c.Subject = pkix.Name{CommonName: "Issuing CA"}
			c.BasicConstraintsValid, c.IsCA, c.KeyUsage, c.ExtKeyUsage = true, true, x509.KeyUsageCertSign, nil
		})
	client := issue(t, &paymenttest.CA{Certificate: c, Key: key}, weak.Key.Public(), nil)
	_, err = clientcert.NewVerifier(clientcert.TruststoreOf(c, weak.Certificate),
		clientcert.Policy{}).VerifyCertificate(client, time.Now())
	rejected(t, err, clientcert.Weak)
	if !strings.HasSuffix(err.Error(), "CN=Issuing CA has an RSA key of 1024 bits, fewer than 2048") {
		t.Errorf("%v", err)
	}

	long := paymenttest.NewCA("Root CA")
	for n := range 4 {
		all, err := clientcert.ReadTruststore(long.PEM())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := clientcert.NewVerifier(all, clientcert.Policy{}).VerifyCertificate(long.Client(nil).Leaf,
			time.Now()); err != nil {
			t.Errorf("%d CAs: %v", n+1, err)
		}
		long = long.NewIntermediate(fmt.Sprintf("CA %d", n), nil)
	}
	all, err := clientcert.ReadTruststore(long.PEM())
	if err != nil {
		t.Fatal(err)
	}
	_, err = clientcert.NewVerifier(all, clientcert.Policy{}).VerifyCertificate(long.Client(nil).Leaf, time.Now())
	rejected(t, err, clientcert.Untrusted)
	if !strings.HasSuffix(err.Error(), "its chain has 5 CAs, more than 4") {
		t.Errorf("%v", err)
	}
}

// A CA that two others have certified has two chains. Its own key is in both.
func TestOneRevokedChainLeavesTheOther(t *testing.T) {
	a, b, issuing := paymenttest.NewCA("A"), paymenttest.NewCA("B"), paymenttest.NewCA("Issuing CA")
	byA, byB := certify(t, issuing, a), certify(t, issuing, b)
	for revoked, want := range map[*x509.Certificate]*x509.Certificate{
		a.Certificate: b.Certificate, b.Certificate: a.Certificate, byA: nil} {
		chain, err := clientcert.NewVerifier(clientcert.TruststoreOf(byA, byB, a.Certificate, b.Certificate),
			clientcert.Policy{Revoked: keysOf(revoked)}).VerifyCertificate(issuing.Client(nil).Leaf, time.Now())
		if want == nil {
			rejected(t, err, clientcert.Revoked)
		} else if err != nil || len(chain) != 3 || !chain[2].Equal(want) {
			t.Errorf("%v, a chain of %d", err, len(chain))
		}
	}
}

// certify returns a certificate by which one CA certifies another.
func certify(t *testing.T, of, by *paymenttest.CA) *x509.Certificate {
	return issue(t, by, of.Key.Public(), func(c *x509.Certificate) {
		c.Subject = of.Certificate.Subject
		c.BasicConstraintsValid, c.IsCA, c.KeyUsage, c.ExtKeyUsage = true, true, x509.KeyUsageCertSign, nil
	})
}

// Two CAs that issued each other have no root.
func TestACycleOfCAsEnds(t *testing.T) {
	a, b := paymenttest.NewCA("A"), paymenttest.NewCA("B")
	text := append(paymenttest.EncodeCertificate(certify(t, a, b)), paymenttest.EncodeCertificate(certify(t, b, a))...)
	store, err := clientcert.ParseTruststore(text, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	_, err = clientcert.NewVerifier(store, clientcert.Policy{}).VerifyCertificate(a.Client(nil).Leaf, time.Now())
	rejected(t, err, clientcert.Untrusted)
}
