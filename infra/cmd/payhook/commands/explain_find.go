package commands

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"maps"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"payhook.example/shared/keys"
	"payhook.example/shared/payment"
	"payhook.example/shared/signature"
)

type value struct {
	location string // where it is: "header:NAME", "query:NAME", or "static:UUID" for an id that the caller gave
	text     string
}

// maxValues is how many texts of a request are tried.
const maxValues = 100

// valuesOf returns the texts of a request, and the key ids that are given, each text once. The most
// likely are first: those of the locations that are configured, of headers, and of the query. unread are the locations
// of the values that are not stored, without those of AWS.
func valuesOf(r request, configured, keyIDs []string) (all []value, unread []string) {
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		location := "header:" + textproto.CanonicalMIMEHeaderKey(name)
		if i := slices.IndexFunc(configured, func(c string) bool { return strings.EqualFold(c, location) }); i >= 0 {
			location = configured[i] // in the case of the setting
		}
		all = append(all, value{location, r.Headers[name]})
	}
	// A plus sign is a space, or what was sent.
	for _, raw := range []string{r.RawQuery, strings.ReplaceAll(r.RawQuery, "+", "%2B")} {
		query, _ := url.ParseQuery(raw)
		for _, name := range slices.Sorted(maps.Keys(query)) {
			all = append(all, value{"query:" + name, query.Get(name)})
		}
	}
	for _, id := range keyIDs {
		all = append(all, value{static + id, id})
	}
	slices.SortStableFunc(all, func(a, b value) int {
		return cmp.Compare(slices.Index(configured, b.location), slices.Index(configured, a.location))
	})
	seen := map[string]bool{}
	all = slices.DeleteFunc(all, func(v value) bool {
		ofAWS := strings.HasPrefix(v.location, "header:X-Amzn-") || strings.HasPrefix(v.location, "header:X-Forwarded-")
		if v.text == signature.Redacted && !ofAWS && !slices.Contains(unread, v.location) {
			unread = append(unread, v.location)
		}
		again := seen[v.text] || v.text == signature.Redacted
		seen[v.text] = true
		return again
	})
	return all[:min(len(all), maxValues)], unread
}

// static begins the location of a key id that the request does not have.
const static = "static:"

// signedWith is a value that can be a signature.
type signedWith struct {
	value
	encoding string
	bytes    []byte
}

const base64URL = "base64url"

// encodings are those of signatures. Hexadecimal digits are base64 as well, so they are first.
var encodings = []struct {
	name   string
	decode func(string) ([]byte, error)
}{
	{"hexadecimal", hex.DecodeString},
	{base64URL, base64.RawURLEncoding.DecodeString},
	{"standard base64", base64.RawStdEncoding.DecodeString},
}

// signaturesIn returns the values that can be a signature of an RSA key that Payhook accepts. Some programs omit
// leading zeros, or add one.
func signaturesIn(all []value) (found []signedWith) {
	for _, v := range all {
		for _, encoding := range encodings {
			b, err := encoding.decode(strings.TrimRight(v.text, "="))
			if err == nil && keys.MinModulusBytes-2 <= len(b) && len(b) <= keys.MaxModulusBytes+1 {
				found = append(found, signedWith{v, encoding.name, b})
				break
			}
		}
	}
	return found
}

// keyIDsIn returns the values that can be the key id.
func keyIDsIn(all []value) []value {
	return slices.DeleteFunc(slices.Clone(all), func(v value) bool {
		_, ok := payment.KeyID(v.text)
		return !ok
	})
}
