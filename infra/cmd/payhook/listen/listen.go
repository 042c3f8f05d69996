// Package listen has the command that shows live which webhooks arrive and what happens to
// their events.
//
// Webhooks come from the log of the webhook function, events from a temporary queue behind
// a temporary rule of the bus. The package guarantees that both are removed when the
// command ends, or at anybody's start a week after a crash; that it makes nothing whose
// name does not begin with payhook-listen-; and that no event leaves the computer unless a
// flag allows it.
package listen

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/logs"
	"payhook.example/infra/deployment"
)

const long = `Shows each webhook as it arrives: the answer, the outcome and its cause, the delivery,
milliseconds for each step, and the events that are not published. Shows each event of
the bus as it arrives. Ctrl-C ends it.

Webhooks come from the function's log. Nothing is left out after the computer slept.
--since begins in the past, for webhooks only.

Events come from a temporary rule and queue, payhook-listen-…, which the command removes
when it ends. After a crash, the first start after a week does. While the computer
sleeps, the queue keeps events for 24 hours. A duplicate is not published again, so it is
in the log only.

  --pattern  shows and forwards only events that match a pattern of EventBridge
  --forward  posts each event, in EventBridge's envelope, to a program on this computer.
             What is not answered with 2xx is sent four times in all. A large event is
             the reference that is on the bus.

With --json, or if the output is not a terminal, JSON lines. A webhook: type, time,
status, outcome, cause, deliveryId, events, ids, idsLeftOut, parked, captured, ms. An
event: type, time, eventId, name, deliveryId, forward, event. They contain payment data.
--json=false prevents it.`

const example = `  payhook listen --local
  payhook listen --since 1h
  payhook listen --pattern events/rules/released.json
  payhook listen --local --forward http://127.0.0.1:8080/events`

type options struct {
	*cli.Program
	since    time.Duration
	pattern  string // a file; "" for everything
	to       string // a URL; "" for none
	anywhere bool
}

// Command returns the command.
func Command(p *cli.Program, t *deployment.Target) *cobra.Command {
	o := options{Program: p}
	cmd := &cobra.Command{
		Use: "listen", Short: "Show live which webhooks and events arrive",
		Long: long, Example: example, Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Unreachable(o.run(cmd.Context(), t, p.JSONLines(cmd)))
		},
	}
	f := cmd.Flags()
	cli.DurationVar(f, &o.since, "since", 0, "begin with the webhooks of this time before")
	f.StringVar(&o.pattern, "pattern", "", "`file` with an event pattern of EventBridge")
	f.StringVar(&o.to, "forward", "", "post events to this `URL`")
	f.BoolVar(&o.anywhere, "forward-anywhere", false,
		"allow --forward to another computer, which payment data is then sent to")
	return cmd
}

func (o *options) run(ctx context.Context, t *deployment.Target, asJSON bool) error {
	if o.since < 0 {
		return cli.Usage("--since must not be negative")
	}
	pattern, err := o.readPattern()
	if err != nil {
		return err
	}
	var forward *forwarder
	if o.to != "" {
		if forward, err = newForwarder(o.to, o.anywhere); err != nil {
			return err
		}
	} else if o.anywhere {
		return cli.Usage("--forward-anywhere is for --forward")
	}
	d, err := o.Connect(ctx, t)
	if err != nil {
		return err
	}
	err = Follow(ctx, d, o.since, pattern, forward, func(text string) { fmt.Fprintln(o.Err, text) },
		func(m fmt.Stringer) error {
			if asJSON {
				return o.PrintJSON(m)
			}
			_, err := fmt.Fprintln(o.Out, m)
			return err
		})
	if invalid, ok := errors.AsType[*types.InvalidEventPatternException](err); ok {
		return cli.Usage("%s is not an event pattern: %s", o.pattern, invalid.ErrorMessage())
	}
	return err
}

// Everything is a pattern that matches every event of the bus.
const Everything = `{"source":[{"prefix":""}]}`

// readPattern returns the pattern of the temporary rule, without white space: AWS takes
// up to 4,096 characters.
func (o *options) readPattern() (string, error) {
	if o.pattern == "" {
		return Everything, nil
	}
	text, err := os.ReadFile(o.pattern)
	if err != nil {
		return "", cli.Usage("--pattern: %w", err)
	}
	pattern := jsontext.Value(text)
	if err := pattern.Compact(); err != nil {
		return "", cli.Usage("%s is not an event pattern: %w", o.pattern, err)
	}
	return string(pattern), nil
}

// Follow calls show with each [Webhook] and [Event] that arrives at a deployment, one after another,
// until ctx ends, which is no error, or show returns an error. It begins with the webhooks of the time
// since before. Events are those that match a pattern; unless forward is nil, they are also forwarded.
// It makes a temporary rule and queue, and removes them when it ends. It tells say what it made and
// removed, and what is missing; say is called from several goroutines.
func Follow(ctx context.Context, d *deployment.Deployment, since time.Duration, pattern string, forward *forwarder,
	say func(string), show func(fmt.Stringer) error) error {
	from := time.Now().Add(-since)
	made := newTemporary(d.AWS, d.Bus)
	if err := made.removeExpired(ctx, say); err != nil {
		return err
	}
	if err := made.create(ctx, pattern); err != nil {
		return err
	}
	defer func() {
		if err := made.removeAnyway(ctx); err != nil {
			say(fmt.Sprintf("the rule and the queue %s are left behind: %v", made.name, err))
			return
		}
		say("removed the rule and the queue " + made.name)
	}()
	say("ready: the rule and the queue " + made.name + " show events of " + d.Name +
		"; a new rule takes effect after a short time")

	var mu sync.Mutex // of show
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error {
		tail := logs.NewTail(cloudwatchlogs.NewFromConfig(d.AWS), "webhook", d.Logs["webhook"],
			`{ $.msg = "webhook" }`, from)
		return logs.Follow(ctx, logs.Interval(d), say, func(entries []logs.Entry) error {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range entries {
				if w, ok := readWebhook(e); ok {
					if err := show(w); err != nil {
						return err
					}
				}
			}
			return nil
		}, tail)
	})
	running.Go(func() error {
		known := map[string]bool{} // EventBridge and SQS may deliver an event more than once
		return made.receive(ctx, say, func(body string) error {
			e, id, err := readEvent(body)
			if err != nil {
				say(err.Error())
				return nil
			}
			if known[id] {
				return nil
			}
			if len(known) == maxKnown {
				clear(known)
			}
			known[id] = true
			if forward != nil {
				e.Forward = forward.post(ctx, e.Event)
			}
			mu.Lock()
			defer mu.Unlock()
			return show(e)
		})
	})
	return running.Wait()
}

// maxKnown is how many events are remembered.
const maxKnown = 100_000
