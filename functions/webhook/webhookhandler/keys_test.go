package webhookhandler

import (
	"crypto/rsa"
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/functions/internal/functiontest"
	"payhook.example/shared/paymenttest"
)

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
		endpoint := withService(t, key, nil)
		r, line := endpoint.send(t, paymenttest.Event()), endpoint.Line()
		if r.StatusCode != 200 || len(endpoint.Bus.Entries()) != 1 || line["Deviations"] != 1.0 ||
			!cmp.Equal(line["deviations"], []any{"key.e"}) || line["level"] != nil {
			t.Errorf("exponent %d: %d, %v", e, r.StatusCode, line)
		}
		return
	}
}
