package paymenttest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"uuid"

	"payhook.example/shared/signature"
)

// Webhook is one call of a client's URL (section 4.3). The comment of each field ends
// with its default, which replaces the zero value.
type Webhook struct {
	URL         string `json:"url,omitempty"`
	Method      string `json:"method,omitempty"`      // POST
	Payload     []byte `json:"payload,omitempty"`     // Base64 in JSON
	ContentType string `json:"contentType,omitempty"` // application/json
	// Header holds further headers; none.
	Header http.Header `json:"header,omitempty"`

	// Age is the age of the timestamp; with a negative one it is in the future.
	Age time.Duration `json:"age,omitzero"` // in JSON like "10m"
	// Flaw is the flaw of the proof; none.
	Flaw Flaw `json:"kind,omitempty"`
	// Certificate is the flaw of the client certificate, for senders with an Identity;
	// none.
	Certificate CertificateFlaw `json:"certificate,omitempty"`
	// Locations are those of the proof; the sender's.
	Locations Locations `json:"locations,omitzero"`
}

// Flaw is a flaw of the proof of a webhook that is otherwise valid.
type Flaw string

// The flaws.
const (
	SignatureChanged Flaw = "signature" // one bit of the signature
	PayloadChanged   Flaw = "payload"   // one bit of the payload, after it was signed
	TimestampChanged Flaw = "timestamp" // the timestamp, after it was signed
	KeyIDChanged     Flaw = "keyid"     // the key id, after it was signed

	WrongKey   Flaw = "wrong-key"   // signed by another key than the one it names
	UnknownKey Flaw = "unknown-key" // signed by a key that was never published

	SignatureMissing   Flaw = "signature-missing"
	SignatureMalformed Flaw = "signature-malformed"
	SignatureRepeated  Flaw = "signature-repeated"
	TimestampMissing   Flaw = "timestamp-missing"
	TimestampMalformed Flaw = "timestamp-malformed"
	TimestampRepeated  Flaw = "timestamp-repeated"
	KeyIDMissing       Flaw = "keyid-missing"
	KeyIDMalformed     Flaw = "keyid-malformed"
	KeyIDRepeated      Flaw = "keyid-repeated"
)

// Flaws returns all flaws. A receiver must reject a webhook with any of them as not
// authentic.
func Flaws() []Flaw {
	return []Flaw{
		SignatureChanged, PayloadChanged, TimestampChanged, KeyIDChanged, WrongKey, UnknownKey,
		SignatureMissing, SignatureMalformed, SignatureRepeated,
		TimestampMissing, TimestampMalformed, TimestampRepeated,
		KeyIDMissing, KeyIDMalformed, KeyIDRepeated,
	}
}

// Answer is the answer of a client's URL.
type Answer struct {
	Status int         `json:"status"`
	Header http.Header `json:"header"`
	Body   []byte      `json:"body"` // the first MiB
}

// Sender signs webhooks with one key and sends them. The comment of each optional field
// ends with its default. It is safe for concurrent use.
type Sender struct {
	Key    Key
	Scheme signature.Scheme // DefaultScheme
	Client *http.Client     // a client with a timeout of a minute that does not follow redirects
	// Identity has the client certificates for https URLs. If it is set, Client is not
	// used for them; none.
	Identity *Identity
}

// Locations say where the signature and its parts are in a request, in the texts of
// Payhook's settings. An empty text leaves a part as it is.
type Locations struct {
	SignatureHeader string `json:"signatureHeader,omitempty"`   // NAME
	Timestamp       string `json:"timestampLocation,omitempty"` // header:NAME or query:NAME
	// KeyID is header:NAME, query:NAME, or static:UUID: the id is not sent, and the receiver
	// knows it.
	KeyID string `json:"keyIdLocation,omitempty"`
}

// With returns s with other locations. Its error names each part that is wrong.
func (s Sender) With(l Locations) (Sender, error) {
	if s.Scheme == (signature.Scheme{}) {
		s.Scheme = DefaultScheme()
	}
	var wrong []error
	set := func(part, text string, parse func() error) {
		if text == "" {
			return
		}
		if err := parse(); err != nil {
			wrong = append(wrong, fmt.Errorf("%s %s: %w", part, text, err))
		}
	}
	set("signature header", l.SignatureHeader, func() error {
		s.Scheme.SignatureHeader = l.SignatureHeader
		_, err := signature.ParseLocation("header:" + l.SignatureHeader)
		return err
	})
	set("timestamp location", l.Timestamp, func() (err error) {
		s.Scheme.Timestamp, err = signature.ParseLocation(l.Timestamp)
		return err
	})
	set("key id location", l.KeyID, func() (err error) {
		s.Scheme.KeyID, err = signature.ParseKeyIDLocation(l.KeyID)
		return err
	})
	return s, errors.Join(wrong...)
}

// Request returns the HTTP request of w.
func (s Sender) Request(ctx context.Context, w Webhook) (*http.Request, error) {
	s, err := s.With(w.Locations)
	if err != nil {
		return nil, err
	}
	// The part of the proof that a flaw is about, and where it is.
	part, kind, _ := strings.Cut(string(w.Flaw), "-")
	at := map[string]string{"signature": "header:" + s.Scheme.SignatureHeader, "timestamp": s.Scheme.Timestamp.String(),
		"keyid": s.Scheme.KeyID.String()}[part]
	switch _, static := signature.StaticKeyID(at); {
	case w.Flaw != "" && !slices.Contains(Flaws(), w.Flaw):
		return nil, fmt.Errorf("paymenttest: unknown flaw %q", w.Flaw)
	case static:
		return nil, errors.New("paymenttest: a flaw of the key id needs a key id in the request")
	}
	payload, proof, err := s.prove(w)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, cmp.Or(w.Method, http.MethodPost), w.URL,
		bytes.NewReader(payload))
	if err != nil {
		return nil, err
	}
	for name, values := range w.Header {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	r.Header.Set("Content-Type", cmp.Or(w.ContentType, "application/json"))
	s.Scheme.Attach(r, proof)
	switch kind {
	case "missing":
		edit(r, at, func(values url.Values, name string) { values.Del(name) })
	case "repeated":
		edit(r, at, func(values url.Values, name string) { values.Add(name, values.Get(name)) })
	}
	return r, nil
}

// Signed is a signed webhook as Lambda hands it to a function: names of headers are in lower case, and the
// values of a repeated header are joined by commas.
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
	signed := Signed{Headers: map[string]string{}, Query: r.URL.RawQuery}
	for name, values := range r.Header {
		signed.Headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	signed.Payload, err = io.ReadAll(r.Body)
	return signed, err
}

// prove returns the payload of w and its proof, with the flaws of their content.
func (s Sender) prove(w Webhook) (payload []byte, proof signature.Parts, err error) {
	at := time.Now().Add(-w.Age)
	key := s.Key
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
	case SignatureMalformed:
		proof.Signature = "*" + proof.Signature[1:]
	case TimestampMalformed:
		proof.Timestamp = "yesterday"
	case KeyIDMalformed:
		proof.KeyID = "../" + proof.KeyID
	}
	return payload, proof, nil
}

// Send sends w and returns the answer. It returns an error if w is invalid or if there
// was no answer.
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

// Sender returns a Sender with the current signing key.
func (s *Server) Sender() Sender {
	sender := s.sender
	sender.Key = s.Key()
	return sender
}

// Send sends w, signed with the current key, and returns the answer. It returns an error
// if w is invalid or if there was no answer. If the key id is not sent, the current key is
// published with the id that the receiver is to use.
func (s *Server) Send(ctx context.Context, w Webhook) (Answer, error) {
	sender := s.Sender()
	if id, ok := signature.StaticKeyID(w.Locations.KeyID); ok {
		sender.Key.ID = id
		s.Publish(id, sender.Key.JWK())
	}
	return sender.Send(ctx, w)
}

func newClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil // a webhook to this machine must not use a proxy
	transport.MaxIdleConnsPerHost = 100
	return &http.Client{
		Transport:     transport,
		Timeout:       time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// sharedClient is the client of callers that set none.
var sharedClient = newClient()

// unknownKey is a key that no service has published.
var unknownKey = sync.OnceValue(func() Key { return NewKey(2048) })

// edit changes a value of a request, which is at header:NAME or query:NAME.
func edit(r *http.Request, at string, change func(values url.Values, name string)) {
	kind, name, _ := strings.Cut(at, ":")
	if kind == "header" {
		change(url.Values(r.Header), http.CanonicalHeaderKey(name))
		return
	}
	query := r.URL.Query()
	change(query, name)
	r.URL.RawQuery = query.Encode()
}
