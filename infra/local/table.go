package local

import (
	"bytes"
	"context"
	"crypto/tls"
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

// The rules in events/rules that are deployed for the table.
const (
	released       = "released"
	euro           = "euro"
	needsAttention = "needs-attention"

	// otherBus is the queue behind the bus that the consumer sends events to.
	otherBus = "other-bus"
)

var deployedRules = []string{released, euro, needsAttention}

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

// row is one webhook of the table: what is sent, and what must come of it.
type row struct {
	topic   string
	sent    string
	webhook paymenttest.Webhook
	before  func(context.Context) error // done first; nothing if nil
	needs   []Need
	// certificate is presented instead of the service's own if it is not nil.
	certificate *tls.Certificate

	status   int
	answer   string         // a part of the body, for those who know it
	header   string         // one that must be there
	byAWS    bool           // AWS answers, before the function runs
	noAnswer bool           // the connection must fail, or AWS answers 403
	arrivals map[string]int // how many events must arrive, by the rule behind which

	// What came of it.
	got      paymenttest.Answer
	took     time.Duration
	err      error
	notShown string // why it was not sent
	arrived  map[string]int
}

// about gives rows a topic.
func about(topic string, rows ...*row) []*row {
	for _, r := range rows {
		r.topic = topic
	}
	return rows
}

// taken is what is answered to a delivery that is accepted.
func taken(recorded, duplicates int) string {
	return fmt.Sprintf(`"recorded":%d,"duplicates":%d}`, recorded, duplicates)
}

func (s *stack) successStatus() int {
	status, _ := strconv.Atoi(s.setting(settings.SuccessStatus))
	return status
}

// accepted is a row for a webhook with one new event.
func (s *stack) accepted(sent string, webhook paymenttest.Webhook) *row {
	return &row{sent: sent, webhook: webhook, status: s.successStatus(), answer: taken(1, 0),
		arrivals: map[string]int{released: 1}}
}

// rejected is a row for a webhook that the function must find not authentic.
func rejected(sent string, webhook paymenttest.Webhook) *row {
	return &row{sent: sent, webhook: webhook, status: http.StatusUnauthorized}
}

// rows returns the table's rows. Some depend on those before.
func (s *stack) rows() []*row {
	success := s.successStatus()
	limit, _ := strconv.Atoi(s.setting(settings.MaxPayloadBytes))
	tolerance, _ := settings.ParseDuration(s.setting(settings.TimestampTolerance))
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

	rows := about(ofDeliveries,
		s.accepted("one event", deliver(one)),
		&row{sent: "25 events in one delivery", webhook: raw(many), status: success, answer: taken(25, 0),
			arrivals: map[string]int{released: 25}},
		&row{sent: "the same 25 again", webhook: raw(many), status: success, answer: taken(0, 25)},
		&row{sent: "5 events", webhook: deliver(half[:5]...), status: success, answer: taken(5, 0),
			arrivals: map[string]int{released: 5}},
		&row{sent: "those 5 and 5 new ones", webhook: deliver(half...), status: success, answer: taken(5, 5),
			arrivals: map[string]int{released: 5}},
		&row{sent: "a known eventId, another amount", webhook: deliver(altered), status: success,
			answer: `"conflicts":1`},
		&row{sent: "an event of 300,000 bytes", webhook: raw(paymenttest.RawDelivery(uuid.New().String(), large)),
			status: success, answer: taken(1, 0),
			arrivals: map[string]int{released: 1}},
		&row{sent: "1,000,000.00 USD",
			webhook: deliver(with(func(e *payment.Event) { e.EventData.Amount = "1000000.00" })),
			status:  success, answer: taken(1, 0), arrivals: map[string]int{released: 1}},
		&row{sent: "1,234,567,890.10 EUR", webhook: deliver(with(func(e *payment.Event) {
			e.EventData.Amount, e.EventData.PaymentCurrency = "1234567890.10", "EUR"
		})), status: success, answer: taken(1, 0), arrivals: map[string]int{released: 1, euro: 1}},
		&row{sent: "one with return details",
			webhook: deliver(with(func(e *payment.Event) { e.EventData.Returns.HasReturnDetails = true })),
			status:  success, answer: taken(1, 0),
			arrivals: map[string]int{released: 1, needsAttention: 1, otherBus: 1}},
		&row{sent: "one with linked cases, of another name", webhook: deliver(with(func(e *payment.Event) {
			e.EventName, e.EventData.Cases.HasLinkedCases = "PAYMENT_STATUS.OTHER", true
		})), status: success, answer: taken(1, 0), arrivals: map[string]int{needsAttention: 1, otherBus: 1}},
		&row{sent: "one that no rule is for",
			webhook: deliver(with(func(e *payment.Event) { e.EventName = "PAYMENT_STATUS.OTHER" })),
			status:  success, answer: taken(1, 0)},
	)
	if usesSignature(s.opts.settings) {
		rows = append(rows, s.signatureRows(tolerance)...)
	}
	if usesMTLS(s.opts.settings) {
		rows = append(rows, s.certificateRows()...)
	}
	// Function URLs of AWS refuse the methods that they don't know themselves. An HTTP
	// API knows no route for another method.
	wrongMethod := &row{sent: "wrong method", webhook: deliver(paymenttest.Event()),
		status: http.StatusMethodNotAllowed, header: "Allow"}
	if s.setting(settings.DomainName) != "" {
		wrongMethod.status, wrongMethod.header, wrongMethod.byAWS = http.StatusNotFound, "", true
	}
	wrongMethod.webhook.Method = http.MethodPatch
	rows = append(rows, about(ofRequests,
		&row{sent: "not JSON, but signed", webhook: raw([]byte("released")), status: http.StatusUnprocessableEntity,
			answer: "payload"},
		&row{sent: "an event without GROUP.STATUS", webhook: raw(paymenttest.RawDelivery(uuid.New().String(), invalid)),
			status: http.StatusUnprocessableEntity, answer: "eventName"},
		wrongMethod,
		&row{sent: "nothing", webhook: raw(nil), status: http.StatusBadRequest},
		&row{sent: "more than Lambda takes", webhook: raw(bytes.Repeat([]byte(" "), lambdaLimit)),
			status: http.StatusRequestEntityTooLarge, byAWS: true, needs: []Need{LambdaLimits}},
	)...)
	// Of what Lambda takes, a part is not the payload.
	if limit < lambdaLimit-10_000 {
		rows = append(rows, &row{topic: ofRequests, sent: "more than is allowed",
			webhook: raw(bytes.Repeat([]byte(" "), limit+1)), status: http.StatusRequestEntityTooLarge})
	}
	return rows
}

// signatureRows are what is wrong with a signature, or new about it.
func (s *stack) signatureRows(tolerance time.Duration) []*row {
	rotated := s.accepted("one signed with a new key", deliver(paymenttest.Event()))
	rotated.before = s.shown.Rotate
	var rows []*row
	_, static := signature.StaticKeyID(s.setting(settings.KeyIDCarrier))
	for _, flaw := range paymenttest.Flaws() {
		if static && strings.HasPrefix(string(flaw), "keyid") {
			continue
		}
		w := deliver(paymenttest.Event())
		w.Flaw = flaw
		rows = append(rows, rejected(flawNames[flaw], w))
	}
	if s.setting(settings.TimestampTolerance) != settings.Off {
		old, early := deliver(paymenttest.Event()), deliver(paymenttest.Event())
		old.Age, early.Age = tolerance+time.Minute, -tolerance-time.Minute
		rows = append(rows, rejected("timestamp too old", old), rejected("timestamp in the future", early))
	}
	return append(about(ofDeliveries, rotated), about(ofProofs, rows...)...)
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

// show does everything that the table is about, and returns the results.
func (s *stack) show(ctx context.Context) (report, error) {
	// First of all: with keysAuth=bearer, webhooks need it as well.
	first := s.firstToken()
	if err := runChecks(ctx, []*check{first}); err != nil {
		return report{}, err
	}
	var own section
	var ofToken []*check
	if s.opts.authURL == s.shown.BaseURL() {
		ofToken = s.tokenChecks()
	}
	var further []section
	showFurther := func(ctx context.Context) (err error) {
		further, err = s.showFurther(ctx)
		return err
	}
	atSameTime := []func(context.Context) error{
		func(ctx context.Context) error {
			return s.opts.progress.step("sending", func() (err error) {
				// One for all: what one that is stopped had asked for could still
				// take a message away from the next.
				in := receive(s.AWS, s.Queues)
				defer in.stop()
				if own.rows, err = s.send(ctx, in, s.rows()); err != nil {
					return err
				}
				own.checks = s.keptChecks(in)
				if s.consumer.Table != "" {
					own.checks = append(own.checks, s.consumerChecks()...)
				}
				return runChecks(ctx, own.checks)
			})
		},
		func(ctx context.Context) error {
			if ofToken == nil {
				return nil
			}
			return s.opts.progress.step("calling the protected API", func() error { return runChecks(ctx, ofToken) })
		},
	}
	// The checks of the token make the service's tokens unusable for a while.
	afterwards := s.setting(settings.KeysAuth) == "bearer"
	if !afterwards {
		// Most of their time, those checks wait.
		atSameTime = append(atSameTime, showFurther)
	}
	err := atOnce(ctx, atSameTime...)
	if err == nil && afterwards {
		err = showFurther(ctx)
	}
	if err != nil {
		return report{}, err
	}
	own.checks = slices.Concat(own.checks, []*check{first}, ofToken)
	note := ""
	if ofToken == nil {
		note = "Calls of the protected API are left out: the tokens are not those of the simulated payment service."
	}
	return newReport(append([]section{own}, further...), note), nil
}

// send sends the webhooks of the rows, and returns them with what came of each.
func (s *stack) send(ctx context.Context, in *arrivals, rows []*row) ([]*row, error) {
	for _, r := range rows {
		if s.Queues[otherBus] == "" {
			delete(r.arrivals, otherBus)
		}
		if r.notShown = s.lacking(r.needs); r.notShown != "" {
			continue
		}
		if r.before != nil {
			if r.err = r.before(ctx); r.err != nil {
				continue
			}
		}
		r.webhook.URL = s.WebhookURL
		begun := time.Now()
		r.got, r.err = s.sendAs(ctx, r.certificate, r.webhook)
		r.took = time.Since(begun)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	// Behind every rule, what was sent before this one has then arrived.
	last := paymenttest.Event()
	last.EventData.Amount, last.EventData.PaymentCurrency, last.EventData.Cases.HasLinkedCases = "1000000.00", "EUR",
		true
	if _, err := s.shown.Sender().Send(ctx,
		paymenttest.Webhook{URL: s.WebhookURL, Payload: paymenttest.Delivery(last)}); err != nil {
		return nil, err
	}
	all, err := in.await(ctx, s.within(20*time.Second), func(all []arrival) bool {
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

// lacking returns why a row with these needs cannot be shown, or "" if it can.
func (s *stack) lacking(needs []Need) string {
	for _, n := range needs {
		if reason := s.lacks[n]; reason != "" {
			return reason
		}
	}
	return ""
}

// sendAs sends a webhook with a client certificate, or with the service's own if it
// is nil.
func (s *stack) sendAs(ctx context.Context, certificate *tls.Certificate,
	w paymenttest.Webhook) (paymenttest.Answer, error) {
	if certificate != nil {
		own := s.identity.Certificate()
		s.identity.Use(*certificate)
		defer s.identity.Use(own)
	}
	return s.shown.Sender().Send(ctx, w)
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
	if r.notShown != "" {
		return nil
	}
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
		return (r.err != nil || r.got.Status == http.StatusForbidden) && len(r.arrived) == 0
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
