package keys

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json/v2"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
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

// Each case changes one thing in a valid key.
func TestParseJWKRejectsWhatTheInterfaceDoesNotAllow(t *testing.T) {
	good := generated(0).PublicKey
	n := good.N.Bytes()
	encode := base64.RawURLEncoding.EncodeToString
	set := func(name string, value any) func(map[string]any) { return func(m map[string]any) { m[name] = value } }
	drop := func(name string) func(map[string]any) { return func(m map[string]any) { delete(m, name) } }
	// The last character holds 2 bits of n, and 4 that must be zero: A, Q, g or w, of which the next character of the
	// alphabet differs in one bit.
	stray := encode(n)
	stray = stray[:len(stray)-1] + string(stray[len(stray)-1]+1)
	tests := []struct {
		name   string
		change func(map[string]any)
		want   []Violation
	}{
		{"as it is", func(map[string]any) {}, nil},
		{"unknown members", set("x5t", "abc"), nil},
		{"key_ops with verify", set("key_ops", []string{"sign", "verify"}), nil},
		{"kid in another case", set("kid", strings.ToUpper(id)), nil},
		{"kid without hyphens", set("kid", strings.ToUpper(itemID)), nil},
		{"no alg", drop("alg"), nil},
		{"no use", drop("use"), nil},
		{"alg null", set("alg", nil), nil},
		{"use null", set("use", nil), nil},
		{"key_ops null", set("key_ops", nil), nil},
		{"key_ops empty", set("key_ops", []string{}), nil},
		{"private members null", func(m map[string]any) {
			for _, name := range []string{"d", "p", "q", "dp", "dq", "qi", "oth", "k"} {
				m[name] = nil
			}
		}, nil},
		{"members of other uses", func(m map[string]any) {
			m["x5c"], m["x5u"], m["x5t#S256"], m["ext"], m["iat"], m["x5t"] = []string{"MIIB"}, 1, nil, true, 1.5, "abc"
		}, nil},
		{"n padded", set("n", encode(n)+"=="), nil},
		{"n with a leading zero", set("n", encode(append([]byte{0}, n...))), nil},
		{"n with a leading zero, padded", set("n", base64.URLEncoding.EncodeToString(append([]byte{0}, n...))), nil},
		{"n with 200 leading zeros", set("n", encode(append(make([]byte, 200), n...))), nil},
		{"e padded", set("e", "AAEAAQ=="), nil},
		{"e with a leading zero", set("e", "AAEAAQ"), nil},
		{"e of 8 octets", set("e", "AAAAAAABAAE="), nil},
		{"e of 256 octets", set("e", encode(append(make([]byte, 253), 1, 0, 1))), nil},
		{"3072 bits", set("n", encode(odd(3072).Bytes())), nil},
		{"4096 bits", set("n", encode(odd(4096).Bytes())), nil},

		{"kty EC", set("kty", "EC"), []Violation{WrongType}},
		{"kty rsa", set("kty", "rsa"), []Violation{WrongType}},
		{"alg PS256", set("alg", "PS256"), []Violation{WrongAlgorithm}},
		{"alg none", set("alg", "none"), []Violation{WrongAlgorithm}},
		{"alg empty", set("alg", ""), []Violation{WrongAlgorithm}},
		{"alg rs256", set("alg", "rs256"), []Violation{WrongAlgorithm}},
		{"use enc", set("use", "enc"), []Violation{WrongUse}},
		{"use empty", set("use", ""), []Violation{WrongUse}},
		{"use SIG", set("use", "SIG"), []Violation{WrongUse}},
		{"key_ops without verify", set("key_ops", []string{"encrypt"}), []Violation{WrongKeyOps}},
		{"key_ops with null", set("key_ops", []any{nil}), []Violation{WrongKeyOps}},
		{"private exponent", set("d", "AQAB"), []Violation{Private}},
		{"private prime", set("p", "AQAB"), []Violation{Private}},
		{"second prime", set("q", "AQAB"), []Violation{Private}},
		{"first factor's exponent", set("dp", "AQAB"), []Violation{Private}},
		{"second factor's exponent", set("dq", "AQAB"), []Violation{Private}},
		{"coefficient", set("qi", "AQAB"), []Violation{Private}},
		{"other primes", set("oth", []string{}), []Violation{Private}},
		{"private, empty", set("d", ""), []Violation{Private}},
		{"symmetric", set("k", "AQAB"), []Violation{Private}},

		{"no n", drop("n"), []Violation{BadModulus}},
		{"n null", set("n", nil), []Violation{BadModulus}},
		{"n empty", set("n", ""), []Violation{BadModulus}},
		{"n zero", set("n", strings.Repeat("A", 342)), []Violation{BadModulus}},
		{"n in base64", set("n", strings.Repeat("+", 342)), []Violation{BadModulus}},
		{"n with the wrong padding", set("n", encode(n)+"="), []Violation{BadModulus}},
		{"n with too much padding", set("n", encode(n)+"==="), []Violation{BadModulus}},
		{"n with a line feed", set("n", encode(n)[:100]+"\n"+encode(n)[100:]), []Violation{BadModulus}},
		{"n with a space", set("n", encode(n)+" "), []Violation{BadModulus}},
		{"n with stray bits", set("n", stray), []Violation{BadModulus}},
		{"n with stray bits, padded", set("n", stray+"=="), []Violation{BadModulus}},
		{"n even", set("n", encode(new(big.Int).Add(good.N, big.NewInt(1)).Bytes())), []Violation{BadModulus}},
		{"1024 bits", set("n", encode(odd(1024).Bytes())), []Violation{WrongSize}},
		{"2047 bits", set("n", encode(odd(2047).Bytes())), []Violation{WrongSize}},
		{"2047 bits with leading zeros", set("n", encode(odd(2047).FillBytes(make([]byte, 300)))),
			[]Violation{WrongSize}},
		{"4097 bits", set("n", encode(odd(4097).Bytes())), []Violation{WrongSize}},
		{"a thousand leading zeros", set("n", encode(append(make([]byte, 1000), n...))), []Violation{WrongSize}},
		{"huge", set("n", strings.Repeat("A", 60000)), []Violation{WrongSize}},

		{"no e", drop("e"), []Violation{BadExponent}},
		{"e with a thousand leading zeros", set("e", encode(append(make([]byte, 1100), 1, 0, 1))),
			[]Violation{BadExponent}},
		{"e of 0", set("e", "AA"), []Violation{BadExponent}},
		{"e of 1", set("e", "AQ"), []Violation{BadExponent}},
		{"e of 1 with a leading zero", set("e", "AAE"), []Violation{BadExponent}},
		{"e even", set("e", "AQAA"), []Violation{BadExponent}},
		{"e of 32 bits", set("e", "gAAAAQ"), []Violation{BadExponent}},
		{"e with stray bits", set("e", "Ax"), []Violation{BadExponent}},
		{"e huge", set("e", strings.Repeat("B", 600)), []Violation{BadExponent}},
		{"everything", func(m map[string]any) { clear(m); m["kty"], m["kid"], m["d"] = "oct", id, "x" }, []Violation{
			WrongType, Private, BadExponent, BadModulus,
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := members(good.N, 65537)
			test.change(m)
			key, err := ParseJWK(text(t, m), id)
			if diff := cmp.Diff(test.want, violations(err)); diff != "" {
				t.Error(diff)
			}
			other := strings.HasSuffix(test.name, " bits")
			if (key == nil) == (err == nil) || key != nil && !other && !key.Equal(&good) {
				t.Errorf("got key %v and error %v", key, err)
			}
			if key != nil {
				// The byte order mark and white space are no part of the JWK.
				with := append([]byte("\uFEFF \n"), text(t, m)...)
				if again, err := ParseJWK(with, itemID); err != nil || !again.Equal(key) {
					t.Errorf("with a byte order mark: %v, %v", again, err)
				}
				if again, err := ParseJWK(FormatJWK(id, key), id); err != nil || !again.Equal(key) {
					t.Errorf("ParseJWK of FormatJWK returns %v, %v", again, err)
				}
			}
		})
	}
}

// Other exponents than 65537 are a deviation.
func TestParseJWKAcceptsEveryOddExponentFrom3On(t *testing.T) {
	for e, usual := range map[int64]bool{3: false, 5: false, 17: false, 65535: false, 65537: true, 65539: false,
		1<<31 - 1: false} {
		key, err := ParseJWK(text(t, members(generated(0).N, e)), id)
		if err != nil || int64(key.E) != e {
			t.Errorf("exponent %d: %v, %v", e, key, err)
		}
		if found := (Found{Key: key}); found.UnusualExponent() == usual {
			t.Errorf("exponent %d is unusual: %t", e, usual)
		}
	}
	if (&Found{}).UnusualExponent() {
		t.Error("no key has an unusual exponent")
	}
	for _, e := range []int64{0, 1, 2, 4, 65536, 1 << 31, 1<<31 + 1, 1<<32 + 3, 1<<32 + 65537, 1<<62 + 1} {
		if _, err := ParseJWK(text(t, members(generated(0).N, e)), id); !slices.Equal(violations(err),
			[]Violation{BadExponent}) {
			t.Errorf("exponent %d: got %v", e, err)
		}
	}
}

// notJWKs returns answers that are not the JWK with the id, although each has status 200 and the content type of JSON.
func notJWKs(t *testing.T) map[string]string {
	good := string(text(t, members(generated(0).N, 65537)))
	return map[string]string{
		"empty": "", "HTML": "<html>", "array": "[" + good + "]", "string": `"x"`, "null": "null", "object": "{}",
		"cut off": good[:100], "trailing": good + "{}", "a set of keys": `{"keys":[` + good + `]}`,
		"a gateway":         `{"message":"Service Unavailable"}`,
		"problem details":   `{"type":"about:blank","title":"Service Unavailable","status":503}`,
		"no kty":            strings.Replace(good, `"kty"`, `"x"`, 1),
		"kty empty":         strings.Replace(good, `"RSA"`, `""`, 1),
		"kty null":          strings.Replace(good, `"RSA"`, `null`, 1),
		"kty a number":      strings.Replace(good, `"RSA"`, `1`, 1),
		"KTY":               strings.Replace(good, `"kty"`, `"KTY"`, 1),
		"no kid":            strings.Replace(good, `"kid"`, `"x"`, 1),
		"kid null":          strings.Replace(good, `"`+id+`"`, `null`, 1),
		"another kid":       strings.Replace(good, id, "1"+id[1:], 1),
		"a URN":             strings.Replace(good, id, "urn:uuid:"+id, 1),
		"n a number":        strings.Replace(good, `"n":"`, `"n":1,"x":"`, 1),
		"braces":            strings.Replace(good, id, "{"+id+"}", 1),
		"hyphens elsewhere": strings.Replace(good, id, "0b7e4c1e3d43-4f26-9c0d-2f1f-6a5b7c8d", 1),
		"use a number":      strings.Replace(good, `"sig"`, `1`, 1),
		"alg an array":      strings.Replace(good, `"RS256"`, `["RS256"]`, 1),
		"member twice":      strings.Replace(good, "{", `{"kty":"RSA",`, 1),
		"key_ops a string":  strings.Replace(good, "{", `{"key_ops":"verify",`, 1),
	}
}

func TestParseJWKDistinguishesOtherTextsFromViolations(t *testing.T) {
	for name, text := range notJWKs(t) {
		if _, err := ParseJWK([]byte(text), id); !errors.Is(err, ErrNotJWK) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// wycheproof returns a file of Wycheproof's test vectors. They are 26 MB, and every module that imports Payhook would
// need them if go.mod did: the go command downloads them when they are needed for the first time, and checks them
// against the checksum database.
func wycheproof(t *testing.T, name string) []byte {
	t.Helper()
	const module = "github.com/c2sp/wycheproof@v0.0.0-20260902155932-3fa63dd0344a"
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	cmd.Dir = t.TempDir() // in a module, the command would add the vectors to its go.sum
	out, failed := cmd.Output()
	var downloaded struct{ Dir, Error string }
	err := json.Unmarshal(out, &downloaded)
	text, missing := os.ReadFile(filepath.Join(downloaded.Dir, "testvectors_v1", name))
	if err := errors.Join(failed, err, missing); err != nil {
		t.Fatal(err, downloaded.Error)
	}
	return text
}

// The vectors are keys of Wycheproof that an RSA primitive accepts and the policy must reject, each for its own reason.
func TestParseJWKRejectsWeakKeysOfWycheproof(t *testing.T) {
	type set struct {
		TestGroups []struct {
			// Some files contain one key, others a set of keys.
			Private struct {
				Keys []map[string]any `json:"keys"`
				Rest map[string]any   `json:",embed"`
			} `json:"private"`
			Tests []struct {
				TcID int `json:"tcId"`
			} `json:"tests"`
		} `json:"testGroups"`
	}
	tests := []struct {
		file string
		tcID int
		want Violation
	}{
		{"json_web_key_test.json", 6, WrongUse},
		{"json_web_key_test.json", 7, ROCA},
		{"json_web_key_test.json", 8, WrongSize},
		{"json_web_signature_test.json", 353, WrongUse},
		{"json_web_signature_test.json", 355, WrongKeyOps},
		{"json_web_crypto_test.json", 46, ROCA},
	}
	for _, test := range tests {
		var vectors set
		if err := json.Unmarshal(wycheproof(t, test.file), &vectors); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, group := range vectors.TestGroups {
			for _, v := range group.Tests {
				if v.TcID != test.tcID {
					continue
				}
				found = true
				keys := group.Private.Keys
				if keys == nil {
					keys = []map[string]any{group.Private.Rest}
				}
				for _, jwk := range keys {
					// The vectors contain the private key, and any key ids. Neither is what they test.
					for _, name := range []string{"d", "p", "q", "dp", "dq", "qi"} {
						delete(jwk, name)
					}
					jwk["kid"] = id
					_, err := ParseJWK(text(t, jwk), id)
					if !slices.Contains(violations(err), test.want) {
						t.Errorf("%s tc%d: got %v, want %q", test.file, test.tcID, err, test.want)
					}
				}
			}
		}
		if !found {
			t.Errorf("%s has no tc%d", test.file, test.tcID)
		}
	}
}

// The fingerprint must check every odd prime up to 167, and no other.
func TestROCAFingerprintChecksEveryOddPrime(t *testing.T) {
	var want []int64
	for n := int64(3); n <= 167; n += 2 {
		if big.NewInt(n).ProbablyPrime(20) {
			want = append(want, n)
		}
	}
	if diff := cmp.Diff(want, rocaPrimes); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestROCAFingerprintDistinguishesKeys(t *testing.T) {
	for i := range 2 {
		if hasROCAFingerprint(generated(i).N) {
			t.Error("a key of crypto/rsa has the fingerprint")
		}
	}
	// The product of two numbers of the form k*M + 65537^a.
	m := big.NewInt(2)
	for _, p := range rocaPrimes {
		m.Mul(m, big.NewInt(p))
	}
	prime := func(k, a int64) *big.Int {
		p := new(big.Int).Exp(big.NewInt(65537), big.NewInt(a), m)
		return p.Add(p, new(big.Int).Mul(big.NewInt(k), m))
	}
	if !hasROCAFingerprint(new(big.Int).Mul(prime(12345, 678), prime(54321, 987))) {
		t.Error("a product of that form does not have the fingerprint")
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
