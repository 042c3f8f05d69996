package handler

import (
	"crypto/rsa"
	"encoding/base64"
	"encoding/json/v2"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/intake"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/signature"
)

// withKey returns an endpoint whose service signs with a key, and publishes its JWK after
// change.
func withKey(t *testing.T, key paymenttest.Key, change func(jwk map[string]any)) *endpoint {
	t.Helper()
	e := newServices()
	e.service = paymenttest.NewServer(paymenttest.Options{Key: key})
	t.Cleanup(e.service.Close)
	e.start(t, e.service.URL, &http.Client{}, nil)
	jwk := decoded(t, key.JWK())
	change(jwk)
	text, err := json.Marshal(jwk)
	if err != nil {
		t.Fatal(err)
	}
	publish := func(s *paymenttest.State) error { s.Keys[key.ID] = text; return nil }
	if err := e.service.Change(t.Context(), publish); err != nil {
		t.Fatal(err)
	}
	return e
}

// A key is used in every spelling, and its webhooks are published. What says that it is not a key
// for signatures is refused.
func TestAKeyIsUsedInEverySpelling(t *testing.T) {
	n := signingKey().Private.N.Bytes()
	encode := base64.RawURLEncoding.EncodeToString
	set := func(pairs ...any) func(map[string]any) {
		return func(jwk map[string]any) {
			for pair := range slices.Chunk(pairs, 2) {
				jwk[pair[0].(string)] = pair[1]
			}
		}
	}
	for name, test := range map[string]struct {
		change  func(jwk map[string]any)
		outcome intake.Outcome
	}{
		"as specified":  {set(), intake.Accepted},
		"leading zeros": {set("n", encode(append([]byte{0}, n...)), "e", "AAEAAQ"), intake.Accepted},
		"padding":       {set("n", base64.URLEncoding.EncodeToString(n), "e", "AAEAAQ=="), intake.Accepted},
		"no use, no alg": {func(jwk map[string]any) {
			delete(jwk, "use")
			delete(jwk, "alg")
		}, intake.Accepted},
		"null": {set("d", nil, "p", nil, "q", nil, "dp", nil, "dq", nil, "qi", nil, "oth", nil, "k", nil, "use", nil,
			"alg", nil, "key_ops", nil, "x5c", nil), intake.Accepted},
		"key_ops empty":       {set("key_ops", []string{}), intake.Accepted},
		"kid without hyphens": {set("kid", strings.ReplaceAll(signingKey().ID, "-", "")), intake.Accepted},

		"use enc":            {set("use", "enc"), intake.KeyRefused},
		"use empty":          {set("use", ""), intake.KeyRefused},
		"alg RS512":          {set("alg", "RS512"), intake.KeyRefused},
		"d":                  {set("d", "AQAB"), intake.KeyRefused},
		"key_ops encrypt":    {set("key_ops", []string{"encrypt"}), intake.KeyRefused},
		"n even":             {set("n", encode(append(n[:len(n)-1:len(n)-1], n[len(n)-1]^1))), intake.KeyRefused},
		"n in base64":        {set("n", strings.Repeat("+", 342)), intake.KeyRefused},
		"another kid":        {set("kid", "0"+signingKey().ID[1:]+"0"), intake.KeyUnavailable},
		"exponent 1":         {set("e", "AQ"), intake.KeyRefused},
		"another exponent":   {set("e", "Aw"), intake.SignatureMismatch},
		"exponent as number": {set("e", 65537), intake.KeyUnavailable},
	} {
		e := withKey(t, signingKey(), test.change)
		e.send(t, paymenttest.Event())
		if got := e.line(t)["outcome"]; got != test.outcome.Name {
			t.Errorf("%s: %v, want %s", name, got, test.outcome)
		}
		if test.outcome != intake.Accepted {
			e.nothingHappened(t)
		}
	}
}

func TestAKeyOfAnotherExponentIsUsed(t *testing.T) {
	one := big.NewInt(1)
	p, q := signingKey().Private.Primes[0], signingKey().Private.Primes[1]
	phi := new(big.Int).Mul(new(big.Int).Sub(p, one), new(big.Int).Sub(q, one))
	tried := 0
	for _, e := range []int{3, 5, 7, 11, 13, 65539, 1<<31 - 1} {
		d := new(big.Int).ModInverse(big.NewInt(int64(e)), phi)
		if d == nil { // no key with these primes has this exponent
			continue
		}
		tried++
		key := paymenttest.Key{ID: signingKey().ID, Private: &rsa.PrivateKey{
			N: signingKey().Private.N, E: e, D: d, Primes: []*big.Int{p, q}}}
		key.Private.Precompute()
		endpoint := withKey(t, key, func(map[string]any) {})
		if r := endpoint.send(t, paymenttest.Event()); r.StatusCode != 200 || len(endpoint.bus.Entries()) != 1 {
			t.Errorf("exponent %d: %d %s", e, r.StatusCode, endpoint.log)
		}
		line := endpoint.line(t)
		if !cmp.Equal(line["deviations"], []any{"key.e"}) || line["Deviations"] != 1.0 || line["level"] != nil {
			t.Errorf("exponent %d: the line is %v", e, line)
		}
	}
	if tried < 2 {
		t.Errorf("only %d exponents were tried", tried)
	}
}

// Anyone can send another spelling of a key id: it is part of what is signed.
func TestAKeyIDIsAUUIDInAnySpelling(t *testing.T) {
	id := signingKey().ID
	digits := strings.ReplaceAll(id, "-", "")
	for spelling, outcome := range map[string]intake.Outcome{
		id: intake.Accepted, digits: intake.Accepted, strings.ToUpper(id): intake.Accepted,
		strings.ToUpper(digits): intake.Accepted,
		"{" + id + "}":          intake.SignatureMalformed, "urn:uuid:" + id: intake.SignatureMalformed,
		digits + "0": intake.SignatureMalformed, digits[1:]: intake.SignatureMalformed,
		id + "-": intake.SignatureMalformed,
	} {
		key := paymenttest.Key{ID: spelling, Private: signingKey().Private}
		e := withKey(t, key, func(jwk map[string]any) { jwk["kid"] = id })
		r := e.signed(t, paymenttest.Event())
		e.handle(t, r)
		if line := e.line(t); line["outcome"] != outcome.Name ||
			outcome == intake.Accepted && line["keyId"] != spelling {
			t.Errorf("%s: %v, want %s", spelling, line, outcome)
		}
		if outcome != intake.Accepted {
			if e.nothingHappened(t); len(e.service.Requests(paymenttest.Keys)) != 0 {
				t.Errorf("%s: the service was asked", spelling)
			}
			continue
		}
		r = e.signed(t, paymenttest.Event())
		r.Headers["x-svc-key-id"] = strings.ToUpper(digits[:16]) + digits[16:] // that nobody signed
		if e.handle(t, r); e.line(t)["outcome"] != intake.SignatureMismatch.Name {
			t.Errorf("%s: another spelling than the signed one: %v", spelling, e.line(t))
		}
	}
}

func TestThreeSpellingsOfAKeyIDAreOneKey(t *testing.T) {
	e := withKey(t, signingKey(), func(map[string]any) {})
	id := signingKey().ID
	for _, spelling := range []string{id, strings.ToUpper(id), strings.ReplaceAll(id, "-", "")} {
		r := e.signed(t, paymenttest.Event())
		text, err := signature.Sign(signingKey().Private, []byte(r.Body), r.Headers["x-svc-timestamp"], spelling)
		if err != nil {
			t.Fatal(err)
		}
		r.Headers["x-svc-key-id"], r.Headers["x-svc-signature"] = spelling, text
		e.start(t, e.service.URL, &http.Client{}, nil) // a new process
		if got := e.handle(t, r).StatusCode; got != 200 {
			t.Errorf("%s: %d %s", spelling, got, e.log)
		}
	}
	records, err := e.keys.Records(t.Context())
	if asked := len(e.service.Requests(paymenttest.Keys)); asked != 1 || len(records) != 1 || err != nil {
		t.Errorf("%d requests, %+v, %v", asked, records, err)
	}
}

// A gateway before the key service wants to know who asks, and for what.
func TestTheKeyServiceSeesWhoAsksAndForWhat(t *testing.T) {
	picky := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accept, agent := r.Header.Get("Accept"), r.Header.Get("User-Agent")
		switch {
		case !strings.Contains(accept, "*/*") || !strings.HasPrefix(accept, "application/json"):
			w.WriteHeader(http.StatusNotAcceptable)
		case !strings.HasPrefix(agent, "payhook/") || strings.ContainsAny(agent, " ,()"):
			w.WriteHeader(http.StatusForbidden)
		default:
			_, _ = fmt.Fprintf(w, "%s", signingKey().JWK())
		}
	}))
	defer picky.Close()
	e := newEndpoint(t, nil)
	e.start(t, picky.URL, picky.Client(), nil)
	if r := e.send(t, paymenttest.Event()); r.StatusCode != 200 {
		t.Errorf("%d %s", r.StatusCode, e.log)
	}
}
