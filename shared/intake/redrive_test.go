package intake_test

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	adapter "payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/aws/s3"
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
	bus     *bus.Memory
	buckets *awstest.S3
	parking *parking.Store
	now     time.Time
	// change, if set, makes another event of the one at a position of pend.
	change func(i int, raw []byte) []byte
}

func newStack() *stack {
	s := &stack{db: awstest.NewDynamoDB(), bus: &bus.Memory{}, buckets: awstest.NewS3(),
		now: time.Now().Truncate(time.Millisecond)}
	s.buckets.MakeBucket("parking")
	s.buckets.MakeBucket("claims")
	s.parking = parking.NewStore(s.buckets, "parking")
	s.db.CreateLedger("ledger")
	return s
}

func (s *stack) clock() time.Time { return s.now }

func (s *stack) ledger(api adapter.LedgerAPI) *ledger.Ledger {
	return ledger.New(adapter.NewLedger(api, "ledger"), ledger.Options{Now: s.clock})
}

func (s *stack) eventBus() *bus.Bus {
	return bus.New(s.bus, "source", 1<<20)
}

func init() { parallel.PauseOf = func(time.Duration) time.Duration { return 0 } }

// claims returns a store in the bucket of claims.
func (s *stack) claims() *claimcheck.Store {
	return claimcheck.NewStore(s3.NewBucket(s.buckets, "claims"), "claims")
}

// pipeline is one with the ledger that api has, and with the buckets.
func (s *stack) pipeline(api adapter.LedgerAPI, opts intake.Options) *intake.Pipeline {
	return intake.NewPipeline(s.ledger(api), s.eventBus(), s.claims(), s.parking, opts)
}

// maxAttempts is how often redrive tries an event in most tests.
const maxAttempts = 20

func (s *stack) redriver(api adapter.LedgerAPI) *intake.Redriver {
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
		e := ledger.NewItem(event, uuid.New().String(), due.Add(-time.Minute))
		if r := s.ledger(s.db).Record(t.Context(), []ledger.Item{e}, ledger.NewHolder(), due); r[0].Err != nil {
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
		event, err := payment.DecodeRawEvent(entry.Detail)
		if err != nil {
			panic(err)
		}
		count[event.EventID]++
	}
	return count
}

func (s *stack) pending() (n int) {
	for _, item := range s.db.Items("ledger") {
		if item[names.LedgerShard] != nil {
			n++
		}
	}
	return n
}

func TestABacklogDrainsOldestFirstOverSeveralRuns(t *testing.T) {
	s := newStack()
	ids := s.pend(t, 2000)
	position := map[string]int{}
	for i, id := range ids {
		position[id] = i
	}
	// Time passes with every lease, so that every run has time for a few chunks only.
	s.db.Hook = func(ctx context.Context, in any, next awstest.Next) (any, error) {
		if batch, ok := in.(*dynamodb.BatchExecuteStatementInput); ok &&
			strings.Contains(*batch.Statements[0].Statement, "RETURNING") {
			s.now = s.now.Add(time.Duration(len(batch.Statements)) * 70 * time.Millisecond)
		}
		return next(ctx, in)
	}
	runs := 0
	for ; s.pending() > 0; runs++ {
		if runs > 20 {
			t.Fatalf("%d are still pending after %d runs", s.pending(), runs)
		}
		ctx, cancel := context.WithDeadline(t.Context(), s.now.Add(time.Minute))
		oneByOne := ledger.New(adapter.NewLedger(s.db, "ledger"), ledger.Options{Parallel: 1, Now: s.clock})
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
		event, err := payment.DecodeRawEvent(entry.Detail)
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

// What could be neither published nor parked is reported: there is no other report of it.
func TestAParkingBucketThatDeniesAccessIsReported(t *testing.T) {
	s := newStack()
	s.pend(t, 2)
	s.buckets.Fails = func(string, string) error { return errors.New("AccessDenied") }
	s.bus.Reject = func(bus.Entry) error { return errors.New("down") }
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
	s.bus.Reject = func(bus.Entry) error { return errors.New("down") }
	recorded := s.now.Add(-time.Minute)
	for range 6 * 60 {
		if r := s.run(t); r.Oldest != s.now.Sub(recorded) {
			t.Fatalf("after %s the oldest is said to be %s old", s.now.Sub(recorded), r.Oldest)
		}
		s.now = s.now.Add(time.Minute)
	}
	s.bus.Reject = nil
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
	s.bus.Reject = func(bus.Entry) error { return errors.New("down") }
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

// The events of a chunk are in memory together.
func TestRedriveLeasesEightMiBAtATime(t *testing.T) {
	s := newStack()
	s.change = func(_ int, raw []byte) []byte {
		return bytes.Replace(raw, []byte(`"amountType":"`), append([]byte(`"amountType":"`),
			bytes.Repeat([]byte("x"), 250_000)...), 1)
	}
	s.pend(t, 100)
	var mu sync.Mutex
	var held, most int // bytes of events that are leased and not marked yet
	s.db.Hook = func(ctx context.Context, in any, next awstest.Next) (any, error) {
		out, err := next(ctx, in)
		batch, ok := in.(*dynamodb.BatchExecuteStatementInput)
		if !ok {
			return out, err
		}
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(*batch.Statements[0].Statement, "publishedAt") {
			held = 0
			return out, err
		}
		for _, r := range out.(*dynamodb.BatchExecuteStatementOutput).Responses {
			held += len(r.Item["event"].(*dynamodbtypes.AttributeValueMemberB).Value)
		}
		most = max(most, held)
		return out, err
	}
	if r := s.runWith(t, s.db, time.Minute); r.Published != 100 || r.Err != nil {
		t.Errorf("%+v", r)
	}
	if most > 8<<20 || most < 7<<20 {
		t.Errorf("%d bytes are leased together", most)
	}
}
