package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"payhook.example/shared/ledger"
	"payhook.example/shared/settings"
)

const pendingUsage = `Usage: operator pending [--oldest N] [--overdue DURATION] [--examine N]

What is recorded and not on the bus yet: how many events, since when the oldest,
how often redrive has tried. Normally that is nothing, or what is under way.

  overdue  nobody took it for --overdue since it was due: redrive does not run,
           or can't keep up
  failing  redrive has tried twice or more, and will try again

Exit status 1: something is overdue or failing.

  --oldest N          list so many of the oldest (default 10)
  --overdue DURATION  as in 90s, 10m, 1d (default 2m: two runs of redrive)
  --examine N         look closer at so many events, the longest due (default
                      1000); oldest, attempts and failing are of these
  --json              one document: pending, overdue, failing, examined,
                      mostAttempts, oldest, events: eventId, deliveryId,
                      recordedAt, ageSeconds, due, attempts, claimed
`

func pendingFlags(p *program, o *options, f *flag.FlagSet) {
	o.overdue = 2 * time.Minute
	f.IntVar(&o.oldest, "oldest", 10, "")
	f.IntVar(&o.examine, "examine", 1000, "")
	f.Func("overdue", "", func(text string) (err error) {
		o.overdue, err = settings.ParseDuration(text)
		return err
	})
}

// waiting is one event that is pending.
type waiting struct {
	EventID    string    `json:"eventId"`
	DeliveryID string    `json:"deliveryId"`
	RecordedAt time.Time `json:"recordedAt"`
	AgeSeconds float64   `json:"ageSeconds"`
	Due        time.Time `json:"due"`
	Attempts   int       `json:"attempts"`
	Claimed    bool      `json:"claimed"`
}

// backlog is everything that is pending.
type backlog struct {
	Pending      int       `json:"pending"`
	Overdue      int       `json:"overdue"`
	Failing      int       `json:"failing"`
	Examined     int       `json:"examined"`
	MostAttempts int       `json:"mostAttempts"`
	Oldest       *waiting  `json:"oldest,omitempty"`
	Events       []waiting `json:"events"`
}

// failingFrom is the number of attempts from which an item is said to fail. One
// is normal for what its receiver did not come to publish.
const failingFrom = 2

func (p *program) pending(ctx context.Context, o *options, _ []string) error {
	if o.oldest < 0 || o.examine < 1 || o.overdue < 0 {
		return usageError("--oldest and --overdue must not be negative, and --examine at least 1")
	}
	d, err := p.connect(ctx, o.target)
	if err != nil {
		return err
	}
	book, err := d.ledger()
	if err != nil {
		return err
	}
	reading := p.progress()
	index, err := book.Backlog(ctx, func(total int) { reading.say("%s so far", counted(total, "event", "events")) })
	if err != nil {
		return err
	}
	now := p.now()
	b := backlog{Pending: len(index), Events: []waiting{}}
	events, err := p.examine(ctx, book, index[:min(len(index), o.examine)])
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
			item.EventID, item.DeliveryID, item.RecordedAt, seconds(now.Sub(item.RecordedAt)), item.Due, item.Attempts, item.Claimed,
		})
	}
	b.Pending -= len(gone)
	for _, item := range index {
		due := item.Due
		if seen, ok := events[item.EventID]; ok {
			due = seen.Due
		}
		if !gone[item.EventID] && now.Sub(due) > o.overdue {
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
		return errPerson
	}
	return nil
}

// examine reads items of the index whole.
func (p *program) examine(ctx context.Context, book *ledger.Inspector, index []ledger.Pending) (map[string]ledger.Item, error) {
	reading := p.progress()
	var mu sync.Mutex
	items := make(map[string]ledger.Item, len(index))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(32)
	for _, pending := range index {
		group.Go(func() error {
			item, _, err := book.Find(ctx, pending.EventID)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			items[pending.EventID] = item
			reading.say("looked at %d of %d", len(items), len(index))
			return nil
		})
	}
	return items, group.Wait()
}

func (p *program) printBacklog(b backlog, o *options, now time.Time) error {
	if o.json {
		return printJSON(p.out, b)
	}
	if b.Pending == 0 {
		_, err := fmt.Fprintln(p.out, "nothing is pending")
		return err
	}
	s := newSheet(p.out)
	s.line("pending", "%s", counted(b.Pending, "event", "events"))
	s.line("overdue", "%d, due for more than %s", b.Overdue, readable(o.overdue))
	s.line("failing", "%d, tried %d times or more", b.Failing, failingFrom)
	if b.Oldest != nil {
		s.line("oldest", "pending for %s, since %s", readable(now.Sub(b.Oldest.RecordedAt)), stamp(b.Oldest.RecordedAt))
		s.line("attempts", "%d at most", b.MostAttempts)
	}
	if b.Examined < b.Pending {
		s.line("examined", "the %d longest due; failing, oldest and attempts are of these", b.Examined)
	}
	if err := s.Flush(); err != nil || len(b.Events) == 0 {
		return err
	}
	t := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nRECORDED\tPENDING FOR\tDUE\tATTEMPTS\tEVENT\tDELIVERY")
	for _, e := range b.Events {
		due := "in " + readable(e.Due.Sub(now))
		if !e.Due.After(now) {
			due = "since " + readable(now.Sub(e.Due))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\n", stamp(e.RecordedAt), readable(now.Sub(e.RecordedAt)), due, e.Attempts, plain(e.EventID), plain(e.DeliveryID))
	}
	return t.Flush()
}
