package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"uuid"

	"payhook.example/shared/contract"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

// The rules in events/rules.
const (
	released       = "released"
	highValue      = "high-value"
	euro           = "euro"
	needsAttention = "needs-attention"
)

// row is one webhook of the table: what is sent, and what must come of it.
type row struct {
	sent    string
	webhook paymenttest.Webhook
	before  func() // done first; nothing if nil

	status   int
	answer   string         // a part of the body, for those who know it
	header   string         // one that must be there
	byAWS    bool           // AWS answers, before the function runs
	noAnswer bool           // the connection must fail
	arrivals map[string]int // how many events must arrive, by the rule behind which

	// What came of it.
	got     paymenttest.Answer
	err     error
	arrived map[string]int
}

// rows returns the table's rows. Some depend on those before.
func (s *stack) rows() []*row {
	success, _ := strconv.Atoi(s.setting(contract.SuccessStatus))
	limit, _ := strconv.Atoi(s.setting(contract.MaxPayloadBytes))
	tolerance, _ := contract.ParseDuration(s.setting(contract.TimestampTolerance))
	taken := func(recorded, duplicates int) string {
		return fmt.Sprintf(`"recorded":%d,"duplicates":%d}`, recorded, duplicates)
	}
	with := func(change func(*payment.Event)) payment.Event {
		e := paymenttest.Event()
		change(&e)
		return e
	}

	one := paymenttest.Event()
	many := paymenttest.Delivery(paymenttest.Events(25)...)
	half := paymenttest.Events(10)
	altered := one
	altered.EventData.Amount = "9250.00"
	large := paymenttest.Encode(paymenttest.Event())
	large = fmt.Appendf(large[:len(large)-1], `,"note":"%s"}`, strings.Repeat("x", 300_000))
	invalid := paymenttest.Encode(with(func(e *payment.Event) { e.EventName = "RELEASED" }))

	rows := []*row{
		{sent: "one event", webhook: deliver(one), status: success, answer: taken(1, 0), arrivals: map[string]int{released: 1}},
		{sent: "25 events in one delivery", webhook: raw(many), status: success, answer: taken(25, 0), arrivals: map[string]int{released: 25}},
		{sent: "the same 25 again", webhook: raw(many), status: success, answer: taken(0, 25)},
		{sent: "5 events", webhook: deliver(half[:5]...), status: success, answer: taken(5, 0), arrivals: map[string]int{released: 5}},
		{sent: "those 5 and 5 new ones", webhook: deliver(half...), status: success, answer: taken(5, 5), arrivals: map[string]int{released: 5}},
		{sent: "a known eventId, another amount", webhook: deliver(altered), status: success, answer: `"conflicts":1`},
		{sent: "an event of 300,000 bytes", webhook: raw(paymenttest.RawDelivery(uuid.New().String(), large)), status: success, answer: taken(1, 0),
			arrivals: map[string]int{released: 1}},
		{sent: "1,000,000.00 USD", webhook: deliver(with(func(e *payment.Event) { e.EventData.Amount = "1000000.00" })),
			status: success, answer: taken(1, 0), arrivals: map[string]int{released: 1, highValue: 1}},
		{sent: "1,234,567,890.10 EUR", webhook: deliver(with(func(e *payment.Event) {
			e.EventData.Amount, e.EventData.PaymentCurrency = "1234567890.10", "EUR"
		})), status: success, answer: taken(1, 0), arrivals: map[string]int{released: 1, highValue: 1, euro: 1}},
		{sent: "one with return details", webhook: deliver(with(func(e *payment.Event) { e.EventData.Returns.HasReturnDetails = true })),
			status: success, answer: taken(1, 0), arrivals: map[string]int{released: 1, needsAttention: 1}},
		{sent: "one with linked cases, of another name", webhook: deliver(with(func(e *payment.Event) {
			e.EventName, e.EventData.Cases.HasLinkedCases = "PAYMENT_STATUS.OTHER", true
		})), status: success, answer: taken(1, 0), arrivals: map[string]int{needsAttention: 1}},
		{sent: "one that no rule is for", webhook: deliver(with(func(e *payment.Event) { e.EventName = "PAYMENT_STATUS.OTHER" })),
			status: success, answer: taken(1, 0)},
	}
	if usesSignature(s.opts.settings) {
		rows = append(rows, s.signatureRows(tolerance)...)
	}
	if usesMTLS(s.opts.settings) {
		rows = append(rows, s.certificateRows()...)
	}
	// Function URLs of AWS refuse the methods that they don't know themselves. An HTTP
	// API knows no route for another method.
	wrongMethod := &row{sent: "wrong method", webhook: deliver(paymenttest.Event()), status: http.StatusMethodNotAllowed, header: "Allow"}
	if s.setting(contract.DomainName) != "" {
		wrongMethod.status, wrongMethod.header, wrongMethod.byAWS = http.StatusNotFound, "", true
	}
	wrongMethod.webhook.Method = http.MethodPatch
	rows = append(rows,
		&row{sent: "not JSON, but signed", webhook: raw([]byte("released")), status: http.StatusUnprocessableEntity, answer: "payload"},
		&row{sent: "an event without GROUP.STATUS", webhook: raw(paymenttest.RawDelivery(uuid.New().String(), invalid)),
			status: http.StatusUnprocessableEntity, answer: "eventName"},
		wrongMethod,
		&row{sent: "nothing", webhook: raw(nil), status: http.StatusBadRequest},
		&row{sent: "more than Lambda takes", webhook: raw(bytes.Repeat([]byte(" "), lambdaLimit)), status: http.StatusRequestEntityTooLarge, byAWS: true},
	)
	// Of what Lambda takes, a part is not the payload.
	if limit < lambdaLimit-10_000 {
		rows = append(rows, &row{sent: "more than is allowed", webhook: raw(bytes.Repeat([]byte(" "), limit+1)), status: http.StatusRequestEntityTooLarge})
	}
	return rows
}

// signatureRows are what is wrong with a signature, or new about it.
func (s *stack) signatureRows(tolerance time.Duration) []*row {
	success, _ := strconv.Atoi(s.setting(contract.SuccessStatus))
	rows := []*row{{sent: "one signed with a new key", before: func() { s.service.Rotate() }, webhook: deliver(paymenttest.Event()),
		status: success, answer: `"recorded":1,"duplicates":0}`, arrivals: map[string]int{released: 1}}}
	for _, flaw := range paymenttest.Flaws() {
		if strings.HasPrefix(string(flaw), "keyid") && strings.HasPrefix(s.setting(contract.KeyIDCarrier), "static:") {
			continue
		}
		w := deliver(paymenttest.Event())
		w.Flaw = flaw
		rows = append(rows, &row{sent: flawNames[flaw], webhook: w, status: http.StatusUnauthorized})
	}
	if s.setting(contract.TimestampTolerance) != contract.Off {
		old, early := deliver(paymenttest.Event()), deliver(paymenttest.Event())
		old.Age, early.Age = tolerance+time.Minute, -tolerance-time.Minute
		rows = append(rows,
			&row{sent: "timestamp too old", webhook: old, status: http.StatusUnauthorized},
			&row{sent: "timestamp in the future", webhook: early, status: http.StatusUnauthorized},
		)
	}
	return rows
}

// lambdaLimit is the size in bytes of the smallest event that Lambda rejects (see
// ministack/lambda_payload_size.py).
const lambdaLimit = 6 << 20

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

// show does everything that the table is about, prints what came of it, and
// reports whether all is as it must be.
func (s *stack) show(ctx context.Context, out io.Writer) (bool, error) {
	// First of all: with keysAuth=bearer, webhooks need it too.
	first := s.firstToken()
	if err := runChecks(ctx, []*check{first}); err != nil {
		return false, err
	}
	var rows []*row
	var checks, ofToken []*check
	if s.opts.authURL == s.service.URL {
		ofToken = s.tokenChecks()
	}
	err := atOnce(ctx,
		func(ctx context.Context) error {
			return s.opts.progress.step("sending", func() (err error) {
				// One for all: what one that is stopped had asked for could still
				// take a message away from the next.
				in := receive(s.aws, s.Queues)
				defer in.stop()
				if rows, err = s.send(ctx, in); err != nil {
					return err
				}
				checks = s.keptChecks(in)
				return runChecks(ctx, checks)
			})
		},
		func(ctx context.Context) error {
			if ofToken == nil {
				return nil
			}
			return s.opts.progress.step("calling the protected API", func() error { return runChecks(ctx, ofToken) })
		},
	)
	if err != nil {
		return false, err
	}
	checks = slices.Concat(checks, []*check{first}, ofToken)
	fmt.Fprintln(out)
	wrong := printTable(out, rows)
	fmt.Fprintln(out)
	wrong += printChecks(out, checks)
	if ofToken == nil {
		fmt.Fprintln(out, "\nCalls of the protected API are left out: the tokens are not the simulated payment service's.")
	}
	if n := len(rows) + len(checks); wrong > 0 {
		fmt.Fprintf(out, "\n%d of %d are not as they must be.\n", wrong, n)
	} else {
		fmt.Fprintf(out, "\nAll %d are as they must be.\n", n)
	}
	return wrong == 0, nil
}

// send sends the webhooks of the rows, and returns them with what came of each.
func (s *stack) send(ctx context.Context, in *arrivals) ([]*row, error) {
	rows := s.rows()
	for _, r := range rows {
		if r.before != nil {
			r.before()
		}
		r.webhook.URL = s.WebhookURL
		r.got, r.err = s.service.Send(ctx, r.webhook)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	// Behind every rule, what was sent before this one has then arrived.
	last := paymenttest.Event()
	last.EventData.Amount, last.EventData.PaymentCurrency, last.EventData.Cases.HasLinkedCases = "1000000.00", "EUR", true
	if _, err := s.service.Send(ctx, paymenttest.Webhook{URL: s.WebhookURL, Payload: paymenttest.Delivery(last)}); err != nil {
		return nil, err
	}
	all, err := in.await(ctx, 20*time.Second, func(all []arrival) bool {
		attribute(rows, all)
		ends := 0
		for _, a := range all {
			if a.eventID == last.EventID {
				ends++
			}
		}
		return ends >= len(s.Queues) && !slices.ContainsFunc(rows, func(r *row) bool { return len(r.missing()) > 0 })
	})
	attribute(rows, all)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		s.opts.progress.say("%v", err)
	}
	return rows, nil
}

// attribute counts what has arrived for each row. Where several rows sent one
// event, its first arrival behind a rule is the first row's, the second the
// second's, and so on: every one that should not be shows.
func attribute(rows []*row, all []arrival) {
	senders := map[string][]*row{} // by event id
	for _, r := range rows {
		r.arrived = map[string]int{}
		delivery, err := payment.DecodeDelivery(r.webhook.Payload)
		if err != nil {
			continue
		}
		for _, e := range delivery.Events {
			senders[e.EventID] = append(senders[e.EventID], r)
		}
	}
	seen := map[string]int{}
	for _, a := range all {
		by := senders[a.eventID]
		if len(by) == 0 {
			continue
		}
		key := a.rule + " " + a.eventID
		by[min(seen[key], len(by)-1)].arrived[a.rule]++
		seen[key]++
	}
}

func (r *row) missing() []string {
	var rules []string
	for rule, n := range r.arrivals {
		if r.arrived[rule] < n {
			rules = append(rules, rule)
		}
	}
	return rules
}

// right reports whether everything about the row is as it must be.
func (r *row) right() bool {
	if r.noAnswer {
		return r.err != nil && len(r.arrived) == 0
	}
	return r.err == nil && r.got.Status == r.status &&
		strings.Contains(compact(r.got.Body), r.answer) &&
		(r.header == "" || r.got.Header.Get(r.header) != "") &&
		r.bodyIsRight() && maps.Equal(r.arrived, r.arrivals)
}

// bodyIsRight reports whether the body is of the kind that goes with the status.
func (r *row) bodyIsRight() bool {
	contentType := r.got.Header.Get("Content-Type")
	if r.status < 300 || r.byAWS {
		return strings.HasPrefix(contentType, "application/json")
	}
	return strings.HasPrefix(contentType, "application/problem+json")
}

func compact(body []byte) string {
	var out bytes.Buffer
	if json.Compact(&out, body) != nil {
		return string(body)
	}
	return out.String()
}

// printTable prints the rows and returns how many are wrong.
func printTable(out io.Writer, rows []*row) (wrong int) {
	var refusal string // of a webhook that is not authentic: one for all
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tSENT\tANSWERED\tMUST\tARRIVED BEHIND\tMUST")
	for _, r := range rows {
		right := r.right()
		if r.status == http.StatusUnauthorized && r.err == nil {
			if refusal == "" {
				refusal = string(r.got.Body)
			}
			right = right && refusal == string(r.got.Body)
		}
		mark := "ok"
		if !right {
			mark, wrong = "WRONG", wrong+1
		}
		answered := strconv.Itoa(r.got.Status) + summary(r.got.Body)
		if r.err != nil {
			answered = r.err.Error()
		}
		must := strconv.Itoa(r.status)
		if r.noAnswer {
			must = "no connection"
			if right {
				answered = must
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", mark, r.sent, answered, must, counts(r.arrived), counts(r.arrivals))
	}
	t.Flush()
	return wrong
}

// summary is what of an answer's body fits into the table.
func summary(body []byte) string {
	var b struct {
		Recorded, Duplicates *int
		Conflicts            int
		Detail, Message      string // Message is AWS's
	}
	if json.Unmarshal(body, &b) != nil {
		return ""
	}
	if b.Recorded != nil && b.Duplicates != nil && b.Detail == "" {
		text := fmt.Sprintf(" %d new, %d known", *b.Recorded, *b.Duplicates)
		if b.Conflicts > 0 {
			text += fmt.Sprintf(", %d in conflict", b.Conflicts)
		}
		return text
	}
	return " " + b.Detail + b.Message
}

func counts(byRule map[string]int) string {
	if len(byRule) == 0 {
		return "-"
	}
	var parts []string
	for _, rule := range slices.Sorted(maps.Keys(byRule)) {
		parts = append(parts, fmt.Sprintf("%s %d", rule, byRule[rule]))
	}
	return strings.Join(parts, ", ")
}
