package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"uuid"

	"payhook.example/shared/intake"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/redrive"
)

func (s *Scenario) store() *parking.Store { return parking.NewStore(s.S3(), s.ParkingBucket) }

// ParkedDelivery returns the only parked object of a deliveryId.
func (s *Scenario) ParkedDelivery(ctx context.Context, id string) (name string, p parking.Parked, err error) {
	list, err := s.store().FindDelivery(ctx, id)
	return s.parkedOne(ctx, list, err)
}

// parkedOne returns the only parked object of a list of names.
func (s *Scenario) parkedOne(ctx context.Context, list []string, err error) (string, parking.Parked, error) {
	if err == nil && len(list) != 1 {
		err = fmt.Errorf("%d objects are parked", len(list))
	}
	if err != nil {
		return "", parking.Parked{}, err
	}
	p, err := s.store().Get(ctx, list[0])
	return list[0], p, err
}

// replay lets the redrive function replay one conflict in the parked version, and publish what is pending after
// that. It returns the outcome and the state of the object.
func (s *Scenario) replay(ctx context.Context, name string) string {
	var report struct {
		Replayed []struct{ Name, Outcome, Cause string }
	}
	event := fmt.Sprintf(`{"replay":[%q],"version":%q}`, name, redrive.ParkedVersion)
	Require(s.Invoke(ctx, "redrive", event, &report))
	if len(report.Replayed) != 1 || report.Replayed[0].Name != name {
		Require(errors.New("the redrive function does not report the outcome"))
	}
	outcome := report.Replayed[0].Outcome
	if cause := report.Replayed[0].Cause; cause != "" && (outcome == "" || outcome == intake.Accepted.Name) {
		Require(errors.New(cause)) // it could not be read, or not be marked as replayed
	}
	Require(s.Invoke(ctx, "redrive", AsScheduled, &struct{}{}))
	return outcome + ", " + s.decision(ctx, name)
}

// decision returns the state of a parked object.
func (s *Scenario) decision(ctx context.Context, name string) string {
	state, _, err := s.store().Decision(ctx, name)
	Require(err)
	return string(state)
}

// park sends a delivery with one event, which must be parked. It returns the name of the object, and
// its reason with what is right about it.
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
	var name string // of the object that was parked last
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
			event := fmt.Sprintf(`{"dismiss":[%q],"reason":"a check","by":"payhook"}`, name)
			Require(s.Invoke(ctx, "redrive", event, &struct{}{}))
			return s.decision(ctx, name)
		}),
		parks("an event that EventBridge rejects, with an integer of 70 bits",
			strconv.Itoa(s.successStatus())+", unpublishable", s.rejectedByTheBus),
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
// reject. It returns the name of the parked object, and the status of the answer with the reason.
func (s *Scenario) rejectedByTheBus(ctx context.Context) (name, got string) {
	event := paymenttest.Event()
	text := paymenttest.Encode(event)
	text = fmt.Appendf(text[:len(text)-1], `,"note":1000000000000000000000}`)
	status := s.post(ctx, paymenttest.RawDelivery(uuid.New().String(), text)).Status
	list, err := s.store().FindEvent(ctx, event.EventID)
	name, p, err := s.parkedOne(ctx, list, err)
	Require(err)
	if !bytes.Equal(p.Event, text) {
		return name, "other bytes"
	}
	return name, fmt.Sprintf("%d, %s", status, p.Reason)
}
