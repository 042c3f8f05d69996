package client_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"payhook.example/shared/aws/stores"
	"payhook.example/shared/awstest"
	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// serve answers the calls of DynamoDB, EventBridge and S3 as if nothing had been stored before.
func serve(w http.ResponseWriter, r *http.Request) {
	answer := "{}"
	switch target := r.Header.Get(awstest.TargetHeader); {
	case strings.HasSuffix(target, ".BatchExecuteStatement"):
		answer = `{"Responses":[` + list(r, `"Statement":`, `{}`) + `]}`
	case target == "AWSEvents.PutEvents":
		answer = `{"FailedEntryCount":0,"Entries":[` + list(r, `"DetailType":`, `{"EventId":"1"}`) + `]}`
	case ofS3(r):
		answer = ""
	}
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, answer)
}

// list returns a text as often as a part occurs in the body of a request.
func list(r *http.Request, part, text string) string {
	body, _ := io.ReadAll(r.Body)
	return strings.TrimPrefix(strings.Repeat(","+text, bytes.Count(body, []byte(part))), ",")
}

// connected returns the stores of a function whose calls are answered at url.
func connected(t *testing.T, url string) intake.Stores {
	t.Helper()
	clients, err := stores.NewClients(environment(url))
	if err != nil {
		t.Fatal(err)
	}
	return clients.Stores(settings.Config{LedgerTable: "ledger", KeysTable: "keys", EventBusName: "bus",
		LargeEventBucket: "large-events", ParkingBucket: "parking", EvidenceBucket: "evidence"})
}

// oneKey knows the key of the service.
type oneKey struct {
	intake.Keys // no other method is called
	key         paymenttest.Key
}

func (k oneKey) Lookup(context.Context, string, netip.Addr) (keys.Found, error) {
	return keys.Found{Key: &k.key.Private.PublicKey}, nil
}

func (oneKey) RecordSender(context.Context, netip.Addr) {}

func ofDynamoDB(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get(awstest.TargetHeader), "DynamoDB")
}
func ofS3(r *http.Request) bool { return r.Header.Get(awstest.TargetHeader) == "" }

// failures are the ways in which a store fails.
var failures = map[string]http.HandlerFunc{
	"500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
	"503": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
	"throttled": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"__type":"ThrottlingException"}`)
	},
	"closed": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	"statements": func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.Header.Get(awstest.TargetHeader), ".BatchExecuteStatement") {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, `{"Responses":[`+
			list(r, `"Statement":`, `{"Error":{"Code":"ProvisionedThroughputExceeded"}}`)+`]}`)
	},
}

// The sender never sends a webhook again, so a store that fails for a moment must not reject it.
func TestAWebhookIsStoredThoughAStoreFailsForThreeSeconds(t *testing.T) {
	key := paymenttest.NewKey(2048)
	signature := intake.Mechanisms{Signature: &intake.Signature{Scheme: paymenttest.DefaultScheme(),
		Keys: oneKey{key: key}}}
	for store, c := range map[string]struct {
		of func(*http.Request) bool
		in []string
	}{
		"DynamoDB": {ofDynamoDB, []string{"500", "503", "throttled", "closed", "statements"}},
		"S3":       {ofS3, []string{"500", "503", "closed"}},
	} {
		for _, how := range c.in {
			for _, fails := range []time.Duration{time.Second, 3 * time.Second} {
				for name, webhook := range map[string]struct{ events, bytes int }{
					"one event": {1, 100}, "many": {60, 100}, "large": {3, 20_000},
				} {
					server := awstest.NewOutage(t, fails, c.of, failures[how], serve)
					synctest.Test(t, func(t *testing.T) {
						start := time.Now()
						p := connected(t, server.URL).Pipeline(settings.Config{
							LargeEventBucket: "large-events", MaxEntryBytes: 20_000, DeduplicationWindow: time.Hour,
							RedriveGrace: time.Minute})
						ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
						defer cancel()
						events := paymenttest.Events(webhook.events)
						for i := range events {
							events[i].EventData.Identifiers.PaymentRequestID = strings.Repeat("x", webhook.bytes)
						}
						signed, err := paymenttest.Sender{Key: key}.Sign(ctx,
							paymenttest.Webhook{Payload: paymenttest.Delivery(events...)})
						if err != nil {
							t.Fatal(err)
						}
						r := intake.NewReceiver(p, signature).Receive(ctx,
							intake.Delivery{Payload: signed.Payload, Headers: signed.Headers})
						if r.Outcome != intake.Accepted || r.Recorded != webhook.events ||
							r.Published != webhook.events || (r.Large > 0) != (name == "large") {
							t.Errorf("%s, %s for %s, %s: after %s %+v", store, how, fails, name, time.Since(start), r)
						}
					})
					if server.Failed.Load() == 0 {
						t.Errorf("%s, %s, %s: no call failed", store, how, name)
					}
				}
			}
		}
	}
}

// The SDK stops to retry after some failures, of all calls of a client together.
func TestEachOfManyCallsOutlastsAnOutage(t *testing.T) {
	server := awstest.NewOutage(t, 3*time.Second, ofDynamoDB, failures["500"], serve)
	synctest.Test(t, func(t *testing.T) {
		db := connected(t, server.URL).Ledger
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() {
				if _, err := db.Get(t.Context(), []string{"1"}, false); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

// Package bus retries, and only what failed. All other calls are retried by the SDK.
func TestOnlyTheSDKsRetriesOfPutEventsAreOff(t *testing.T) {
	server := awstest.NewOutage(t, time.Hour, func(*http.Request) bool { return true }, failures["500"], nil)
	synctest.Test(t, func(t *testing.T) {
		c := connected(t, server.URL)
		if _, err := c.Bus.Put(t.Context(), []bus.Entry{{Source: "source", DetailType: "type",
			Detail: []byte("{}")}}); err == nil || server.Failed.Load() != 1 {
			t.Errorf("%d calls of PutEvents, %v", server.Failed.Load(), err)
		}
		if _, err := c.Keys.Get(t.Context(), "key"); err == nil || server.Failed.Load() != 1+12 {
			t.Errorf("%d calls with those of GetItem, %v", server.Failed.Load(), err)
		}
	})
}
