package signature

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"payhook.example/shared/rfc9562"
)

// Carrier is the place in a request where a value travels. The interface shows
// none for timestamp and key id, so each is a setting.
type Carrier struct {
	kind string // header, query or static
	name string // of the header or query parameter, or the static value
}

const (
	inHeader = "header"
	inQuery  = "query"
	isStatic = "static"
)

// ParseCarrier reads "header:NAME" or "query:NAME".
func ParseCarrier(text string) (Carrier, error) {
	kind, name, _ := strings.Cut(text, ":")
	switch kind {
	case inHeader:
		if !httpguts.ValidHeaderFieldName(name) {
			return Carrier{}, errors.New("header: needs the name of a header")
		}
	case inQuery:
		if name == "" || url.QueryEscape(name) != name {
			return Carrier{}, errors.New("query: needs the name of a query parameter of letters, digits, '-', '_' or '.'")
		}
	default:
		return Carrier{}, errors.New("must be header:NAME or query:NAME")
	}
	return Carrier{kind, name}, nil
}

// ParseKeyIDCarrier reads what [ParseCarrier] reads, and "static:UUID" for a
// service that signs with one key and does not name it.
func ParseKeyIDCarrier(text string) (Carrier, error) {
	id, static := strings.CutPrefix(text, isStatic+":")
	if !static {
		c, err := ParseCarrier(text)
		if err != nil {
			return c, fmt.Errorf("%w, or static:UUID", err)
		}
		return c, nil
	}
	if !rfc9562.Valid(id) {
		return Carrier{}, errors.New("static: needs a UUID")
	}
	return Carrier{isStatic, id}, nil
}

// String returns the carrier as a setting spells it.
func (c Carrier) String() string { return c.kind + ":" + c.name }

// Scheme says where the three parts of a [Proof] travel.
type Scheme struct {
	SignatureHeader string
	Timestamp       Carrier
	KeyID           Carrier
}

// Extract takes the proof out of a request. headers maps names, of any case,
// to values, where several values of one name are joined by commas, as
// Lambda function URLs do; rawQuery is the query string without its question
// mark.
//
// A part that is absent or empty is [ErrMissing]. None of the three can hold
// a comma, so one that does, or whose name occurs twice, is [ErrRepeated]:
// picking one of two values would let a man in the middle choose which.
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
			return Proof{}, fmt.Errorf("signature: %s: %w", part.name, err)
		}
		*part.to = value
	}
	return p, nil
}

// Attach puts proof on a request the way Extract reads it.
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

// single returns the value of the one header of that name.
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
