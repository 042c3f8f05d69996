package acceptance

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"golang.org/x/sync/errgroup"
)

// emulatorAlarms are the alarms that the emulator cannot show, each with the reason.
var emulatorAlarms = map[string]string{
	unhealthy:          "the emulator has no composite alarms",
	"rejected-by-aws":  "the emulator has no alarms on metric math, and no metrics of function URLs",
	"key-withdrawn":    noOldKeys,
	"key-stale":        noOldKeys,
	"oldest-pending":   noSchedules,
	"redrive-schedule": noSchedules,
	"token-schedule":   noSchedules,
	"token-quota":      "the token function must store a token every 20 minutes for an hour; " + onlyCloudWatch,
}

const (
	onlyCloudWatch = "time passes for the emulator's CloudWatch alone"
	noOldKeys      = "a key is fetched again after a minute at the earliest (keyFreshness); " + onlyCloudWatch
	noSchedules    = "the emulator runs no schedules, so they cannot be denied"
)

// passing is the time of an emulator's CloudWatch, which passes when it is waited for. The clock
// of everything else is that of this machine.
type passing struct {
	pass func(context.Context, time.Duration) error
	// eachMinute does what schedules do.
	eachMinute func(context.Context) error

	mu     sync.Mutex
	passed time.Duration
}

// passing returns the clock of the run's target, which runs what the schedules would.
func (d *deployed) passing() *passing {
	if d.clock == nil {
		d.clock = &passing{pass: d.run.target.Pass, eachMinute: d.runSchedules}
	}
	return d.clock
}

func (p *passing) Now() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.passed)
}

// Pause lets a time pass, minute by minute.
func (p *passing) Pause(ctx context.Context, d time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for d > 0 {
		step := min(d, time.Minute)
		if err := p.pass(ctx, step); err != nil {
			return err
		}
		d -= step
		p.passed += step
		// After it, so that the newest period has data.
		if err := p.eachMinute(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// before returns the time at which something would have happened on the clock that CloudWatch has
// now.
func (p *passing) before(t time.Time) time.Time {
	if p == nil {
		return t
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return t.Add(-p.passed)
}

// runSchedules invokes the functions that have a schedule, as that does every minute. That one
// fails or is throttled is for its alarms.
func (d *deployed) runSchedules(ctx context.Context) error {
	client := lambda.NewFromConfig(d.AWS, func(o *lambda.Options) { o.RetryMaxAttempts = 1 })
	group, together := errgroup.WithContext(ctx)
	for _, name := range []string{"redrive", "token"} {
		group.Go(func() error {
			function := d.Functions[name]
			_, err := client.Invoke(together, &lambda.InvokeInput{FunctionName: &function, Payload: []byte("{}")})
			if status, ok := httpStatus(err); err != nil && (!ok || status != http.StatusTooManyRequests) {
				return err
			}
			return nil
		})
	}
	return group.Wait()
}
