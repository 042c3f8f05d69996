package commands

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
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/keys"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
)

// What is printed can be copied into the file, and for the local run into a shell. What is not sufficient is marked.
func TestThePrintedSettingsCanBeCopied(t *testing.T) {
	const command = "\nIn the local run:\n  make down && make up SETTINGS=\"encryption=a " +
		"keyIdLocation=header:Key timestampLocation=header:X-Brand-Time\"\n"
	explained := func(c *call, local bool, status int) string {
		w := newWorld(t)
		w.at.Local, w.at.Given = local, map[string]string{"encryption": "a"}
		w.store(c)
		out, _ := w.expect(status, "explain")
		return out
	}
	for _, local := range []bool{false, true} {
		c := sent(t)
		c.move("X-SVC-Timestamp", "X-Brand-Time")
		c.move("X-SVC-Key-Id", "Key")
		out := explained(c, local, 0)
		_, lines, found := strings.Cut(out, "Settings for infra/settings.json:\n")
		lines, _, _ = strings.Cut(lines, "\n\n")
		var printed map[string]string
		err := json.Unmarshal([]byte("{"+strings.TrimRight(lines, ",\n")+"}"), &printed)
		if err != nil || !found || len(printed) != 2 || strings.Contains(out, command) != local {
			t.Errorf("local: %t: %v\n%s", local, err, out)
		}
	}
	c := sent(t)
	c.move("X-SVC-Key-Id", "Key")
	c.request.ReceivedAt = received.Add(time.Hour)
	out := explained(c, true, cli.StatusFailed)
	if strings.Contains(out, "make up") ||
		!strings.Contains(out, "They are necessary, but not sufficient:\n  \"keyIdLocation\"") {
		t.Error(out)
	}
}

func TestTheLastOrTheNamedWebhookIsExplained(t *testing.T) {
	w := newWorld(t)
	rejected := func(outcome string, at time.Time) string {
		return w.put(proof.Proof{Reason: proof.Rejected, Payload: []byte(outcome),
			Request: &proof.RejectedRequest{Outcome: outcome, ReceivedAt: at}})
	}
	if _, _, err := storedWebhook(t.Context(), &w.parking, ""); !errors.Is(err, errNone) {
		t.Error(err)
	}
	second, first := rejected("b", received.Add(time.Minute)), rejected("a", received)
	invalid := w.put(proof.Proof{Reason: proof.Invalid})
	for beginning, want := range map[string]string{"": "b", first: "a", second[:len(second)-9]: "b"} {
		r, name, err := storedWebhook(t.Context(), &w.parking, beginning)
		if err != nil || r.Outcome != want || string(r.Payload) != want || !strings.HasPrefix(name, beginning) {
			t.Errorf("%s: %s, %+v, %v", beginning, name, r, err)
		}
	}
	_, _, err := storedWebhook(t.Context(), &w.parking, "rejected/")
	if err == nil || !strings.Contains(err.Error(), second) {
		t.Error(err)
	}
	w.parking.Delete(first)
	for _, name := range []string{first, invalid, "a"} {
		if _, _, err := storedWebhook(t.Context(), &w.parking, name); !errors.Is(err, errNone) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheStatusSaysWhetherItVerifies(t *testing.T) {
	unchanged := func(*call, *world) {}
	for name, test := range map[string]struct {
		context string // -c
		change  func(*call, *world)
		status  int
		message string
	}{
		"authentic": {"baseUrl=", unchanged, 0, ""},
		"changed": {"baseUrl=", func(c *call, _ *world) { c.request.Payload = []byte("{}") },
			cli.StatusFailed, ""},
		"no key endpoint":      {"baseUrl=http://127.0.0.1:1", unchanged, cli.StatusUnreachable, "is down"},
		"a client certificate": {"authentication=mtls", unchanged, cli.StatusUsage, "authentication is mtls"},
		"a bearer": {"keyEndpointAuth=bearer", func(_ *call, w *world) { w.at.TokenSecret = "" }, cli.StatusUnreachable,
			"was not asked: keyEndpointAuth is bearer, and the stack has tokenStore=none"},
		"a token that may not be read": {"keyEndpointAuth=bearer",
			func(_ *call, w *world) { w.failing(denied, "GetSecretValue") }, cli.StatusUnreachable,
			"was not asked: it needs the access token, which AskWithToken of policy.json " +
				"allows to read: the secret with the token: Secrets Manager GetSecretValue: AccessDeniedException"},
	} {
		c, w := sent(t), newWorld(t)
		test.change(c, w)
		if test.context == "baseUrl=" {
			test.context += c.request.Settings["baseUrl"]
		}
		w.store(c)
		_, said := w.expect(test.status, "explain", "-c", test.context)
		if !strings.Contains(said, test.message) {
			t.Errorf("%s: %s", name, said)
		}
	}
}

// store stores a webhook that was rejected.
func (w *world) store(c *call) {
	c.request.Outcome = "rejected"
	w.put(proof.Proof{Reason: proof.Rejected, Payload: c.request.Payload, Request: &c.request.RejectedRequest})
}

// received is the time at which the requests of these tests are received.
var received = time.Date(2026, 1, 31, 12, 0, 1, 0, time.UTC)

const (
	at   = "2026-01-31T12:00:00.000Z"
	body = `{"deliveryId":"b3f9c1de-6a0e-4c5b-8f7d-2e1a9c4b5d60","note":"Köln & <Bonn>/x","events":[{"eventId":` +
		`"c1f9c1de-6a0e-4c5b-8f7d-2e1a9c4b5d61","amount":1250.00,"eventTimestamp":"2026-01-31T11:59:58.000Z"}]}`
)

// call is a webhook and the stack that rejects it. A test changes one thing.
type call struct {
	t       *testing.T
	request request
	given   []string
	key     paymenttest.Key // that signs

	jwks   map[string][]byte // of the key endpoint, by the id
	status int               // of the key endpoint; 0: it answers; -1: it hangs up
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
	c.request = request{Payload: []byte(body), PayloadBytes: len(body), Method: "POST", ReceivedAt: received,
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

func (c *call) sign(message string) { c.signDigest(sum(message), crypto.SHA256) }

func sum(text string) []byte {
	s := sha256.Sum256([]byte(text))
	return s[:]
}

// signDigest signs a digest. With crypto.Hash(0), the signature contains no DigestInfo.
func (c *call) signDigest(digest []byte, options crypto.SignerOpts) {
	s, err := c.key.Private.Sign(rand.Reader, digest, options)
	if err != nil {
		c.t.Fatal(err)
	}
	c.set("X-SVC-Signature", base64.RawURLEncoding.EncodeToString(s))
}

// encode replaces the encoding of the signature.
func (c *call) encode(encode func([]byte) string) {
	s, _ := base64.RawURLEncoding.DecodeString(c.drop("X-SVC-Signature"))
	c.set("X-SVC-Signature", encode(s))
}

// timestamp replaces the timestamp.
func (c *call) timestamp(header, text string) {
	c.drop("X-SVC-Timestamp")
	c.set(header, text)
	c.sign(message54(text, c.key.ID))
}

// explain explains the webhook with settings of -c.
func (c *call) explain(pairs ...string) *report {
	c.t.Helper()
	e := c.explainer(pairs...)
	if err := e.explain(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	return &e.report
}

func (c *call) explainer(pairs ...string) *explainer {
	c.t.Helper()
	e := &explainer{context: pairs, keyIDs: c.given, request: c.request}
	if err := e.set(c.request.Settings); err != nil {
		c.t.Fatal(err)
	}
	endpoint := keys.NewEndpoint(http.DefaultClient, e.conf.KeyEndpoint, settings.KeyTimeout)
	e.keys = &keyRing{endpoint, map[string]answer{}, nil}
	return e
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
	found := func(locations string) want { return want{otherSettings, missing, locations, ""} }
	differs := func(said string) want { return want{unsupported, mismatch, "", said} }
	down := want{keysDown, "key-unavailable", "", "nothing is wrong with the settings"}
	another := want{otherMessage, mismatch, "", "composes the message in another way"}
	for name, test := range map[string]struct {
		change func(c *call)
		want   want
	}{
		"nothing": {func(*call) {}, want{authentic, "accepted", "", ""}},

		// Locations.
		"query": {func(c *call) { c.request.RawQuery = "ts=" + c.drop("X-SVC-Timestamp") },
			found("timestampLocation=query:ts")},
		"key id that is not sent, but given": {func(c *call) { c.given = []string{c.drop("X-SVC-Key-Id")} },
			want{otherSettings, missing, "keyIdLocation=static:" + key().ID, "signs with another key"}},
		"key id that is sent and given": {func(c *call) {
			c.move("X-SVC-Key-Id", "Key-Reference")
			c.given = []string{c.key.ID}
		}, found("keyIdLocation=header:Key-Reference")},
		"key id that is fixed, in another header": {func(c *call) {
			c.drop("X-SVC-Key-Id")
			c.request.Settings["keyIdLocation"] = "static:" + c.key.ID
			c.move("X-SVC-Signature", "X-Sign")
		}, found("signatureHeader=X-Sign")},
		"key id without hyphens, in another header": {func(c *call) {
			id := strings.ReplaceAll(c.drop("X-SVC-Key-Id"), "-", "")
			c.jwks[id] = c.key.JWK()
			c.set("A-Key", id)
			c.sign(message54(at, id))
		}, found("keyIdLocation=header:A-Key")},
		"signature in the query": {func(c *call) { c.request.RawQuery = "sig=" + c.drop("X-SVC-Signature") },
			want{unsupported, missing, "", "The signature is in query:sig"}},
		"everything in other headers": {func(c *call) {
			c.move("X-SVC-Timestamp", "A-Time")
			c.move("X-SVC-Key-Id", "A-Key")
			c.move("X-SVC-Signature", "A-Sig")
		}, found("keyIdLocation=header:A-Key signatureHeader=A-Sig timestampLocation=header:A-Time")},
		"another method": {func(c *call) { c.request.Method = "DELETE" },
			want{unsupported, "method-not-allowed", "", "the method is not one of webhooks"}},

		// Formats of the timestamp.
		"a date of HTTP": {func(c *call) { c.timestamp("Date", "Sat, 31 Jan 2026 12:00:00 GMT") },
			found("timestampLocation=header:Date")},
		"no offset": {func(c *call) { c.timestamp("X-SVC-Timestamp", "2026-01-31T12:00:00") },
			want{unsupported, malformed, "", "cannot read the format of the timestamp"}},
		"a plus sign in the query": {func(c *call) {
			c.timestamp("X-SVC-Timestamp", "2026-01-31T12:00:00+00:00")
			c.request.RawQuery = "ts=" + c.drop("X-SVC-Timestamp")
		}, found("timestampLocation=query:ts")},

		// The age of the timestamp.
		"an old timestamp": {func(c *call) { c.request.ReceivedAt = received.Add(7 * time.Minute) },
			want{wrongAge, "timestamp-outside-window", "", "the timestamp was 7m1s old"}},

		// The signature, which the owner of the key made.
		"standard base64": {func(c *call) { c.encode(base64.StdEncoding.EncodeToString) },
			want{unsupported, malformed, "", "standard base64"}},
		"hex": {func(c *call) { c.encode(hex.EncodeToString) }, want{unsupported, malformed, "", "hexadecimal"}},
		"a leading zero": {func(c *call) {
			c.encode(func(s []byte) string { return base64.RawURLEncoding.EncodeToString(append([]byte{0}, s...)) })
		}, want{unsupported, malformed, "", "the signature is not 256 bytes"}},
		"two signatures": {func(c *call) {
			c.move("X-SVC-Signature", "A-Signature")
			c.signDigest(make([]byte, 64), crypto.SHA512)
		}, want{otherSettings, mismatch, "signatureHeader=A-Signature", ""}},
		"without DigestInfo": {func(c *call) { c.signDigest(sum(message54(at, c.key.ID)), crypto.Hash(0)) },
			differs("32 bytes without a DigestInfo")},
		"a text": {func(c *call) { c.signDigest([]byte(body), crypto.Hash(0)) },
			differs("202 bytes without a DigestInfo")},
		"a DigestInfo without parameters": {func(c *call) {
			info := "\x30\x2f\x30\x0b\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x04\x20"
			c.signDigest(append([]byte(info), sum(message54(at, c.key.ID))...), crypto.Hash(0))
		}, differs("SHA-256 in another form of DigestInfo")},
		"PSS": {func(c *call) { c.signDigest(sum(message54(at, c.key.ID)), &rsa.PSSOptions{Hash: crypto.SHA256}) },
			want{noMatch, mismatch, "", "RSASSA-PSS"}},

		// The message, which the owner of the key signed.
		"another order":     {func(c *call) { c.sign(at + "\n" + c.key.ID + "\n" + body) }, another},
		"other separator":   {func(c *call) { c.sign(body + "\r\n" + at + "\r\n" + c.key.ID) }, another},
		"upper-case key id": {func(c *call) { c.sign(message54(at, strings.ToUpper(c.key.ID))) }, another},
		"another timestamp": {func(c *call) { c.sign(message54("1769860800", c.key.ID)) }, another},
		"an amount was changed": {func(c *call) {
			c.request.Payload = bytes.Replace(c.request.Payload, []byte("1250.00"), []byte("1250.0"), 1)
		}, want{otherMessage, mismatch, "", "can change the body"}},
		"an encoded body": {func(c *call) {
			c.set("Content-Encoding", "(redacted)")
			c.sign("x")
		}, want{otherMessage, mismatch, "", "Content-Encoding"}},
		"gzip": {func(c *call) { c.request.Payload = []byte("\x1f\x8b\x08…") },
			want{otherMessage, mismatch, "", "with gzip"}},
		"a body that was not stored": {func(c *call) { c.request.Payload, c.request.PayloadBytes = nil, 200_000 },
			want{notStored, mismatch, "", "had 200000 bytes"}},

		// Keys.
		"status 500":          {func(c *call) { c.status = 500 }, down},
		"status 429":          {func(c *call) { c.status = 429 }, down},
		"a broken connection": {func(c *call) { c.status = -1 }, down},
		"a key endpoint that wants a token": {func(c *call) { c.status = 401 },
			want{noKey, "key-unavailable", "", ": status 401. If baseUrl and keyEndpointAuth"}},
		"another method, and an endpoint that is down": {func(c *call) { c.status, c.request.Method = 500, "DELETE" },
			want{keysDown, "method-not-allowed", "", "status 500"}},
		"a key endpoint that was down": {func(c *call) { c.request.Outcome = "key-unavailable" },
			want{authentic, "accepted", "", "Nothing is wrong with the settings. Ask the service to send"}},
		"a key id in a header that is not known": {func(c *call) { c.jwks = nil },
			want{noKey, "key-unknown", "", "is in header:X-SVC-Key-Id: unknown key to the service. Either baseUrl"}},
		"a JWKS": {func(c *call) { c.jwks[c.key.ID] = []byte(`{"keys":[]}`) },
			want{noKey, "key-unavailable", "", ": not the requested JWK: it has no kty. If"}},
		"a number": {func(c *call) {
			c.jwks[c.key.ID] = bytes.Replace(c.key.JWK(), []byte(`"AQAB"`), []byte(`65537`), 1)
		}, want{noKey, "key-unavailable", "", ": not the requested JWK: its e has a wrong type. If"}},
		"a key that must not be used": {func(c *call) {
			c.jwks[c.key.ID] = bytes.Replace(c.key.JWK(), []byte(`"sig"`), []byte(`"enc"`), 1)
		}, want{noKey, "key-refused", "", "key rejected: use is not sig"}},
		"a key of another environment": {func(c *call) {
			c.jwks[c.key.ID] = keys.FormatJWK(c.key.ID, &paymenttest.NewKey(2048).Private.PublicKey)
		}, want{noMatch, mismatch, "", "RSASSA-PSS"}},
		"no key id": {func(c *call) { c.drop("X-SVC-Key-Id") }, want{noKey, missing, "", "no UUID"}},

		// Values that are not stored.
		"values that are not stored": {func(c *call) {
			c.drop("X-SVC-Signature")
			c.set("X-Sign", "(redacted)")
			c.request.RawQuery = "a&ts=(redacted)"
		}, want{notStored, missing, "", "did not name them: header:X-Sign, query:ts."}},
		"settings that verify": {func(c *call) {
			c.set("Cookie", "(redacted)")
			c.move("X-SVC-Timestamp", "User-Agent")
		}, found("timestampLocation=header:User-Agent")},

		// No signature.
		"no signature": {func(c *call) { c.drop("X-SVC-Signature") }, want{noSignature, missing, "", "scanners"}},
		"a short signature": {func(c *call) { c.set("X-SVC-Signature", c.drop("X-SVC-Signature")[:120]) },
			want{noSignature, malformed, "", "was shortened"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := sent(t)
			test.change(c)
			test.want.check(t, c.explain())
		})
	}
}

// The requests to the key endpoint are limited, and no id of the body is sent to it.
func TestFewKeysAreLookedUp(t *testing.T) {
	c := sent(t)
	for i := range 2 * maxKeys {
		c.set(fmt.Sprint("X-", i), paymenttest.Event().EventID)
	}
	c.request.Payload = []byte(`{}`)
	if r := c.explain(); r.Verdict != otherMessage || len(c.asked) != maxKeys || c.asked[0] != c.key.ID {
		t.Errorf("%s; asked for %q", r.Verdict, c.asked)
	}
	c.asked, c.status = nil, 500
	if c.explain(); len(c.asked) != 2 {
		t.Errorf("an endpoint that is down was asked for %q", c.asked)
	}
	c = sent(t)
	c.sign("another message")
	if c.explain(); len(c.asked) != 1 {
		t.Errorf("asked for %q", c.asked)
	}
}

// With -c, the webhook passes with other settings than those that rejected it.
func TestTheSettingsOfAnAttemptAreThoseToDeploy(t *testing.T) {
	c := sent(t)
	right := c.request.Settings["baseUrl"]
	c.request.Settings["baseUrl"], c.request.Outcome = "https://a.example", "key-unknown"
	want{otherSettings, "accepted", "baseUrl=" + right, "deploy"}.check(t, c.explain("baseUrl="+right))
	c.move("X-SVC-Timestamp", "Time")
	want{otherSettings, "signature-missing", "baseUrl=" + right + " timestampLocation=header:Time", "deploy"}.
		check(t, c.explain("baseUrl="+right))
	c = sent(t)
	c.request.ReceivedAt = received.Add(time.Hour)
	want{otherSettings, "accepted", "timestampTolerance=2h", "attacker"}.check(t, c.explain("timestampTolerance=2h"))
}

// Some services sign with another hash. Whoever has the key made the signature, whatever the message is.
func TestTheHashOfASignatureIsNamed(t *testing.T) {
	for _, hash := range []crypto.Hash{crypto.MD5, crypto.SHA1, crypto.SHA224, crypto.SHA384, crypto.SHA512,
		crypto.SHA512_224, crypto.SHA512_256, crypto.SHA3_224, crypto.SHA3_256, crypto.SHA3_384, crypto.SHA3_512} {
		c := sent(t)
		c.signDigest(make([]byte, hash.Size()), hash)
		want{unsupported, "signature-mismatch", "", "with " + hash.String() + ". Section 5.4"}.check(t, c.explain())
	}
}

// With an exponent of 1, the block is the signature. With small exponents, everybody can compute a root of a block with
// a short padding.
func TestABlockShowsWhoMadeIt(t *testing.T) {
	public := &rsa.PublicKey{N: key().Private.N, E: 1}
	for _, b := range []struct {
		first, fill byte
		padding     int
		made        bool
	}{{1, 0xff, 200, true}, {1, 0xff, 127, true}, {1, 0xff, 8, false}, {1, 0xfe, 200, false}, {2, 0xff, 200, false}} {
		block := slices.Concat([]byte{0, b.first}, bytes.Repeat([]byte{b.fill}, b.padding), make([]byte, 254-b.padding))
		if made, _ := read(public, block); (made != "") != b.made {
			t.Errorf("%+v: %q", b, made)
		}
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
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := sent(t).explainer().explain(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
