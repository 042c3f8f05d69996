package explain

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json/jsontext"
	"maps"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"payhook.example/shared/parking"
	"payhook.example/shared/signature"
)

// value is a text of a request.
type value struct {
	place   string // as in header X-Key, query parameter key, JSON field a.b
	carrier string // "header:NAME" or "query:NAME"; "" if no setting can name the place
	name    string // of the header, parameter or field
	text    string
	rank    int // less is more likely
}

// The ranks of places. UUIDs and timestamps of events are those of payments.
const (
	inHeader = iota
	inQuery
	inBody
	inEvents
)

// valuesOf returns all texts of a request.
func valuesOf(r parking.Captured) (all []value) {
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		shown := textproto.CanonicalMIMEHeaderKey(name)
		v := value{"header " + shown, "header:" + shown, name, r.Headers[name], inHeader}
		if _, err := signature.ParseCarrier(v.carrier); err != nil || strings.Contains(v.text, ",") {
			v.carrier = "" // a comma separates the values of two headers
		}
		all = append(append(all, v), partsOf(v)...)
	}
	query, err := url.ParseQuery(r.RawQuery)
	for _, name := range slices.Sorted(maps.Keys(query)) {
		v := value{"query parameter " + name, "query:" + name, name, query.Get(name), inQuery}
		if _, wrong := signature.ParseCarrier(v.carrier); wrong != nil || err != nil || len(query[name]) > 1 {
			v.carrier = ""
		}
		all = append(all, v)
	}
	return append(all, jsonValues(r.Payload)...)
}

// partsOf returns the parts of a header that has several, as in t=1700000000,v1=abc and in
// Signature keyId="abc", signature="def".
func partsOf(v value) (found []value) {
	for _, part := range strings.FieldsFunc(v.text, func(r rune) bool { return strings.ContainsRune(",; ", r) }) {
		if name, text, ok := strings.Cut(part, "="); ok {
			found = append(found, value{place: "part " + name + " of " + v.place, name: v.name + " " + name,
				text: strings.Trim(text, `"`), rank: v.rank})
		}
	}
	return found
}

// jsonValues returns the strings and numbers of a JSON text.
func jsonValues(text []byte) (found []value) {
	d := jsontext.NewDecoder(strings.NewReader(string(text)), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	for {
		token, err := d.ReadToken()
		if err != nil {
			return found
		}
		if kind := token.Kind(); kind != '"' && kind != '0' {
			continue
		}
		if holder, n := d.StackIndex(d.StackDepth()); holder == '{' && n%2 == 1 {
			continue // a name
		}
		path := strings.Join(slices.Collect(d.StackPointer().Tokens()), ".")
		rank := inBody
		if strings.HasPrefix(path, "events.") {
			rank = inEvents
		}
		name := path[strings.LastIndex(path, ".")+1:]
		found = append(found, value{"JSON field " + path, "", name, token.String(), rank})
	}
}

// likely returns values, the most likely first: those of the carrier that is set, then those
// that a setting can name, and of these, those with a likely name. Each text is there once.
func likely(all []value, configured string, name *regexp.Regexp) []value {
	rank := func(v value) int {
		if sameCarrier(v.carrier, configured) {
			return 0
		}
		rank := 1 + v.rank
		if !name.MatchString(v.name) {
			rank += 10
		}
		if v.carrier == "" {
			rank += 20
		}
		return rank
	}
	sorted := slices.SortedStableFunc(slices.Values(all), func(a, b value) int { return rank(a) - rank(b) })
	seen := map[string]bool{}
	return slices.DeleteFunc(sorted, func(v value) bool {
		again := seen[v.text]
		seen[v.text] = true
		return again
	})
}

func sameCarrier(a, b string) bool {
	return a == b || strings.HasPrefix(a, "header:") && strings.EqualFold(a, b)
}

// signed is a value that can be a signature.
type signed struct {
	value
	encoding string
	bytes    []byte
}

const base64URL = "base64url"

var signatureName = regexp.MustCompile(`(?i)sig`)

// decode returns the bytes of a text, and the name of its encoding; "" if it has none.
func decode(text string) (b []byte, encoding string) {
	text = strings.TrimRight(text, "=")
	// First, because hexadecimal digits are base64 as well.
	if b, err := hex.DecodeString(text); err == nil {
		return b, "hexadecimal"
	}
	if b, err := base64.RawURLEncoding.DecodeString(text); err == nil {
		return b, base64URL
	}
	if b, err := base64.RawStdEncoding.DecodeString(text); err == nil {
		return b, "standard base64"
	}
	return nil, ""
}

func signaturesIn(all []value, configured string) (found []signed) {
	for _, v := range likely(all, "header:"+configured, signatureName) {
		if b, encoding := decode(v.text); 1024 <= 8*len(b) && 8*len(b) <= 8192 {
			found = append(found, signed{v, encoding, b})
		}
	}
	return found
}

var timeName = regexp.MustCompile(`(?i)time|stamp|date|\bt$|\bts\b|created|iat`)

// maxTimestamps is how many timestamps are tried in a message.
const maxTimestamps = 6

// timestampsIn returns the values that can be the signed timestamp.
func timestampsIn(all []value, configured string) (found []value) {
	for _, v := range likely(all, configured, timeName) {
		if isTime(v.text) || sameCarrier(v.carrier, configured) {
			found = append(found, v)
		}
	}
	return found[:min(len(found), maxTimestamps)]
}

// layouts are formats that Payhook does not read.
var layouts = []string{time.RFC1123, "20060102T150405Z0700", "2006-01-02T15:04:05.999999999"}

// isTime reports whether a text is a time between 2001 and 2100. Other numbers are no times.
func isTime(text string) bool {
	at, ok := signature.TimeOf(text)
	for _, layout := range layouts {
		if parsed, err := time.Parse(layout, text); err == nil {
			at, ok = parsed, true
		}
	}
	return ok && 2001 <= at.Year() && at.Year() <= 2100
}

var (
	keyName = regexp.MustCompile(`(?i)key|kid`)
	uuids   = regexp.MustCompile(`(?i)^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
)

// static begins the carrier of a key id that the request does not carry.
const static = "static:"

// keyIDsIn returns the values that can be the key id, and those that are known otherwise.
func keyIDsIn(all []value, configured string, given []string) (found []value) {
	for _, v := range likely(all, configured, keyName) {
		if uuids.MatchString(v.text) {
			found = append(found, v)
		}
	}
	if id, ok := signature.StaticKeyID(configured); ok {
		given = append([]string{id}, given...)
	}
	for _, id := range given {
		if !slices.ContainsFunc(found, func(v value) bool { return v.text == id && v.carrier != "" }) {
			found = slices.Insert(found, 0, value{"command", static + id, "", id, inHeader})
		}
	}
	return found
}
