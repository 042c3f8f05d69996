package keys

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"uuid"
)

// rfc7638 is the key of section 3.1 of RFC 7638.
const rfc7638 = `{"kty":"RSA","alg":"RS256","use":"sig","kid":"%s",` +
	`"n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjB` +
	`ZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8` +
	`KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_` +
	`xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw","e":"AQAB"}`

func TestFindReturnsWhatTheFunctionsUse(t *testing.T) {
	f := newFleet(t)
	inspector := NewInspector(f.db)
	text := fmt.Sprintf(rfc7638, id)
	key, err := ParseJWK([]byte(text), id)
	if err != nil {
		t.Fatal(err)
	}
	if got := Thumbprint(key); got != "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs" {
		t.Errorf("the thumbprint is %s", got)
	}
	for name, test := range map[string]struct {
		jwk            string
		known, refused bool
	}{
		"known":       {text, true, false},
		"unknown":     {"", false, false},
		"another id":  {fmt.Sprintf(rfc7638, uuid.New().String()), false, true},
		"not a JWK":   {"[]", false, true},
		"no exponent": {strings.Replace(text, `,"e":"AQAB"`, "", 1), false, true},
	} {
		r := Record{ID: itemID, JWK: test.jwk, FetchedAt: f.now, ExpiresAt: f.now.Add(time.Hour)}
		if err := f.db.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		got, ok, err := inspector.Find(t.Context(), id)
		if err != nil || !ok {
			t.Fatalf("%s: %t, %v", name, ok, err)
		}
		if known := got.Key != nil; known != test.known || known && !got.Key.Equal(key) ||
			(got.Refused != nil) != test.refused || got.FetchedAt != f.now || got.ExpiresAt != f.now.Add(time.Hour) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	f.broken.Store(true)
	if _, _, err := inspector.Find(t.Context(), id); err == nil {
		t.Error("Find does not report a table that fails")
	}
	if err := inspector.Drop(t.Context(), id); err == nil {
		t.Error("Drop does not report a table that fails")
	}
}

func TestDropMakesFunctionsFetchAgain(t *testing.T) {
	f := newFleet(t)
	f.expect(f.cache(), nil, Service, 1)
	inspector := NewInspector(f.db)
	if got, ok, err := inspector.Find(t.Context(), id); !ok || err != nil || !got.Key.Equal(&generated(0).PublicKey) ||
		!got.FetchedAt.Equal(f.now) {
		t.Fatalf("%+v, %t, %v", got, ok, err)
	}
	f.expect(f.cache(), nil, SharedTable, 0)
	for range 2 { // dropping it twice is not an error
		if err := inspector.Drop(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok, err := inspector.Find(t.Context(), id); ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
	f.expect(f.cache(), nil, Service, 1)
}
