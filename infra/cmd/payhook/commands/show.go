package commands

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/intake"
	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/proof"
)

func (p *program) showCommand() *cobra.Command {
	payload := false
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show one parked event or delivery",
		Args: func(cmd *cobra.Command, args []string) error {
			if payload && p.JSON {
				return errors.New("--payload writes only the payload: it cannot be used with --json")
			}
			return cli.OneArg("NAME")(cmd, args)
		},
		RunE: p.on(func(ctx context.Context, s *connected, args []string) error {
			name, err := p.whole(ctx, s, args[0])
			switch {
			case err != nil:
				return err
			case intake.KindOf(name) == intake.EventKind:
				return p.showEvent(ctx, s, name, payload)
			}
			return p.showStored(ctx, s, name, payload)
		}),
	}
	cmd.Flags().BoolVar(&payload, "payload", false,
		"write only the payload: payment data; to a terminal with control characters escaped; not with --json")
	return cmd
}

func (p *program) showEvent(ctx context.Context, s *connected, id string, payload bool) error {
	item, known, err := ledger.Find(ctx, s.ledger, id, payload)
	switch {
	case err != nil && !known:
		return err
	case item.State != ledger.Parked:
		return p.nothing(id)
	case payload:
		return p.WritePayload(item.Detail)
	}
	shown := eventOf(item)
	ends, err := s.largeEventEnds(ctx, []ledger.Item{item}, p.Now())
	if err != nil {
		return err
	}
	shown.LargeEventEnds = ends[id]
	return p.Show(shown)
}

// stored is everything of a stored delivery but its payload, and what was decided about it.
type stored struct {
	Name  string         `json:"name"`
	State proof.Decision `json:"state"`

	proof.Proof // without Payload

	PayloadBytes  int    `json:"payloadBytes"`
	PayloadSHA256 string `json:"payloadSha256"`

	Note     proof.Note `json:"note,omitzero"`
	Contents []contents `json:"contents,omitempty"` // of a conflict
}

func (p *program) showStored(ctx context.Context, s *connected, name string, payloadOnly bool) error {
	parked, err := proof.Get(ctx, s.parking, name)
	switch {
	case errors.Is(err, objects.ErrNotFound):
		return p.nothing(name)
	case err != nil:
		return err
	case payloadOnly && parked.Request != nil && len(parked.Payload) < parked.Request.PayloadBytes:
		fmt.Fprintf(p.Err, "the payload is not stored: it has %d bytes, and at most %d are\n",
			parked.Request.PayloadBytes, proof.MaxRejectedPayload)
		return cli.ErrAttention
	case payloadOnly:
		return p.WritePayload(parked.Payload)
	}
	state, note, err := proof.DecisionOn(ctx, s.parking, name)
	if err != nil {
		return err
	}
	shown := stored{Name: name, State: state, Note: note, Proof: parked, PayloadBytes: len(parked.Payload),
		PayloadSHA256: fmt.Sprintf("%x", sha256.Sum256(parked.Payload))}
	if r := parked.Request; r != nil { // the payload may not be stored
		shown.PayloadBytes, shown.PayloadSHA256 = r.PayloadBytes, r.PayloadSHA256
	}
	shown.Payload = nil
	if shown.Contents, err = p.compare(ctx, s, parked); err != nil {
		return err
	}
	if p.JSON {
		return p.PrintJSON(shown)
	}
	both := shown.Contents
	shown.Contents = nil
	return errors.Join(p.Show(shown), writeContents(p.Out, both, p.Now()))
}

func (p *program) eventCommand() *cobra.Command {
	return &cobra.Command{Use: "event ID", Short: "Show the state of one event", Args: oneUUID("ID"),
		RunE: p.on(p.event)}
}

type eventState struct {
	EventID        string       `json:"eventId"`
	State          ledger.State `json:"state"`
	Cause          string       `json:"cause,omitempty"`
	Problem        string       `json:"problem,omitempty"`
	DeliveryID     string       `json:"deliveryId,omitempty"`
	RecordedAt     time.Time    `json:"recordedAt,omitzero"`
	PublishedAt    time.Time    `json:"publishedAt,omitzero"`
	EventTimestamp time.Time    `json:"eventTimestamp,omitzero"`
	ParkedAt       time.Time    `json:"parkedAt,omitzero"`
	LeasedUntil    time.Time    `json:"leasedUntil,omitzero"`
	Attempts       int          `json:"attempts"`
	Large          bool         `json:"large"`
	LargeEventEnds time.Time    `json:"largeEventEnds,omitzero"`
	ExpiresAt      time.Time    `json:"expiresAt,omitzero"`
	SHA256         string       `json:"sha256,omitempty"`
	Note           proof.Note   `json:"note,omitzero"`    // the last one
	Parked         []listed     `json:"parked,omitempty"` // deliveries
}

// The states of an event that the ledger does not have, and of one that cannot be decoded.
const (
	unknown     ledger.State = "unknown"
	damagedItem ledger.State = "damaged"
)

func eventOf(item ledger.Item) eventState {
	e := eventState{EventID: item.EventID, State: item.State, Cause: item.Cause, Problem: item.Problem,
		DeliveryID: item.DeliveryID, RecordedAt: item.RecordedAt, PublishedAt: item.PublishedAt,
		EventTimestamp: item.EventTimestamp, LeasedUntil: item.LeasedUntil, ParkedAt: item.ParkedAt,
		Attempts: item.Attempts, Large: item.Large,
		ExpiresAt: item.ExpiresAt, SHA256: hex.EncodeToString(item.Digest[:]),
		Note: proof.Note{By: item.Note.By, At: item.Note.At, Reason: item.Note.Reason}}
	if item.Err != nil {
		e.State, e.Cause = damagedItem, lambdaruntime.Cause(item.Err)
	}
	return e
}

func (p *program) event(ctx context.Context, s *connected, args []string) error {
	item, known, err := ledger.Find(ctx, s.ledger, args[0], false)
	if err != nil && !known {
		return err
	}
	shown := eventState{EventID: args[0], State: unknown}
	if known {
		shown = eventOf(item)
	}
	all, damaged := p.find(ctx, s, filter{event: args[0]}, "")
	if damaged != nil && !errors.Is(damaged, proof.ErrDamaged) {
		return damaged
	}
	wrong := shown.State == unknown || shown.State == damagedItem
	for _, l := range all {
		wrong = wrong || l.State == proof.Open
		if l.Kind == intake.EventKind {
			shown.LargeEventEnds = l.LargeEventEnds
		} else {
			shown.Parked = append(shown.Parked, l)
		}
	}
	return attention(cmp.Or(p.Show(shown), damaged), wrong)
}
