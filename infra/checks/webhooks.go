package checks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

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

// webhook returns a check that sends a webhook, of which something arrives behind rules: RULE:NUMBER, separated by
// spaces.
func (s *Scenario) webhook(what, expected, arrives string, w paymenttest.Webhook) *Check {
	if arrives != "" {
		expected += ", arrived " + arrives
	}
	return check(what, expected, func(ctx context.Context) string {
		w.URL = s.WebhookURL
		got, err := s.Sender.Send(ctx, w)
		if w.Certificate == paymenttest.NoCertificate && (err != nil || got.Status == http.StatusForbidden) {
			return fmt.Sprintf("%s; status %d", expected, got.Status)
		}
		Require(err)
		text, detail := s.describe(got)
		if arrived := s.arrived(ctx, w.Payload, arrives); arrived != "" {
			text += ", arrived " + arrived
		}
		return text + detail
	})
}

// describe returns the status of an answer with what must be right about it, and a detail. All answers 401 must
// have the same body.
func (s *Scenario) describe(got paymenttest.Answer) (text, detail string) {
	var body struct {
		Recorded, Duplicates *int
		Conflicts            int
		Detail, Message      string // Message is AWS's
	}
	kind := got.Header.Get("Content-Type")
	text, failed := fmt.Sprint(got.Status), json.Unmarshal(got.Body, &body) != nil
	if detail = cmp.Or(body.Detail, body.Message); detail != "" {
		detail = "; " + detail
	}
	switch {
	case failed || !strings.HasPrefix(kind, "application/json") && !strings.HasPrefix(kind, "application/problem+json"):
		return fmt.Sprintf("%s, and the body is %q of type %s", text, got.Body, kind), ""
	case got.Status < 300 && body.Recorded != nil && body.Duplicates != nil:
		return fmt.Sprintf("%s, %d new, %d known", text, *body.Recorded, *body.Duplicates), ""
	case strings.HasPrefix(kind, "application/json"):
		return text + " by AWS", detail
	case got.Status == http.StatusUnauthorized:
		s.rejection = cmp.Or(s.rejection, string(got.Body))
		if s.rejection != string(got.Body) {
			return text + ", and another body than before", detail
		}
	case got.Status == http.StatusMethodNotAllowed:
		return text + ", Allow: " + got.Header.Get("Allow"), detail
	}
	return text, detail
}

// arrived waits until what is expected of a delivery has arrived, and returns what has since it was sent.
func (s *Scenario) arrived(ctx context.Context, payload []byte, expected string) string {
	delivery, err := payment.DecodeDelivery(payload)
	if err != nil {
		return ""
	}
	if s.sent == nil {
		s.sent = map[string]string{}
	}
	before := s.sent[delivery.DeliveryID]
	if before != "" && expected == "" { // a duplicate
		return ""
	}
	// What has arrived at the end of the timeout says enough.
	all, _ := s.Arrivals.Await(ctx, s.Timeout, func(all []Arrival) bool {
		return byRule(all, delivery.DeliveryID) == expected
	})
	s.sent[delivery.DeliveryID] = byRule(all, delivery.DeliveryID)
	return s.sent[delivery.DeliveryID]
}

// byRule returns how many events of a delivery arrived behind each rule.
func byRule(all []Arrival, deliveryID string) string {
	counts := map[string]int{}
	for _, a := range all {
		if a.DeliveryID == deliveryID {
			counts[a.Rule]++
		}
	}
	return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(counts), "map["), "]")
}

// nothingElse returns the check that no further event of the webhooks before has arrived: when its own event has
// arrived behind every rule, those before it have, too.
func (s *Scenario) nothingElse() *Check {
	const what = "nothing else arrives, of rejected webhooks and of duplicates"
	return check(what, "nothing", func(ctx context.Context) string {
		last := paymenttest.Event()
		last.EventData.Amount, last.EventData.PaymentCurrency = "1000000.00", "EUR"
		last.EventData.Cases.HasLinkedCases = true
		s.post(ctx, paymenttest.Delivery(last))
		all := Must(s.Arrivals.Await(ctx, s.Timeout, func(all []Arrival) bool {
			rules := map[string]bool{}
			for _, a := range all {
				if a.EventID == last.EventID {
					rules[a.Rule] = true
				}
			}
			return len(rules) == len(s.Queues)
		}))
		for _, id := range slices.Sorted(maps.Keys(s.sent)) {
			if got := byRule(all, id); got != s.sent[id] {
				return fmt.Sprintf("of delivery %s: %s, and before: %s", id, got, s.sent[id])
			}
		}
		return fmt.Sprintf("nothing; of %d webhooks", len(s.sent))
	})
}

// accepted returns a check of a webhook with one new released payment.
func (s *Scenario) accepted(what string, w paymenttest.Webhook) *Check {
	return s.webhook(what, s.published(1, 0), Released+":1", w)
}

// published is the result of an accepted delivery.
func (s *Scenario) published(recorded, duplicates int) string {
	return fmt.Sprintf("%d, %d new, %d known", s.successStatus(), recorded, duplicates)
}

// deliveryChecks returns the checks of authentic webhooks. The first one stores a token, since keys may be fetched
// with it.
func (s *Scenario) deliveryChecks() []*Check {
	many := raw(paymenttest.Delivery(paymenttest.Events(25)...))
	high, returned := paymenttest.Event(), paymenttest.Event()
	high.EventData.Amount, high.EventData.PaymentCurrency = "1234567890.10", "EUR"
	returned.EventData.Returns.HasReturnDetails = true
	checks := []*Check{
		s.FirstToken(),
		s.accepted("one event", deliver(paymenttest.Event())),
		s.webhook("25 events in one delivery", s.published(25, 0), Released+":25", many),
		s.webhook("the same 25 again", s.published(0, 25), "", many),
		s.webhook("1,234,567,890.10 EUR", s.published(1, 0), euro+":1 "+Released+":1", deliver(high)),
		s.webhook("one with return details", s.published(1, 0), needsAttention+":1 "+OtherBus+":1 "+Released+":1",
			deliver(returned)),
	}
	if _, static := signature.StaticKeyID(s.Setting("keyIdLocation")); static || !UsesSignature(s.Settings) {
		return checks
	}
	rotated := s.accepted("one signed with a new key", deliver(paymenttest.Event()))
	send := rotated.Do
	rotated.Do = func(ctx context.Context) string {
		Require(s.NewKey(ctx))
		return send(ctx)
	}
	return append(checks, rotated)
}

// flaws are those of a signature that the path of a request to the function can hide or change, and one of each other
// kind.
var flaws = []paymenttest.Flaw{paymenttest.SignatureChanged, paymenttest.PayloadChanged, paymenttest.TimestampChanged,
	paymenttest.KeyIDChanged, paymenttest.WrongKey, paymenttest.UnknownKey, paymenttest.SignatureMissing,
	paymenttest.SignatureRepeated, paymenttest.TimestampRepeated, paymenttest.KeyIDRepeated}

// signatureChecks returns the checks of webhooks that are not authentic.
func (s *Scenario) signatureChecks() []*Check {
	var checks []*Check
	_, static := signature.StaticKeyID(s.Setting("keyIdLocation"))
	for _, flaw := range flaws {
		if static && strings.HasPrefix(string(flaw), "keyid") {
			continue
		}
		w := deliver(paymenttest.Event())
		w.Flaw = flaw
		checks = append(checks, s.webhook("not authentic: "+strings.ReplaceAll(string(flaw), "-", " "), "401", "", w))
	}
	if text := s.Setting("timestampTolerance"); text != "off" {
		tolerance, _ := settings.ParseDuration(text)
		old, early := deliver(paymenttest.Event()), deliver(paymenttest.Event())
		old.Age, early.Age = tolerance+time.Minute, -tolerance-time.Minute
		checks = append(checks, s.webhook("timestamp too old", "401", "", old),
			s.webhook("timestamp in the future", "401", "", early))
	}
	return checks
}

// invalidChecks returns the checks of other requests that are rejected.
func (s *Scenario) invalidChecks() []*Check {
	// Function URLs of AWS reject methods that they do not know. An HTTP API has no route for
	// another method.
	other, rejected := deliver(paymenttest.Event()), "405, Allow: "+strings.Join(settings.Methods(), ", ")
	if s.Setting("domainName") != "" {
		rejected = "404 by AWS"
	}
	tooLarge := "413 by AWS"
	if s.Local { // the emulator has no limit, but the function has
		tooLarge = "413"
	}
	other.Method = http.MethodDelete
	return []*Check{
		s.webhook("not JSON, but signed", "422", "", raw([]byte("released"))),
		s.webhook("wrong method", rejected, "", other),
		s.webhook("more than Lambda takes", tooLarge, "", raw(bytes.Repeat([]byte(" "), 6<<20+1))),
		s.nothingElse(),
	}
}

func deliver(events ...payment.Event) paymenttest.Webhook {
	return raw(paymenttest.Delivery(events...))
}

func raw(payload []byte) paymenttest.Webhook { return paymenttest.Webhook{Payload: payload} }

// padded returns an event that is longer by size bytes.
func padded(e payment.Event, size int) []byte {
	event := paymenttest.Encode(e)
	return fmt.Appendf(event[:len(event)-1], `,"note":"%s"}`, strings.Repeat("x", size))
}
