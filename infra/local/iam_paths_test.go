package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"payhook.example/infra/local/scenario"
	"payhook.example/shared/claimcheck"
	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/signature"
	"payhook.example/shared/token"
)

// The tests write into the stack's tables and buckets as root, past the proxy.

func (f *fixture) store() *parking.Store { return parking.NewStore(f.S3(), f.ParkingBucket) }

func (f *fixture) ledger() *ledger.Ledger {
	return ledger.New(dynamodb.NewFromConfig(f.AWS), f.LedgerTable, f.Bus, ledger.Options{})
}

// item returns the item of an event in the ledger.
func (f *fixture) item(ctx context.Context, eventID string) (ledger.Item, error) {
	item, _, err := ledger.NewInspector(dynamodb.NewFromConfig(f.AWS), f.LedgerTable).Find(ctx, eventID)
	return item, err
}

// post sends a delivery with the service's present key, and returns an error
// unless it is answered with that status.
func (f *fixture) post(ctx context.Context, payload []byte, status int) (a answer, err error) {
	got, err := f.service.Send(ctx, paymenttest.Webhook{URL: f.WebhookURL, Payload: payload})
	if err != nil {
		return a, err
	}
	a.status = got.Status
	if err := json.Unmarshal(got.Body, &a); err != nil || got.Status != status {
		return a, fmt.Errorf("answered %d %s, want %d", got.Status, got.Body, status)
	}
	return a, nil
}

// large returns an event that is too large for the bus.
func large() []byte {
	return fmt.Appendf(nil, `{"eventName":"PAYMENT_STATUS.RELEASED","eventId":"%s",`+
		`"eventTimestamp":"2026-01-31T12:00:00.120Z","eventData":{"amount":1.00,"note":"%s"}}`,
		uuid.New().String(), bytes.Repeat([]byte("x"), 260_000))
}

// webhookPaths are the paths of the webhook function.
func (f *fixture) webhookPaths() []path {
	return []path{
		{"a delivery is accepted and published, and again a duplicate", func(ctx context.Context) error {
			event := paymenttest.Event()
			if _, err := f.post(ctx, paymenttest.Delivery(event), http.StatusOK); err != nil {
				return err
			}
			if item, err := f.item(ctx, event.EventID); err != nil || item.PublishedAt.IsZero() {
				return errors.Join(wrong("not published", item), err)
			}
			a, err := f.post(ctx, paymenttest.Delivery(event), http.StatusOK)
			if err == nil && a.Duplicates != 1 {
				err = wrong("no duplicate", a)
			}
			return err
		}},
		{"two events are recorded and marked in batches", func(ctx context.Context) error {
			events := paymenttest.Events(2)
			if _, err := f.post(ctx, paymenttest.Delivery(events...), http.StatusOK); err != nil {
				return err
			}
			item, err := f.item(ctx, events[1].EventID)
			if err == nil && item.PublishedAt.IsZero() {
				err = wrong("not published", item)
			}
			return err
		}},
		{"a new key is fetched with a token that is new as well", func(ctx context.Context) error {
			// The function may still hold the token that is revoked.
			f.service.RevokeTokens()
			if run, err := f.RunToken(ctx, scenario.RefreshNow); err != nil || run.Outcome != token.Refreshed {
				return errors.Join(wrong("no new token", run), err)
			}
			f.service.Rotate()
			_, err := f.post(ctx, paymenttest.Delivery(paymenttest.Event()), http.StatusOK)
			return err
		}},
		{"a large event goes to S3", func(ctx context.Context) error {
			event := large()
			if _, err := f.post(ctx, paymenttest.RawDelivery(uuid.New().String(), event), http.StatusOK); err != nil {
				return err
			}
			raw, err := payment.DecodeRawEvent(event)
			if err != nil {
				return err
			}
			out, err := f.S3().ListObjectsV2(ctx, &s3.ListObjectsV2Input{
				Bucket: aws.String(f.ClaimBucket), Prefix: aws.String("events/" + raw.EventID + "/"),
			})
			if err == nil && len(out.Contents) != 1 {
				err = wrong("objects", len(out.Contents))
			}
			return err
		}},
		{"an invalid delivery is parked", func(ctx context.Context) error {
			event, id := paymenttest.Event(), uuid.New().String()
			event.EventName = "no status"
			if _, err := f.post(ctx, paymenttest.RawDelivery(id, paymenttest.Encode(event)),
				http.StatusUnprocessableEntity); err != nil {
				return err
			}
			_, _, err := f.ParkedDelivery(ctx, id)
			return err
		}},
		{"a rejected webhook is captured", func(ctx context.Context) error {
			before, err := f.store().ListCaptured(ctx)
			if err != nil {
				return err
			}
			got, err := f.service.Send(ctx, paymenttest.Webhook{URL: f.WebhookURL,
				Payload: paymenttest.Delivery(paymenttest.Event()), Flaw: paymenttest.SignatureChanged})
			if err != nil || got.Status != http.StatusUnauthorized {
				return errors.Join(wrong("not rejected", got.Status), err)
			}
			after, err := f.store().ListCaptured(ctx)
			if err == nil && len(after) != len(before)+1 {
				err = wrong("captured", len(after)-len(before))
			}
			return err
		}},
	}
}

// pendingEvent writes an event as pending, due at the time given, and returns its id.
// One that is corrupt can't be published.
func (f *fixture) pendingEvent(ctx context.Context, due time.Time, corrupt bool) (string, error) {
	event := paymenttest.Event()
	raw, err := payment.DecodeRawEvent(paymenttest.Encode(event))
	if err != nil {
		return "", err
	}
	e := ledger.NewEntry(raw, uuid.New().String(), time.Now())
	if corrupt {
		e.Digest[0]++
	}
	r := f.ledger().Record(ctx, []ledger.Entry{e}, ledger.NewHolder(), due)[0]
	if r.Err == nil && r.Outcome != ledger.Recorded {
		r.Err = wrong("not recorded", r.Outcome)
	}
	return e.EventID, r.Err
}

// park parks a delivery that is valid by now, as after a fix, and returns its
// name.
func (f *fixture) park(ctx context.Context, events ...[]byte) (string, error) {
	id := uuid.New().String()
	payload := paymenttest.RawDelivery(id, events...)
	key, at := f.service.Key(), time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	proof, err := signature.Sign(key.Private, payload, at, key.ID)
	if err != nil {
		return "", err
	}
	name, _, err := f.store().Park(ctx, parking.Parked{
		Reason: parking.Invalid, Cause: "test", ParkedAt: time.Now(), Bus: f.Bus, DeliveryID: id,
		Payload: payload, Timestamp: at, KeyID: key.ID, Signature: proof, JWK: key.JWK(),
	})
	return name, err
}

// parkLarge parks a large event that could not be published, and returns its name.
func (f *fixture) parkLarge(ctx context.Context) (string, error) {
	event := paymenttest.Event()
	raw, err := payment.DecodeRawEvent(paymenttest.Encode(event))
	if err != nil {
		return "", err
	}
	digest := ledger.DigestOf(raw.Bytes)
	text, err := claimcheck.NewStore(f.S3(), f.ClaimBucket).Put(ctx, raw)
	if err != nil {
		return "", err
	}
	name, _, err := f.store().Park(ctx, parking.Parked{
		Reason: parking.Unpublishable, ParkedAt: time.Now(), Bus: f.Bus, DeliveryID: uuid.New().String(),
		EventIDs: []string{event.EventID},
		Event:    text, Digest: digest[:], Claimed: true, RecordedAt: time.Now(), Attempts: 20,
	})
	return name, err
}

// parkConflict sends a delivery in conflict, and returns the name under which it is parked.
func (f *fixture) parkConflict(ctx context.Context) (string, error) {
	event, id := paymenttest.Event(), uuid.New().String()
	if _, err := f.post(ctx, paymenttest.Delivery(event), http.StatusOK); err != nil {
		return "", err
	}
	event.EventData.Amount = "9250.00"
	if a, err := f.post(ctx, paymenttest.RawDelivery(id, paymenttest.Encode(event)), http.StatusOK); err != nil ||
		a.Conflicts != 1 {
		return "", errors.Join(wrong("no conflict", a), err)
	}
	name, _, err := f.ParkedDelivery(ctx, id)
	return name, err
}

// noName is the name of no parked object.
const noName = "2026/01/31/12/20260131T120000.000Z-invalid-none.json"

// runRedrive runs the redrive function until an item is as it must be. A run of
// the schedule may hold the item meanwhile.
func (f *fixture) runRedrive(ctx context.Context, id string, right func(ledger.Item) bool) error {
	for deadline := time.Now().Add(waitTimeout); ; {
		var ran any
		failed := f.Invoke(ctx, "redrive", "{}", &ran) // as it does if an item is corrupt
		item, err := f.item(ctx, id)
		if err != nil || right(item) {
			return err
		}
		if len(f.proxy.denied()) > 0 || time.Now().After(deadline) {
			return errors.Join(wrong("the item is", item), failed)
		}
		// What a run failed to lease or to mark is due again soon.
		time.Sleep(100 * time.Millisecond)
	}
}

// replay lets the redrive function replay what is parked, and returns the outcome and the cause. It
// does not run redrive after that, which fails if an item of another path is corrupt.
func (f *fixture) replay(ctx context.Context, name string, version intake.Version) (outcome, cause string, err error) {
	var out struct {
		Replayed []struct{ Name, Outcome, Cause string }
	}
	event, err := json.Marshal(map[string]any{"replay": []string{name}, "version": version})
	if err == nil {
		err = f.Invoke(ctx, "redrive", string(event), &out)
	}
	if err == nil && (len(out.Replayed) != 1 || out.Replayed[0].Name != name) {
		err = wrong("replayed", out)
	}
	if err != nil {
		return "", "", err
	}
	return out.Replayed[0].Outcome, out.Replayed[0].Cause, nil
}

// replayed returns an error unless a replay in a version is accepted and leaves what is parked in
// that state.
func (f *fixture) replayed(ctx context.Context, name string, version intake.Version, want parking.State) error {
	outcome, cause, err := f.replay(ctx, name, version)
	if err != nil || outcome != string(intake.Accepted) || cause != "" {
		return errors.Join(wrong("replayed as", outcome+" "+cause), err)
	}
	states, err := f.store().States(ctx)
	if err == nil && states[name] != want {
		err = wrong("it is left in the state", states[name])
	}
	return err
}

// redrivePaths are the paths of the redrive function.
func (f *fixture) redrivePaths() []path {
	return []path{
		{"what is pending is published", func(ctx context.Context) error {
			id, err := f.pendingEvent(ctx, time.Now().Add(-time.Second), false)
			if err != nil {
				return err
			}
			return f.runRedrive(ctx, id, func(i ledger.Item) bool { return !i.PublishedAt.IsZero() })
		}},
		{"two pending events are published", func(ctx context.Context) error {
			due := time.Now().Add(-time.Second)
			_, err := f.pendingEvent(ctx, due, false)
			id, err2 := f.pendingEvent(ctx, due, false)
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			return f.runRedrive(ctx, id, func(i ledger.Item) bool { return !i.PublishedAt.IsZero() })
		}},
		{"a delivery of two events is replayed", func(ctx context.Context) error {
			name, err := f.park(ctx, paymenttest.Encode(paymenttest.Event()), paymenttest.Encode(paymenttest.Event()))
			if err != nil {
				return err
			}
			return f.replayed(ctx, name, intake.NoVersion, parking.Replayed)
		}},
		{"what can't be published again is parked", func(ctx context.Context) error {
			due := time.Now().Add(-2 * time.Second).Truncate(time.Millisecond)
			id, err := f.pendingEvent(ctx, due, true)
			if err != nil {
				return err
			}
			// The first of two attempts.
			if err := f.ledger().Lease(ctx, []ledger.Item{{EventID: id, Due: due}}, ledger.NewHolder(),
				due.Add(time.Second))[0].Err; !errors.Is(err, ledger.ErrCorrupt) {
				return errors.Join(errors.New("it is not corrupt"), err)
			}
			if err := f.runRedrive(ctx, id, func(i ledger.Item) bool { return !i.ParkedAt.IsZero() }); err != nil {
				return err
			}
			names, err := f.store().FindEvent(ctx, id)
			if err == nil && len(names) != 1 {
				err = wrong("parked under", names)
			}
			return err
		}},
		{"a delivery is replayed", func(ctx context.Context) error {
			name, err := f.park(ctx, paymenttest.Encode(paymenttest.Event()), large())
			if err != nil {
				return err
			}
			return f.replayed(ctx, name, intake.NoVersion, parking.Replayed)
		}},
		{"a conflict is replayed in the first version", func(ctx context.Context) error {
			name, err := f.parkConflict(ctx)
			if err != nil {
				return err
			}
			return f.replayed(ctx, name, intake.FirstVersion, parking.Settled)
		}},
		{"a large event is replayed", func(ctx context.Context) error {
			name, err := f.parkLarge(ctx)
			if err != nil {
				return err
			}
			return f.replayed(ctx, name, intake.NoVersion, parking.Replayed)
		}},
		{"what is not parked is said not to be", func(ctx context.Context) error {
			_, cause, err := f.replay(ctx, noName, intake.NoVersion)
			if err == nil && cause != parking.ErrNotParked.Error() {
				err = wrong("the cause is", cause)
			}
			return err
		}},
	}
}

// tokenPaths are the paths of the token function.
func (f *fixture) tokenPaths() []path {
	run := func(event string, want ...token.Outcome) func(context.Context) error {
		return func(ctx context.Context) error {
			got, err := f.RunToken(ctx, event)
			if err == nil && !slices.Contains(want, got.Outcome) {
				err = wrong("the run came to", got)
			}
			return err
		}
	}
	return []path{
		{"a token is refreshed on request", run(scenario.RefreshNow, token.Refreshed)},
	}
}
