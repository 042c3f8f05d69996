package checks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"uuid"

	"payhook.example/shared/clientcert"
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
	// otherBus is the queue behind the bus that the consumer sends events to.
	otherBus = "other-bus"
)

// Rules returns the rules that the consumer must deploy.
func Rules() []string { return []string{Released, euro, needsAttention} }

// The events of the functions token and redrive.
const (
	AsScheduled = `{}`
	RefreshNow  = `{"refresh":true}`
)

// Sections returns all rows for the settings of the stack. Some depend on earlier ones. The last section changes how
// the payment service answers.
func (s *Subject) Sections() []Section {
	sections := []Section{{"Deliveries, duplicates and rules", s.deliveries()}}
	if s.usesSignature() {
		sections = append(sections, Section{"Signatures, timestamps and key ids", s.signatures()})
	}
	if UsesMTLS(s.Settings) {
		sections = append(sections, Section{"Client certificates", s.certificates()})
	}
	sections = append(sections,
		Section{"Requests that are not valid", s.invalid()},
		Section{"What is parked", s.parked()},
		Section{"The consumer's function", s.consumed()})
	if s.EvidenceBucket != "" {
		sections = append(sections, Section{"Evidence of what was accepted", s.evidence()})
	}
	return append(sections,
		Section{"What has arrived", []Check{s.nothingElse()}},
		Section{"The access token, and faults of the payment service", s.service()})
}

// Mechanism returns the rows of a stack that is there for its authentication and its token store only.
func (s *Subject) Mechanism() []Section {
	what, one := "one event", deliver(paymenttest.Event())
	if !s.usesSignature() {
		what, one.Flaw = "one event, without a signature", paymenttest.SignatureMissing
	}
	rows := append([]Check{refresh(), {What: what, Webhook: one, Rules: Released, Want: s.accepted(1, 0)}},
		s.certificates()...)
	if s.EvidenceBucket != "" {
		rows = append(rows, s.evidence()...)
	}
	if s.TokenParameter != "" {
		rows = append(rows, s.replaced())
	}
	return []Section{{s.Stack + ": client certificates", append(rows, s.nothingElse())}}
}

func deliver(events ...payment.Event) *paymenttest.Webhook {
	return raw(paymenttest.Delivery(events...))
}

func raw(payload []byte) *paymenttest.Webhook { return &paymenttest.Webhook{Payload: payload} }

// padded returns an event that is longer by size bytes.
func padded(e payment.Event, size int) []byte {
	event := paymenttest.Encode(e)
	return fmt.Appendf(event[:len(event)-1], `,"note":"%s"}`, strings.Repeat("x", size))
}

// accepted is the answer to an accepted delivery.
func (s *Subject) accepted(recorded, duplicates int) Seen {
	status, _ := strconv.Atoi(s.Setting("successStatus"))
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

// refresh stores a token, since keys may be fetched with it.
func refresh() Check {
	return Check{What: "the token function is invoked", Function: "token", Event: RefreshNow,
		Want: Seen{Fields: Fields{"outcome": "refreshed"}}}
}

func (s *Subject) deliveries() []Check {
	many := deliver(paymenttest.Events(25)...)
	high, returned, nameless := paymenttest.Event(), paymenttest.Event(), paymenttest.Event()
	high.EventData.Amount, high.EventData.PaymentCurrency = "1234567890.10", "EUR"
	returned.EventData.Returns.HasReturnDetails = true
	nameless.EventID = ""
	rows := []Check{
		{What: "one event", Webhook: deliver(paymenttest.Event()), Rules: Released, Want: s.accepted(1, 0)},
		{What: "25 events in one delivery", Webhook: many, Rules: Released, Want: s.accepted(25, 0)},
		{What: "the same 25 again", Webhook: many, Want: s.accepted(0, 25)},
		{What: "1,234,567,890.10 EUR", Webhook: deliver(high), Rules: Released + " " + euro, Want: s.accepted(1, 0)},
		{What: "one with return details", Webhook: deliver(returned), Want: s.accepted(1, 0),
			Rules: Released + " " + needsAttention + " " + otherBus},
		{What: "two events, one without eventId", Webhook: deliver(paymenttest.Event(), nameless), Rules: Released,
			Want: Seen{Status: 422, Fields: Fields{"recorded": 1, "status": 422}}},
	}
	if s.KeepsToken() {
		rows = append([]Check{refresh()}, rows...)
	}
	if s.fetchesKeys() {
		rows = append(rows, Check{What: "one event, signed with a new key", Before: s.NewKey,
			Webhook: deliver(paymenttest.Event()), Rules: Released, Want: s.accepted(1, 0)})
	}
	return rows
}

// flaws are those of a signature that the path of a request to the function can hide or change, and one of each other
// kind.
var flaws = []paymenttest.Flaw{paymenttest.SignatureChanged, paymenttest.PayloadChanged, paymenttest.TimestampChanged,
	paymenttest.KeyIDChanged, paymenttest.WrongKey, paymenttest.UnknownKey, paymenttest.SignatureMissing,
	paymenttest.SignatureRepeated, paymenttest.TimestampRepeated, paymenttest.KeyIDRepeated}

func (s *Subject) signatures() (rows []Check) {
	for _, flaw := range flaws {
		if _, static := signature.StaticKeyID(s.Setting("keyIdLocation")); static && strings.HasPrefix(string(flaw), "keyid") {
			continue
		}
		w := deliver(paymenttest.Event())
		w.Flaw = flaw
		rows = append(rows, Check{What: "not authentic: " + strings.ReplaceAll(string(flaw), "-", " "), Webhook: w,
			Want: unauthorized()})
	}
	if text := s.Setting("timestampTolerance"); text != "off" {
		tolerance, _ := settings.ParseDuration(text)
		old, early := deliver(paymenttest.Event()), deliver(paymenttest.Event())
		old.Age, early.Age = tolerance+time.Minute, -tolerance-time.Minute
		rows = append(rows, Check{What: "timestamp too old", Webhook: old, Want: unauthorized()},
			Check{What: "timestamp in the future", Webhook: early, Want: unauthorized()})
	}
	return rows
}

// certificateFlaws are flaws of client certificates. API Gateway rejects all but the last one. The first two are shown
// with every mechanism.
var certificateFlaws = []struct {
	flaw paymenttest.CertificateFlaw
	what string
}{
	{paymenttest.NoCertificate, "no client certificate"},
	{paymenttest.UnknownCA, "client certificate of an unknown CA"},
	{paymenttest.CertificateExpired, "client certificate expired"},
	{paymenttest.ForgedSignature, "client certificate with a forged signature"},
	{paymenttest.ServerUsage, "certificate for servers only"},
}

func (s *Subject) certificates() (rows []Check) {
	event := func() *paymenttest.Webhook { return deliver(paymenttest.Event()) }
	if c := s.Certificates; c.Next.Leaf != nil {
		rows = []Check{
			{What: "one event with the service's next client certificate", Webhook: event(), Certificate: c.Next,
				Rules: Released, Want: s.accepted(1, 0)},
			{What: "client certificate with a revoked key", Webhook: event(), Certificate: c.Revoked, Want: unauthorized()},
			{What: "client certificate not pinned", Webhook: event(), Certificate: c.Unpinned, Want: unauthorized()},
		}
	}
	flaws := certificateFlaws
	if s.usesSignature() {
		unsigned, forged := event(), event()
		unsigned.Flaw, forged.Flaw = paymenttest.SignatureMissing, paymenttest.SignatureChanged
		rows = append(rows, Check{What: "valid certificate, invalid signature", Webhook: forged, Want: unauthorized()},
			Check{What: "valid certificate, no signature", Webhook: unsigned, Want: unauthorized()})
		flaws = flaws[:2]
	}
	for _, f := range flaws {
		w, want := event(), byAWS(http.StatusForbidden)
		if w.Certificate = f.flaw; f.flaw == paymenttest.ServerUsage {
			want = unauthorized()
		}
		rows = append(rows, Check{What: f.what, Webhook: w, Want: want})
	}
	// Other gateways pass on certificates in these headers.
	own := s.Identity.Certificate().Leaf
	text := strings.ReplaceAll(string(paymenttest.EncodeCertificate(own)), "\n", "%0A")
	imitated := event()
	imitated.Certificate, imitated.Header = paymenttest.UnknownCA, http.Header{
		"X-Amzn-Mtls-Clientcert":  {text},
		"X-Forwarded-Client-Cert": {fmt.Sprintf("Hash=%s;Cert=%q", clientcert.Fingerprint(own), text)},
	}
	return append(rows, Check{What: "the right certificate in headers, another in TLS", Webhook: imitated,
		Want: byAWS(http.StatusForbidden)})
}

func (s *Subject) invalid() []Check {
	// Function URLs of AWS reject methods that they do not know. An HTTP API has no route for another method.
	other, want := deliver(paymenttest.Event()), rejected(http.StatusMethodNotAllowed)
	if want.Fields["Allow"] = strings.Join(settings.Methods(), ", "); s.Setting("domainName") != "" {
		want = byAWS(http.StatusNotFound)
	}
	other.Method = http.MethodDelete
	rows := []Check{
		{What: "not JSON, but signed", Webhook: raw([]byte("released")), Want: rejected(422)},
		{What: "wrong method", Webhook: other, Want: want},
	}
	if s.Endpoint == "" { // the emulator has no limit
		rows = append(rows, Check{What: "more than Lambda takes", Webhook: raw(bytes.Repeat([]byte(" "), 6<<20)),
			Want: byAWS(http.StatusRequestEntityTooLarge)})
	}
	return rows
}

// parked returns the rows of what is parked, with the commands of an operator.
func (s *Subject) parked() []Check {
	const reason = "a check"
	invalid, first, unpublishable := paymenttest.Event(), paymenttest.Event(), paymenttest.Event()
	invalid.EventName = "RELEASED"
	parked := first
	parked.EventData.Amount = "9250.00"
	// EventBridge is known to reject an integer of 70 bits, which is valid for Payhook.
	text := paymenttest.Encode(unpublishable)
	text = fmt.Appendf(text[:len(text)-1], `,"note":1000000000000000000000}`)
	ids := []string{uuid.New().String(), uuid.New().String()}
	delivery := paymenttest.RawDelivery(ids[0], paymenttest.Encode(invalid))
	digest := sha256.Sum256(delivery)
	list := func(what, id, kind, state string) Check {
		return Check{What: what, Call: []string{"parked", "list", "--delivery", id, "--state", "any"},
			Want: Seen{Fields: Fields{"lines": 1, "kind": kind, "state": state}}}
	}
	state := func(what, state string, status int) Check {
		return Check{What: what, Call: []string{"event", unpublishable.EventID},
			Want: Seen{Status: status, Fields: Fields{"state": state}}}
	}
	conflict := s.accepted(0, 0)
	conflict.Fields["conflicts"] = 1
	return []Check{
		{What: "an invalid delivery", Webhook: raw(delivery), Want: rejected(422)},
		list("it is parked", ids[0], "invalid", "open"),
		{What: "it has the bytes that were sent", Call: []string{"parked", "show", "NAME"},
			Want: Seen{Fields: Fields{"deliveryId": ids[0], "payloadSha256": hex.EncodeToString(digest[:])}}},
		{What: "its signature, key and certificate verify", Call: []string{"evidence", "verify",
			"s3://" + s.ParkingBucket + "/invalid/"}, Want: Seen{Fields: Fields{"damaged": 0, "versions": 0}}},
		{What: "it is dismissed", Call: []string{"dismiss", "NAME", "--reason", reason},
			Want: Seen{Fields: Fields{"failed": false}}},
		list("it is not open any more", ids[0], "invalid", "dismissed"),

		{What: "an event that EventBridge rejects", Webhook: raw(paymenttest.RawDelivery(uuid.New().String(), text)),
			Want: s.accepted(1, 0)},
		state("it is parked", "parked", 1),
		{What: "it is dismissed", Call: []string{"dismiss", unpublishable.EventID, "--reason", reason},
			Want: Seen{Fields: Fields{"failed": false}}},
		{What: "it is sent again", Webhook: raw(paymenttest.RawDelivery(uuid.New().String(), text)), Want: s.accepted(0, 1)},
		state("it is still dismissed", "dismissed", 0),

		{What: "an event", Webhook: deliver(first), Rules: Released, Want: s.accepted(1, 0)},
		{What: "the same eventId with another amount", Want: conflict,
			Webhook: raw(paymenttest.RawDelivery(ids[1], paymenttest.Encode(parked)))},
		list("it is parked", ids[1], "conflict", "open"),
		{What: "the parked version is replayed", Call: []string{"replay", "NAME", "--version", "parked", "--reason", reason,
			"--yes"}, Want: Seen{Fields: Fields{"failed": false},
			Arrivals: []Arrival{{Rule: Released, Type: first.EventName, EventID: first.EventID, Amount: 9250}}}},
		{What: "redrive is invoked", Function: "redrive", Event: AsScheduled, Want: Seen{Fields: Fields{"left": false}}},
		list("it is not open any more", ids[1], "conflict", "replayed"),
	}
}

// consumed returns the rows of the consumer's function.
func (s *Subject) consumed() (rows []Check) {
	large, released := paymenttest.Event(), paymenttest.Event()
	large.EventData.Amount, released.EventData.Amount = "2000000.00", "5000000000.01"
	stored := func(e payment.Event, status string) Check {
		return Check{What: "the consumer's function has stored it", Eventually: true, Do: s.latest(e),
			Want: Seen{Fields: Fields{"status": status, "amount": string(e.EventData.Amount)}}}
	}
	rows = []Check{
		{What: "an event that is too large for the bus, of 2,000,000.00", Rules: Released, Want: s.accepted(1, 0),
			Webhook: raw(paymenttest.RawDelivery(uuid.New().String(), padded(large, settings.ClaimCheckBytes)))},
		stored(large, "RELEASED"),
		{What: "5,000,000,000.01", Webhook: deliver(released), Rules: Released, Want: s.accepted(1, 0)},
		stored(released, "RELEASED"),
	}
	for _, e := range []struct {
		status, id, latest string
		at                 time.Duration // after the time of the one that is stored
	}{
		{"ACCEPTED", released.EventID, "RELEASED", -time.Second},
		{"SETTLED", "00000000-0000-4000-8000-000000000000", "SETTLED", time.Second},
		{"RELEASED", released.EventID, "SETTLED", 0},
		{"LARGER", "00000000-0000-4000-8000-000000000001", "LARGER", time.Second},
		{"SETTLED", "00000000-0000-4000-8000-000000000000", "LARGER", time.Second},
	} {
		next := released
		data := &next.EventData.PaymentStatus
		next.EventID, data.Status, data.StatusTime = e.id, e.status, data.StatusTime.Add(e.at)
		check := stored(next, e.latest)
		check.What = "it gets " + e.status + ", and the latest status is stored"
		check.Before = func(ctx context.Context) error {
			return s.Invoke(ctx, s.consumer, fmt.Sprintf(`{"detail":%s}`, paymenttest.Encode(next)), &struct{}{})
		}
		rows = append(rows, check)
	}
	return rows
}

func (s *Subject) evidence() []Check {
	id, since := uuid.New().String(), time.Now().UTC().Add(-time.Hour).Format("2006-01-02T15")
	twice, records := raw(paymenttest.RawDelivery(id, paymenttest.Encode(paymenttest.Event()))), 2
	if !s.usesSignature() {
		records = 1 // both are the same request
	}
	return []Check{
		{What: "a webhook", Webhook: twice, Rules: Released, Want: s.accepted(1, 0)},
		{What: "it again, signed again", Webhook: twice, Want: s.accepted(0, 1)},
		{What: "each request has a record", Call: []string{"evidence", "find", id, "--from", since},
			Want: Seen{Fields: Fields{"lines": records, "deliveryId": id}}},
		{What: "an event of 2 MB", Rules: Released, Want: s.accepted(1, 0),
			Webhook: raw(paymenttest.RawDelivery(uuid.New().String(), padded(paymenttest.Event(), 2_000_000)))},
		{What: "all records verify", Call: []string{"evidence", "verify", "s3://" + s.EvidenceBucket},
			Want: Seen{Fields: Fields{"damaged": 0, "versions": 0}}},
		{What: "S3 deletes a record, and takes one without a checksum", Do: s.locked,
			Want: Seen{Fields: Fields{"deleted": false, "written": false}}},
	}
}

// nothingElse sends an event that arrives behind every rule. When it has, the events before it have, too.
func (s *Subject) nothingElse() Check {
	last := paymenttest.Event()
	last.EventData.Amount, last.EventData.PaymentCurrency = "1000000.00", "EUR"
	last.EventData.Cases.HasLinkedCases = true
	return Check{What: "the last event arrives, and nothing of rejected webhooks and of duplicates", Webhook: deliver(last),
		Rules: strings.Join(sortedKeys(s.Queues), " "), Want: s.accepted(1, 0)}
}

// service returns the rows that change how the payment service answers. They restore it.
func (s *Subject) service() (rows []Check) {
	if s.KeepsToken() {
		rows = []Check{s.replaced(),
			{What: "the token endpoint is down", Before: s.fault(paymenttest.Token, paymenttest.Down), Function: "token",
				Event: RefreshNow, Want: Seen{Fields: Fields{"outcome": "failed"}}},
			{What: "a client calls with the stored token", Do: s.callAPI, Want: Seen{Status: 200}},
			{What: "the token endpoint is back", Before: s.fault(paymenttest.Token, ""), Function: "token",
				Event: RefreshNow, Want: Seen{Fields: Fields{"outcome": "refreshed"}}}}
	}
	if !s.fetchesKeys() {
		return rows
	}
	w := deliver(paymenttest.Event())
	return append(rows,
		Check{What: "the keys are down, and a webhook is signed with a new one", Webhook: w, Want: rejected(503),
			Before: func(ctx context.Context) error {
				err := s.fault(paymenttest.Keys, paymenttest.Down)(ctx)
				if err == nil {
					err = s.NewKey(ctx)
				}
				return err
			}},
		// The function remembers for a moment that it failed.
		Check{What: "the keys are back", Before: s.fault(paymenttest.Keys, ""), Webhook: w, Eventually: true,
			Rules: Released, Want: s.accepted(1, 0)})
}
