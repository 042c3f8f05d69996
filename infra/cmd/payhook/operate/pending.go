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

// pendingOptions are the flags of pending.
type pendingOptions struct {
	oldest, examine int
	overdue         time.Duration
}

func (p *program) pendingCommand() *cobra.Command {
	var o pendingOptions
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
		Example: "  payhook pending\n  payhook pending --local --oldest 50",
		Args:    cli.Args(),
		RunE:    run(func(ctx context.Context, _ []string) error { return p.pending(ctx, o) }),
	}
	f := cmd.Flags()
	f.IntVar(&o.oldest, "oldest", 10, "list this many of the oldest")
	f.IntVar(&o.examine, "examine", 1000,
		"read this many events that are due longest; oldest, attempts and failing are of these")
	cli.DurationVar(f, &o.overdue, "overdue", 2*time.Minute,
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

// failingFrom is the number of attempts from which an item is said to fail. One
// is normal for what its receiver did not come to publish.
const failingFrom = 2

func (p *program) pending(ctx context.Context, o pendingOptions) error {
	if o.oldest < 0 || o.examine < 1 || o.overdue < 0 {
		return cli.Usage("--oldest and --overdue must not be negative, and --examine at least 1")
	}
	d, err := p.connect(ctx, *p.target)
	if err != nil {
		return err
	}
	l, err := d.ledger()
	if err != nil {
		return err
	}
	reading := p.Progress()
	index, err := l.Backlog(ctx, func(total int) { reading.Say("%s so far", cli.Counted(total, "event", "events")) })
	if err != nil {
		return err
	}
	now := p.Now()
	b := backlog{Pending: len(index), Buses: map[string]int{}, Events: []waiting{}}
	events, err := p.examine(ctx, l, index[:min(len(index), o.examine)])
	if err != nil {
		return err
	}
	gone := map[string]bool{} // the index follows the table with a delay
	for id, item := range events {
		if !item.Pending {
			gone[id] = true
			continue
		}
		b.Examined++
		b.MostAttempts = max(b.MostAttempts, item.Attempts)
		if item.Attempts >= failingFrom {
			b.Failing++
		}
		b.Events = append(b.Events, waiting{
			item.EventID, item.Bus, item.DeliveryID, item.RecordedAt, cli.Seconds(now.Sub(item.RecordedAt)), item.Due,
			item.Attempts, item.Claimed,
		})
	}
	b.Pending -= len(gone)
	for _, item := range index {
		due := item.Due
		if seen, ok := events[item.EventID]; ok {
			due = seen.Due
		}
		if gone[item.EventID] {
			continue
		}
		b.Buses[item.Bus]++
		if now.Sub(due) > o.overdue {
			b.Overdue++
		}
	}
	slices.SortFunc(b.Events, func(x, y waiting) int {
		return cmp.Or(x.RecordedAt.Compare(y.RecordedAt), cmp.Compare(x.EventID, y.EventID))
	})
	if len(b.Events) > 0 {
		b.Oldest = &b.Events[0]
	}
	b.Events = b.Events[:min(len(b.Events), o.oldest)]
	if err := p.printBacklog(b, o, now); err != nil {
		return err
	}
	if b.Overdue > 0 || b.Failing > 0 {
		return cli.ErrAttention
	}
	return nil
}

// examine reads items of the index whole.
func (p *program) examine(ctx context.Context, l *ledger.Inspector,
	index []ledger.Pending) (map[string]ledger.Item, error) {
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

func (p *program) printBacklog(b backlog, o pendingOptions, now time.Time) error {
	if p.JSON {
		return p.PrintJSON(b)
	}
	if b.Pending == 0 {
		_, err := fmt.Fprintln(p.Out, "nothing is pending")
		return err
	}
	s := p.Fields()
	s.Line("pending", "%s", cli.Counted(b.Pending, "event", "events"))
	for _, bus := range slices.Sorted(maps.Keys(b.Buses)) {
		s.Line("bus", "%s: %d", cli.Plain(bus), b.Buses[bus])
	}
	s.Line("overdue", "%d, due for more than %s", b.Overdue, cli.Readable(o.overdue))
	s.Line("failing", "%d, tried %d times or more", b.Failing, failingFrom)
	if b.Oldest != nil {
		s.Line("oldest", "pending for %s, since %s", cli.Readable(now.Sub(b.Oldest.RecordedAt)),
			cli.Stamp(b.Oldest.RecordedAt))
		s.Line("attempts", "%d at most", b.MostAttempts)
	}
	if b.Examined < b.Pending {
		s.Line("examined", "the %d that are due longest; failing, oldest and attempts are of these", b.Examined)
	}
	if err := s.Flush(); err != nil || len(b.Events) == 0 {
		return err
	}
	t := p.Table()
	fmt.Fprintln(t, "\nRECORDED\tPENDING FOR\tDUE\tATTEMPTS\tBUS\tEVENT\tDELIVERY")
	for _, e := range b.Events {
		due := "in " + cli.Readable(e.Due.Sub(now))
		if !e.Due.After(now) {
			due = "since " + cli.Readable(now.Sub(e.Due))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", cli.Stamp(e.RecordedAt), cli.Readable(now.Sub(e.RecordedAt)), due,
			e.Attempts, cli.Plain(e.Bus), cli.Plain(e.EventID), cli.Plain(e.DeliveryID))
	}
	return t.Flush()
}
