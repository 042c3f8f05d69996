package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/names"
	"payhook.example/shared/parking"
)

// replayOptions are the flags of parked replay.
type replayOptions struct {
	filter          filter
	all, yes, again bool
	version, bus    string
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
		RunE: run(func(ctx context.Context, args []string) error { return p.parkedReplay(ctx, &o, args) }),
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

// batchSize is how many are replayed by one invocation: few enough for the time
// that it has.
const batchSize = 10

// maxFailures is how many single replays may fail in a row, because the function
// fails, before the rest is not tried.
const maxFailures = 3

// accepted is the one outcome of a replay after which nothing is left to do.
const accepted = "accepted"

// replayed is what became of one thing that was parked, as the redrive function
// reports it.
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

func (p *program) parkedReplay(ctx context.Context, o *replayOptions, list []string) error {
	chosen, err := namesToReplay(o, list)
	if err != nil {
		return err
	}
	d, err := p.connect(ctx, *p.target)
	if err != nil {
		return err
	}
	function, err := d.Output(names.RedriveFunctionOutput)
	if err != nil {
		return err
	}
	if o.all {
		store, err := d.store()
		if err != nil {
			return err
		}
		o.filter.state = parking.Open
		looking, conflicts := p.Progress(), 0
		err = find(ctx, store, o.filter, func(l listed) error {
			if l.Reason == string(parking.Conflict) {
				conflicts++
				return nil
			}
			chosen = append(chosen, l.Name)
			looking.Say("%d found so far", len(chosen))
			return nil
		})
		if err != nil {
			return err
		}
		if conflicts > 0 {
			fmt.Fprintf(p.Err, "%s not included: each is replayed by its name, with --version\n",
				cli.Counted(conflicts, "conflict is", "conflicts are"))
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
	r := &replayer{p: p, o: o, client: d.lambda, function: function, by: d.caller(ctx), total: len(chosen),
		progress: p.Progress()}
	err = r.run(ctx, chosen)
	return r.summary(ctx, err)
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
	store, err := d.store()
	if err != nil {
		return err
	}
	for _, name := range chosen {
		parked, err := store.Get(ctx, name)
		if errors.Is(err, parking.ErrNotParked) {
			continue // the function says so
		}
		if err != nil {
			return err
		}
		both, err := d.compare(ctx, parked)
		if err == nil {
			err = printVersions(p.Err, both, p.Now())
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
		return nil, cli.Usage("--all cannot be used with names")
	case o.all && (o.version != "" || o.filter.reason == string(parking.Conflict)):
		return nil, cli.Usage("--all does not include conflicts: each is replayed by its name, with --version")
	case o.all:
		return nil, nil
	case len(given) == 0:
		return nil, cli.Usage("names are missing: payhook parked list has them, and --all takes everything that is " +
			"open except conflicts")
	case o.filter != filter{}:
		return nil, cli.Usage("filters are used with --all, not with names")
	}
	if checked, err = namesOf(given); err != nil {
		return nil, err
	}
	for _, name := range checked {
		switch reason := parking.Reason(reasonOf(name)); {
		case reason == parking.Conflict && o.version == "":
			return nil, cli.Usage("%s is a conflict: choose with --version first or --version parked", name)
		case reason == parking.Invalid && o.version != "", reason == parking.Unpublishable && o.version == firstVersion:
			return nil, cli.Usage("%s is not a conflict: it has no version %s", name, o.version)
		}
	}
	return checked, nil
}

// namesOf takes names as they may have been copied, each once.
func namesOf(texts []string) (checked []string, err error) {
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

// replayer replays what is parked, batch by batch.
type replayer struct {
	p        *program
	o        *replayOptions
	client   functions
	function string
	by       string // who replays
	progress *cli.Progress

	total, done, accepted int
	failures              int    // of the function, in a row
	last                  string // of these
}

func (r *replayer) run(ctx context.Context, chosen []string) error {
	for batch := range slices.Chunk(chosen, batchSize) {
		results, err := r.batch(ctx, batch)
		for _, result := range results {
			r.done++
			if result.Accepted {
				r.accepted++
			}
			if err := r.print(result); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		r.progress.Say("%d of %d replayed, %d accepted", r.done, r.total, r.accepted)
	}
	return nil
}

// errStopped: the function failed too often in a row.
var errStopped = errors.New("the redrive function failed")

// batch replays what one invocation may, and then one by one what failed in it
// for want of time or of a part of AWS. With an error it returns what it knows.
func (r *replayer) batch(ctx context.Context, chosen []string) (results []replayed, err error) {
	if len(chosen) == 1 {
		result, err := r.alone(ctx, chosen[0])
		if err != nil {
			return nil, err
		}
		return []replayed{result}, nil
	}
	found, _, err := r.invoke(ctx, chosen)
	if err != nil {
		return nil, err
	}
	var rest []string
	for _, name := range chosen {
		if result, ok := found[name]; ok && !again(result) {
			results = append(results, result)
		} else {
			rest = append(rest, name)
		}
	}
	for _, name := range rest {
		result, err := r.alone(ctx, name)
		if result.Outcome == "already-replayed" || r.o.version == firstVersion && result.Outcome == "already-settled" {
			result.Accepted, result.Cause = true, "" // by the invocation before
		}
		if err != nil {
			return results, err
		}
		if results = append(results, result); r.failures >= maxFailures {
			return results, errStopped
		}
	}
	return results, nil
}

// alone replays one.
func (r *replayer) alone(ctx context.Context, name string) (replayed, error) {
	found, failure, err := r.invoke(ctx, []string{name})
	if err != nil {
		return replayed{}, err
	}
	if result, ok := found[name]; ok {
		r.failures = 0
		return result, nil
	}
	r.failures++
	r.last = failure
	return replayed{Name: name, Cause: failure}, nil
}

// again reports whether an outcome may be another one if the invocation has all
// its time for it.
func again(r replayed) bool {
	switch r.Outcome {
	case "out-of-time", "ledger-unavailable":
		return true
	case "", accepted: // it could not be read, or not be marked as replayed
		return r.Cause != "" && r.Cause != parking.ErrNotParked.Error()
	}
	return false
}

// invoke replays names with one invocation and returns what became of each that
// it got to, or why it failed.
func (r *replayer) invoke(ctx context.Context,
	chosen []string) (results map[string]replayed, failure string, err error) {
	report, failure, err := invoke(ctx, r.client, r.function, request{Replay: chosen, Version: r.o.version,
		Again: r.o.again, Bus: r.o.bus, By: r.by})
	if err != nil {
		return nil, "", err
	}
	if failure == "" && len(report.Replayed) == 0 {
		failure = olderFunction
	}
	results = map[string]replayed{}
	for _, result := range report.Replayed {
		result.Accepted = result.Outcome == accepted && result.Cause == ""
		results[result.Name] = result
	}
	return results, failure, nil
}

// request is what the redrive function is asked for.
type request struct {
	Replay  []string `json:"replay,omitempty"`
	Version string   `json:"version,omitempty"`
	Again   bool     `json:"again,omitempty"`
	Bus     string   `json:"bus,omitempty"`
	Settle  []string `json:"settle,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	By      string   `json:"by,omitempty"`

	MoveFrom     string `json:"moveFrom,omitempty"`
	Certificates bool   `json:"certificates,omitempty"`
}

// answer is what the redrive function says became of it.
type answer struct {
	ErrorMessage string     `json:"errorMessage"`
	Replayed     []replayed `json:"replayed"`
	Settled      []settled  `json:"settled"`
	Moved        int        `json:"moved"`
	Left         bool       `json:"left"`

	Certificates *certificates `json:"certificates"`
}

const olderFunction = "the redrive function did not report a result: it is older than this program; deploy it again"

// invoke asks the redrive function, and returns its answer, or why it failed.
func invoke(ctx context.Context, client functions, function string, r request) (a answer, failure string, err error) {
	text, err := json.Marshal(r)
	if err != nil {
		return a, "", err
	}
	out, err := client.Invoke(ctx, &lambda.InvokeInput{FunctionName: &function, Payload: text})
	if err != nil {
		return a, "", err
	}
	broken := json.Unmarshal(out.Payload, &a)
	switch {
	case out.FunctionError != nil:
		failure = "the redrive function failed: " + a.ErrorMessage
	case broken != nil:
		failure = olderFunction
	}
	return a, failure, nil
}

func (r *replayer) print(result replayed) error {
	if r.p.JSON {
		return r.p.PrintJSON(result)
	}
	if result.Accepted && r.o.version == firstVersion {
		_, err := fmt.Fprintf(r.p.Out, "settled       %s  the first version stays\n", cli.Plain(result.Name))
		return err
	}
	if result.Accepted {
		note := ""
		if result.Unverified != "" {
			note = "; not verified: " + cli.Plain(result.Unverified)
		}
		_, err := fmt.Fprintf(r.p.Out, "accepted      %s  %s new, %d known%s\n", cli.Plain(result.Name),
			cli.Counted(result.Recorded, "event", "events"), result.Duplicates, note)
		return err
	}
	why := result.Outcome
	switch {
	case why == "":
		why = result.Cause
	case result.Cause != "":
		why += ": " + result.Cause
	case result.Conflicts > 0:
		why += ": " + cli.Counted(result.Conflicts, "event is", "events are") + " known with other content"
		if result.Parked != "" {
			why += ", now parked as " + result.Parked
		}
	}
	_, err := fmt.Fprintf(r.p.Out, "not accepted  %s  %s\n", cli.Plain(result.Name), cli.Plain(why))
	return err
}

// summary says what was done, and turns how it ended into how the program ends.
func (r *replayer) summary(ctx context.Context, err error) error {
	if r.total > 1 || err != nil {
		fmt.Fprintf(r.p.Err, "%d of %d replayed: %d accepted, %d not\n", r.done, r.total, r.accepted, r.done-r.accepted)
	}
	switch {
	case errors.Is(err, errStopped):
		fmt.Fprintf(r.p.Err, "stopped, because %s\n", cli.Plain(r.last))
		return cli.ErrAttention
	case err != nil:
		if ctx.Err() != nil {
			fmt.Fprintln(r.p.Err, "what had started may still be replayed; payhook parked list has what is left")
		}
		return err
	case r.accepted < r.done:
		return cli.ErrAttention
	}
	return nil
}
