package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/awstest"
	"payhook.example/shared/ledger"
)

// of returns a ledger of another bus in the same table.
func (b *fixture) of(bus string) one {
	return one{ledger.New(b.db, "ledger", bus, ledger.Options{Now: func() time.Time { return b.now }})}
}

// A second stack with the same ledger has its own bus. It knows the events of the first,
// and has no effect on those that are pending.
func TestAPendingItemBelongsToOneBus(t *testing.T) {
	for _, n := range []int{1, 2} { // single writes, and a batch
		b := newFixture(t)
		first, second := b.Ledger, b.of("second")
		entries := b.entries(t, n)
		holder := ledger.NewHolder()
		first.Record(t.Context(), entries, holder, b.now)
		if due := (&fixture{second, b.db, b.now}).due(t); len(due) != 0 {
			t.Errorf("%d: redrive of the second bus finds %v", n, due)
		}
		if waiting := b.due(t); len(waiting) != n || waiting[0].Bus() != "bus" {
			t.Errorf("%d: redrive of the first bus finds %v", n, waiting)
		}
		before := b.db.Items("ledger")
		var pending []ledger.Item
		for _, e := range entries {
			pending = append(pending, ledger.Item{EventID: e.EventID, Due: b.now})
		}
		for _, l := range second.Ledger.Lease(t.Context(), pending, holder, b.now) {
			if l.Held || l.Err != nil {
				t.Errorf("%d: it leases %+v", n, l)
			}
		}
		errs := append(second.Ledger.MarkPublished(t.Context(), entries),
			second.MarkParked(t.Context(), entries[0]),
			second.Postpone(t.Context(), entries[0], holder, b.now.Add(time.Hour)))
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		for name, r := range map[string][]ledger.Recording{
			"record":  second.Ledger.Record(t.Context(), entries, ledger.NewHolder(), b.now),
			"restore": second.Restore(t.Context(), entries, b.now),
			"replace": second.Replace(t.Context(), entries, b.now),
		} {
			if r[0].Outcome != ledger.Duplicate {
				t.Errorf("%d: %s: %+v", n, name, r[0])
			}
		}
		if diff := cmp.Diff(before, b.db.Items("ledger"), exported); diff != "" {
			t.Errorf("%d: %s", n, diff)
		}
	}
}

// What is moved is of the new bus alone, as if it had just been recorded there. What is held
// stays until it is due.
func TestMoveTakesWhatIsDueOfAnotherBus(t *testing.T) {
	b := newFixture(t)
	second := &fixture{one: b.of("second"), db: b.db, now: b.now}
	entries := b.entries(t, 300)
	holder := ledger.NewHolder()
	b.Ledger.Record(t.Context(), entries[:299], holder, b.now)
	b.Ledger.Record(t.Context(), entries[299:], holder, b.now.Add(time.Minute))
	other := b.entry(t, uuid.New().String(), "")
	b.of("third").Ledger.Record(t.Context(), []ledger.Entry{other}, holder, b.now)
	tried := ledger.Item{EventID: entries[0].EventID, Due: b.now}
	if _, held, err := b.Lease(t.Context(), tried, holder, b.now); !held || err != nil {
		t.Fatal(held, err)
	}

	moves := func(want int) {
		t.Helper()
		if n, err := second.Move(t.Context(), "bus"); n != want || err != nil {
			t.Errorf("%d moved, %v, want %d", n, err, want)
		}
	}
	moves(299)
	if n := len(b.due(t)); n != 0 {
		t.Errorf("%d are left", n)
	}
	if err := b.Postpone(t.Context(), entries[0], holder, b.now.Add(time.Hour)); err != nil {
		t.Error(err)
	}
	due := second.due(t)
	if len(due) != 299 {
		t.Errorf("%d are due on the second bus", len(due))
	}
	for i, l := range second.Ledger.Lease(t.Context(), due, ledger.NewHolder(), b.now.Add(time.Minute)) {
		if !l.Held || l.Err != nil || l.Entry.Attempts != 1 {
			t.Fatalf("%d: %+v", i, l)
		}
	}
	moves(0)
	b.now = b.now.Add(time.Minute)
	moves(1)
}

func TestMoveAndLeaseExcludeEachOther(t *testing.T) {
	b := newFixture(t)
	e := b.entry(t, uuid.New().String(), "")
	b.recordDue(t, e)
	seen := ledger.Item{EventID: e.EventID, Due: b.now}
	holder := ledger.NewHolder()
	lease := func(want bool) {
		t.Helper()
		if _, held, err := b.Lease(t.Context(), seen, holder, b.now); held != want || err != nil {
			t.Errorf("held: %v, %v", held, err)
		}
	}
	until := b.now.Add(time.Minute)
	// It is leased after it is found, and before it is moved.
	b.db.Hook = func(ctx context.Context, in any, next awstest.Next) (any, error) {
		out, err := next(ctx, in)
		if read, ok := out.(*dynamodb.QueryOutput); ok && len(read.Items) > 0 {
			if _, held, err := b.Lease(t.Context(), seen, holder, until); !held || err != nil {
				t.Errorf("held: %v, %v", held, err)
			}
		}
		return out, err
	}
	if n, err := b.of("second").Move(t.Context(), "bus"); n != 0 || err != nil {
		t.Errorf("%d moved that is leased, %v", n, err)
	}
	b.db.Hook, b.now = nil, until
	if n, err := b.of("second").Move(t.Context(), "bus"); n != 1 || err != nil {
		t.Errorf("%d moved, %v", n, err)
	}
	seen.Due = until
	lease(false) // also if it is its own lease by holder and due
	// Of two moves of the same item, one counts it.
	b.recordDue(t, b.entry(t, uuid.New().String(), ""))
	others := -1
	b.db.Hook = func(ctx context.Context, in any, next awstest.Next) (any, error) {
		out, err := next(ctx, in)
		if read, ok := out.(*dynamodb.QueryOutput); ok && len(read.Items) > 0 && others < 0 {
			others = 0
			others, _ = b.of("second").Move(t.Context(), "bus")
		}
		return out, err
	}
	if n, err := ledger.New(b.db, "ledger", "second", ledger.Options{Parallel: 1,
		Now: func() time.Time { return b.now }}).Move(t.Context(), "bus"); n+others != 1 || err != nil {
		t.Errorf("%d and %d moved, %v", n, others, err)
	}
}

// The sizes that the documents name: a write unit has 1 KiB, and an item at most 400 KiB.
func TestTheNameOfTheBusIsPartOfTheItem(t *testing.T) {
	for _, test := range []struct{ bus, event, item int }{
		{len("payhook"), 810, 1 << 10}, {256, ledger.MaxEventBytes, 400 << 10},
	} {
		b := newFixture(t)
		e := b.entry(t, uuid.New().String(), "")
		e.Detail = fmt.Appendf(e.Detail, "%*s", test.event-len(e.Detail), "")
		bus := b.of(fmt.Sprintf("%0*d", test.bus, 0))
		if _, err := bus.Record(t.Context(), e, ledger.NewHolder(), b.now); err != nil {
			t.Fatal(err)
		}
		if got := awstest.ItemSize(b.db.Items("ledger")[e.EventID]); got > test.item {
			t.Errorf("an event of %d bytes takes %d", test.event, got)
		}
	}
}
