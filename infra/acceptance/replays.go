package acceptance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/replay"
	"payhook.example/infra/cmd/payhook/target"
	"payhook.example/infra/local"
	output "payhook.example/shared/names"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

// Archive means that the stack has an archive, and that EventBridge replays events from it.
const Archive local.Need = "an archive of events"

// replayAPI is what of EventBridge is used beside the command payhook replay.
type replayAPI interface {
	DescribeArchive(context.Context, *eventbridge.DescribeArchiveInput,
		...func(*eventbridge.Options)) (*eventbridge.DescribeArchiveOutput, error)
	DescribeEventBus(context.Context, *eventbridge.DescribeEventBusInput,
		...func(*eventbridge.Options)) (*eventbridge.DescribeEventBusOutput, error)
	ListRuleNamesByTarget(context.Context, *eventbridge.ListRuleNamesByTargetInput,
		...func(*eventbridge.Options)) (*eventbridge.ListRuleNamesByTargetOutput, error)
}

// arrivals are the events that arrive behind rules.
type arrivals interface {
	Await(context.Context, time.Duration, func([]local.Arrived) bool) ([]local.Arrived, error)
}

// replays shows the archive of a stack and the command payhook replay, whose code it runs.
type replays struct {
	aws                 aws.Config // of the command
	client              replayAPI
	stack, bus, archive string
	queue, otherBus     string // ARNs of the targets of two rules
	in                  arrivals
	// send sends an event in a webhook, which must be accepted.
	send  func(context.Context, payment.Event) error
	now   func() time.Time
	pause func(context.Context, time.Duration) error
	say   func(string, ...any)

	// What was published: events around and in two minutes, and a late one.
	minute time.Time // the first
	events []payment.Event
	late   payment.Event
	first  map[string]local.Arrived // the first deliveries behind released, by eventId
	last   time.Time                // after the last was published
	// ended are the replays of the rows, in order.
	ended []ended
	// window is the replay of the two minutes, once it has ended.
	window *ended
}

// ended is a replay that has ended, as payhook replay prints it.
type ended struct {
	Name, State, Reason string
	LastReplayed        time.Time // zero if no event was
	// The rule, as arrivals have it, and the ids of the events that it delivers there; nil
	// for any.
	rule string
	want []string
}

// newReplays returns the replays of a deployment.
func (d *deployed) newReplays(in arrivals) *replays {
	place := fmt.Sprintf("arn:%s:%%s:%s:%s:", partition(d.AWS.Region), d.AWS.Region, d.run.target.Account)
	queue := ""
	if u, err := url.Parse(d.Queues[released]); err == nil { // https://sqs.REGION.amazonaws.com/ACCOUNT/NAME
		queue = fmt.Sprintf(place, "sqs") + u.Path[strings.LastIndex(u.Path, "/")+1:]
	}
	return &replays{
		aws: d.AWS, client: eventbridge.NewFromConfig(d.AWS), stack: d.Stack, bus: d.Bus,
		archive: d.outputs[output.ArchiveOutput], queue: queue,
		otherBus: fmt.Sprintf(place, "events") + "event-bus/" + receiverBus(d.run.ID), in: in,
		send: func(ctx context.Context, e payment.Event) error {
			answer, err := d.send(ctx, paymenttest.Webhook{Payload: paymenttest.Delivery(e)})
			if err == nil && answer.Status/100 != 2 {
				err = fmt.Errorf("answered %d %s", answer.Status, answer.Body)
			}
			return err
		},
		now: time.Now, pause: smithytime.SleepWithContext, say: d.run.say,
	}
}

// checks are the rows, in order. Each uses what those before have done.
func (r *replays) checks() []check {
	needs := []local.Need{Archive}
	return []check{
		{what: "events with times in two minutes, at their edges, and an hour before, are published", needs: needs,
			expected: "all arrive", do: r.publish},
		{what: "the archive, as DescribeArchive counts, after 10 minutes", measured: true, needs: needs, do: r.count},
		{what: "payhook replay --from --to --rule: the two minutes, to one of the rules that the events match",
			expected: "COMPLETED; exactly the events of the two minutes arrive, with replay-name", needs: needs,
			do: r.twoMinutes},
		{what: "the replayed events, compared with the first delivery", needs: needs,
			expected: "the same bytes of the detail, the same delivery id", do: r.sameDetail},
		{what: "the id of the envelope of replayed events", measured: true, needs: needs, do: r.sameID},
		{what: "the policy of the bus, which denies PutEvents to all but two roles",
			expected: "it is there, and did not deny the replay", needs: []local.Need{Archive, BusPolicies},
			do: r.policy},
		{what: "payhook replay --event", needs: needs,
			expected: "COMPLETED; exactly the events of the minute of this event arrive, with replay-name",
			do:       r.oneMinute},
		{what: "payhook replay --event of an event whose time was an hour before its webhook", measured: true,
			needs: needs, do: r.lateEvent},
		{what: "payhook replay to a rule that sends events to another bus: replay-name behind that bus", measured: true,
			needs: needs, do: r.forwarded},
		{what: "payhook replay cancel", measured: true, needs: needs, do: r.cancel},
		{what: "payhook replay list, and watch of the first replay", needs: needs,
			expected: "all replays of these rows with their states", do: r.list},
		{what: "replayed events at rules that were not chosen, and events that were not chosen", expected: "0",
			needs: needs, do: r.nothingElse},
	}
}

// publish publishes events with times in two minutes in which nothing else is published, one
// before and one after them, and a late one.
func (r *replays) publish(ctx context.Context) (string, bool, error) {
	r.minute = r.now().UTC().Truncate(time.Minute).Add(time.Minute)
	const last = 2 * time.Minute
	if err := r.pause(ctx, r.minute.Add(last+time.Second).Sub(r.now())); err != nil {
		return "", false, err
	}
	event := func(at time.Duration) payment.Event {
		e := paymenttest.Event()
		e.EventTimestamp = r.minute.Add(at)
		e.EventData.PaymentCurrency = "EUR" // it matches two rules
		return e
	}
	// EventBridge has whole seconds in the envelope.
	for _, at := range []time.Duration{-time.Second, 0, 20 * time.Second, 59 * time.Second, time.Minute,
		last - time.Second, last} {
		r.events = append(r.events, event(at))
	}
	r.events[2].EventData.Returns.HasReturnDetails = true // it is sent to the other bus, too
	r.late = event(-time.Hour)
	var ids []string
	for _, e := range append(slices.Clone(r.events), r.late) {
		if err := r.send(ctx, e); err != nil {
			return "", false, err
		}
		ids = append(ids, e.EventID)
	}
	r.last = r.now()
	all, err := r.in.Await(ctx, arrivalTimeout, func(all []local.Arrived) bool {
		return len(missingOf(ids, all, released, "")) == 0
	})
	r.first = map[string]local.Arrived{}
	for _, a := range all {
		if a.Rule == released && slices.Contains(ids, a.EventID) {
			r.first[a.EventID] = a
		}
	}
	return fmt.Sprintf("%d of %d arrived", len(r.first), len(ids)), len(r.first) == len(ids), err
}

// missingOf returns the events that have not arrived behind a rule with a replay-name.
func missingOf(ids []string, all []local.Arrived, rule, replayName string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		return slices.ContainsFunc(all, func(a local.Arrived) bool {
			return a.Rule == rule && a.ReplayName == replayName && a.EventID == id
		})
	})
}

// count waits until the events must be in the archive, and returns how many AWS counts. The
// numbers are reconciled within 24 hours
// (https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-archive.html).
func (r *replays) count(ctx context.Context) (string, bool, error) {
	if r.first == nil {
		return "", false, errors.New("nothing was published")
	}
	// payhook replay takes no later events.
	if err := r.pause(ctx, r.last.Add(replay.ArchiveDelay+5*time.Second).Sub(r.now())); err != nil {
		return "", false, err
	}
	out, err := r.client.DescribeArchive(ctx, &eventbridge.DescribeArchiveInput{ArchiveName: &r.archive})
	if err != nil {
		return "", false, err
	}
	return fmt.Sprintf("%s, %d events of %d bytes, kept for %d days", out.State, out.EventCount, out.SizeBytes,
		aws.ToInt32(out.RetentionDays)), true, nil
}

// command runs payhook replay with arguments, and returns what it prints and its exit status.
func (r *replays) command(ctx context.Context, args ...string) (out []byte, problems string, status int) {
	var printed, said bytes.Buffer
	p := &cli.Program{In: strings.NewReader(""), Out: &printed, Err: &said, Now: r.now}
	root := p.Root("")
	root.AddCommand(replay.Command(p, &target.Target{Stack: r.stack, AWS: &r.aws}))
	status = p.Run(ctx, root, append([]string{"replay", "--json"}, args...))
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	return printed.Bytes(), lines[len(lines)-1], status
}

// replayTimeout is how long a replay of these rows may take. AWS does not document it.
const replayTimeout = 30 * time.Minute

// start runs payhook replay until the replay has ended. want are the ids of the events that it
// delivers behind the rule; nil for any.
func (r *replays) start(ctx context.Context, rule, ruleName string, want []string, args ...string) (ended, error) {
	e := ended{rule: rule, want: want}
	// The name of a replay has the second in which it is started.
	if err := r.pause(ctx, time.Second); err != nil {
		return e, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, replayTimeout, errors.New("the replay has not ended in time"))
	defer cancel()
	out, problems, status := r.command(ctx, append(args, "--rule", ruleName, "--yes")...)
	if err := json.Unmarshal(out, &e); err != nil {
		return e, errors.Join(fmt.Errorf("status %d: %s", status, problems), context.Cause(ctx))
	}
	return e, nil
}

// ruleOf returns the name of the one rule of the bus with a target.
func (r *replays) ruleOf(ctx context.Context, arn string) (string, error) {
	out, err := r.client.ListRuleNamesByTarget(ctx,
		&eventbridge.ListRuleNamesByTargetInput{TargetArn: &arn, EventBusName: &r.bus})
	if err != nil {
		return "", err
	}
	if len(out.RuleNames) != 1 {
		return "", fmt.Errorf("the rules with the target %s are %q", arn, out.RuleNames)
	}
	return out.RuleNames[0], nil
}

// between returns the ids of the events with times from one time to before another.
func (r *replays) between(from, to time.Time) (ids []string) {
	for _, e := range r.events {
		if !e.EventTimestamp.Before(from) && e.EventTimestamp.Before(to) {
			ids = append(ids, e.EventID)
		}
	}
	return ids
}

// show runs a replay to the rule for released payments, and compares what arrives.
func (r *replays) show(ctx context.Context, want []string, args ...string) (actual string, right bool, e ended,
	err error) {
	if r.first == nil {
		return "", false, e, errors.New("nothing was published")
	}
	rule, err := r.ruleOf(ctx, r.queue)
	if err != nil {
		return "", false, e, err
	}
	if e, err = r.start(ctx, released, rule, want, args...); err != nil {
		return "", false, e, err
	}
	r.ended = append(r.ended, e)
	actual, right = e.State, e.State == "COMPLETED"
	if e.Reason != "" {
		actual += ": " + e.Reason
	}
	if e.LastReplayed.IsZero() {
		actual += ", no event was replayed"
	}
	// EventBridge may deliver after a replay has ended.
	all, err := r.in.Await(ctx, 5*time.Minute, func(all []local.Arrived) bool {
		return e.LastReplayed.IsZero() || len(missingOf(want, all, released, e.Name)) == 0
	})
	if errors.Is(err, local.ErrNotArrived) {
		err = nil // the numbers say it
	}
	missing, others := len(missingOf(want, all, released, e.Name)), 0
	times := map[string]int{}
	for _, a := range all {
		if a.ReplayName != e.Name {
			continue
		}
		if a.Rule != released || !slices.Contains(want, a.EventID) {
			others++
			continue
		}
		times[a.EventID]++
	}
	twice := 0 // EventBridge delivers at least once
	for _, n := range times {
		if n > 1 {
			twice++
		}
	}
	return fmt.Sprintf("%s; %d of %d arrive, %d twice, %d others", actual, len(want)-missing, len(want), twice, others),
		right && missing == 0 && others == 0, e, err
}

func (r *replays) twoMinutes(ctx context.Context) (string, bool, error) {
	to := r.minute.Add(2 * time.Minute)
	actual, right, e, err := r.show(ctx, r.between(r.minute, to), "--from", cli.Stamp(r.minute), "--to", cli.Stamp(to))
	if right && err == nil {
		r.window = &e
	}
	return actual, right, err
}

func (r *replays) oneMinute(ctx context.Context) (string, bool, error) {
	if len(r.events) < 2 {
		return "", false, errors.New("nothing was published")
	}
	actual, right, _, err := r.show(ctx, r.between(r.minute, r.minute.Add(time.Minute)), "--event",
		r.events[1].EventID)
	return actual, right, err
}

// lateEvent replays an event by its own time, which is before the archive was created. AWS replays
// by the time in the event
// (https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_StartReplay.html).
func (r *replays) lateEvent(ctx context.Context) (string, bool, error) {
	actual, _, _, err := r.show(ctx, []string{r.late.EventID}, "--event", r.late.EventID)
	return actual, true, err
}

// pairs returns the first delivery of each event that the replay of the two minutes delivered, with
// that of the replay.
func (r *replays) pairs(ctx context.Context) (list [][2]local.Arrived, err error) {
	if r.window == nil {
		return nil, errors.New("the replay of the two minutes was not right")
	}
	all, err := r.in.Await(ctx, 0, func([]local.Arrived) bool { return true })
	for _, a := range all {
		if a.ReplayName == r.window.Name {
			list = append(list, [2]local.Arrived{r.first[a.EventID], a})
		}
	}
	return list, err
}

func (r *replays) sameDetail(ctx context.Context) (string, bool, error) {
	pairs, err := r.pairs(ctx)
	same := 0
	for _, p := range pairs {
		if bytes.Equal(p[0].Detail, p[1].Detail) && p[0].DeliveryID == p[1].DeliveryID {
			same++
		}
	}
	return fmt.Sprintf("%d of %d are the same", same, len(pairs)), err == nil && same == len(pairs), err
}

// sameID compares the ids of envelopes. AWS does not document that of a replayed event.
func (r *replays) sameID(ctx context.Context) (string, bool, error) {
	pairs, err := r.pairs(ctx)
	same := 0
	for _, p := range pairs {
		if p[0].ID == p[1].ID {
			same++
		}
	}
	return fmt.Sprintf("the id of the first delivery for %d of %d", same, len(pairs)), true, err
}

// policy states whether the policy of the bus was in force while events were replayed. AWS does
// not document how a replay is authorized on the bus.
func (r *replays) policy(ctx context.Context) (string, bool, error) {
	out, err := r.client.DescribeEventBus(ctx, &eventbridge.DescribeEventBusInput{Name: &r.bus})
	if err != nil {
		return "", false, err
	}
	var policy struct{ Statement []struct{ Effect string } }
	if text := aws.ToString(out.Policy); text != "" {
		if err := json.Unmarshal([]byte(text), &policy); err != nil {
			return "", false, err
		}
	}
	denies := 0
	for _, s := range policy.Statement {
		if s.Effect == "Deny" {
			denies++
		}
	}
	result := "the replay was not right"
	if r.window != nil {
		result = "the replay was not denied"
	}
	return fmt.Sprintf("%d statements that deny; %s", denies, result), denies > 0 && r.window != nil, nil
}

// forwarded replays an event to the rule that sends it to another bus, and states whether it has a
// replay-name there. AWS does not document it.
func (r *replays) forwarded(ctx context.Context) (string, bool, error) {
	if r.first == nil {
		return "", false, errors.New("nothing was published")
	}
	rule, err := r.ruleOf(ctx, r.otherBus)
	if err != nil {
		return "", false, err
	}
	id := r.events[2].EventID
	count := func(all []local.Arrived) (before, named int) {
		for _, a := range all {
			if a.Rule == local.OtherBus && a.EventID == id {
				before++
				if a.ReplayName != "" {
					named++
				}
			}
		}
		return before, named
	}
	// Its first delivery may have been later than that behind the other rule.
	if _, err := r.in.Await(ctx, arrivalTimeout, func(all []local.Arrived) bool {
		n, _ := count(all)
		return n > 0
	}); err != nil {
		return "", false, err
	}
	e, err := r.start(ctx, local.OtherBus, rule, []string{id}, "--event", id)
	if err != nil {
		return "", false, err
	}
	r.ended = append(r.ended, e)
	all, err := r.in.Await(ctx, 5*time.Minute, func(all []local.Arrived) bool {
		n, _ := count(all)
		return n > 1
	})
	if errors.Is(err, local.ErrNotArrived) {
		return e.State + ", not delivered to the other bus", true, nil
	}
	_, named := count(all)
	return fmt.Sprintf("%s, delivered to the other bus; with replay-name: %t", e.State, named > 0), true, err
}

// listed returns the replays of payhook replay list, the latest first.
func (r *replays) listed(ctx context.Context) (all []ended, err error) {
	out, problems, status := r.command(ctx, "list")
	if status != 0 {
		return nil, fmt.Errorf("status %d: %s", status, problems)
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var e ended
		if err := decoder.Decode(&e); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// cancel starts a replay of the time of the run and cancels it. Whether the replay has ended
// before depends on AWS's speed.
func (r *replays) cancel(ctx context.Context) (string, bool, error) {
	if r.first == nil {
		return "", false, errors.New("nothing was published")
	}
	rule, err := r.ruleOf(ctx, r.queue)
	if err != nil {
		return "", false, err
	}
	before, err := r.listed(ctx)
	if err != nil {
		return "", false, err
	}
	type result struct {
		ended
		err error
	}
	done := make(chan result, 1)
	go func() {
		e, err := r.start(ctx, released, rule, nil, "--from", cli.Stamp(r.minute.Add(-2*time.Hour)),
			"--to", cli.Stamp(r.minute.Add(2*time.Minute)))
		done <- result{e, err}
	}()
	begun := r.now()
	for {
		select {
		case got := <-done:
			if got.err != nil {
				return "", false, got.err
			}
			r.ended = append(r.ended, got.ended)
			return got.State + " before it could be cancelled", true, nil
		default:
		}
		now, err := r.listed(ctx)
		i := slices.IndexFunc(now, func(e ended) bool {
			return (e.State == "STARTING" || e.State == "RUNNING") &&
				!slices.ContainsFunc(before, func(b ended) bool { return b.Name == e.Name })
		})
		if err == nil && i >= 0 {
			actual, err := r.cancelNamed(ctx, now[i])
			got := <-done
			if err := errors.Join(err, got.err); err != nil {
				return actual, false, err
			}
			r.ended = append(r.ended, got.ended)
			return fmt.Sprintf("%s; %s after %s", actual, got.State, minutes(r.now().Sub(begun))), true, nil
		}
		if err == nil {
			err = r.pause(ctx, time.Second)
		}
		if err != nil {
			<-done
			return "", false, err
		}
	}
}

// cancelNamed cancels a replay, and states what the command did.
func (r *replays) cancelNamed(ctx context.Context, e ended) (string, error) {
	_, problems, status := r.command(ctx, "cancel", e.Name)
	switch status {
	case 0:
		return "cancelled while " + e.State, nil
	case cli.StatusFailed:
		return "not cancelled: " + problems, nil
	}
	return "", fmt.Errorf("status %d: %s", status, problems)
}

// list compares the replays that AWS lists with those of the rows.
func (r *replays) list(ctx context.Context) (string, bool, error) {
	all, err := r.listed(ctx)
	if err != nil || len(r.ended) == 0 {
		return "", false, errors.Join(err, fmt.Errorf("%d replays have ended", len(r.ended)))
	}
	same := 0
	for _, e := range r.ended {
		if slices.ContainsFunc(all, func(l ended) bool { return l.Name == e.Name && l.State == e.State }) {
			same++
		}
	}
	var watched ended
	out, problems, status := r.command(ctx, "watch", r.ended[0].Name)
	if err := json.Unmarshal(out, &watched); err != nil {
		return "", false, fmt.Errorf("status %d: %s", status, problems)
	}
	return fmt.Sprintf("%d of %d are listed, of %d; watch shows %s", same, len(r.ended), len(all), watched.State),
		same == len(r.ended) && watched.Name == r.ended[0].Name && watched.State == r.ended[0].State, nil
}

// nothingElse counts the replayed events that no row asked for.
func (r *replays) nothingElse(ctx context.Context) (string, bool, error) {
	if len(r.ended) == 0 {
		return "", false, errors.New("nothing was replayed")
	}
	if err := r.pause(ctx, time.Minute); err != nil { // for late ones
		return "", false, err
	}
	all, err := r.in.Await(ctx, 0, func([]local.Arrived) bool { return true })
	var others []string
	replayed := 0
	for _, a := range all {
		if a.ReplayName == "" {
			continue
		}
		replayed++
		if !slices.ContainsFunc(r.ended, func(e ended) bool {
			return a.ReplayName == e.Name && a.Rule == e.rule && (e.want == nil || slices.Contains(e.want, a.EventID))
		}) {
			others = append(others, a.Rule)
		}
	}
	slices.Sort(others)
	return strings.TrimSpace(fmt.Sprintf("%d of %d replayed events %s", len(others), replayed,
		strings.Join(slices.Compact(others), ", "))), err == nil && len(others) == 0 && replayed > 0, err
}
