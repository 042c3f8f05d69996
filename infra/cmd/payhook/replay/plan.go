package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/listen"
)

// options are the flags.
type options struct {
	from, to time.Time
	event    string   // "": none
	rules    []string // names
	allRules bool
	yes      bool
}

// ArchiveDelay is how long AWS may take to put an event into the archive
// (https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-archive.html).
const ArchiveDelay = 10 * time.Minute

// check returns an error of usage if the flags contradict each other. It makes the times
// whole seconds, which EventBridge has, so that no event in between is left out.
func (o *options) check(now time.Time) error {
	switch {
	case o.event != "" && (!o.from.IsZero() || !o.to.IsZero()):
		return cli.Usage("--event takes its time from the ledger: it cannot be used with --from and --to")
	case o.event == "" && (o.from.IsZero() || o.to.IsZero()):
		return cli.Usage("--from and --to, or --event, must say which events are meant")
	case o.allRules && len(o.rules) > 0:
		return cli.Usage("--all-rules cannot be used with --rule")
	case !o.allRules && len(o.rules) == 0:
		return cli.Usage("--rule must say which rule delivers the events again; --all-rules is for all consumers")
	case o.event != "":
		return nil
	}
	o.from = o.from.UTC().Truncate(time.Second)
	o.to = o.to.Add(time.Second - 1).UTC().Truncate(time.Second)
	latest := now.Add(-ArchiveDelay).UTC().Truncate(time.Second)
	switch {
	case !o.from.Before(o.to):
		return cli.Usage("--from must be before --to")
	case o.to.After(latest):
		return cli.Usage("--to must not be after %s, which is %s ago: AWS takes up to that long to put an event into "+
			"the archive, and a replay leaves out what is not there", cli.Stamp(latest), cli.Readable(ArchiveDelay))
	}
	return nil
}

// plan is a replay that was not started yet.
type plan struct {
	name     string
	from, to time.Time // whole seconds; an event at the time to is not replayed
	rules    []types.Rule
	notes    []string // for the person
}

// plan returns the replay that the flags mean.
func (d *deployment) plan(ctx context.Context, o options, now time.Time) (*plan, error) {
	// The policy is limited to replays with such names. The longest has 64 characters,
	// which is the limit of EventBridge.
	made := &plan{name: d.archive + "-" + now.UTC().Format(nameTime), from: o.from, to: o.to}
	if o.event != "" {
		at, err := d.timeOf(ctx, o.event, now)
		if err != nil {
			return nil, err
		}
		// EventBridge replays minute by minute
		// (https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_StartReplay.html).
		made.from = at.Truncate(time.Minute)
		made.to = made.from.Add(time.Minute)
		made.notes = append(made.notes, "EventBridge cannot replay one event alone: all events of its minute are "+
			"delivered again")
	}
	archive, err := d.events.DescribeArchive(ctx, &eventbridge.DescribeArchiveInput{ArchiveName: &d.archive})
	if _, gone := errors.AsType[*types.ResourceNotFoundException](err); gone {
		return nil, cli.Usage("the archive %s does not exist any more: deploy the stack again. An archive begins empty",
			d.archive)
	}
	if err != nil {
		return nil, cli.Unreachable(fmt.Errorf("the archive: %w", err))
	}
	if days := aws.ToInt32(archive.RetentionDays); days > 0 {
		if oldest := now.AddDate(0, 0, -int(days)); made.from.Before(oldest) {
			made.notes = append(made.notes, fmt.Sprintf("the archive keeps events for %s: older ones are not replayed",
				cli.Counted(int(days), "day", "days")))
		}
	}
	if begin := aws.ToTime(archive.CreationTime); made.from.Before(begin) {
		made.notes = append(made.notes, fmt.Sprintf("the archive was created at %s: it has nothing that was published "+
			"before", cli.Stamp(begin)))
	}
	rules, err := listen.ListRules(ctx, d.events, d.bus, "")
	if err != nil {
		return nil, cli.Unreachable(err)
	}
	made.rules, err = choose(rules, o)
	return made, err
}

// nameTime is the format of the time in the name of a replay.
const nameTime = "20060102T150405"

// timeOf returns the time that an event has on the bus. Its error is one of usage if the
// event cannot be replayed.
func (d *deployment) timeOf(ctx context.Context, eventID string, now time.Time) (time.Time, error) {
	item, known, err := d.ledger.Find(ctx, eventID)
	switch {
	case err != nil:
		return time.Time{}, cli.Unreachable(err)
	case !known:
		return time.Time{}, cli.Usage("the ledger does not know the event %s: it was never accepted, or its "+
			"de-duplication window is over. If you know its eventTimestamp, use --from and --to", eventID)
	case item.PublishedAt.IsZero():
		return time.Time{}, cli.Usage("the event %s was not published yet: payhook event %s shows its state", eventID,
			eventID)
	case now.Before(item.PublishedAt.Add(ArchiveDelay)):
		return time.Time{}, cli.Usage("the event %s was published %s ago: AWS takes up to %s to put it into the "+
			"archive. Replay it after %s", eventID, cli.Readable(now.Sub(item.PublishedAt)),
			cli.Readable(ArchiveDelay), cli.Stamp(item.PublishedAt.Add(ArchiveDelay)))
	case item.EventTimestamp.IsZero():
		return time.Time{}, cli.Usage("the ledger does not know the time of the event %s: it was published by an "+
			"older version. If you know its eventTimestamp, use --from and --to", eventID)
	}
	return item.EventTimestamp, nil
}

// choose returns the rules that the flags name. Its error is one of usage if one of them
// delivers nothing.
func choose(rules []types.Rule, o options) ([]types.Rule, error) {
	// EventBridge manages the rule that fills the archive.
	delivers := slices.DeleteFunc(slices.Clone(rules), func(r types.Rule) bool {
		return r.ManagedBy != nil || aws.ToString(r.EventPattern) == ""
	})
	if o.allRules {
		all := slices.DeleteFunc(delivers, func(r types.Rule) bool {
			return !isEnabled(r) || strings.HasPrefix(aws.ToString(r.Name), listen.Prefix)
		})
		if len(all) == 0 {
			return nil, cli.Usage("the bus has no enabled rule, so nothing can be delivered")
		}
		return all, nil
	}
	var chosen []types.Rule
	for _, name := range o.rules {
		i := slices.IndexFunc(delivers, func(r types.Rule) bool { return aws.ToString(r.Name) == name })
		switch {
		case i < 0:
			known := make([]string, len(delivers))
			for i, r := range delivers {
				known[i] = aws.ToString(r.Name)
			}
			return nil, cli.Usage("the bus has no rule %q; it has %s", name, orNone(cli.PlainAll(known)))
		case !isEnabled(delivers[i]):
			return nil, cli.Usage("the rule %s is disabled: it delivers nothing", name)
		}
		if !slices.ContainsFunc(chosen, func(r types.Rule) bool { return aws.ToString(r.Name) == name }) {
			chosen = append(chosen, delivers[i])
		}
	}
	return chosen, nil
}

func isEnabled(r types.Rule) bool { return r.State != types.RuleStateDisabled }

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// input is the request that starts the replay.
func (m *plan) input(d *deployment) *eventbridge.StartReplayInput {
	arns := make([]string, len(m.rules))
	for i, r := range m.rules {
		arns[i] = aws.ToString(r.Arn)
	}
	return &eventbridge.StartReplayInput{
		ReplayName: &m.name, Description: aws.String("Started by payhook replay"),
		EventSourceArn: &d.archiveARN, EventStartTime: &m.from, EventEndTime: &m.to,
		Destination: &types.ReplayDestination{Arn: &d.busARN, FilterArns: arns},
	}
}
