package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
)

// parkedCommand lists without a command below it.
func (p *program) parkedCommand() *cobra.Command {
	list := p.listCommand()
	cmd := cli.Group("parked", "List and show what is parked", list, p.showCommand())
	group := cmd.RunE
	cmd.Flags().AddFlagSet(list.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return list.RunE(cmd, args)
		}
		return group(cmd, args)
	}
	return cmd
}

func (p *program) listCommand() *cobra.Command {
	f, state := filter{}, string(proof.Open)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what is parked",
		Args:  cobra.NoArgs,
		RunE: p.on(func(ctx context.Context, s *connected, _ []string) error {
			if f.kind == string(proof.Rejected) && f.event+f.delivery != "" {
				return cli.Usage("the ids of a rejected webhook are not known: --event and --delivery do not find it")
			}
			list, damaged := p.find(ctx, s, f, proof.Decision(strings.TrimPrefix(state, anyState)))
			if damaged != nil && !errors.Is(damaged, proof.ErrDamaged) {
				return damaged
			}
			fmt.Fprintln(p.Err, len(list), "listed")
			err := cli.List(p.Program, list, "time", "kind", "state", "cause", "largeEventEnds", "name")
			return cmp.Or(err, damaged)
		}),
	}
	p.filterFlags(cmd, &f)
	cli.ChoiceVar(cmd, &state, "state", "`state`: open, replayed, dismissed or any (default open)",
		string(proof.Open), string(proof.Replayed), string(proof.Dismissed), anyState)
	return cmd
}

// filter says which of what is parked is meant. Empty fields say nothing.
type filter struct {
	kind            string
	from, until     time.Time
	event, delivery string
}

var reasons = []proof.Reason{proof.Invalid, proof.Conflict, proof.Rejected}

// has reports whether a kind is meant. Nothing about a rejected webhook is proven, so it is meant only by its name.
func (f filter) has(kind string) bool {
	return f.kind == kind || f.kind == "" && kind != string(proof.Rejected)
}

func (f filter) hasTime(at time.Time) bool {
	return !at.Before(f.from) && (f.until.IsZero() || at.Before(f.until))
}

// anyState is what --state takes for all states.
const anyState = "any"

func (p *program) filterFlags(cmd *cobra.Command, to *filter) {
	f := cmd.Flags()
	f.Func("from", "of this `time` or later: RFC 3339, or how long ago, such as 90m, 24h or 7d",
		func(text string) (err error) { to.from, err = p.time(text); return err })
	f.Func("until", "of before this `time`", func(text string) (err error) { to.until, err = p.time(text); return err })
	cli.ChoiceVar(cmd, &to.kind, "kind", "`kind`: event, invalid, conflict or rejected (default all but rejected)",
		intake.EventKind, string(proof.Invalid), string(proof.Conflict), string(proof.Rejected))
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
	if at, zoned, _ := payment.ParseTime(text); zoned {
		return at, nil
	}
	before, err := settings.ParseDuration(text)
	if err != nil || before < 0 {
		return time.Time{}, errors.New("must be a time such as 2026-01-31T12:00:00Z, or how long ago, such as 24h")
	}
	return p.Now().Add(-before), nil
}

type listed struct {
	Time  time.Time      `json:"time"`
	Kind  string         `json:"kind"`
	State proof.Decision `json:"state"`
	Name  string         `json:"name"`
	Cause string         `json:"cause,omitempty"` // of an event, or the outcome of a rejected webhook
	// LargeEventEnds is when the large event of a claim check is deleted, if that is soon.
	LargeEventEnds time.Time `json:"largeEventEnds,omitzero"`
}

// find returns all that is parked, meant by the filter, and in that state; "" for any. The earliest is first. If a
// delivery cannot be read, the error wraps [proof.ErrDamaged], and all others are returned.
func (p *program) find(ctx context.Context, s *connected, f filter, state proof.Decision) (found []listed, err error) {
	if f.has(intake.EventKind) && (state == "" || state == proof.Open) {
		if found, err = p.events(ctx, s, f); err != nil {
			return nil, err
		}
	}
	stored, damaged := p.stored(ctx, s, f)
	if damaged != nil && !errors.Is(damaged, proof.ErrDamaged) || len(stored) == 0 {
		return found, damaged
	}
	decided, err := proof.Decisions(ctx, s.parking)
	if err != nil {
		return nil, err
	}
	for _, name := range stored {
		n, err := proof.ParseName(name)
		d := cmp.Or(decided[name], proof.Open)
		if err != nil || !f.has(string(n.Reason)) || !f.hasTime(n.At) || state != "" && state != d {
			continue
		}
		l := listed{Time: n.At, Kind: string(n.Reason), State: d, Name: name}
		if n.Reason == proof.Rejected {
			l.Cause = n.ID
		}
		found = append(found, l)
	}
	slices.SortFunc(found, func(a, b listed) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Name, b.Name)) })
	return found, damaged
}

// stored returns the names of what is parked in S3 about an event or a delivery, or of the kinds that are meant. More
// may be returned than the filter means.
func (p *program) stored(ctx context.Context, s *connected, f filter) (names []string, err error) {
	switch {
	case f.kind == intake.EventKind:
		return nil, nil
	case f.event != "":
		all, err := proof.Concerned(ctx, s.parking, p.Counter("delivery", "deliveries"))
		return all[strings.ToLower(f.event)], err
	case f.delivery != "":
		return proof.FindDelivery(ctx, s.parking, f.delivery)
	}
	for _, reason := range reasons {
		if !f.has(string(reason)) {
			continue
		}
		for o, err := range proof.List(ctx, s.parking, reason, f.from, f.until) {
			if err != nil {
				return nil, err
			}
			names = append(names, o.Key)
		}
	}
	return names, nil
}

// events returns the events that are parked in the ledger and meant by the filter.
func (p *program) events(ctx context.Context, s *connected, f filter) (found []listed, err error) {
	items := []ledger.Item{{EventID: ledger.Key(f.event)}}
	if f.event == "" {
		items, err = ledger.List(ctx, s.ledger, ledger.Parked)
	}
	if err == nil && f.event+f.delivery != "" {
		items, err = s.current(ctx, items, ledger.Parked)
		items = slices.DeleteFunc(items, func(i ledger.Item) bool {
			return f.delivery != "" && !strings.EqualFold(i.DeliveryID, f.delivery)
		})
	}
	if err != nil {
		return nil, err
	}
	ends, err := s.largeEventEnds(ctx, items, p.Now())
	for _, i := range items {
		if f.hasTime(i.RecordedAt) {
			found = append(found, listed{Time: i.RecordedAt, Kind: intake.EventKind, State: proof.Open,
				Name: i.EventID, Cause: i.Cause, LargeEventEnds: ends[i.EventID]})
		}
	}
	return found, err
}

// whole returns the name that begins with a text: an eventId, or the name of a stored delivery. The error says that
// none does, or several.
func (p *program) whole(ctx context.Context, s *connected, text string) (string, error) {
	folder, _, _ := strings.Cut(text, "/")
	stored := strings.Contains(text, "/") && slices.Contains(reasons, proof.Reason(folder))
	kind := intake.KindOf(text)
	var found []string
	var err error
	switch {
	case kind == intake.EventKind:
		return ledger.Key(text), nil
	case stored && kind == folder && strings.HasSuffix(text, ".json"):
		return text, nil
	case stored:
		for o, err := range objects.All(ctx, s.parking, text, "") {
			if err != nil {
				return "", err
			}
			if intake.KindOf(o.Key) == folder { // another text is not printed
				found = append(found, o.Key)
			}
			if len(found) > 1 {
				break
			}
		}
	case text != "": // an empty text is a variable of the shell that is not set
		var events []ledger.Item
		events, err = ledger.List(ctx, s.ledger, ledger.Parked)
		for _, i := range events {
			if strings.HasPrefix(i.EventID, ledger.Key(text)) {
				found = append(found, i.EventID)
			}
		}
	}
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return "", p.nothing(text)
	case len(found) == 1:
		return found[0], nil
	}
	return "", cli.Usage("several names begin with %s: %s and %s", text, found[0], found[1])
}

func (p *program) nothing(name string) error {
	fmt.Fprintf(p.Err, "nothing is parked under the name %s; %s has the names\n", cli.Plain(name),
		p.Hint("parked list"))
	return cli.ErrAttention
}
