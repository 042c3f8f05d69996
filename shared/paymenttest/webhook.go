package paymenttest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"uuid"

	"payhook.example/shared/payment"
	"payhook.example/shared/signature"
	"payhook.example/shared/wire"
)

// Webhook is one call of a client's URL (section 4.3). The comment of each field ends with its default, which replaces
// the zero value.
type Webhook struct {
	URL         string
	Method      string // POST
	Payload     []byte
	ContentType string      // application/json
	Header      http.Header // further headers; none

	Age         time.Duration        // of the timestamp; with a negative one it is in the future
	Flaw        wire.Flaw            // of the proof; none
	Certificate wire.CertificateFlaw // of the client certificate, for senders with an Identity; none
}

// The flaws.
const (
	SignatureChanged wire.Flaw = "signature" // one bit of the signature
	PayloadChanged   wire.Flaw = "payload"   // one bit of the payload, after it was signed
	TimestampChanged wire.Flaw = "timestamp" // the timestamp, after it was signed
	KeyIDChanged     wire.Flaw = "keyid"     // the key id, after it was signed

	WrongKey   wire.Flaw = "wrong-key"   // signed by another key than the one it names
	UnknownKey wire.Flaw = "unknown-key" // signed by a key that was never published

	SignatureMissing  wire.Flaw = "signature-missing"
	SignatureRepeated wire.Flaw = "signature-repeated"
	TimestampRepeated wire.Flaw = "timestamp-repeated"
	KeyIDRepeated     wire.Flaw = "keyid-repeated"
)

// Flaws returns all flaws.
func Flaws() []wire.Flaw {
	return []wire.Flaw{SignatureChanged, PayloadChanged, TimestampChanged, KeyIDChanged, WrongKey, UnknownKey,
		SignatureMissing, SignatureRepeated, TimestampRepeated, KeyIDRepeated}
}

// Answer is the answer of a client's URL.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // the first MiB
}

// Sender signs webhooks with one key and sends them. The comment of each optional field ends with its default. It is
// safe for concurrent use.
type Sender struct {
	Key    Key
	Scheme signature.Scheme // DefaultScheme
	Client *http.Client     // a client with a timeout of a minute that does not follow redirects
	// Identity has the client certificates for https URLs. If it is set, Client is not used for them; none.
	Identity *Identity
}

// DefaultScheme returns the default scheme of webhooks: the headers X-SVC-Signature, X-SVC-Timestamp and X-SVC-Key-Id.
func DefaultScheme() signature.Scheme {
	return signature.Scheme{SignatureHeader: "X-SVC-Signature", Timestamp: "header:X-SVC-Timestamp",
		KeyID: "header:X-SVC-Key-Id"}
}

// Request returns the HTTP request of w.
func (s Sender) Request(ctx context.Context, w Webhook) (*http.Request, error) {
	if s.Scheme == (signature.Scheme{}) {
		s.Scheme = DefaultScheme()
	}
	part, kind, _ := strings.Cut(string(w.Flaw), "-") // the part of the proof that the flaw is about
	_, static := signature.StaticKeyID(string(s.Scheme.KeyID))
	switch {
	case w.Flaw != "" && !slices.Contains(Flaws(), w.Flaw):
		return nil, fmt.Errorf("paymenttest: unknown flaw %q; the flaws are %s", w.Flaw, Flaws())
	case static && part == "keyid":
		return nil, errors.New("paymenttest: a flaw of the key id needs a key id in the request")
	}
	payload, proof, err := s.prove(w)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, cmp.Or(w.Method, http.MethodPost), w.URL, bytes.NewReader(payload))
	if err != nil {
		return nil, err
	}
	for name, values := range w.Header {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	r.Header.Set("Content-Type", cmp.Or(w.ContentType, "application/json"))
	query := r.URL.Query()
	for _, p := range []struct{ name, location, value string }{
		{"signature", "header:" + s.Scheme.SignatureHeader, proof.Signature},
		{"timestamp", string(s.Scheme.Timestamp), proof.Timestamp}, {"keyid", string(s.Scheme.KeyID), proof.KeyID},
	} {
		values := []string{p.value}
		if p.name == part && kind == "repeated" {
			values = []string{p.value, p.value}
		}
		switch in, name, _ := strings.Cut(p.location, ":"); in {
		case "header":
			r.Header[http.CanonicalHeaderKey(name)] = values
		case "query":
			query[name] = values
			r.URL.RawQuery = query.Encode()
		}
	}
	if w.Flaw == SignatureMissing {
		r.Header.Del(s.Scheme.SignatureHeader)
	}
	return r, nil
}

// prove returns the payload of w and its proof, with the flaws of their content.
func (s Sender) prove(w Webhook) (payload []byte, proof signature.Parts, err error) {
	at, key := time.Now().Add(-w.Age), s.Key
	if w.Flaw == WrongKey || w.Flaw == UnknownKey {
		key = unknownKey()
	}
	proof = signature.Parts{Timestamp: signature.FormatTime(at), KeyID: key.ID}
	if w.Flaw == WrongKey {
		proof.KeyID = s.Key.ID
	}
	proof.Signature, err = signature.Sign(key.Private, w.Payload, proof.Timestamp, proof.KeyID)
	if err != nil {
		return nil, proof, err
	}
	payload = w.Payload
	switch w.Flaw {
	case SignatureChanged:
		raw, _ := base64.RawURLEncoding.DecodeString(proof.Signature) // Sign wrote it
		raw[len(raw)-1] ^= 1
		proof.Signature = base64.RawURLEncoding.EncodeToString(raw)
	case PayloadChanged:
		if payload = slices.Clone(payload); len(payload) == 0 {
			payload = []byte{0}
		}
		payload[len(payload)/2] ^= 1
	case TimestampChanged:
		proof.Timestamp = signature.FormatTime(at.Add(time.Second))
	case KeyIDChanged:
		proof.KeyID = uuid.New().String()
	}
	return payload, proof, nil
}

// unknownKey is a key that no service has published.
var unknownKey = sync.OnceValue(func() Key { return NewKey(2048) })

// Signed is a signed webhook as Lambda hands it to a function, with the headers of [signature.Headers].
type Signed struct {
	Payload []byte
	Headers map[string]string
	Query   string
}

// Sign returns w, which needs no URL, with its signature.
func (s Sender) Sign(ctx context.Context, w Webhook) (Signed, error) {
	w.URL = "https://hook.example/"
	r, err := s.Request(ctx, w)
	if err != nil {
		return Signed{}, err
	}
	signed := Signed{Headers: signature.Headers(r.Header), Query: r.URL.RawQuery}
	signed.Payload, err = io.ReadAll(r.Body)
	return signed, err
}

// Send sends w and returns the answer. It returns an error if w is invalid or if there was no answer.
func (s Sender) Send(ctx context.Context, w Webhook) (Answer, error) {
	r, err := s.Request(ctx, w)
	if err != nil {
		return Answer{}, err
	}
	client := cmp.Or(s.Client, sharedClient)
	switch {
	case s.Identity != nil && r.URL.Scheme == "https":
		if client, err = s.Identity.clientWith(w.Certificate); err != nil {
			return Answer{}, err
		}
	case w.Certificate != "":
		return Answer{}, errors.New("paymenttest: a certificate flaw needs an https URL and an Identity")
	}
	resp, err := client.Do(r)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return Answer{resp.StatusCode, resp.Header, body}, err
}

// sharedClient is the client of callers that set none.
var sharedClient = newClient()

func newClient() *http.Client {
	// It has no proxy, which a webhook to this machine must not use.
	transport := &http.Transport{MaxIdleConnsPerHost: 100, IdleConnTimeout: 90 * time.Second}
	return &http.Client{Transport: transport, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Event returns an event with every field of section 2 and new ids: a payment of 1250.00
// USD that was released now, with no flag set. The caller can change its fields.
func Event() payment.Event {
	now := time.Now().UTC().Truncate(time.Millisecond)
	return payment.Event{
		EventName:      "PAYMENT_STATUS.RELEASED",
		EventID:        uuid.New().String(),
		EventTimestamp: now,
		EventData: payment.Data{
			Identifiers: payment.Identifiers{
				PaymentRequestID:   "REQ-" + uuid.New().String()[:8],
				PaymentEndToEndID:  "E2E-" + uuid.New().String()[:8],
				SvcUniquePaymentID: "PAY-" + uuid.New().String()[:8],
				RailReferenceID:    jsontext.Value(`{}`),
				SvcPostingIDs:      []string{"POST-" + uuid.New().String()[:8], "POST-" + uuid.New().String()[:8]},
			},
			PaymentExecutedValueDate: now.Format(time.DateOnly),
			Amount:                   "1250.00",
			AmountType:               "PAYMENT",
			PaymentCurrency:          "USD",
			PaymentStatus:            payment.PaymentStatus{Status: "RELEASED", StatusTime: now},
		},
	}
}

// Events returns n events of [Event].
func Events(n int) []payment.Event {
	events := make([]payment.Event, n)
	for i := range events {
		events[i] = Event()
	}
	return events
}

// WithAmount returns e with another amount, which is a conflict if e was sent.
func WithAmount(e payment.Event, amount payment.Amount) payment.Event {
	e.EventData.Amount = amount
	return e
}

// Nameless returns an event without eventId, which is invalid.
func Nameless() payment.Event {
	e := Event()
	e.EventID = ""
	return e
}

// Noted returns e in JSON, with a further member note of a size in bytes.
func Noted(e payment.Event, size int) []byte {
	text := Encode(e)
	return fmt.Appendf(text[:len(text)-1], `,"note":"%s"}`, strings.Repeat("x", size))
}

// NotJSON returns a payload that is no delivery.
func NotJSON() []byte { return []byte("released") }

// InvocationBytes is the size of the smallest event in bytes that Lambda rejects (AWS, "Lambda quotas").
const InvocationBytes = 6 << 20

// TooLarge returns a payload that Lambda rejects.
func TooLarge() []byte { return bytes.Repeat([]byte(" "), InvocationBytes) }

// Encode returns an event as the service sends it. Times have milliseconds (section 2.3),
// and amounts keep their digits. It panics if the amount is not a JSON number.
func Encode(e payment.Event) []byte {
	text, err := json.Marshal(e, json.WithMarshalers(json.MarshalFunc(func(t time.Time) ([]byte, error) {
		return []byte(t.UTC().Format(`"2006-01-02T15:04:05.000Z"`)), nil
	})))
	if err != nil {
		panic(fmt.Sprintf("paymenttest: %v", err))
	}
	return text
}

// Delivery returns the payload of a delivery of events with a new id (section 2.2).
func Delivery(events ...payment.Event) []byte {
	encoded := make([][]byte, len(events))
	for i, e := range events {
		encoded[i] = Encode(e)
	}
	return RawDelivery(uuid.New().String(), encoded...)
}

// RawDelivery returns the payload of a delivery of events in JSON. It does not check or change their bytes.
func RawDelivery(id string, events ...[]byte) []byte {
	return fmt.Appendf(nil, `{"deliveryId":"%s","events":[%s]}`, id, bytes.Join(events, []byte(",")))
}
