package commands

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/intake"
	"payhook.example/shared/objects"
	"payhook.example/shared/proof"
	"payhook.example/shared/wire"
)

type decision struct {
	request  wire.RedriveRequest // without names
	verb     string
	filter   filter
	all, yes bool
}

// decideCommand returns the command replay or dismiss, which sends the redrive function a request for each name.
func (p *program) decideCommand(verb, short string) *cobra.Command {
	d := &decision{verb: verb}
	cmd := &cobra.Command{
		Use:   verb + " NAME...",
		Short: short,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case d.all && len(args) > 0:
				return errors.New("--all cannot be used with names")
			case !d.all && d.filter != filter{}:
				return errors.New("--kind, --from, --until, --event and --delivery are used with --all")
			case !d.all && len(args) == 0:
				return fmt.Errorf("names are missing: %s has them", p.Hint("parked list"))
			}
			return d.check(nil)
		},
		RunE: p.on(func(ctx context.Context, s *connected, args []string) error {
			names, err := p.names(ctx, s, d, args)
			if len(names) == 0 || err != nil {
				return err
			}
			if err = d.check(names); err == nil && !d.yes {
				err = p.confirm(ctx, s, d, names)
			}
			if err != nil {
				return err
			}
			return p.decide(ctx, s, d, names)
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&d.all, "all", false, "everything that is open and that the filters mean")
	p.filterFlags(cmd, &d.filter)
	f.StringVar(&d.request.Reason, "reason", "", "why, in your own `text`; it is stored and logged")
	f.BoolVar(&d.yes, "yes", false, "do not ask; required without a terminal")
	if verb == replay {
		cli.ChoiceVar(cmd, (*string)(&d.request.Content), "content",
			"`content` of a conflict: first or parked", string(wire.FirstContent), string(wire.ParkedContent))
		f.BoolVar(&d.request.Again, "again", false, "also deliveries that were replayed or dismissed before")
		f.BoolVar(&d.request.AcceptAge, "accept-age", false,
			"check the age of rejected webhooks as of when they arrived")
	}
	return cmd
}

const replay, dismiss = "replay", "dismiss"

// check returns an error of usage if flags are missing that the decision about these names needs.
func (d *decision) check(names []string) error {
	among := func(kind proof.Reason) bool {
		return slices.ContainsFunc(names, func(name string) bool { return intake.KindOf(name) == string(kind) })
	}
	reason := strings.TrimSpace(d.request.Reason) != ""
	switch {
	case d.verb == dismiss && !reason:
		return cli.Usage("--reason is missing: say why it is not published")
	case d.verb == dismiss:
		return nil
	case d.all && (d.request.Content != "" || d.filter.kind == string(proof.Conflict)):
		return cli.Usage("--all does not include conflicts: each is replayed by its name, with --content")
	case among(proof.Conflict) && d.request.Content == "":
		return cli.Usage("a conflict is among them: choose with --content first or --content parked")
	case among(proof.Rejected) && !reason:
		return cli.Usage("--reason is missing: say why it was rejected wrongly")
	}
	return nil
}

// names returns the whole names that are meant, each once.
func (p *program) names(ctx context.Context, s *connected, d *decision, given []string) (names []string, err error) {
	for _, text := range given {
		name, err := p.whole(ctx, s, text)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if !d.all {
		return names, nil
	}
	list, err := p.find(ctx, s, d.filter, proof.Open)
	for _, l := range list {
		if d.verb == dismiss || l.Kind != string(proof.Conflict) {
			names = append(names, l.Name)
		}
	}
	if conflicts := len(list) - len(names); conflicts > 0 {
		fmt.Fprintf(p.Err, "%s not included: each is replayed by its name, with --content\n",
			cli.Counted(conflicts, "conflict is", "conflicts are"))
	}
	if len(names) == 0 && err == nil {
		fmt.Fprintln(p.Err, "nothing is parked that matches; nothing was done")
	}
	return names, err
}

// confirm asks before more than one thing is decided, and always before a parked content is
// published in addition to the first. Then it shows both.
func (p *program) confirm(ctx context.Context, s *connected, d *decision, names []string) error {
	if d.request.Content != wire.ParkedContent {
		if len(names) == 1 {
			return nil
		}
		verb := strings.ToUpper(d.verb[:1]) + d.verb[1:]
		return p.Confirm(ctx, fmt.Sprintf("%s %d in %s?", verb, len(names), s.Name))
	}
	for _, name := range names {
		parked, err := proof.Get(ctx, s.parking, name)
		if errors.Is(err, objects.ErrNotFound) || errors.Is(err, proof.ErrName) {
			continue // the function says so
		}
		var both []contents
		if err == nil {
			both, err = p.compare(ctx, s, parked)
		}
		if err == nil {
			err = writeContents(p.Err, both, p.Now())
		}
		if err != nil {
			return err
		}
	}
	fmt.Fprintln(p.Err)
	return p.Confirm(ctx, fmt.Sprintf("Consumers may process a second payment. Publish the parked content of %s in %s?",
		cli.Counted(len(names), "delivery", "deliveries"), s.Name))
}

type decided struct {
	Failed bool `json:"failed"` // it is neither replayed nor dismissed
	// The outcome is that of a replay, as in the function's log, or recorded instead of accepted if
	// redrive still has to publish events.
	wire.Decided
}

// maxFailures is how many invocations may fail in a row before the rest is not tried.
const maxFailures = 3

// decide sends the redrive function a request for each name, one after another, and prints
// the results. Each has an invocation of its own, so that it has all its time.
func (p *program) decide(ctx context.Context, s *connected, d *decision, names []string) error {
	d.request.By = s.caller(ctx)
	tried, done, failures := 0, 0, 0 // failures are those in a row
	var denied error                 // of AWS
	for _, name := range names {
		r := d.request
		if d.verb == replay {
			r.Replay = []string{name}
		} else {
			r.Dismiss = []string{name}
		}
		result, err := s.decideOne(ctx, name, r)
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
		_ = p.ShowLine(result, nil) // an error of the output is reported at the end
		if failures == maxFailures && tried < len(names) {
			fmt.Fprintln(p.Err, "the redrive function failed repeatedly: the rest was not tried")
			break
		}
	}
	if len(names) > 1 || denied != nil {
		fmt.Fprintf(p.Err, "%d of %d succeeded, %d failed\n", done, len(names), tried-done)
	}
	if ctx.Err() != nil {
		fmt.Fprintln(p.Err, "the last one may still be done;", p.Hint("parked list"), "shows what is open")
	}
	return attention(denied, done < len(names))
}

// decideOne sends the request for one name. The error is an errFunction, which the result has as its cause,
// or comes from AWS.
func (s *connected) decideOne(ctx context.Context, name string, r wire.RedriveRequest) (decided, error) {
	a, err := s.redrive(ctx, r)
	if err == nil && len(a.Decided) != 1 {
		err = errFunction("it returned no result")
	}
	if err != nil {
		a.Decided = []wire.Decided{{Name: name, Cause: err.Error()}}
	}
	result := decided{Decided: a.Decided[0]}
	done := len(r.Dismiss) > 0 || result.Outcome == intake.Accepted.Name ||
		result.Outcome == intake.ConflictDismissed.Name
	result.Failed = result.Cause != "" || !done
	if result.Outcome == intake.Accepted.Name && result.Pending > 0 {
		result.Outcome = "recorded"
	}
	return result, err
}
