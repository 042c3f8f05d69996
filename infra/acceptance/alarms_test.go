package acceptance

import (
	"context"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/shared/settings"
)

// alarmsInMemory are alarms whose states a test sets. The states are those of CloudWatch one
// minute later, as its evaluation is late.
type alarmsInMemory struct {
	mu     sync.Mutex
	states map[string]cwtypes.StateValue
	denied error
}

func (a *alarmsInMemory) set(state cwtypes.StateValue, alarms ...string) {
	time.AfterFunc(time.Minute, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, alarm := range alarms {
			a.states["Stack-"+alarm] = state
		}
	})
}

func (a *alarmsInMemory) DescribeAlarms(_ context.Context, in *cloudwatch.DescribeAlarmsInput,
	_ ...func(*cloudwatch.Options)) (*cloudwatch.DescribeAlarmsOutput, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := &cloudwatch.DescribeAlarmsOutput{}
	for name, state := range a.states {
		switch {
		case !strings.HasPrefix(name, *in.AlarmNamePrefix):
		case strings.HasSuffix(name, "-"+unhealthy):
			// AWS returns composite alarms only if they are asked for.
			if slices.Contains(in.AlarmTypes, cwtypes.AlarmTypeCompositeAlarm) {
				out.CompositeAlarms = append(out.CompositeAlarms,
					cwtypes.CompositeAlarm{AlarmName: &name, StateValue: state})
			}
		default:
			out.MetricAlarms = append(out.MetricAlarms, cwtypes.MetricAlarm{AlarmName: &name, StateValue: state})
		}
	}
	return out, a.denied
}

const (
	isOK    = cwtypes.StateValueOk
	isAlarm = cwtypes.StateValueAlarm
)

// raising returns the rows of causes, by the alarms' names, and what was done, in order.
func raising(t *testing.T, states map[string]cwtypes.StateValue,
	causes func(*alarmsInMemory) [][]cause) map[string]Row {
	t.Helper()
	rows := map[string]Row{}
	synctest.Test(t, func(t *testing.T) {
		alarms := &alarmsInMemory{states: map[string]cwtypes.StateValue{"Stack-" + unhealthy: isAlarm,
			"Other-a": isAlarm}}
		for alarm, state := range states {
			alarms.states["Stack-"+alarm] = state
		}
		alarms.set(isOK, unhealthy)
		r := &raiser{client: alarms, stack: "Stack", clock: realClock{}, poll: 10 * time.Second, quiet: time.Hour,
			say: func(string, ...any) {}}
		for _, row := range r.raise(t.Context(), causes(alarms), nil) {
			for name := range alarms.states {
				short := strings.TrimPrefix(name, "Stack-")
				if strings.HasPrefix(row.What+":", "the alarm "+short+":") ||
					strings.HasPrefix(row.What, "the alarm "+short+",") {
					rows[short] = row
				}
			}
		}
		time.Sleep(2 * time.Minute) // what is set is set
	})
	return rows
}

func want(t *testing.T, rows map[string]Row, alarm string, status Status, text string) {
	t.Helper()
	if row := rows[alarm]; row.Status != status || !strings.Contains(row.Actual, text) {
		t.Errorf("%s: %+v, want %s with %q", alarm, row, status, text)
	}
}

func TestAnAlarmIsPassedOnlyIfItsCauseRaisedItAndItIsOKAgain(t *testing.T) {
	ended := map[string]int{}
	var mu sync.Mutex
	rows := raising(t, map[string]cwtypes.StateValue{"good": isOK, "never": isOK, "stuck": isOK, "before": isAlarm,
		"failed": isOK, "forgotten": isOK, "unsure": isOK}, func(a *alarmsInMemory) [][]cause {
		to := func(state cwtypes.StateValue, alarms ...string) func(context.Context) error {
			return func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				ended[strings.Join(alarms, " ")+" "+string(state)]++
				a.set(state, alarms...)
				return nil
			}
		}
		return [][]cause{
			{{alarms: []string{"good", "never"}, start: to(isAlarm, "good"), end: to(isOK, "good")}},
			{{alarms: []string{"stuck"}, start: to(isAlarm, "stuck"), end: to(isAlarm, "stuck")}},
			{{alarms: []string{"before"}, start: to(isAlarm, "before"), end: to(isOK, "before")}},
			{{alarms: []string{"failed"}, start: func(context.Context) error { return errors.New("denied by IAM") },
				end: to(isOK, "failed")}},
			{{alarms: []string{"unsure"}, undocumented: "raised, if AWS logs it", end: to(isOK, "unsure")}},
		}
	})
	want(t, rows, "good", Passed, "raised after 1m")
	want(t, rows, "good", Passed, "OK again after")
	want(t, rows, "never", Wrong, "not raised")
	want(t, rows, "stuck", Wrong, "not OK again")
	want(t, rows, "before", Wrong, "raised already")
	want(t, rows, "failed", Wrong, "denied by IAM")
	want(t, rows, "forgotten", Wrong, "nothing raises it")
	want(t, rows, "unsure", Measured, "not raised")
	want(t, rows, unhealthy, Passed, "raised while others were")
	if ended["failed OK"] != 1 || ended["good OK"] != 1 {
		t.Errorf("the causes that ended are %v", ended)
	}
	if ended["before ALARM"] != 0 {
		t.Error("a cause began although its alarm was raised already")
	}
}

func TestACauseGoesOnUntilItsAlarmIsRaised(t *testing.T) {
	times := 0
	rows := raising(t, map[string]cwtypes.StateValue{"slow": isOK}, func(a *alarmsInMemory) [][]cause {
		return [][]cause{{{alarms: []string{"slow"}, interval: time.Minute, again: func(context.Context) error {
			if times++; times == 3 {
				a.set(isAlarm, "slow")
			}
			return nil
		}, end: func(context.Context) error { a.set(isOK, "slow"); return nil }}}}
	})
	want(t, rows, "slow", Passed, "raised after")
	if times < 3 || times > 5 {
		t.Errorf("the cause was repeated %d times", times)
	}
}

func TestACauseOfLimitedTimeEndsBeforeItsAlarm(t *testing.T) {
	var end time.Time
	rows := raising(t, map[string]cwtypes.StateValue{"late": isOK}, func(a *alarmsInMemory) [][]cause {
		start := time.Now()
		return [][]cause{{{alarms: []string{"late"}, hold: 2 * time.Minute, start: func(context.Context) error {
			time.AfterFunc(9*time.Minute, func() { a.set(isAlarm, "late") })
			time.AfterFunc(15*time.Minute, func() { a.set(isOK, "late") })
			return nil
		}, end: func(context.Context) error {
			end = time.Now()
			if held := end.Sub(start); held > 3*time.Minute {
				t.Errorf("it was held for %s", held)
			}
			return nil
		}}}}
	})
	want(t, rows, "late", Passed, "raised after 10m")
	if end.IsZero() {
		t.Error("the cause has not ended")
	}
}

// alarmsOfAClock are alarms on data that a clock makes older: each is raised while its data is
// younger than five minutes.
type alarmsOfAClock struct {
	clock *passing
	data  map[string]time.Time
}

func (a *alarmsOfAClock) DescribeAlarms(context.Context, *cloudwatch.DescribeAlarmsInput,
	...func(*cloudwatch.Options)) (*cloudwatch.DescribeAlarmsOutput, error) {
	out := &cloudwatch.DescribeAlarmsOutput{}
	for name, at := range a.data {
		state := isOK
		if a.clock.Now().Sub(at) < 5*time.Minute {
			state = isAlarm
		}
		name = "Stack-" + name
		out.MetricAlarms = append(out.MetricAlarms, cwtypes.MetricAlarm{AlarmName: &name, StateValue: state})
	}
	return out, nil
}

// On an emulator, no time is waited for, and one cause cannot disturb another.
func TestTimePassesForAnEmulatorWithoutWaiting(t *testing.T) {
	synctest.Test(t, timePasses)
}

func timePasses(t *testing.T) {
	var passed time.Duration
	minutesRun := 0
	p := &passing{
		pass: func(_ context.Context, d time.Duration) error {
			passed += d
			return nil
		},
		eachMinute: func(context.Context) error {
			minutesRun++
			return nil
		},
	}
	begin := time.Now()
	a := &alarmsOfAClock{clock: p, data: map[string]time.Time{"before": p.Now(), "a": {}, "b": {}, "lacking": {}}}
	var order []string
	occurs := func(alarm string) cause {
		return cause{what: alarm, alarms: []string{alarm}, interval: time.Minute,
			start: func(context.Context) error { order = append(order, "start "+alarm); return nil },
			again: func(ctx context.Context) error {
				a.data[alarm] = p.Now()
				return smithytime.SleepWithContext(ctx, time.Millisecond) // another cause could begin
			},
			end: func(context.Context) error { order = append(order, "end "+alarm); return nil }}
	}
	both := occurs("b")
	both.alarms = append(both.alarms, "lacking")
	r := &raiser{client: a, stack: "Stack", clock: p, oneByOne: true, poll: time.Minute, quiet: time.Hour,
		lacks: map[string]string{"lacking": "it has none", unhealthy: "it has none"}, say: func(string, ...any) {}}
	rows := map[string]Row{}
	for _, row := range r.raise(t.Context(), [][]cause{{occurs("before")}, {occurs("a")}, {both}}, nil) {
		rows[strings.TrimPrefix(row.What, "the alarm ")] = row
	}
	for _, alarm := range []string{"before: before", "a: a", "b: b"} {
		if row := rows[alarm]; row.Status != Passed ||
			!strings.Contains(row.Actual, "raised after 1m0s, OK again within ") {
			t.Errorf("%s: %+v", alarm, row)
		}
	}
	for _, alarm := range []string{"lacking: b", unhealthy + ", of which the others are parts"} {
		if row := rows[alarm]; row.Status != NotShown || row.Reason != "it has none" {
			t.Errorf("%s: %+v", alarm, row)
		}
	}
	want := []string{"start before", "end before", "start a", "end a", "start b", "end b"}
	if !slices.Equal(order, want) {
		t.Errorf("the order is %q", order)
	}
	if passed < 10*time.Minute || time.Since(begin) > passed || minutesRun != int(passed/time.Minute) ||
		p.before(begin).After(begin.Add(-passed)) {
		t.Errorf("%s passed, and the schedules ran %d times", passed, minutesRun)
	}
}

func TestWithoutCloudWatchNoAlarmIsPassed(t *testing.T) {
	d := &deployed{run: &Run{}, Lacks: emulatorLacks}
	rows, err := d.showAlarms(t.Context())
	if err != nil || len(rows) < 25 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	for _, row := range rows {
		if row.Status != NotShown || row.Reason == "" {
			t.Errorf("%+v", row)
		}
	}
}

// Each alarm of the runbook, which a test compares with the template, is raised by one cause or
// has a reason why not.
func TestEveryAlarmIsRaisedOrHasAReason(t *testing.T) {
	text, err := os.ReadFile("../cmd/payhook/RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for alarm := range notOnPurpose {
		times[alarm]++
	}
	// The alarms depend on these settings.
	ways := map[string]bool{}
	for _, conf := range []map[string]string{nil,
		{settings.DomainName.Key: "x.example", settings.Authentication.Key: settings.ByBoth}} {
		d := &deployed{run: &Run{}}
		d.Settings = conf
		lanes, last := d.causes()
		for _, lane := range append(lanes, last) {
			for _, c := range lane {
				for _, alarm := range c.alarms {
					if !ways[alarm+c.what] {
						ways[alarm+c.what] = true
						times[alarm]++
					}
				}
			}
		}
	}
	var all []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
		if times[m[1]] != 1 {
			t.Errorf("%s has %d causes or reasons", m[1], times[m[1]])
		}
	}
	slices.Sort(all)
	if got := slices.Sorted(maps.Keys(times)); !slices.Equal(got, all) {
		t.Errorf("the alarms are %q, and the runbook has %q", got, all)
	}
}
