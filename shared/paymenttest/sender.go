package paymenttest

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"uuid"

	"payhook.example/shared/signature"
)

// Webhook is one call of a client's URL (section 4.3). Its zero values stand
// for what the service does normally.
type Webhook struct {
	URL         string `json:"url"`
	Method      string `json:"method,omitempty"` // the sender's
	Payload     []byte `json:"payload"`
	ContentType string `json:"contentType,omitempty"` // application/json
	// Header holds further headers; none.
	Header http.Header `json:"header,omitempty"`

	// Age is how old the timestamp is; a negative one lies in the future.
	Age time.Duration `json:"age,omitempty"`
	// Flaw is what is wrong with its proof; nothing.
	Flaw Flaw `json:"flaw,omitempty"`
	// Certificate is what is wrong with the client certificate; nothing. It is for
	// senders with an Identity.
	Certificate CertificateFlaw `json:"certificate,omitempty"`
}

// Flaw is one thing that is wrong with the proof of a webhook that is right in
// everything else.
type Flaw string

// The flaws.
const (
	SignatureChanged Flaw = "signature" // one bit of the signature
	PayloadChanged   Flaw = "payload"   // one bit of the payload, after it was signed
	TimestampChanged Flaw = "timestamp" // the timestamp, after it was signed
	KeyIDChanged     Flaw = "keyid"     // the key id, after it was signed

	WrongKey   Flaw = "wrong-key"   // signed by another key than it says
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

// Flaws returns all flaws. A receiver must take a webhook with any of them for
// not authentic.
func Flaws() []Flaw {
	return []Flaw{
		SignatureChanged, PayloadChanged, TimestampChanged, KeyIDChanged, WrongKey, UnknownKey,
		SignatureMissing, SignatureMalformed, SignatureRepeated,
		TimestampMissing, TimestampMalformed, TimestampRepeated,
		KeyIDMissing, KeyIDMalformed, KeyIDRepeated,
	}
}

// Answer is what a client's URL answered.
type Answer struct {
	Status int         `json:"status"`
	Header http.Header `json:"header"`
	Body   []byte      `json:"body"` // its first MiB
}

// Sender signs webhooks with one key and sends them. It is safe for concurrent
// use.
type Sender struct {
	Key    Key
	Scheme signature.Scheme // the zero Scheme stands for DefaultScheme
	Format signature.Format // RFC 3339 with milliseconds
	Method string           // POST
	Client *http.Client     // one with a timeout of a minute that follows no redirect
	// Identity has the client certificates for https URLs; nil for none. Client does
	// not send to them then.
	Identity *Identity
	Now      func() time.Time // time.Now
}

// Request returns the HTTP request that is w.
func (s Sender) Request(ctx context.Context, w Webhook) (*http.Request, error) {
	if s.Scheme == (signature.Scheme{}) {
		s.Scheme = DefaultScheme()
	}
	now := time.Now
	if s.Now != nil {
		now = s.Now
	}
	key, named := s.Key, s.Key.ID
	switch w.Flaw {
	case WrongKey:
		key = strangersKey()
	case UnknownKey:
		key = strangersKey()
		named = key.ID
	}
	at := now().Add(-w.Age)
	proof := signature.Proof{Timestamp: s.Format.Text(at), KeyID: named}
	var err error
	if proof.Signature, err = signature.Sign(key.Private, w.Payload, proof.Timestamp, proof.KeyID); err != nil {
		return nil, err
	}

	payload := w.Payload
	switch w.Flaw {
	case SignatureChanged:
		proof.Signature = changeSignature(proof.Signature)
	case PayloadChanged:
		payload = changePayload(payload)
	case TimestampChanged:
		proof.Timestamp = s.Format.Text(at.Add(time.Second))
	case KeyIDChanged:
		proof.KeyID = uuid.New().String()
	case SignatureMalformed:
		proof.Signature = "*" + proof.Signature[1:]
	case TimestampMalformed:
		proof.Timestamp = "yesterday"
	case KeyIDMalformed:
		proof.KeyID = "../" + proof.KeyID
	}

	r, err := http.NewRequestWithContext(ctx, or(w.Method, or(s.Method, http.MethodPost)), w.URL, bytes.NewReader(payload))
	if err != nil {
		return nil, err
	}
	for name, values := range w.Header {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	r.Header.Set("Content-Type", or(w.ContentType, "application/json"))
	s.Scheme.Attach(r, proof)
	signatureCarrier := "header:" + s.Scheme.SignatureHeader
	switch w.Flaw {
	case SignatureMissing:
		return r, drop(r, signatureCarrier)
	case SignatureRepeated:
		return r, repeat(r, signatureCarrier)
	case TimestampMissing:
		return r, drop(r, s.Scheme.Timestamp.String())
	case TimestampRepeated:
		return r, repeat(r, s.Scheme.Timestamp.String())
	case KeyIDMissing:
		return r, drop(r, s.Scheme.KeyID.String())
	case KeyIDRepeated:
		return r, repeat(r, s.Scheme.KeyID.String())
	case KeyIDChanged, KeyIDMalformed:
		return r, carried(s.Scheme.KeyID.String())
	}
	if w.Flaw != "" && !slices.Contains(Flaws(), w.Flaw) {
		return nil, fmt.Errorf("paymenttest: no flaw %q", w.Flaw)
	}
	return r, nil
}

// Send sends w and returns what was answered. It fails only if there was no
// answer.
func (s Sender) Send(ctx context.Context, w Webhook) (Answer, error) {
	r, err := s.Request(ctx, w)
	if err != nil {
		return Answer{}, err
	}
	client := s.Client
	if client == nil {
		client = newClient()
	}
	switch {
	case s.Identity != nil && r.URL.Scheme == "https":
		if client, err = s.Identity.client(w.Certificate); err != nil {
			return Answer{}, err
		}
	case w.Certificate != "":
		return Answer{}, errors.New("paymenttest: no certificate is presented there, so it can't be wrong")
	}
	resp, err := client.Do(r)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return Answer{resp.StatusCode, resp.Header, body}, err
}

// Sender returns one that signs with the key that signs at present.
func (s *Server) Sender() Sender {
	sender := s.sender
	sender.Key = s.Key()
	return sender
}

// Send sends w, signed with the key that signs at present, and returns what was
// answered. It fails only if there was no answer.
func (s *Server) Send(ctx context.Context, w Webhook) (Answer, error) {
	return s.Sender().Send(ctx, w)
}

func newClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil // a webhook of this machine stays on this machine
	transport.MaxIdleConnsPerHost = 100
	return &http.Client{
		Transport:     transport,
		Timeout:       time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// strangersKey is a key that no service knows.
var strangersKey = sync.OnceValue(func() Key { return NewKey(2048) })

// changeSignature flips one bit, and leaves the text canonical.
func changeSignature(text string) string {
	sig, _ := base64.RawURLEncoding.DecodeString(text)
	sig[len(sig)-1] ^= 1
	return base64.RawURLEncoding.EncodeToString(sig)
}

func changePayload(payload []byte) []byte {
	if len(payload) == 0 {
		return []byte{' '}
	}
	changed := slices.Clone(payload)
	changed[len(changed)/2] ^= 1
	return changed
}

func drop(r *http.Request, carrier string) error {
	kind, name, _ := strings.Cut(carrier, ":")
	switch kind {
	case "header":
		r.Header.Del(name)
	case "query":
		query := r.URL.Query()
		query.Del(name)
		r.URL.RawQuery = query.Encode()
	}
	return carried(carrier)
}

func repeat(r *http.Request, carrier string) error {
	kind, name, _ := strings.Cut(carrier, ":")
	switch kind {
	case "header":
		r.Header.Add(name, r.Header.Get(name))
	case "query":
		query := r.URL.Query()
		query.Add(name, query.Get(name))
		r.URL.RawQuery = query.Encode()
	}
	return carried(carrier)
}

var errNotCarried = errors.New("paymenttest: the key id does not travel, so it can't be wrong")

func carried(carrier string) error {
	if strings.HasPrefix(carrier, "static:") {
		return errNotCarried
	}
	return nil
}
