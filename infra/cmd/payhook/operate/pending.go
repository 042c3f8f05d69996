package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/ledger"
)

const (
	mostListed = 10
	// failingFrom is the number of attempts from which an item is said to fail. One is
	// normal for what its receiver did not come to publish.
	failingFrom = 2
)

func (p *program) pendingCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pending",
		Short: "Show what is recorded and not published yet",
		Long: `Shows what is recorded and not on the bus yet: how many events, and the ten oldest.
Normally that is nothing, or what is being processed.

  overdue  was due for longer than 2 minutes: redrive does not run, or is too slow
  failing  of the ten oldest: redrive has tried twice or more, and will try again
  damaged  has attributes that cannot be decoded; redrive reports it in each run

Status 1: something is overdue, failing or damaged.`,
		Example: "  payhook pending\n  payhook pending --local",
		Args:    cli.Args(),
		RunE:    p.on(p.pending),
	}
	return cmd
}

// waiting is one event that is pending.
type waiting struct {
	RecordedAt time.Time `json:"recordedAt"`
	Due        time.Time `json:"due"`
	Attempts   int       `json:"attempts"`
	Claimed    bool      `json:"claimed"`
	EventID    string    `json:"eventId"`
	DeliveryID string    `json:"deliveryId"`
}

// backlog is everything that is pending.
type backlog struct {
	Pending int       `json:"pending"`
	Overdue int       `json:"overdue"`
	Failing int       `json:"failing"`
	Damaged []string  `json:"damaged,omitempty"` // each event with what can't be decoded
	Events  []waiting `json:"events"`            // the oldest
}

func (p *program) pending(ctx context.Context, d *stack, _ []string) error {
	index, err := ledger.List(ctx, d.ledger, ledger.Pending)
	if err != nil {
		return err
	}
	// What fails again and again is among the oldest; the index is in the order of due.
	slices.SortStableFunc(index, func(x, y ledger.Item) int { return x.RecordedAt.Compare(y.RecordedAt) })
	b := backlog{Events: []waiting{}}
	kept := index[:0] // without what is no longer pending: the index follows the table with a delay
	for i, pending := range index {
		if i < mostListed {
			item, _, err := ledger.Find(ctx, d.ledger, pending.EventID, false)
			if err != nil && item.Err == nil {
				return err
			}
			if item.State != ledger.Pending {
				continue
			}
			pending.Err = cmp.Or(item.Err, pending.Err)
			if item.Attempts >= failingFrom {
				b.Failing++
			}
			b.Events = append(b.Events, waiting{item.RecordedAt, item.Due, item.Attempts, item.Claimed, item.EventID,
				item.DeliveryID})
		}
		kept = append(kept, pending)
	}
	n := ledger.Count(kept, p.Now())
	b.Pending, b.Overdue, b.Damaged = n.Pending, n.Overdue, n.Damaged
	if b.Pending == 0 && !p.JSON {
		_, err := fmt.Fprintln(p.Out, "nothing is pending")
		return err
	}
	rows := cli.Rows{{"RECORDEDAT", "DUE", "ATTEMPTS", "CLAIMED", "EVENTID", "DELIVERYID"}}
	for _, e := range b.Events {
		rows = append(rows, []any{e.RecordedAt, e.Due, e.Attempts, e.Claimed, e.EventID, e.DeliveryID})
	}
	return attention(p.Show(b, "pending", b.Pending, "overdue", b.Overdue, "failing", b.Failing, "damaged", b.Damaged,
		"events", rows), b.Overdue > 0 || b.Failing > 0 || len(b.Damaged) > 0)
}
