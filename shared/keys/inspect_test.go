package keys

import (
	"fmt"
	"strings"
	"testing"
	"uuid"
)

// rfc7638 is the key of section 3.1 of RFC 7638.
const rfc7638 = `{"kty":"RSA","alg":"RS256","use":"sig","kid":"%s",` +
	`"n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjB` +
	`ZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8` +
	`KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_` +
	`xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw","e":"AQAB"}`

func TestFindReturnsWhatTheFunctionsUse(t *testing.T) {
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
		got, refused := (&Record{ID: itemID, JWK: test.jwk}).Key()
		if known := got != nil; known != test.known || known && !got.Equal(key) || (refused != nil) != test.refused {
			t.Errorf("%s: %+v, %v", name, got, refused)
		}
	}
}
