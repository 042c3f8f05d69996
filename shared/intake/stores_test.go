package intake_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

func TestAPipelineUsesItsSettings(t *testing.T) {
	small := settings.Config{MaxEntryBytes: 4000, DeduplicationWindow: 48 * time.Hour, RedriveGrace: time.Hour}
	large := settings.Config{MaxEntryBytes: 1 << 20, DeduplicationWindow: time.Hour, RedriveGrace: time.Minute}
	for _, c := range []struct {
		s                        settings.Config
		bytes, requests, objects int // of a member of each event; of the bus; claim checks
	}{{small, 2000, 2, 0}, {large, 2000, 1, 0}, {large, settings.LargeEventBytes, 1, 2}} {
		c.s.LargeEventBucket, c.s.Scheme, c.s.KeyEndpoint = "large-events", paymenttest.DefaultScheme(), &url.URL{}
		two := paymenttest.Events(2)
		for i := range two {
			two[i].EventData.Identifiers.PaymentRequestID = strings.Repeat("x", c.bytes)
		}
		for _, answer := range []error{nil, errDown} { // of the bus
			w := newWorld(t)
			var requests atomic.Int64
			w.clock = time.Now
			w.bus.Fails = func(context.Context, string, string) error { requests.Add(1); return answer }
			stores := intake.Stores{Ledger: &w.table, Keys: &keys.Memory{}, Bus: &w.bus, LargeEvents: &w.largeEvents}
			if s := stores.Signature(&http.Client{}, c.s); s.Scheme != c.s.Scheme || s.Keys == nil {
				t.Errorf("%+v", s)
			}
			if r := intake.NewReceiver(stores.Pipeline(c.s), w.mechanisms).Receive(t.Context(),
				w.signed(paymenttest.Delivery(two...))); r.Outcome != intake.Accepted {
				t.Fatalf("%+v", r)
			}
			for _, item := range w.table.Items() {
				// The time of the invocation is under half a minute.
				remembered := time.Until(item.ExpiresAt).Round(time.Minute)
				held := time.Until(item.LeasedUntil).Round(time.Minute)
				if answer != nil && held != c.s.RedriveGrace || answer == nil && (int(requests.Load()) != c.requests ||
					remembered != c.s.DeduplicationWindow || len(w.largeEvents.Keys()) != c.objects) {
					t.Errorf("%+v: remembered for %s, held for %s, %d requests, %d objects", c, remembered, held,
						requests.Load(), len(w.largeEvents.Keys()))
				}
			}
		}
	}
}
