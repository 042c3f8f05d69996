// Package replay has the command that lets EventBridge deliver published events again,
// from the archive of the stack.
//
// It guarantees that a replay delivers to the rules that were named and to no others,
// that it starts none without confirmation, that it starts none of events which may not
// be in the archive yet, that it cancels no replay of another archive, and that a replay
// in which nothing was delivered is not reported as a success.
//
// A replay does not use the ledger: to the functions of Payhook, nothing happens.
//
// policy.json is the policy for whoever runs the command in AWS. A test derives from
// this package what it must allow.
package replay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/target"
	"payhook.example/shared/ledger"
	"payhook.example/shared/names"
	"payhook.example/shared/rfc9562"
)

const long = `Lets EventBridge deliver published events again, from the archive of the stack (setting
archiveRetention), and waits until it has. Ctrl-C ends the waiting, not the replay.

EventBridge selects events by time, not by eventId:

  --from, --to  the events whose eventTimestamp is in this time, which is earlier than
                the arrival of late webhooks. --to must be at least 10 minutes ago: AWS
                takes up to that long to put an event into the archive. What was
                published within 10 minutes may be missing even if its time is earlier
  --event       the events of the minute of this event's eventTimestamp, which the ledger
                knows during the de-duplication window. That is this event and all
                others of that minute: EventBridge cannot replay one event alone

A replay delivers to rules, not to targets:

  --rule        only to this rule of the bus; can be repeated
  --all-rules   to every enabled rule of the bus, so to all consumers

An event is delivered to all targets of a rule whose pattern it matches, also if it was
delivered before. Its envelope then has a member replay-name, and the same eventId.
Consumers must use eventId as an idempotency key. The order is not that of the first
delivery. A large event is delivered as a reference, and can be read for claimRetention.

To replay what is parked, and was never published, use "payhook parked replay".

Status 1: the replay failed or was cancelled, or no event of this time is in the archive.

With --json, one document: name, state, reason, archive, from, to, rules, lastReplayed,
started, ended.`

const example = `  payhook replay --from 2026-01-31T12:00:00Z --to 2026-01-31T13:00:00Z --rule NAME
  payhook replay --event 0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d --rule NAME
  payhook replay --from 3h --to 30m --all-rules --yes`

// program is one run of a command.
type program struct {
	*cli.Program
	target *target.Target
	// pause waits between two requests for the progress of a replay.
	pause func(context.Context) error
}

// Command returns the command with those below it.
func Command(p *cli.Program, t *target.Target) *cobra.Command {
	return (&program{p, t, pause}).command()
}

// pause waits for 5 seconds: a replay takes minutes.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(5 * time.Second):
		return nil
	}
}

func (p *program) command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "replay", Short: "Deliver published events again, from the archive",
		Long: long, Example: example, Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.start(cmd.Context(), o) },
	}
	f := cmd.Flags()
	cli.FuncVar(f, "from", "time", "of this eventTimestamp or later: RFC 3339, or how long ago, such as 3h or 7d",
		func(text string) (err error) { o.from, err = p.Time(text); return err })
	cli.FuncVar(f, "to", "time", "of before this eventTimestamp",
		func(text string) (err error) { o.to, err = p.Time(text); return err })
	cli.FuncVar(f, "event", "id", "the minute of this eventId", func(text string) error {
		if o.event = text; !rfc9562.Valid(text) {
			return errors.New("must be a UUID")
		}
		return nil
	})
	f.StringArrayVar(&o.rules, "rule", nil, "`name` of a rule of the bus; can be repeated")
	f.BoolVar(&o.allRules, "all-rules", false, "every enabled rule of the bus")
	f.BoolVar(&o.yes, "yes", false, "do not ask; required without a terminal")
	cmd.AddCommand(p.listCommand(), p.watchCommand(), p.cancelCommand())
	return cmd
}

func (p *program) listCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the replays of the archive",
		Long: `Lists the replays of the stack's archive, the latest first. AWS keeps them for 90 days.

With --json, one document a line: name, state, reason, archive, from, to, lastReplayed,
started, ended.`,
		Example: "  payhook replay list", Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.list(cmd.Context()) },
	}
}

func (p *program) watchCommand() *cobra.Command {
	return &cobra.Command{
		Use: "watch NAME", Short: "Wait until a replay has ended",
		Long: `Shows the progress of a replay until it has ended. "payhook replay list" has the names.

Status 1: it failed or was cancelled, or no event of its time is in the archive.

With --json, one document: name, state, reason, archive, from, to, rules, lastReplayed,
started, ended.`,
		Example: "  payhook replay watch NAME", Args: cli.Args("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error { return p.watch(cmd.Context(), args[0]) },
	}
}

func (p *program) cancelCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cancel NAME", Short: "Cancel a replay that runs",
		Long: `Cancels a replay of the stack's archive. What it has delivered stays delivered, and AWS
may deliver a little more.

Status 1: it does not run any more.

With --json, one document: name, state, reason, archive, from, to, rules, lastReplayed,
started, ended.`,
		Example: "  payhook replay cancel NAME", Args: cli.Args("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error { return p.cancel(cmd.Context(), args[0]) },
	}
}

// eventsAPI is what of EventBridge is used.
type eventsAPI interface {
	DescribeArchive(context.Context, *eventbridge.DescribeArchiveInput,
		...func(*eventbridge.Options)) (*eventbridge.DescribeArchiveOutput, error)
	ListRules(context.Context, *eventbridge.ListRulesInput,
		...func(*eventbridge.Options)) (*eventbridge.ListRulesOutput, error)
	StartReplay(context.Context, *eventbridge.StartReplayInput,
		...func(*eventbridge.Options)) (*eventbridge.StartReplayOutput, error)
	DescribeReplay(context.Context, *eventbridge.DescribeReplayInput,
		...func(*eventbridge.Options)) (*eventbridge.DescribeReplayOutput, error)
	CancelReplay(context.Context, *eventbridge.CancelReplayInput,
		...func(*eventbridge.Options)) (*eventbridge.CancelReplayOutput, error)
	ListReplays(context.Context, *eventbridge.ListReplaysInput,
		...func(*eventbridge.Options)) (*eventbridge.ListReplaysOutput, error)
}

// deployment is a stack with its bus, its archive and its ledger.
type deployment struct {
	name                string // for people: which stack, and where
	bus, busARN         string
	archive, archiveARN string
	events              eventsAPI
	ledger              *ledger.Inspector
}

// connect finds the deployment. Its error is one of usage if it has no archive.
func (p *program) connect(ctx context.Context) (*deployment, error) {
	d, err := target.Connect(ctx, *p.target)
	if err != nil {
		return nil, cli.Unreachable(err)
	}
	if d.Local != nil {
		return nil, cli.Usage("the emulator of the local run has no archive, so nothing can be replayed from it: " +
			"replay works with a stack in AWS")
	}
	made := &deployment{name: d.Name, archive: d.Outputs()[names.ArchiveOutput],
		events: eventbridge.NewFromConfig(d.Config)}
	if made.archive == "" {
		return nil, cli.Usage("%s has no archive: archiveRetention is off, or the stack is older than the setting; "+
			"set it and deploy the stack again. An archive begins empty", d.Name)
	}
	for _, output := range []struct {
		key string
		to  *string
	}{{names.EventBusNameOutput, &made.bus}, {names.EventBusARNOutput, &made.busARN}} {
		if *output.to, err = d.Output(output.key); err != nil {
			return nil, err
		}
	}
	// arn:aws:events:REGION:ACCOUNT:event-bus/NAME, and archive/NAME
	place, ok := strings.CutSuffix(made.busARN, "event-bus/"+made.bus)
	if !ok {
		return nil, fmt.Errorf("the bus %s has the ARN %q", made.bus, made.busARN)
	}
	made.archiveARN = place + "archive/" + made.archive
	table, err := d.Output(names.LedgerTableOutput)
	if err != nil {
		return nil, err
	}
	made.ledger = ledger.NewInspector(dynamodb.NewFromConfig(d.Config), table)
	return made, nil
}
