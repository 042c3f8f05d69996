package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"uuid"

	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

// The rules of events/rules that the checks need.
const (
	Released       = "released"
	euro           = "euro"
	needsAttention = "needs-attention"
	// OtherBus is the queue behind the bus that the consumer sends events to.
	OtherBus = "other-bus"
)

// Rules returns the rules that the consumer must deploy.
func Rules() []string { return []string{Released, euro, needsAttention} }

// The topics of the results.
const (
	ofDeliveries   = "Deliveries, duplicates and rules"
	ofProofs       = "Signatures, timestamps and key ids"
	ofCertificates = "Client certificates"
	ofRequests     = "Requests that are not valid"
	ofParked       = "What is parked, and large events"
	ofConsumer     = "The consumer's function"
	ofToken        = "The access token"
	ofDirect       = "The function invoked past the endpoint"
)

// answer is the expected answer to a webhook.
type answer struct {
	status int
	body   string // a part of the compact body
	header string // one that it must have
	byAWS  bool   // AWS answers, and the function does not run
	none   bool   // the connection must fail, or AWS answers 403
}

// right reports whether an answer is the expected one.
func (want answer) right(got paymenttest.Answer, err error) bool {
	if want.none {
		return err != nil || got.Status == http.StatusForbidden
	}
	kind := "application/problem+json"
	if want.status < 300 || want.byAWS {
		kind = "application/json"
	}
	return err == nil && got.Status == want.status && strings.Contains(compact(got.Body), want.body) &&
		(want.header == "" || got.Header.Get(want.header) != "") &&
		strings.HasPrefix(got.Header.Get("Content-Type"), kind)
}

// webhook returns a check that sends a webhook. All answers 401 must have the same body.
func (s *Scenario) webhook(what string, w paymenttest.Webhook, want answer, arrivals map[string]int) *Check {
	c := &Check{What: what, Expected: strconv.Itoa(want.status), ExpectedArrived: arrivals, payload: w.Payload}
	if want.none {
		c.Expected = "no connection"
	}
	c.Do = func(ctx context.Context) (string, bool, error) {
		w.URL = s.WebhookURL
		got, err := s.Service.Sender().Send(ctx, w)
		right := want.right(got, err)
		if want.status == http.StatusUnauthorized && err == nil {
			if s.rejection == "" {
				s.rejection = string(got.Body)
			}
			right = right && s.rejection == string(got.Body)
		}
		switch {
		case want.none && right:
			return c.Expected, true, nil
		case err != nil:
			return "", false, err
		}
		return strconv.Itoa(got.Status) + summary(got.Body), right, nil
	}
	return c
}

// before returns a check that does something first.
func before(first func(context.Context) error, c *Check) *Check {
	do := c.Do
	c.Do = func(ctx context.Context) (string, bool, error) {
		if err := first(ctx); err != nil {
			return "", false, err
		}
		return do(ctx)
	}
	return c
}

// published is the answer to an accepted delivery.
func (s *Scenario) published(recorded, duplicates int) answer {
	return answer{status: s.successStatus(), body: fmt.Sprintf(`"recorded":%d,"duplicates":%d}`, recorded, duplicates)}
}

// accepted returns a check of a webhook with one new released payment.
func (s *Scenario) accepted(what string, w paymenttest.Webhook) *Check {
	return s.webhook(what, w, s.published(1, 0), map[string]int{Released: 1})
}

// rejected returns a check of a webhook that is not authentic.
func (s *Scenario) rejected(what string, w paymenttest.Webhook) *Check {
	return s.webhook(what, w, answer{status: http.StatusUnauthorized}, nil)
}

// Webhooks returns the checks that send a webhook. Some depend on earlier ones.
func (s *Scenario) Webhooks() []*Check {
	limit, _ := strconv.Atoi(s.Setting(settings.MaxPayloadBytes))
	with := func(change func(*payment.Event)) paymenttest.Webhook {
		e := paymenttest.Event()
		change(&e)
		return deliver(e)
	}
	arrive := func(n int) map[string]int { return map[string]int{Released: n} }
	one := paymenttest.Event()
	many := raw(paymenttest.Delivery(paymenttest.Events(25)...))
	half := paymenttest.Events(10)
	altered := one
	altered.EventData.Amount = "9250.00"
	large := raw(paymenttest.RawDelivery(uuid.New().String(), padded(300_000)))
	unnamed := paymenttest.Event()
	unnamed.EventName = "RELEASED"
	attention := map[string]int{needsAttention: 1}
	if s.Queues[OtherBus] != "" {
		attention[OtherBus] = 1
	}
	both := maps.Clone(attention)
	both[Released] = 1

	checks := about(ofDeliveries,
		s.accepted("one event", deliver(one)),
		s.webhook("25 events in one delivery", many, s.published(25, 0), arrive(25)),
		s.webhook("the same 25 again", many, s.published(0, 25), nil),
		s.webhook("5 events", deliver(half[:5]...), s.published(5, 0), arrive(5)),
		s.webhook("those 5 and 5 new ones", deliver(half...), s.published(5, 5), arrive(5)),
		s.webhook("a known eventId, another amount", deliver(altered),
			answer{status: s.successStatus(), body: `"conflicts":1`}, nil),
		s.accepted("an event of 300,000 bytes", large),
		s.accepted("1,000,000.00 USD", with(func(e *payment.Event) { e.EventData.Amount = "1000000.00" })),
		s.webhook("1,234,567,890.10 EUR", with(func(e *payment.Event) {
			e.EventData.Amount, e.EventData.PaymentCurrency = "1234567890.10", "EUR"
		}), s.published(1, 0), map[string]int{Released: 1, euro: 1}),
		s.webhook("one with return details",
			with(func(e *payment.Event) { e.EventData.Returns.HasReturnDetails = true }), s.published(1, 0), both),
		s.webhook("one with linked cases, of another name", with(func(e *payment.Event) {
			e.EventName, e.EventData.Cases.HasLinkedCases = "PAYMENT_STATUS.OTHER", true
		}), s.published(1, 0), attention),
		s.webhook("one that no rule is for",
			with(func(e *payment.Event) { e.EventName = "PAYMENT_STATUS.OTHER" }), s.published(1, 0), nil),
	)
	if UsesSignature(s.Settings) {
		checks = append(checks, s.signatureChecks()...)
	}
	if UsesMTLS(s.Settings) {
		checks = append(checks, s.certificateChecks()...)
	}
	// Function URLs of AWS reject methods that they do not know. An HTTP API has no route for
	// another method.
	wrongMethod, patch := answer{status: http.StatusMethodNotAllowed, header: "Allow"}, deliver(paymenttest.Event())
	if s.Setting(settings.DomainName) != "" {
		wrongMethod = answer{status: http.StatusNotFound, byAWS: true}
	}
	patch.Method = http.MethodPatch
	tooLarge := s.webhook("more than Lambda takes", raw(bytes.Repeat([]byte(" "), LambdaLimit)),
		answer{status: http.StatusRequestEntityTooLarge, byAWS: true}, nil)
	tooLarge.Needs = []Need{LambdaLimits}
	checks = append(checks, about(ofRequests,
		s.webhook("not JSON, but signed", raw([]byte("released")),
			answer{status: http.StatusUnprocessableEntity, body: "payload"}, nil),
		s.webhook("an event without GROUP.STATUS", deliver(unnamed),
			answer{status: http.StatusUnprocessableEntity, body: "eventName"}, nil),
		s.webhook("wrong method", patch, wrongMethod, nil),
		s.webhook("nothing", raw(nil), answer{status: http.StatusBadRequest}, nil),
		tooLarge)...)
	// A part of an event of Lambda is not the payload.
	if limit < LambdaLimit-10_000 {
		checks = append(checks, about(ofRequests, s.webhook("more than is allowed",
			raw(bytes.Repeat([]byte(" "), limit+1)), answer{status: http.StatusRequestEntityTooLarge}, nil))...)
	}
	return checks
}

// signatureChecks returns the checks of a new key and of every flaw of a proof.
func (s *Scenario) signatureChecks() []*Check {
	var checks []*Check
	_, static := signature.StaticKeyID(s.Setting(settings.KeyIDCarrier))
	for _, flaw := range paymenttest.Flaws() {
		if static && strings.HasPrefix(string(flaw), "keyid") {
			continue
		}
		w := deliver(paymenttest.Event())
		w.Flaw = flaw
		checks = append(checks, s.rejected(flawNames[flaw], w))
	}
	if text := s.Setting(settings.TimestampTolerance); text != settings.Off {
		tolerance, _ := settings.ParseDuration(text)
		old, early := deliver(paymenttest.Event()), deliver(paymenttest.Event())
		old.Age, early.Age = tolerance+time.Minute, -tolerance-time.Minute
		checks = append(checks, s.rejected("timestamp too old", old), s.rejected("timestamp in the future", early))
	}
	rotated := before(s.Service.Rotate, s.accepted("one signed with a new key", deliver(paymenttest.Event())))
	return append(about(ofDeliveries, rotated), about(ofProofs, checks...)...)
}

// LambdaLimit is the size in bytes of the smallest event that Lambda rejects (see
// emulator/ministack/lambda_payload_size.py).
const LambdaLimit = 6 << 20

var flawNames = map[paymenttest.Flaw]string{
	paymenttest.SignatureChanged:   "forged: one bit of the signature",
	paymenttest.PayloadChanged:     "forged: one bit of the payload",
	paymenttest.TimestampChanged:   "forged: the timestamp",
	paymenttest.KeyIDChanged:       "forged: the key id",
	paymenttest.WrongKey:           "forged: signed with another key",
	paymenttest.UnknownKey:         "key unknown to the service",
	paymenttest.SignatureMissing:   "signature missing",
	paymenttest.SignatureMalformed: "signature malformed",
	paymenttest.SignatureRepeated:  "signature twice",
	paymenttest.TimestampMissing:   "timestamp missing",
	paymenttest.TimestampMalformed: "timestamp malformed",
	paymenttest.TimestampRepeated:  "timestamp twice",
	paymenttest.KeyIDMissing:       "key id missing",
	paymenttest.KeyIDMalformed:     "key id malformed",
	paymenttest.KeyIDRepeated:      "key id twice",
}

func deliver(events ...payment.Event) paymenttest.Webhook {
	return raw(paymenttest.Delivery(events...))
}

func raw(payload []byte) paymenttest.Webhook { return paymenttest.Webhook{Payload: payload} }

// padded returns an event that is longer by size bytes.
func padded(size int) []byte {
	event := paymenttest.Encode(paymenttest.Event())
	return fmt.Appendf(event[:len(event)-1], `,"note":"%s"}`, strings.Repeat("x", size))
}

// Send does checks of webhooks, and waits until what they publish has arrived.
func (s *Scenario) Send(ctx context.Context, in *Arrivals, checks []*Check) error {
	if err := s.Run(ctx, checks...); err != nil {
		return err
	}
	// When this event has arrived behind every rule, the events before it have, too.
	last := paymenttest.Event()
	last.EventData.Amount, last.EventData.PaymentCurrency, last.EventData.Cases.HasLinkedCases = "1000000.00", "EUR",
		true
	if _, err := s.post(ctx, paymenttest.Delivery(last)); err != nil {
		return err
	}
	all, err := in.Await(ctx, s.within(20*time.Second), func(all []Arrival) bool {
		attribute(checks, all)
		ends := 0
		for _, a := range all {
			if a.EventID == last.EventID {
				ends++
			}
		}
		return ends >= len(s.Queues) && !slices.ContainsFunc(checks, (*Check).incomplete)
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		s.Progress.Say("%v", err)
	}
	attribute(checks, all)
	for _, c := range checks {
		c.Right = c.Right && maps.Equal(c.Arrived, c.ExpectedArrived)
	}
	return nil
}

// attribute counts what has arrived for each check. If several checks sent one event, its first
// arrival behind a rule belongs to the first check, its second to the second, and so on.
func attribute(checks []*Check, all []Arrival) {
	senders := map[string][]*Check{} // by eventId
	for _, c := range checks {
		c.Arrived = map[string]int{}
		delivery, err := payment.DecodeDelivery(c.payload)
		if err != nil {
			continue
		}
		for _, e := range delivery.Events {
			senders[e.EventID] = append(senders[e.EventID], c)
		}
	}
	seen := map[string]int{}
	for _, a := range all {
		if by := senders[a.EventID]; len(by) > 0 {
			key := a.Rule + " " + a.EventID
			by[min(seen[key], len(by)-1)].Arrived[a.Rule]++
			seen[key]++
		}
	}
}

// incomplete reports whether an expected event of the check has not arrived.
func (c *Check) incomplete() bool {
	for rule, n := range c.ExpectedArrived {
		if c.NotShown == "" && c.Arrived[rule] < n {
			return true
		}
	}
	return false
}

func compact(body []byte) string {
	var out bytes.Buffer
	if json.Compact(&out, body) != nil {
		return string(body)
	}
	return out.String()
}
