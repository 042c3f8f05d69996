package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"uuid"

	"payhook.example/shared/claimcheck"
	"payhook.example/shared/intake"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

func (s *Scenario) store() *parking.Store { return parking.NewStore(s.Objects(), s.ParkingBucket) }

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

// ParkedDelivery returns the only parked object of a deliveryId.
func (s *Scenario) ParkedDelivery(ctx context.Context, id string) (name string, p parking.Parked, err error) {
	list, err := s.store().FindDelivery(ctx, id)
	return s.parkedOne(ctx, list, err)
}

// ParkedEvent returns the only parked object of an eventId.
func (s *Scenario) ParkedEvent(ctx context.Context, id string) (name string, p parking.Parked, err error) {
	list, err := s.store().FindEvent(ctx, id)
	return s.parkedOne(ctx, list, err)
}

// Replay lets the redrive function replay one parked object, in a version if it is a conflict,
// and publish what is pending after that. It returns the outcome.
func (s *Scenario) Replay(ctx context.Context, name string, version intake.Version) (outcome string, err error) {
	event, err := json.Marshal(map[string]any{"replay": []string{name}, "version": version})
	if err != nil {
		return "", err
	}
	var report struct {
		Replayed []struct{ Name, Outcome, Cause string }
	}
	if err := s.Invoke(ctx, "redrive", string(event), &report); err != nil {
		return "", err
	}
	if len(report.Replayed) != 1 || report.Replayed[0].Name != name {
		return "", errors.New("the redrive function does not report the outcome")
	}
	result := report.Replayed[0]
	if result.Cause != "" && (result.Outcome == "" || result.Outcome == string(intake.Accepted)) {
		// It could not be read, or not be marked as replayed.
		return result.Outcome, errors.New(result.Cause)
	}
	return result.Outcome, s.Invoke(ctx, "redrive", "{}", &struct{}{})
}

// settle lets the redrive function record that a parked object needs no replay, and returns its
// state after that.
func (s *Scenario) settle(ctx context.Context, name string) (string, error) {
	event, err := json.Marshal(map[string]any{"settle": []string{name}, "reason": "a check", "by": "payhook"})
	if err != nil {
		return "", err
	}
	var report struct {
		Settled []struct{ Name, Cause string }
	}
	if err := s.Invoke(ctx, "redrive", string(event), &report); err != nil {
		return "", err
	}
	if len(report.Settled) != 1 || report.Settled[0].Cause != "" {
		return "", fmt.Errorf("it is not settled: %+v", report.Settled)
	}
	return s.decision(ctx, name)
}

// decision returns the state of a parked object.
func (s *Scenario) decision(ctx context.Context, name string) (string, error) {
	state, _, err := s.store().Decision(ctx, name)
	return string(state), err
}

// park sends a delivery that must be parked, and returns the name of the object and its reason.
func (s *Scenario) park(ctx context.Context, id string, payload []byte) (name, got string, err error) {
	if _, err = s.post(ctx, payload); err != nil {
		return "", "", err
	}
	name, p, err := s.ParkedDelivery(ctx, id)
	if err != nil {
		return "", "", err
	}
	signed, certified := p.Signature != "" && len(p.JWK) > 0, p.Certificate != nil && len(p.Certificate.Chain) > 0
	switch {
	case p.DeliveryID != id:
		err = fmt.Errorf("the deliveryId is %s", p.DeliveryID)
	case signed != UsesSignature(s.Settings) || certified != UsesMTLS(s.Settings):
		err = errors.New("the proof is not that of the webhook")
	}
	got = string(p.Reason) + ", its bytes"
	if !bytes.Equal(p.Payload, payload) {
		got = string(p.Reason) + ", other bytes"
	}
	return name, got, err
}

// ParkedChecks returns the checks of parked deliveries, and of events that are too large for the
// bus.
func (s *Scenario) ParkedChecks(in *Arrivals) []*Check {
	event, invalid := paymenttest.Event(), paymenttest.Event()
	invalid.EventName = "RELEASED"
	altered := event
	altered.EventData.Amount = "9250.00"
	conflicting := uuid.New().String()
	var conflictName, invalidName, unpublishableName string

	return about(ofParked,
		Exactly("an invalid delivery, looked up where it is parked", "invalid, its bytes",
			func(ctx context.Context) (got string, err error) {
				id := uuid.New().String()
				invalidName, got, err = s.park(ctx, id, paymenttest.RawDelivery(id, paymenttest.Encode(invalid)))
				return got, err
			}),
		Exactly("it is replayed, and stays invalid", "invalid, open", func(ctx context.Context) (string, error) {
			outcome, err := s.Replay(ctx, invalidName, intake.NoVersion)
			if err != nil {
				return outcome, err
			}
			state, err := s.decision(ctx, invalidName)
			return outcome + ", " + state, err
		}),
		Exactly("it is settled", "settled", func(ctx context.Context) (string, error) {
			return s.settle(ctx, invalidName)
		}),
		Exactly("an event that EventBridge rejects, with an integer of 70 bits",
			strconv.Itoa(s.successStatus())+", unpublishable", func(ctx context.Context) (got string, err error) {
				unpublishableName, got, err = s.rejectedByTheBus(ctx)
				return got, err
			}),
		Exactly("it is settled", "settled", func(ctx context.Context) (string, error) {
			return s.settle(ctx, unpublishableName)
		}),
		Exactly("a conflicting one", "conflict, its bytes", func(ctx context.Context) (got string, err error) {
			if _, err := s.post(ctx, paymenttest.Delivery(event)); err != nil {
				return "", err
			}
			conflictName, got, err = s.park(ctx, conflicting,
				paymenttest.RawDelivery(conflicting, paymenttest.Encode(altered)))
			return got, err
		}),
		Exactly("it is replayed, and nobody decided which version is right", "version-missing",
			func(ctx context.Context) (string, error) { return s.Replay(ctx, conflictName, intake.NoVersion) }),
		Exactly("it is replayed in the parked version", "accepted, arrived",
			func(ctx context.Context) (string, error) {
				outcome, err := s.Replay(ctx, conflictName, intake.ParkedVersion)
				if err != nil || outcome != string(intake.Accepted) {
					return outcome, err
				}
				arrived, err := in.AwaitOne(ctx, s.within(10*time.Second), event.EventID, conflicting)
				if err != nil {
					return outcome, err
				}
				// EventBridge can write the number in another form.
				var detail struct{ EventData struct{ Amount float64 } }
				if err := json.Unmarshal(arrived.Detail, &detail); err != nil || detail.EventData.Amount != 9250 {
					return outcome, fmt.Errorf("the amount is %v, %w", detail.EventData.Amount, err)
				}
				return outcome + ", arrived", nil
			}),
		Exactly("another conflict is replayed in the first version", "accepted, settled", s.replayFirst),
		&Check{What: "an event too large for the bus, fetched by its reference", Expected: "the bytes that were signed",
			Do: func(ctx context.Context) (string, bool, error) { return s.fetchLarge(ctx, in) }})
}

// replayFirst replays a conflict in the version that was published.
func (s *Scenario) replayFirst(ctx context.Context) (string, error) {
	event, id := paymenttest.Event(), uuid.New().String()
	if _, err := s.post(ctx, paymenttest.Delivery(event)); err != nil {
		return "", err
	}
	event.EventData.Amount = "9250.00"
	name, got, err := s.park(ctx, id, paymenttest.RawDelivery(id, paymenttest.Encode(event)))
	if err != nil || got != "conflict, its bytes" {
		return got, err
	}
	outcome, err := s.Replay(ctx, name, intake.FirstVersion)
	if err != nil {
		return outcome, err
	}
	state, err := s.decision(ctx, name)
	return outcome + ", " + state, err
}

// rejectedByTheBus sends an event that is valid for Payhook and that EventBridge is known to
// reject, and returns the name of the parked object.
func (s *Scenario) rejectedByTheBus(ctx context.Context) (name, got string, err error) {
	event := paymenttest.Event()
	text := paymenttest.Encode(event)
	text = fmt.Appendf(text[:len(text)-1], `,"note":1000000000000000000000}`)
	answer, err := s.post(ctx, paymenttest.RawDelivery(uuid.New().String(), text))
	if err != nil {
		return "", "", err
	}
	name, p, err := s.ParkedEvent(ctx, event.EventID)
	if err == nil && !bytes.Equal(p.Event, text) {
		err = errors.New("other bytes are parked")
	}
	return name, fmt.Sprintf("%d, %s", answer.Status, p.Reason), err
}

// fetchLarge sends an event that is too large for the bus, and fetches it by the reference that
// arrives.
func (s *Scenario) fetchLarge(ctx context.Context, in *Arrivals) (string, bool, error) {
	large, id := s.oversize(), uuid.New().String()
	if _, err := s.post(ctx, paymenttest.RawDelivery(id, large)); err != nil {
		return "", false, err
	}
	e, err := payment.DecodeRawEvent(large)
	if err != nil {
		return "", false, err
	}
	arrived, err := in.AwaitOne(ctx, s.within(10*time.Second), e.EventID, id)
	if err != nil {
		return "", false, err
	}
	got, err := claimcheck.Resolve(ctx, s.Objects(), arrived.Detail)
	if err != nil {
		return "", false, err
	}
	same := "the same"
	if !bytes.Equal(got, large) {
		same = "others"
	}
	return fmt.Sprintf("a detail of %d bytes, %d bytes fetched, %s", len(arrived.Detail), len(got), same),
		same == "the same" && len(arrived.Detail) < len(large), nil
}

// oversize returns an event that is too large for the bus.
func (s *Scenario) oversize() []byte {
	limit, _ := strconv.Atoi(s.Setting(settings.ClaimCheckBytes))
	return padded(limit)
}

// replaceAmount returns an encoded event with another amount.
func replaceAmount(event []byte, amount string) []byte {
	return []byte(strings.Replace(string(event), `"amount":1250.00`, `"amount":`+amount, 1))
}
