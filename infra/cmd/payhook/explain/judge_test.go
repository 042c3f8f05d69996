package explain

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/keys"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

var (
	key   = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(2048) })
	other = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(2048) })
)

// received is the time at which the requests of these tests are received.
var received = time.Date(2026, 1, 31, 12, 0, 1, 0, time.UTC)

const (
	at   = "2026-01-31T12:00:00.000Z"
	body = `{"deliveryId":"b3f9c1de-6a0e-4c5b-8f7d-2e1a9c4b5d60","note":"Köln & <Bonn>/x","events":[{"eventId":` +
		`"c1f9c1de-6a0e-4c5b-8f7d-2e1a9c4b5d61","amount":1250.00,"eventTimestamp":"2026-01-31T11:59:58.000Z"}]}`
)

// call is a webhook and the deployment that rejects it. A test changes one thing.
type call struct {
	t       *testing.T
	request request
	given   []string
	key     paymenttest.Key // that signs

	jwks   map[string][]byte // of the key service, by the id
	status int               // of the key service; 0: it answers; -1: it hangs up
	asked  []string          // ids
}

// sent returns a webhook that verifies.
func sent(t *testing.T) *call {
	c := &call{t: t, key: key(), jwks: map[string][]byte{key().ID: key().JWK()}}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := path.Base(r.URL.Path)
		c.asked = append(c.asked, id)
		w.Header().Set("Content-Type", "application/json")
		switch jwk, ok := c.jwks[id]; {
		case c.status < 0:
			panic(http.ErrAbortHandler)
		case c.status != 0:
			w.WriteHeader(c.status)
		case !ok:
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = w.Write(jwk)
		}
	}))
	t.Cleanup(service.Close)
	c.request = request{Payload: []byte(body), Method: "POST", ReceivedAt: received,
		Settings: map[string]string{"baseUrl": service.URL},
		Headers: map[string]string{"content-type": "application/json", "host": "abc.example",
			"x-amzn-trace-id": "(redacted)", "x-forwarded-for": "(redacted)"}}
	c.set("X-SVC-Timestamp", at)
	c.set("X-SVC-Key-Id", c.key.ID)
	c.sign(message54(at, c.key.ID))
	return c
}

// message54 is the message of section 5.4.
func message54(timestamp, id string) string { return body + "\n" + timestamp + "\n" + id }

func (c *call) set(name, text string) { c.request.Headers[strings.ToLower(name)] = text }
func (c *call) move(from, to string)  { c.set(to, c.drop(from)) }
func (c *call) drop(name string) string {
	text := c.request.Headers[strings.ToLower(name)]
	delete(c.request.Headers, strings.ToLower(name))
	return text
}

// signed returns the signature of a message.
func (c *call) signed(message string) []byte {
	c.sign(message)
	s, _ := base64.RawURLEncoding.DecodeString(c.request.Headers["x-svc-signature"])
	return s
}

func (c *call) sign(message string) { c.signWith(crypto.SHA256, message, nil) }

// signWith signs with a hash, and with PSS unless pss is nil.
func (c *call) signWith(hash crypto.Hash, message string, pss *rsa.PSSOptions) {
	options := crypto.SignerOpts(hash)
	if pss != nil {
		pss.Hash, options = hash, pss
	}
	h := hash.New()
	h.Write([]byte(message))
	s, err := c.key.Private.Sign(rand.Reader, h.Sum(nil), options)
	if err != nil {
		c.t.Fatal(err)
	}
	c.set("X-SVC-Signature", base64.RawURLEncoding.EncodeToString(s))
}

// timestamp replaces the timestamp.
func (c *call) timestamp(header, text string) {
	c.drop("X-SVC-Timestamp")
	c.set(header, text)
	c.sign(message54(text, c.key.ID))
}

func (c *call) explain() *report {
	c.t.Helper()
	conf, err := settings.ParseProof(c.request.Settings)
	if err != nil {
		c.t.Fatal(err)
	}
	service := &keyRing{endpoint: keys.NewEndpoint(http.DefaultClient, conf.KeyService, settings.KeyTimeout)}
	r, err := explain(c.t.Context(), c.request, conf, service, c.given)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// want is what a report must say: settings as "name=value name=value", and a text of a
// difference, of the advice or of the cause.
type want struct {
	verdict  verdict
	outcome  string
	settings string
	said     string
}

func (w want) check(t *testing.T, r *report) {
	t.Helper()
	var set []string
	for _, key := range slices.Sorted(maps.Keys(r.Settings)) {
		set = append(set, key+"="+r.Settings[key])
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	got := want{r.Verdict, r.Outcome, strings.Join(set, " "), w.said}
	if diff := cmp.Diff(w, got, cmp.AllowUnexported(want{}, verdict{})); diff != "" {
		t.Errorf("%s%s", diff, text)
	}
	all := strings.Join(append(append(r.Differences, r.Advice...), r.Cause), "\n")
	if !strings.Contains(all, w.said) || (r.Cause == "") != (r.Outcome == "accepted") {
		t.Errorf("it does not say %q, or names no cause: %s", w.said, text)
	}
	if bytes.Contains(text, []byte("Bonn")) {
		t.Errorf("it contains the payload: %s", text)
	}
}

// In every case one thing of a webhook that verifies is changed.
func TestEachVariantIsExplained(t *testing.T) {
	const missing, malformed, mismatch = "signature-missing", "signature-malformed", "signature-mismatch"
	for name, test := range map[string]struct {
		change func(c *call)
		want   want
	}{
		"nothing": {func(*call) {}, want{authentic, "accepted", "", ""}},

		// Locations.
		"timestamp in the query": {func(c *call) { c.request.RawQuery = "ts=" + c.drop("X-SVC-Timestamp") },
			want{otherSettings, missing, "timestampLocation=query:ts", ""}},
		"key id that is not sent, but given": {func(c *call) {
			c.drop("X-SVC-Key-Id")
			c.given = []string{c.key.ID}
		}, want{otherSettings, missing, "keyIdLocation=static:" + key().ID,
			"as soon as the service signs with another key"}},
		"key id that is sent and given": {func(c *call) {
			c.move("X-SVC-Key-Id", "Key-Reference")
			c.given = []string{c.key.ID}
		}, want{otherSettings, missing, "keyIdLocation=header:Key-Reference", ""}},
		"key id that is fixed, in another header": {func(c *call) {
			c.drop("X-SVC-Key-Id")
			c.request.Settings["keyIdLocation"] = "static:" + c.key.ID
			c.move("X-SVC-Signature", "X-Sign")
		}, want{otherSettings, missing, "signatureHeader=X-Sign", ""}},
		"key id without hyphens, in another header": {func(c *call) {
			c.drop("X-SVC-Key-Id")
			c.key.ID = strings.ReplaceAll(c.key.ID, "-", "")
			c.jwks[c.key.ID] = c.key.JWK()
			c.set("A-Key", c.key.ID)
			c.sign(message54(at, c.key.ID))
		}, want{otherSettings, missing, "keyIdLocation=header:A-Key", ""}},
		"signature in the query": {func(c *call) { c.request.RawQuery = "sig=" + c.drop("X-SVC-Signature") },
			want{unsupported, missing, "", "The signature is in query:sig"}},
		"everything in other headers": {func(c *call) {
			c.move("X-SVC-Timestamp", "A-Time")
			c.move("X-SVC-Key-Id", "A-Key")
			c.move("X-SVC-Signature", "A-Sig")
		}, want{otherSettings, missing,
			"keyIdLocation=header:A-Key signatureHeader=A-Sig timestampLocation=header:A-Time",
			""}},
		"PUT": {func(c *call) { c.request.Method = "PUT" }, want{authentic, "accepted", "", ""}},
		"another method": {func(c *call) { c.request.Method = "GET" },
			want{unsupported, "method-not-allowed", "", "Payhook accepts POST, PUT, PATCH"}},

		// Formats of the timestamp.
		"a date of HTTP": {func(c *call) { c.timestamp("Date", "Sat, 31 Jan 2026 12:00:00 GMT") },
			want{otherSettings, missing, "timestampLocation=header:Date", ""}},
		"no offset": {func(c *call) { c.timestamp("X-SVC-Timestamp", "2026-01-31T12:00:00") },
			want{unsupported, malformed, "", "cannot read the format of the timestamp"}},
		"a plus sign in the query": {func(c *call) {
			c.timestamp("X-SVC-Timestamp", "2026-01-31T12:00:00+00:00")
			c.request.RawQuery = "ts=" + c.drop("X-SVC-Timestamp")
		}, want{otherSettings, missing, "timestampLocation=query:ts", ""}},

		// The age of the timestamp.
		"an old timestamp": {func(c *call) { c.request.ReceivedAt = received.Add(7 * time.Minute) },
			want{wrongAge, "timestamp-outside-window", "", "the timestamp was 7m1s old"}},

		// Encodings of the signature.
		"standard base64": {func(c *call) {
			for i := 0; !strings.Contains(c.request.Headers["x-svc-signature"], "+"); i++ {
				c.set("X-SVC-Timestamp", strconv.Itoa(1769860800+i))
				c.set("X-SVC-Signature",
					base64.StdEncoding.EncodeToString(c.signed(message54(strconv.Itoa(1769860800+i), c.key.ID))))
			}
		}, want{unsupported, malformed, "", "standard base64"}},
		"hexadecimal": {func(c *call) {
			c.set("X-SVC-Signature", hex.EncodeToString(c.signed(message54(at, c.key.ID))))
		}, want{unsupported, malformed, "", "hexadecimal"}},

		// Another message.
		"a message without the timestamp, which is not sent": {func(c *call) {
			c.drop("X-SVC-Timestamp")
			c.set("Cookie", "(redacted)")
			c.sign(body + c.key.ID)
		}, want{unsupported, missing, "", `is "{body}{keyId}". Section 5.4 of the interface says "{body}\n`}},
		"another message": {func(c *call) { c.sign("x") },
			want{changed, mismatch, "", "composes the message in another way"}},
		"another message and hash": {func(c *call) { c.signWith(crypto.SHA512, "x", nil) },
			want{changed, mismatch, "", "The signature is RSASSA-PKCS1-v1_5 with SHA-512. Section 5.4"}},
		"another message and padding": {func(c *call) { c.signWith(crypto.SHA256, "x", &rsa.PSSOptions{}) },
			want{otherKey, mismatch, "", "the signature has the form of RSASSA-PSS"}},
		"an amount was changed": {func(c *call) {
			c.request.Payload = []byte(strings.Replace(body, "1250.00", "999999", 1))
		}, want{changed, mismatch, "", "The signature is genuine"}},
		"a body that was not captured": {func(c *call) { c.request.Payload, c.request.PayloadBytes = nil, 200_000 },
			want{changed, mismatch, "", "it had 200000 bytes"}},

		// Keys.
		"a key service that fails": {func(c *call) { c.status = 500 },
			want{keysDown, "key-unavailable", "", "nothing is wrong with the settings"}},
		"a key service that limits": {func(c *call) { c.status = 429 },
			want{keysDown, "key-unavailable", "", "send the webhooks again"}},
		"a key service that is not reached": {func(c *call) { c.request.Settings["baseUrl"] = "http://127.0.0.1:1" },
			want{keysDown, "key-unavailable", "", "send the webhooks again"}},
		"a key service that hangs up": {func(c *call) { c.status = -1 },
			want{keysDown, "key-unavailable", "", "send the webhooks again"}},
		"a key service that wants a token": {func(c *call) { c.status = 401 },
			want{noKey, "key-unavailable", "", "keysAuth is wrong (401 or 403)"}},
		"another method while the key service is down": {func(c *call) { c.status, c.request.Method = 500, "GET" },
			want{noKey, "method-not-allowed", "", "status 500. Repeat this when it is up again"}},
		"a key service that was down": {func(c *call) { c.request.Outcome = "key-unavailable" },
			want{authentic, "accepted", "", "Nothing is wrong with the settings. Ask the service to send"}},
		"a budget that was used up": {func(c *call) { c.request.Outcome = "key-out-of-budget" },
			want{authentic, "accepted", "",
				"the calls of a minute were used up (key-out-of-budget). Nothing is wrong"}},
		"a key id in a header that is not known": {func(c *call) { c.jwks = nil },
			want{noKey, "key-unknown", "",
				"There is no key for " + key().ID + ", which is in header:X-SVC-Key-Id: "}},
		"a key service that answers something else": {func(c *call) { c.jwks[c.key.ID] = []byte(`{"keys":[]}`) },
			want{noKey, "key-unavailable", "", "not the requested JWK"}},
		"a key that must not be used": {func(c *call) {
			c.jwks[c.key.ID] = bytes.Replace(c.key.JWK(), []byte(`"sig"`), []byte(`"enc"`), 1)
		}, want{noKey, "key-refused", "", "key rejected: use is not sig"}},
		"an exponent that is not allowed": {func(c *call) {
			c.jwks[c.key.ID] = bytes.Replace(c.key.JWK(), []byte(`"AQAB"`), []byte(`"AQ"`), 1)
		}, want{noKey, "key-refused", "", "key rejected: e is not "}},
		"a key of another environment": {func(c *call) {
			c.jwks[c.key.ID] = bytes.Replace(other().JWK(), []byte(other().ID), []byte(c.key.ID), 1)
		}, want{otherKey, mismatch, "", "None of the keys"}},
		"no key id": {func(c *call) {
			c.drop("X-SVC-Key-Id")
			c.request.Payload = []byte(`{}`)
		}, want{noKey, missing, "", "no UUID"}},

		// Values that are not stored.
		"signature in a header that is not stored": {func(c *call) {
			c.drop("X-SVC-Signature")
			c.set("X-Sign", "(redacted)")
		}, want{notStored, missing, "", "did not name them: header:X-Sign."}},
		"timestamp in a parameter that is not stored": {func(c *call) {
			c.drop("X-SVC-Timestamp")
			c.request.RawQuery = "a&ts=(redacted)"
		}, want{notStored, missing, "", "did not name them: query:ts."}},
		"a setting that names what is not stored": {func(c *call) {
			c.set("X-Sign", "(redacted)")
			c.request.Settings["signatureHeader"] = "X-Sign"
			c.drop("X-SVC-Signature")
		}, want{notStored, missing, "", "header:X-Sign."}},
		"settings that verify": {func(c *call) {
			c.set("Cookie", "(redacted)")
			c.move("X-SVC-Timestamp", "User-Agent")
		}, want{otherSettings, missing, "timestampLocation=header:User-Agent", ""}},

		// No signature.
		"no signature": {func(c *call) { c.drop("X-SVC-Signature") }, want{noSignature, missing, "", "scanners"}},
		"a signature that was shortened": {func(c *call) { c.set("X-SVC-Signature", c.drop("X-SVC-Signature")[:120]) },
			want{noSignature, malformed, "", "has 120 characters"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := sent(t)
			test.change(c)
			test.want.check(t, c.explain())
		})
	}
}

// Each is a way of another service, or of an example in the documentation of one.
func TestAnotherWayToSignIsNamed(t *testing.T) {
	digest := sha256.Sum256([]byte(body))
	hexadecimal, b64 := hex.EncodeToString(digest[:]), base64.StdEncoding.EncodeToString(digest[:])
	id := key().ID
	for said, message := range map[string]string{
		`"{body}.{timestamp}.{keyId}"`:                          body + "." + at + "." + id,
		`"{body}\r\n{timestamp}\r\n{keyId}"`:                    body + "\r\n" + at + "\r\n" + id,
		`"{body}{timestamp}{keyId}"`:                            body + at + id,
		`"{body}\n{timestamp}"`:                                 body + "\n" + at,
		`"{timestamp}.{body}"`:                                  at + "." + body,
		`"{timestamp}:{keyId}:{body}"`:                          at + ":" + id + ":" + body,
		`"{timestamp}\n{body}\n{keyId}"`:                        at + "\n" + body + "\n" + id,
		`"{keyId}\n{timestamp}\n{body}"`:                        id + "\n" + at + "\n" + body,
		`"{keyId}|{body}|{timestamp}"`:                          id + "|" + body + "|" + at,
		`"{body}\n{keyId}\n{timestamp}"`:                        body + "\n" + id + "\n" + at,
		`"{body},{keyId}"`:                                      body + "," + id,
		`"{keyId}{body}"`:                                       id + body,
		`"{body}"`:                                              body,
		`"{hexadecimal SHA-256 of body}\n{timestamp}\n{keyId}"`: hexadecimal + "\n" + at + "\n" + id,
		`"{timestamp}.{base64 SHA-256 of body}"`:                at + "." + b64,
	} {
		c := sent(t)
		c.sign(message)
		want{unsupported, "signature-mismatch", "", said}.check(t, c.explain())
	}
	padding := []*rsa.PSSOptions{nil, {SaltLength: rsa.PSSSaltLengthAuto}, {SaltLength: rsa.PSSSaltLengthEqualsHash}}
	for i, name := range []string{"RSASSA-PKCS1-v1_5", "RSASSA-PSS", "RSASSA-PSS"} {
		for _, hash := range hashes {
			c := sent(t)
			c.signWith(hash, at+"."+body, padding[i])
			said := "The signature is " + name + " with " + hash.String() + ". Section 5.4"
			if i == 0 && hash == crypto.SHA256 {
				said = "The signed message is"
			}
			want{unsupported, "signature-mismatch", "", said}.check(t, c.explain())
		}
	}
}

// The requests to the key service are limited, and no id of the body is sent to it.
func TestFewKeysAreLookedUp(t *testing.T) {
	c := sent(t)
	for i := range 2 * maxKeys {
		c.set("X-"+strconv.Itoa(i), paymenttest.Event().EventID)
	}
	c.request.Payload = []byte(`{}`)
	if r := c.explain(); r.Verdict != changed || len(c.asked) != maxKeys || c.asked[0] != c.key.ID {
		t.Errorf("%s; asked for %q", r.Verdict, c.asked)
	}
	c.asked, c.status = nil, 500
	if c.explain(); len(c.asked) != 1 {
		t.Errorf("a service that is down was asked for %q", c.asked)
	}
	c = sent(t)
	c.sign("another message")
	if c.explain(); len(c.asked) != 1 {
		t.Errorf("asked for %q", c.asked)
	}
}

// The name in baseUrl can be wrong if it does not exist, and is not if the resolver fails.
func TestAHostThatDoesNotExistIsNotDown(t *testing.T) {
	for _, missing := range []bool{true, false} {
		err := fmt.Errorf("%w: %w", keys.ErrUnavailable, &net.DNSError{IsNotFound: missing})
		if isDown(err) == missing {
			t.Errorf("%v: %t", err, !missing)
		}
	}
}

func TestItEndsWithItsContext(t *testing.T) {
	c := sent(t)
	conf, err := settings.ParseProof(c.request.Settings)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	service := &keyRing{endpoint: keys.NewEndpoint(http.DefaultClient, conf.KeyService, settings.KeyTimeout)}
	if _, err := explain(ctx, c.request, conf, service, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
