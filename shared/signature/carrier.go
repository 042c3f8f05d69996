package signature

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"golang.org/x/net/http/httpguts"

	"payhook.example/shared/payment"
)

// Carrier is the part of a request that carries a value. The interface does not
// specify the carriers of timestamp and key id, so each is a setting.
type Carrier struct {
	kind string // header, query or static
	name string // of the header or query parameter, or the static value
}

const (
	inHeader = "header"
	inQuery  = "query"
	isStatic = "static"
)

// ParseCarrier parses "header:NAME" or "query:NAME".
func ParseCarrier(text string) (Carrier, error) {
	kind, name, _ := strings.Cut(text, ":")
	switch kind {
	case inHeader:
		if !httpguts.ValidHeaderFieldName(name) {
			return Carrier{}, errors.New("header: must be followed by the name of a header")
		}
	case inQuery:
		if name == "" || url.QueryEscape(name) != name {
			return Carrier{}, errors.New("query: must be followed by the name of a query parameter: " +
				"letters, digits, '-', '_' and '.'")
		}
	default:
		return Carrier{}, errors.New("must be header:NAME or query:NAME")
	}
	return Carrier{kind, name}, nil
}

// ParseKeyIDCarrier parses a carrier as [ParseCarrier] does. It also accepts
// "static:UUID", for a service that signs with one key and does not send its id.
func ParseKeyIDCarrier(text string) (Carrier, error) {
	if id, static := StaticKeyID(text); static {
		return Carrier{isStatic, id}, nil
	}
	if strings.HasPrefix(text, isStatic+":") {
		return Carrier{}, errors.New("static: must be followed by a UUID")
	}
	c, err := ParseCarrier(text)
	if err != nil {
		return c, fmt.Errorf("%w, or static:UUID", err)
	}
	return c, nil
}

// StaticKeyID returns the UUID of a carrier "static:UUID". It reports false for every
// other carrier.
func StaticKeyID(carrier string) (id string, ok bool) {
	id, ok = strings.CutPrefix(carrier, isStatic+":")
	return id, ok && payment.IsUUID(id)
}

// String returns the carrier in the form that [ParseCarrier] parses.
func (c Carrier) String() string { return c.kind + ":" + c.name }

// Scheme defines the carriers of the three parts of a [Proof].
type Scheme struct {
	SignatureHeader string
	Timestamp       Carrier
	KeyID           Carrier
}

// Extract returns the proof of a request. headers maps names, in any case, to
// values; several values of one name are joined by commas, as Lambda function
// URLs do. rawQuery is the query string without its question mark.
//
// Extract returns an error that wraps [ErrMissing] if a part is absent or empty.
// None of the three parts can contain a comma. If one does, or if its name occurs
// twice, the error wraps [ErrRepeated]: with two values, an attacker could choose
// which one is used. A control character in a part or an invalid query string gives
// [ErrMalformed].
func (s Scheme) Extract(headers map[string]string, rawQuery string) (Proof, error) {
	var p Proof
	for _, part := range []struct {
		name    string
		carrier Carrier
		to      *string
	}{
		{"signature value", Carrier{inHeader, s.SignatureHeader}, &p.Signature},
		{"timestamp", s.Timestamp, &p.Timestamp},
		{"key id", s.KeyID, &p.KeyID},
	} {
		value, err := part.carrier.find(headers, rawQuery)
		if err != nil {
			return Proof{}, fmt.Errorf("%w: %s", err, part.name)
		}
		if strings.ContainsFunc(value, unicode.IsControl) {
			return Proof{}, fmt.Errorf("%w: %s", ErrMalformed, part.name)
		}
		*part.to = value
	}
	return p, nil
}

// Attach adds a proof to a request. [Scheme.Extract] reads it back.
func (s Scheme) Attach(r *http.Request, p Proof) {
	r.Header.Set(s.SignatureHeader, p.Signature)
	s.Timestamp.attach(r, p.Timestamp)
	s.KeyID.attach(r, p.KeyID)
}

func (c Carrier) attach(r *http.Request, value string) {
	switch c.kind {
	case inHeader:
		r.Header.Set(c.name, value)
	case inQuery:
		q := r.URL.Query()
		q.Set(c.name, value)
		r.URL.RawQuery = q.Encode()
	}
}

func (c Carrier) find(headers map[string]string, rawQuery string) (string, error) {
	switch c.kind {
	case inHeader:
		return single(headers, c.name)
	case inQuery:
		query, err := url.ParseQuery(rawQuery)
		if err != nil {
			return "", ErrMalformed
		}
		switch values := query[c.name]; {
		case len(values) > 1:
			return "", ErrRepeated
		case len(values) == 0 || values[0] == "":
			return "", ErrMissing
		default:
			return values[0], nil
		}
	default:
		return c.name, nil
	}
}

// single returns the value of the only header with the given name.
func single(headers map[string]string, name string) (string, error) {
	var value string
	found := 0
	for k, v := range headers {
		if len(k) == len(name) && strings.EqualFold(k, name) {
			value = v
			found++
		}
	}
	switch {
	case found > 1 || strings.Contains(value, ","):
		return "", ErrRepeated
	case value == "":
		return "", ErrMissing
	}
	return value, nil
}
