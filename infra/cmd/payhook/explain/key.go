package explain

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	_ "crypto/sha1"
	"crypto/sha256"
	_ "crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"payhook.example/shared/keys"
)

// maxKeys is how many keys are requested from the key service.
const maxKeys = 16

// keyRing fetches each key once. It implements [intake.Keys].
type keyRing struct {
	endpoint *keys.Endpoint
	failed   int // requests in a row without an answer
	results  []*keyResult
}

// keyResult is the answer of the key service for one id.
type keyResult struct {
	id  string
	key *rsa.PublicKey // nil if it must not be used, or if there is none
	err error
}

// get returns the answer for an id. It requests no more keys after maxKeys, or after two
// requests in a row without an answer.
func (k *keyRing) get(ctx context.Context, id string) *keyResult {
	if i := slices.IndexFunc(k.results, func(r *keyResult) bool { return r.id == id }); i >= 0 {
		return k.results[i]
	}
	r := &keyResult{id: id}
	if len(k.results) >= maxKeys || k.failed >= 2 {
		r.err = fmt.Errorf("%w: not looked up", keys.ErrUnavailable)
		return r
	}
	r.key, _, r.err = k.endpoint.Fetch(ctx, id)
	k.failed++
	if !errors.Is(r.err, keys.ErrUnavailable) {
		k.failed = 0
	}
	k.results = append(k.results, r)
	return r
}

// isDown reports whether an error of a lookup shows that the key service is down. With another status, or if
// the host does not exist, a setting can be wrong.
func isDown(err error) bool {
	if status, ok := errors.AsType[keys.StatusError](err); ok {
		return status.Status >= http.StatusInternalServerError || status.Status == http.StatusTooManyRequests
	}
	if host, ok := errors.AsType[*net.DNSError](err); ok && host.IsNotFound {
		return false
	}
	_, failed := errors.AsType[net.Error](err) // also a timeout
	return failed || errors.Is(err, io.EOF)
}

// Lookup implements [intake.Keys].
func (k *keyRing) Lookup(ctx context.Context, id string, _ netip.Addr) (keys.Found, error) {
	r := k.get(ctx, id)
	return keys.Found{Key: r.key}, r.err
}

// Refetch implements [intake.Keys]. There is no cache, so there is no newer key.
func (*keyRing) Refetch(context.Context, string, keys.Found, netip.Addr) (keys.Found, error) {
	return keys.Found{}, nil
}

// RecordSender implements [intake.Keys]. It does nothing.
func (*keyRing) RecordSender(context.Context, netip.Addr) {}

// kind is how a signature can have been made.
type kind struct {
	name string
	of   func(message []byte) bool // reports whether it is a signature of the message
}

// specifiedKind is that of section 5.4 of the interface.
const specifiedKind = "RSASSA-PKCS1-v1_5 with SHA-256"

var hashes = []crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512, crypto.SHA1}

// kindsOf returns how the owner of a key can have made a signature. certain is whether the owner made it, whatever the
// message is; a signature of RSASSA-PSS shows this only together with its message. It only explains: what Payhook
// accepts is decided by package signature.
func kindsOf(key *rsa.PublicKey, signature []byte) (kinds []kind, certain bool) {
	s := new(big.Int).SetBytes(signature)
	encoded := s.Exp(s, big.NewInt(int64(key.E)), key.N).FillBytes(make([]byte, key.Size()))
	for _, hash := range hashes {
		digest := encoded[len(encoded)-hash.Size():]
		if rsa.VerifyPKCS1v15(key, hash, digest, signature) == nil {
			return []kind{{"RSASSA-PKCS1-v1_5 with " + hash.String(), func(message []byte) bool {
				return bytes.Equal(sum(hash, message), digest)
			}}}, true
		}
	}
	if encoded[len(encoded)-1] != 0xbc { // RFC 8017, section 9.1.1
		return nil, false
	}
	for _, hash := range hashes {
		kinds = append(kinds, kind{"RSASSA-PSS with " + hash.String(), func(message []byte) bool {
			return rsa.VerifyPSS(key, hash, sum(hash, message), signature, nil) == nil
		}})
	}
	return kinds, false
}

func sum(hash crypto.Hash, message []byte) []byte {
	h := hash.New()
	h.Write(message)
	return h.Sum(nil)
}

// compositions are the messages that services usually sign. The first one is that of section 5.4.
var compositions = func() (all []string) {
	for _, body := range []string{"{body}", "{hexadecimal SHA-256 of body}", "{base64 SHA-256 of body}"} {
		for _, order := range []string{"B {timestamp} {keyId}", "B {keyId}", "{keyId} B", "B", "B {timestamp}",
			"{timestamp} B", "{timestamp} B {keyId}", "{timestamp} {keyId} B", "{keyId} {timestamp} B",
			"{keyId} B {timestamp}", "B {keyId} {timestamp}"} {
			for _, separator := range []string{"\n", ".", "\r\n", "", ":", "|", ","} {
				all = append(all, strings.NewReplacer("B", body, " ", separator).Replace(order))
			}
		}
	}
	return all
}()

// message is a message that a service can have signed.
type message struct {
	text        []byte
	composition string
	at          value // the timestamp in it; zero for none
}

// messages returns the messages of a payload with a key id and one of the timestamps.
func messages(payload []byte, id string, timestamps []value) iter.Seq[message] {
	digest := sha256.Sum256(payload)
	return func(yield func(message) bool) {
		for _, composition := range compositions {
			all := timestamps
			if !strings.Contains(composition, "{timestamp}") {
				all = []value{{}}
			}
			for _, at := range all {
				text := strings.NewReplacer("{body}", string(payload), "{timestamp}", at.text, "{keyId}", id,
					"{hexadecimal SHA-256 of body}", hex.EncodeToString(digest[:]),
					"{base64 SHA-256 of body}", base64.StdEncoding.EncodeToString(digest[:])).Replace(composition)
				if !yield(message{[]byte(text), composition, at}) {
					return
				}
			}
		}
	}
}
