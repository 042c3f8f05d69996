package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/parking"
)

// replayOptions are the flags of parked replay.
type replayOptions struct {
	filter          filter
	all, yes, again bool
	version         string
}

func (p *program) replayCommand() *cobra.Command {
	var o replayOptions
	var names []string
	cmd := &cobra.Command{
		Use:   "replay NAME...",
		Short: "Publish what is parked",
		Long: `Publishes what is parked, with the redrive function. A delivery is verified again
with the signature that is stored with it; an event becomes pending again, and redrive
publishes it within a minute. Nothing else is published. What is replayed stays parked,
and is marked as replayed. What was replayed or dismissed before is rejected, unless
--again is given.

Outcomes of a replay:

  accepted  nothing is left to publish
  recorded  redrive publishes it within a minute
  pending   an event was recorded before and is not published yet. Redrive publishes or
            parks it. Nothing is marked as replayed: repeat the replay later

Every other outcome is a failure, with its cause.

A conflict is two contents of one eventId, of which the first was published. Decide
which is right, name the conflict, and choose:

  --version first   what was published stays: the conflict is dismissed, and nothing is
                    published
  --version parked  the parked content is published as well. From then on the first is
                    the one in conflict. Consumers that use eventId as an idempotency
                    key ignore it, others process a second payment: tell them first

An event that could not be published, whose eventId has other content by now, needs
--version parked as well.

It asks before it replays more than one, and always before it publishes a parked version:
then it shows both versions with amount, currency and status.

Status 1: the outcome of at least one is neither accepted nor recorded.`,
		Example: `  payhook parked replay NAME
  payhook parked replay NAME --version first
  payhook parked replay --all --reason invalid --from 24h --yes`,
		Args: func(_ *cobra.Command, args []string) (err error) {
			names, err = p.namesToReplay(o, args)
			return err
		},
		RunE: p.on(func(ctx context.Context, s *stack, _ []string) error { return p.replay(ctx, s, o, names) }),
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "everything that is parked and open, except conflicts")
	p.filterFlags(cmd, &o.filter)
	cli.ChoiceVar(cmd, &o.version, "version", "`version` of a conflict: first or parked", firstVersion, parkedVersion)
	f.BoolVar(&o.again, "again", false, "also what was replayed or dismissed before")
	f.BoolVar(&o.yes, "yes", false, "do not ask; required without a terminal")
	return cmd
}

// The versions of a conflict, as the redrive function knows them.
const (
	firstVersion  = "first"
	parkedVersion = "parked"
)

func (p *program) dismissCommand() *cobra.Command {
	var names []string
	var reason string
	var yes bool
	cmd := &cobra.Command{
		Use:   "dismiss NAME...",
		Short: "Record that something parked needs no replay",
		Long: `Records, with the redrive function, that what is parked needs no replay: it is no
longer listed as open. It stays parked, and nothing is published. The record says who
dismissed it, when, and the reason. To dismiss twice changes nothing.

It asks before it dismisses more than one.

Status 1: at least one was not dismissed.`,
		Example: "  payhook parked dismiss NAME --reason 'sent again by the service, delivery ...'",
		Args: func(_ *cobra.Command, args []string) (err error) {
			if names, err = p.namesOf(args); err == nil && strings.TrimSpace(reason) == "" {
				err = errors.New("--reason is missing: say why no replay is needed")
			}
			return err
		},
		RunE: p.on(func(ctx context.Context, s *stack, _ []string) error {
			if len(names) > 1 && !yes {
				if err := p.Confirm(ctx, fmt.Sprintf("Dismiss %d in %s?", len(names), s.Name)); err != nil {
					return err
				}
			}
			return p.decide(ctx, s, names, func(name string) request {
				return request{Dismiss: []string{name}, Reason: reason}
			})
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why no replay is needed (required)")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask; required without a terminal")
	return cmd
}

func (p *program) replay(ctx context.Context, d *stack, o replayOptions, names []string) error {
	if o.all {
		var err error
		if names, err = p.open(ctx, d, o.filter); err != nil {
			return err
		}
		if len(names) == 0 {
			fmt.Fprintln(p.Err, "nothing is parked that matches; nothing was done")
			return nil
		}
	}
	if !o.yes {
		if err := p.confirmReplay(ctx, d, o.version, names); err != nil {
			return err
		}
	}
	return p.decide(ctx, d, names, func(name string) request {
		return request{Replay: []string{name}, Version: o.version, Again: o.again}
	})
}

// open returns the names of what is open and meant by the filter, except conflicts.
func (p *program) open(ctx context.Context, d *stack, f filter) (names []string, err error) {
	f.state = parking.Open
	list, err := d.find(ctx, f)
	for _, l := range list {
		if l.Reason != string(parking.Conflict) {
			names = append(names, l.Name)
		}
	}
	if conflicts := len(list) - len(names); conflicts > 0 {
		fmt.Fprintf(p.Err, "%s not included: each is replayed by its name, with --version\n",
			cli.Counted(conflicts, "conflict is", "conflicts are"))
	}
	return names, err
}

// confirmReplay asks before more than one is replayed, and always before a parked version is
// published in addition to the first. Then it shows both.
func (p *program) confirmReplay(ctx context.Context, d *stack, version string, names []string) error {
	if version != parkedVersion {
		if len(names) == 1 {
			return nil
		}
		return p.Confirm(ctx, fmt.Sprintf("Replay %d in %s?", len(names), d.Name))
	}
	for _, name := range names {
		parked, err := d.store.Get(ctx, name)
		if errors.Is(err, parking.ErrNotParked) {
			continue // the function says so
		}
		if err != nil {
			return err
		}
		both, err := p.compare(ctx, d, parked)
		if err == nil {
			err = writeVersions(p.Err, both, p.Now())
		}
		if err != nil {
			return err
		}
	}
	fmt.Fprintln(p.Err)
	return p.Confirm(ctx, fmt.Sprintf("Consumers may process a second payment. Publish the parked version of %s in %s?",
		cli.Counted(len(names), "parked object", "parked objects"), d.Name))
}

// namesToReplay checks how the arguments and flags of parked replay go together. The redrive
// function checks whether what is parked has the version.
func (p *program) namesToReplay(o replayOptions, given []string) ([]string, error) {
	switch {
	case o.all && len(given) > 0:
		return nil, errors.New("--all cannot be used with names")
	case o.all && (o.version != "" || o.filter.reason == string(parking.Conflict)):
		return nil, errors.New("--all does not include conflicts: each is replayed by its name, with --version")
	case o.all:
		return nil, nil
	case o.filter != filter{}:
		return nil, errors.New("filters are used with --all, not with names")
	}
	names, err := p.namesOf(given)
	for _, name := range names {
		if reasonOf(name) == string(parking.Conflict) && o.version == "" {
			return nil, fmt.Errorf("%s is a conflict: choose with --version first or --version parked", name)
		}
	}
	return names, err
}

// namesOf takes names as they may have been copied, each once.
func (p *program) namesOf(texts []string) (names []string, err error) {
	if len(texts) == 0 {
		return nil, fmt.Errorf("names are missing: %s has them", p.hint("parked list"))
	}
	for _, text := range texts {
		name, err := p.nameOf(text)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// decided is the result for one object that was to be replayed or dismissed, as the redrive
// function reports it.
type decided struct {
	Failed bool   `json:"failed"` // it is neither replayed nor dismissed
	Name   string `json:"name"`
	// Outcome is that of a replay, as in the function's log, or recorded instead of accepted if
	// redrive still has to publish events.
	Outcome    string `json:"outcome,omitempty"`
	Next       string `json:"next,omitempty"` // what redrive does
	Cause      string `json:"cause,omitempty"`
	Recorded   int    `json:"recorded,omitzero"`
	Pending    int    `json:"pending,omitzero"` // also of Duplicates
	Duplicates int    `json:"duplicates,omitzero"`
	Conflicts  int    `json:"conflicts,omitzero"`
	Parked     string `json:"parked,omitempty"` // the name of what is in conflict
	// Unverified says what could not be verified of its proof.
	Unverified string `json:"unverified,omitempty"`
}

// maxFailures is how many invocations may fail in a row before the rest is not tried.
const maxFailures = 3

// decide sends the redrive function a request for each name, one after another, and prints
// the results. Each has an invocation of its own, so that it has all its time.
func (p *program) decide(ctx context.Context, d *stack, names []string, ask func(name string) request) error {
	by := d.caller(ctx)
	tried, done, failures := 0, 0, 0 // failures are those in a row
	var denied error                 // of AWS
	for _, name := range names {
		r := ask(name)
		r.By = by
		result, err := d.decideOne(ctx, name, r)
		_, failed := errors.AsType[errFunction](err)
		if err != nil && !failed {
			denied = err
			break
		}
		tried++
		if failures++; !failed {
			failures = 0
		}
		if !result.Failed {
			done++
		}
		// An error of the output is reported at the end.
		_ = p.ShowLine(result, "failed", result.Failed, "name", result.Name, "outcome", result.Outcome,
			"next", result.Next, "cause", result.Cause, "recorded", result.Recorded, "pending", result.Pending,
			"duplicates", result.Duplicates, "conflicts", result.Conflicts, "parked", result.Parked,
			"unverified", result.Unverified)
		if failures == maxFailures && tried < len(names) {
			fmt.Fprintln(p.Err, "the redrive function failed repeatedly: the rest was not tried")
			break
		}
	}
	if len(names) > 1 || denied != nil {
		fmt.Fprintf(p.Err, "%d of %d succeeded, %d failed\n", done, len(names), tried-done)
	}
	if ctx.Err() != nil {
		fmt.Fprintln(p.Err, "the last one may still be done;", p.hint("parked list"), "shows what is open")
	}
	return attention(denied, done < len(names))
}

// decideOne sends the request for one name. The error is an errFunction, which the result has as its cause,
// or comes from AWS.
func (d *stack) decideOne(ctx context.Context, name string, r request) (decided, error) {
	a, err := d.redrive(ctx, r)
	results := slices.Concat(a.Replayed, a.Dismissed)
	if err == nil && len(results) != 1 {
		err = errFunction("it returned no result")
	}
	if err != nil {
		return decided{Name: name, Failed: true, Cause: err.Error()}, err
	}
	result := results[0]
	result.Failed = result.Cause != "" || len(a.Replayed) == 1 && result.Outcome != "accepted"
	if result.Outcome == "accepted" && result.Pending > 0 {
		result.Outcome, result.Next = "recorded", "redrive publishes it within a minute"
	}
	return result, nil
}
