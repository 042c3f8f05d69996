package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"time"

	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/signature"
)

var scheme = paymenttest.DefaultScheme()

// serviceKey signs authentic deliveries.
var serviceKey = sync.OnceValue(func() paymenttest.Key {
	key := paymenttest.NewKey(2048)
	key.ID = "7e000000-0000-4000-8000-000000000001"
	return key
})

var serviceJWK = sync.OnceValue(func() []byte { return serviceKey().JWK() })

// unknownKey signs forged deliveries. The service does not know it.
var unknownKey = sync.OnceValue(func() paymenttest.Key {
	key := paymenttest.NewKey(2048)
	key.ID = "7e000000-0000-4000-8000-000000000002"
	return key
})

// fixedKeys knows only the service's key.
type fixedKeys struct{}

func (fixedKeys) Lookup(_ context.Context, id string, _ netip.Addr) (keys.Found, error) {
	if id != serviceKey().ID {
		return keys.Found{}, keys.ErrUnknown
	}
	return keys.Found{Key: &serviceKey().Private.PublicKey, Source: keys.InMemory}, nil
}

func (fixedKeys) Refetch(context.Context, string, keys.Found, netip.Addr) (keys.Found, error) {
	return keys.Found{}, nil
}

func (fixedKeys) RecordSender(context.Context, netip.Addr) {}

// event is an event of the histories.
type event struct {
	id, label, name string
	at              time.Time
	raw             string
	content         string // in one spelling
	digest          ledger.Digest
}

func (e *event) String() string { return e.label }
func (e *event) isLarge() bool  { return len(e.raw) > largeEventBytes }

var (
	eventsByBytes = map[string]*event{}
	eventsByID    = map[string]*event{}
)

// outside is the variant whose amount is an integer outside 64 bits, which EventBridge rejects. respelled is that with
// another order of members and escapes.
const (
	outside   = 99
	respelled = 98
)

// newEvent returns the n-th event in a variant: 0, 1 (white space) and respelled have the same content, the others
// another amount. Every seventh event is large.
func newEvent(n, variant int) *event {
	e := &event{id: fmt.Sprintf("e0000000-0000-4000-8000-%012x", n), label: fmt.Sprintf("e%d", n),
		name: "PAYMENT_STATUS.RELEASED"}
	e.at = time.Date(2000, 1, 1, 0, 0, n, 123e6, time.UTC)
	amount := fmt.Sprintf("%d.%d0", 1000+n, n%10)
	if variant > 1 && variant != respelled {
		amount = fmt.Sprintf("%d.00", variant)
	}
	if variant == outside {
		amount = "99999999999999999999"
	}
	space := ""
	if variant == 1 {
		space = " \n\t"
	}
	if n%5 == 4 {
		e.name = "PAYMENT_STATUS.RETURNED"
	}
	filling := `"étê \u00e9\n"`
	if n%7 == 6 {
		filling = `"` + strings.Repeat("large ", 100) + `"`
	}
	text := func(space string) string {
		return fmt.Sprintf(`{"eventName":"%s",%[2]s"eventId":"%[3]s","eventTimestamp":"%[4]s",`+
			`%[2]s"eventData":{"amount":%[5]s,"note":%[6]s}}`,
			e.name, space, e.id, e.at.Format("2006-01-02T15:04:05.000Z"), amount, filling)
	}
	e.raw, e.content = text(space), text("")
	if variant == respelled {
		e.raw = strings.Replace(e.raw, `{"eventName":"`+e.name+`",`, `{`, 1)
		e.raw = strings.TrimSuffix(e.raw, "}") + `,"event\u004eame":"` + e.name + `"}`
	}
	e.digest = ledger.DigestOf([]byte(e.raw))
	if variant > 0 {
		e.label += fmt.Sprintf("'%d", variant)
	}
	if known := eventsByBytes[e.raw]; known != nil {
		return known
	}
	eventsByBytes[e.raw] = e
	if variant == 0 {
		eventsByID[e.id] = e
	}
	return e
}

// forgery is the flaw of a forged delivery.
type forgery int

const (
	authentic forgery = iota
	payloadChanged
	wrongSignature // under the service's key id
	unknownKeyID
	tooOld
	forgeries
)

// delivery is a delivery of the histories.
type delivery struct {
	name, id string
	events   []*event
	payload  []byte
	forgery  forgery
	invalid  bool // authentic, but not a delivery of section 2.2
	partly   bool // invalid, because of an element of events that is not in events

	// conflicting: one of its events has other content here or in another delivery
	conflicting bool
	signer      *paymenttest.Key // nil: serviceKey
	from        netip.Addr       // zero: sendersAddress
	twice       bool             // it contains an event with two contents
}

func (d *delivery) genuine() bool { return d.forgery == authentic }

func newDelivery(name string, n int, events ...*event) *delivery {
	d := &delivery{name: name, id: fmt.Sprintf("d0000000-0000-4000-8000-%012x", n), events: events}
	raw := make([][]byte, len(events))
	labels := make([]string, len(events))
	for i, e := range events {
		raw[i], labels[i] = []byte(e.raw), e.label
	}
	d.payload = paymenttest.RawDelivery(d.id, raw...)
	if _, err := payment.DecodeDelivery(d.payload); err != nil {
		panic(err)
	}
	d.name += " [" + strings.Join(labels, " ") + "]"
	return d
}

func (d delivery) forged(f forgery) *delivery {
	d.forgery = f
	d.name += [...]string{"", " (payload changed)", " (wrong signature)", " (unknown key id)", " (too old)"}[f]
	return &d
}

// signed returns the delivery as the function receives it, signed at the given time. Signing takes longer than a
// history, so signatures are cached.
func (d *delivery) signed(at time.Time) intake.Delivery {
	if d.forgery == tooOld {
		at = at.Add(-time.Hour)
	}
	proof := proofOf(d, signature.FormatTime(at))
	out := intake.Delivery{Payload: d.payload, Headers: map[string]string{
		"x-svc-signature": proof.Signature, "x-svc-timestamp": proof.Timestamp, "x-svc-key-id": proof.KeyID,
	}, SenderIP: sendersAddress}
	if d.from.IsValid() {
		out.SenderIP = d.from
	}
	if d.forgery == payloadChanged {
		out.Payload = []byte(strings.Replace(string(d.payload), `"amount":1`, `"amount":9`, 1))
	}
	return out
}

var sendersAddress = netip.MustParseAddr("192.0.2.10")

var proofs sync.Map // proofKey -> signature.Parts

type proofKey struct{ payload, timestamp, key, id string }

func proofOf(d *delivery, timestamp string) signature.Parts {
	key, id := serviceKey(), serviceKey().ID
	if d.signer != nil {
		key, id = *d.signer, d.signer.ID
	}
	switch d.forgery {
	case wrongSignature:
		key = unknownKey()
	case unknownKeyID:
		key = unknownKey()
		if d.signer == nil {
			id = key.ID
		}
	}
	k := proofKey{d.id, timestamp, key.ID, id}
	if d.invalid {
		k.payload += "invalid"
	}
	if p, ok := proofs.Load(k); ok {
		return p.(signature.Parts)
	}
	text, err := signature.Sign(key.Private, d.payload, timestamp, id)
	if err != nil {
		panic(err)
	}
	p := signature.Parts{Timestamp: timestamp, KeyID: id, Signature: text}
	proofs.Store(k, p)
	return p
}

// group is a set of deliveries with common events.
type group []*delivery

// prepare creates what all histories share, outside of their bubbles. Keys and certificates are the same in every
// process: the names of parked objects contain digests of proofs, and objects are replayed in the order of their names.
func prepare(t *testing.T) {
	t.Helper()
	t.Run("prepare", func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, 1)
		serviceKey()
		unknownKey()
		pki()
		rotation()
		groups()
	})
}

// groups returns the groups that random histories choose from.
var groups = sync.OnceValue(func() []group {
	r := rand.New(rand.NewPCG(1, 2))
	var all []group
	for g := range 24 {
		next := g * 40
		fresh := func(n int) (events []*event) {
			for range n {
				events = append(events, newEvent(next, 0))
				next++
			}
			return events
		}
		number := 0
		add := func(in *group, label string, events ...*event) *delivery {
			d := newDelivery(fmt.Sprintf("d%d.%d %s", g, number, label), g*100+number, events...)
			number++
			*in = append(*in, d)
			return d
		}
		var in group
		a := fresh([]int{1, 1, 2, 3, 4}[r.IntN(5)])
		b := fresh(1 + r.IntN(3))
		half := append(append([]*event{}, a[:(len(a)+1)/2]...), b...)
		add(&in, "first", a...)
		add(&in, "half new", half...)
		add(&in, "single", fresh(1)...)
		variant := func(e *event, v int) *event {
			var n int
			fmt.Sscanf(e.id[24:], "%x", &n)
			return newEvent(n, v)
		}
		add(&in, "other white space", variant(a[0], 1))
		conflict := add(&in, "conflicting", append([]*event{variant(a[0], 7)}, fresh(1)...)...)
		conflict.conflicting, in[0].conflicting, in[1].conflicting, in[3].conflicting = true, true, true, true
		add(&in, "same event twice", a[len(a)-1], a[len(a)-1], b[0]).conflicting = len(a) == 1
		c := fresh(1)
		two := add(&in, "two contents", c[0], variant(c[0], 9))
		two.conflicting, two.twice = true, true
		if g%6 == 0 {
			add(&in, "large", append(fresh(24), b[0])...)
		}
		for f := payloadChanged; f < forgeries; f++ {
			in = append(in, in[int(f)%2].forged(f))
		}
		broken := *in[2]
		broken.invalid, broken.name = true, fmt.Sprintf("d%d.broken", g)
		broken.payload = []byte(strings.Replace(string(broken.payload), "eventId", "eventID", 1))
		in = append(in, &broken)
		all = append(all, in)
	}
	return all
})
