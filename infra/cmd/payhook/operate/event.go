package operate

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
)

func (p *program) eventCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "event ID",
		Short: "Show the state of one event",
		Long: `Shows the state of one eventId: when it was recorded and from which delivery,
whether it is pending, published or parked, and what is parked about it.

  unknown         it was never accepted, or its de-duplication window is over
  due             when redrive may publish it, if it is pending
  attempts        how often redrive has tried
  claimed         it is too large for the bus, which gets a claim check
  eventTimestamp  its time on the bus, by which a replay of the archive finds it
  expiresAt       the end of the window; after that, the same id is new
  cause           what of its item cannot be decoded; the state is damaged

Status 1: the event is unknown, damaged or parked, or something about it is parked and
open.`,
		Example: "  payhook event 0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d --local",
		Args:    oneUUID,
		RunE:    p.on(p.event),
	}
}

// eventState is what is known of one event.
type eventState struct {
	EventID        string    `json:"eventId"`
	State          string    `json:"state"`
	Cause          string    `json:"cause,omitempty"` // of damaged
	DeliveryID     string    `json:"deliveryId,omitempty"`
	RecordedAt     time.Time `json:"recordedAt,omitzero"`
	PublishedAt    time.Time `json:"publishedAt,omitzero"`
	EventTimestamp time.Time `json:"eventTimestamp,omitzero"`
	ParkedAt       time.Time `json:"parkedAt,omitzero"`
	Due            time.Time `json:"due,omitzero"`
	Attempts       int       `json:"attempts"`
	Claimed        bool      `json:"claimed"`
	ExpiresAt      time.Time `json:"expiresAt,omitzero"`
	SHA256         string    `json:"sha256,omitempty"`
	Parked         []listed  `json:"parked"`
}

// stateOf returns the state of an event that the ledger has, and since when it has it.
func stateOf(item ledger.Item) (string, time.Time) {
	switch {
	case item.State == ledger.Pending:
		return "pending", item.RecordedAt
	case item.Cause == "parked":
		return "parked", item.Due
	}
	return "published", item.PublishedAt
}

func (p *program) event(ctx context.Context, d *stack, args []string) error {
	item, known, err := ledger.Find(ctx, d.ledger, args[0], false)
	if err != nil && !known {
		return err
	}
	s := eventState{EventID: args[0], State: "unknown"}
	if known {
		s = eventState{
			EventID: item.EventID, DeliveryID: item.DeliveryID,
			RecordedAt: item.RecordedAt, PublishedAt: item.PublishedAt, EventTimestamp: item.EventTimestamp,
			Due: item.Due, Attempts: item.Attempts, Claimed: item.Claimed,
			ExpiresAt: item.ExpiresAt,
			SHA256:    hex.EncodeToString(item.Digest[:]),
		}
		var at time.Time
		if s.State, at = stateOf(item); s.State == "parked" {
			s.ParkedAt, s.Due = at, time.Time{}
		}
	}
	if item.Err != nil {
		s.State, s.Cause = "damaged", item.Err.Error()
	}
	if s.Parked, err = d.find(ctx, filter{event: args[0]}); err != nil {
		return err
	}
	wrong := s.State == "unknown" || item.Err != nil || s.State == "parked"
	for _, l := range s.Parked {
		wrong = wrong || l.State == parking.Open
	}
	return attention(p.Show(s, "eventId", s.EventID, "state", s.State, "cause", s.Cause, "deliveryId", s.DeliveryID,
		"recordedAt", s.RecordedAt, "publishedAt", s.PublishedAt, "eventTimestamp", s.EventTimestamp,
		"parkedAt", s.ParkedAt, "due", s.Due, "attempts", s.Attempts, "claimed", s.Claimed,
		"expiresAt", s.ExpiresAt, "sha256", s.SHA256, "parked", rows(s.Parked)), wrong)
}
