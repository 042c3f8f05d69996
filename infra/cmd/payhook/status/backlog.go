package status

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/ledger"
	"payhook.example/shared/proof"
)

const (
	mostListed = 10
	// failingFrom is the number of attempts from which an event is said to fail. One is
	// normal for what its receiver did not come to publish.
	failingFrom = 2
)

// waiting is one event that is pending.
type waiting struct {
	RecordedAt time.Time `json:"recordedAt"`
	Due        time.Time `json:"due"`
	Attempts   int       `json:"attempts"`
	EventID    string    `json:"eventId"`
	DeliveryID string    `json:"deliveryId"`
	Cause      string    `json:"cause,omitempty"` // what can't be decoded
}

// pending counts what is in the index of pending events, and looks at the oldest.
func pending(ctx context.Context, d *stack, now time.Time) ([]check, error) {
	index, err := ledger.List(ctx, d.ledger, ledger.Pending)
	if err != nil {
		return nil, err
	}
	// What fails again and again is among the oldest; the index is in the order of due. What has no time is first.
	slices.SortStableFunc(index, func(x, y ledger.Item) int { return x.RecordedAt.Compare(y.RecordedAt) })
	ids := make([]string, min(len(index), mostListed))
	for i := range ids {
		ids[i] = index[i].EventID
	}
	found := map[string]ledger.Item{}
	if len(ids) > 0 {
		if found, err = d.ledger.Get(ctx, ids, false); err != nil {
			return nil, err
		}
	}
	failing := 0
	for i := len(ids) - 1; i >= 0; i-- {
		item := found[ids[i]]
		if item.State != ledger.Pending { // the index follows the table with a delay
			index = slices.Delete(index, i, i+1)
			continue
		}
		w := waiting{item.RecordedAt, item.Due, item.Attempts, item.EventID, item.DeliveryID, ""}
		if index[i].Err = cmp.Or(item.Err, index[i].Err); index[i].Err != nil {
			w.Cause = index[i].Err.Error()
		}
		if item.Attempts >= failingFrom {
			failing++
		}
		d.oldest = append(d.oldest, w)
	}
	slices.Reverse(d.oldest)
	n := ledger.Count(index, now)
	text := fmt.Sprintf("%s, the oldest for %s", cli.Counted(n.Pending, "event", "events"),
		cli.Readable(now.Sub(n.Oldest)))
	bad := false
	for what, n := range []int{n.Overdue, failing, len(n.Damaged)} {
		if n > 0 {
			text, bad = text+fmt.Sprintf(", %d %s", n, []string{"overdue", "failing", "damaged"}[what]), true
		}
	}
	if !bad {
		d.oldest = nil
	}
	return []check{judge("pending", text, finding{n.Pending == 0, ok, "nothing is pending", ""},
		finding{bad, attention, text, d.hint("logs redrive --since 1h")})}, nil
}

// table is what is shown of the oldest pending events.
func table(oldest []waiting) cli.Rows {
	rows := cli.Rows{{"RECORDEDAT", "DUE", "ATTEMPTS", "EVENTID", "DELIVERYID", "CAUSE"}}
	for _, w := range oldest {
		rows = append(rows, []any{w.RecordedAt, w.Due, w.Attempts, w.EventID, w.DeliveryID, w.Cause})
	}
	return rows
}

// parked counts what is parked and open, by kind.
func parked(ctx context.Context, d *stack, now time.Time) ([]check, error) {
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
	text := fmt.Sprintf("%s, %d invalid, %s open", cli.Counted(len(events), "event", "events"), open[proof.Invalid],
		cli.Counted(open[proof.Conflict], "conflict", "conflicts"))
	none := "nothing is open"
	if n := open[proof.Rejected]; n > 0 {
		captured := "; " + cli.Counted(n, "rejected webhook is", "rejected webhooks are") + " stored"
		text, none = text+captured, none+captured
	}
	if len(ends) > 0 {
		earlier := func(a, b string) int { return ends[a].Compare(ends[b]) }
		first := slices.MinFunc(slices.Collect(maps.Keys(ends)), earlier)
		text += fmt.Sprintf("; the large event of %s is deleted %s", first, cli.Ago(ends[first], now))
	}
	return []check{judge("parked", none,
		finding{len(events)+open[proof.Invalid]+open[proof.Conflict] > 0, attention, text, d.hint("parked list")})}, nil
}
