package keys

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const id = "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d"

// itemID is id as memory and table have it.
const itemID = "0b7e4c1e3d434f269c0d2f1f6a5b7c8d"

// generated returns one of a few keys, which are generated once for all tests.
var generated = func() func(n int) *rsa.PrivateKey {
	var keys [2]func() *rsa.PrivateKey
	for i := range keys {
		keys[i] = sync.OnceValue(func() *rsa.PrivateKey {
			key, err := rsa.GenerateKey(rand.Reader, 2048)
			if err != nil {
				panic(err)
			}
			return key
		})
	}
	return func(n int) *rsa.PrivateKey { return keys[n]() }
}()

func members(n *big.Int, e int64) map[string]any {
	return map[string]any{
		"kty": "RSA", "alg": "RS256", "use": "sig", "kid": id,
		"n": base64.RawURLEncoding.EncodeToString(n.Bytes()),
		"e": base64.RawURLEncoding.EncodeToString(big.NewInt(e).Bytes()),
	}
}

func text(t testing.TB, m map[string]any) []byte {
	t.Helper()
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func violations(err error) []Violation {
	if policy, ok := errors.AsType[*PolicyError](err); ok {
		return policy.Violations
	}
	return nil
}

// odd returns an odd number of that many bits, which the policy accepts as a modulus.
func odd(bits uint) *big.Int {
	n := new(big.Int).Lsh(big.NewInt(1), bits-1)
	return n.SetBit(n, 0, 1)
}

// rocaModulus is that of tc7 in json_web_key_test.json of Wycheproof (https://github.com/C2SP/wycheproof).
const rocaModulus = "AanFpofbj7KjD4Lf-N2hVMKR7yewSyXhhbirIMTGpfYEhZ_lnt5UoK98DnKIgArXGTu3MaW_HhFw16HGaTDUHq" +
	"PrId7fe4r11CqRw09yBFuW79V8sYIwHdzCaWflUI6auImYbVfoN9_nD5n8N8SY9DwXw7mwZM9wREPXoDPgOoIWl6q_MPsp7n0zs3Z5ZaiQWOOz" +
	"l1S9OhwAfSiiOwz6efnXEaxuTEtPd7BjSx7NaFka8Dx9U7YqXy2RFj1O9PjyaDGuRh7YXsX3iMUSP_wSyHQg_c_qHRtKUsNSGCT7OZg0hzm2Kp" +
	"htjnayKJvC64vAbROBR4Ubg6Bxg9IQVZ-QYyE"

// Each case changes one thing in a valid key.
func TestParseJWKReportsEveryViolation(t *testing.T) {
	good := generated(0).PublicKey
	n := good.N.Bytes()
	encode := base64.RawURLEncoding.EncodeToString
	// The last character holds 2 bits of n, and 4 that must be zero: A, Q, g or w, of which the next character of the
	// alphabet differs in one bit.
	stray := encode(n)
	stray = stray[:len(stray)-1] + string(stray[len(stray)-1]+1)
	padded := base64.URLEncoding.EncodeToString(append([]byte{0}, n...))
	long := func(zeros int, octets ...byte) string { return encode(append(make([]byte, zeros), octets...)) }
	bits := func(size uint) string { return encode(odd(size).Bytes()) }
	type values = map[string][]any // of each member; absent stands for none
	const absent = "absent"
	for want, changes := range map[Violation]values{
		"": {
			"kid": {strings.ToUpper(id), itemID, strings.ToUpper(itemID)},
			"alg": {"RS256", absent, nil}, "use": {absent, nil}, "x5t": {"abc", 1, nil},
			"x5c": {[]string{"MIIB"}}, "iat": {1.5, jsontext.Value("1e999")}, "ext": {true},
			"key_ops": {[]string{"sign", "verify"}, []string{}, nil},
			"d":       {nil}, "p": {nil}, "q": {nil}, "dp": {nil}, "dq": {nil}, "qi": {nil}, "oth": {nil}, "k": {nil},
			"n": {encode(n) + "==", encode(n) + "=", padded, long(1, n...), long(767, n...) + "="},
			"e": {"AAEAAQ==", "AAEAAQ", "AAAAAAABAAE=", long(253, 1, 0, 1)},
		},
		WrongType:      {"kty": {"EC", "rsa", "oct"}},
		WrongAlgorithm: {"alg": {"PS256", "none", "", "rs256"}},
		WrongUse:       {"use": {"enc", "", "SIG"}},
		WrongKeyOps:    {"key_ops": {[]string{"encrypt"}, []any{nil}}},
		Private: {"d": {"AQAB", ""}, "p": {"AQAB"}, "q": {"AQAB"}, "dp": {"AQAB"}, "dq": {"AQAB"}, "qi": {"AQAB"},
			"oth": {[]string{}}, "k": {"AQAB"}},
		BadModulus: {"n": {strings.Repeat("A", 342), stray, stray + "==", encode(n)[:101],
			encode(new(big.Int).Add(good.N, big.NewInt(1)).Bytes())}}, // an even number
		WrongSize: {"n": {bits(1024), bits(2047), encode(odd(2047).FillBytes(make([]byte, 300))), bits(4097),
			long(1000, n...), strings.Repeat("A", 60000)}},
		ROCA: {"n": {rocaModulus}},
		BadExponent: {"e": {long(1100, 1, 0, 1), "AA", "A", "AQ", "AAE", "AQAA", "gAAAAQ", "Ax",
			strings.Repeat("B", 600)}},
	} {
		for name, values := range changes {
			for _, value := range values {
				m := members(good.N, 65537)
				if m[name] = value; value == absent {
					delete(m, name)
				}
				key, err := ParseJWK(text(t, m), id)
				if want != "" {
					if got := violations(err); !slices.Equal(got, []Violation{want}) || key != nil {
						t.Errorf("%s %.99v: %v, want %s", name, value, err, want)
					}
					continue
				}
				// The byte order mark and white space are no part of the JWK.
				again, failed := ParseJWK(append([]byte("\uFEFF \n"), text(t, m)...), itemID)
				if err != nil || failed != nil || !key.Equal(&good) || !again.Equal(key) {
					t.Errorf("%s %.99v: %v, %v, %v", name, value, key, err, failed)
				}
			}
		}
	}
	for _, size := range []uint{2048, 3072, 4096} {
		key, err := ParseJWK(text(t, members(odd(size), 65537)), id)
		if err != nil || key.N.Cmp(odd(size)) != 0 {
			t.Errorf("%d bits: %v", size, err)
		}
	}
	// Without a number in base64url, it is no key.
	for _, name := range []string{"n", "e"} {
		right := members(good.N, 65537)[name].(string)
		for _, value := range []any{absent, nil, "", "==", right + " ", right[:2] + "\n" + right[2:], "+" + right[1:],
			right[:3] + "/", "=" + right, right[:2] + "==" + right[2:], "ÀQAB", 65537, []string{right}, true} {
			m := members(good.N, 65537)
			if m[name] = value; value == absent {
				delete(m, name)
			}
			if key, err := ParseJWK(text(t, m), id); !errors.Is(err, ErrNotJWK) || key != nil {
				t.Errorf("%s %v: %v", name, value, err)
			}
		}
	}
	_, err := ParseJWK(text(t, map[string]any{"kty": "oct", "kid": id, "d": "x"}), id)
	if diff := cmp.Diff([]Violation{WrongType, Private, BadExponent, BadModulus}, violations(err)); diff != "" {
		t.Error(diff)
	}
}

// Other exponents than 65537 are a deviation.
func TestParseJWKAcceptsEveryOddExponentFrom3On(t *testing.T) {
	for _, e := range []int64{3, 5, 17, 65535, 65537, 65539, 1<<31 - 1} {
		key, err := ParseJWK(text(t, members(generated(0).N, e)), id)
		if found := (Found{Key: key}); err != nil || int64(key.E) != e || found.UnusualExponent() != (e != 65537) {
			t.Errorf("exponent %d: %v, %v", e, key, err)
		}
	}
	if (&Found{}).UnusualExponent() {
		t.Error("no key has an unusual exponent")
	}
	for _, e := range []int64{1, 2, 4, 65536, 1 << 31, 1<<31 + 1, 1<<32 + 3, 1<<32 + 65537, 1<<62 + 1} {
		if _, err := ParseJWK(text(t, members(generated(0).N, e)), id); !slices.Equal(violations(err),
			[]Violation{BadExponent}) {
			t.Errorf("exponent %d: got %v", e, err)
		}
	}
}

// Answers with status 200 and the content type of JSON need not be the JWK with the id.
func TestParseJWKDistinguishesOtherTextsFromViolations(t *testing.T) {
	good := string(text(t, members(generated(0).N, 65537)))
	for _, text := range []string{"", "<html>", "[" + good + "]", `"x"`, "null", "{}", good[:100], good + "{}",
		`{"keys":[` + good + `]}`, `{"message":"Service Unavailable"}`,
		`{"type":"about:blank","title":"Service Unavailable","status":503}`, // problem details (RFC 9457)
		strings.Replace(good, "{", `{"kty":"RSA",`, 1),                      // twice
		strings.Replace(good, "{", `{"key_ops":"verify",`, 1),
	} {
		if _, err := ParseJWK([]byte(text), id); !errors.Is(err, ErrNotJWK) {
			t.Errorf("%s: got %v", text, err)
		}
	}
	for _, replaced := range [][2]string{
		{`"kty"`, `"x"`}, {`"kty"`, `"KTY"`}, {`"RSA"`, `""`}, {`"RSA"`, `null`}, {`"RSA"`, `1`},
		{`"kid"`, `"x"`}, {`"` + id + `"`, `null`}, {id, "1" + id[1:]}, {id, "urn:uuid:" + id}, {id, "{" + id + "}"},
		{id, "0b7e4c1e3d43-4f26-9c0d-2f1f-6a5b7c8d"},
		{`"n":"`, `"n":1,"x":"`}, {`"sig"`, `1`}, {`"RS256"`, `["RS256"]`},
	} {
		text := strings.Replace(good, replaced[0], replaced[1], 1)
		if _, err := ParseJWK([]byte(text), id); text == good || !errors.Is(err, ErrNotJWK) {
			t.Errorf("%s: got %v", replaced, err)
		}
	}
}

// The key is that of section 3.1 of RFC 7638.
func TestThumbprintIsThatOfRFC7638(t *testing.T) {
	jwk := `{"kty":"RSA","alg":"RS256","use":"sig","kid":"` + id + `",` +
		`"n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjB` +
		`ZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8` +
		`KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_` +
		`xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw","e":"AQAB"}`
	key, err := ParseJWK([]byte(jwk), id)
	if err != nil {
		t.Fatal(err)
	}
	if got := Thumbprint(key); got != "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs" {
		t.Errorf("the thumbprint is %s", got)
	}
	if again, err := ParseJWK(FormatJWK(id, key), id); err != nil || !again.Equal(key) {
		t.Errorf("ParseJWK of FormatJWK returns %v, %v", again, err)
	}
}

func FuzzParseJWK(f *testing.F) {
	good := members(generated(0).N, 65537)
	f.Add(text(f, good))
	f.Add([]byte(`{"kty":"RSA","n":"AQ","e":"AQAB"}`))
	f.Add([]byte(`{"keys":[]}`))
	f.Add([]byte(`{"kty":"RSA","kty":"RSA"}`))
	f.Fuzz(func(t *testing.T, jwk []byte) {
		key, err := ParseJWK(jwk, id)
		if err != nil {
			if violations(err) == nil && !errors.Is(err, ErrNotJWK) {
				t.Fatalf("not an error of this package: %v", err)
			}
			return
		}
		if bits := key.N.BitLen(); bits < 2048 || bits > 4096 || key.N.Bit(0) == 0 || key.E < 3 || key.E%2 == 0 {
			t.Fatalf("accepted a key of %d bits and exponent %d", bits, key.E)
		}
		if again, err := ParseJWK(FormatJWK(id, key), id); err != nil || !again.Equal(key) {
			t.Fatal("FormatJWK gives another key")
		}
	})
}
