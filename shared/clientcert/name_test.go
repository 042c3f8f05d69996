package clientcert_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"strings"
	"testing"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/paymenttest"
)

// ofSubject returns a certificate with a subject of any kind.
func ofSubject(t *testing.T, subject pkix.RDNSequence) *x509.Certificate {
	t.Helper()
	raw, err := asn1.Marshal(subject)
	if err != nil {
		t.Fatal(err)
	}
	ca := paymenttest.NewCA("Operator CA")
	return issue(t, ca, ca.Key.Public(), func(c *x509.Certificate) { c.RawSubject = raw })
}

func attribute(value any, id ...int) pkix.AttributeTypeAndValue {
	return pkix.AttributeTypeAndValue{Type: id, Value: value}
}

func utf8String(text string) asn1.RawValue {
	return asn1.RawValue{Tag: asn1.TagUTF8String, Bytes: []byte(text)}
}

func ia5String(text string) asn1.RawValue {
	return asn1.RawValue{Tag: asn1.TagIA5String, Bytes: []byte(text)}
}

// The texts that begin with issuer= were recorded from openssl 3.0.19.
func TestEverySpellingOfANameIsTheSameName(t *testing.T) {
	plain := pkix.RDNSequence{{attribute("DE", 2, 5, 4, 6)}, {attribute("Payments", 2, 5, 4, 10)},
		{attribute("Operator CA", 2, 5, 4, 3)}}
	spellings := []string{
		`CN=Operator CA,O=Payments,C=DE`, `cn=Operator CA, o=Payments, c=DE`, ` C=DE , O=Payments,CN=Operator\20CA `,
		`issuer=C = DE, O = Payments, CN = Operator CA`,                     // oneline, the default
		`issuer=CN=Operator CA,O=Payments,C=DE`,                             // RFC2253
		`issuer=/C=DE/O=Payments/CN=Operator CA`,                            // compat
		`issuer=C=DE, O=Payments, CN=Operator CA`,                           // the default of openssl 3.2
		`2.5.4.6=DE,2.5.4.10="Payments",CN=#130B4F70657261746F72204341`,     // RFC 4514
		`CN=#0C0B4F70657261746F72204341,O=#0C085061796D656E7473,C="D\45"  `, // other string types
	}
	for name, c := range map[string]struct {
		subject   pkix.RDNSequence
		spellings []string
	}{
		"plain": {plain, spellings},
		"other string types": {pkix.RDNSequence{{attribute("DE", 2, 5, 4, 6)},
			{attribute(utf8String("Payments"), 2, 5, 4, 10)}, {attribute(utf8String("Operator CA"), 2, 5, 4, 3)}},
			spellings},
		"the opposite order": {pkix.RDNSequence{plain[2], plain[1], plain[0]}, spellings},
		"special characters, two attributes at once, rare types": {pkix.RDNSequence{
			{attribute("DE", 2, 5, 4, 6)}, {attribute(ia5String("example"), 0, 9, 2342, 19200300, 100, 1, 25)},
			{attribute("Württemberg", 2, 5, 4, 8)}, {attribute(`Payments, "Inc" + Co; <x> a\b /c=1`, 2, 5, 4, 10)},
			{attribute("#x ", 2, 5, 4, 11), attribute(" CA =1", 2, 5, 4, 3)},
			{attribute(ia5String("ca@p.example"), 1, 2, 840, 113549, 1, 9, 1)}, {attribute("42", 2, 5, 4, 5)},
			{attribute("odd", 1, 2, 3, 4, 5)}}, []string{
			// oneline
			`issuer=C = DE, DC = example, ST = W\C3\BCrttemberg, O = "Payments, \"Inc\" + Co; <x> a\\b /c=1", ` +
				`OU = "#x " + CN = " CA =1", emailAddress = ca@p.example, serialNumber = 42, 1.2.3.4.5 = odd`,
			// RFC2253
			`issuer=1.2.3.4.5=#13036F6464,serialNumber=42,emailAddress=ca@p.example,CN=\ CA =1+OU=\#x\ ,` +
				`O=Payments\, \"Inc\" \+ Co\; \<x\> a\\b /c=1,ST=W\C3\BCrttemberg,DC=example,C=DE`,
			// compat
			`issuer=/C=DE/DC=example/ST=W\xC3\xBCrttemberg/O=Payments, "Inc" \+ Co; <x> a\b \/c=1/OU=#x +CN= CA =1/` +
				`emailAddress=ca@p.example/serialNumber=42/1.2.3.4.5=odd`,
			// esc_2253,utf8
			`issuer=C=DE, DC=example, ST=Württemberg, O=Payments\, \"Inc\" \+ Co\; \<x\> a\\b /c=1, OU=\#x\  + ` +
				`CN=\ CA =1, emailAddress=ca@p.example, serialNumber=42, 1.2.3.4.5=odd`,
		}},
	} {
		cert := ofSubject(t, c.subject)
		want := clientcert.SubjectName(cert)
		for _, text := range append(c.spellings, string(want), clientcert.Subject(cert)) {
			if got, err := clientcert.ParseName(text); err != nil || got != want {
				t.Errorf("%s: %s is %s, %v, want %s", name, text, got, err, want)
			}
		}
	}
	for _, other := range []string{`CN=operator CA,O=Payments,C=DE`, `O=Payments,CN=Operator CA,C=DE`,
		`CN=Operator CA,O=Payments`, `CN=Operator CA+O=Payments,C=DE`, `CN=Operator CA,O=Payments,C=DE,C=DE`,
		`CN=Operator  CA,O=Payments,C=DE`, `/C=DE/O=Payments\/CN=Operator CA`, `C=DE,O=Payments\,CN=Operator CA`,
		`OU=Operator CA,O=Payments,C=DE`, `CN=Operator CA\ ,O=Payments,C=DE`} {
		if got, err := clientcert.ParseName(other); err != nil ||
			got == clientcert.SubjectName(ofSubject(t, plain)) {
			t.Errorf("%s is %s, %v", other, got, err)
		}
	}
}

func TestParseNameRejectsWhatIsNoName(t *testing.T) {
	for text, want := range map[string]string{
		"":                 "such as CN=",
		"Operator CA":      `"Operator CA" is not the type of an attribute`,
		"CN=a,":            `"" is not the type`,
		"CN=Payments, Inc": `"Inc" is not the type of an attribute; escape a separator`,
		"XX=a":             `"XX" is not the type`,
		"1..2=a":           `"1..2" is not the type`,
		"/CN=a/b":          `"b" is not the type`,
		`CN="a`:            "a quotation mark is missing",
		`CN="a" b,O=c`:     `there is " b" after a quotation mark`,
		`CN="a"\`:          "backslash",
		`CN=a\`:            "backslash",
		`CN=a\g1`:          "backslash",
		`CN=a\4`:           "backslash",
		`CN=#x`:            "not the encoding of a text",
		`CN=#3000`:         "not the encoding of a text",
		`CN=#13016100`:     "not the encoding of a text",
		`CN=#\`:            "backslash",
		`CN=W\FCrttemberg`: "the value of CN is not UTF-8",
	} {
		if name, err := clientcert.ParseName(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %q, %v, want %s", text, name, err, want)
		}
	}
}
