package acceptance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	smithytime "github.com/aws/smithy-go/time"
)

// alarmsAPI is what of CloudWatch is used to watch alarms.
type alarmsAPI interface {
	DescribeAlarms(context.Context, *cloudwatch.DescribeAlarmsInput,
		...func(*cloudwatch.Options)) (*cloudwatch.DescribeAlarmsOutput, error)
}

// cause raises alarms on purpose, by what they watch.
type cause struct {
	what   string
	alarms []string // without the stack's name
	// start begins the cause. again goes on with it, every interval, until the alarms are
	// raised. end ends it, also after an error and after the end of the run. Each may be nil.
	start, again, end func(context.Context) error
	interval          time.Duration
	// hold is how long the cause lasts at most; until the alarms are raised if it is 0.
	hold time.Duration
	// raised is how long the alarms may take; 30 minutes if it is 0.
	raised time.Duration
	// undocumented is what AWS does not document about it, so that the alarms need not be
	// raised; "" for nothing.
	undocumented string
}

// clock is the time of CloudWatch.
type clock interface {
	Now() time.Time
	Pause(context.Context, time.Duration) error
}

// realClock is the time of AWS.
type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

func (realClock) Pause(ctx context.Context, d time.Duration) error {
	return smithytime.SleepWithContext(ctx, d)
}

// raiser raises alarms and waits until they are OK again.
type raiser struct {
	client alarmsAPI
	stack  string
	clock  clock
	// oneByOne means that a cause begins when the one before has ended, and that their alarms
	// are waited for after all of them. Then nothing else waits on the clock.
	oneByOne bool
	// lacks are the alarms that the target cannot show, each with the reason. A cause with
	// only such alarms is left out.
	lacks map[string]string
	poll  time.Duration
	// quiet is how long an alarm may take to be OK: before its cause begins, because the rest
	// of a run raises alarms as well, and after its cause ends. An alarm on an hour of data
	// takes an hour.
	quiet time.Duration
	say   func(string, ...any)

	mu    sync.Mutex
	rows  map[string]Row
	later []func() // with oneByOne, waits until alarms are OK again
}

const (
	defaultRaised = 30 * time.Minute
	defaultQuiet  = 80 * time.Minute
	// afterwards is how long the composite alarm may take after the others are OK.
	afterwards = 15 * time.Minute
)

// states returns the states of the alarms of the stack, by their names without the
// stack's name.
func (r *raiser) states(ctx context.Context) (map[string]cwtypes.StateValue, error) {
	all := map[string]cwtypes.StateValue{}
	own := func(name *string, state cwtypes.StateValue) {
		if short, ok := strings.CutPrefix(aws.ToString(name), r.stack+"-"); ok {
			all[short] = state
		}
	}
	pages := cloudwatch.NewDescribeAlarmsPaginator(r.client, &cloudwatch.DescribeAlarmsInput{
		AlarmNamePrefix: aws.String(r.stack + "-"),
		AlarmTypes:      []cwtypes.AlarmType{cwtypes.AlarmTypeMetricAlarm, cwtypes.AlarmTypeCompositeAlarm},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, a := range page.MetricAlarms {
			own(a.AlarmName, a.StateValue)
		}
		for _, a := range page.CompositeAlarms {
			own(a.AlarmName, a.StateValue)
		}
	}
	return all, nil
}

// await waits until enough is true for the states of alarms. again, if it is not nil, is
// called every interval meanwhile.
func (r *raiser) await(ctx context.Context, timeout, interval time.Duration, again func(context.Context) error,
	enough func(map[string]cwtypes.StateValue) bool) error {
	deadline, next := r.clock.Now().Add(timeout), r.clock.Now()
	for {
		now, err := r.states(ctx)
		if err != nil {
			return err
		}
		if enough(now) {
			return nil
		}
		if r.clock.Now().After(deadline) {
			return errTooLate
		}
		if again != nil && !r.clock.Now().Before(next) {
			if err := again(ctx); err != nil {
				return err
			}
			next = r.clock.Now().Add(interval)
		}
		if err := r.clock.Pause(ctx, r.poll); err != nil {
			return err
		}
	}
}

var errTooLate = errors.New("not in time")

// raise raises the alarms of causes, lane beside lane and in each one cause after another, and
// those of last after all lanes. It returns a row for each alarm of the stack. An alarm is passed
// only if it was not raised before the cause, was raised after its beginning, and was OK after
// that.
func (r *raiser) raise(ctx context.Context, lanes [][]cause, last []cause) []Row {
	r.rows = map[string]Row{}
	if r.oneByOne {
		lanes = [][]cause{slices.Concat(lanes...)}
	}
	first := make(chan error, 1)
	all, stop := context.WithCancel(ctx)
	defer stop()
	if r.lacks[unhealthy] == "" {
		go func() {
			first <- r.await(all, 3*time.Hour, 0, nil, func(now map[string]cwtypes.StateValue) bool {
				return now[unhealthy] == cwtypes.StateValueAlarm
			})
		}()
	}
	var working, waiting sync.WaitGroup
	for _, lane := range lanes {
		working.Go(func() {
			for _, c := range lane {
				r.cause(ctx, c, &waiting)
			}
		})
	}
	working.Wait()
	for _, c := range last {
		r.cause(ctx, c, &waiting)
	}
	for _, wait := range r.later {
		wait()
	}
	waiting.Wait()
	if r.lacks[unhealthy] == "" {
		r.composite(ctx, first)
	} else {
		r.set(unhealthy, r.notShown(unhealthy, compositeWhat))
	}
	stop()
	return r.result(ctx)
}

// unhealthy is the composite alarm, which is raised while others are.
const (
	unhealthy     = "unhealthy"
	compositeWhat = "the alarm " + unhealthy + ", of which the others are parts"
)

// notShown returns the row of an alarm that the target lacks.
func (r *raiser) notShown(alarm, what string) Row {
	return Row{What: what, Expected: raisedAndOK, Actual: "not shown", Status: NotShown, Reason: r.lacks[alarm]}
}

// composite adds the row of the composite alarm; seen tells whether it was raised.
func (r *raiser) composite(ctx context.Context, seen <-chan error) {
	row := Row{What: compositeWhat, Expected: raisedAndOK, Status: Wrong}
	select {
	case err := <-seen:
		if err != nil {
			row.Actual = err.Error()
			break
		}
		row.Actual = "raised, and not OK after the others"
		if err := r.await(ctx, afterwards, 0, nil, func(now map[string]cwtypes.StateValue) bool {
			return now[unhealthy] == cwtypes.StateValueOk
		}); err == nil {
			row.Actual, row.Status = "raised while others were, and OK after them", Passed
		}
	default:
		row.Actual = "not raised"
	}
	r.set(unhealthy, row)
}

const raisedAndOK = "raised, and OK again"

func (r *raiser) set(alarm string, row Row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows[alarm] = row
}

// cause raises the alarms of one cause, and lets waiting wait until they are OK.
func (r *raiser) cause(ctx context.Context, c cause, waiting *sync.WaitGroup) {
	c.alarms = slices.DeleteFunc(slices.Clone(c.alarms), func(alarm string) bool {
		if r.lacks[alarm] == "" {
			return false
		}
		r.set(alarm, r.notShown(alarm, "the alarm "+alarm+": "+c.what))
		return true
	})
	if len(c.alarms) == 0 {
		return
	}
	begin, word := waiting.Go, "after"
	if r.oneByOne {
		begin, word = func(wait func()) { r.later = append(r.later, wait) }, "within"
	}
	times, err := r.provoke(ctx, c)
	for _, alarm := range c.alarms {
		row := Row{What: "the alarm " + alarm + ": " + c.what, Expected: raisedAndOK, Status: Wrong}
		took, ok := times[alarm]
		switch {
		case !ok && c.undocumented != "" && (err == nil || errors.Is(err, errTooLate)):
			row.Expected, row.Actual, row.Status = c.undocumented, "not raised", Measured
		case !ok:
			row.Actual = "not raised"
			if err != nil {
				row.Actual += ": " + err.Error()
			}
		default:
			start := r.clock.Now()
			begin(func() {
				row.Actual = "raised after " + minutes(took)
				if err := r.await(ctx, r.quiet, 0, nil, func(now map[string]cwtypes.StateValue) bool {
					return now[alarm] == cwtypes.StateValueOk
				}); err != nil {
					row.Actual += ", not OK again: " + err.Error()
				} else {
					r.say("the alarm %s is OK again", alarm)
					row.Actual, row.Status = row.Actual+", OK again "+word+" "+minutes(r.clock.Now().Sub(start)), Passed
				}
				if err != nil && !errors.Is(err, errTooLate) { // which is about the others
					row.Actual, row.Status = row.Actual+"; "+err.Error(), Wrong
				}
				r.set(alarm, row)
			})
			continue
		}
		r.set(alarm, row)
	}
}

// provoke does what a cause says, and returns how long each alarm took that was raised.
func (r *raiser) provoke(ctx context.Context, c cause) (times map[string]time.Duration, err error) {
	times = map[string]time.Duration{}
	// What raised an alarm before would be taken for this cause.
	if err := r.await(ctx, r.quiet, 0, nil, func(now map[string]cwtypes.StateValue) bool {
		return !slices.ContainsFunc(c.alarms, func(a string) bool { return now[a] == cwtypes.StateValueAlarm })
	}); err != nil {
		return times, fmt.Errorf("it is raised already, and not OK before the cause: %w", err)
	}
	r.say("raising %s: %s", strings.Join(c.alarms, ", "), c.what)
	start := r.clock.Now()
	seen := func(now map[string]cwtypes.StateValue) bool {
		for _, a := range c.alarms {
			if _, known := times[a]; !known && now[a] == cwtypes.StateValueAlarm {
				times[a] = r.clock.Now().Sub(start)
				r.say("the alarm %s is raised", a)
			}
		}
		return len(times) == len(c.alarms)
	}
	limit := c.raised
	if limit == 0 {
		limit = defaultRaised
	}
	hold := limit
	if c.hold > 0 {
		hold = c.hold
	}
	if c.start != nil {
		err = c.start(ctx)
	}
	if err == nil {
		err = r.await(ctx, hold, c.interval, c.again, seen)
	}
	if c.end != nil {
		if failed := c.end(context.WithoutCancel(ctx)); failed != nil {
			err = errors.Join(err, fmt.Errorf("the cause has not ended: %w", failed))
		}
	}
	if errors.Is(err, errTooLate) && c.hold > 0 {
		// Metrics are late.
		err = r.await(ctx, limit, 0, nil, seen)
	}
	return times, err
}

// result returns the rows in the order of the alarms' names, with those of alarms that no
// cause raises.
func (r *raiser) result(ctx context.Context) []Row {
	now, err := r.states(ctx)
	for alarm := range now {
		if _, shown := r.rows[alarm]; shown {
			continue
		}
		row := Row{What: "the alarm " + alarm, Expected: raisedAndOK, Actual: "nothing raises it", Status: Wrong}
		if reason := notOnPurpose[alarm]; reason != "" {
			row.Status, row.Actual, row.Reason = NotShown, "not shown", reason
		}
		r.rows[alarm] = row
	}
	rows := r.sorted()
	if err != nil {
		rows = append(rows, Row{What: "all alarms of the stack", Expected: "each has a row", Actual: err.Error(),
			Status: Wrong})
	}
	return rows
}

// sorted returns the rows in the order of the alarms' names.
func (r *raiser) sorted() (rows []Row) {
	for _, alarm := range slices.Sorted(maps.Keys(r.rows)) {
		rows = append(rows, r.rows[alarm])
	}
	return rows
}

func minutes(d time.Duration) string { return d.Round(time.Second).String() }

// notOnPurpose are the alarms that a run does not raise, each with the reason.
var notOnPurpose = map[string]string{
	"bus-failures": "it needs an event that EventBridge accepts and cannot encrypt after that: the key would have to " +
		"become unusable in the moment between, and without the key, Payhook publishes nothing",
}

// showAlarms raises every alarm of the stack that can be raised on purpose.
func (d *deployed) showAlarms(ctx context.Context) ([]Row, error) {
	lanes, last := d.causes()
	r := &raiser{client: cloudwatch.NewFromConfig(d.AWS), stack: d.Stack, clock: realClock{}, poll: 10 * time.Second,
		quiet: defaultQuiet, say: d.run.say}
	if reason := d.Lacks[Metrics]; reason != "" {
		r.lacks, r.rows = map[string]string{unhealthy: reason}, map[string]Row{}
		for _, c := range slices.Concat(append(lanes, last)...) {
			for _, alarm := range c.alarms {
				r.lacks[alarm] = reason
			}
			r.cause(ctx, c, nil)
		}
		r.set(unhealthy, r.notShown(unhealthy, compositeWhat))
		return r.sorted(), nil
	}
	if d.run.target.Pass != nil {
		// Causes that are beside each other need time that passes by itself.
		r.clock, r.oneByOne, r.lacks, r.poll = d.passing(), true, emulatorAlarms, time.Minute
	}
	return r.raise(ctx, lanes, last), ctx.Err()
}
