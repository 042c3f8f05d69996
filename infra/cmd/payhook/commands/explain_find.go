package commands

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/netip"
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

func keyIDsIn(all []value) []value {
	return slices.DeleteFunc(slices.Clone(all), func(v value) bool {
		_, ok := payment.KeyID(v.text)
		return !ok
	})
}

// maxKeys is how many keys are requested from the key endpoint.
const maxKeys = 16

// keyRing fetches each key once. It implements [intake.Keys].
type keyRing struct {
	endpoint *keys.Endpoint
	answers  map[string]answer // by key id
	down     []error           // of requests that found the endpoint down
}

type answer struct {
	found keys.Found
	err   error
}

// Lookup implements [intake.Keys]. It requests no more keys after maxKeys, or after two requests that found the
// endpoint down.
func (k *keyRing) Lookup(ctx context.Context, id string, _ netip.Addr) (keys.Found, error) {
	a, asked := k.answers[id]
	if !asked && len(k.answers) < maxKeys && len(k.down) < 2 {
		a.found.Key, _, a.err = k.endpoint.Fetch(ctx, id)
		if k.answers[id] = a; isDown(a.err) {
			k.down = append(k.down, a.err)
		}
	} else if !asked {
		a.err = keys.ErrUnavailable
	}
	return a.found, a.err
}

// isDown reports whether an error of a lookup shows that the key endpoint is down. With another answer, or if the host
// does not exist, something else is wrong.
func isDown(err error) bool {
	if status, ok := errors.AsType[keys.StatusError](err); ok {
		return status.Status >= http.StatusInternalServerError || status.Status == http.StatusTooManyRequests
	}
	if host, ok := errors.AsType[*net.DNSError](err); ok && host.IsNotFound {
		return false
	}
	_, failed := errors.AsType[net.Error](err) // also a timeout
	return failed || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// Refetch implements [intake.Keys]. There is no cache, so there is no newer key.
func (*keyRing) Refetch(context.Context, string, keys.Found, netip.Addr) (keys.Found, error) {
	return keys.Found{}, nil
}

// RecordSender implements [intake.Keys]. It does nothing.
func (*keyRing) RecordSender(context.Context, netip.Addr) {}

// specified is how section 5.4 of the interface says that a signature is made, and specifiedInfo is what then precedes
// the digest (RFC 8017, section 9.2, note 1).
const (
	specified     = "RSASSA-PKCS1-v1_5 with SHA-256"
	specifiedInfo = "\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20"
)

// hashes are the names of hashes by their object identifiers (RFC 8017, appendix B.1; FIPS 202).
var hashes = map[string]string{"1.2.840.113549.2.5": "MD5", "1.3.14.3.2.26": "SHA-1",
	"2.16.840.1.101.3.4.2.1": "SHA-256 in another form of DigestInfo",
	"2.16.840.1.101.3.4.2.2": "SHA-384", "2.16.840.1.101.3.4.2.3": "SHA-512", "2.16.840.1.101.3.4.2.4": "SHA-224",
	"2.16.840.1.101.3.4.2.5": "SHA-512/224", "2.16.840.1.101.3.4.2.6": "SHA-512/256",
	"2.16.840.1.101.3.4.2.7": "SHA3-224", "2.16.840.1.101.3.4.2.8": "SHA3-256",
	"2.16.840.1.101.3.4.2.9": "SHA3-384", "2.16.840.1.101.3.4.2.10": "SHA3-512"}

// read returns how the owner of a key made a signature, whatever the message is, and the digest if it was made as
// specified; "" if the owner did not make it, or not with PKCS #1 v1.5. It only explains: package signature decides
// what Payhook accepts.
func read(key *rsa.PublicKey, signed []byte) (made string, digest [sha256.Size]byte) {
	s := new(big.Int).SetBytes(signed)
	block := s.Exp(s, big.NewInt(int64(key.E)), key.N).FillBytes(make([]byte, key.Size()))
	padding, t, ok := bytes.Cut(block[2:], []byte{0})
	if !ok || block[0] != 0 || block[1] != 1 || len(padding) < 8 || bytes.Count(padding, []byte{0xff}) < len(padding) {
		return "", digest
	}
	// With a small exponent, anybody can compute a root of which the power begins like this.
	if key.E < 65537 && len(t) > len(block)/2 {
		return "", digest
	}
	if text, ok := bytes.CutPrefix(t, []byte(specifiedInfo)); ok && len(text) == len(digest) {
		return specified, [sha256.Size]byte(text)
	}
	var info struct {
		Algorithm pkix.AlgorithmIdentifier
		Digest    []byte
	}
	if rest, err := asn1.Unmarshal(t, &info); err != nil || len(rest) > 0 {
		return fmt.Sprintf("PKCS #1 v1.5 of %d bytes without a DigestInfo", len(t)), digest
	}
	id := info.Algorithm.Algorithm.String()
	return "RSASSA-PKCS1-v1_5 with " + cmp.Or(hashes[id], "the hash "+id), digest
}
