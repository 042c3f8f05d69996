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

// Location is the part of a request where a value is: "header:NAME", "query:NAME", or "static:UUID" for a key id that
// the service does not send. The interface does not specify the locations of timestamp and key id, so each is a
// setting.
type Location string

const (
	inHeader = "header"
	inQuery  = "query"
	isStatic = "static"
)

// split returns what kind of location it is, and the name of the header or query parameter, or the static value.
func (l Location) split() (kind, name string) {
	kind, name, _ = strings.Cut(string(l), ":")
	return kind, name
}

// ParseLocation returns a text that is "header:NAME" or "query:NAME".
func ParseLocation(text string) (Location, error) {
	switch kind, name := Location(text).split(); kind {
	case inHeader:
		if !httpguts.ValidHeaderFieldName(name) {
			return "", errors.New("header: must be followed by the name of a header")
		}
	case inQuery:
		if name == "" || url.QueryEscape(name) != name {
			return "", errors.New("query: must be followed by the name of a query parameter: letters, digits, '-', " +
				"'_' and '.'")
		}
	default:
		return "", errors.New("must be header:NAME or query:NAME")
	}
	return Location(text), nil
}

// ParseKeyIDLocation parses a location as [ParseLocation] does. It also accepts "static:UUID", for a service that signs
// with one key and does not send its id.
func ParseKeyIDLocation(text string) (Location, error) {
	if _, static := StaticKeyID(text); static {
		return Location(text), nil
	}
	if strings.HasPrefix(text, isStatic+":") {
		return "", errors.New("static: must be followed by a UUID")
	}
	l, err := ParseLocation(text)
	if err != nil {
		err = fmt.Errorf("%w, or static:UUID", err)
	}
	return l, err
}

// StaticKeyID returns the key id of a location "static:UUID", with or without hyphens. It reports false for every other
// location.
func StaticKeyID(location string) (id string, ok bool) {
	id, ok = strings.CutPrefix(location, isStatic+":")
	_, isKeyID := payment.KeyID(id)
	return id, ok && isKeyID
}

// Scheme defines the locations of the three [Parts].
type Scheme struct {
	SignatureHeader string
	Timestamp       Location
	KeyID           Location
}

// Headers returns the headers of a request as [Scheme.Extract] reads them and Lambda passes them to a function: names
// are in lower case, and the values of a repeated header are joined by commas.
func Headers(header http.Header) map[string]string {
	headers := make(map[string]string, len(header))
	for name, values := range header {
		headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	return headers
}

func (s Scheme) signature() Location { return Location(inHeader + ":" + s.SignatureHeader) }

// Extract returns the proof of a request. headers maps names, in any case, to values; several values of one name are
// joined by commas, as [Headers] does. rawQuery is the query string without its question mark.
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
		{"signature value", s.signature(), &p.Signature}, {"timestamp", s.Timestamp, &p.Timestamp},
		{"key id", s.KeyID, &p.KeyID},
	} {
		value, err := part.location.find(headers, rawQuery, part.to == &p.Timestamp)
		switch {
		case err != nil:
		case value == "" || value == Redacted:
			err = ErrMissing
		case strings.ContainsFunc(value, unicode.IsControl):
			err = ErrMalformed
		}
		if err != nil {
			return Parts{}, fmt.Errorf("%w: %s", err, part.name)
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
func (s Scheme) reads(in string, is func(name string) bool) bool {
	return slices.ContainsFunc([]Location{s.signature(), s.Timestamp, s.KeyID}, func(l Location) bool {
		kind, name := l.split()
		return kind == in && is(name)
	})
}

// inQueryOf returns the values of a query parameter. A plus sign that was not encoded is one of a time, and otherwise a
// space.
func inQueryOf(rawQuery, name string, isTime func(value string) bool) ([]string, error) {
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return nil, ErrMalformed
	}
	values := query[name]
	if len(values) == 1 && strings.Contains(rawQuery, "+") && !isTime(values[0]) {
		query, _ = url.ParseQuery(strings.ReplaceAll(rawQuery, "+", "%2B"))
		if sent := query.Get(name); isTime(sent) {
			return []string{sent}, nil
		}
	}
	return values, nil
}

// find returns the only value at a location; "" if there is none.
func (l Location) find(headers map[string]string, rawQuery string, timestamp bool) (string, error) {
	isTime := func(value string) bool { _, ok := TimeOf(value); return timestamp && ok }
	kind, name := l.split()
	var values []string
	switch kind {
	case inHeader:
		for k, v := range headers {
			if sameHeader(k, name) {
				values = append(values, v)
			}
		}
		if len(values) == 1 && strings.Contains(values[0], ",") && !isTime(values[0]) {
			return "", ErrRepeated
		}
	case inQuery:
		var err error
		if values, err = inQueryOf(rawQuery, name, isTime); err != nil {
			return "", err
		}
	default:
		return name, nil
	}
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", ErrRepeated
}

// sameHeader compares names of headers without the letters beyond ASCII that [strings.EqualFold] takes for some of it.
func sameHeader(a, b string) bool { return len(a) == len(b) && strings.EqualFold(a, b) }
