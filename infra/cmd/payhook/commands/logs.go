package commands

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/smithy-go"
	smithytime "github.com/aws/smithy-go/time"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/intake"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
)

type logsOptions struct {
	p                        *cli.Program
	since                    time.Duration
	follow, all, notAccepted bool
}

// logsCommand returns the command that shows what the functions have logged.
//
// It guarantees that each line is shown once and none is left out, even if the computer sleeps or AWS cannot be reached
// for a time, as long as a line reaches CloudWatch Logs at most two minutes after a line with a later time, and is
// still kept there.
func (p *program) logsCommand() *cobra.Command {
	o := logsOptions{p: p.Program, since: 10 * time.Minute}
	cmd := &cobra.Command{
		Use: "logs [webhook|redrive|token]", Short: "Show what the functions log",
		ValidArgs: []string{"webhook", "redrive", "token"},
		Args: cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs, func(_ *cobra.Command, args []string) error {
			if o.notAccepted && (o.follow || o.all || len(args) > 0) {
				return errors.New("--not-accepted takes no function, --follow or --all")
			}
			return nil
		}),
		RunE: p.on(func(ctx context.Context, s *connected, args []string) error {
			if o.notAccepted {
				return o.showNotAccepted(ctx, s)
			}
			return o.run(ctx, s, args)
		}),
	}
	f := cmd.Flags()
	f.Func("since", "how far back to begin, such as 90s, 24h or 7d (default 10m)", func(text string) (err error) {
		if o.since, err = settings.ParseDuration(text); err != nil || o.since < 0 {
			return errors.New("must be a duration such as 90s, 24h or 7d")
		}
		return nil
	})
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with what comes, until Ctrl-C")
	f.BoolVar(&o.notAccepted, "not-accepted", false, "list the webhooks that were not accepted")
	f.BoolVar(&o.all, "all", false, "also what Lambda writes for each invocation")
	return cmd
}

func (o *logsOptions) run(ctx context.Context, s *connected, named []string) error {
	groups := maps.Clone(s.Logs)
	maps.DeleteFunc(groups, func(function, _ string) bool { return len(named) > 0 && named[0] != function })
	if len(groups) == 0 {
		return cli.Usage("the stack has no function %s: it has tokenStore=none", named[0])
	}
	t := tail{cloudwatchlogs.NewFromConfig(s.AWS), groups, o.p.Now().Add(-o.since), map[string]time.Time{}}
	if o.follow {
		return t.follow(ctx, func(text string) { fmt.Fprintln(o.p.Err, text) }, o.show)
	}
	entries, err := t.next(ctx)
	if err != nil {
		return err
	}
	if entries = slices.DeleteFunc(entries, o.hides); len(entries) == 0 {
		fmt.Fprintf(o.p.Err, "nothing was logged in the last %s; --since goes further back\n", cli.Readable(o.since))
	}
	return o.show(entries)
}

// routine matches what Lambda writes for every invocation. REPORT has a status if the invocation does not end well:
// https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs-view.html
var routine = regexp.MustCompile(`^(?:(?:START|END|REPORT) RequestId:|INIT_START )`)

func (o *logsOptions) hides(e entry) bool {
	return !o.p.JSON && !o.all && routine.MatchString(e.Text) && !strings.Contains(e.Text, "\tStatus:")
}

func (o *logsOptions) show(entries []entry) error {
	for _, e := range slices.DeleteFunc(entries, o.hides) {
		if err := o.write(e); err != nil {
			return err
		}
	}
	return nil
}

// hidden are the members of a line that a person does not need: they are shown elsewhere, or are for CloudWatch.
var hidden = regexp.MustCompile(`^line\.(time|_aws\..*|StackName|requestId)$`)

func (o *logsOptions) write(e entry) error {
	// What the function wrote is in line if it is a JSON object, otherwise in text.
	document := struct {
		Time     string         `json:"time"`
		Function string         `json:"function"`
		Line     jsontext.Value `json:"line,omitzero"`
		Text     string         `json:"text,omitzero"`
	}{Time: cli.Stamp(e.Time), Function: e.Function}
	if line := jsontext.Value(e.Text); line.IsValid() && line.Kind() == jsontext.KindBeginObject {
		document.Line = line
	} else {
		document.Text = e.Text
	}
	return o.p.ShowLine(document, func(m *cli.Member) bool {
		shown := !hidden.MatchString(m.Name)
		if m.Name == "text" {
			m.Text = strings.ReplaceAll(m.Text, "\t", "  ")
		}
		m.Name = strings.TrimPrefix(m.Name, "line.")
		return shown
	})
}

type entry struct {
	Function string
	Time     time.Time
	Text     string
	id       string
}

// errPart is returned by [logEvents] if there are more pages than it may read.
var errPart = errors.New("only a part was read")

// logEvents returns the log events of a group since from, in the order of their times. filter is a filter pattern of
// CloudWatch Logs; "" for none. It reads at most so many pages; 0 for all. FilterLogEvents is not billed by the
// request, unlike StartLiveTail: https://aws.amazon.com/cloudwatch/pricing/
func logEvents(ctx context.Context, client *cloudwatchlogs.Client, group, filter string, from time.Time,
	most int) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		input := &cloudwatchlogs.FilterLogEventsInput{LogGroupName: &group, StartTime: aws.Int64(from.UnixMilli())}
		if filter != "" {
			input.FilterPattern = &filter
		}
		pages := cloudwatchlogs.NewFilterLogEventsPaginator(client, input)
		for n := 1; pages.HasMorePages(); n++ {
			if most > 0 && n > most {
				yield(entry{}, errPart)
				return
			}
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

// overlap is how far a tail reads back each time. Log events of different execution environments do
// not arrive in the order of their timestamps.
const overlap = 2 * time.Minute

// tail reads log groups from a time on, and returns each log event once. It compares times of the logs with each other
// only, so the clock of this computer does not matter. It is not safe for concurrent use.
type tail struct {
	client *cloudwatchlogs.Client
	groups map[string]string
	from   time.Time
	seen   map[string]time.Time // by the ids of log events; not older than from
}

// next returns the log events that are new, in the order of their times. With an error, it returns those that it has
// read; the next call reads on.
func (t *tail) next(ctx context.Context) (entries []entry, err error) {
	newest := t.from
	for function, group := range t.groups {
		for e, errRead := range logEvents(ctx, t.client, group, "", t.from, 0) {
			if errRead != nil {
				err = errRead
				break
			}
			if _, known := t.seen[e.id]; known {
				continue
			}
			t.seen[e.id] = e.Time
			if e.Time.After(newest) {
				newest = e.Time
			}
			e.Function = function
			entries = append(entries, e)
		}
	}
	if from := newest.Add(-overlap); err == nil && from.After(t.from) {
		t.from = from
		maps.DeleteFunc(t.seen, func(_ string, at time.Time) bool { return at.Before(from) })
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return a.Time.Compare(b.Time) })
	return entries, err
}

// follow reads again and again, and calls show with what is new, until ctx ends, which is no error. If AWS cannot be
// reached, it tells say and tries again. It ends with an error if AWS rejects the calls, or with the error of show.
func (t *tail) follow(ctx context.Context, say func(string), show func([]entry) error) error {
	failing := false
	for {
		entries, err := t.next(ctx)
		if errShow := show(entries); errShow != nil || ctx.Err() != nil {
			return errShow
		}
		_, answered := errors.AsType[smithy.APIError](err)
		if answered && retry.IsErrorRetryables(retry.DefaultRetryables).IsErrorRetryable(err) != aws.TrueTernary {
			return err
		}
		if err != nil && !failing {
			say(err.Error() + "; trying again")
		}
		failing = err != nil
		if smithytime.SleepWithContext(ctx, 2*time.Second) != nil {
			return nil
		}
	}
}

// notAccepted are the requests with the same deliveryId, or the request without one, that were not answered 2xx.
type notAccepted struct {
	First      time.Time `json:"first"`
	Last       time.Time `json:"last"`
	Count      int       `json:"count"`
	Status     int       `json:"status,omitzero"` // of the last one; 0: AWS answered for the function
	Outcome    string    `json:"outcome"`         // of the last one, and so on
	Cause      string    `json:"cause,omitempty"`
	KeyID      string    `json:"keyId,omitempty"`
	DeliveryID string    `json:"deliveryId,omitempty"`
	RequestID  string    `json:"requestId,omitempty"`
	Rejected   string    `json:"rejected,omitempty"`
}

// id is what the requests have in common.
func (n notAccepted) id() string { return cmp.Or(strings.ToLower(n.DeliveryID), n.RequestID) }

// requestLine is what the command reads of a line of the webhook or the redrive function.
type requestLine struct {
	Request              notAccepted `json:",embed"`
	Msg, Kind            string      // Kind is that of what was replayed
	UnverifiedDeliveryID string
}

// accepts reports whether the line says that a whole delivery was accepted. The replay of a conflict or of an event
// is that of a part.
func (l requestLine) accepts() bool {
	switch l.Msg {
	case "webhook":
		return l.Request.Status/100 == 2
	case "replay":
		return l.Request.Outcome == intake.Accepted.Name &&
			(l.Kind == string(proof.Rejected) || l.Kind == string(proof.Invalid))
	}
	return false
}

// The filter patterns of CloudWatch Logs
// (https://docs.aws.amazon.com/AmazonCloudWatch/logs/FilterAndPatternSyntax.html). They save reading lines that do
// not matter. The emulator ignores them, so the lines are looked at again.
const (
	notAcceptedLines = `{ $.msg = "webhook" && ($.status < 200 || $.status > 299) }`
	failedLines      = `"REPORT RequestId:" "Status:"`
	acceptedLines    = `{ $.msg = "webhook" && $.status >= 200 && $.status <= 299 }`
	replayedLines    = `{ $.msg = "replay" && $.outcome = "accepted" }`
)

// failedLine matches the line that Lambda writes of an invocation that failed.
var failedLine = regexp.MustCompile(`^REPORT RequestId: (\S+)\t.*\tStatus: ([^\t]+)`)

// findNotAccepted returns the requests since from that were not answered 2xx, and whose deliveryId was not
// accepted later, by the webhook function or by a replay. The first is the earliest.
func (o *logsOptions) findNotAccepted(ctx context.Context, s *connected, from time.Time) ([]notAccepted, error) {
	client := cloudwatchlogs.NewFromConfig(s.AWS, func(o *cloudwatchlogs.Options) {
		o.RetryMaxAttempts = 10 // a long log takes many calls, and AWS throttles them
	})
	count := o.p.Counter("line", "lines")
	read := func(function, filter string, got func(e entry, l requestLine)) error {
		for e, err := range logEvents(ctx, client, s.Logs[function], filter, from, 0) {
			if err != nil {
				return err
			}
			var l requestLine
			_ = json.Unmarshal([]byte(e.Text), &l) // what is not JSON has no message
			got(e, l)
			count(1)
		}
		return nil
	}
	requests := map[string]notAccepted{}
	err := read("webhook", notAcceptedLines, func(e entry, l requestLine) {
		if l.Msg == "webhook" && !l.accepts() {
			n := l.Request
			n.First, n.Last, n.Count = e.Time, e.Time, 1
			n.DeliveryID = cmp.Or(n.DeliveryID, l.UnverifiedDeliveryID)
			requests[n.RequestID] = n
		}
	})
	if err != nil {
		return nil, err
	}
	// Of these, only Lambda has written a line.
	err = read("webhook", failedLines, func(e entry, _ requestLine) {
		if match := failedLine.FindStringSubmatch(e.Text); match != nil && requests[match[1]].Count == 0 {
			requests[match[1]] = notAccepted{First: e.Time, Last: e.Time, Count: 1, Outcome: "function-failed",
				Cause: match[2], RequestID: match[1]}
		}
	})
	if err != nil {
		return nil, err
	}

	found := map[string]notAccepted{}
	for _, n := range slices.SortedFunc(maps.Values(requests), earlier) {
		if before, again := found[n.id()]; again {
			n.First, n.Count = before.First, before.Count+1
		}
		found[n.id()] = n
	}

	leaveOut := func(e entry, l requestLine) {
		if n, ok := found[strings.ToLower(l.Request.DeliveryID)]; ok && l.accepts() && !e.Time.Before(n.Last) {
			delete(found, n.id())
		}
	}
	if len(found) > 0 {
		if err = read("webhook", acceptedLines, leaveOut); err == nil {
			err = read("redrive", replayedLines, leaveOut)
		}
	}
	return slices.SortedFunc(maps.Values(found), earlier), err
}

func earlier(a, b notAccepted) int {
	return cmp.Or(a.First.Compare(b.First), cmp.Compare(a.RequestID, b.RequestID))
}

func (o *logsOptions) showNotAccepted(ctx context.Context, s *connected) error {
	list, err := o.findNotAccepted(ctx, s, o.p.Now().Add(-o.since))
	if err != nil {
		return err
	}
	fmt.Fprintf(o.p.Err, "%s not accepted in the last %s\n",
		cli.Counted(len(list), "webhook was", "webhooks were"), cli.Readable(o.since))
	err = cli.List(o.p, list, "first", "last", "count", "status", "outcome", "deliveryId",
		"requestId", "keyId", "cause")
	return attention(err, len(list) > 0)
}
