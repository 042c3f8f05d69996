package explain_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/explain"
	"payhook.example/shared/keys"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/refused"
)

// service is a key service that counts its requests.
type service struct {
	jwks  map[string][]byte // by the id in lower case
	err   error             // of every request
	asked []string
}

func (s *service) Fetch(_ context.Context, id string) ([]byte, error) {
	s.asked = append(s.asked, id)
	if s.err != nil {
		return nil, s.err
	}
	if jwk, ok := s.jwks[strings.ToLower(id)]; ok {
		return jwk, nil
	}
	return nil, fmt.Errorf("keys: origin: %w", keys.ErrUnknown)
}

var (
	key   = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(2048) })
	other = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(2048) })
)

// received is the time at which the requests of these tests are received.
var received = time.Date(2026, 1, 31, 12, 0, 1, 0, time.UTC)

const (
	at      = "2026-01-31T12:00:00.000Z"
	payload = `{"deliveryId":"b3f9c1de-6a0e-4c5b-8f7d-2e1a9c4b5d60","note":"Köln & <Bonn>/x","events":[{"eventId":` +
		`"c1f9c1de-6a0e-4c5b-8f7d-2e1a9c4b5d61","amount":1250.00,"eventTimestamp":"2026-01-31T11:59:58.000Z"}]}`
)

// call is a webhook and the deployment that rejects it. A test changes one thing.
type call struct {
	t        *testing.T
	request  explain.Request
	values   map[string]string
	service  *service
	opts     explain.Options
	key      paymenttest.Key
	encoding *base64.Encoding
}

// sent returns a webhook that verifies.
func sent(t *testing.T) *call {
	c := &call{t: t, key: key(), encoding: base64.RawURLEncoding,
		values: map[string]string{"baseUrl": "https://api.payments.example"},
		request: explain.Request{Method: "POST", Path: "/", Payload: []byte(payload), ReceivedAt: received,
			Headers: map[string]string{"content-type": "application/json", "host": "abc.example",
				"x-amzn-trace-id": "Root=1-5759e988-bd862e3fe1be46a994272793", "x-forwarded-for": "192.0.2.1"}},
		service: &service{jwks: map[string][]byte{key().ID: key().JWK()}},
	}
	c.set("X-SVC-Timestamp", at)
	c.set("X-SVC-Key-Id", c.key.ID)
	c.sign(payload + "\n" + at + "\n" + c.key.ID)
	return c
}

func (c *call) set(name, text string) { c.request.Headers[strings.ToLower(name)] = text }
func (c *call) move(from, to string) {
	c.set(to, c.request.Headers[strings.ToLower(from)])
	delete(c.request.Headers, strings.ToLower(from))
}
func (c *call) drop(name string) string {
	text := c.request.Headers[strings.ToLower(name)]
	delete(c.request.Headers, strings.ToLower(name))
	return text
}

// signed returns the signature of a message.
func (c *call) signed(message string) []byte {
	sum := sha256.Sum256([]byte(message))
	s, err := rsa.SignPKCS1v15(nil, c.key.Private, crypto.SHA256, sum[:])
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

func (c *call) sign(message string) {
	c.set("X-SVC-Signature", c.encoding.EncodeToString(c.signed(message)))
}

func (c *call) explain() *explain.Report {
	c.t.Helper()
	r, err := explain.Explain(c.t.Context(), c.request, c.values, c.service, c.opts)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// message is the message of section 5.4 with another timestamp or key id.
func message(timestamp, id string) string { return payload + "\n" + timestamp + "\n" + id }

// want is what a report must say. A text of said must be in a difference, an advice or a
// sign.
type want struct {
	verdict  explain.Verdict
	outcome  string
	settings map[string]string
	said     []string
}

func (w want) check(t *testing.T, r *explain.Report) {
	t.Helper()
	got := map[string]string{}
	for _, c := range r.Settings {
		got[c.Setting] = c.Value
		if c.Was == c.Value {
			t.Errorf("%s is not changed", c.Setting)
		}
	}
	if w.settings == nil {
		w.settings = map[string]string{}
	}
	if r.Verdict != w.verdict || r.Outcome != w.outcome || !cmp.Equal(got, w.settings) {
		t.Errorf("%s after %s with %v, want %s after %s with "+
			"%v", r.Verdict, r.Outcome, got, w.verdict, w.outcome, w.settings)
	}
	all := strings.Join(slices.Concat(r.Differences, r.Advice, r.Evidence, []string{r.Step}), "\n")
	for _, text := range w.said {
		if !strings.Contains(all, text) {
			t.Errorf("the report does not say %q", text)
		}
	}
	if r.Outcome != "accepted" && r.Step == "" {
		t.Error("the report names no step")
	}
	if t.Failed() {
		text, _ := json.MarshalIndent(r, "", " ")
		t.Logf("%s", text)
	}
}

// In every case one thing of a webhook that verifies is changed.
func TestEachVariantIsExplained(t *testing.T) {
	const (
		missing, repeated, malformed  = "signature-missing", "signature-repeated", "signature-malformed"
		mismatch, unknown, keyRefused = "signature-mismatch", "key-unknown", "key-refused"
		outside                       = "timestamp-outside-window"
	)
	set := func(pairs ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	standard := base64.StdEncoding
	for name, test := range map[string]struct {
		change func(c *call)
		want   want
	}{
		"nothing": {func(*call) {}, want{explain.Authentic, "accepted", nil, nil}},

		// Carriers.
		"timestamp in another header": {func(c *call) { c.move("X-SVC-Timestamp", "X-Brand-Time") },
			want{explain.Settings, missing, set("timestampCarrier", "header:X-Brand-Time"),
				[]string{"the timestamp (timestampCarrier is header:X-SVC-Timestamp)"}}},
		"timestamp in the query": {func(c *call) {
			c.request.RawQuery = "ts=" + c.drop("X-SVC-Timestamp")
		}, want{explain.Settings, missing, set("timestampCarrier", "query:ts"), nil}},
		"timestamp in the body": {func(c *call) {
			c.drop("X-SVC-Timestamp")
			c.sign(message("2026-01-31T11:59:58.000Z", c.key.ID))
		}, want{explain.Unsupported, missing, nil,
			[]string{"The timestamp is carried in the JSON field events.0.eventTimestamp"}}},
		"timestamp in a part of a header": {func(c *call) {
			c.set("X-Sig-Data", "t="+c.drop("X-SVC-Timestamp")+";v=1")
		}, want{explain.Unsupported, missing, nil, []string{"carried in the part t of header X-Sig-Data"}}},
		"key id in another header": {func(c *call) { c.move("X-SVC-Key-Id", "Key-Reference") },
			want{explain.Settings, missing, set("keyIdCarrier", "header:Key-Reference"), nil}},
		"key id in the query": {func(c *call) { c.request.RawQuery = "a=b&kid=" + c.drop("X-SVC-Key-Id") },
			want{explain.Settings, missing, set("keyIdCarrier", "query:kid"), nil}},
		"key id in the path": {func(c *call) { c.request.Path = "/hooks/" + c.drop("X-SVC-Key-Id") },
			want{explain.Unsupported, missing, nil, []string{"carried in the path"}}},
		"key id in the body": {func(c *call) {
			c.drop("X-SVC-Key-Id")
			c.request.Payload = []byte(`{"keyId":"` + c.key.ID + `","a":1}`)
			c.sign(string(c.request.Payload) + "\n" + at + "\n" + c.key.ID)
		}, want{explain.Unsupported, missing, nil, []string{"carried in the JSON field keyId"}}},
		"key id that is not sent": {func(c *call) {
			c.drop("X-SVC-Key-Id")
			c.opts.KeyIDs = []string{c.key.ID}
		}, want{explain.Settings, missing, set("keyIdCarrier", "static:"+key().ID),
			[]string{"as soon as the service signs with another key"}}},
		"key id without hyphens": {func(c *call) {
			id := strings.ReplaceAll(c.key.ID, "-", "")
			c.set("X-SVC-Key-Id", id)
			c.sign(message(at, id))
		}, want{explain.Unsupported, malformed, nil, []string{"Payhook reads a UUID"}}},
		"key id in another case than signed": {func(c *call) { c.set("X-SVC-Key-Id", strings.ToUpper(c.key.ID)) },
			want{explain.Unsupported, mismatch, nil, []string{"The signed key id is written as"}}},
		"another key id than that of the key": {func(c *call) {
			c.request.RawQuery = "kid=" + c.key.ID
			c.set("X-SVC-Key-Id", other().ID)
			c.sign(message(at, other().ID))
		}, want{explain.Unsupported, unknown, nil, []string{"not the id of the key that made the signature"}}},
		"signature in another header": {func(c *call) { c.move("X-SVC-Signature", "X-Brand-Signature") },
			want{explain.Settings, missing, set("signatureHeader", "X-Brand-Signature"),
				[]string{"signatureHeader is X-SVC-Signature"}}},
		"signature in the query": {func(c *call) { c.request.RawQuery = "sig=" + c.drop("X-SVC-Signature") },
			want{explain.Unsupported, missing, nil, []string{"The signature is carried in the query parameter sig"}}},
		"everything in other headers": {func(c *call) {
			c.move("X-SVC-Timestamp", "A-Time")
			c.move("X-SVC-Key-Id", "A-Key")
			c.move("X-SVC-Signature", "A-Sig")
		}, want{explain.Settings, missing, set("timestampCarrier", "header:A-Time", "keyIdCarrier", "header:A-Key",
			"signatureHeader", "A-Sig"), nil}},
		"all parts in one header": {func(c *call) {
			c.set("Signature", fmt.Sprintf(`keyId="%s",created="%s",signature="%s"`, c.drop("X-SVC-Key-Id"),
				c.drop("X-SVC-Timestamp"), c.drop("X-SVC-Signature")))
		}, want{explain.Unsupported, missing, nil,
			[]string{"part created of header Signature", "part signature of header Signature"}}},
		"signature twice": {func(c *call) {
			text := c.drop("X-SVC-Signature")
			c.set("X-SVC-Signature", text+","+text)
		}, want{explain.Unsupported, repeated, nil, []string{"part of header X-Svc-Signature"}}},
		"another method": {func(c *call) { c.request.Method = "PUT" },
			want{explain.Settings, "method-not-allowed", set("httpMethod", "PUT"), nil}},
		"a payload that is too large": {func(c *call) { c.values["maxPayloadBytes"] = "10" },
			want{explain.Settings, "payload-too-large", set("maxPayloadBytes", strconv.Itoa(len(payload))), nil}},

		// Formats of the timestamp.
		"Unix seconds": {func(c *call) {
			c.values["timestampFormat"] = "rfc3339"
			c.set("X-SVC-Timestamp", "1769860800")
			c.sign(message("1769860800", c.key.ID))
		}, want{explain.Settings, malformed, set("timestampFormat", "auto"), []string{"timestampFormat"}}},
		"Unix milliseconds in another header": {func(c *call) {
			c.drop("X-SVC-Timestamp")
			c.set("T", "1769860800123")
			c.sign(message("1769860800123", c.key.ID))
		}, want{explain.Settings, missing, set("timestampCarrier", "header:T"), nil}},
		"RFC 3339 with a fraction": {func(c *call) {
			c.values["timestampFormat"] = "unix-seconds"
			c.set("X-SVC-Timestamp", "2026-01-31T12:00:00.123456789Z")
			c.sign(message("2026-01-31T12:00:00.123456789Z", c.key.ID))
		}, want{explain.Settings, malformed, set("timestampFormat", "auto"), nil}},
		"RFC 3339 in lower case": {func(c *call) {
			c.drop("X-SVC-Timestamp")
			c.set("D", strings.ToLower(at))
			c.sign(message(strings.ToLower(at), c.key.ID))
		}, want{explain.Settings, missing, set("timestampCarrier", "header:D"), nil}},
		"RFC 3339 with an offset": {func(c *call) {
			c.drop("X-SVC-Timestamp")
			c.set("D", "2026-01-31T13:00:00+01:00")
			c.sign(message("2026-01-31T13:00:00+01:00", c.key.ID))
		}, want{explain.Settings, missing, set("timestampCarrier", "header:D"), nil}},
		"RFC 1123 in a header": {func(c *call) {
			c.drop("X-SVC-Timestamp")
			date := "Sat, 31 Jan 2026 12:00:00 GMT"
			c.set("Date", date)
			c.sign(message(date, c.key.ID))
		}, want{explain.Unsupported, missing, nil, []string{"header Date"}}},
		"RFC 1123 in the query": {func(c *call) {
			c.drop("X-SVC-Timestamp")
			c.request.RawQuery = "date=Sat,+31+Jan+2026+12:00:00+GMT"
			c.sign(message("Sat, 31 Jan 2026 12:00:00 GMT", c.key.ID))
		}, want{explain.Unsupported, missing, set("timestampCarrier", "query:date"), []string{"RFC 1123"}}},
		"Unix microseconds": {func(c *call) {
			c.set("X-SVC-Timestamp", "1769860800123456")
			c.sign(message("1769860800123456", c.key.ID))
		}, want{explain.Unsupported, malformed, nil, []string{"Unix microseconds"}}},
		"a format that is not known": {func(c *call) {
			c.set("X-SVC-Timestamp", "yesterday")
			c.sign(message("yesterday", c.key.ID))
		}, want{explain.Unsupported, malformed, nil, []string{"a format that is not known"}}},
		"an unknown format, with the check of the age turned off": {func(c *call) {
			c.values["timestampTolerance"] = "off"
			c.move("X-SVC-Timestamp", "When")
			c.set("X-SVC-Timestamp", "yesterday")
			c.sign(message("yesterday", c.key.ID))
		}, want{explain.Authentic, "accepted", nil, nil}},
		"another text of the same time is signed": {func(c *call) {
			c.sign(message("1769860800", c.key.ID))
		}, want{explain.Unsupported, mismatch, nil, []string{`The signed timestamp is written as "1769860800"`}}},
		"an old timestamp": {func(c *call) { c.request.ReceivedAt = received.Add(7 * time.Minute) },
			want{explain.Age, outside, nil, []string{"7m1s older", "No longer tolerance is proposed"}}},
		"an old timestamp, with the tolerance that was asked for": {func(c *call) {
			c.request.ReceivedAt = received.Add(7 * time.Minute)
			c.values["timestampTolerance"] = "8m"
		}, want{explain.Authentic, "accepted", nil, nil}},
		"an old timestamp in another header": {func(c *call) {
			c.move("X-SVC-Timestamp", "X-Brand-Time")
			c.request.ReceivedAt = received.Add(72 * time.Hour)
		}, want{explain.Age, missing, set("timestampCarrier", "header:X-Brand-Time"), []string{"72h0m1s older"}}},
		"an old timestamp and a changed body": {func(c *call) {
			c.request.ReceivedAt = received.Add(time.Hour)
			c.request.Payload = append(c.request.Payload, '\n')
		}, want{explain.Changed, outside, nil, []string{"without its last line feed"}}},
		"an unknown age": {func(c *call) { c.request.ReceivedAt = time.Time{} },
			want{explain.Authentic, "accepted", nil, []string{"The age of the timestamp was not checked"}}},

		// Encodings of the signature.
		"padding": {func(c *call) { c.encoding = base64.URLEncoding; c.sign(message(at, c.key.ID)) },
			want{explain.Authentic, "accepted", nil, nil}},
		"standard base64": {func(c *call) {
			c.encoding = standard
			for i := 0; ; i++ { // one with a plus sign
				c.set("X-SVC-Timestamp", strconv.Itoa(1769860800+i))
				c.sign(message(strconv.Itoa(1769860800+i), c.key.ID))
				if strings.Contains(c.request.Headers["x-svc-signature"], "+") {
					return
				}
			}
		}, want{explain.Unsupported, malformed, nil, []string{"standard base64"}}},
		"hexadecimal": {func(c *call) {
			c.set("X-SVC-Signature", hex.EncodeToString(c.signed(message(at, c.key.ID))))
		}, want{explain.Unsupported, malformed, nil, []string{"hexadecimal"}}},
		"percent-encoding": {func(c *call) {
			c.set("X-SVC-Signature", base64.RawURLEncoding.EncodeToString(c.signed(message(at, c.key.ID)))+"%3D%3D")
		}, want{explain.Unsupported, malformed, nil, []string{"percent-encoding"}}},
		"a prefix": {func(c *call) { c.set("X-SVC-Signature", "sha256="+c.drop("X-SVC-Signature")) },
			want{explain.Unsupported, malformed, nil, []string{"after a prefix"}}},

		// Messages.
		"CR LF": {func(c *call) { c.sign(payload + "\r\n" + at + "\r\n" + c.key.ID) },
			want{explain.Unsupported, mismatch, nil, []string{"Between payload and timestamp there is CR LF instead"}}},
		"a missing line feed": {func(c *call) { c.sign(payload + at + "\n" + c.key.ID) },
			want{explain.Unsupported, mismatch, nil, []string{"Between payload and timestamp there is nothing"}}},
		"no line feed": {func(c *call) { c.sign(payload + at + c.key.ID) },
			want{explain.Unsupported, mismatch, nil, []string{"Between timestamp and key id there is nothing"}}},
		"a line feed at the end": {func(c *call) { c.sign(message(at, c.key.ID) + "\n") },
			want{explain.Unsupported, mismatch, nil, []string{"The signed message ends with a line feed"}}},
		"another order": {func(c *call) { c.sign(at + "\n" + c.key.ID + "\n" + payload) },
			want{explain.Unsupported, mismatch, nil, []string{"timestamp, key id, payload, in this order"}}},
		"a dot": {func(c *call) { c.sign(at + "." + payload) },
			want{explain.Unsupported, mismatch, nil, []string{"timestamp, payload, in this order", "there is a dot"}}},
		"no key id in the message": {func(c *call) { c.sign(payload + "\n" + at) },
			want{explain.Unsupported, mismatch, nil, []string{"payload, timestamp, in this order"}}},
		"the payload alone": {func(c *call) { c.drop("X-SVC-Timestamp"); c.sign(payload) },
			want{explain.Unsupported, missing, nil, []string{"The signed message is the payload alone"}}},
		"PSS": {func(c *call) {
			sum := sha256.Sum256([]byte(message(at, c.key.ID)))
			s, err := rsa.SignPSS(rand.Reader, c.key.Private, crypto.SHA256, sum[:], nil)
			if err != nil {
				c.t.Fatal(err)
			}
			c.set("X-SVC-Signature", c.encoding.EncodeToString(s))
		}, want{explain.Unsupported, mismatch, nil, []string{"RSASSA-PSS"}}},
		"SHA-1": {func(c *call) {
			sum := sha1.Sum([]byte(message(at, c.key.ID)))
			s, err := rsa.SignPKCS1v15(nil, c.key.Private, crypto.SHA1, sum[:])
			if err != nil {
				c.t.Fatal(err)
			}
			c.set("X-SVC-Signature", c.encoding.EncodeToString(s))
		}, want{explain.Unsupported, mismatch, nil, []string{"SHA-1"}}},
		"a JSON Web Signature": {func(c *call) {
			head := c.encoding.EncodeToString([]byte(`{"alg":"RS256","kid":"` + c.drop("X-SVC-Key-Id") + `"}`))
			s := c.signed(head + "." + c.encoding.EncodeToString([]byte(payload)))
			c.set("X-SVC-Signature", head+".."+c.encoding.EncodeToString(s))
		}, want{explain.Unsupported, missing, nil, []string{"JSON Web Signature"}}},

		// Changes on the way.
		"a line feed was added": {func(c *call) { c.request.Payload = []byte(payload + "\n") },
			want{explain.Changed, mismatch, nil, []string{"the payload without its last line feed"}}},
		"a line feed was removed": {func(c *call) { c.sign(payload + "\n\n" + at + "\n" + c.key.ID) },
			want{explain.Changed, mismatch, nil, []string{"the payload with a line feed at its end"}}},
		"two line feeds": {func(c *call) { c.sign(payload + "\n" + at + "\n\n" + c.key.ID) },
			want{explain.Unsupported, mismatch, nil, []string{"two line feeds"}}},
		"a byte order mark": {func(c *call) { c.request.Payload = []byte("\ufeff" + payload) },
			want{explain.Changed, mismatch, nil, []string{"without a byte order mark"}}},
		"line breaks were changed": {func(c *call) {
			c.request.Payload = []byte("{\r\n\"a\":1\r\n}")
			c.sign("{\n\"a\":1\n}\n" + at + "\n" + c.key.ID)
		}, want{explain.Changed, mismatch, nil, []string{"line feeds instead of CR LF"}}},
		"written again with spaces": {func(c *call) {
			c.request.Payload = []byte(strings.NewReplacer(`":`, `": `, `,"`, `, "`).Replace(payload))
		}, want{explain.Changed, mismatch, nil, []string{"as JSON that was written again (compact)",
			"JSON a space after commas and colons"}}},
		"written again compactly": {func(c *call) {
			c.sign(strings.NewReplacer(`":`, `": `, `,"`, `, "`).Replace(payload) + "\n" +
				at + "\n" + c.key.ID)
		}, want{explain.Changed, mismatch, nil, []string{"a space after commas and colons"}}},
		"pretty printed": {func(c *call) {
			var pretty bytes.Buffer
			if err := json.Indent(&pretty, []byte(payload), "", "  "); err != nil {
				c.t.Fatal(err)
			}
			c.request.Payload = pretty.Bytes()
		}, want{explain.Changed, mismatch, nil, []string{"(compact)", "indented by two spaces"}}},
		"names sorted by the sender": {func(c *call) {
			c.request.Payload = []byte(`{"b":1,"a":{"d":1.0,"c":2}}`)
			c.sign(`{"a":{"c":2,"d":1.0},"b":1}` + "\n" + at + "\n" + c.key.ID)
		}, want{explain.Changed, mismatch, nil, []string{"compact, names sorted"}}},
		"numbers shortened by the sender": {func(c *call) {
			c.sign(strings.Replace(payload, "1250.00", "1250", 1) + "\n" + at + "\n" + c.key.ID)
		}, want{explain.Changed, mismatch, nil, []string{"numbers without trailing zeros"}}},
		"ASCII only": {func(c *call) {
			c.sign(strings.Replace(payload, "ö", `\u00f6`, 1) + "\n" + at + "\n" + c.key.ID)
		}, want{explain.Changed, mismatch, nil, []string{"ASCII only"}}},
		"HTML escaped": {func(c *call) {
			c.sign(strings.NewReplacer("&", `\u0026`, "<", `\u003c`, ">", `\u003e`).Replace(payload) + "\n" +
				at + "\n" +
				c.key.ID)
		}, want{explain.Changed, mismatch, nil, []string{"&, < and > escaped"}}},
		"slashes escaped": {func(c *call) {
			c.sign(strings.Replace(payload, "/", `\/`, 1) + "\n" + at + "\n" + c.key.ID)
		}, want{explain.Changed, mismatch, nil, []string{"slashes escaped"}}},
		"compressed": {func(c *call) {
			var zipped bytes.Buffer
			w := gzip.NewWriter(&zipped)
			_, _ = w.Write([]byte(payload))
			_ = w.Close()
			c.request.Payload = zipped.Bytes()
			c.set("Content-Encoding", "gzip")
		}, want{explain.Changed, mismatch, nil, []string{"decompressed with gzip", "Content-Encoding is"}}},
		"another character set": {func(c *call) {
			c.request.Payload = bytes.Replace([]byte(payload), []byte("ö"), []byte("\xf6"), 1)
		}, want{explain.Changed, mismatch, nil, []string{"read as ISO 8859-1 and written as UTF-8", "not valid " +
			"UTF-8"}}},
		"a change and another carrier": {func(c *call) {
			c.move("X-SVC-Timestamp", "X-Time")
			c.request.Payload = []byte(payload + "\r\n")
		}, want{explain.Changed, missing, set("timestampCarrier", "header:X-Time"), []string{"last CR LF"}}},
		"an amount was changed": {func(c *call) {
			c.set("Content-Length", strconv.Itoa(len(payload)+1))
			sum := sha256.Sum256([]byte(payload))
			c.set("Content-Digest", "sha-256=:"+standard.EncodeToString(sum[:])+":")
			c.set("Via", "1.1 proxy")
			c.request.Payload = []byte(strings.Replace(payload, "1250.00", "9999999", 1))
		}, want{explain.Changed, mismatch, nil, []string{"The signature is genuine", "Content-Length is",
			"does not have the digest of the header content-digest", "its headers: via", "SHA-256 "}}},

		// Keys.
		"a key that the service does not know": {func(c *call) { c.service.jwks = nil },
			want{explain.NoKey, unknown, nil, []string{"another environment", "https://api.payments.example/v1/keys"}}},
		"a key service that does not answer": {func(c *call) {
			c.service.err = fmt.Errorf("%w: status 500", keys.ErrUnavailable)
		}, want{explain.NoKey, "key-unavailable", nil, []string{"does not return a key: status 500", "Check baseUrl"}}},
		"a key service that answers something else": {func(c *call) {
			c.service.jwks[c.key.ID] = []byte(`{"keys":[]}`)
		}, want{explain.NoKey, "key-unavailable", nil, []string{"not a JWK"}}},
		"a key of another environment": {func(c *call) {
			c.service.jwks[c.key.ID] = bytes.Replace(other().JWK(), []byte(other().ID), []byte(c.key.ID), 1)
		}, want{explain.OtherKey, mismatch, nil, []string{"None of the keys", "another environment"}}},
		"a signature of another size": {func(c *call) {
			c.set("X-SVC-Signature", c.encoding.EncodeToString(make([]byte, 300)))
		}, want{explain.OtherKey, malformed, nil, []string{"The sizes differ"}}},
		"no key id": {func(c *call) {
			c.drop("X-SVC-Key-Id")
			c.request.Payload = []byte(`{}`)
			c.sign("{}\n" + at + "\n" + c.key.ID)
		}, want{explain.NoKey, missing, nil, []string{"no UUID", "--key-id"}}},

		// No signature.
		"no signature": {func(c *call) { c.drop("X-SVC-Signature") },
			want{explain.NoSignature, missing, nil, []string{"scanners"}}},
		"an HMAC": {func(c *call) { c.set("X-SVC-Signature", strings.Repeat("ab", 32)) },
			want{explain.NoSignature, malformed, nil, []string{"size of an HMAC"}}},
		"a signature that was shortened": {func(c *call) {
			c.set("X-SVC-Signature", c.drop("X-SVC-Signature")[:120])
		}, want{explain.NoSignature, malformed, nil, []string{"90 bytes"}}},
		"a header that was redacted": {func(c *call) {
			c.drop("X-SVC-Signature")
			c.set("Authorization", refused.Redacted)
		}, want{explain.NoSignature, missing, nil, []string{"header Authorization was redacted"}}},
		"no body": {func(c *call) { c.request.Payload = nil; c.drop("X-SVC-Signature") },
			want{explain.NoSignature, "payload-empty", nil, nil}},
		"a body that was not captured": {func(c *call) { c.request.Payload, c.request.Missing = nil, 300_000 },
			want{explain.Changed, mismatch, nil, []string{"it had 300000 bytes"}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := sent(t)
			test.change(c)
			before := maps.Clone(c.request.Headers)
			r := c.explain()
			test.want.check(t, r)
			if !maps.Equal(before, c.request.Headers) {
				t.Error("the request was changed")
			}
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range []string{"Bonn", c.request.Headers["x-svc-signature"]} {
				if len(secret) > 3 && len(secret) != 64 && bytes.Contains(text, []byte(secret)) {
					t.Errorf("the report contains %q", secret)
				}
			}
		})
	}
}

// A time zone is a guess, and only one that exists is named.
func TestATimeZoneIsAGuess(t *testing.T) {
	for ahead, zone := range map[time.Duration]string{
		2 * time.Hour: "UTC+02:00", -3*time.Hour - 30*time.Minute: "UTC-03:30", 5*time.Hour + 45*time.Minute: "UTC+05:45",
		14 * time.Hour: "UTC+14:00", -12 * time.Hour: "UTC-12:00",
		14*time.Hour + 15*time.Minute: "", -13 * time.Hour: "", 2*time.Hour + 7*time.Minute: "", 6 * time.Minute: "",
	} {
		c := sent(t)
		c.request.ReceivedAt = received.Add(-ahead)
		advice := strings.Join(c.explain().Advice, "\n")
		if want := "A guess: the sender may write its local time, " + zone + ", as UTC."; zone != "" &&
			!strings.Contains(advice, want) || zone == "" && strings.Contains(advice, "UTC") {
			t.Errorf("%s: %s", ahead, advice)
		}
	}
}

// The requests to the key service are limited, and the likely ids come first.
func TestFewKeysAreLookedUp(t *testing.T) {
	c := sent(t)
	var body strings.Builder
	for range 100 {
		fmt.Fprintf(&body, `{"eventId":"%s"},`, paymenttest.Event().EventID)
	}
	c.request.Payload = []byte(`{"events":[` + strings.TrimRight(body.String(), ",") + `]}`)
	c.opts.MaxHashed = 10_000_000
	r := c.explain()
	if r.Verdict != explain.Changed {
		t.Errorf("%s", r.Verdict)
	}
	if len(c.service.asked) != 16 || c.service.asked[0] != c.key.ID {
		t.Errorf("asked %d times, first for %s", len(c.service.asked), c.service.asked[0])
	}
	if len(r.NotTried) != 2 || !strings.Contains(r.NotTried[0], "85 UUIDs were not looked up") {
		t.Errorf("not tried: %q", r.NotTried)
	}
	c.service.asked, c.service.err = nil, keys.ErrUnavailable
	if c.explain(); len(c.service.asked) != 2 {
		t.Errorf("a service that does not answer was asked %d times", len(c.service.asked))
	}
}

// What is hashed is limited.
func TestTheWorkIsLimited(t *testing.T) {
	c := sent(t)
	c.sign("nothing that is tried")
	c.opts.MaxHashed = 100_000
	r := c.explain()
	if r.Verdict != explain.Changed || len(r.NotTried) != 1 || !strings.Contains(r.NotTried[0], "Not every form") {
		t.Errorf("%s, not tried: %q", r.Verdict, r.NotTried)
	}
	c = sent(t)
	c.request.Payload = []byte(`{}`)
	c.sign("nothing that is tried")
	if r := c.explain(); len(r.NotTried) != 0 {
		t.Errorf("not tried: %q", r.NotTried)
	}
}

func TestItEndsWithItsContext(t *testing.T) {
	c := sent(t)
	c.sign("nothing that is tried")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := explain.Explain(ctx, c.request, c.values, c.service, c.opts); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestWrongSettingsAreReported(t *testing.T) {
	c := sent(t)
	c.values = map[string]string{"keyIdCarrier": "cookie:kid", "signatureHeader": "a b"}
	_, err := explain.Explain(t.Context(), c.request, c.values, c.service, c.opts)
	if err == nil {
		t.Fatal("no error")
	}
	for _, name := range []string{"baseUrl", "keyIdCarrier", "signatureHeader"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not in %v", name, err)
		}
	}
}

// A key that the policy rejects is named with the reason.
func TestAKeyThatIsRefusedIsNamed(t *testing.T) {
	three := withExponent(t, 3)
	c := sent(t)
	c.key = three
	c.set("X-SVC-Key-Id", three.ID)
	c.service.jwks[three.ID] = three.JWK()
	c.sign(message(at, three.ID))
	want{explain.Unsupported, "key-refused", nil, []string{"must not be used: e is not "}}.check(t, c.explain())
	c.values["keyExponents"] = "65537,3"
	want{explain.Authentic, "accepted", nil, nil}.check(t, c.explain())

	small := paymenttest.NewKey(1024)
	c = sent(t)
	c.key = small
	c.set("X-SVC-Key-Id", small.ID)
	c.service.jwks[small.ID] = small.JWK()
	c.sign(message(at, small.ID))
	want{explain.Unsupported, "signature-malformed", nil,
		[]string{"must not be used: n does not have 2048 to 4096 bits"}}.check(t, c.explain())

	c = sent(t)
	c.service.jwks[c.key.ID] = bytes.Replace(c.key.JWK(), []byte(`"sig"`), []byte(`"enc"`), 1)
	want{explain.Unsupported, "key-refused", nil, []string{"use is not sig"}}.check(t, c.explain())
}

// withExponent returns a key with another public exponent.
func withExponent(t *testing.T, e int64) paymenttest.Key {
	t.Helper()
	one, exponent := big.NewInt(1), big.NewInt(e)
	prime := func() *big.Int {
		for {
			p, err := rand.Prime(rand.Reader, 1024)
			if err != nil {
				t.Fatal(err)
			}
			if new(big.Int).GCD(nil, nil, exponent, new(big.Int).Sub(p, one)).Cmp(one) == 0 {
				return p
			}
		}
	}
	p, q := prime(), prime()
	phi := new(big.Int).Mul(new(big.Int).Sub(p, one), new(big.Int).Sub(q, one))
	k := &rsa.PrivateKey{N: new(big.Int).Mul(p, q), E: int(e),
		D: new(big.Int).ModInverse(exponent, phi), Primes: []*big.Int{p, q}}
	k.Precompute()
	return paymenttest.Key{ID: other().ID, Private: k}
}

func TestAReportNamesWhereItLooked(t *testing.T) {
	c := sent(t)
	c.request.Headers["date"] = received.Format(http.TimeFormat)
	r := c.explain()
	wantKeys := []explain.KeyFound{{ID: c.key.ID, Place: "header X-Svc-Key-Id", State: "usable"}}
	if diff := cmp.Diff(wantKeys, r.Keys[:1]); diff != "" {
		t.Error(diff)
	}
	wantTimes := []explain.TimestampFound{
		{Place: "header X-Svc-Timestamp", Text: at, Format: "RFC 3339", Time: received.Add(-time.Second)},
		{Place: "header Date", Text: "Sat, 31 Jan 2026 12:00:01 GMT", Format: "RFC 1123", Time: received},
	}
	if diff := cmp.Diff(wantTimes, r.Timestamps[:2], cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Error(diff)
	}
	wantSignatures := []explain.SignatureFound{{Place: "header X-Svc-Signature", Encoding: "base64url", Bytes: 256,
		MadeBy: c.key.ID}}
	if diff := cmp.Diff(wantSignatures, r.Signatures); diff != "" {
		t.Error(diff)
	}
}
