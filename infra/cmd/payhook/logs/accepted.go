package logs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/proof"
	"payhook.example/shared/redrive"
)

// notAccepted are the requests with the same deliveryId, or the request without one, that were not
// answered 2xx.
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
	Captured   string    `json:"captured,omitempty"`
}

// answered is what the command reads of a line of the webhook or the redrive function.
type answered struct {
	Msg, Outcome, Cause, KeyID, RequestID, Captured string
	Status                                          int
	DeliveryID, UnverifiedDeliveryID                string
	Kind                                            string // of what was replayed
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

// failed matches the line that Lambda writes of an invocation that failed.
var failed = regexp.MustCompile(`^REPORT RequestId: (\S+)\t.*\tStatus: ([^\t]+)`)

// findNotAccepted returns the requests since from that were not answered 2xx, and whose deliveryId was not
// accepted later, by the webhook function or by a replay. The first is the earliest.
func (o *options) findNotAccepted(ctx context.Context, d *deployment.Deployment,
	from time.Time) ([]*notAccepted, error) {
	r := lineReader{client: cloudwatchlogs.NewFromConfig(d.AWS, func(o *cloudwatchlogs.Options) {
		o.RetryMaxAttempts = 10 // a long log takes many calls, and AWS throttles them
	}), count: o.Counter("line", "lines")}
	found := map[string]*notAccepted{}
	// FilterLogEvents sorts by time (AWS, "FilterLogEvents" in the CloudWatch Logs API reference).
	add := func(id string, n notAccepted) {
		n.Last, n.Count = n.First, 1
		if before := found[id]; before != nil {
			n.First, n.Count = before.First, before.Count+1
		}
		found[id] = &n
	}
	logged := map[string]bool{} // by the ids of requests
	webhook, identified := d.Logs["webhook"], false
	if err := r.read(ctx, webhook, notAcceptedLines, from, func(at time.Time, text string) {
		var a answered
		if json.Unmarshal([]byte(text), &a) != nil || a.Msg != "webhook" || a.Status/100 == 2 {
			return
		}
		id := cmp.Or(a.DeliveryID, a.UnverifiedDeliveryID)
		logged[a.RequestID], identified = true, identified || id != ""
		add(cmp.Or(strings.ToLower(id), a.RequestID), notAccepted{First: at, Status: a.Status, Outcome: a.Outcome,
			Cause: a.Cause, KeyID: a.KeyID, DeliveryID: id, RequestID: a.RequestID, Captured: a.Captured})
	}); err != nil {
		return nil, err
	}
	if err := r.read(ctx, webhook, failedLines, from, func(at time.Time, text string) {
		if match := failed.FindStringSubmatch(text); match != nil && !logged[match[1]] {
			add(match[1], notAccepted{First: at, Outcome: "function-failed", Cause: match[2], RequestID: match[1]})
		}
	}); err != nil {
		return nil, err
	}
	for group, filter := range map[string]string{webhook: acceptedLines, d.Logs["redrive"]: replayedLines} {
		if !identified {
			break
		}
		if err := r.read(ctx, group, filter, from, func(at time.Time, text string) {
			var a answered
			_ = json.Unmarshal([]byte(text), &a) // without an id if it is no line of these
			id := strings.ToLower(a.DeliveryID)
			later := found[id] != nil && !at.Before(found[id].Last)
			// The replay of a conflict or of an event is one of a part of a delivery.
			whole := a.Msg == "replay" && a.Outcome == redrive.Accepted &&
				(a.Kind == string(proof.Rejected) || a.Kind == string(proof.Invalid))
			if later && (a.Msg == "webhook" && a.Status/100 == 2 || whole) {
				delete(found, id)
			}
		}); err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *notAccepted) int {
		return cmp.Or(a.First.Compare(b.First), cmp.Compare(a.RequestID, b.RequestID))
	}), nil
}

// showNotAccepted shows them. The error is [cli.ErrAttention] if there are any.
func (o *options) showNotAccepted(ctx context.Context, d *deployment.Deployment) error {
	list, err := o.findNotAccepted(ctx, d, o.Now().Add(-o.since))
	if err != nil {
		return err
	}
	rows := cli.Rows{{"FIRST", "LAST", "COUNT", "STATUS", "OUTCOME", "DELIVERY OR REQUEST", "KEYID", "CAUSE"}}
	for _, n := range list {
		rows = append(rows, []any{cli.Stamp(n.First), cli.Stamp(n.Last), n.Count, n.Status, n.Outcome,
			cmp.Or(n.DeliveryID, "request "+n.RequestID), n.KeyID, n.Cause})
	}
	fmt.Fprintf(o.Err, "%s not accepted in the last %s\n",
		cli.Counted(len(list), "webhook was", "webhooks were"), cli.Readable(o.since))
	if err := cli.List(o.Program, list, rows); err != nil || len(list) == 0 {
		return err
	}
	return cli.ErrAttention
}

// lineReader reads log groups once, and keeps nothing.
type lineReader struct {
	client *cloudwatchlogs.Client
	count  func(more int) // of log events
}

// read calls got with each log event since from.
func (r *lineReader) read(ctx context.Context, group, filter string, from time.Time,
	got func(at time.Time, text string)) error {
	pages := cloudwatchlogs.NewFilterLogEventsPaginator(r.client, &cloudwatchlogs.FilterLogEventsInput{
		LogGroupName: &group, FilterPattern: &filter, StartTime: aws.Int64(from.UnixMilli())})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("the log group %s: %w", group, err)
		}
		for _, e := range page.Events {
			got(time.UnixMilli(aws.ToInt64(e.Timestamp)), strings.TrimSpace(aws.ToString(e.Message)))
		}
		r.count(len(page.Events))
	}
	return nil
}
