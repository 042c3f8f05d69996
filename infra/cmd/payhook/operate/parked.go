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
)

func (p *program) listCommand() *cobra.Command {
	f, state := filter{}, string(parking.Open)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what is parked",
		Long: `Lists what is parked and open, the earliest first: authentic deliveries that are
invalid or in conflict, and events that could not be published, which nobody has
replayed or settled yet. TIME is when the delivery was signed, or the event recorded.

Status 1: at least one of what is listed is open.

With --json, one document a line: name, time, reason, state.`,
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
	cli.ChoiceVar(cmd, &state, "state", "state", "open, replayed, settled or any (default open)",
		string(parking.Open), string(parking.Replayed), string(parking.Settled), anyState)
	return cmd
}

func (p *program) showCommand() *cobra.Command {
	var name string
	var payload bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show one parked delivery or event, with its proof",
		Long: `Shows one thing that is parked, with everything that proves it except the payload,
and what was decided about it; of a conflict, amount, currency and status of both
versions, as far as they are stored. "payhook parked list" has the names.

Status 1: nothing is parked under this name.

With --json, one document: name, time, reason, state, cause, parkedAt, bus, deliveryId,
eventIds, eventDigests, payloadBytes, payloadSha256, timestamp, keyId, signature, jwk,
certificate; for one event recordedAt, attempts, claimed, digest; once it is replayed or
settled decision (by, at, reason, version); of a conflict versions (eventId, first and
parked, each with state, at, deliveryId, sha256, found, amount, currency, status).`,
		Example: "  payhook parked show NAME\n  payhook parked show NAME --payload > payload.json",
		Args: func(cmd *cobra.Command, args []string) (err error) {
			if payload && p.JSON {
				return errors.New("--payload writes only the payload: it cannot be used with --json")
			}
			if err := cli.Args("NAME")(cmd, args); err != nil {
				return err
			}
			name, err = nameOf(args[0])
			return err
		},
		RunE: p.on(
			func(ctx context.Context, s *stack, _ []string) error { return p.parkedShow(ctx, s, name, payload) },
		),
	}
	cmd.Flags().BoolVar(&payload, "payload", false,
		"write only the payload, byte for byte: the signed delivery, or the event that could not be published")
	return cmd
}

// filter says which of what is parked is meant. Empty fields say nothing.
type filter struct {
	from, until     time.Time
	reason          string
	event, delivery string
	state           parking.State // "": any
}

// anyState is what --state takes for all states.
const anyState = "any"

func (p *program) filterFlags(cmd *cobra.Command, to *filter) {
	f := cmd.Flags()
	cli.FuncVar(f, "from", "time", "of this time or later: RFC 3339, or how long ago, such as 90m, 24h or 7d",
		func(text string) (err error) { to.from, err = p.Time(text); return err })
	cli.FuncVar(f, "until", "time", "of before this time",
		func(text string) (err error) { to.until, err = p.Time(text); return err })
	cli.ChoiceVar(cmd, &to.reason, "reason", "reason", "invalid, conflict or unpublishable",
		string(parking.Invalid), string(parking.Conflict), string(parking.Unpublishable))
	cli.FuncVar(f, "event", "id", "about this eventId", func(text string) error { to.event = text; return isID(text) })
	cli.FuncVar(f, "delivery", "id", "of this deliveryId",
		func(text string) error { to.delivery = text; return isID(text) })
}

// listed is one thing that is parked, as a listing has it.
type listed struct {
	Name   string        `json:"name"`
	Time   time.Time     `json:"time"` // in its name
	Reason string        `json:"reason"`
	State  parking.State `json:"state"`
}

// reasonOf returns the reason in a name: TIME-REASON-DIGEST.json.
func reasonOf(name string) string {
	base := name[strings.LastIndex(name, "/")+1:]
	_, rest, _ := strings.Cut(base, "-")
	return rest[:max(strings.LastIndex(rest, "-"), 0)]
}

// find calls found with all that is parked and meant by the filter, in the order
// of the names' times, until found fails.
func find(ctx context.Context, store *parking.Store, f filter, found func(listed) error) error {
	states, err := store.States(ctx)
	if err != nil {
		return err
	}
	var stopped error
	// one reports whether to go on.
	one := func(name string) bool {
		at, err := parking.TimeOf(name)
		if err != nil {
			return true // no name of ours
		}
		l := listed{Name: name, Time: at, Reason: reasonOf(name), State: cmp.Or(states[name], parking.Open)}
		if f.reason != "" && f.reason != l.Reason || f.state != "" && f.state != l.State {
			return true
		}
		stopped = found(l)
		return stopped == nil
	}
	if f.event == "" && f.delivery == "" {
		return cmp.Or(store.List(ctx, f.from, f.until, one), stopped)
	}
	list, err := indexed(ctx, store, f)
	if err != nil {
		return err
	}
	for _, name := range list {
		if !one(name) {
			break
		}
	}
	return stopped
}

// indexed returns the names under which the filter's event and delivery are parked within
// its times, in the order of their times.
func indexed(ctx context.Context, store *parking.Store, f filter) (parked []string, err error) {
	find, id := store.FindEvent, f.event
	if f.event == "" {
		find, id = store.FindDelivery, f.delivery
	}
	list, err := find(ctx, id)
	if err != nil {
		return nil, err
	}
	if f.event != "" && f.delivery != "" {
		ofDelivery, err := store.FindDelivery(ctx, f.delivery)
		if err != nil {
			return nil, err
		}
		list = slices.DeleteFunc(list, func(name string) bool { return !slices.Contains(ofDelivery, name) })
	}
	slices.Sort(list)
	for _, name := range list {
		at, err := parking.TimeOf(name)
		if err != nil || at.Before(f.from) || !f.until.IsZero() && !at.Before(f.until) {
			continue
		}
		// The index is written first: what it names may have failed to be parked.
		err = store.List(ctx, at, at.Add(time.Millisecond), func(other string) bool {
			if other == name {
				parked = append(parked, name)
			}
			return other != name
		})
		if err != nil {
			return nil, err
		}
	}
	return parked, nil
}

func (p *program) parkedList(ctx context.Context, d *stack, f filter) error {
	// As it goes, so the columns are not as wide as what they hold.
	const columns = "%-24s  %-13s  %-8s  %s\n"
	total, open := 0, 0
	err := find(ctx, d.store, f, func(l listed) error {
		total++
		if l.State == parking.Open {
			open++
		}
		return p.print(l, func(t cli.Fields) {
			if total == 1 {
				fmt.Fprintf(t, columns, "TIME", "REASON", "STATE", "NAME")
			}
			fmt.Fprintf(t, columns, cli.Stamp(l.Time), cli.Plain(l.Reason), l.State, cli.Plain(l.Name))
		})
	})
	switch {
	case err != nil:
		return err
	case p.JSON:
	case total == 0:
		fmt.Fprintln(p.Out, "nothing is parked that matches")
	default:
		fmt.Fprintf(p.Out, "\n%d listed, %d of them open\n", total, open)
	}
	return attention(nil, open > 0)
}

// payloadOf returns what --payload writes.
func payloadOf(p parking.Parked) []byte {
	if p.Payload == nil {
		return p.Event
	}
	return p.Payload
}

// nameOf takes a name as it may have been copied.
func nameOf(text string) (string, error) {
	name := strings.TrimPrefix(text, "parked/")
	if _, err := parking.TimeOf(name); err != nil || !strings.Contains(name, "/") {
		return "", fmt.Errorf("%q is not a name; payhook parked list has the names, such as "+
			"2026/01/31/12/20260131T120000.123Z-conflict-0b7e4c1e3d434f269c0d2f1f6a5b7c8d.json", text)
	}
	return name, nil
}

// proof is everything of what is parked but its payload, and what was decided about it.
type proof struct {
	Name  string        `json:"name"`
	Time  time.Time     `json:"time"` // in its name
	State parking.State `json:"state"`

	parking.Parked        // without Payload and Event
	Digest         string `json:"digest,omitempty"` // in hexadecimal

	PayloadBytes  int    `json:"payloadBytes"`
	PayloadSHA256 string `json:"payloadSha256"`

	Decision *parking.Note `json:"decision,omitempty"`
	Versions []versions    `json:"versions,omitempty"`
}

func (p *program) parkedShow(ctx context.Context, d *stack, name string, payloadOnly bool) error {
	parked, err := d.store.Get(ctx, name)
	if errors.Is(err, parking.ErrNotParked) {
		fmt.Fprintf(p.Err, "payhook: nothing is parked under the name %s; payhook parked list has the names\n",
			cli.Plain(name))
		return cli.ErrAttention
	}
	if err != nil {
		return err
	}
	payload := payloadOf(parked)
	if payloadOnly {
		_, err := p.Out.Write(payload)
		return err
	}
	state, note, err := d.store.Decision(ctx, name)
	if err != nil {
		return err
	}
	at, _ := parking.TimeOf(name)
	sum := sha256.Sum256(payload)
	s := proof{Name: name, Time: at, State: state, Parked: parked, Digest: hex.EncodeToString(parked.Digest),
		PayloadBytes: len(payload), PayloadSHA256: hex.EncodeToString(sum[:])}
	s.Payload, s.Event = nil, nil
	if state != parking.Open {
		s.Decision = &note
	}
	if parked.Reason == parking.Conflict {
		if s.Versions, err = d.compare(ctx, parked); err != nil {
			return err
		}
	}
	return p.print(s, func(t cli.Fields) {
		s.write(t, p.Now())
		writeVersions(t, s.Versions, p.Now())
	})
}

func (s proof) write(t cli.Fields, now time.Time) {
	t.Line("name", "%s", cli.Plain(s.Name))
	t.Line("reason", "%s", cli.Plain(string(s.Reason)))
	if s.Cause != "" {
		t.Line("cause", "%s", cli.Plain(s.Cause))
	}
	t.Line("parked", "%s, for the bus %s", cli.Ago(s.ParkedAt, now), cli.Plain(s.Bus))
	t.Line("state", "%s", s.State)
	if d := s.Decision; d != nil {
		t.Line("decided", "%s", cli.Ago(d.At, now))
		for _, field := range [][2]string{{"by", d.By}, {"because", d.Reason}, {"version", d.Version}} {
			if field[1] != "" {
				t.Line(field[0], "%s", cli.Plain(field[1]))
			}
		}
	}
	t.Line("delivery", "%s", cmp.Or(cli.Plain(s.DeliveryID), "could not be read"))
	t.Line("events", "%s", cmp.Or(cli.PlainAll(s.EventIDs), "none could be read"))
	t.Line("payload", "%d bytes, SHA-256 %s; --payload writes it", s.PayloadBytes, s.PayloadSHA256)
	if s.KeyID != "" {
		t.Line("timestamp", "%s", cli.Plain(s.Timestamp))
		t.Line("key", "%s", cli.Plain(s.KeyID))
		t.Line("jwk", "%s", cli.Plain(string(s.JWK)))
		t.Line("signature", "%s", cli.Plain(s.Signature))
	}
	if s.Digest != "" {
		t.Line("recorded", "%s", cli.Ago(s.RecordedAt, now))
		t.Line("attempts", "%d by redrive", s.Attempts)
		t.Line("digest", "%s in the ledger", s.Digest)
		if s.Claimed {
			t.Line("size", "too large for the bus: the payload is a claim check")
		}
	}
}
