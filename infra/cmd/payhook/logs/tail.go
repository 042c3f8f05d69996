package logs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/smithy-go"
	smithytime "github.com/aws/smithy-go/time"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"payhook.example/infra/cmd/payhook/cli"
)

// API is what of CloudWatch Logs is used. FilterLogEvents is not billed by the request,
// unlike StartLiveTail: https://aws.amazon.com/cloudwatch/pricing/
type API interface {
	FilterLogEvents(context.Context, *cloudwatchlogs.FilterLogEventsInput,
		...func(*cloudwatchlogs.Options)) (*cloudwatchlogs.FilterLogEventsOutput, error)
}

// overlap is how far a tail reads back each time. Log events of different sandboxes do
// not arrive in the order of their timestamps.
const overlap = 2 * time.Minute

// Entry is one log event.
type Entry struct {
	Function string // the name of the tail
	Time     time.Time
	Text     string
}

// Tail reads one log group from a time on, and returns each log event once. It compares
// times of the log with each other only, so it does not matter what this computer's clock
// says, or how long it slept. It is not safe for concurrent use.
type Tail struct {
	// Function is the name that its entries have.
	Function string

	api    API
	group  string
	filter string
	from   time.Time
	seen   map[string]time.Time // by the ids of log events; not older than from
}

// NewTail returns a tail of a log group. filter is a filter pattern of CloudWatch Logs;
// "" for none.
func NewTail(api API, function, group, filter string, from time.Time) *Tail {
	return &Tail{function, api, group, filter, from, map[string]time.Time{}}
}

// Next returns the log events that are new, in the order of their timestamps. With an
// error, it returns those that it has read; the next call reads on.
//
// https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_FilterLogEvents.html:
// a page can be empty, and only the absence of a token says that there are no more.
func (t *Tail) Next(ctx context.Context) ([]Entry, error) {
	var entries []Entry
	newest := t.from
	input := &cloudwatchlogs.FilterLogEventsInput{LogGroupName: &t.group, StartTime: aws.Int64(t.from.UnixMilli())}
	if t.filter != "" {
		input.FilterPattern = &t.filter
	}
	for {
		page, err := t.api.FilterLogEvents(ctx, input)
		if err != nil {
			return entries, fmt.Errorf("the log of %s: %w", t.Function, err)
		}
		for _, event := range page.Events {
			id, at := aws.ToString(event.EventId), time.UnixMilli(aws.ToInt64(event.Timestamp))
			if _, known := t.seen[id]; known {
				continue
			}
			t.seen[id] = at
			if at.After(newest) {
				newest = at
			}
			entries = append(entries, Entry{t.Function, at, aws.ToString(event.Message)})
		}
		if aws.ToString(page.NextToken) == "" {
			break
		}
		input.NextToken = page.NextToken
	}
	if from := newest.Add(-overlap); from.After(t.from) {
		t.from = from
	}
	maps.DeleteFunc(t.seen, func(_ string, at time.Time) bool { return at.Before(t.from) })
	return entries, nil
}

// Follower reads tails again and again.
type Follower struct {
	Tails []*Tail
	Every time.Duration // between two readings
	Now   func() time.Time
	// Wait waits, or returns the error of a context that ends before.
	Wait func(context.Context, time.Duration) error
	// Say tells a person that reading was interrupted, and that it goes on.
	Say func(format string, args ...any)
}

// NewFollower returns a follower that speaks at Err.
func NewFollower(p *cli.Program, every time.Duration, tails ...*Tail) *Follower {
	return &Follower{tails, every, p.Now, smithytime.SleepWithContext, func(format string, args ...any) {
		fmt.Fprintf(p.Err, format+"\n", args...)
	}}
}

// Read returns what is new in all tails, in the order of the timestamps.
func (f *Follower) Read(ctx context.Context) ([]Entry, error) {
	var all []Entry
	for _, t := range f.Tails {
		entries, err := t.Next(ctx)
		all = append(all, entries...)
		if err != nil {
			return all, err
		}
	}
	slices.SortStableFunc(all, func(a, b Entry) int { return a.Time.Compare(b.Time) })
	return all, nil
}

// interruption is how long the log must not have been read for this to be said.
const interruption = 30 * time.Second

// Follow calls show with what is new until ctx ends, which is no error. If AWS cannot be
// reached, it says so and tries again; after the computer slept, it says from when on it
// reads. It ends with an error if AWS rejects the calls.
func (f *Follower) Follow(ctx context.Context, show func([]Entry) error) error {
	// The monotonic clock stops while a computer sleeps.
	now := func() time.Time { return f.Now().Round(0) }
	last, said := now(), time.Time{}
	for {
		begun := now()
		entries, err := f.Read(ctx)
		switch {
		case ctx.Err() != nil:
			return show(entries)
		case err != nil && Rejected(err):
			return errors.Join(show(entries), err)
		case err != nil:
			if begun.Sub(said) >= time.Minute {
				f.Say("%v; trying again", err)
				said = begun
			}
		default:
			if gap := begun.Sub(last); gap >= f.Every+interruption {
				f.Say("the log was not read for %s: this computer slept, or AWS could not be reached; "+
					"nothing is left out", cli.Readable(gap))
			}
			last, said = now(), time.Time{}
		}
		if err := show(entries); err != nil {
			return err
		}
		if f.Wait(ctx, f.Every) != nil {
			return nil
		}
	}
}

// Rejected reports whether AWS answered that it will not do this, so that there is no
// point in trying again.
func Rejected(err error) bool {
	answer, answered := errors.AsType[*smithyhttp.ResponseError](err)
	api, known := errors.AsType[smithy.APIError](err)
	if !answered || !known {
		return false
	}
	_, throttled := retry.DefaultThrottleErrorCodes[api.ErrorCode()]
	status := answer.HTTPStatusCode()
	return status >= 400 && status < 500 && status != http.StatusTooManyRequests && !throttled
}
