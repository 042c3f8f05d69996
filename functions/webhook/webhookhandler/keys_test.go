package webhookhandler

import (
	"crypto/rsa"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/functions/internal/functiontest"
	"payhook.example/shared/intake"
	"payhook.example/shared/paymenttest"
)

// withKey returns an endpoint whose service signs with a key, and publishes it as that with an id.
func withKey(t *testing.T, key paymenttest.Key, id string) *endpoint {
	t.Helper()
	e := withService(t, key, nil)
	published := paymenttest.Key{ID: id, Private: key.Private}
	e.service.Change(func(s *paymenttest.State) { s.Keys[key.ID] = published.JWK() })
	return e
}

func TestAKeyOfAnotherExponentIsUsed(t *testing.T) {
	one := big.NewInt(1)
	p, q := functiontest.SigningKey().Private.Primes[0], functiontest.SigningKey().Private.Primes[1]
	phi := new(big.Int).Mul(new(big.Int).Sub(p, one), new(big.Int).Sub(q, one))
	for e := 3; ; e += 2 { // not every exponent has a key with these primes
		d := new(big.Int).ModInverse(big.NewInt(int64(e)), phi)
		if d == nil {
			continue
		}
		key := paymenttest.Key{ID: functiontest.SigningKey().ID, Private: &rsa.PrivateKey{
			N: functiontest.SigningKey().Private.N, E: e, D: d, Primes: []*big.Int{p, q}}}
		key.Private.Precompute()
		endpoint := withKey(t, key, key.ID)
		r, line := endpoint.send(t, paymenttest.Event()), endpoint.Line()
		if r.StatusCode != 200 || len(endpoint.Bus.Entries()) != 1 || line["Deviations"] != 1.0 ||
			!cmp.Equal(line["deviations"], []any{"key.e"}) || line["level"] != nil {
			t.Errorf("exponent %d: %d, %v", e, r.StatusCode, line)
		}
		return
	}
}

// Anyone can send another spelling of a key id: it is part of what is signed.
func TestAKeyIDIsAUUIDInAnySpelling(t *testing.T) {
	id := functiontest.SigningKey().ID
	digits := strings.ReplaceAll(id, "-", "")
	for spelling, outcome := range map[string]intake.Outcome{
		id: intake.Accepted, strings.ToUpper(digits): intake.Accepted, "urn:uuid:" + id: intake.SignatureMalformed,
		digits + "0": intake.SignatureMalformed,
	} {
		e := withKey(t, paymenttest.Key{ID: spelling, Private: functiontest.SigningKey().Private}, id)
		e.send(t, paymenttest.Event())
		keyID := map[bool]any{true: spelling}[outcome == intake.Accepted] // what is no id must not reach the log
		if line := e.Line(); line["outcome"] != outcome.Name || line["keyId"] != keyID {
			t.Errorf("%s: %v, want %s", spelling, line, outcome)
		}
		if outcome != intake.Accepted {
			if e.NothingHappened(); len(e.service.Requests(paymenttest.Keys)) != 0 {
				t.Errorf("%s: the service was asked", spelling)
			}
			continue
		}
		r := e.signed(t, paymenttest.Event())
		r.Headers["x-svc-key-id"] = strings.ToUpper(digits[:16]) + digits[16:] // that nobody signed
		if e.handle(t, r); e.Line()["outcome"] != intake.SignatureMismatch.Name {
			t.Errorf("%s: another spelling than the signed one: %v", spelling, e.Line())
		}
	}
}
