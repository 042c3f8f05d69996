// Package listen has the command that shows live which webhooks arrive and what becomes
// of their events.
//
// Webhooks come from the log of the webhook function, events from a temporary queue behind
// a temporary rule of the bus. The package guarantees that both are removed when the
// command ends, or at its next start on the same computer, or at a start of anybody's a
// week later; that it makes nothing whose name does not begin with payhook-listen-; and
// that no event leaves the computer unless a flag allows it.
//
// policy.json is the policy for whoever runs the command in AWS. A test derives from
// this package what it must allow.
package listen

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	smithytime "github.com/aws/smithy-go/time"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/logs"
	"payhook.example/infra/deployment"
	"payhook.example/shared/names"
)

const long = `Shows each webhook as it arrives: the answer, the outcome and its cause, the delivery,
and milliseconds for each step. Below it each event: published or not, and the rules of
the bus whose patterns it matches. Ctrl-C ends it.

Webhooks come from the function's log. Nothing is left out while the computer sleeps.
--since begins in the past; of those webhooks, the log has the events' ids.

Events come from a temporary rule and queue, payhook-listen-…, which the command removes
when it ends. After a crash, the next start on this computer does. While the computer
sleeps, the queue keeps events for 24 hours. A duplicate is not published again, so it
arrives in the log only.

  --pattern  shows and forwards only events that match a pattern of EventBridge
  --forward  posts each event, in EventBridge's envelope, to a program on this computer.
             What is not answered with 2xx is sent four times in all. A large event is
             the reference that is on the bus.

Which rules match is asked of EventBridge for each event, up to 20 times a second. That a
rule matches does not say that its target received the event.

With --json, or if the output is not a terminal, JSON lines. A webhook: type, time,
status, outcome, cause, deliveryId, events, ids, idsLeftOut, parked, ms. An event: type,
time, eventId, name, deliveryId, rules, rulesUnknown, forward, event. They contain
payment data. --json=false prevents it.`

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
	json     bool
}

// Command returns the command.
func Command(p *cli.Program, t *deployment.Target) *cobra.Command {
	o := options{Program: p}
	cmd := &cobra.Command{
		Use: "listen", Short: "Show live which webhooks arrive, and what becomes of their events",
		Long: long, Example: example, Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.json = p.JSONLines(cmd)
			return cli.Unreachable(o.run(cmd.Context(), *t))
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

func (o *options) run(ctx context.Context, t deployment.Target) error {
	if o.since < 0 {
		return cli.Usage("--since must not be negative")
	}
	pattern, err := o.readPattern()
	if err != nil {
		return err
	}
	var forward *forwarder
	if o.to != "" {
		if forward, err = newForwarder(o.to, o.anywhere, smithytime.SleepWithContext); err != nil {
			return err
		}
	} else if o.anywhere {
		return cli.Usage("--forward-anywhere is for --forward")
	}
	d, err := deployment.Connect(ctx, t)
	if err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Fprintf(o.Err, format+"\n", args...) }
	shown := &screen{out: o.Out, json: o.json, width: o.Width(), filtered: o.pattern != ""}
	s, err := newSession(ctx, d, sessionOptions{since: o.since, file: o.pattern, pattern: pattern, forward: forward,
		now: o.Now, say: say}, shown)
	if err != nil {
		return err
	}
	return s.run(ctx)
}

// FollowOptions are the options of [Follow].
type FollowOptions struct {
	Since time.Duration // begin with the webhooks of this time before
	Now   func() time.Time
	// Say tells a person what is made and removed, and what is missing. It is called from
	// several goroutines.
	Say func(format string, args ...any)
}

// Follow gives what arrives at a deployment to a sink, as the command does, until ctx ends,
// which is no error. It makes a temporary rule and queue, and removes them when it ends.
func Follow(ctx context.Context, d *deployment.Deployment, o FollowOptions, to Sink) error {
	s, err := newSession(ctx, d, sessionOptions{since: o.Since, pattern: everything, now: o.Now, say: o.Say},
		through{to})
	if err != nil {
		return err
	}
	return s.run(ctx)
}

type sessionOptions struct {
	since         time.Duration
	file, pattern string // file is where the pattern is from; "" for everything
	forward       *forwarder
	now           func() time.Time
	say           func(format string, args ...any)
}

// newSession prepares a session. It removes what an earlier one left behind.
func newSession(ctx context.Context, d *deployment.Deployment, o sessionOptions, shown display) (*session, error) {
	group, err := d.Output(names.WebhookLogsOutput)
	if err != nil {
		return nil, err
	}
	bus, err := d.Output(names.EventBusNameOutput)
	if err != nil {
		return nil, err
	}
	events := eventbridge.NewFromConfig(d.AWS)
	if o.file != "" {
		if err := checkPattern(ctx, events, o.file, o.pattern); err != nil {
			return nil, err
		}
	}
	made := &temporary{events: events, queues: sqs.NewFromConfig(d.AWS), bus: bus, pattern: o.pattern,
		owner: owner(ctx, sts.NewFromConfig(d.AWS)), now: o.now, locks: lockFolder()}
	if err := made.removeLeftovers(ctx, o.say); err != nil {
		return nil, fmt.Errorf("what an earlier payhook listen left behind: %w", err)
	}
	o.say("listening to %s; Ctrl-C ends it", d.Name)
	tail := logs.NewTail(cloudwatchlogs.NewFromConfig(d.AWS), "webhook", group, `{ $.msg = "webhook" }`,
		o.now().Add(-o.since))
	return &session{
		follower: &logs.Follower{Tails: []*logs.Tail{tail}, Every: logs.Interval(d), Now: o.now,
			Wait: smithytime.SleepWithContext, Say: o.say},
		display: shown, made: made, matcher: newMatcher(events, bus, o.now), forward: o.forward,
		now: o.now, wait: smithytime.SleepWithContext, say: o.say, long: 20, ids: map[string]bool{},
	}, nil
}

// readPattern returns the pattern of the temporary rule, without white space: AWS takes
// up to 4,096 characters.
func (o *options) readPattern() (string, error) {
	if o.pattern == "" {
		return everything, nil
	}
	text, err := os.ReadFile(o.pattern)
	if err != nil {
		return "", cli.Usage("--pattern: %w", err)
	}
	var compact strings.Builder
	var value json.RawMessage
	if err := json.Unmarshal(text, &value); err != nil {
		return "", cli.Usage("%s is no event pattern: %w", o.pattern, err)
	}
	e := json.NewEncoder(&compact)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return "", err
	}
	return strings.TrimSpace(compact.String()), nil
}

// owner returns whose rule it is, for people: the caller's ARN and this computer. The
// call needs no permission:
// https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html
func owner(ctx context.Context, client *sts.Client) string {
	who := "somebody"
	if out, err := client.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{}); err == nil {
		who = aws.ToString(out.Arn)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "a computer"
	}
	return tagValue(who + " on " + host)
}
