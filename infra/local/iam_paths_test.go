package local

import (
	"bytes"
	"context"
	"crypto/rand"
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
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
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

// fresh returns a new event.
func fresh() []byte { return paymenttest.Encode(paymenttest.Event()) }

// versions returns two events with one eventId.
func versions() (first, second []byte) {
	event := paymenttest.Event()
	first = paymenttest.Encode(event)
	event.EventData.Amount = "9250.00"
	return first, paymenttest.Encode(event)
}

// newSecrets makes the service use another key and another token. The function may still hold the token before it.
func (f *fixture) newSecrets(ctx context.Context) error {
	f.machine.service.Change(func(s *paymenttest.State) { s.TokenKey = []byte(rand.Text()) })
	if err := f.refresh(ctx); err != nil {
		return err
	}
	_, err := f.machine.service.Do(ctx, paymenttest.Command{Rotate: true})
	return err
}

// refresh lets the token function refresh the token.
func (f *fixture) refresh(ctx context.Context) error {
	run, err := f.RunToken(ctx, checks.RefreshNow)
	if err == nil && run.Outcome != token.Refreshed {
		err = wrong("the run came to", run)
	}
	return err
}

// webhookPaths are the paths of the webhook function.
func (f *fixture) webhookPaths() []path {
	deliver := func(ctx context.Context, status int, events ...[]byte) error {
		_, err := f.send(ctx, paymenttest.RawDelivery(uuid.New().String(), events...), status)
		return err
	}
	return []path{
		{"a delivery is accepted and published, and again a duplicate", func(ctx context.Context) error {
			event := fresh()
			return errors.Join(deliver(ctx, http.StatusOK, event), deliver(ctx, http.StatusOK, event))
		}},
		{"two events are recorded and marked in batches", func(ctx context.Context) error {
			return deliver(ctx, http.StatusOK, fresh(), fresh())
		}},
		{"a new key is fetched with a token that is new as well", func(ctx context.Context) error {
			return errors.Join(f.newSecrets(ctx), deliver(ctx, http.StatusOK, fresh()))
		}},
		{"a large event goes to S3", func(ctx context.Context) error { return deliver(ctx, http.StatusOK, large()) }},
		{"an invalid delivery is parked", func(ctx context.Context) error {
			return deliver(ctx, http.StatusUnprocessableEntity, []byte("{}"))
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
	raw, err := payment.DecodeRawEvent(fresh())
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
		failed := f.Invoke(ctx, "redrive", "{}", &ran) // as it does if an item is corrupt
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
func (f *fixture) redrive(ctx context.Context, r intake.Request) (a intake.Report, err error) {
	event, err := json.Marshal(r)
	if err == nil {
		err = f.Invoke(ctx, "redrive", string(event), &a)
	}
	return a, err
}

// replay returns what parks something and lets the redrive function replay it. It is parked again for another reason,
// or replayed without events in conflict or without identity.
func (f *fixture) replay(parkedAgain bool, r intake.Request,
	park func(context.Context) (string, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		name, err := park(ctx)
		if err != nil {
			return err
		}
		r.Replay = []string{name}
		a, err := f.redrive(ctx, r)
		if err != nil || len(a.Decided) != 1 {
			return errors.Join(err, wrong("replayed as", a.Decided))
		}
		got := a.Decided[0]
		done := (got.Outcome == intake.Accepted.Name || got.Outcome == intake.FirstKept.Name) && got.Cause == ""
		if parkedAgain && got.Parked == "" || !parkedAgain && !done {
			return wrong("replayed as", got)
		}
		return nil
	}
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
		i.Detail, i.Claimed = text, true
		return err
	}
}

// parkConflict sends a delivery in conflict, and returns the name under which it is parked.
func (f *fixture) parkConflict(ctx context.Context) (string, error) {
	first, second := versions()
	id := uuid.New().String()
	_, err := f.send(ctx, paymenttest.RawDelivery(uuid.New().String(), first), http.StatusOK)
	_, err2 := f.send(ctx, paymenttest.RawDelivery(id, second), http.StatusOK)
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
		{"a delivery of two events is replayed", f.replay(false, intake.Request{},
			func(ctx context.Context) (string, error) { return f.park(ctx, fresh(), fresh()) })},
		{"one with a large event is replayed", f.replay(false, intake.Request{},
			func(ctx context.Context) (string, error) { return f.park(ctx, fresh(), large()) })},
		{"a conflict is replayed in the first version",
			f.replay(false, intake.Request{Version: intake.FirstVersion}, f.parkConflict)},
		{"a parked event is replayed", f.replay(false, intake.Request{},
			func(ctx context.Context) (string, error) { return f.parkEvent(ctx, unchanged) })},
		{"a large parked event is replayed", f.replay(false, intake.Request{},
			func(ctx context.Context) (string, error) { return f.parkEvent(ctx, f.asClaim(ctx)) })},
		{"a captured webhook is replayed, with a new key and a new token", f.replay(false,
			intake.Request{Reason: "test"}, func(ctx context.Context) (string, error) {
				if err := f.newSecrets(ctx); err != nil {
					return "", err
				}
				return f.reject(ctx, paymenttest.Delivery(paymenttest.Event()))
			})},
		{"a captured webhook is replayed, and is invalid", f.replay(true, intake.Request{Reason: "test"},
			func(ctx context.Context) (string, error) { return f.reject(ctx, []byte("{}")) })},
		{"an invalid delivery is replayed, and has a conflict", f.replay(true, intake.Request{},
			func(ctx context.Context) (string, error) {
				first, second := versions()
				return f.park(ctx, first, second)
			})},
		{"a parked event and a delivery are dismissed", func(ctx context.Context) error {
			id, err := f.parkEvent(ctx, unchanged)
			name, err2 := f.park(ctx, fresh())
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			a, err := f.redrive(ctx, intake.Request{Dismiss: []string{id, name}, Reason: "test"})
			if err == nil && (len(a.Decided) != 2 || a.Decided[0].Cause+a.Decided[1].Cause != "") {
				err = wrong("dismissed as", a.Decided)
			}
			return err
		}},
		{"what is not parked is said not to be", func(ctx context.Context) error {
			_, err := f.redrive(ctx, intake.Request{
				Replay: []string{"invalid/2026/01/31/12/20260131T120000.000Z-unknown-none.json"}})
			return err
		}},
	}
}
