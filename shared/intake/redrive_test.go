package intake_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/smithy-go"

	"payhook.example/shared/awstest"
	"payhook.example/shared/bus"
	"payhook.example/shared/claimcheck"
	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
	"payhook.example/shared/names"
	"payhook.example/shared/parallel"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

// stack is a ledger with events in it, a bus, and buckets.
type stack struct {
	db      *awstest.DynamoDB
	bus     *awstest.EventBridge
	buckets *awstest.S3
	parking *parking.Store
	now     time.Time
	// change, if set, makes another event of the one at a position of pend.
	change func(i int, raw []byte) []byte
}

func newStack() *stack {
	s := &stack{db: awstest.NewDynamoDB(), bus: &awstest.EventBridge{}, buckets: awstest.NewS3(),
		now: time.Now().Truncate(time.Millisecond)}
	s.buckets.MakeBucket("parking")
	s.buckets.MakeBucket("claims")
	s.parking = parking.NewStore(s.buckets, "parking")
	s.db.CreateLedger("ledger")
	return s
}

func (s *stack) clock() time.Time { return s.now }

func (s *stack) ledger(api ledger.API) *ledger.Ledger {
	return ledger.New(api, "ledger", "bus", ledger.Options{Now: s.clock})
}

func (s *stack) eventBus() *bus.Bus {
	return bus.New(s.bus, "bus", "source", 1<<20)
}

func init() { parallel.PauseOf = func(time.Duration) time.Duration { return 0 } }

// pipeline is one with the ledger that api has, and with the buckets.
func (s *stack) pipeline(api ledger.API, opts intake.Options) *intake.Pipeline {
	return intake.NewPipeline(s.ledger(api), s.eventBus(), claimcheck.NewStore(s.buckets, "claims"), s.parking, opts)
}

// maxAttempts is how often redrive tries an event in most tests.
const maxAttempts = 20

func (s *stack) redriver(api ledger.API) *intake.Redriver {
	return intake.NewRedriver(s.pipeline(api, intake.Options{Now: s.clock}), maxAttempts)
}

// run makes one run of redrive that has a minute.
func (s *stack) run(t *testing.T) intake.Redriven {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), s.now.Add(time.Minute))
	defer cancel()
	r := s.redriver(s.db).Run(ctx)
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	return r
}

// pend records n events without publishing them, each due a millisecond after
// the one before, the last one now.
func (s *stack) pend(t *testing.T, n int) (ids []string) {
	t.Helper()
	for i := range n {
		raw := paymenttest.Encode(paymenttest.Event())
		if s.change != nil {
			raw = s.change(i, raw)
		}
		event, err := payment.DecodeRawEvent(raw)
		if err != nil {
			t.Fatal(err)
		}
		due := s.now.Add(time.Duration(i-n+1) * time.Millisecond)
		e := ledger.NewEntry(event, uuid.New().String(), due.Add(-time.Minute))
		if r := s.ledger(s.db).Record(t.Context(), []ledger.Entry{e}, ledger.NewHolder(), due); r[0].Err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.EventID)
	}
	return ids
}

// published returns how often each event is on the bus.
func (s *stack) published() map[string]int {
	count := map[string]int{}
	for _, entry := range s.bus.Entries() {
		event, err := payment.DecodeRawEvent([]byte(*entry.Detail))
		if err != nil {
			panic(err)
		}
		count[event.EventID]++
	}
	return count
}

func (s *stack) pending() (n int) {
	for _, item := range s.db.Items("ledger") {
		if item[names.LedgerPendingShard] != nil {
			n++
		}
	}
	return n
}

func TestWhatIsDueReachesTheBusOnce(t *testing.T) {
	s := newStack()
	ids := s.pend(t, 300)
	r := s.run(t)
	if r.Found != 300 || r.Published != 300 || r.Left || r.Oldest != time.Minute+299*time.Millisecond {
		t.Errorf("got %+v", r)
	}
	count := s.published()
	for _, id := range ids {
		if count[id] != 1 {
			t.Errorf("%s is on the bus %d times", id, count[id])
		}
	}
	if s.pending() != 0 || s.run(t) != (intake.Redriven{}) {
		t.Error("something is left")
	}
}

func TestNothingIsTakenFromWhoMayStillBeWorkingOnIt(t *testing.T) {
	s := newStack()
	s.pend(t, 3)
	s.now = s.now.Add(-time.Second)
	if r := s.run(t); r.Found != 0 || len(s.bus.Entries()) != 0 {
		t.Errorf("got %+v", r)
	}
}

func TestTheDeliveryAndTimeOfARedrivenEventAreItsOwn(t *testing.T) {
	s := newStack()
	s.pend(t, 1)
	s.run(t)
	entry := s.bus.Entries()[0]
	event, err := payment.DecodeRawEvent([]byte(*entry.Detail))
	if err != nil {
		t.Fatal(err)
	}
	if !payment.IsUUID(entry.Resources[0]) || !entry.Time.Equal(event.EventTimestamp) ||
		*entry.DetailType != event.EventName || *entry.Source != "source" {
		t.Errorf("got %+v", entry)
	}
}

func TestRedriversAtOnceNeverPublishTheSameItem(t *testing.T) {
	s := newStack()
	ids := s.pend(t, 500)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			ctx, cancel := context.WithDeadline(t.Context(), s.now.Add(time.Minute))
			defer cancel()
			if r := s.redriver(s.db).Run(ctx); r.Err != nil {
				t.Error(r.Err)
			}
		})
	}
	wg.Wait()
	count := s.published()
	for _, id := range ids {
		if count[id] != 1 {
			t.Errorf("%s is on the bus %d times", id, count[id])
		}
	}
}

func TestAnItemThatCannotBePublishedDoesNotDelayOthers(t *testing.T) {
	s := newStack()
	ids := s.pend(t, 100)
	s.bus.Answer = func(entries []types.PutEventsRequestEntry) (map[int]string, error) {
		codes := map[int]string{}
		for i, e := range entries {
			if strings.Contains(*e.Detail, ids[0]) {
				codes[i] = "InternalFailure"
			}
		}
		return codes, nil
	}
	if r := s.run(t); r.Published != 99 || r.Failed != 1 {
		t.Errorf("got %+v", r)
	}
	if r := s.run(t); r.Found != 0 {
		t.Errorf("it is taken again at once: %+v", r)
	}
	s.bus.Answer = nil
	s.now = s.now.Add(3 * time.Minute)
	if r := s.run(t); r.Published != 1 || s.pending() != 0 {
		t.Errorf("got %+v", r)
	}
}

func TestABacklogDrainsOldestFirstOverSeveralRuns(t *testing.T) {
	s := newStack()
	ids := s.pend(t, 2000)
	position := map[string]int{}
	for i, id := range ids {
		position[id] = i
	}
	// Every run has time for a few chunks only.
	runs := 0
	for ; s.pending() > 0; runs++ {
		if runs > 20 {
			t.Fatalf("%d are still pending after %d runs", s.pending(), runs)
		}
		ctx, cancel := context.WithDeadline(t.Context(), s.now.Add(time.Minute))
		slow := &slowLedger{DynamoDB: s.db, passes: func() { s.now = s.now.Add(100 * time.Millisecond) }}
		oneByOne := ledger.New(slow, "ledger", "bus", ledger.Options{Parallel: 1, Now: s.clock})
		p := intake.NewPipeline(oneByOne, s.eventBus(), nil, s.parking, intake.Options{Now: s.clock})
		r := intake.NewRedriver(p, maxAttempts).Run(ctx)
		cancel()
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if s.pending() > 0 && !r.Left {
			t.Errorf("a run ended with work left and does not say so: %+v", r)
		}
		s.now = s.now.Add(time.Minute)
	}
	if runs < 3 {
		t.Errorf("drained in %d runs: nothing was shown", runs)
	}
	// A page takes the oldest of each shard, so the order is that of the pages.
	window := ledger.Shards * 25
	for i, entry := range s.bus.Entries() {
		event, err := payment.DecodeRawEvent([]byte(*entry.Detail))
		if err != nil {
			t.Fatal(err)
		}
		if p := position[event.EventID]; p > i+window || p < i-window {
			t.Errorf("number %d came as number %d", p, i)
		}
	}
	for id, n := range s.published() {
		if n != 1 {
			t.Errorf("%s is on the bus %d times", id, n)
		}
	}
	t.Logf("%d items in %d runs", len(ids), runs)
}

// slowLedger lets time pass with every lease.
type slowLedger struct {
	*awstest.DynamoDB
	passes func()
}

func (l *slowLedger) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	if in.ReturnValues != "" {
		l.passes()
	}
	return l.DynamoDB.UpdateItem(ctx, in, opts...)
}

func (l *slowLedger) BatchExecuteStatement(ctx context.Context, in *dynamodb.BatchExecuteStatementInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.BatchExecuteStatementOutput, error) {
	for _, s := range in.Statements {
		if strings.Contains(*s.Statement, "RETURNING") {
			l.passes()
		}
	}
	return l.DynamoDB.BatchExecuteStatement(ctx, in, opts...)
}

func TestARunThatHasNoTimeSaysThatItLeftWork(t *testing.T) {
	s := newStack()
	s.pend(t, 3)
	ctx, cancel := context.WithDeadline(t.Context(), s.now.Add(-time.Second))
	defer cancel()
	if r := s.redriver(s.db).Run(ctx); !r.Left || len(s.bus.Entries()) != 0 {
		t.Errorf("got %+v", r)
	}
}

func TestABrokenLedgerIsReported(t *testing.T) {
	s := newStack()
	s.pend(t, 3)
	broken := &brokenQuery{DynamoDB: s.db}
	ctx, cancel := context.WithDeadline(t.Context(), s.now.Add(time.Minute))
	defer cancel()
	if r := s.redriver(broken).Run(ctx); r.Err == nil || r.Errors == 0 {
		t.Errorf("got %+v", r)
	}
}

type brokenQuery struct{ *awstest.DynamoDB }

func (brokenQuery) Query(context.Context, *dynamodb.QueryInput,
	...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	return nil, errors.New("index is broken")
}

func TestAnEventThatIsOnTheBusWithoutAMarkIsPublishedAgain(t *testing.T) {
	s := newStack()
	ids := s.pend(t, 1)
	noMarks := &failingMarks{DynamoDB: s.db}
	ctx, cancel := context.WithDeadline(t.Context(), s.now.Add(time.Minute))
	defer cancel()
	if r := s.redriver(noMarks).Run(ctx); r.Unmarked != 1 || r.Published != 0 {
		t.Errorf("got %+v", r)
	}
	s.now = s.now.Add(3 * time.Minute)
	if r := s.run(t); r.Published != 1 || s.published()[ids[0]] != 2 {
		t.Errorf("the one window in which an event arrives twice: %+v, %d times", r, s.published()[ids[0]])
	}
}

type failingMarks struct{ *awstest.DynamoDB }

func (f *failingMarks) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	if in.ReturnValues == "" {
		return nil, fmt.Errorf("mark failed")
	}
	return f.DynamoDB.UpdateItem(ctx, in, opts...)
}

// amount changes the amount of the event at position i.
func amount(i int, text string) func(int, []byte) []byte {
	return func(at int, raw []byte) []byte {
		if at != i {
			return raw
		}
		return regexp.MustCompile(`"amount":[0-9.]+`).ReplaceAll(raw, []byte(`"amount":`+text))
	}
}

func TestRedriveParksAtOnceWhatEventBridgeIsKnownToReject(t *testing.T) {
	s := newStack()
	s.change = amount(1, "-9223372036854775809")
	ids := s.pend(t, 3)
	ctx, cancel := context.WithDeadline(t.Context(), s.now.Add(time.Minute))
	defer cancel()
	r := s.redriver(s.db).Run(ctx)
	if r.Err != nil || r.Published != 2 || r.Failed != 1 || r.Parked != 1 || s.pending() != 0 ||
		s.published()[ids[1]] != 0 {
		t.Errorf("got %+v", r)
	}
	list, err := s.parking.FindEvent(t.Context(), ids[1])
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	p, err := s.parking.Get(t.Context(), list[0])
	if err != nil || p.Reason != parking.Unpublishable || p.Attempts != 1 ||
		p.Cause != "event.eventData.amount: is an integer outside 64 bits, at /eventData/amount" {
		t.Errorf("%+v, %v", p, err)
	}
}

// EventBridge may reject a request for a reason that is not documented.
func TestAnItemThatMakesRequestsFailDoesNotDelayOthers(t *testing.T) {
	s := newStack()
	ids := s.pend(t, 30)
	s.bus.Answer = func(entries []types.PutEventsRequestEntry) (map[int]string, error) {
		for _, e := range entries {
			if strings.Contains(*e.Detail, ids[7]) || strings.Contains(*e.Detail, ids[8]) {
				return nil, &smithy.GenericAPIError{Code: "ValidationException", Fault: smithy.FaultClient}
			}
		}
		return nil, nil
	}
	if r := s.run(t); r.Published != 28 || r.Failed != 2 || s.pending() != 2 {
		t.Errorf("got %+v", r)
	}
}

func TestAnItemThatFailsAgainAndAgainIsParked(t *testing.T) {
	s := newStack()
	ids := s.pend(t, 2)
	s.bus.Answer = func(entries []types.PutEventsRequestEntry) (map[int]string, error) {
		codes := map[int]string{}
		for i, e := range entries {
			if strings.Contains(*e.Detail, ids[0]) {
				codes[i] = "InternalFailure"
			}
		}
		return codes, nil
	}
	redriver := s.redriver(s.db)
	run := func() intake.Redriven {
		ctx, cancel := context.WithDeadline(t.Context(), s.now.Add(time.Minute))
		defer cancel()
		return redriver.Run(ctx)
	}
	start := s.now
	tries, parked := 0, 0
	for parked == 0 {
		if s.now.Sub(start) > 48*time.Hour {
			t.Fatal("not parked after two days")
		}
		r := run()
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		tries += r.Failed
		parked += r.Parked
		s.now = s.now.Add(time.Minute)
	}
	if tries != 20 || s.now.Sub(start) < 12*time.Hour {
		t.Errorf("parked after %d tries in %s", tries, s.now.Sub(start))
	}
	t.Logf("parked after %d tries in %s", tries, s.now.Sub(start))
	if s.pending() != 0 {
		t.Error("it is still pending")
	}
	list, err := s.parking.FindEvent(t.Context(), ids[0])
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	p, err := s.parking.Get(t.Context(), list[0])
	if err != nil || p.Reason != parking.Unpublishable || p.Attempts != 20 {
		t.Fatalf("%+v, %v", p, err)
	}

}

// What could be neither published nor parked is reported: there is no other report of it.
func TestAParkingBucketThatDeniesAccessIsReported(t *testing.T) {
	s := newStack()
	s.pend(t, 2)
	s.buckets.Fails = func(string, string) error { return errors.New("AccessDenied") }
	s.bus.Answer = func([]types.PutEventsRequestEntry) (map[int]string, error) { return nil, errors.New("down") }
	redriver := intake.NewRedriver(s.pipeline(s.db, intake.Options{Now: s.clock}), 1)
	ctx, cancel := context.WithDeadline(t.Context(), s.now.Add(time.Minute))
	defer cancel()
	if r := redriver.Run(ctx); r.Err == nil || r.Errors != 2 || r.Parked != 0 || r.Failed != 2 || s.pending() != 2 {
		t.Errorf("got %+v", r)
	}
}

// An event that fails is left alone for up to an hour. It is pending all the time.
func TestTheOldestPendingItemCountsWhileItIsPostponed(t *testing.T) {
	s := newStack()
	ids := s.pend(t, 1)
	s.bus.Answer = func([]types.PutEventsRequestEntry) (map[int]string, error) { return nil, errors.New("down") }
	recorded := s.now.Add(-time.Minute)
	for range 6 * 60 {
		if r := s.run(t); r.Oldest != s.now.Sub(recorded) {
			t.Fatalf("after %s the oldest is said to be %s old", s.now.Sub(recorded), r.Oldest)
		}
		s.now = s.now.Add(time.Minute)
	}
	s.bus.Answer = nil
	for s.run(t).Published == 0 {
		s.now = s.now.Add(time.Minute)
	}
	if r := s.run(t); r.Oldest != 0 || s.published()[ids[0]] != 1 {
		t.Errorf("once it is published: %+v", r)
	}
}

func TestWhatReceiversHoldDoesNotHideWhatIsPostponed(t *testing.T) {
	s := newStack()
	s.pend(t, 1)
	s.bus.Answer = func([]types.PutEventsRequestEntry) (map[int]string, error) { return nil, errors.New("down") }
	recorded := s.now.Add(-time.Minute)
	for s.now.Sub(recorded) < 3*time.Hour {
		s.run(t)
		s.now = s.now.Add(time.Minute)
	}
	// 4,000 events are on their way: they are due in a minute.
	now := s.now
	s.now = s.now.Add(time.Minute)
	s.change = func(_ int, raw []byte) []byte { return raw }
	s.pend(t, 4000)
	s.now = now
	if r := s.run(t); r.Oldest < 3*time.Hour {
		t.Errorf("the oldest is said to be %s old", r.Oldest)
	}
}

// leases counts the bytes of events that are leased and not marked yet.
type leases struct {
	*awstest.DynamoDB
	mu         sync.Mutex
	held, most int
}

func (l *leases) BatchExecuteStatement(ctx context.Context, in *dynamodb.BatchExecuteStatementInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.BatchExecuteStatementOutput, error) {
	out, err := l.DynamoDB.BatchExecuteStatement(ctx, in, opts...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(*in.Statements[0].Statement, "publishedAt") {
		l.held = 0
		return out, err
	}
	for _, r := range out.Responses {
		l.held += len(r.Item["event"].(*dynamodbtypes.AttributeValueMemberB).Value)
	}
	l.most = max(l.most, l.held)
	return out, err
}

// The events of a chunk are in memory together.
func TestRedriveLeasesEightMiBAtATime(t *testing.T) {
	s := newStack()
	s.change = func(_ int, raw []byte) []byte {
		return bytes.Replace(raw, []byte(`"amountType":"`), append([]byte(`"amountType":"`),
			bytes.Repeat([]byte("x"), 250_000)...), 1)
	}
	s.pend(t, 100)
	db := &leases{DynamoDB: s.db}
	if r := s.runWith(t, db, time.Minute); r.Published != 100 || r.Err != nil {
		t.Errorf("%+v", r)
	}
	if db.most > 8<<20 || db.most < 7<<20 {
		t.Errorf("%d bytes are leased together", db.most)
	}
}
