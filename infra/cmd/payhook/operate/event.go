package operate

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
)

func (p *program) eventCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "event ID",
		Short: "Show the state of one event",
		Long: `Shows the state of one eventId: when it was recorded and from which delivery,
whether it is pending, published or parked, and what is parked about it.

Status 1: the event is unknown or parked, or something about it is parked and open.

With --json, one document: eventId, state (pending, published, parked, unknown),
deliveryId, recordedAt, publishedAt, eventTimestamp, parkedAt, due, attempts, claimed,
expiresAt, sha256, parked (name, time, reason, state).`,
		Example: "  payhook event 0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d --local",
		Args:    oneUUID,
		RunE:    p.on(p.event),
	}
}

// eventState is what is known of one event.
type eventState struct {
	EventID     string    `json:"eventId"`
	State       string    `json:"state"`
	DeliveryID  string    `json:"deliveryId,omitempty"`
	RecordedAt  time.Time `json:"recordedAt,omitzero"`
	PublishedAt time.Time `json:"publishedAt,omitzero"`
	// EventTimestamp is the time that a published event has on the bus.
	EventTimestamp time.Time `json:"eventTimestamp,omitzero"`
	ParkedAt       time.Time `json:"parkedAt,omitzero"`
	Due            time.Time `json:"due,omitzero"`
	Bus            string    `json:"bus,omitempty"` // while it is pending
	Attempts       int       `json:"attempts"`
	Claimed        bool      `json:"claimed"`
	ExpiresAt      time.Time `json:"expiresAt,omitzero"`
	SHA256         string    `json:"sha256,omitempty"`
	Parked         []listed  `json:"parked"`
}

// stateOf returns the state of an event that the ledger has, and since when it has it.
func stateOf(item ledger.Item) (string, time.Time) {
	switch {
	case item.Pending():
		return "pending", item.RecordedAt
	case !item.ParkedAt.IsZero():
		return "parked", item.ParkedAt
	}
	return "published", item.PublishedAt
}

func (p *program) event(ctx context.Context, d *stack, args []string) error {
	item, known, err := d.ledger.Find(ctx, args[0])
	if err != nil {
		return err
	}
	s := eventState{EventID: args[0], State: "unknown", Parked: []listed{}}
	if known {
		s = eventState{
			EventID: item.EventID, DeliveryID: item.DeliveryID,
			RecordedAt: item.RecordedAt, PublishedAt: item.PublishedAt, EventTimestamp: item.EventTimestamp,
			ParkedAt: item.ParkedAt,
			Due:      item.Due, Bus: item.Bus(), Attempts: item.Attempts, Claimed: item.Claimed,
			ExpiresAt: item.ExpiresAt,
			SHA256:    hex.EncodeToString(item.Digest[:]), Parked: []listed{},
		}
		s.State, _ = stateOf(item)
	}
	wrong := s.State == "unknown" || s.State == "parked"
	err = find(ctx, d.store, filter{event: args[0]}, func(l listed) error {
		s.Parked = append(s.Parked, l)
		wrong = wrong || l.State == parking.Open
		return nil
	})
	if err != nil {
		return err
	}
	return attention(p.print(s, func(t cli.Fields) { s.write(t, p.Now()) }), wrong)
}

func (s eventState) write(t cli.Fields, now time.Time) {
	t.Line("event", "%s", s.EventID)
	if s.State == "unknown" {
		t.Line("state", "unknown: it was never accepted, or its de-duplication window is over")
	} else {
		t.Line("state", "%s", s.State)
		t.Line("recorded", "%s", cli.Ago(s.RecordedAt, now))
		t.Line("delivery", "%s", cli.Plain(s.DeliveryID))
	}
	if !s.PublishedAt.IsZero() {
		t.Line("published", "%s, %s later", cli.Stamp(s.PublishedAt), cli.Readable(s.PublishedAt.Sub(s.RecordedAt)))
	}
	if !s.EventTimestamp.IsZero() {
		t.Line("its time", "%s, by which a replay of the archive finds it", cli.Stamp(s.EventTimestamp))
	}
	if !s.ParkedAt.IsZero() {
		t.Line("parked", "%s", cli.Ago(s.ParkedAt, now))
	}
	if s.State == "pending" {
		t.Line("due", "%s; redrive does not publish it before", cli.Ago(s.Due, now))
		t.Line("bus", "%s", cli.Plain(s.Bus))
		t.Line("attempts", "%d by redrive", s.Attempts)
		if s.Claimed {
			t.Line("size", "too large for the bus: it is published as a claim check")
		}
	}
	if !s.ExpiresAt.IsZero() {
		t.Line("expires", "%s; after that, the same id is new", cli.Ago(s.ExpiresAt, now))
	}
	if s.SHA256 != "" {
		t.Line("sha256", "%s", s.SHA256)
	}
	for _, l := range s.Parked {
		t.Line("about it", "%s  %s, %s", cli.Plain(l.Name), cli.Plain(l.Reason), l.State)
	}
}
