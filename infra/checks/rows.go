package checks

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"uuid"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/wire"
)

// The rules of events/rules that the checks need.
const (
	Released       = "released"
	euro           = "euro"
	needsAttention = "needs-attention"
)

// Rules returns the rules that the consumer must deploy.
func Rules() []string { return []string{Released, euro, needsAttention} }

// The events of the functions token and redrive.
const (
	AsScheduled = `{}`
	RefreshNow  = `{"refresh":true}`
)

// Rows returns the rows for the settings of the stack, some of which depend on earlier ones, and further ones, which
// change how the payment service answers.
func (s *Subject) Rows() (rows, further []Check) {
	rows = about("Deliveries, duplicates and rules", s.deliveries())
	if s.usesSignature() {
		rows = append(rows, about("Signatures, timestamps and key ids", s.signatures())...)
	}
	if UsesMTLS(s.Stack.Settings) {
		rows = append(rows, about("Client certificates", s.certificates())...)
	}
	rows = slices.Concat(rows, about("Requests that are not valid", s.invalid()), about("What is parked", s.parked()),
		about("The consumer's function", s.consumed()), about("Evidence of what was accepted", s.evidence()),
		about("What has arrived", []Check{s.nothingElse()}))
	return rows, about("The access token, and faults of the payment service", s.service())
}

// Mechanism returns the rows of a stack that is there for its authentication and its token store only.
func (s *Subject) Mechanism() []Check {
	what, one := "one event", deliver(paymenttest.Event())
	if !s.usesSignature() {
		what, one.Flaw = "one event, without a signature", paymenttest.SignatureMissing
	}
	rows := slices.Concat([]Check{refresh(), send(what, one, s.accepted(1, 0), Released)}, s.certificates(),
		s.evidence())
	if s.Stack.TokenParameter != "" {
		rows = append(rows, s.replaced()...)
	}
	return about(s.Stack.StackName+": client certificates", append(rows, s.nothingElse()))
}

func about(topic string, rows []Check) []Check {
	for i := range rows {
		rows[i].Topic = topic
	}
	return rows
}

// send is the row of a webhook. Behind each rule, every event with an eventId must arrive once.
func send(what string, w *paymenttest.Webhook, want Seen, rules ...string) Check {
	want.Arrivals = arrivals(w, rules)
	return Check{What: what, Webhook: w, Want: want}
}

func call(what string, status int, want Fields, args ...string) Check {
	return Check{What: what, Call: args, Want: Seen{Status: status, Fields: want}}
}

func invoke(what, function, event string, want Fields) Check {
	return Check{What: what, Function: function, Event: event, Want: Seen{Fields: want}}
}

// refresh stores a token, since keys may be fetched with it.
func refresh() Check {
	return invoke("the token function is invoked", "token", RefreshNow, Fields{"outcome": "refreshed"})
}

// before returns a row with what is done first.
func (c Check) before(do func(context.Context) error) Check {
	c.Before = do
	return c
}

func deliver(events ...payment.Event) *paymenttest.Webhook {
	return raw(paymenttest.Delivery(events...))
}

func raw(payload []byte) *paymenttest.Webhook { return &paymenttest.Webhook{Payload: payload} }

// encoded returns a webhook with one event in JSON, and its deliveryId.
func encoded(event []byte) (w *paymenttest.Webhook, id string) {
	id = uuid.New().String()
	return raw(paymenttest.RawDelivery(id, event)), id
}

func (s *Subject) accepted(recorded, duplicates int) Seen {
	status, _ := strconv.Atoi(s.Stack.Setting("successStatus"))
	return Seen{Status: status, Fields: Fields{"recorded": recorded, "duplicates": duplicates, "conflicts": nil,
		"Content-Type": "application/json"}}
}

// rejected is an answer of the function.
func rejected(status int) Seen {
	return Seen{Status: status, Fields: Fields{"status": status, "Content-Type": "application/problem+json"}}
}

// unauthorized is the answer to everything that is not authentic: it says nothing about the reason.
func unauthorized() Seen {
	return Seen{Status: 401, Fields: Fields{"Content-Type": "application/problem+json",
		"body": `{"title":"Unauthorized","status":401,"detail":"The webhook is not authentic."}`}}
}

// byAWS is an answer of AWS instead of the function.
func byAWS(status int) Seen {
	return Seen{Status: status, Fields: Fields{"Content-Type": "application/json", "status": nil}}
}

func (s *Subject) deliveries() (rows []Check) {
	many := deliver(paymenttest.Events(25)...)
	high, returned := paymenttest.WithAmount(paymenttest.Event(), "1234567890.10"), paymenttest.Event()
	high.EventData.PaymentCurrency = "EUR"
	returned.EventData.Returns.HasReturnDetails = true
	if s.Stack.KeepsToken() {
		rows = []Check{refresh()}
	}
	rows = append(rows,
		send("one event", deliver(paymenttest.Event()), s.accepted(1, 0), Released),
		send("25 events in one delivery", many, s.accepted(25, 0), Released),
		send("the same 25 again", many, s.accepted(0, 25)),
		send("1,234,567,890.10 EUR", deliver(high), s.accepted(1, 0), Released, euro),
		send("one with return details", deliver(returned), s.accepted(1, 0), Released, needsAttention),
		send("two events, one without eventId", deliver(paymenttest.Event(), paymenttest.Nameless()),
			Seen{Status: 422, Fields: Fields{"recorded": 1, "invalid": 1}}, Released),
	)
	if s.fetchesKeys() {
		rows = append(rows, send("one event, signed with a new key", deliver(paymenttest.Event()), s.accepted(1, 0),
			Released).before(s.NewKey))
	}
	return rows
}

func (s *Subject) signatures() (rows []Check) {
	// Those that the path of a request to the function can hide or change, and one of each other kind.
	all := []wire.Flaw{paymenttest.SignatureChanged, paymenttest.PayloadChanged, paymenttest.TimestampChanged,
		paymenttest.WrongKey, paymenttest.UnknownKey, paymenttest.SignatureMissing, paymenttest.SignatureRepeated,
		paymenttest.TimestampRepeated}
	if s.fetchesKeys() {
		all = append(all, paymenttest.KeyIDChanged, paymenttest.KeyIDRepeated)
	}
	for _, flaw := range all {
		w := deliver(paymenttest.Event())
		w.Flaw = flaw
		rows = append(rows, send("not authentic: "+strings.ReplaceAll(string(flaw), "-", " "), w, unauthorized()))
	}
	if text := s.Stack.Setting("timestampTolerance"); text != "off" {
		tolerance, _ := settings.ParseDuration(text)
		old, early := deliver(paymenttest.Event()), deliver(paymenttest.Event())
		old.Age, early.Age = tolerance+time.Minute, -tolerance-time.Minute
		rows = append(rows, send("timestamp too old", old, unauthorized()),
			send("timestamp in the future", early, unauthorized()))
	}
	return rows
}

func (s *Subject) certificates() (rows []Check) {
	event := func(flaw wire.CertificateFlaw) *paymenttest.Webhook {
		w := deliver(paymenttest.Event())
		w.Certificate = flaw
		return w
	}
	with := func(certificate tls.Certificate, c Check) Check {
		c.Certificate = certificate
		return c
	}
	if c := s.Certificates; c.Next.Leaf != nil {
		rows = []Check{
			with(c.Next, send("one with the service's next client certificate", event(""), s.accepted(1, 0), Released)),
			with(c.Revoked, send("client certificate with a revoked key", event(""), unauthorized())),
			with(c.Unpinned, send("client certificate not pinned", event(""), unauthorized())),
		}
	}
	// API Gateway rejects these.
	forbidden := byAWS(http.StatusForbidden)
	rows = append(rows, send("no client certificate", event(paymenttest.NoCertificate), forbidden),
		send("client certificate of an unknown CA", event(paymenttest.UnknownCA), forbidden))
	if s.usesSignature() {
		unsigned, forged := event(""), event("")
		unsigned.Flaw, forged.Flaw = paymenttest.SignatureMissing, paymenttest.SignatureChanged
		rows = append(rows, send("valid certificate, invalid signature", forged, unauthorized()),
			send("valid certificate, no signature", unsigned, unauthorized()))
	} else {
		rows = append(rows,
			send("client certificate expired", event(paymenttest.CertificateExpired), forbidden),
			send("client certificate with a forged signature", event(paymenttest.ForgedSignature), forbidden),
			send("certificate for servers only", event(paymenttest.ServerUsage), unauthorized()))
	}
	// Other gateways pass on certificates in these headers.
	own := s.Identity.Certificate.Leaf
	text := strings.ReplaceAll(string(paymenttest.EncodeCertificate(own)), "\n", "%0A")
	imitated := event(paymenttest.UnknownCA)
	imitated.Header = http.Header{"X-Amzn-Mtls-Clientcert": {text},
		"X-Forwarded-Client-Cert": {fmt.Sprintf("Hash=%s;Cert=%q", clientcert.Fingerprint(own), text)}}
	return append(rows, send("the right certificate in headers, another in TLS", imitated, forbidden))
}

func (s *Subject) invalid() []Check {
	// Function URLs of AWS reject methods that they do not know. An HTTP API has no route for another method.
	other, want := deliver(paymenttest.Event()), rejected(http.StatusMethodNotAllowed)
	if want.Fields["Allow"] = "POST, PUT, PATCH, GET, HEAD"; s.Stack.Setting("domainName") != "" {
		want = byAWS(http.StatusNotFound)
	}
	other.Method = http.MethodDelete
	rows := []Check{send("not JSON, but signed", raw(paymenttest.NotJSON()), rejected(422)),
		send("wrong method", other, want)}
	if s.Stack.Endpoint == "" { // the emulator has no limit
		rows = append(rows, send("more than Lambda takes", raw(paymenttest.TooLarge()), byAWS(413)))
	}
	return rows
}

// parked returns the rows of what is parked, with the commands of an operator.
func (s *Subject) parked() []Check {
	why := []string{"--reason", "a check", "--yes"}
	unnamed, first, unfit := paymenttest.Event(), paymenttest.Event(), paymenttest.Event()
	unnamed.EventName = "RELEASED"
	invalid, invalidID := encoded(paymenttest.Encode(unnamed))
	conflict, conflictID := encoded(paymenttest.Encode(paymenttest.WithAmount(first, "9250.00")))
	digest := sha256.Sum256(invalid.Payload)
	// EventBridge is known to reject an integer of 70 bits, which is valid for Payhook.
	rejectedByBus := paymenttest.Encode(paymenttest.WithAmount(unfit, "1000000000000000000000"))
	unpublishable, _ := encoded(rejectedByBus)
	again, _ := encoded(rejectedByBus)
	list := func(what, id, kind, state string) Check {
		return call(what, 0, Fields{"lines": 1, "kind": kind, "state": state},
			"parked", "list", "--delivery", id, "--state", "any")
	}
	conflicts := s.accepted(0, 0)
	conflicts.Fields["conflicts"] = 1
	replayed := call("the parked content is replayed", 0, Fields{"failed": false},
		append([]string{"replay", "NAME", "--content", "parked"}, why...)...)
	replayed.Want.Arrivals = []Arrival{{Rule: Released, Type: first.EventName, EventID: first.EventID, Amount: 9250}}
	return []Check{
		send("an invalid delivery", invalid, rejected(422)),
		list("it is parked", invalidID, "invalid", "open"),
		call("it has the bytes that were sent", 0, Fields{"deliveryId": invalidID,
			"payloadSha256": hex.EncodeToString(digest[:])}, "parked", "show", "NAME"),
		call("its signature, key and certificate verify", 0, Fields{"damaged": 0, "versions": 0},
			"evidence", "verify", "s3://"+s.Stack.ParkingBucket+"/invalid/"),
		call("it is dismissed", 0, Fields{"failed": false}, append([]string{"dismiss", "NAME"}, why...)...),
		list("it is not open any more", invalidID, "invalid", "dismissed"),

		send("an event that EventBridge rejects", unpublishable, s.accepted(1, 0)),
		call("it is parked", 1, Fields{"state": "parked"}, "event", unfit.EventID),
		call("it is dismissed", 0, Fields{"failed": false}, append([]string{"dismiss", unfit.EventID}, why...)...),
		send("it is sent again", again, s.accepted(0, 1)),
		call("it is still dismissed", 0, Fields{"state": "dismissed"}, "event", unfit.EventID),

		send("an event", deliver(first), s.accepted(1, 0), Released),
		send("the same eventId with another amount", conflict, conflicts),
		list("it is parked", conflictID, "conflict", "open"),
		replayed,
		invoke("redrive is invoked", "redrive", AsScheduled, Fields{"left": false}),
		list("it is not open any more", conflictID, "conflict", "replayed"),
	}
}

func (s *Subject) consumed() []Check {
	large := paymenttest.WithAmount(paymenttest.Event(), "2000000.00")
	released := paymenttest.WithAmount(paymenttest.Event(), "5000000000.01")
	stored := func(e payment.Event, amount string) Check {
		return Check{What: "the consumer's function has stored it", Eventually: true, Do: s.latest(e),
			Want: Seen{Fields: Fields{"status": "RELEASED", "amount": amount}}}
	}
	tooLarge, _ := encoded(paymenttest.Noted(large, settings.LargeEventBytes))
	return []Check{
		send("an event that is too large for the bus, of 2,000,000.00", tooLarge, s.accepted(1, 0), Released),
		stored(large, "2000000.00"),
		send("5,000,000,000.01", deliver(released), s.accepted(1, 0), Released),
		stored(released, "5000000000.01"),
	}
}

func (s *Subject) evidence() []Check {
	if s.Stack.EvidenceBucket == "" {
		return nil
	}
	since := time.Now().UTC().Add(-time.Hour).Format("2006-01-02T15")
	twice, id := encoded(paymenttest.Encode(paymenttest.Event()))
	large, _ := encoded(paymenttest.Noted(paymenttest.Event(), 2_000_000))
	proofs := 2
	if !s.usesSignature() {
		proofs = 1 // both are the same request
	}
	return []Check{
		send("a webhook", twice, s.accepted(1, 0), Released),
		send("it again, signed again", twice, s.accepted(0, 1)),
		call("each request has a proof", 0, Fields{"lines": proofs, "deliveryId": id},
			"evidence", "find", id, "--from", since),
		send("an event of 2 MB", large, s.accepted(1, 0), Released),
		call("all proofs verify", 0, Fields{"damaged": 0, "versions": 0}, "evidence", "verify"),
		{What: "S3 rejects the deletion of a proof, and one without a checksum", Do: s.locked,
			Want: Seen{Fields: Fields{"deleted": false, "written": false}}},
	}
}

// nothingElse sends an event that arrives behind every rule. When it has, the events before it have, too.
func (s *Subject) nothingElse() Check {
	last := paymenttest.Event()
	last.EventData.Amount, last.EventData.PaymentCurrency = "1000000.00", "EUR"
	last.EventData.Cases.HasLinkedCases = true
	return send("the last event arrives, and nothing of rejected webhooks and of duplicates", deliver(last),
		s.accepted(1, 0), slices.Collect(maps.Keys(s.Stack.Queues))...)
}

// replaced returns the rows of a token that is about to expire.
func (s *Subject) replaced() []Check {
	calls := Check{What: "a client calls with the stored token", Do: s.callAPI, Want: Seen{Status: http.StatusOK}}
	return []Check{
		refresh().before(s.tokens(5 * time.Second)), calls, // the shortest lifetime that the service supports
		{What: "it is replaced before it expires", Do: s.replace, Before: s.tokens(paymenttest.DefaultTokenLifetime)},
		calls,
	}
}

// service returns the rows that change how the payment service answers. They restore it.
func (s *Subject) service() (rows []Check) {
	if s.Stack.KeepsToken() {
		rows = append(s.replaced(),
			invoke("the token endpoint is down", "token", RefreshNow, Fields{"outcome": "failed"}).
				before(s.fault(paymenttest.Token, paymenttest.Down)),
			Check{What: "a client calls with the stored token", Do: s.callAPI, Want: Seen{Status: http.StatusOK}},
			invoke("the token endpoint is back", "token", RefreshNow, Fields{"outcome": "refreshed"}).
				before(s.fault(paymenttest.Token, "")))
	}
	if !s.fetchesKeys() {
		return rows
	}
	w := deliver(paymenttest.Event())
	back := send("the keys are back", w, s.accepted(1, 0), Released).before(s.fault(paymenttest.Keys, ""))
	back.Eventually = true // the function remembers for a moment that it failed
	return append(rows, send("the keys are down, and a webhook is signed with a new one", w, rejected(503)).before(
		func(ctx context.Context) error {
			return errors.Join(s.fault(paymenttest.Keys, paymenttest.Down)(ctx), s.NewKey(ctx))
		}), back)
}
