package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/smithy-go"

	"payhook.example/infra/cmd/payhook/cli"
)

// replay is one replay, as AWS knows it.
type replay struct {
	Name    string    `json:"name"`
	State   string    `json:"state"` // as AWS has it, such as COMPLETED
	Reason  string    `json:"reason,omitempty"`
	Archive string    `json:"archive"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Rules   []string  `json:"rules,omitempty"`
	// LastReplayed is the time of the last event that was replayed; zero if none was.
	LastReplayed time.Time `json:"lastReplayed,omitzero"`
	Started      time.Time `json:"started,omitzero"`
	Ended        time.Time `json:"ended,omitzero"`
}

func (p *program) start(ctx context.Context, o options) error {
	if err := o.check(p.Now()); err != nil {
		return err
	}
	d, err := p.connect(ctx)
	if err != nil {
		return err
	}
	made, err := d.plan(ctx, o, p.Now())
	if err != nil {
		return err
	}
	p.show(d, made)
	if !o.yes {
		if err := p.Confirm(ctx, "Start the replay?"); err != nil {
			return err
		}
	}
	if _, err := d.events.StartReplay(ctx, made.input(d)); err != nil {
		if _, answered := errors.AsType[smithy.APIError](err); !answered {
			fmt.Fprintf(p.Err, "it is not known whether the replay %s was started: payhook replay list shows it\n",
				made.name)
		}
		return cli.Unreachable(explain(err))
	}
	return p.follow(ctx, d, made.name)
}

// explain says what to do about an error of StartReplay.
func explain(err error) error {
	if _, ok := errors.AsType[*types.LimitExceededException](err); ok {
		return fmt.Errorf("AWS runs at most 10 replays of an account and region at the same time; try again when one "+
			"has ended: %w", err)
	}
	if _, ok := errors.AsType[*types.ResourceAlreadyExistsException](err); ok {
		return fmt.Errorf("another replay was started in the same second; try again: %w", err)
	}
	return err
}

// show tells the person what a replay will do.
func (p *program) show(d *deployment, made *plan) {
	fmt.Fprintf(p.Err, "replay %s of the archive %s, %s\n", made.name, d.archive, d.name)
	fmt.Fprintf(p.Err, "  events  with an eventTimestamp from %s to before %s (%s)\n", cli.Stamp(made.from),
		cli.Stamp(made.to), cli.Readable(made.to.Sub(made.from)))
	title := "rules"
	for _, r := range made.rules {
		fmt.Fprintf(p.Err, "  %-6s  %s\n", title, cli.Plain(aws.ToString(r.Name)))
		title = ""
	}
	fmt.Fprintln(p.Err, "Each event that matches a rule is delivered to its targets again, also if it was delivered "+
		"before.")
	for _, note := range made.notes {
		fmt.Fprintln(p.Err, "Note:", note)
	}
}

// unknownFor is how many times a replay that was started may be unknown.
const unknownFor = 6

// follow shows the progress of a replay until it has ended, and its result.
func (p *program) follow(ctx context.Context, d *deployment, name string) error {
	said := ""
	for unknown := 0; ; {
		r, err := d.find(ctx, name)
		if errors.Is(err, errNoReplay) && unknown < unknownFor {
			unknown++
			r, err = replay{State: string(types.ReplayStateStarting)}, nil
		}
		if err == nil && r.hasEnded() {
			return p.result(r)
		}
		if err == nil {
			if text := r.progress(); text != said {
				fmt.Fprintln(p.Err, text)
				said = text
			}
			err = p.pause(ctx)
		}
		if err != nil {
			fmt.Fprintf(p.Err, "the replay goes on in AWS: payhook replay watch %s follows it, payhook replay cancel "+
				"%s ends it\n", name, name)
			return cli.Unreachable(err)
		}
	}
}

// errNoReplay is returned for a name that no replay of the archive has.
var errNoReplay = errors.New("the archive has no replay of this name")

// named reads a replay whose name somebody gave.
func (d *deployment) named(ctx context.Context, name string) error {
	_, err := d.find(ctx, name)
	if errors.Is(err, errNoReplay) {
		return cli.Usage("the archive %s has no replay %q: payhook replay list has their names", d.archive, name)
	}
	return cli.Unreachable(err)
}

// find reads a replay of the archive. Its error is errNoReplay if there is none of that
// name.
func (d *deployment) find(ctx context.Context, name string) (replay, error) {
	out, err := d.events.DescribeReplay(ctx, &eventbridge.DescribeReplayInput{ReplayName: &name})
	_, missing := errors.AsType[*types.ResourceNotFoundException](err)
	if err != nil && !missing {
		return replay{}, err
	}
	if missing || aws.ToString(out.EventSourceArn) != d.archiveARN {
		return replay{}, errNoReplay
	}
	r := replay{
		Name: name, State: string(out.State), Reason: aws.ToString(out.StateReason), Archive: d.archive,
		From: aws.ToTime(out.EventStartTime).UTC(), To: aws.ToTime(out.EventEndTime).UTC(),
		LastReplayed: aws.ToTime(out.EventLastReplayedTime).UTC(),
		Started:      aws.ToTime(out.ReplayStartTime).UTC(), Ended: aws.ToTime(out.ReplayEndTime).UTC(),
	}
	if out.Destination != nil {
		for _, arn := range out.Destination.FilterArns {
			r.Rules = append(r.Rules, arn[strings.LastIndex(arn, "/")+1:])
		}
	}
	return r, nil
}

// hasEnded reports whether the state is one that does not change any more.
func (r replay) hasEnded() bool {
	return slices.Contains([]types.ReplayState{types.ReplayStateCompleted, types.ReplayStateCancelled,
		types.ReplayStateFailed}, types.ReplayState(r.State))
}

// progress is how far a replay is.
func (r replay) progress() string {
	if r.LastReplayed.IsZero() {
		return r.State + ", no event was replayed yet"
	}
	part := float64(r.LastReplayed.Sub(r.From)) / float64(r.To.Sub(r.From))
	return fmt.Sprintf("%s, events up to %s were replayed (%.0f%% of the time)", r.State, cli.Stamp(r.LastReplayed),
		100*min(max(part, 0), 1))
}

// result shows how a replay ended. Its error is [cli.ErrAttention] unless events were
// replayed to the end.
func (p *program) result(r replay) error {
	attention := types.ReplayState(r.State) != types.ReplayStateCompleted || r.LastReplayed.IsZero()
	if p.JSON {
		if err := p.PrintJSON(r); err != nil {
			return err
		}
	} else {
		text := r.State
		switch {
		// EventBridge then has no time of a last event.
		case types.ReplayState(r.State) == types.ReplayStateCompleted && r.LastReplayed.IsZero():
			text += ", but no event was replayed: the archive has none of this time"
		case r.LastReplayed.IsZero():
			text += ", no event was replayed"
		default:
			text += ", events up to " + cli.Stamp(r.LastReplayed) + " were replayed"
		}
		if r.Reason != "" {
			text += ": " + cli.Plain(r.Reason)
		}
		if _, err := fmt.Fprintf(p.Out, "%s  %s\n", cli.Plain(r.Name), text); err != nil {
			return err
		}
	}
	if attention {
		return cli.ErrAttention
	}
	return nil
}

func (p *program) watch(ctx context.Context, name string) error {
	d, err := p.connect(ctx)
	if err != nil {
		return err
	}
	if err := d.named(ctx, name); err != nil {
		return err
	}
	return p.follow(ctx, d, name)
}

func (p *program) cancel(ctx context.Context, name string) error {
	d, err := p.connect(ctx)
	if err != nil {
		return err
	}
	if err := d.named(ctx, name); err != nil {
		return err
	}
	_, cancelErr := d.events.CancelReplay(ctx, &eventbridge.CancelReplayInput{ReplayName: &name})
	_, ended := errors.AsType[*types.IllegalStatusException](cancelErr)
	if cancelErr != nil && !ended {
		return cli.Unreachable(cancelErr)
	}
	r, err := d.find(ctx, name)
	if err != nil {
		return cli.Unreachable(err)
	}
	if p.JSON {
		err = p.PrintJSON(r)
	} else {
		_, err = fmt.Fprintf(p.Out, "%s  %s\n", cli.Plain(name), r.progress())
	}
	if err == nil && ended {
		fmt.Fprintln(p.Err, "it does not run any more, so it was not cancelled")
		err = cli.ErrAttention
	}
	return err
}

func (p *program) list(ctx context.Context) error {
	d, err := p.connect(ctx)
	if err != nil {
		return err
	}
	input := &eventbridge.ListReplaysInput{EventSourceArn: &d.archiveARN}
	var all []replay
	for {
		page, err := d.events.ListReplays(ctx, input)
		if err != nil {
			return cli.Unreachable(err)
		}
		for _, r := range page.Replays {
			all = append(all, replay{
				Name: aws.ToString(r.ReplayName), State: string(r.State), Reason: aws.ToString(r.StateReason),
				Archive: d.archive, From: aws.ToTime(r.EventStartTime).UTC(), To: aws.ToTime(r.EventEndTime).UTC(),
				LastReplayed: aws.ToTime(r.EventLastReplayedTime).UTC(),
				Started:      aws.ToTime(r.ReplayStartTime).UTC(), Ended: aws.ToTime(r.ReplayEndTime).UTC(),
			})
		}
		if aws.ToString(page.NextToken) == "" {
			break
		}
		input.NextToken = page.NextToken
	}
	slices.SortFunc(all, func(a, b replay) int {
		return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(a.Name, b.Name))
	})
	table := p.Table()
	if !p.JSON && len(all) > 0 {
		fmt.Fprintln(table, "NAME\tSTATE\tFROM\tTO\tSTARTED")
	}
	for _, r := range all {
		if p.JSON {
			if err := p.PrintJSON(r); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", cli.Plain(r.Name), r.State, cli.Stamp(r.From), cli.Stamp(r.To),
			cli.Ago(r.Started, p.Now()))
	}
	if len(all) == 0 {
		fmt.Fprintf(p.Err, "the archive %s has no replays\n", d.archive)
	}
	return table.Flush()
}
