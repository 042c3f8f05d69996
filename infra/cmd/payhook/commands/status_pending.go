package commands

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/awsenv"
	"payhook.example/shared/ledger"
	"payhook.example/shared/proof"
)

// mostListed is how many of the oldest pending events are read.
const mostListed = 10

type waiting struct {
	RecordedAt time.Time `json:"recordedAt"`
	Due        time.Time `json:"due"`
	Attempts   int       `json:"attempts"`
	EventID    string    `json:"eventId"`
	DeliveryID string    `json:"deliveryId"`
	Cause      string    `json:"cause,omitempty"` // what can't be decoded
}

// pending counts what is in the index of pending events, and lists the oldest that are left to redrive.
func pendingChecks(ctx context.Context, d *screen, now time.Time) ([]check, error) {
	index, err := ledger.List(ctx, d.ledger, ledger.Pending)
	if err != nil {
		return nil, err
	}
	// What fails again and again is among the oldest; the index is in the order of due. What has no time is first.
	slices.SortStableFunc(index, func(x, y ledger.Item) int { return x.RecordedAt.Compare(y.RecordedAt) })
	first, err := deployment.Current(ctx, d.ledger, index[:min(len(index), mostListed)], ledger.Pending)
	if err != nil {
		return nil, err
	}
	for _, item := range first {
		w := waiting{item.RecordedAt, item.Due, item.Attempts, item.EventID, item.DeliveryID, ""}
		if item.Err != nil {
			w.Cause = awsenv.Cause(item.Err)
		}
		if item.Err != nil || item.Attempts > 0 || now.After(item.Due) {
			d.oldest = append(d.oldest, w)
		}
	}
	all := slices.Concat(first, index[min(len(index), mostListed):])
	damaged, oldest := 0, now
	for _, item := range all {
		if item.Err != nil {
			damaged++
		}
		if at := item.RecordedAt; !at.IsZero() && at.Before(oldest) {
			oldest = at
		}
	}
	d.open["oldest-pending"] = len(all)
	text := fmt.Sprintf("%s, the oldest for %s", cli.Counted(len(all), "event", "events"),
		cli.Readable(now.Sub(oldest)))
	if len(all) == 0 {
		return []check{{"pending", ok, "nothing is pending", ""}}, nil
	}
	c := check{"pending", ok, text, ""}
	if damaged > 0 {
		c.State, c.Next = needsAttention, d.p.Hint("logs redrive --since 1h")
		c.Text += fmt.Sprintf(", %d damaged", damaged)
	}
	lines, _, err := d.recent(ctx, "redrive", "", now.Add(-recently))
	if err != nil {
		return []check{c}, err
	}
	cause := "it has logged nothing for " + cli.Readable(recently)
	if n := len(lines); n > 0 {
		cause = cmp.Or(lines[n-1].Cause, lines[n-1].BusCause)
	}
	if cause != "" {
		c.Text += "; redrive: " + cause
	}
	return []check{c}, nil
}

func parkedChecks(ctx context.Context, d *screen, now time.Time) ([]check, error) {
	events, err := ledger.List(ctx, d.ledger, ledger.Parked)
	if err != nil {
		return nil, err
	}
	open, err := proof.CountOpen(ctx, d.parking)
	if err != nil {
		return nil, err
	}
	ends, err := d.ClaimEnds(ctx, events, now)
	if err != nil {
		return nil, err
	}
	d.open["parked"], d.open["conflicts"] = len(events)+open[proof.Invalid], open[proof.Conflict]
	c := check{"parked", ok, "nothing is open", ""}
	if len(events)+open[proof.Invalid]+open[proof.Conflict] > 0 {
		c.State, c.Next = needsAttention, d.p.Hint("parked list")
		c.Text = fmt.Sprintf("%s, %d invalid, %s open", cli.Counted(len(events), "event", "events"),
			open[proof.Invalid], cli.Counted(open[proof.Conflict], "conflict", "conflicts"))
	}
	if n := open[proof.Rejected]; n > 0 {
		c.Text += "; " + cli.Counted(n, "rejected webhook is", "rejected webhooks are") + " stored"
	}
	if len(ends) > 0 {
		earlier := func(a, b string) int { return ends[a].Compare(ends[b]) }
		first := slices.MinFunc(slices.Collect(maps.Keys(ends)), earlier)
		c.Text += fmt.Sprintf("; the large event of %s is deleted %s", first, cli.Ago(ends[first], now))
	}
	return []check{c}, nil
}
