package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
	"uuid"

	"payhook.example/infra/checks"
	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/bus"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/redrive"
	"payhook.example/shared/signature"
	"payhook.example/shared/token"
)

// The paths only make the functions call AWS: the proxy sees which calls are denied. They write
// into the stack's tables and buckets as root, past the proxy.

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
			if run, err := f.RunToken(ctx, checks.RefreshNow); err != nil || run.Outcome != token.Refreshed {
				return errors.Join(wrong("no new token", run), err)
			}
			if _, err := f.machine.service.Do(ctx, paymenttest.Command{Rotate: true}); err != nil {
				return err
			}
			return deliver(http.StatusOK, fresh())(ctx)
		}},
		{"a large event goes to S3", func(ctx context.Context) error { return deliver(http.StatusOK, large())(ctx) }},
		{"an invalid delivery is parked", func(ctx context.Context) error {
			event := paymenttest.Event()
			event.EventName = "no status"
			return deliver(http.StatusUnprocessableEntity, paymenttest.Encode(event))(ctx)
		}},
		{"a conflict is parked", func(ctx context.Context) error {
			_, err := f.parkConflict(ctx)
			return err
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

// record writes an event as pending, and returns its item.
func (f *fixture) record(ctx context.Context, change func(*ledger.Item) error) (ledger.Item, error) {
	raw, err := payment.DecodeRawEvent(paymenttest.Encode(paymenttest.Event()))
	if err != nil {
		return ledger.Item{}, err
	}
	i := ledger.NewItem(raw, uuid.New().String(), time.Now())
	if err := change(&i); err != nil {
		return i, err
	}
	due := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	if r := f.ledger().Record(ctx, []ledger.Item{i}, ledger.NewHolder(), due)[0]; r.Err != nil {
		return i, r.Err
	}
	i, _, err = f.ledger().Find(ctx, i.EventID)
	return i, err
}

func (f *fixture) ledger() *ledger.Ledger {
	return ledger.New(dynamodb.NewLedger(dynamodb.NewClient(f.AWS), f.LedgerTable), ledger.Options{Window: time.Hour})
}

// unchanged leaves an event as it is.
func unchanged(*ledger.Item) error { return nil }

// pending writes events as pending, and runs the redrive function until the ledger says that the
// last one is published or parked. One that is corrupt cannot be published.
func (f *fixture) pending(ctx context.Context, n int, change func(*ledger.Item) error) error {
	var i ledger.Item
	for range n {
		var err error
		if i, err = f.record(ctx, change); err != nil {
			return err
		}
	}
	for deadline := time.Now().Add(waitTimeout); ; time.Sleep(100 * time.Millisecond) {
		var ran any
		failed := f.Invoke(ctx, f.Functions["redrive"], "{}", &ran) // as it does if an item is corrupt
		item, _, err := f.ledger().Find(ctx, i.EventID)
		if err != nil || item.State != ledger.Pending {
			return err
		}
		// A run of the schedule may hold the item meanwhile.
		if len(f.proxy.denied()) > 0 || time.Now().After(deadline) {
			return errors.Join(wrong("the item is", item), failed)
		}
	}
}

func (f *fixture) parking() objects.Store { return s3.NewBucket(f.S3(), f.ParkingBucket) }

// redrive invokes the redrive function.
func (f *fixture) redrive(ctx context.Context, r redrive.Request) (a redrive.Answer, err error) {
	event, err := json.Marshal(r)
	if err == nil {
		err = f.Invoke(ctx, f.Functions["redrive"], string(event), &a)
	}
	return a, err
}

// replay lets the redrive function replay what is parked under a name, without events in conflict or without identity.
func (f *fixture) replay(ctx context.Context, r redrive.Request, name string, err error) error {
	got, err := f.replayed(ctx, r, name, err)
	done := got.Outcome == redrive.Accepted || got.Outcome == redrive.FirstKept
	if err == nil && (!done || got.Cause != "") {
		err = wrong("replayed as", got)
	}
	return err
}

// parksAgain lets the redrive function replay what is parked under a name, which parks it for another reason.
func (f *fixture) parksAgain(ctx context.Context, r redrive.Request, name string, err error) error {
	got, err := f.replayed(ctx, r, name, err)
	if err == nil && got.Parked == "" {
		err = wrong("replayed as", got)
	}
	return err
}

func (f *fixture) replayed(ctx context.Context, r redrive.Request, name string, err error) (redrive.Replayed, error) {
	if err != nil {
		return redrive.Replayed{}, err
	}
	r.Replay = []string{name}
	a, err := f.redrive(ctx, r)
	if err != nil || len(a.Replayed) != 1 {
		return redrive.Replayed{}, errors.Join(err, wrong("replayed as", a.Replayed))
	}
	return a.Replayed[0], nil
}

// park parks a delivery that is valid by now, as after a fix, and returns its name.
func (f *fixture) park(ctx context.Context, events ...[]byte) (string, error) {
	id := uuid.New().String()
	payload := paymenttest.RawDelivery(id, events...)
	key, at := f.machine.service.Key(), time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	signed, err := signature.Sign(key.Private, payload, at, key.ID)
	if err != nil {
		return "", err
	}
	name, _, err := proof.Put(ctx, f.parking(), proof.Proof{Reason: proof.Invalid, StoredAt: time.Now().UTC(),
		DeliveryID: id, Payload: payload, Timestamp: at, KeyID: key.ID, Signature: signed,
		JWK: keys.FormatJWK(key.ID, &key.Private.PublicKey)})
	return name, err
}

// parkEvent parks an event that could not be published, and returns its id.
func (f *fixture) parkEvent(ctx context.Context, change func(*ledger.Item) error) (string, error) {
	i, err := f.record(ctx, change)
	if err == nil {
		err = f.ledger().Park(ctx, i, "test", "test")
	}
	return i.EventID, err
}

// asClaim puts an event into the claim bucket.
func (f *fixture) asClaim(ctx context.Context) func(*ledger.Item) error {
	return func(i *ledger.Item) error {
		raw, err := payment.DecodeRawEvent(i.Detail)
		if err != nil {
			return err
		}
		text, err := bus.NewClaims(s3.NewBucket(f.S3(), f.ClaimBucket), f.ClaimBucket).Put(ctx, raw)
		*i = i.AsClaim(text)
		return err
	}
}

// parkConflict sends a delivery in conflict, and returns the name under which it is parked.
func (f *fixture) parkConflict(ctx context.Context) (string, error) {
	event, id := paymenttest.Event(), uuid.New().String()
	_, err := f.send(ctx, paymenttest.Delivery(event), http.StatusOK)
	event.EventData.Amount = "9250.00"
	_, err2 := f.send(ctx, paymenttest.RawDelivery(id, paymenttest.Encode(event)), http.StatusOK)
	parked, err3 := proof.FindDelivery(ctx, f.parking(), id)
	if err := errors.Join(err, err2, err3); err != nil || len(parked) != 1 {
		return "", errors.Join(err, wrong("parked are", parked))
	}
	return parked[0], nil
}

// reject captures an authentic webhook, and returns its name.
func (f *fixture) reject(ctx context.Context, payload []byte) (string, error) {
	signed, err := paymenttest.Sender{Key: f.machine.service.Key()}.Sign(ctx, paymenttest.Webhook{Payload: payload})
	if err != nil {
		return "", err
	}
	name, _, err := proof.Put(ctx, f.parking(), proof.Proof{Reason: proof.Rejected, Payload: payload,
		Request: &proof.Request{ReceivedAt: time.Now().UTC(), Outcome: "test", Method: http.MethodPost,
			Headers: signed.Headers}})
	return name, err
}

// redrivePaths are the paths of the redrive function.
func (f *fixture) redrivePaths() []path {
	return []path{
		{"what is pending is published", func(ctx context.Context) error { return f.pending(ctx, 1, unchanged) }},
		{"two pending events are published", func(ctx context.Context) error { return f.pending(ctx, 2, unchanged) }},
		{"what cannot be published is parked", func(ctx context.Context) error {
			return f.pending(ctx, 1, func(i *ledger.Item) error {
				i.Digest[0]++
				return nil
			})
		}},
		{"a delivery of two events is replayed", func(ctx context.Context) error {
			name, err := f.park(ctx, paymenttest.Encode(paymenttest.Event()), paymenttest.Encode(paymenttest.Event()))
			return f.replay(ctx, redrive.Request{}, name, err)
		}},
		{"one with a large event is replayed", func(ctx context.Context) error {
			name, err := f.park(ctx, paymenttest.Encode(paymenttest.Event()), large())
			return f.replay(ctx, redrive.Request{}, name, err)
		}},
		{"a conflict is replayed in the first version", func(ctx context.Context) error {
			name, err := f.parkConflict(ctx)
			return f.replay(ctx, redrive.Request{Version: redrive.FirstVersion}, name, err)
		}},
		{"a parked event is replayed", func(ctx context.Context) error {
			id, err := f.parkEvent(ctx, unchanged)
			return f.replay(ctx, redrive.Request{}, id, err)
		}},
		{"a large parked event is replayed", func(ctx context.Context) error {
			id, err := f.parkEvent(ctx, f.asClaim(ctx))
			return f.replay(ctx, redrive.Request{}, id, err)
		}},
		{"a parked event and a delivery are dismissed", func(ctx context.Context) error {
			id, err := f.parkEvent(ctx, unchanged)
			name, err2 := f.park(ctx, paymenttest.Encode(paymenttest.Event()))
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			a, err := f.redrive(ctx, redrive.Request{Dismiss: []string{id, name}, Reason: "test"})
			if err == nil && (len(a.Dismissed) != 2 || a.Dismissed[0].Cause+a.Dismissed[1].Cause != "") {
				err = wrong("dismissed as", a.Dismissed)
			}
			return err
		}},
		{"a captured webhook is replayed, with a new key and a new token", func(ctx context.Context) error {
			f.machine.service.RevokeTokens()
			if run, err := f.RunToken(ctx, checks.RefreshNow); err != nil || run.Outcome != token.Refreshed {
				return errors.Join(wrong("no new token", run), err)
			}
			if _, err := f.machine.service.Do(ctx, paymenttest.Command{Rotate: true}); err != nil {
				return err
			}
			name, err := f.reject(ctx, paymenttest.Delivery(paymenttest.Event()))
			return f.replay(ctx, redrive.Request{Reason: "test"}, name, err)
		}},
		{"a captured webhook is replayed, and is invalid", func(ctx context.Context) error {
			name, err := f.reject(ctx, []byte("{}"))
			return f.parksAgain(ctx, redrive.Request{Reason: "test"}, name, err)
		}},
		{"an invalid delivery is replayed, and has a conflict", func(ctx context.Context) error {
			event := paymenttest.Event()
			other := event
			other.EventData.Amount = "9250.00"
			name, err := f.park(ctx, paymenttest.Encode(event), paymenttest.Encode(other))
			return f.parksAgain(ctx, redrive.Request{}, name, err)
		}},
		{"what is not parked is said not to be", func(ctx context.Context) error {
			_, err := f.redrive(ctx, redrive.Request{
				Replay: []string{"invalid/2026/01/31/12/20260131T120000.000Z-unknown-none.json"}})
			return err
		}},
	}
}

// tokenPaths are the paths of the token function.
func (f *fixture) tokenPaths() []path {
	return []path{{"a token is refreshed on request", func(ctx context.Context) error {
		run, err := f.RunToken(ctx, checks.RefreshNow)
		if err == nil && run.Outcome != token.Refreshed {
			err = wrong("the run came to", run)
		}
		return err
	}}}
}
