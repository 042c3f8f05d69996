package operate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/ledger"
)

const (
	// mostExamined is how many events are read, those first that are due longest: an index
	// can hold millions.
	mostExamined = 1000
	mostListed   = 10
	// failingFrom is the number of attempts from which an item is said to fail. One is
	// normal for what its receiver did not come to publish.
	failingFrom = 2
)

func (p *program) pendingCommand() *cobra.Command {
	var overdue time.Duration
	cmd := &cobra.Command{
		Use:   "pending",
		Short: "Show what is recorded and not published yet",
		Long: `Shows what is recorded and not on the bus yet: how many events, since when the
oldest, and how often redrive has tried. Normally that is nothing, or what is being
processed. Stacks can share a ledger: an event belongs to the bus of the stack that
recorded it, and redrive of that stack publishes it. "payhook pending move" moves it.

  overdue  was due for longer than --overdue: redrive does not run, or is too slow
  failing  redrive has tried twice or more, and will try again

Status 1: something is overdue or failing.

With --json, one document: pending, buses (how many of each), overdue, failing,
examined, mostAttempts, oldest, events (eventId, bus, deliveryId, recordedAt,
ageSeconds, due, attempts, claimed).`,
		Example: "  payhook pending\n  payhook pending --local --overdue 10m",
		Args:    cli.Args(),
		RunE:    p.on(func(ctx context.Context, s *stack, _ []string) error { return p.pending(ctx, s, overdue) }),
	}
	cli.DurationVar(cmd.Flags(), &overdue, "overdue", 2*time.Minute,
		"when an event is overdue; by default, after two runs of redrive")
	cmd.AddCommand(p.moveCommand())
	return cmd
}

// waiting is one event that is pending.
type waiting struct {
	EventID    string    `json:"eventId"`
	Bus        string    `json:"bus"`
	DeliveryID string    `json:"deliveryId"`
	RecordedAt time.Time `json:"recordedAt"`
	AgeSeconds float64   `json:"ageSeconds"`
	Due        time.Time `json:"due"`
	Attempts   int       `json:"attempts"`
	Claimed    bool      `json:"claimed"`
}

// backlog is everything that is pending.
type backlog struct {
	Pending      int            `json:"pending"`
	Buses        map[string]int `json:"buses"`
	Overdue      int            `json:"overdue"`
	Failing      int            `json:"failing"`
	Examined     int            `json:"examined"`
	MostAttempts int            `json:"mostAttempts"`
	Oldest       *waiting       `json:"oldest,omitempty"`
	Events       []waiting      `json:"events"`
}

func (p *program) pending(ctx context.Context, d *stack, overdue time.Duration) error {
	reading := p.Progress()
	index, err := d.ledger.Backlog(ctx, func(total int) {
		reading.Say("%s so far", cli.Counted(total, "event", "events"))
	})
	if err != nil {
		return err
	}
	items, err := p.examine(ctx, d.ledger, index[:min(len(index), mostExamined)])
	if err != nil {
		return err
	}
	b := newBacklog(index, items, p.Now(), overdue)
	return attention(p.print(b, func(t cli.Fields) { b.write(t, p.Now(), overdue) }), b.Overdue > 0 || b.Failing > 0)
}

// newBacklog returns what the index holds, of which items have been read. The index follows
// the table with a delay, so an item may be no longer pending.
func newBacklog(index []ledger.Item, items map[string]ledger.Item, now time.Time, overdue time.Duration) backlog {
	b := backlog{Buses: map[string]int{}, Events: []waiting{}}
	for _, pending := range index {
		item, read := items[pending.EventID]
		if read && !item.Pending() {
			continue
		}
		due := pending.Due
		if read {
			due = item.Due
			b.Examined++
			b.MostAttempts = max(b.MostAttempts, item.Attempts)
			if item.Attempts >= failingFrom {
				b.Failing++
			}
			b.Events = append(b.Events, waiting{item.EventID, item.Bus(), item.DeliveryID, item.RecordedAt,
				cli.Seconds(now.Sub(item.RecordedAt)), item.Due, item.Attempts, item.Claimed})
		}
		b.Pending++
		b.Buses[pending.Bus()]++
		if now.Sub(due) > overdue {
			b.Overdue++
		}
	}
	slices.SortFunc(b.Events, func(x, y waiting) int {
		return cmp.Or(x.RecordedAt.Compare(y.RecordedAt), cmp.Compare(x.EventID, y.EventID))
	})
	b.Events = b.Events[:min(len(b.Events), mostListed)]
	if len(b.Events) > 0 {
		b.Oldest = &b.Events[0]
	}
	return b
}

// examine reads items of the index whole.
func (p *program) examine(ctx context.Context, l *ledger.Inspector,
	index []ledger.Item) (map[string]ledger.Item, error) {
	reading := p.Progress()
	var mu sync.Mutex
	items := make(map[string]ledger.Item, len(index))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(32)
	for _, pending := range index {
		group.Go(func() error {
			item, _, err := l.Find(ctx, pending.EventID)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			items[pending.EventID] = item
			reading.Say("looked at %d of %d", len(items), len(index))
			return nil
		})
	}
	return items, group.Wait()
}

func (b backlog) write(t cli.Fields, now time.Time, overdue time.Duration) {
	if b.Pending == 0 {
		fmt.Fprintln(t, "nothing is pending")
		return
	}
	t.Line("pending", "%s", cli.Counted(b.Pending, "event", "events"))
	for _, bus := range slices.Sorted(maps.Keys(b.Buses)) {
		t.Line("bus", "%s: %d", cli.Plain(bus), b.Buses[bus])
	}
	t.Line("overdue", "%d, due for more than %s", b.Overdue, cli.Readable(overdue))
	t.Line("failing", "%d, tried %d times or more", b.Failing, failingFrom)
	if b.Oldest != nil {
		t.Line("oldest", "pending for %s, since %s", cli.Readable(now.Sub(b.Oldest.RecordedAt)),
			cli.Stamp(b.Oldest.RecordedAt))
		t.Line("attempts", "%d at most", b.MostAttempts)
	}
	if b.Examined < b.Pending {
		t.Line("examined", "the %d that are due longest; failing, oldest and attempts are of these", b.Examined)
	}
	if len(b.Events) > 0 {
		fmt.Fprintln(t, "\nRECORDED\tPENDING FOR\tDUE\tATTEMPTS\tBUS\tEVENT\tDELIVERY")
	}
	for _, e := range b.Events {
		due := "in " + cli.Readable(e.Due.Sub(now))
		if !e.Due.After(now) {
			due = "since " + cli.Readable(now.Sub(e.Due))
		}
		fmt.Fprintf(
			t,
			"%s\t%s\t%s\t%d\t%s\t%s\t%s\n",
			cli.Stamp(e.RecordedAt),
			cli.Readable(now.Sub(e.RecordedAt)),
			due,
			e.Attempts,
			cli.Plain(e.Bus),
			cli.Plain(e.EventID),
			cli.Plain(e.DeliveryID),
		)
	}
}
