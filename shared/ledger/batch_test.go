package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithytime "github.com/aws/smithy-go/time"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	adapter "payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/awstest"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
)

// faulty says which statements of a DynamoDB fail.
type faulty struct {
	// statement, if set, decides about a statement of the event of that id: with a code it
	// has no effect; with a code and effect it has.
	statement func(id string) (code string, effect bool)
	// call, if set, decides about a call of n statements before it takes effect.
	call  func(n int) error
	mu    sync.Mutex
	sizes []int // of all batches
}

func idOf(s types.BatchStatementRequest) string {
	for _, p := range s.Parameters {
		if text, ok := p.(*types.AttributeValueMemberS); ok && payment.IsUUID(text.Value) {
			return text.Value // the key is the first id of all statements
		}
	}
	return ""
}

func (f *faulty) hook(ctx context.Context, in any, next awstest.Next) (any, error) {
	batch, ok := in.(*dynamodb.BatchExecuteStatementInput)
	if !ok {
		return next(ctx, in)
	}
	f.mu.Lock()
	f.sizes = append(f.sizes, len(batch.Statements))
	f.mu.Unlock()
	if f.call != nil {
		if err := f.call(len(batch.Statements)); err != nil {
			return nil, err
		}
	}
	all := &dynamodb.BatchExecuteStatementOutput{}
	for _, s := range batch.Statements {
		code, effect := "", true
		if f.statement != nil {
			code, effect = f.statement(idOf(s))
		}
		var r types.BatchStatementResponse
		if code == "" || effect {
			out, err := next(ctx, &dynamodb.BatchExecuteStatementInput{Statements: []types.BatchStatementRequest{s}})
			if err != nil {
				return nil, err
			}
			r = out.(*dynamodb.BatchExecuteStatementOutput).Responses[0]
		}
		if code != "" {
			r = types.BatchStatementResponse{Error: &types.BatchStatementError{
				Code: types.BatchStatementErrorCodeEnum(code)}}
		}
		all.Responses = append(all.Responses, r)
	}
	return all, nil
}

// onBatches makes a hook of what a call of BatchExecuteStatement does.
func onBatches(do func(in *dynamodb.BatchExecuteStatementInput,
	call func() (*dynamodb.BatchExecuteStatementOutput, error)) (any, error)) awstest.Hook {
	return func(ctx context.Context, in any, next awstest.Next) (any, error) {
		batch, ok := in.(*dynamodb.BatchExecuteStatementInput)
		if !ok {
			return next(ctx, in)
		}
		return do(batch, func() (*dynamodb.BatchExecuteStatementOutput, error) {
			out, err := next(ctx, in)
			if err != nil {
				return nil, err
			}
			return out.(*dynamodb.BatchExecuteStatementOutput), nil
		})
	}
}

// newFaulty returns a fixture whose DynamoDB is faulty.
func newFaulty(t *testing.T) (*fixture, *faulty) {
	b, f := newFixture(t), &faulty{}
	b.db.Hook = f.hook
	b.Ledger = ledger.New(adapter.NewLedger(b.db, "ledger"),
		ledger.Options{Now: func() time.Time { return b.now }, Parallel: 1})
	return b, f
}

func (b *fixture) entries(t *testing.T, n int) (all []ledger.Item) {
	for range n {
		all = append(all, b.entry(t, uuid.New().String(), ""))
	}
	return all
}

// recordAll records entries that are due in a minute, and fails the test if one is not
// new.
func (b *fixture) recordAll(t *testing.T, entries []ledger.Item) {
	t.Helper()
	for i, r := range b.Ledger.Record(t.Context(), entries, ledger.NewHolder(), b.now.Add(time.Minute)) {
		if r.Err != nil || r.Outcome != ledger.Recorded {
			t.Fatalf("entry %d: %+v", i, r)
		}
	}
}

var exported = cmpopts.IgnoreUnexported(types.AttributeValueMemberS{}, types.AttributeValueMemberN{},
	types.AttributeValueMemberB{}, types.AttributeValueMemberBOOL{})

func TestABatchWritesWhatSingleWritesWrite(t *testing.T) {
	b := newFixture(t)
	entries := b.entries(t, 2)
	entries[0].Claimed, entries[1].DeliveryID = true, ""
	holder, due := ledger.NewHolder(), b.now.Add(time.Minute)
	states := func(record func(), then ...func()) (all []map[string]awstest.Item) {
		b.db.CreateLedger("ledger")
		for _, step := range append([]func(){record}, then...) {
			step()
			all = append(all, b.db.Items("ledger"))
		}
		return all
	}
	pending := []ledger.Item{{EventID: entries[0].EventID, Due: due}, {EventID: entries[1].EventID, Due: due}}
	until := due.Add(time.Minute)
	var leased [2][]ledger.Leased
	batches := states(func() { b.Ledger.Record(t.Context(), entries, holder, due) },
		func() { leased[0] = b.Ledger.Lease(t.Context(), pending, holder, until) },
		func() { b.Ledger.MarkPublished(t.Context(), entries) })
	if n := b.db.Calls("ExecuteStatement"); n != 0 || b.db.Calls("BatchExecuteStatement") != 3 {
		t.Errorf("%d single writes", n)
	}
	each := func(do func(i int)) func() {
		return func() {
			for i := range entries {
				do(i)
			}
		}
	}
	singles := states(each(func(i int) { b.Ledger.Record(t.Context(), entries[i:i+1], holder, due) }),
		each(func(i int) {
			leased[1] = append(leased[1], b.Ledger.Lease(t.Context(), pending[i:i+1], holder, until)...)
		}),
		each(func(i int) { b.Ledger.MarkPublished(t.Context(), entries[i:i+1]) }))
	if n := b.db.Calls("ExecuteStatement"); n != 6 {
		t.Errorf("%d single writes", n)
	}
	if diff := cmp.Diff(singles, batches, exported); diff != "" {
		t.Error(diff)
	}
	if _, ok := batches[0][entries[1].EventID]["deliveryId"]; ok {
		t.Error("an entry without a delivery has its id")
	}
	if diff := cmp.Diff(leased[1], leased[0]); diff != "" || !leased[0][0].Held || !leased[0][1].Held {
		t.Error(leased[0], diff)
	}
}

func TestABatchHasAMegabyteOfEventsAtMost(t *testing.T) {
	const quarter = 1 << 18
	for name, test := range map[string]struct {
		sizes   []int
		batches []int // with more than one event
	}{
		"exactly":     {[]int{quarter, quarter, quarter, quarter, 1000}, []int{4}},
		"a byte more": {[]int{quarter, quarter, quarter, quarter + 1, 1000}, []int{3, 2}},
		"exactly in the second": {[]int{quarter, quarter, quarter, quarter, quarter, quarter, quarter, quarter, 1000},
			[]int{4, 4}},
		"equal": {slices.Repeat([]int{300_000}, 7), []int{3, 3}},
		"none":  {nil, nil},
	} {
		b, f := newFaulty(t)
		entries := b.entries(t, len(test.sizes))
		for i := range entries {
			e := &entries[i]
			e.Detail = append(e.Detail, bytes.Repeat([]byte(" "), test.sizes[i]-len(e.Detail))...)
		}
		b.recordAll(t, entries)
		alone := len(entries)
		for _, n := range test.batches {
			alone -= n
		}
		if !slices.Equal(f.sizes, test.batches) || b.db.Calls("ExecuteStatement") != alone {
			t.Errorf("%s: batches of %v, %d alone", name, f.sizes, b.db.Calls("ExecuteStatement"))
		}
		if name == "equal" { // a lease answers with the events
			b.now, f.sizes = b.now.Add(time.Hour), nil
			b.Ledger.Lease(t.Context(), b.due(t), ledger.NewHolder(), b.now)
			if !slices.Equal(f.sizes, test.batches) || b.db.Calls("ExecuteStatement") != 2 {
				t.Errorf("leased in batches of %v", f.sizes)
			}
		}
	}
}

func TestOptionsOfALedger(t *testing.T) {
	b, f := newFaulty(t)
	b.Ledger = ledger.New(adapter.NewLedger(b.db, "ledger"), ledger.Options{Batch: 4, Parallel: 1,
		Window: 48 * time.Hour,
		Now:    func() time.Time { return b.now }})
	entries := b.entries(t, 10)
	b.recordAll(t, entries)
	if !slices.Equal(f.sizes, []int{4, 4, 2}) {
		t.Errorf("batches of %v", f.sizes)
	}
	if err := errors.Join(b.Ledger.MarkPublished(t.Context(), entries)...); err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(48 * time.Hour)
	b.recordAll(t, entries) // their window is over
}

// Nothing is tried after the time of the caller.
func TestTheTimeOfTheCallerEndsTheAttempts(t *testing.T) {
	b, f := newFaulty(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	entries := b.entries(t, 3)
	for name, results := range map[string][]ledger.Recording{
		"record":          b.Ledger.Record(ctx, entries, ledger.NewHolder(), b.now),
		"record one":      b.Ledger.Record(ctx, entries[:1], ledger.NewHolder(), b.now),
		"replace":         b.Ledger.Replace(ctx, entries, b.now),
		"record no entry": b.Ledger.Record(ctx, nil, ledger.NewHolder(), b.now),
	} {
		for i, r := range results {
			if !errors.Is(r.Err, context.Canceled) || r.Outcome != 0 {
				t.Errorf("%s %d: %+v", name, i, r)
			}
		}
	}
	if n := b.db.Calls("ExecuteStatement") + len(f.sizes); n != 0 {
		t.Errorf("%d writes without time", n)
	}
	synctest.Test(t, func(t *testing.T) {
		b, f := newFaulty(t)
		entries := b.entries(t, 3)
		b.recordAll(t, entries)
		b.db.Unprocessed = func(string) bool { return true }
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		for i, r := range b.Ledger.Record(ctx, entries, ledger.NewHolder(), b.now) {
			if !errors.Is(r.Err, context.DeadlineExceeded) {
				t.Errorf("%d: %+v", i, r)
			}
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("after %s", took)
		}
		// A statement that is throttled until then is not tried after it.
		f.sizes, f.statement = nil, func(string) (string, bool) { return "ThrottlingError", false }
		ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		for i, err := range b.Ledger.MarkPublished(ctx, entries) {
			if err == nil {
				t.Errorf("%d is marked", i)
			}
		}
		// At 0, 25, 75 and 175 ms, and a call that fails at the end.
		if len(f.sizes) > 5 {
			t.Errorf("%d calls", len(f.sizes))
		}
	})
}

// An id that the ledger has is new, a duplicate or a conflict in a batch as in a single
// write, and takes no other with it.
func TestEachEntryOfABatchHasItsOwnOutcome(t *testing.T) {
	b, _ := newFaulty(t)
	expired, published, pending, parked := b.entry(t, uuid.New().String(), ""), b.entry(t, uuid.New().String(), ""),
		b.entry(t, uuid.New().String(), ""), b.entry(t, uuid.New().String(), "")
	mark := func(errs []error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	b.recordAll(t, []ledger.Item{expired, pending})
	mark(b.Ledger.MarkPublished(t.Context(), []ledger.Item{expired}))
	b.now = b.now.Add(ledger.DefaultWindow)
	b.recordAll(t, []ledger.Item{published, parked})
	mark(b.Ledger.MarkPublished(t.Context(), []ledger.Item{published}))
	mark([]error{b.Park(t.Context(), parked, "", "")})

	other := func(e ledger.Item) ledger.Item { return b.entry(t, e.EventID, "1") }
	first := []ledger.Item{b.entries(t, 1)[0], other(published), pending, other(parked), expired, b.entries(t, 1)[0]}
	second := []ledger.Item{first[0], published, other(pending), parked, other(expired)}
	reads, writes := b.db.Calls("BatchGetItem"), b.db.Calls("ExecuteStatement")
	for n, test := range []struct {
		entries []ledger.Item
		want    []ledger.Outcome
	}{
		{first, []ledger.Outcome{ledger.Recorded, ledger.Conflict, ledger.Duplicate, ledger.Conflict,
			ledger.Recorded, ledger.Recorded}},
		{second, []ledger.Outcome{ledger.Duplicate, ledger.Duplicate, ledger.Conflict, ledger.Recorded,
			ledger.Conflict}},
	} {
		var got []ledger.Outcome
		for _, r := range b.Ledger.Record(t.Context(), test.entries, ledger.NewHolder(), b.now) {
			if r.Err != nil {
				t.Error(r.Err)
			}
			got = append(got, r.Outcome)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%d: got %v, want %v", n, got, test.want)
		}
	}
	// What was found is read at once. Only what has expired or was parked is written again.
	if r, w := b.db.Calls("BatchGetItem")-reads, b.db.Calls("ExecuteStatement")-writes; r != 2 || w != 2 {
		t.Errorf("%d reads, %d single writes", r, w)
	}
}

var transientCodes = []string{"ThrottlingError", "ProvisionedThroughputExceeded", "RequestLimitExceeded",
	"TransactionConflict", "InternalServerError"}

// Only the statements that failed are tried again. One that failed in DynamoDB may have
// taken effect.
func TestStatementsThatFailForAMomentAreTriedAgain(t *testing.T) {
	for _, code := range transientCodes {
		for _, effect := range []bool{false, code == "InternalServerError"} {
			synctest.Test(t, func(t *testing.T) {
				b, f := newFaulty(t)
				entries := b.entries(t, 25)
				failures := map[string]int{}
				fail := func() {
					f.sizes = nil
					clear(failures)
					failures[entries[3].EventID], failures[entries[24].EventID] = 3, 1
				}
				f.statement = func(id string) (string, bool) {
					if failures[id]--; failures[id] >= 0 {
						return code, effect
					}
					return "", true
				}
				tried := func(what string) {
					t.Helper()
					if !slices.Equal(f.sizes, []int{25, 2, 1, 1}) {
						t.Errorf("%s, %s: batches of %v", code, what, f.sizes)
					}
				}
				fail()
				b.recordAll(t, entries)
				tried("record")
				b.now = b.now.Add(time.Hour)
				due := b.due(t)
				fail()
				for _, l := range b.Ledger.Lease(t.Context(), due, ledger.NewHolder(), b.now.Add(time.Minute)) {
					if !l.Held || l.Err != nil || l.Item.Attempts != 1 {
						t.Errorf("%s: %+v", code, l)
					}
				}
				tried("lease")
				fail()
				if err := errors.Join(b.Ledger.MarkPublished(t.Context(), entries)...); err != nil {
					t.Error(err)
				}
				tried("mark")
				b.now = b.now.Add(time.Hour)
				if n := len(b.due(t)); n != 0 {
					t.Errorf("%d are not marked", n)
				}
			})
		}
	}
}

// The number of attempts is limited.
func TestAStatementThatFailsAgainAndAgainIsAnError(t *testing.T) {
	for _, code := range append(slices.Clone(transientCodes), "AccessDenied", "ResourceNotFound",
		"ItemCollectionSizeLimitExceeded", "SomethingNew") {
		synctest.Test(t, func(t *testing.T) {
			b, f := newFaulty(t)
			entries := b.entries(t, 3)
			f.statement = func(id string) (string, bool) {
				if id == entries[1].EventID {
					return code, false
				}
				return "", true
			}
			calls, took := 1, time.Duration(0)
			if slices.Contains(transientCodes, code) {
				calls, took = 12, 6575*time.Millisecond // pauses of 25 ms, doubled up to a second
			}
			start := time.Now()
			got := b.Ledger.Record(t.Context(), entries, ledger.NewHolder(), b.now)
			for i, r := range got {
				if (i == 1) != (r.Err != nil) || (i == 1) == (r.Outcome == ledger.Recorded) {
					t.Errorf("%s: %d: %+v", code, i, r)
				}
			}
			want := "ledger: record " + entries[1].EventID + ": DynamoDB BatchExecuteStatement: " + code
			if got[1].Err == nil || got[1].Err.Error() != want {
				t.Errorf("got %v, want %s", got[1].Err, want)
			}
			if len(f.sizes) != calls || time.Since(start) != took || len(b.db.Items("ledger")) != 2 {
				t.Errorf("%s: batches of %v in %v", code, f.sizes, time.Since(start))
			}
			f.statement = func(string) (string, bool) { return code, false }
			for i, err := range b.Ledger.MarkPublished(t.Context(), entries) {
				if err == nil {
					t.Errorf("%s: mark %d", code, i)
				}
			}
			for i, l := range b.Ledger.Lease(t.Context(), b.due(t), ledger.NewHolder(), b.now) {
				if l.Held || l.Err == nil {
					t.Errorf("%s: lease %d: %v", code, i, l.Err)
				}
			}
		})
	}
}

// A call that fails leaves each of its entries uncertain, and those of others as they are.
func TestABatchWhoseAnswerIsLostIsUncertain(t *testing.T) {
	b, f := newFaulty(t)
	entries := b.entries(t, 60)
	lost := errors.New("connection reset")
	calls := 0
	f.call = func(int) error {
		if calls++; calls == 2 {
			return lost
		}
		return nil
	}
	for i, r := range b.Ledger.Record(t.Context(), entries, ledger.NewHolder(), b.now) {
		if (i >= 25 && i < 50) != errors.Is(r.Err, lost) {
			t.Errorf("%d: %+v", i, r)
		}
	}
	calls = 0
	for i, err := range b.Ledger.MarkPublished(t.Context(), entries) {
		if (i >= 25 && i < 50) != errors.Is(err, lost) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if calls != 3 {
		t.Errorf("%d calls", calls)
	}
}

// DynamoDB may reject a call because of one of its statements.
func TestWhatDynamoDBRejectsIsWrittenOneByOne(t *testing.T) {
	for name, reject := range map[string]func(f *faulty){
		"the call": func(f *faulty) {
			f.call = func(int) error { return &smithy.GenericAPIError{Code: "ValidationException"} }
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, f := newFaulty(t)
			reject(f)
			entries := b.entries(t, 3)
			b.recordAll(t, entries)
			b.now = b.now.Add(time.Hour)
			for _, l := range b.Ledger.Lease(t.Context(), b.due(t), ledger.NewHolder(), b.now) {
				if !l.Held || l.Err != nil {
					t.Errorf("%+v", l)
				}
			}
			if err := errors.Join(b.Ledger.MarkPublished(t.Context(), entries)...); err != nil ||
				len(b.due(t)) != 0 {
				t.Errorf("%v, %d due", err, len(b.due(t)))
			}
		})
	}
}

func TestALeaseWithoutTheItemIsCompleted(t *testing.T) {
	b := newFixture(t)
	b.recordAll(t, b.entries(t, 3))
	b.now = b.now.Add(time.Hour)
	// An engine whose batches return no items.
	b.db.Hook = onBatches(func(_ *dynamodb.BatchExecuteStatementInput,
		call func() (*dynamodb.BatchExecuteStatementOutput, error)) (any, error) {
		out, err := call()
		for i := range out.Responses {
			out.Responses[i].Item = nil
		}
		return out, err
	})
	for _, l := range b.Ledger.Lease(t.Context(), b.due(t), ledger.NewHolder(), b.now.Add(time.Minute)) {
		if !l.Held || l.Err != nil || l.Item.EventName == "" || l.Item.Attempts != 1 {
			t.Errorf("%+v", l)
		}
	}
}

func TestAnAnswerThatIsTooShortIsAnError(t *testing.T) {
	b := newFixture(t)
	b.db.Hook = onBatches(func(*dynamodb.BatchExecuteStatementInput,
		func() (*dynamodb.BatchExecuteStatementOutput, error)) (any, error) {
		return &dynamodb.BatchExecuteStatementOutput{Responses: make([]types.BatchStatementResponse, 2)}, nil
	})
	for i, r := range b.Ledger.Record(t.Context(), b.entries(t, 3), ledger.NewHolder(), b.now) {
		if r.Err == nil {
			t.Errorf("%d: %+v", i, r)
		}
	}
}

// An archive of the bus is searched by the time that an event has on the bus. The bus leaves
// out a time that the SDK can't represent.
func TestAMarkKeepsTheTimeOnTheBus(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 120e6, time.UTC)
	for name, test := range map[string]struct{ times, want []time.Time }{
		"one event":   {[]time.Time{at}, []time.Time{at}},
		"nanoseconds": {[]time.Time{at.Add(456789)}, []time.Time{at}},
		"the first":   {[]time.Time{time.UnixMilli(0)}, []time.Time{time.UnixMilli(0)}},
		"no time":     {[]time.Time{{}}, []time.Time{{}}},
		"year 1500":   {[]time.Time{at.AddDate(-526, 0, 0)}, []time.Time{{}}},
		"two events":  {[]time.Time{at, at.Add(time.Hour)}, []time.Time{at, at.Add(time.Hour)}},
		"one of two":  {[]time.Time{at.AddDate(300, 0, 0), at}, []time.Time{{}, at}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t)
			entries := b.entries(t, len(test.times))
			for i, at := range test.times {
				entries[i].EventTimestamp = at
			}
			b.recordAll(t, entries)
			if err := errors.Join(b.Ledger.MarkPublished(t.Context(), entries)...); err != nil {
				t.Fatal(err)
			}
			for i, e := range entries {
				item, _, err := b.Find(t.Context(), e.EventID)
				_, kept := b.db.Items("ledger")[e.EventID]["eventTimestamp"]
				if err != nil || !item.EventTimestamp.Equal(test.want[i]) || kept == test.want[i].IsZero() ||
					item.PublishedAt.IsZero() {
					t.Errorf("%d: %+v, %v", i, item, err)
				}
			}
		})
	}
}

// If writes take more than an eighth of the time, the entries are read meanwhile. The
// caller's own writes are new also then, even if their answers are lost.
func TestEntriesAreReadWhileWritesAreSlow(t *testing.T) {
	for takes, reads := range map[time.Duration]int{
		999 * time.Millisecond: 0, 1001 * time.Millisecond: 1, time.Hour: 1,
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newFixture(t)
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			defer cancel()
			// Statements take effect at once, and are answered later.
			b.db.Hook = onBatches(func(_ *dynamodb.BatchExecuteStatementInput,
				call func() (*dynamodb.BatchExecuteStatementOutput, error)) (any, error) {
				out, err := call()
				return out, errors.Join(err, smithytime.SleepWithContext(ctx, takes))
			})
			for i, r := range b.Ledger.Record(ctx, b.entries(t, 50), ledger.NewHolder(), b.now) {
				if r.Outcome != ledger.Recorded || r.Err != nil {
					t.Errorf("%s, %d: %+v", takes, i, r)
				}
			}
			if n := b.db.Calls("BatchGetItem"); n != reads {
				t.Errorf("%s: %d reads", takes, n)
			}
		})
	}
}

// The SDK repeats a write whose answer is lost after it took effect, alone or in a batch.
func TestAWriteWhoseAnswerIsLostIsKnownAgain(t *testing.T) {
	for _, n := range []int{1, 30} {
		b := newFixture(t)
		b.db.Hook = func(ctx context.Context, in any, next awstest.Next) (any, error) {
			switch in.(type) {
			case *dynamodb.ExecuteStatementInput, *dynamodb.BatchExecuteStatementInput:
				if _, err := next(ctx, in); err != nil {
					return nil, err
				}
			}
			return next(ctx, in)
		}
		entries := b.entries(t, n)
		b.recordAll(t, entries)
		for i, r := range b.Ledger.Record(t.Context(), entries, ledger.NewHolder(), b.now) {
			if r.Outcome != ledger.Duplicate || r.Err != nil {
				t.Errorf("%d: another holder: %+v", i, r)
			}
		}
		b.now = b.now.Add(time.Hour)
		due, holder := b.due(t), ledger.NewHolder()
		for _, test := range []struct {
			holder ledger.Holder
			held   bool
		}{{holder, true}, {ledger.NewHolder(), false}} {
			for i, l := range b.Ledger.Lease(t.Context(), due, test.holder, b.now.Add(time.Minute)) {
				if l.Held != test.held || l.Err != nil || l.Held && l.Item.Attempts != 1 {
					t.Errorf("%d: %+v", i, l)
				}
			}
		}
	}
}

func TestAMarkLeavesWhatIsNotPending(t *testing.T) {
	for _, alone := range []bool{true, false} {
		b := newFixture(t)
		entries := b.entries(t, 3)
		b.recordAll(t, entries[:2])
		if err := errors.Join(b.Ledger.MarkPublished(t.Context(), entries[:1])...); err != nil {
			t.Fatal(err)
		}
		before := b.db.Items("ledger")
		b.now = b.now.Add(time.Hour)
		late := []ledger.Item{entries[0], b.entry(t, entries[1].EventID, "1"), entries[2]}
		var errs []error
		if alone {
			for _, e := range late {
				errs = append(errs, b.Park(t.Context(), e, "", ""))
			}
		} else {
			errs = b.Ledger.MarkPublished(t.Context(), late)
		}
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(before, b.db.Items("ledger"), exported); diff != "" {
			t.Error(diff)
		}
	}
}
