package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"payhook.example/shared/payment"
)

// handler keeps the latest status of each payment.
type handler struct {
	resolve func(ctx context.Context, detail []byte) ([]byte, error) // a reference to a large event
	store   store
	log     *slog.Logger
}

// errIncomplete is returned for an event without what the table needs. The interface does not say which
// fields are always sent (section 2.4), and events are published whatever their data are.
var errIncomplete = errors.New("svcUniquePaymentId or status is missing or not a text")

// handle processes one event. After an error, Lambda invokes it again with the same event, twice,
// and then sends the event to the queue of failed events.
func (h *handler) handle(ctx context.Context, e events.EventBridgeEvent) error {
	raw, err := h.resolve(ctx, e.Detail)
	if err != nil {
		return err
	}
	event, err := payment.DecodeEvent(raw)
	if err != nil {
		return err
	}
	s, err := statusOf(event)
	if err != nil {
		return fmt.Errorf("event %s: %w", event.EventID, err)
	}
	stored, err := h.store.put(ctx, s)
	if err != nil {
		return fmt.Errorf("event %s: %w", event.EventID, err)
	}
	outcome := "stored"
	if !stored {
		outcome = "not newer"
	}
	h.log.InfoContext(ctx, "payment", "eventId", event.EventID, "outcome", outcome, "deviations", event.Deviations)
	return nil
}

// statusOf returns the status of an event. Its statusTime is that of the event or, if the event has none, its
// eventTimestamp.
//
// A program that acts on each event, and not on the latest status, uses the eventId as its idempotency key
// instead. It acts before it writes: a failure in between repeats the action with the same key.
func statusOf(event payment.Event) (status, error) {
	data := event.EventData
	id, s := data.Identifiers.SvcUniquePaymentID, data.PaymentStatus
	if id == "" || s.Status == "" {
		return status{}, errIncomplete
	}
	return status{paymentID: id, status: s.Status, statusTime: utc(cmp.Or(s.StatusTime, event.EventTimestamp)),
		eventTimestamp: utc(event.EventTimestamp), eventID: event.EventID,
		amount: string(data.Amount), currency: data.PaymentCurrency}, nil
}

// sortable is the format of times in a store. A time can have more digits than the milliseconds of the interface.
const sortable = "2006-01-02T15:04:05.000000000Z"

// utc returns a time as it is sorted, and "" for none, which is before all others.
func utc(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(sortable)
}
