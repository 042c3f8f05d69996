package operate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
)

func (p *program) listCommand() *cobra.Command {
	f, state := filter{}, string(parking.Open)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what is parked",
		Long: `Lists what is parked and open, the earliest first: authentic deliveries that are
invalid or in conflict, and events that could not be published, which nobody has
replayed or dismissed yet. The time is when the delivery was signed, or the event
recorded.`,
		Example: "  payhook parked list --from 24h\n  payhook parked list --reason conflict --state any",
		Args:    cli.Args(),
		RunE: p.on(func(ctx context.Context, s *stack, _ []string) error {
			if f.state = parking.State(state); state == anyState {
				f.state = ""
			}
			return p.parkedList(ctx, s, f)
		}),
	}
	p.filterFlags(cmd, &f)
	cli.ChoiceVar(cmd, &state, "state", "`state`: open, replayed, dismissed or any (default open)",
		string(parking.Open), string(parking.Replayed), string(parking.Dismissed), anyState)
	return cmd
}

func (p *program) showCommand() *cobra.Command {
	return p.show(&cobra.Command{
		Use:   "show NAME",
		Short: "Show one parked delivery or event, with its signature",
		Long: `Shows what is parked under a name: signature, key and certificate, without the payload,
and what was decided about it. "payhook parked list" has the names.

Of a conflict, it shows amount, currency and status of both versions. The first one is
stored while it is pending or parked, and for claimRetention if it is too large for the
bus. Otherwise, the output says who has it. The state of the first version is published,
pending or parked; unknown if its de-duplication window is over; replaced if the ledger
has the parked version.

Status 1: nothing is parked under this name.`,
		Example: "  payhook parked show NAME\n  payhook parked show NAME --payload > payload.json",
	}, p.parkedShow)
}

// filter says which of what is parked is meant. Empty fields say nothing.
type filter struct {
	from, until     time.Time
	reason          string
	event, delivery string
	state           parking.State
}

// anyState is what --state takes for all states.
const anyState = "any"

func (p *program) filterFlags(cmd *cobra.Command, to *filter) {
	f := cmd.Flags()
	f.Func("from", "of this `time` or later: RFC 3339, or how long ago, such as 90m, 24h or 7d",
		func(text string) (err error) { to.from, err = p.time(text); return err })
	f.Func("until", "of before this `time`", func(text string) (err error) { to.until, err = p.time(text); return err })
	cli.ChoiceVar(cmd, &to.reason, "reason", "`reason`: invalid, conflict or unpublishable",
		string(parking.Invalid), string(parking.Conflict), string(parking.Unpublishable))
	id := func(into *string) func(string) error {
		return func(text string) error {
			if *into = text; to.event != "" && to.delivery != "" {
				return errors.New("--event and --delivery cannot be used together")
			}
			return isID(text)
		}
	}
	f.Func("event", "about the event of this `id`", id(&to.event))
	f.Func("delivery", "of the delivery of this `id`", id(&to.delivery))
}

// time reads a time with an offset, or how long ago it was.
func (p *program) time(text string) (time.Time, error) {
	if at, zoned, err := payment.ParseTime(text); err == nil && zoned {
		return at, nil
	}
	before, err := cli.ParseDuration(text)
	if err != nil || before < 0 {
		return time.Time{}, errors.New("must be a time such as 2026-01-31T12:00:00Z, or how long ago, such as 24h")
	}
	return p.Now().Add(-before), nil
}

// listed is one thing that is parked, as a listing has it.
type listed struct {
	Time   time.Time     `json:"time"` // in its name
	Reason string        `json:"reason"`
	State  parking.State `json:"state"`
	Name   string        `json:"name"`
}

// reasonOf returns the reason in a name: TIME-REASON-DIGEST.json.
func reasonOf(name string) string {
	base := name[strings.LastIndex(name, "/")+1:]
	_, rest, _ := strings.Cut(base, "-")
	return rest[:max(strings.LastIndex(rest, "-"), 0)]
}

// find returns all that is parked and meant by the filter, in the order of the names' times.
func (d *stack) find(ctx context.Context, f filter) ([]listed, error) {
	states, err := d.store.States(ctx)
	if err != nil {
		return nil, err
	}
	names, err := d.candidates(ctx, f)
	if err != nil {
		return nil, err
	}
	found := []listed{}
	for _, name := range names {
		at, err := parking.TimeOf(name)
		if err != nil || at.Before(f.from) || !f.until.IsZero() && !at.Before(f.until) {
			continue
		}
		l := listed{at, reasonOf(name), cmp.Or(states[name], parking.Open), name}
		if (f.reason == "" || f.reason == l.Reason) && (f.state == "" || f.state == l.State) {
			found = append(found, l)
		}
	}
	return found, nil
}

// candidates returns the names about an event or a delivery, or of a time, in their order.
func (d *stack) candidates(ctx context.Context, f filter) (names []string, err error) {
	switch {
	case f.event != "":
		names, err = d.store.FindEvent(ctx, f.event)
	case f.delivery != "":
		names, err = d.store.FindDelivery(ctx, f.delivery)
	default:
		return names, d.store.List(ctx, f.from, f.until, func(name string) bool {
			names = append(names, name)
			return true
		})
	}
	slices.Sort(names)
	// The index is written first: what it names may have failed to be parked.
	names = slices.DeleteFunc(names, func(name string) bool {
		_, missing := d.store.Get(ctx, name)
		if missing != nil && !errors.Is(missing, parking.ErrNotParked) {
			err = missing
		}
		return missing != nil
	})
	return names, err
}

func (p *program) parkedList(ctx context.Context, d *stack, f filter) error {
	list, err := d.find(ctx, f)
	if err != nil {
		return err
	}
	open := 0
	for _, l := range list {
		if l.State == parking.Open {
			open++
		}
	}
	fmt.Fprintf(p.Err, "%d listed, %d of them open\n", len(list), open)
	return cli.List(p.Program, list, rows(list))
}

func rows(list []listed) cli.Rows {
	rows := cli.Rows{{"TIME", "REASON", "STATE", "NAME"}}
	for _, l := range list {
		rows = append(rows, []any{l.Time, l.Reason, l.State, l.Name})
	}
	return rows
}

// nameOf takes a name as it may have been copied.
func (p *program) nameOf(text string) (string, error) {
	name := strings.TrimPrefix(text, "parked/")
	if _, err := parking.TimeOf(name); err != nil || !strings.Contains(name, "/") {
		return "", fmt.Errorf("%q is not a name; %s has the names, such as "+
			"2026/01/31/12/20260131T120000.123Z-conflict-0b7e4c1e3d434f269c0d2f1f6a5b7c8d.json", text,
			p.hint("parked list"))
	}
	return name, nil
}

// proof is everything of what is parked but its payload, and what was decided about it.
type proof struct {
	Name  string        `json:"name"`
	State parking.State `json:"state"`

	parking.Parked        // without Payload, Event and EventDigests
	Digest         string `json:"digest,omitempty"` // in hexadecimal

	PayloadBytes  int    `json:"payloadBytes"`
	PayloadSHA256 string `json:"payloadSha256"`

	Decision *parking.Note `json:"decision,omitempty"`
	Versions []versions    `json:"versions,omitempty"` // of a conflict
}

func (p *program) parkedShow(ctx context.Context, d *stack, given string, payloadOnly bool) error {
	name, err := p.nameOf(given)
	if err != nil {
		return cli.Usage("%w", err)
	}
	parked, err := d.store.Get(ctx, name)
	if errors.Is(err, parking.ErrNotParked) {
		fmt.Fprintf(p.Err, "nothing is parked under the name %s; %s has the names\n", cli.Plain(name),
			p.hint("parked list"))
		return cli.ErrAttention
	}
	if err != nil {
		return err
	}
	payload := parked.Payload
	if payload == nil {
		payload = parked.Event
	}
	if payloadOnly {
		_, err := p.Out.Write(payload)
		return err
	}
	state, note, err := d.store.Decision(ctx, name)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(payload)
	s := proof{Name: name, State: state, Parked: parked, Digest: hex.EncodeToString(parked.Digest),
		PayloadBytes: len(payload), PayloadSHA256: hex.EncodeToString(sum[:])}
	s.Payload, s.Event, s.EventDigests = nil, nil, nil
	if state != parking.Open {
		s.Decision = &note
	}
	if parked.Reason == parking.Conflict {
		if s.Versions, err = p.compare(ctx, d, parked); err != nil {
			return err
		}
	}
	pairs := []any{"name", name, "state", state, "reason", parked.Reason, "cause", parked.Cause,
		"parkedAt", parked.ParkedAt, "deliveryId", parked.DeliveryID, "eventIds", parked.EventIDs,
		"positions", parked.Positions,
		"timestamp", parked.Timestamp, "keyId", parked.KeyID, "signature", parked.Signature, "jwk", parked.JWK,
		"digest", s.Digest, "claimed", parked.Claimed, "recordedAt", parked.RecordedAt, "attempts", parked.Attempts,
		"payloadBytes", s.PayloadBytes, "payloadSha256", s.PayloadSHA256}
	if c := parked.Certificate; c != nil {
		pairs = append(pairs, "certificate.fingerprint", c.Fingerprint, "certificate.acceptedAt", c.AcceptedAt,
			"certificate.chain", c.Chain)
	}
	if n := s.Decision; n != nil {
		pairs = append(pairs, "decision.by", n.By, "decision.at", n.At, "decision.reason", n.Reason,
			"decision.version", n.Version)
	}
	if err := p.Show(s, pairs...); err != nil || p.JSON {
		return err
	}
	return writeVersions(p.Out, s.Versions, p.Now())
}
