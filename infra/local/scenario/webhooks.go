package scenario

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
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

// answer is the expected answer to a webhook.
type answer struct {
	status int
	body   string // a part of the compact body
	header string // one that it must have
	byAWS  bool   // AWS answers, and the function does not run
	none   bool   // the connection must fail, or AWS answers 403
}

// right reports whether an answer with the expected status is right in all other respects.
func (want answer) right(got paymenttest.Answer) bool {
	var body bytes.Buffer
	if json.Compact(&body, got.Body) != nil {
		body.Write(got.Body)
	}
	kind := "application/problem+json"
	if want.status < 300 || want.byAWS {
		kind = "application/json"
	}
	return strings.Contains(body.String(), want.body) && (want.header == "" || got.Header.Get(want.header) != "") &&
		strings.HasPrefix(got.Header.Get("Content-Type"), kind)
}

// webhook returns a check that sends a webhook, of which something arrives behind rules. All
// answers 401 must have the same body.
func (s *Scenario) webhook(what string, w paymenttest.Webhook, want answer, arrives string) *Check {
	c := &Check{What: what, Expected: strconv.Itoa(want.status) + arrived(arrives), payload: w.Payload,
		arrives: arrives}
	if want.none {
		c.Expected = "no connection"
	}
	c.Do = func(ctx context.Context) string {
		w.URL = s.WebhookURL
		got, err := s.Service.Sender().Send(ctx, w)
		if want.none && (err != nil || got.Status == http.StatusForbidden) {
			return c.Expected
		}
		Require(err)
		if got.Status == http.StatusUnauthorized {
			s.rejection = cmp.Or(s.rejection, string(got.Body))
			if s.rejection != string(got.Body) {
				return "401, and another body than before: " + summary(got.Body)
			}
		}
		if got.Status == want.status && !want.right(got) {
			return fmt.Sprintf("%d, and another body or header: %s", got.Status, summary(got.Body))
		}
		return strconv.Itoa(got.Status) + "; " + summary(got.Body)
	}
	return c
}

// published is the answer to an accepted delivery.
func (s *Scenario) published(recorded, duplicates int) answer {
	return answer{status: s.successStatus(), body: fmt.Sprintf(`"recorded":%d,"duplicates":%d}`, recorded, duplicates)}
}

// accepted returns a check of a webhook with one new released payment.
func (s *Scenario) accepted(what string, w paymenttest.Webhook) *Check {
	return s.webhook(what, w, s.published(1, 0), Released+":1")
}

// rejected returns a check of a webhook that is not authentic.
func (s *Scenario) rejected(what string, w paymenttest.Webhook) *Check {
	return s.webhook(what, w, answer{status: http.StatusUnauthorized}, "")
}

// webhooks returns the checks that send a webhook. Some depend on earlier ones.
func (s *Scenario) webhooks() []Section {
	limit, _ := strconv.Atoi(s.Setting(settings.MaxPayloadBytes))
	with := func(change func(*payment.Event)) paymenttest.Webhook {
		e := paymenttest.Event()
		change(&e)
		return deliver(e)
	}
	one := paymenttest.Event()
	many := raw(paymenttest.Delivery(paymenttest.Events(25)...))
	half := paymenttest.Events(10)
	altered := one
	altered.EventData.Amount = "9250.00"
	large := raw(paymenttest.RawDelivery(uuid.New().String(), padded(paymenttest.Event(), 300_000)))
	unnamed := paymenttest.Event()
	unnamed.EventName = "RELEASED"
	const attention = needsAttention + ":1 " + OtherBus + ":1"

	sections := []Section{{"Deliveries, duplicates and rules", []*Check{
		s.accepted("one event", deliver(one)),
		s.webhook("25 events in one delivery", many, s.published(25, 0), Released+":25"),
		s.webhook("the same 25 again", many, s.published(0, 25), ""),
		s.webhook("5 events", deliver(half[:5]...), s.published(5, 0), Released+":5"),
		s.webhook("those 5 and 5 new ones", deliver(half...), s.published(5, 5), Released+":5"),
		s.webhook("a known eventId, another amount", deliver(altered),
			answer{status: s.successStatus(), body: `"conflicts":1`}, ""),
		s.accepted("an event of 300,000 bytes", large),
		s.accepted("1,000,000.00 USD", with(func(e *payment.Event) { e.EventData.Amount = "1000000.00" })),
		s.webhook("1,234,567,890.10 EUR", with(func(e *payment.Event) {
			e.EventData.Amount, e.EventData.PaymentCurrency = "1234567890.10", "EUR"
		}), s.published(1, 0), euro+":1 "+Released+":1"),
		s.webhook("one with return details",
			with(func(e *payment.Event) { e.EventData.Returns.HasReturnDetails = true }), s.published(1, 0),
			attention+" "+Released+":1"),
		s.webhook("one with linked cases, of another name", with(func(e *payment.Event) {
			e.EventName, e.EventData.Cases.HasLinkedCases = "PAYMENT_STATUS.OTHER", true
		}), s.published(1, 0), attention),
		s.webhook("one that no rule is for",
			with(func(e *payment.Event) { e.EventName = "PAYMENT_STATUS.OTHER" }), s.published(1, 0), ""),
	}}}
	if UsesSignature(s.Settings) {
		sections[0].Checks = append(sections[0].Checks, s.rotated())
		sections = append(sections, Section{"Signatures, timestamps and key ids", s.signatureChecks()})
	}
	if UsesMTLS(s.Settings) {
		sections = append(sections, Section{"Client certificates", s.certificateChecks()})
	}
	// Function URLs of AWS reject methods that they do not know. An HTTP API has no route for
	// another method.
	wrongMethod, patch := answer{status: http.StatusMethodNotAllowed, header: "Allow"}, deliver(paymenttest.Event())
	if s.Setting(settings.DomainName) != "" {
		wrongMethod = answer{status: http.StatusNotFound, byAWS: true}
	}
	patch.Method = http.MethodPatch
	invalid := []*Check{
		s.webhook("not JSON, but signed", raw([]byte("released")),
			answer{status: http.StatusUnprocessableEntity, body: "payload"}, ""),
		s.webhook("an event without GROUP.STATUS", deliver(unnamed),
			answer{status: http.StatusUnprocessableEntity, body: "eventName"}, ""),
		s.webhook("wrong method", patch, wrongMethod, ""),
		s.webhook("nothing", raw(nil), answer{status: http.StatusBadRequest}, ""),
		s.webhook("more than Lambda takes", raw(bytes.Repeat([]byte(" "), lambdaLimit)),
			answer{status: http.StatusRequestEntityTooLarge, byAWS: true}, ""),
	}
	// A part of an event of Lambda is not the payload.
	if limit < lambdaLimit-10_000 {
		invalid = append(invalid, s.webhook("more than is allowed", raw(bytes.Repeat([]byte(" "), limit+1)),
			answer{status: http.StatusRequestEntityTooLarge}, ""))
	}
	return append(sections, Section{"Requests that are not valid", invalid})
}

// rotated returns a check of a webhook that is signed with a new key.
func (s *Scenario) rotated() *Check {
	c := s.accepted("one signed with a new key", deliver(paymenttest.Event()))
	send := c.Do
	c.Do = func(ctx context.Context) string {
		Require(s.Service.Rotate(ctx))
		return send(ctx)
	}
	return c
}

// signatureChecks returns the checks of every flaw of a proof.
func (s *Scenario) signatureChecks() []*Check {
	var checks []*Check
	_, static := signature.StaticKeyID(s.Setting(settings.KeyIDCarrier))
	for _, flaw := range paymenttest.Flaws() {
		if static && strings.HasPrefix(string(flaw), "keyid") {
			continue
		}
		w := deliver(paymenttest.Event())
		w.Flaw = flaw
		checks = append(checks, s.rejected("flawed proof: "+strings.ReplaceAll(string(flaw), "-", " "), w))
	}
	if text := s.Setting(settings.TimestampTolerance); text != "off" {
		tolerance, _ := settings.ParseDuration(text)
		old, early := deliver(paymenttest.Event()), deliver(paymenttest.Event())
		old.Age, early.Age = tolerance+time.Minute, -tolerance-time.Minute
		checks = append(checks, s.rejected("timestamp too old", old), s.rejected("timestamp in the future", early))
	}
	return checks
}

// lambdaLimit is the size in bytes of the smallest event that Lambda rejects (see
// emulator/ministack/lambda_payload_size.py).
const lambdaLimit = 6 << 20

func deliver(events ...payment.Event) paymenttest.Webhook {
	return raw(paymenttest.Delivery(events...))
}

func raw(payload []byte) paymenttest.Webhook { return paymenttest.Webhook{Payload: payload} }

// padded returns an event that is longer by size bytes.
func padded(e payment.Event, size int) []byte {
	event := paymenttest.Encode(e)
	return fmt.Appendf(event[:len(event)-1], `,"note":"%s"}`, strings.Repeat("x", size))
}

// send does checks of webhooks, and waits until what they publish has arrived.
func (s *Scenario) send(ctx context.Context, in *Arrivals, checks []*Check) error {
	if err := s.Run(ctx, checks...); err != nil {
		return err
	}
	// When this event has arrived behind every rule, the events before it have, too.
	last := paymenttest.Event()
	last.EventData.Amount, last.EventData.PaymentCurrency, last.EventData.Cases.HasLinkedCases = "1000000.00", "EUR",
		true
	if _, err := s.Service.Sender().Send(ctx, paymenttest.Webhook{URL: s.WebhookURL,
		Payload: paymenttest.Delivery(last)}); err != nil {
		return err
	}
	all, err := in.Await(ctx, s.within(20*time.Second), func(all []Arrival) bool {
		got, ends := arrivedOf(checks, all), 0
		for _, a := range all {
			if a.EventID == last.EventID {
				ends++
			}
		}
		return ends >= len(s.Queues) &&
			!slices.ContainsFunc(checks, func(c *Check) bool { return got[c] != c.arrives })
	})
	if err != nil {
		s.Progress.Say("%v", err)
	}
	for c, text := range arrivedOf(checks, all) {
		c.judge(strings.Replace(c.Got, "; ", arrived(text)+"; ", 1))
	}
	return ctx.Err()
}

// arrived is the text of what arrived.
func arrived(text string) string {
	if text == "" {
		return ""
	}
	return ", arrived " + text
}

// arrivedOf returns how many events arrived behind each rule for each check, as text. What arrives
// for a delivery belongs to the first check that sent it.
func arrivedOf(checks []*Check, all []Arrival) map[*Check]string {
	senders, counts := map[string]*Check{}, map[*Check]map[string]int{} // senders by deliveryId
	for _, c := range slices.Backward(checks) {
		counts[c] = map[string]int{}
		if delivery, err := payment.DecodeDelivery(c.payload); err == nil {
			senders[delivery.DeliveryID] = c
		}
	}
	for _, a := range all {
		if sender := senders[a.DeliveryID]; sender != nil {
			counts[sender][a.Rule]++
		}
	}
	texts := map[*Check]string{}
	for c, byRule := range counts {
		texts[c] = strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(byRule), "map["), "]")
	}
	return texts
}

// summary returns a short form of the body of an answer.
func summary(body []byte) string {
	var b struct {
		Recorded, Duplicates *int
		Conflicts            int
		Detail, Message      string // Message is AWS's
	}
	if json.Unmarshal(body, &b) != nil || b.Recorded == nil || b.Duplicates == nil {
		return b.Detail + b.Message
	}
	text := fmt.Sprintf("%d new, %d known", *b.Recorded, *b.Duplicates)
	if b.Conflicts > 0 {
		text += fmt.Sprintf(", %d in conflict: parked, not published", b.Conflicts)
	}
	return text
}
