package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/parking"
)

// replayOptions are the flags of parked replay.
type replayOptions struct {
	filter          filter
	all, yes, again bool
	version, bus    string
	chosen          []string // the names that are given
}

func (p *program) replayCommand() *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:   "replay NAME...",
		Short: "Publish what is parked",
		Long: `Publishes what is parked, with the redrive function. A delivery is verified again
from the proof that is stored with it; an event becomes pending again, and redrive
publishes it. Nothing else is published. What is replayed stays parked, and is marked
as replayed. What was replayed or settled before is rejected, unless --again is given.

A conflict is two contents of one eventId, of which the first was published. Decide
which is right, name the conflict, and choose:

  --version first   what was published stays: the conflict is settled, and nothing is
                    published
  --version parked  the parked content is published as well. From then on the first is
                    the one in conflict. Consumers that use eventId as an idempotency
                    key ignore it, others process a second payment: tell them first

An event that could not be published, whose eventId has other content by now, needs
--version parked as well.

What was parked for another bus is published on the bus of this stack only with --bus,
which names that other bus. "payhook parked show" shows it.

It asks before it replays more than one, and always before it publishes a parked version:
then it shows both versions with amount, currency and status.

Status 1: at least one was not accepted.

With --json, one document a line: name, accepted, outcome, cause, recorded,
duplicates, conflicts, parked, unverified.`,
		Example: `  payhook parked replay NAME
  payhook parked replay NAME --version first
  payhook parked replay --all --reason invalid --from 24h --yes`,
		Args: func(_ *cobra.Command, args []string) (err error) {
			o.chosen, err = namesToReplay(&o, args)
			return err
		},
		RunE: p.on(func(ctx context.Context, s *stack, _ []string) error { return p.parkedReplay(ctx, s, &o) }),
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "everything that is parked and open, except conflicts")
	p.filterFlags(cmd, &o.filter)
	cli.ChoiceVar(cmd, &o.version, "version", "version", "of a conflict: first or parked", firstVersion, parkedVersion)
	f.BoolVar(&o.again, "again", false, "also what was replayed or settled before")
	f.StringVar(&o.bus, "bus", "", "the bus that it was parked for, if that is not the bus of this stack")
	f.BoolVar(&o.yes, "yes", false, "do not ask; required without a terminal")
	return cmd
}

// The versions of a conflict, as the redrive function knows them.
const (
	firstVersion  = "first"
	parkedVersion = "parked"
)

// accepted is the one outcome of a replay after which nothing is left to do.
const accepted = "accepted"

// replayed is the result of one replay, as the redrive function reports it.
type replayed struct {
	Name       string `json:"name"`
	Accepted   bool   `json:"accepted"`
	Outcome    string `json:"outcome"` // as in the function's log; "" if the function failed
	Cause      string `json:"cause,omitempty"`
	Recorded   int    `json:"recorded"`
	Duplicates int    `json:"duplicates"`
	Conflicts  int    `json:"conflicts"`
	Parked     string `json:"parked,omitempty"` // the name of what is in conflict
	// Unverified says what could not be verified of its proof.
	Unverified string `json:"unverified,omitempty"`
}

func (p *program) parkedReplay(ctx context.Context, d *stack, o *replayOptions) error {
	chosen := o.chosen
	if o.all {
		var err error
		if chosen, err = p.open(ctx, d, o.filter); err != nil {
			return err
		}
		if len(chosen) == 0 {
			fmt.Fprintln(p.Err, "nothing is parked that matches; nothing was done")
			return nil
		}
	}
	if !o.yes {
		if err := p.confirmReplay(ctx, d, o, chosen); err != nil {
			return err
		}
	}
	by := d.caller(ctx)
	return p.decide(ctx, chosen, "accepted", func(ctx context.Context, name string) (bool, error) {
		a, err := d.redrive(
			ctx,
			request{Replay: []string{name}, Version: o.version, Again: o.again, Bus: o.bus, By: by},
		)
		result := replayed{Name: name}
		if len(a.Replayed) == 1 {
			result = a.Replayed[0]
		}
		if err != nil {
			result.Cause = err.Error()
		}
		result.Accepted = result.Outcome == accepted && result.Cause == ""
		return result.Accepted, cmp.Or(
			p.print(result, func(t cli.Fields) { result.write(t, o.version) }), err)
	})
}

// open returns the names of what is open and meant by the filter, except conflicts.
func (p *program) open(ctx context.Context, d *stack, f filter) (chosen []string, err error) {
	f.state = parking.Open
	looking, conflicts := p.Progress(), 0
	err = find(ctx, d.store, f, func(l listed) error {
		if l.Reason == string(parking.Conflict) {
			conflicts++
			return nil
		}
		chosen = append(chosen, l.Name)
		looking.Say("%d found so far", len(chosen))
		return nil
	})
	if conflicts > 0 {
		fmt.Fprintf(p.Err, "%s not included: each is replayed by its name, with --version\n",
			cli.Counted(conflicts, "conflict is", "conflicts are"))
	}
	return chosen, err
}

// confirmReplay asks before more than one is replayed, and always before a parked version is
// published in addition to the first. Then it shows both.
func (p *program) confirmReplay(ctx context.Context, d *stack, o *replayOptions, chosen []string) error {
	if o.version != parkedVersion {
		if len(chosen) == 1 {
			return nil
		}
		return p.Confirm(ctx, fmt.Sprintf("Replay %d in %s?", len(chosen), d.Name))
	}
	for _, name := range chosen {
		parked, err := d.store.Get(ctx, name)
		if errors.Is(err, parking.ErrNotParked) {
			continue // the function says so
		}
		if err != nil {
			return err
		}
		both, err := d.compare(ctx, parked)
		if err == nil {
			err = writeVersions(p.Err, both, p.Now())
		}
		if err != nil {
			return err
		}
	}
	fmt.Fprintln(p.Err)
	return p.Confirm(ctx, fmt.Sprintf("Consumers may process a second payment. Publish the parked version of %s in %s?",
		cli.Counted(len(chosen), "parked object", "parked objects"), d.Name))
}

func namesToReplay(o *replayOptions, given []string) (checked []string, err error) {
	switch {
	case o.all && len(given) > 0:
		return nil, fmt.Errorf("--all cannot be used with names")
	case o.all && (o.version != "" || o.filter.reason == string(parking.Conflict)):
		return nil, fmt.Errorf("--all does not include conflicts: each is replayed by its name, with --version")
	case o.all:
		return nil, nil
	case o.filter != filter{}:
		return nil, fmt.Errorf("filters are used with --all, not with names")
	}
	if checked, err = namesOf(given); err != nil {
		return nil, err
	}
	for _, name := range checked {
		switch reason := parking.Reason(reasonOf(name)); {
		case reason == parking.Conflict && o.version == "":
			return nil, fmt.Errorf("%s is a conflict: choose with --version first or --version parked", name)
		case reason == parking.Invalid && o.version != "", reason == parking.Unpublishable && o.version == firstVersion:
			return nil, fmt.Errorf("%s is not a conflict: it has no version %s", name, o.version)
		}
	}
	return checked, nil
}

// namesOf takes names as they may have been copied, each once.
func namesOf(texts []string) (checked []string, err error) {
	if len(texts) == 0 {
		return nil, errors.New("names are missing: payhook parked list has them")
	}
	for _, text := range texts {
		name, err := nameOf(text)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(checked, name) {
			checked = append(checked, name)
		}
	}
	return checked, nil
}

func (r replayed) write(t cli.Fields, version string) {
	name := cli.Plain(r.Name)
	switch {
	case r.Accepted && version == firstVersion:
		fmt.Fprintf(t, "settled       %s  the first version stays\n", name)
		return
	case r.Accepted:
		note := ""
		if r.Unverified != "" {
			note = "; not verified: " + cli.Plain(r.Unverified)
		}
		fmt.Fprintf(t, "accepted      %s  %s new, %d known%s\n", name, cli.Counted(r.Recorded, "event", "events"),
			r.Duplicates, note)
		return
	}
	why := r.Outcome
	switch {
	case why == "":
		why = r.Cause
	case r.Cause != "":
		why += ": " + r.Cause
	case r.Conflicts > 0:
		why += ": " + cli.Counted(r.Conflicts, "event is", "events are") + " known with other content"
		if r.Parked != "" {
			why += ", now parked as " + r.Parked
		}
	}
	fmt.Fprintf(t, "not accepted  %s  %s\n", name, cli.Plain(why))
}
