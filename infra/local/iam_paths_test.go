package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
	"uuid"

	"payhook.example/infra/local/scenario"
	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/claimcheck"
	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/signature"
	"payhook.example/shared/token"
)

// The paths only make the functions call AWS: the proxy sees which calls are denied. They write
// into the stack's tables and buckets as root, past the proxy.

func (f *fixture) store() *parking.Store { return parking.NewStore(f.S3(), f.ParkingBucket) }

// large returns an event that is too large for the bus.
func large() []byte {
	return fmt.Appendf(nil, `{"eventName":"PAYMENT_STATUS.RELEASED","eventId":"%s",`+
		`"eventTimestamp":"2026-01-31T12:00:00.120Z","eventData":{"amount":1.00,"note":"%s"}}`,
		uuid.New().String(), bytes.Repeat([]byte("x"), 260_000))
}

// webhookPaths are the paths of the webhook function.
func (f *fixture) webhookPaths() []path {
	deliver := func(status int, events ...[]byte) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := f.send(ctx, paymenttest.RawDelivery(uuid.New().String(), events...), status)
			return err
		}
	}
	fresh := func() []byte { return paymenttest.Encode(paymenttest.Event()) }
	return []path{
		{"a delivery is accepted and published, and again a duplicate", func(ctx context.Context) error {
			payload := paymenttest.Delivery(paymenttest.Event())
			_, err := f.send(ctx, payload, http.StatusOK)
			_, err2 := f.send(ctx, payload, http.StatusOK)
			return errors.Join(err, err2)
		}},
		{"two events are recorded and marked in batches", func(ctx context.Context) error {
			return deliver(http.StatusOK, fresh(), fresh())(ctx)
		}},
		{"a new key is fetched with a token that is new as well", func(ctx context.Context) error {
			// The function may still hold the token that is revoked.
			f.machine.service.RevokeTokens()
			if run, err := f.RunToken(ctx, scenario.RefreshNow); err != nil || run.Outcome != token.Refreshed {
				return errors.Join(wrong("no new token", run), err)
			}
			f.machine.service.Rotate()
			return deliver(http.StatusOK, fresh())(ctx)
		}},
		{"a large event goes to S3", func(ctx context.Context) error { return deliver(http.StatusOK, large())(ctx) }},
		{"an invalid delivery is parked", func(ctx context.Context) error {
			event := paymenttest.Event()
			event.EventName = "no status"
			return deliver(http.StatusUnprocessableEntity, paymenttest.Encode(event))(ctx)
		}},
		{"a rejected webhook is captured", func(ctx context.Context) error {
			got, err := f.machine.service.Send(ctx, paymenttest.Webhook{URL: f.WebhookURL,
				Payload: paymenttest.Delivery(paymenttest.Event()), Flaw: paymenttest.SignatureChanged})
			if err == nil && got.Status != http.StatusUnauthorized {
				err = wrong("not rejected", got.Status)
			}
			return err
		}},
	}
}

// pending writes events as pending, and runs the redrive function until the ledger says that the
// last one is published or parked. One that is corrupt cannot be published.
func (f *fixture) pending(ctx context.Context, n int, corrupt bool) error {
	client := dynamodb.NewClient(f.AWS)
	l := ledger.New(dynamodb.NewLedger(client, f.LedgerTable), ledger.Options{})
	due := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	var e ledger.Item
	for range n {
		raw, err := payment.DecodeRawEvent(paymenttest.Encode(paymenttest.Event()))
		if err != nil {
			return err
		}
		e = ledger.NewItem(raw, uuid.New().String(), time.Now())
		if corrupt {
			e.Digest[0]++
		}
		if r := l.Record(ctx, []ledger.Item{e}, ledger.NewHolder(), due)[0]; r.Err != nil {
			return r.Err
		}
	}
	for attempts := 1; corrupt && attempts < redriveAttempts; attempts++ {
		next := due.Add(time.Second)
		if err := l.Lease(ctx, []ledger.Item{{EventID: e.EventID, Due: due}}, ledger.NewHolder(),
			next)[0].Err; !errors.Is(err, ledger.ErrCorrupt) {
			return errors.Join(errors.New("it is not corrupt"), err)
		}
		due = next
	}
	for deadline := time.Now().Add(waitTimeout); ; time.Sleep(100 * time.Millisecond) {
		var ran any
		failed := f.Invoke(ctx, "redrive", "{}", &ran) // as it does if an item is corrupt
		item, _, err := ledger.Find(ctx, dynamodb.NewLedgerReader(client, f.LedgerTable), e.EventID, false)
		if err != nil || item.State != ledger.Pending {
			return err
		}
		// A run of the schedule may hold the item meanwhile.
		if len(f.proxy.denied()) > 0 || time.Now().After(deadline) {
			return errors.Join(wrong("the item is", item), failed)
		}
	}
}

// replay lets the redrive function replay what is parked under a name.
func (f *fixture) replay(ctx context.Context, name string, version intake.Version, err error) error {
	return f.replays(ctx, fmt.Sprintf(`{"replay":[%q],"version":%q}`, name, version), err)
}

// replays invokes the redrive function, which must replay one object.
func (f *fixture) replays(ctx context.Context, event string, err error) error {
	var ran struct {
		Replayed []struct{ Outcome, Cause string }
	}
	if err == nil {
		err = f.Invoke(ctx, "redrive", event, &ran)
	}
	if err == nil && (len(ran.Replayed) != 1 || ran.Replayed[0].Outcome != intake.Accepted.Name ||
		ran.Replayed[0].Cause != "") {
		err = wrong("replayed as", ran)
	}
	return err
}

// park parks a delivery that is valid by now, as after a fix, and returns its name.
func (f *fixture) park(ctx context.Context, events ...[]byte) (string, error) {
	id := uuid.New().String()
	payload := paymenttest.RawDelivery(id, events...)
	key, at := f.machine.service.Key(), time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	proof, err := signature.Sign(key.Private, payload, at, key.ID)
	if err != nil {
		return "", err
	}
	name, _, err := f.store().Park(ctx, parking.Parked{Reason: parking.Invalid, Cause: "test", ParkedAt: time.Now(),
		DeliveryID: id, Payload: payload, Timestamp: at, KeyID: key.ID, Signature: proof, JWK: key.JWK()})
	return name, err
}

// parkLarge parks a large event that could not be published, and returns its name.
func (f *fixture) parkLarge(ctx context.Context) (string, error) {
	raw, err := payment.DecodeRawEvent(paymenttest.Encode(paymenttest.Event()))
	if err != nil {
		return "", err
	}
	digest := ledger.DigestOf(raw.Bytes)
	text, err := claimcheck.NewStore(s3.NewBucket(f.S3(), f.ClaimBucket), f.ClaimBucket).Put(ctx, raw)
	if err != nil {
		return "", err
	}
	name, _, err := f.store().Park(ctx, parking.Parked{Reason: parking.Unpublishable, ParkedAt: time.Now(),
		DeliveryID: uuid.New().String(), EventIDs: []string{raw.EventID}, Event: text, Digest: digest[:], Claimed: true,
		RecordedAt: time.Now(), Attempts: redriveAttempts})
	return name, err
}

// parkConflict sends a delivery in conflict, and returns the name under which it is parked.
func (f *fixture) parkConflict(ctx context.Context) (string, error) {
	event, id := paymenttest.Event(), uuid.New().String()
	_, err := f.send(ctx, paymenttest.Delivery(event), http.StatusOK)
	event.EventData.Amount = "9250.00"
	_, err2 := f.send(ctx, paymenttest.RawDelivery(id, paymenttest.Encode(event)), http.StatusOK)
	name, _, err3 := f.ParkedDelivery(ctx, id)
	return name, errors.Join(err, err2, err3)
}

// replayCaptured captures an authentic webhook, and lets the redrive function replay it.
func (f *fixture) replayCaptured(ctx context.Context) error {
	signed, err := paymenttest.Sender{Key: f.machine.service.Key()}.Sign(ctx,
		paymenttest.Webhook{URL: f.WebhookURL, Payload: paymenttest.Delivery(paymenttest.Event())})
	if err != nil {
		return err
	}
	headers := map[string]string{}
	for name := range signed.Header {
		headers[name] = signed.Header.Get(name)
	}
	name, err := f.store().Capture(ctx, parking.Captured{ReceivedAt: time.Now(), Outcome: "test",
		Method: http.MethodPost, Headers: headers, Payload: signed.Body})
	return f.replays(ctx, fmt.Sprintf(`{"captured":[%q],"reason":"test"}`, name), err)
}

// redrivePaths are the paths of the redrive function.
func (f *fixture) redrivePaths() []path {
	return []path{
		{"what is pending is published", func(ctx context.Context) error { return f.pending(ctx, 1, false) }},
		{"two pending events are published", func(ctx context.Context) error { return f.pending(ctx, 2, false) }},
		{"what cannot be published is parked", func(ctx context.Context) error { return f.pending(ctx, 1, true) }},
		{"a delivery of two events is replayed", func(ctx context.Context) error {
			name, err := f.park(ctx, paymenttest.Encode(paymenttest.Event()), paymenttest.Encode(paymenttest.Event()))
			return f.replay(ctx, name, intake.NoVersion, err)
		}},
		{"one with a large event is replayed", func(ctx context.Context) error {
			name, err := f.park(ctx, paymenttest.Encode(paymenttest.Event()), large())
			return f.replay(ctx, name, intake.NoVersion, err)
		}},
		{"a conflict is replayed in the first version", func(ctx context.Context) error {
			name, err := f.parkConflict(ctx)
			return f.replay(ctx, name, intake.FirstVersion, err)
		}},
		{"a large event is replayed", func(ctx context.Context) error {
			name, err := f.parkLarge(ctx)
			return f.replay(ctx, name, intake.NoVersion, err)
		}},
		{"a captured webhook is replayed, with a new key and a new token", func(ctx context.Context) error {
			f.machine.service.RevokeTokens()
			if run, err := f.RunToken(ctx, scenario.RefreshNow); err != nil || run.Outcome != token.Refreshed {
				return errors.Join(wrong("no new token", run), err)
			}
			f.machine.service.Rotate()
			return f.replayCaptured(ctx)
		}},
		{"what is not parked is said not to be", func(ctx context.Context) error {
			const event = `{"replay":["2026/01/31/12/20260131T120000.000Z-invalid-none.json"]}`
			return f.Invoke(ctx, "redrive", event, &struct{}{})
		}},
	}
}

// tokenPaths are the paths of the token function.
func (f *fixture) tokenPaths() []path {
	return []path{{"a token is refreshed on request", func(ctx context.Context) error {
		run, err := f.RunToken(ctx, scenario.RefreshNow)
		if err == nil && run.Outcome != token.Refreshed {
			err = wrong("the run came to", run)
		}
		return err
	}}}
}
