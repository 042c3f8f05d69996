package signature

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/http/httpguts"

	"payhook.example/shared/payment"
)

// Location is the part of a request where a value is. The interface does not specify the locations of timestamp and key
// id, so each is a setting.
type Location struct {
	kind string // header, query or static
	name string // of the header or query parameter, or the static value
}

const (
	inHeader = "header"
	inQuery  = "query"
	isStatic = "static"
)

// ParseLocation parses "header:NAME" or "query:NAME".
func ParseLocation(text string) (Location, error) {
	kind, name, _ := strings.Cut(text, ":")
	switch kind {
	case inHeader:
		if !httpguts.ValidHeaderFieldName(name) {
			return Location{}, errors.New("header: must be followed by the name of a header")
		}
	case inQuery:
		if name == "" || url.QueryEscape(name) != name {
			return Location{}, errors.New("query: must be followed by the name of a query parameter: " +
				"letters, digits, '-', '_' and '.'")
		}
	default:
		return Location{}, errors.New("must be header:NAME or query:NAME")
	}
	return Location{kind, name}, nil
}

// ParseKeyIDLocation parses a location as [ParseLocation] does. It also accepts "static:UUID", for a service that signs
// with one key and does not send its id.
func ParseKeyIDLocation(text string) (Location, error) {
	if id, static := StaticKeyID(text); static {
		return Location{isStatic, id}, nil
	}
	if strings.HasPrefix(text, isStatic+":") {
		return Location{}, errors.New("static: must be followed by a UUID")
	}
	l, err := ParseLocation(text)
	if err != nil {
		return l, fmt.Errorf("%w, or static:UUID", err)
	}
	return l, nil
}

// StaticKeyID returns the key id of a location "static:UUID", with or without hyphens. It reports false for every other
// location.
func StaticKeyID(location string) (id string, ok bool) {
	id, ok = strings.CutPrefix(location, isStatic+":")
	_, isKeyID := payment.KeyID(id)
	return id, ok && isKeyID
}

// String returns the location in the form that [ParseLocation] parses.
func (l Location) String() string { return l.kind + ":" + l.name }

// Scheme defines the locations of the three [Parts].
type Scheme struct {
	SignatureHeader string
	Timestamp       Location
	KeyID           Location
}

// Extract returns the proof of a request. headers maps names, in any case, to values; several values of one name are
// joined by commas, as Lambda function URLs do. rawQuery is the query string without its question mark.
//
// Extract returns an error that wraps [ErrMissing] if a part is absent, empty or [Redacted]. If a name occurs twice or
// the value of a header contains a comma, the error wraps [ErrRepeated]: with two values, an attacker could choose
// which one is used. A timestamp that [TimeOf] parses can contain a comma, because two that are joined are not one. A
// control character in a part or an invalid query string gives [ErrMalformed].
//
// A plus sign in a query is a space, as HTML forms encode it. In a timestamp that [TimeOf] parses with the plus sign
// only, as in 17:28:09+00:00, it is what was sent.
func (s Scheme) Extract(headers map[string]string, rawQuery string) (Parts, error) {
	var p Parts
	for _, part := range []struct {
		name     string
		location Location
		to       *string
	}{
		{"signature value", Location{inHeader, s.SignatureHeader}, &p.Signature},
		{"timestamp", s.Timestamp, &p.Timestamp},
		{"key id", s.KeyID, &p.KeyID},
	} {
		value, err := part.location.find(headers, rawQuery, part.to == &p.Timestamp)
		if value == Redacted {
			err = ErrMissing
		}
		if err != nil {
			return Parts{}, fmt.Errorf("%w: %s", err, part.name)
		}
		if strings.ContainsFunc(value, unicode.IsControl) {
			return Parts{}, fmt.Errorf("%w: %s", ErrMalformed, part.name)
		}
		*part.to = value
	}
	return p, nil
}

// Redacted replaces a value that is not stored.
const Redacted = "(redacted)"

// Redact returns the headers and the query string of a request with [Redacted] for every value that [Scheme.Extract]
// does not read, except those of the headers also. The names stay, and Extract has the same result of both.
func (s Scheme) Redact(headers map[string]string, rawQuery string, also ...string) (map[string]string, string) {
	kept := make(map[string]string, len(headers))
	for name, value := range headers {
		is := func(other string) bool { return sameHeader(name, other) }
		if !s.reads(inHeader, is) && !slices.ContainsFunc(also, is) {
			value = Redacted
		}
		kept[name] = value
	}
	parameters := strings.Split(rawQuery, "&")
	for i, parameter := range parameters {
		name, value, hasValue := strings.Cut(parameter, "=")
		text, err := url.QueryUnescape(name)
		// A parameter with a semicolon is not read: the query string is invalid.
		read := err == nil && s.reads(inQuery, func(other string) bool { return text == other }) &&
			!strings.Contains(parameter, ";")
		if read || !hasValue {
			continue
		}
		parameters[i] = name + "=" + Redacted
		// What made the query string invalid is still in it.
		if strings.Contains(value, ";") {
			parameters[i] += ";"
		}
		if _, err := url.QueryUnescape(value); err != nil {
			parameters[i] += "%"
		}
	}
	return kept, strings.Join(parameters, "&")
}

// reads reports whether a part of the proof is in a header or query parameter whose name is that.
func (s Scheme) reads(kind string, is func(name string) bool) bool {
	return slices.ContainsFunc([]Location{{inHeader, s.SignatureHeader}, s.Timestamp, s.KeyID},
		func(l Location) bool { return l.kind == kind && is(l.name) })
}

// Attach adds a proof to a request. [Scheme.Extract] reads it back.
func (s Scheme) Attach(r *http.Request, p Parts) {
	r.Header.Set(s.SignatureHeader, p.Signature)
	s.Timestamp.attach(r, p.Timestamp)
	s.KeyID.attach(r, p.KeyID)
}

func (l Location) attach(r *http.Request, value string) {
	switch l.kind {
	case inHeader:
		r.Header.Set(l.name, value)
	case inQuery:
		q := r.URL.Query()
		q.Set(l.name, value)
		r.URL.RawQuery = q.Encode()
	}
}

func (l Location) find(headers map[string]string, rawQuery string, timestamp bool) (string, error) {
	isTime := func(value string) bool { _, ok := TimeOf(value); return timestamp && ok }
	switch l.kind {
	case inHeader:
		value, err := single(headers, l.name)
		if err == nil && strings.Contains(value, ",") && !isTime(value) {
			err = ErrRepeated
		}
		return value, err
	case inQuery:
		query, err := url.ParseQuery(rawQuery)
		if err != nil {
			return "", ErrMalformed
		}
		switch values := query[l.name]; {
		case len(values) > 1:
			return "", ErrRepeated
		case len(values) == 0 || values[0] == "":
			return "", ErrMissing
		default:
			value := values[0]
			if strings.Contains(rawQuery, "+") && !isTime(value) {
				query, _ = url.ParseQuery(strings.ReplaceAll(rawQuery, "+", "%2B"))
				if sent := query.Get(l.name); isTime(sent) {
					value = sent
				}
			}
			return value, nil
		}
	default:
		return l.name, nil
	}
}

// sameHeader compares names of headers without the letters beyond ASCII that [strings.EqualFold] takes for some of it.
func sameHeader(a, b string) bool { return len(a) == len(b) && strings.EqualFold(a, b) }

// single returns the value of the only header with the given name.
func single(headers map[string]string, name string) (string, error) {
	var value string
	found := 0
	for k, v := range headers {
		if sameHeader(k, name) {
			value = v
			found++
		}
	}
	switch {
	case found > 1:
		return "", ErrRepeated
	case value == "":
		return "", ErrMissing
	}
	return value, nil
}
