package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"payhook.example/shared/parking"
	"payhook.example/shared/rfc9562"
)

const eventUsage = `Usage: operator event ID

What became of one eventId: when it was recorded and from which delivery, whether
it is pending, on the bus, or parked, and what is parked that is about it.

Exit status 1: it is not known, or parked, or something about it is parked and
open.

  --json  one document: eventId, state (pending, published, parked, unknown),
          deliveryId, recordedAt, publishedAt, parkedAt, due, attempts, claimed,
          expiresAt, sha256, parked: name, time, reason, state
`

// story is what is known of one event.
type story struct {
	EventID     string    `json:"eventId"`
	State       string    `json:"state"`
	DeliveryID  string    `json:"deliveryId,omitempty"`
	RecordedAt  time.Time `json:"recordedAt,omitzero"`
	PublishedAt time.Time `json:"publishedAt,omitzero"`
	ParkedAt    time.Time `json:"parkedAt,omitzero"`
	Due         time.Time `json:"due,omitzero"`
	Attempts    int       `json:"attempts"`
	Claimed     bool      `json:"claimed"`
	ExpiresAt   time.Time `json:"expiresAt,omitzero"`
	SHA256      string    `json:"sha256,omitempty"`
	Parked      []listed  `json:"parked"`
}

func (p *program) event(ctx context.Context, o *options, names []string) error {
	if !rfc9562.Valid(names[0]) {
		return usageError(fmt.Sprintf("%q is no eventId: a UUID is wanted", names[0]))
	}
	d, err := p.connect(ctx, o.target)
	if err != nil {
		return err
	}
	book, err := d.ledger()
	if err != nil {
		return err
	}
	lot, err := d.lot()
	if err != nil {
		return err
	}
	item, known, err := book.Find(ctx, names[0])
	if err != nil {
		return err
	}
	s := story{EventID: names[0], State: "unknown", Parked: []listed{}}
	if known {
		s = story{
			EventID: item.EventID, DeliveryID: item.DeliveryID,
			RecordedAt: item.RecordedAt, PublishedAt: item.PublishedAt, ParkedAt: item.ParkedAt,
			Due: item.Due, Attempts: item.Attempts, Claimed: item.Claimed, ExpiresAt: item.ExpiresAt,
			SHA256: hex.EncodeToString(item.Digest[:]), Parked: []listed{},
		}
		switch {
		case item.Pending:
			s.State = "pending"
		case !item.ParkedAt.IsZero():
			s.State = "parked"
		default:
			s.State = "published"
		}
	}
	person := s.State == "unknown" || s.State == "parked"
	err = find(ctx, lot, filter{event: names[0]}, func(l listed) error {
		s.Parked = append(s.Parked, l)
		person = person || l.State == parking.Open
		return nil
	})
	if err != nil {
		return err
	}
	if err := p.printStory(s, o); err != nil {
		return err
	}
	if person {
		return errPerson
	}
	return nil
}

func (p *program) printStory(s story, o *options) error {
	if o.json {
		return printJSON(p.out, s)
	}
	now := p.now()
	t := newSheet(p.out)
	t.line("event", "%s", s.EventID)
	if s.State == "unknown" {
		t.line("state", "unknown: it was never accepted, or its window is over")
	} else {
		t.line("state", "%s", s.State)
		t.line("recorded", "%s", ago(s.RecordedAt, now))
		t.line("delivery", "%s", plain(s.DeliveryID))
	}
	if !s.PublishedAt.IsZero() {
		t.line("published", "%s, %s later", stamp(s.PublishedAt), readable(s.PublishedAt.Sub(s.RecordedAt)))
	}
	if !s.ParkedAt.IsZero() {
		t.line("parked", "%s", ago(s.ParkedAt, now))
	}
	if s.State == "pending" {
		t.line("due", "%s: before then redrive leaves it alone", ago(s.Due, now))
		t.line("attempts", "%d by redrive", s.Attempts)
		if s.Claimed {
			t.line("size", "too large for the bus: it goes as a claim check")
		}
	}
	if !s.ExpiresAt.IsZero() {
		t.line("forgotten", "%s: then the same id would be new", ago(s.ExpiresAt, now))
	}
	if s.SHA256 != "" {
		t.line("sha256", "%s", s.SHA256)
	}
	for _, l := range s.Parked {
		t.line("about it", "%s  %s, %s", plain(l.Name), plain(l.Reason), l.State)
	}
	return t.Flush()
}
