package intake_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// countedBus counts its requests.
type countedBus struct {
	bus.Memory
	requests atomic.Int64
}

func (b *countedBus) Put(ctx context.Context, entries []bus.Entry) ([]error, error) {
	b.requests.Add(1)
	return b.Memory.Put(ctx, entries)
}

// delivered is what became of two events in a pipeline.
type delivered struct {
	Requests, Claims int
	Window           time.Duration
	Held             time.Duration // without the time of the invocation, under half a minute
}

func TestAPipelineUsesItsSettings(t *testing.T) {
	service := paymenttest.NewServer(paymenttest.Options{Key: paymenttest.NewKey(2048)})
	defer service.Close()
	base, err := url.Parse(service.URL)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		s     settings.Function
		bytes int // of a member of each event
		want  delivered
	}{
		"one request": {settings.Function{MaxEntryBytes: 1 << 20,
			DeduplicationWindow: time.Hour, RedriveGrace: time.Minute}, 2000,
			delivered{Requests: 1, Window: time.Hour, Held: time.Minute}},
		"small requests": {settings.Function{MaxEntryBytes: 4000,
			DeduplicationWindow: 48 * time.Hour, RedriveGrace: time.Hour}, 2000,
			delivered{Requests: 2, Window: 48 * time.Hour, Held: time.Hour}},
		"large events": {settings.Function{MaxEntryBytes: 1 << 20,
			DeduplicationWindow: time.Hour, RedriveGrace: time.Minute}, settings.ClaimCheckBytes,
			delivered{Requests: 1, Claims: 2, Window: time.Hour, Held: time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			table, events, claims := &ledger.Memory{}, &countedBus{}, &objects.Memory{}
			c.s.ClaimBucket, c.s.Scheme, c.s.KeyService = "claims", paymenttest.DefaultScheme(), base
			c.s.KeyMaxAge = time.Hour
			two := paymenttest.Events(2)
			for i := range two {
				two[i].EventData.Identifiers.PaymentRequestID = strings.Repeat("x", c.bytes)
			}
			signed, err := service.Sender().Sign(t.Context(),
				paymenttest.Webhook{Payload: paymenttest.Delivery(two...)})
			if err != nil {
				t.Fatal(err)
			}
			delivery := intake.Delivery{Payload: signed.Payload, Headers: signed.Headers}
			receive := func() {
				stores := intake.Stores{Ledger: table, Keys: &keys.Memory{}, Bus: events, Claims: claims}
				signature := stores.Signature(&http.Client{}, c.s)
				receiver := intake.NewReceiver(stores.Pipeline(c.s), intake.Mechanisms{Signature: signature})
				if r := receiver.Receive(t.Context(), delivery); r.Outcome != intake.Accepted {
					t.Fatalf("%+v", r)
				}
			}
			receive()
			got := delivered{Requests: int(events.requests.Load()), Claims: len(claims.Keys())}
			for _, item := range table.Items() {
				got.Window = time.Until(item.ExpiresAt).Round(time.Minute)
			}
			// Of a bus that is down, the events are held.
			table = &ledger.Memory{}
			events.Reject = func(bus.Entry) error { return &bus.EntryError{Fault: bus.OfService} }
			receive()
			for _, item := range table.Items() {
				got.Held = time.Until(item.Due).Round(time.Minute)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
