package clientcert_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
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

// expect checks that err is a rejection with that reason; "" stands for none. Its text must be readable, and without
// PEM.
func expect(t *testing.T, err error, want clientcert.Reason) {
	t.Helper()
	got, ok := errors.AsType[*clientcert.Error](err)
	if want == "" && err != nil || want != "" && (!ok || got.Reason != want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if ok && (strings.Contains(err.Error(), "BEGIN") || strings.ContainsAny(err.Error(), "%") ||
		strings.Contains(err.Error(), ": x509:")) {
		t.Errorf("the error is not readable: %v", err)
	}
}

// verify verifies a text with a policy and these certificates in the truststore.
func verify(text string, policy clientcert.Policy, trusted ...*x509.Certificate) ([]*x509.Certificate, error) {
	return clientcert.NewVerifier(clientcert.Truststore(trusted), policy).Verify(text, time.Now())
}

// text returns certificates in PEM.
func text(certificates ...*x509.Certificate) (text string) {
	for _, c := range certificates {
		text += string(paymenttest.EncodeCertificate(c))
	}
	return text
}

func TestEachCertificateHasItsReason(t *testing.T) {
	key := func(key any) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.PublicKey = key }
	}
	modulus := func(bits uint) *big.Int { return new(big.Int).SetBit(big.NewInt(1), int(bits)-1, 1) }
	bits := func(n uint) func(*x509.Certificate) { return key(&rsa.PublicKey{N: modulus(n), E: 65537}) }
	exponent := func(e int) func(*x509.Certificate) { return key(&rsa.PublicKey{N: modulus(2048), E: e}) }
	curve := func(c elliptic.Curve) func(*x509.Certificate) {
		private, err := ecdsa.GenerateKey(c, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key(private.Public())
	}
	serial := func(n *big.Int) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.SerialNumber = n }
	}
	octets := func(n uint) *big.Int { return new(big.Int).Lsh(big.NewInt(1), 8*n) }
	small := paymenttest.NewKey(1024).Private
	for name, c := range map[string]struct {
		reason clientcert.Reason // "" for accepted
		detail string            // is a part of the error
		change func(*x509.Certificate)
		// issuer returns another issuer than the CA. Its certificate is in the truststore, too.
		issuer func(*paymenttest.CA) *paymenttest.CA
	}{
		"as it is": {},
		"expired": {clientcert.Expired, "", func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour)
		}, nil},
		"not yet valid": {clientcert.NotYetValid, "it is not valid before ",
			func(c *x509.Certificate) { c.NotBefore = time.Now().Add(24 * time.Hour) }, nil},
		"for servers only": {clientcert.WrongUsage, "",
			func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }, nil},
		"SHA-1": {clientcert.Weak, "is signed with ECDSA-SHA1",
			func(c *x509.Certificate) { c.SignatureAlgorithm = x509.ECDSAWithSHA1 }, nil},

		// API Gateway accepts RSA keys of at least 2048 bits, and ECDSA keys on three curves.
		"2047 bits": {clientcert.Weak, "an RSA key of 2047 bits, fewer than 2048", bits(2047), nil},
		"2048 bits": {"", "", bits(2048), nil},
		"8192 bits": {"", "", bits(8192), nil},
		"8193 bits": {clientcert.Weak, "an RSA key of 8193 bits, more than 8192", bits(8193), nil},
		"an even modulus": {clientcert.Weak, "an even modulus",
			key(&rsa.PublicKey{N: new(big.Int).Lsh(modulus(2047), 1), E: 65537}), nil},
		"exponent 3":     {clientcert.Weak, "the exponent 3", exponent(3), nil},
		"exponent 65535": {clientcert.Weak, "the exponent 65535", exponent(65535), nil},
		"exponent 65538": {clientcert.Weak, "the exponent 65538", exponent(65538), nil},
		"exponent 65539": {"", "", exponent(65539), nil},
		"P-224":          {clientcert.Weak, "on P-224", curve(elliptic.P224()), nil},
		"P-256":          {"", "", curve(elliptic.P256()), nil},
		"P-384":          {"", "", curve(elliptic.P384()), nil},
		"P-521":          {"", "", curve(elliptic.P521()), nil},
		"Ed25519": {clientcert.Weak, "Ed25519, not RSA or ECDSA",
			key(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public()), nil},

		// A serial number has at most 20 octets (RFC 5280, section 4.1.2.2).
		"serial number 0":       {clientcert.Malformed, "", serial(new(big.Int)), nil},
		"the last of 20 octets": {"", "", serial(new(big.Int).Sub(octets(20).Rsh(octets(20), 1), big.NewInt(1))), nil},
		"21 octets":             {clientcert.Malformed, "", serial(octets(20)), nil},
		"an extension twice": {clientcert.Malformed, "", func(c *x509.Certificate) {
			extension := pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 55555, 1}, Value: []byte{5, 0}}
			c.ExtraExtensions = []pkix.Extension{extension, extension}
		}, nil},

		"the key of a client": {clientcert.Untrusted, "", nil, func(ca *paymenttest.CA) *paymenttest.CA {
			client := ca.Client(nil)
			return &paymenttest.CA{Certificate: client.Leaf, Key: client.PrivateKey.(crypto.Signer)}
		}},
		"four CAs": {"", "", nil, func(ca *paymenttest.CA) *paymenttest.CA { return chain(ca, 4) }},
		"five CAs": {clientcert.Untrusted, "its chain has 5 CAs, more than 4", nil,
			func(ca *paymenttest.CA) *paymenttest.CA { return chain(ca, 5) }},
		"a CA without the CA flag": {clientcert.Untrusted, "", nil, func(ca *paymenttest.CA) *paymenttest.CA {
			return ca.NewIntermediate("a", func(c *x509.Certificate) { c.BasicConstraintsValid, c.IsCA = false, false })
		}},
		"an expired CA": {clientcert.Expired, "a CA of its chain", nil, func(ca *paymenttest.CA) *paymenttest.CA {
			return ca.NewIntermediate("a", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
		}},
		"a weak CA": {clientcert.Weak, "CN=a,O=Payment Service has an RSA key of 1024 bits, fewer than 2048", nil,
			func(ca *paymenttest.CA) *paymenttest.CA {
				ca = ca.NewIntermediate("a", key(small.Public()))
				ca.Key = small
				return ca
			}},
	} {
		t.Run(name, func(t *testing.T) {
			ca := paymenttest.NewCA("Operator CA")
			issuer := ca
			if c.issuer != nil {
				issuer = c.issuer(ca)
			}
			client := text(issuer.Client(c.change).Leaf)
			_, err := verify(client, clientcert.Policy{}, append(issuer.Chain, issuer.Certificate, ca.Certificate)...)
			expect(t, err, c.reason)
			if err != nil && !strings.Contains(err.Error(), c.detail) {
				t.Errorf("got %v, want %s", err, c.detail)
			}
		})
	}
}

// chain returns the last CA of a chain of so many.
func chain(ca *paymenttest.CA, n int) *paymenttest.CA {
	for i := range n - 1 {
		ca = ca.NewIntermediate(fmt.Sprint("CA ", i), nil)
	}
	return ca
}

func TestOnlyASelfSignedCertificateIsItsOwnCA(t *testing.T) {
	ca, self := paymenttest.NewCA("Operator CA"), paymenttest.NewCA("Operator CA").SelfSigned(asClient())
	_, err := verify(text(self), clientcert.Policy{}, self)
	expect(t, err, "")
	forged := ca.Client(nil).Leaf
	forged.Raw[len(forged.Raw)-1] ^= 1
	for _, untrusted := range []*x509.Certificate{self, forged, paymenttest.NewCA("Somebody Else").Client(nil).Leaf,
		paymenttest.NewCA("Operator CA").Client(nil).Leaf} {
		_, err := verify(text(untrusted), clientcert.Policy{}, ca.Certificate)
		expect(t, err, clientcert.Untrusted)
	}
}

// asClient makes the certificate of a CA one that is for this use; of a client if there is none.
func asClient(usages ...x509.ExtKeyUsage) func(*x509.Certificate) {
	if usages == nil {
		usages = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	return func(c *x509.Certificate) {
		c.IsCA, c.KeyUsage, c.ExtKeyUsage = false, x509.KeyUsageDigitalSignature, usages
	}
}

// What follows the certificate can only help.
func TestATextBeginsWithTheClientsCertificate(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	key := string(paymenttest.EncodePrivateKey(ca.Key))
	good, root := text(ca.Client(nil).Leaf), string(ca.PEM())
	crlf := strings.ReplaceAll(good, "\n", "\r\n")
	unread := "-----BEGIN CERTIFICATE-----\n!\n"
	empty := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{0x30, 0}}))
	for want, texts := range map[clientcert.Reason][]string{
		"": {
			good, strings.TrimSuffix(good, "\n"), crlf, strings.TrimSuffix(crlf, "\n"), " \n\t" + good + "\n \r\n",
			good[:60] + "\r" + good[60:], strings.ReplaceAll(good, "\n", "\r"), strings.ReplaceAll(good, "\n", " "),
			good + good, good + "text", good + "-----END CERTIFICATE-----\n", good + root,
			good + strings.Repeat(unread, 9), good + strings.ReplaceAll(good, "CERTIFICATE", "X509 CRL"),
		},
		clientcert.Malformed: {
			"Bag Attributes\n" + good, root[1:] + good, key + good, good + key,
			good + strings.ReplaceAll(key, "PRIVATE", "EC PRIVATE"), "-----BEGIN CERTIFICATE-----\n" + good,
			unread + "-----END CERTIFICATE-----\n" + good, " \n", "MIIB", empty,
			strings.Replace(good, "-----\n", "-----\nA: b\n\n", 1),
			strings.ReplaceAll(good, "CERTIFICATE", "X509 CRL"),
		},
		clientcert.Missing: {""},
		// The first certificate is the client's, also if another one of the text is accepted.
		clientcert.Untrusted: {text(paymenttest.NewCA("Stranger CA").Client(nil).Leaf) + good},
	} {
		for _, text := range texts {
			_, err := verify(text, clientcert.Policy{}, ca.Certificate)
			if expect(t, err, want); t.Failed() {
				t.Fatal(text)
			}
		}
	}
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
	for want, texts := range map[clientcert.Reason][]string{
		"": {
			chain, text(client, first.Certificate, second.Certificate), chain + text(root.Certificate),
			strings.ReplaceAll(chain, "\n", "\r\n"), strings.ReplaceAll(chain, "-----\n-----", "----------"),
			text(client) + strings.ReplaceAll(cas, "\n", "\n  "),
			strings.ReplaceAll(chain, "-----\n-----", "-----\nBag Attributes\n\xff\n-----"),
			text(client) + text(others[2:]...) + cas, // the last of four
			cas,                                      // the CA as a client
		},
		clientcert.Untrusted: {
			text(client) + text(others...) + cas, // after four others
			text(client), text(client, second.Certificate),
			text(noCA.Client(nil).Leaf, noCA.Certificate, first.Certificate),
			text(stranger.Client(nil).Leaf, stranger.Certificate),
		},
		clientcert.Expired: {text(expired.Client(nil).Leaf, expired.Certificate) + cas},
	} {
		for n, text := range texts {
			got, err := verify(text, clientcert.Policy{}, root.Certificate)
			expect(t, err, want)
			if err == nil && !got[len(got)-1].Equal(root.Certificate) || t.Failed() {
				t.Fatalf("text %d: a chain of %d, %v", n, len(got), err)
			}
		}
	}
	// Nothing of an earlier call is trusted.
	verifier := clientcert.NewVerifier(clientcert.Truststore{root.Certificate}, clientcert.Policy{})
	for text, want := range map[string]clientcert.Reason{chain: "", text(client): clientcert.Untrusted} {
		_, _ = verifier.Verify(chain, time.Now())
		_, err := verifier.Verify(text, time.Now())
		expect(t, err, want)
	}
}

// A client chooses the intermediates. The limits bound what it costs to verify with them.
func TestIntermediatesThatAreTooLargeAreIgnored(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	bits := func(n int) *x509.Certificate {
		key := &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), n-1, 1), E: 65537}
		return ca.Client(func(c *x509.Certificate) { c.PublicKey = key }).Leaf
	}
	long := func(c *x509.Certificate) { c.Subject.Locality = []string{strings.Repeat("x", 12<<10)} }
	for name, c := range map[string]struct {
		certificate *x509.Certificate
		want        int
	}{
		"8192 bits": {bits(8192), 1}, "8193 bits": {bits(8193), 0}, "signed with its key": {ca.Certificate, 0},
		"more than 16 KiB": {ca.NewIntermediate("a", long).Certificate, 0},
	} {
		if got := clientcert.IntermediatesIn(text(c.certificate)); len(got) != c.want {
			t.Errorf("%s: %d, want %d", name, len(got), c.want)
		}
	}
}

// A CA that two others have certified has two chains. Another certificate of a revoked CA does not help its clients,
// whichever of the two is revoked.
func TestRevokedCAs(t *testing.T) {
	a, b, issuing := paymenttest.NewCA("A"), paymenttest.NewCA("B"), paymenttest.NewCA("Issuing CA")
	byA, byB := certify(issuing, a), certify(issuing, b)
	client := issuing.Client(nil).Leaf
	for _, c := range []struct {
		revoked string
		want    *x509.Certificate // the root of the chain; nil for none
	}{
		{clientcert.PinOf(a.Certificate), b.Certificate}, {clientcert.PinOf(b.Certificate), a.Certificate},
		{clientcert.PinOf(byA), nil}, {clientcert.PinOf(client), nil},
	} {
		policy, want := clientcert.Policy{Revoked: clientcert.Revocations{c.revoked}}, clientcert.Reason("")
		if c.want == nil {
			want = clientcert.Revoked
		}
		chain, err := verify(text(client, byB), policy, byA, a.Certificate, b.Certificate)
		expect(t, err, want)
		if err == nil && (len(chain) != 3 || !chain[2].Equal(c.want)) {
			t.Errorf("a chain of %d", len(chain))
		}
	}
}

// certify returns a certificate by which one CA certifies another.
func certify(of, by *paymenttest.CA) *x509.Certificate {
	return by.NewIntermediate(of.Certificate.Subject.CommonName,
		func(c *x509.Certificate) { c.PublicKey = of.Key.Public() }).Certificate
}

func TestPinsAndRevocations(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	issuing := ca.NewIntermediate("Issuing CA", nil)
	client := issuing.Client(func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, "CN=a") }).Leaf
	other, subject := issuing.Client(nil).Leaf, clientcert.Subject(client)
	pin := clientcert.PinOf
	for want, policies := range map[clientcert.Reason][]clientcert.Policy{
		"": {
			{Pins: []string{pin(other), pin(client)}}, {Subjects: []string{"CN=other", subject}},
			{Subjects: []string{"CN=b", "webhooks.payments.example"}}, {Revoked: clientcert.Revocations{pin(other)}},
		},
		clientcert.NotPinned: {
			{Pins: []string{pin(other)}}, {Subjects: []string{strings.ToUpper(subject)}},
			{Subjects: []string{"C=DE," + subject}}, {Subjects: []string{"CN=b", "b.example"}},
			{Subjects: []string{"payments.example"}}, {Pins: []string{pin(client)}, Subjects: []string{"CN=b"}},
			{Subjects: []string{"CN=a"}}, // everything in a subject is chosen by a CA: a DNS name is not a subject
		},
		clientcert.Revoked: {
			{Revoked: clientcert.Revocations{pin(client)}},
			{Pins: []string{pin(client)}, Revoked: clientcert.Revocations{pin(client)}},
			{Revoked: clientcert.Revocations{pin(issuing.Certificate)}},
			{Revoked: clientcert.Revocations{pin(other), pin(ca.Certificate)}},
		},
	} {
		for _, policy := range policies {
			chain, err := verify(text(client), policy, ca.Certificate, issuing.Certificate)
			if expect(t, err, want); t.Failed() || err != nil && (len(chain) != 1 || !chain[0].Equal(client)) {
				t.Fatalf("%+v", policy)
			}
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
	c := ca.Client(func(c *x509.Certificate) { c.RawSubject = raw }).Leaf
	for _, text := range []string{clientcert.Subject(c), "CN=a b,O=Payments", "hooks.payments.example", "*.a_b"} {
		if got, err := clientcert.ParseSubject(text); err != nil || got != text {
			t.Errorf("%q is read as %q, %v", text, got, err)
		}
	}
	_, err = verify(text(c), clientcert.Policy{Subjects: []string{clientcert.Subject(c)}}, ca.Certificate)
	expect(t, err, "")
	for _, text := range []string{"", "Payments Ltd", "C = DE, CN = a", "C=DE, CN=a", "/C=DE/CN=a", "subject=CN=a",
		`O="Payments, Inc"`, "CN=Payments, Inc", "cn=a", "CN=a,", ",CN=a", `CN=a\`, "1.=a", "CN=a;CN=b", "CN=\uFFFD"} {
		if got, err := clientcert.ParseSubject(text); err == nil {
			t.Errorf("%q is accepted as %q", text, got)
		}
	}
}

func TestACertificateIsValidInItsLastSecond(t *testing.T) {
	ca, end := paymenttest.NewCA("Operator CA"), time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	client := ca.Client(func(c *x509.Certificate) { c.NotAfter = end }).Leaf
	verifier := clientcert.NewVerifier(clientcert.Truststore{ca.Certificate}, clientcert.Policy{})
	_, err := verifier.Verify(text(client), end)
	expect(t, err, "")
	_, err = verifier.Verify(text(client), end.Add(time.Millisecond))
	expect(t, err, clientcert.Expired)
	if !strings.HasSuffix(err.Error(), "it expired at "+end.Format(time.RFC3339)) {
		t.Errorf("the error does not contain the time of expiry: %v", err)
	}
	for days, want := range map[int]float64{45: 45, 0: 0, -1: 0} {
		store := clientcert.Truststore{ca.Certificate, client}
		if got := clientcert.DaysLeft(store, end.AddDate(0, 0, -days)); got != want {
			t.Errorf("%v days are left, want %v", got, want)
		}
	}
}

func TestEachNameHasOneForm(t *testing.T) {
	const keyID = "6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60"
	sum := sha256.Sum256([]byte("a")) // whose base64 has a slash
	digits, url := hex.EncodeToString(sum[:]), base64.RawURLEncoding.EncodeToString(sum[:])
	colons := strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":")
	id := strings.ReplaceAll(keyID, "-", "")
	for want, texts := range map[string][]string{
		id: {keyID, id, strings.ToUpper(keyID), strings.ToUpper(id)},
		digits: {digits, strings.ToUpper(digits), colons, " " + strings.ToLower(colons) + " ", url,
			base64.URLEncoding.EncodeToString(sum[:]), base64.StdEncoding.EncodeToString(sum[:])},
		"": {"", digits[1:], digits + "00", digits[:40], url[1:], url + "A", url[:42] + "t", url + "==",
			"z" + digits[1:], digits[:32] + "zz", digits[:32] + "=", keyID[1:], "{" + keyID + "}", "urn:uuid:" + keyID,
			strings.Replace(keyID, "-", "", 1), strings.ReplaceAll(keyID, "-", ":"), "CN=a",
			base64.RawURLEncoding.EncodeToString(sum[:16])},
	} {
		for _, text := range texts {
			got, err := clientcert.ParseRevocation(text)
			if got != want || (err == nil) != (want != "") {
				t.Errorf("%s is read as %q, %v", text, got, err)
			}
			pin, failed := clientcert.ParsePin(text)
			if (failed == nil) != (want == digits) || failed == nil && pin != digits {
				t.Errorf("%s is read as the pin %q, %v", text, pin, failed)
			}
			for _, form := range []string{"key id", "thumbprint", "SHA-256 of the key of a certificate"} {
				if err != nil && !strings.Contains(err.Error(), form) {
					t.Errorf("%v", err)
				}
			}
			l := clientcert.Revocations{"other", want}
			if l.Has(text) != (want != "") || l.HasSHA256([]byte("a")) != (want == digits) {
				t.Errorf("%q is in the list: %t", text, l.Has(text))
			}
			if l := (clientcert.Revocations{strings.Repeat("0", len(want))}); l.Has(text) || l.HasSHA256([]byte("a")) {
				t.Errorf("%s is in a list without it", text)
			}
		}
	}
}

// FuzzVerify checks that no certificate is accepted except the one that the CA issued, and that errors contain no PEM.
func FuzzVerify(f *testing.F) {
	ca := paymenttest.NewCA("Operator CA")
	issuing := ca.NewIntermediate("Issuing CA", nil)
	client := issuing.Client(nil)
	good, others := text(client.Leaf), string(issuing.PEM())
	for _, seed := range []string{good, good + good, good + others, "-----BEGIN CERTIFICATE-----\n!\n" + good,
		strings.ReplaceAll(good, "\n", "\r\n"), others, text(ca.SelfSigned(asClient()))} {
		f.Add(seed)
	}
	store := clientcert.Truststore{ca.Certificate, issuing.Certificate}
	verifier, now := clientcert.NewVerifier(store, clientcert.Policy{}), time.Now()
	f.Fuzz(func(t *testing.T, text string) {
		chain, err := verifier.Verify(text, now)
		if err == nil {
			// A CA's own certificate is allowed for every purpose, including clients.
			if c := chain[0]; !bytes.Equal(c.RawTBSCertificate, client.Leaf.RawTBSCertificate) &&
				!c.Equal(ca.Certificate) && !c.Equal(issuing.Certificate) {
				t.Errorf("accepted: %q", text)
			}
			return
		}
		rejected, ok := errors.AsType[*clientcert.Error](err)
		if !ok || rejected.Reason == "" || strings.Contains(err.Error(), "-----") || len(chain) > 1 {
			t.Errorf("rejected with %v and a chain of %d", err, len(chain))
		}
	})
}

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
