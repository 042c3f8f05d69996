package checks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"uuid"

	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/redrive"
)

// Parking returns the parking bucket.
func (s *Scenario) Parking() objects.Store { return s3.NewBucket(s.S3(), s.ParkingBucket) }

// ParkedDelivery returns the only proof that is parked of a deliveryId.
func (s *Scenario) ParkedDelivery(ctx context.Context, id string) (name string, p proof.Proof, err error) {
	list, err := proof.FindDelivery(ctx, s.Parking(), id)
	if err == nil && len(list) != 1 {
		err = fmt.Errorf("%d deliveries are parked", len(list))
	}
	if err != nil {
		return "", p, err
	}
	p, err = proof.Get(ctx, s.Parking(), list[0])
	return list[0], p, err
}

// Redrive invokes the redrive function.
func (s *Scenario) Redrive(ctx context.Context, r redrive.Request) (a redrive.Answer, err error) {
	event, err := json.Marshal(r)
	if err == nil {
		err = s.Invoke(ctx, "redrive", string(event), &a)
	}
	return a, err
}

// replay lets the redrive function replay one conflict in the parked version, and publish what is pending after
// that. It returns the outcome and the decision.
func (s *Scenario) replay(ctx context.Context, name string) string {
	a := Must(s.Redrive(ctx, redrive.Request{Replay: []string{name}, Version: redrive.ParkedVersion}))
	if len(a.Replayed) != 1 || a.Replayed[0].Name != name {
		Require(errors.New("the redrive function does not report the outcome"))
	}
	outcome := a.Replayed[0].Outcome
	if cause := a.Replayed[0].Cause; cause != "" && (outcome == "" || outcome == redrive.Accepted) {
		Require(errors.New(cause)) // it could not be read, or not be marked as replayed
	}
	Require(s.Invoke(ctx, "redrive", AsScheduled, &struct{}{}))
	return outcome + ", " + s.decision(ctx, name)
}

// dismiss lets the redrive function dismiss what has a name.
func (s *Scenario) dismiss(ctx context.Context, name string) {
	a := Must(s.Redrive(ctx, redrive.Request{Dismiss: []string{name}, Reason: "a check", By: "payhook"}))
	if len(a.Dismissed) != 1 || a.Dismissed[0] != (redrive.Dismissed{Name: name}) {
		Require(fmt.Errorf("not dismissed: %+v", a.Dismissed))
	}
}

// decision returns the decision about a parked delivery.
func (s *Scenario) decision(ctx context.Context, name string) string {
	decision, _, err := proof.DecisionOn(ctx, s.Parking(), name)
	Require(err)
	return string(decision)
}

// park sends a delivery with one event, which must be parked. It returns its name, and its reason with what is right
// about it.
func (s *Scenario) park(ctx context.Context, event []byte) (name, got string) {
	id := uuid.New().String()
	payload := paymenttest.RawDelivery(id, event)
	s.post(ctx, payload)
	name, p, err := s.ParkedDelivery(ctx, id)
	Require(err)
	signed, certified := p.Signature != "" && len(p.JWK) > 0, p.Certificate != nil && len(p.Certificate.Chain) > 0
	switch {
	case p.DeliveryID != id:
		return name, "another deliveryId"
	case signed != UsesSignature(s.Settings) || certified != UsesMTLS(s.Settings):
		return name, "another proof"
	case !bytes.Equal(p.Payload, payload):
		return name, "other bytes"
	}
	return name, string(p.Reason) + ", its bytes"
}

// parkConflict publishes an event, and sends it with the amount 9250.00.
func (s *Scenario) parkConflict(ctx context.Context, event payment.Event) (name, got string) {
	s.post(ctx, paymenttest.Delivery(event))
	event.EventData.Amount = "9250.00"
	return s.park(ctx, paymenttest.Encode(event))
}

// parkedChecks returns the checks of parked deliveries.
func (s *Scenario) parkedChecks() []*Check {
	invalid, conflicting := paymenttest.Event(), paymenttest.Event()
	invalid.EventName = "RELEASED"
	var name string // of what was parked last
	parks := func(what, expected string, park func(context.Context) (string, string)) *Check {
		return check(what, expected, func(ctx context.Context) (got string) {
			name, got = park(ctx)
			return got
		})
	}
	return []*Check{
		parks("an invalid delivery, looked up where it is parked", "invalid, its bytes",
			func(ctx context.Context) (string, string) { return s.park(ctx, paymenttest.Encode(invalid)) }),
		check("it is dismissed", "dismissed", func(ctx context.Context) string {
			s.dismiss(ctx, name)
			return s.decision(ctx, name)
		}),
		parks("an event that EventBridge rejects, with an integer of 70 bits",
			strconv.Itoa(s.successStatus())+", parked", s.rejectedByTheBus),
		check("it is dismissed, and sent again", "dismissed, 1 known", func(ctx context.Context) string {
			s.dismiss(ctx, name)
			return s.sentAgain(ctx, name)
		}),
		parks("an event that conflicts: a known eventId, another amount", "conflict, its bytes",
			func(ctx context.Context) (string, string) { return s.parkConflict(ctx, conflicting) }),
		check("it is replayed in the parked version", "accepted, replayed, arrived", func(ctx context.Context) string {
			got := s.replay(ctx, name)
			s.await(ctx, func(one Arrival) bool {
				// EventBridge can write the number in another form.
				var detail struct{ EventData struct{ Amount float64 } }
				return one.EventID == conflicting.EventID && json.Unmarshal(one.Detail, &detail) == nil &&
					detail.EventData.Amount == 9250
			})
			return got + ", arrived"
		}),
	}
}

// rejectedByTheBus sends an event that is valid for Payhook and that EventBridge is known to
// reject. It returns the eventId, and the status of the answer with the state of the event.
func (s *Scenario) rejectedByTheBus(ctx context.Context) (name, got string) {
	event := paymenttest.Event()
	text := paymenttest.Encode(event)
	s.unpublishable = fmt.Appendf(text[:len(text)-1], `,"note":1000000000000000000000}`)
	status := s.post(ctx, paymenttest.RawDelivery(uuid.New().String(), s.unpublishable)).Status
	item := s.item(ctx, event.EventID)
	if !bytes.Equal(item.Detail, s.unpublishable) {
		return event.EventID, "other bytes"
	}
	return event.EventID, fmt.Sprintf("%d, %s", status, item.State)
}

// sentAgain sends the event that EventBridge rejects in another delivery. It returns the state of the event, and
// how many of the delivery were known.
func (s *Scenario) sentAgain(ctx context.Context, eventID string) string {
	var answer struct{ Duplicates int }
	sent := s.post(ctx, paymenttest.RawDelivery(uuid.New().String(), s.unpublishable))
	Require(json.Unmarshal(sent.Body, &answer))
	return fmt.Sprintf("%s, %d known", s.item(ctx, eventID).State, answer.Duplicates)
}

// item returns what the ledger has of an event.
func (s *Scenario) item(ctx context.Context, eventID string) ledger.Item {
	table := dynamodb.NewLedgerReader(dynamodb.NewClient(s.AWS), s.LedgerTable)
	item, _, err := ledger.Find(ctx, table, eventID, true)
	Require(err)
	return item
}
