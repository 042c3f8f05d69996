package commands

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

	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/intake"
	"payhook.example/shared/proof"
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

// id is what the requests have in common.
func (n notAccepted) id() string { return cmp.Or(strings.ToLower(n.DeliveryID), n.RequestID) }

// line is what the command reads of a line of the webhook or the redrive function.
type requestLine struct {
	notAccepted                 // of the line's request
	Msg, Kind            string // Kind is that of what was replayed
	UnverifiedDeliveryID string
}

// accepts reports whether the line says that a whole delivery was accepted. The replay of a conflict or of an event
// is that of a part.
func (l requestLine) accepts() bool {
	switch l.Msg {
	case "webhook":
		return l.Status/100 == 2
	case "replay":
		return l.Outcome == intake.Accepted.Name &&
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

// failed matches the line that Lambda writes of an invocation that failed.
var failedLine = regexp.MustCompile(`^REPORT RequestId: (\S+)\t.*\tStatus: ([^\t]+)`)

// findNotAccepted returns the requests since from that were not answered 2xx, and whose deliveryId was not
// accepted later, by the webhook function or by a replay. The first is the earliest.
func (o *logsOptions) findNotAccepted(ctx context.Context, d *deployment.Deployment,
	from time.Time) ([]notAccepted, error) {
	client := cloudwatchlogs.NewFromConfig(d.AWS, func(o *cloudwatchlogs.Options) {
		o.RetryMaxAttempts = 10 // a long log takes many calls, and AWS throttles them
	})
	count := o.Counter("line", "lines")
	read := func(function, filter string, got func(e entry, l requestLine)) error {
		for e, err := range logEvents(ctx, client, d.Logs[function], filter, from, 0) {
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
	requests, err := requestsNotAccepted(read)
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
		if n, ok := found[strings.ToLower(l.DeliveryID)]; ok && l.accepts() && !e.Time.Before(n.Last) {
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

// requestsNotAccepted returns the requests that were not answered 2xx, by their ids: those that the webhook function
// answered, and those of which only Lambda has written a line.
func requestsNotAccepted(read func(function, filter string,
	got func(entry, requestLine)) error) (map[string]notAccepted, error) {
	requests := map[string]notAccepted{}
	err := read("webhook", notAcceptedLines, func(e entry, l requestLine) {
		if l.Msg == "webhook" && !l.accepts() {
			l.DeliveryID = cmp.Or(l.DeliveryID, l.UnverifiedDeliveryID)
			l.First, l.Last, l.Count = e.Time, e.Time, 1
			requests[l.RequestID] = l.notAccepted
		}
	})
	if err != nil {
		return nil, err
	}
	err = read("webhook", failedLines, func(e entry, _ requestLine) {
		if match := failedLine.FindStringSubmatch(e.Text); match != nil && requests[match[1]].Count == 0 {
			requests[match[1]] = notAccepted{First: e.Time, Last: e.Time, Count: 1, Outcome: "function-failed",
				Cause: match[2], RequestID: match[1]}
		}
	})
	return requests, err
}

func earlier(a, b notAccepted) int {
	return cmp.Or(a.First.Compare(b.First), cmp.Compare(a.RequestID, b.RequestID))
}

func (o *logsOptions) showNotAccepted(ctx context.Context, d *deployment.Deployment) error {
	list, err := o.findNotAccepted(ctx, d, o.Now().Add(-o.since))
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Err, "%s not accepted in the last %s\n",
		cli.Counted(len(list), "webhook was", "webhooks were"), cli.Readable(o.since))
	if err := cli.List(o.Program, list, "first", "last", "count", "status", "outcome", "deliveryId",
		"requestId", "keyId", "cause"); err != nil || len(list) == 0 {
		return err
	}
	return cli.ErrAttention
}
