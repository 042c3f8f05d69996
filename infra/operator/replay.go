package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"payhook/shared/parking"
)

const replayUsage = `Usage: operator parked replay NAME... [--yes]
       operator parked replay --all [FILTERS] [--yes]

Lets the redrive function take what is parked its normal way again: a delivery is
verified again from the proof that was kept with it, an event goes back to where
redrive publishes it. What was replayed stays parked, marked as replayed. To replay
twice does no harm: what is known by then counts as a duplicate.

A delivery in conflict stays in conflict as long as the ledger knows the eventId
with other content.

It asks before it replays more than one.

Exit status 1: at least one was not accepted.

  --all               all that is parked and was not replayed yet
` + filterUsage + `  --replayed yes      those that were replayed already, instead of those that were not
  --yes               do not ask; needed where nobody is at a terminal
  --json              one document a line: name, accepted, outcome, cause,
                      recorded, duplicates, conflicts
`

func replayFlags(p *program, o *options, f *flag.FlagSet) {
	p.filterFlags(o, f)
	f.BoolVar(&o.all, "all", false, "")
	f.BoolVar(&o.yes, "yes", false, "")
}

// batchSize is how many are replayed by one invocation: few enough for the time
// that it has.
const batchSize = 10

// patience is how many that were replayed alone may make the function fail, one
// after another, before the rest is left.
const patience = 3

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
}

func (p *program) parkedReplay(ctx context.Context, o *options, names []string) error {
	names, err := namesToReplay(o, names)
	if err != nil {
		return err
	}
	d, err := p.connect(ctx, o.target)
	if err != nil {
		return err
	}
	function, err := d.output(redriveOutput)
	if err != nil {
		return err
	}
	if o.all {
		lot, err := d.lot()
		if err != nil {
			return err
		}
		if o.filter.replayed == "" {
			o.filter.replayed = "no"
		}
		looking := p.progress()
		err = find(ctx, lot, o.filter, func(l listed) error {
			names = append(names, l.Name)
			looking.say("%d found so far", len(names))
			return nil
		})
		if err != nil {
			return err
		}
		if len(names) == 0 {
			fmt.Fprintln(p.err, "nothing is parked that this asks for; nothing was replayed")
			return nil
		}
	}
	if len(names) > 1 && !o.yes {
		if err := p.confirm(ctx, fmt.Sprintf("Replay %d in %s?", len(names), d.name)); err != nil {
			return err
		}
	}
	r := &replayer{p: p, o: o, client: d.lambda, function: function, total: len(names), progress: p.progress()}
	err = r.run(ctx, names)
	return r.summary(ctx, err)
}

func namesToReplay(o *options, names []string) (checked []string, err error) {
	switch {
	case o.all && len(names) > 0:
		return nil, usageError("--all goes without names")
	case o.all:
		return nil, nil
	case len(names) == 0:
		return nil, usageError("names are missing: parked list has them, and --all takes all that was not replayed")
	case o.filter != filter{}:
		return nil, usageError("filters go with --all, not with names")
	}
	for _, text := range names {
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

// confirm asks the person at the terminal. Its error says that the answer was
// not yes.
func (p *program) confirm(ctx context.Context, question string) error {
	if !p.terminal {
		return usageError(question + " Nobody is at a terminal to say so: --yes says it. Nothing was replayed")
	}
	fmt.Fprint(p.err, question, " [y/N] ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(p.in).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(p.err, "\nnothing was replayed")
		return ctx.Err()
	case text := <-answer:
		if text == "y" || text == "yes" {
			return nil
		}
		return usageError("nothing was replayed")
	}
}

// replayer replays what is parked, batch by batch.
type replayer struct {
	p        *program
	o        *options
	client   functions
	function string
	progress *progress

	total, done, accepted int
	failures              int    // of the function, in a row
	last                  string // of these
}

func (r *replayer) run(ctx context.Context, names []string) error {
	for batch := range slices.Chunk(names, batchSize) {
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
		r.progress.say("%d of %d replayed, %d accepted", r.done, r.total, r.accepted)
	}
	return nil
}

// errGivenUp: the function failed too often in a row.
var errGivenUp = errors.New("the redrive function failed")

// batch replays what one invocation may, and then one by one what failed in it
// for want of time or of a part of AWS. With an error it returns what it knows.
func (r *replayer) batch(ctx context.Context, names []string) (results []replayed, err error) {
	if len(names) == 1 {
		result, err := r.alone(ctx, names[0])
		if err != nil {
			return nil, err
		}
		return []replayed{result}, nil
	}
	found, _, err := r.invoke(ctx, names)
	if err != nil {
		return nil, err
	}
	var rest []string
	for _, name := range names {
		if result, ok := found[name]; ok && !again(result) {
			results = append(results, result)
		} else {
			rest = append(rest, name)
		}
	}
	for _, name := range rest {
		result, err := r.alone(ctx, name)
		if err != nil {
			return results, err
		}
		if results = append(results, result); r.failures >= patience {
			return results, errGivenUp
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
func (r *replayer) invoke(ctx context.Context, names []string) (results map[string]replayed, failure string, err error) {
	request, err := json.Marshal(map[string][]string{"replay": names})
	if err != nil {
		return nil, "", err
	}
	out, err := r.client.Invoke(ctx, &lambda.InvokeInput{FunctionName: &r.function, Payload: request})
	if err != nil {
		return nil, "", err
	}
	var report struct {
		ErrorMessage string     `json:"errorMessage"`
		Replayed     []replayed `json:"replayed"`
	}
	broken := json.Unmarshal(out.Payload, &report)
	switch {
	case out.FunctionError != nil:
		failure = "the redrive function failed: " + report.ErrorMessage
	case broken != nil || len(report.Replayed) == 0:
		failure = "the redrive function did not say what became of it: it is older than this program; deploy it again"
	}
	results = map[string]replayed{}
	for _, result := range report.Replayed {
		result.Accepted = result.Outcome == accepted && result.Cause == ""
		results[result.Name] = result
	}
	return results, failure, nil
}

func (r *replayer) print(result replayed) error {
	if r.o.json {
		return printJSON(r.p.out, result)
	}
	if result.Accepted {
		_, err := fmt.Fprintf(r.p.out, "accepted      %s  %s new, %d known\n", plain(result.Name), counted(result.Recorded, "event", "events"), result.Duplicates)
		return err
	}
	why := result.Outcome
	switch {
	case why == "":
		why = result.Cause
	case result.Cause != "":
		why += ": " + result.Cause
	case result.Conflicts > 0:
		why += ": " + counted(result.Conflicts, "event is", "events are") + " known with other content"
	}
	_, err := fmt.Fprintf(r.p.out, "not accepted  %s  %s\n", plain(result.Name), plain(why))
	return err
}

// summary says what was done, and turns how it ended into how the program ends.
func (r *replayer) summary(ctx context.Context, err error) error {
	if r.total > 1 || err != nil {
		fmt.Fprintf(r.p.err, "%d of %d replayed: %d accepted, %d not\n", r.done, r.total, r.accepted, r.done-r.accepted)
	}
	switch {
	case errors.Is(err, errGivenUp):
		fmt.Fprintf(r.p.err, "given up, since %s\n", plain(r.last))
		return errPerson
	case err != nil:
		if ctx.Err() != nil {
			fmt.Fprintln(r.p.err, "what was under way may still be replayed; parked list --replayed no has what is left")
		}
		return err
	case r.accepted < r.done:
		return errPerson
	}
	return nil
}
