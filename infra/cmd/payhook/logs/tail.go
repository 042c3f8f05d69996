package logs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/smithy-go"
	smithytime "github.com/aws/smithy-go/time"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// entry is one log event.
type entry struct {
	Function string // the name of the tail
	Time     time.Time
	Text     string
	id       string
}

// lines returns the log events of a group since from, in the order of their times. filter is a filter pattern of
// CloudWatch Logs; "" for none. FilterLogEvents is not billed by the request, unlike StartLiveTail:
// https://aws.amazon.com/cloudwatch/pricing/
func lines(ctx context.Context, client *cloudwatchlogs.Client, group, filter string,
	from time.Time) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		input := &cloudwatchlogs.FilterLogEventsInput{LogGroupName: &group, StartTime: aws.Int64(from.UnixMilli())}
		if filter != "" {
			input.FilterPattern = &filter
		}
		for pages := cloudwatchlogs.NewFilterLogEventsPaginator(client, input); pages.HasMorePages(); {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(entry{}, fmt.Errorf("the log group %s: %w", group, err))
				return
			}
			for _, e := range page.Events {
				entry := entry{Time: time.UnixMilli(aws.ToInt64(e.Timestamp)), id: aws.ToString(e.EventId),
					Text: strings.TrimSpace(aws.ToString(e.Message))}
				if !yield(entry, nil) {
					return
				}
			}
		}
	}
}

// overlap is how far a tail reads back each time. Log events of different sandboxes do
// not arrive in the order of their timestamps.
const overlap = 2 * time.Minute

// tail reads one log group from a time on, and returns each log event once. It compares
// times of the log with each other only, so the clock of this computer does not matter.
// It is not safe for concurrent use.
type tail struct {
	function, group string

	client *cloudwatchlogs.Client
	from   time.Time
	seen   map[string]time.Time // by the ids of log events; not older than from
}

// newTail returns a tail of a log group, whose entries have the name function.
func newTail(client *cloudwatchlogs.Client, function, group string, from time.Time) *tail {
	return &tail{function, group, client, from, map[string]time.Time{}}
}

// next returns the log events that are new. With an error, it returns those that it has
// read; the next call reads on.
func (t *tail) next(ctx context.Context) ([]entry, error) {
	var entries []entry
	newest := t.from
	for e, err := range lines(ctx, t.client, t.group, "", t.from) {
		if err != nil {
			return entries, err
		}
		if _, known := t.seen[e.id]; known {
			continue
		}
		t.seen[e.id] = e.Time
		if e.Time.After(newest) {
			newest = e.Time
		}
		e.Function = t.function
		entries = append(entries, e)
	}
	if from := newest.Add(-overlap); from.After(t.from) {
		t.from = from
	}
	maps.DeleteFunc(t.seen, func(_ string, at time.Time) bool { return at.Before(t.from) })
	return entries, nil
}

// read returns what is new in all tails, in the order of the timestamps. With an error, it
// returns what it has read.
func read(ctx context.Context, tails ...*tail) ([]entry, error) {
	var all []entry
	for _, t := range tails {
		entries, err := t.next(ctx)
		all = append(all, entries...)
		if err != nil {
			return all, err
		}
	}
	slices.SortStableFunc(all, func(a, b entry) int { return a.Time.Compare(b.Time) })
	return all, nil
}

// interval is the time between two readings.
const interval = 2 * time.Second

// follow reads tails again and again, and calls show with what is new, until ctx ends,
// which is no error. If AWS cannot be reached, it tells say and tries again. It ends with
// an error if AWS rejects the calls, or with the error of show.
func follow(ctx context.Context, say func(string), show func([]entry) error, tails ...*tail) error {
	failing := false
	for {
		entries, err := read(ctx, tails...)
		if errShow := show(entries); errShow != nil || ctx.Err() != nil {
			return errShow
		}
		if rejected(err) {
			return err
		}
		if err != nil && !failing {
			say(err.Error() + "; trying again")
		}
		failing = err != nil
		if smithytime.SleepWithContext(ctx, interval) != nil {
			return nil
		}
	}
}

// rejected reports whether AWS answered that it will not do this, so that there is no
// point in trying again.
func rejected(err error) bool {
	answer, answered := errors.AsType[*smithyhttp.ResponseError](err)
	api, known := errors.AsType[smithy.APIError](err)
	if !answered || !known {
		return false
	}
	_, throttled := retry.DefaultThrottleErrorCodes[api.ErrorCode()]
	status := answer.HTTPStatusCode()
	return status >= 400 && status < 500 && status != http.StatusTooManyRequests && !throttled
}
