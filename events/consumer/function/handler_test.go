package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"payhook.example/shared/bus"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

var now = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// memory is a store in memory.
type memory struct {
	mu       sync.Mutex
	statuses map[string]status
}

func (m *memory) put(_ context.Context, s status) (stored bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, exists := m.statuses[s.paymentID]
	if exists && (s.statusTime == "" || cmp.Or(strings.Compare(s.statusTime, old.statusTime),
		strings.Compare(s.eventTimestamp, old.eventTimestamp), strings.Compare(s.eventID, old.eventID)) <= 0) {
		return false, nil
	}
	if m.statuses == nil {
		m.statuses = map[string]status{}
	}
	m.statuses[s.paymentID] = s
	return true, nil
}

type fixture struct {
	*handler
	memory memory
	bucket objects.Memory
	said   bytes.Buffer // slog writes one line at a time
}

func newFixture() *fixture {
	f := &fixture{}
	open := func(string) objects.Getter { return &f.bucket }
	f.handler = &handler{resolve: func(ctx context.Context, detail []byte) ([]byte, error) {
		return bus.Resolve(ctx, open, detail)
	}, store: &f.memory, log: slog.New(slog.NewJSONHandler(&f.said, nil))}
	return f
}

// count counts the lines of the log with an outcome.
func (f *fixture) count(outcome string) int {
	return strings.Count(f.said.String(), `"outcome":"`+outcome+`"`)
}

// refer stores an event in the bucket and returns the reference to it.
func (f *fixture) refer(t *testing.T, event []byte) []byte {
	t.Helper()
	raw, err := payment.DecodeRawEvent(event)
	if err != nil {
		t.Fatal(err)
	}
	detail, err := bus.NewLargeEvents(&f.bucket, "large-events").Put(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	return detail
}

// at returns the detail of an event of the payment PAY-1, without eventTimestamp if that is zero.
func at(id int, status, statusTime string, eventTimestamp time.Time) []byte {
	e := paymenttest.Event()
	e.EventID = fmt.Sprintf("6f1c8f0e-6a50-4c6c-9c55-%012d", id)
	e.EventTimestamp = eventTimestamp
	e.EventData.Identifiers.SvcUniquePaymentID = "PAY-1"
	e.EventData.PaymentStatus = payment.PaymentStatus{Status: status, StatusTime: now}
	const sent = `"statusTime":"2026-01-31T12:00:00.000Z"`
	return bytes.Replace(paymenttest.Encode(e), []byte(sent), []byte(`"statusTime":"`+statusTime+`"`), 1)
}

func onBus(detail []byte) events.EventBridgeEvent { return events.EventBridgeEvent{Detail: detail} }

// EventBridge delivers in any order, at least once, and also at the same time.
func TestTheTableIsTheSameForEveryOrderAndRepetition(t *testing.T) {
	later := now.Add(time.Second)
	want := func(id, text, statusTime string, eventTimestamp time.Time) status {
		return status{paymentID: "PAY-1", status: text, statusTime: statusTime, eventTimestamp: utc(eventTimestamp),
			eventID: "6f1c8f0e-6a50-4c6c-9c55-00000000000" + id, amount: "1250.00", currency: "USD"}
	}
	for name, test := range map[string]struct {
		details [][]byte
		want    status
	}{
		"the latest statusTime wins, also of an event that was created earlier": {[][]byte{
			at(4, "ACCEPTED", "2026-01-31T12:00:00.100Z", later),
			at(3, "PENDING", "2026-01-31T12:00:00.200Z", later.Add(time.Hour)),
			at(1, "RELEASED", "2026-01-31T12:00:00.300Z", now),
			at(2, "BLOCKED", "2026-01-31T12:00:00.299Z", later),
		}, want("1", "RELEASED", "2026-01-31T12:00:00.300000000Z", now)},
		"texts of times in other forms sort as times": {[][]byte{
			at(1, "A", "2026-01-31T12:00:00Z", now),
			at(2, "B", "2026-01-31T12:00:00.5Z", now),
			at(3, "C", "2026-01-31T14:59:59.999+03:00", now),
			at(4, "D", "2026-01-31T10:00:00.500000001-02:00", now),
		}, want("4", "D", "2026-01-31T12:00:00.500000001Z", now)},
		"of equal ones, the event that was created later wins, then the larger eventId": {[][]byte{
			at(4, "A", "2026-01-31T12:00:00.000Z", now),
			at(1, "B", "2026-01-31T12:00:00.000Z", later),
			at(3, "C", "2026-01-31T12:00:00.000Z", later),
			at(2, "D", "2026-01-31T12:00:00.000Z", later),
		}, want("3", "C", "2026-01-31T12:00:00.000000000Z", later)},
		"without statusTime, eventTimestamp is the order": {[][]byte{
			at(1, "A", "2026-01-31T12:00:00.999Z", later.Add(time.Hour)),
			at(2, "B", "", later),
			at(3, "C", "yesterday", now),
			at(4, "D", "2026-01-31T12:00:00.000Z", later.Add(time.Hour)),
		}, want("2", "B", "2026-01-31T12:00:01.000000000Z", later)},
		"every event with a time is newer than one without": {[][]byte{
			at(3, "A", "", time.Time{}),
			at(1, "B", "0000-01-01T00:00Z", time.Time{}),
			at(2, "C", "20260131T1200", time.Time{}),
		}, want("2", "C", "2026-01-31T12:00:00.000000000Z", time.Time{})},
	} {
		t.Run(name, func(t *testing.T) {
			permute(test.details, func(order [][]byte) {
				f := newFixture()
				order = slices.Clone(order)
				order[0] = f.refer(t, order[0]) // too large for the bus
				order = slices.Concat(order, order)
				tail := order[len(test.details):]
				rand.Shuffle(len(tail), func(i, j int) { tail[i], tail[j] = tail[j], tail[i] })
				for _, detail := range order {
					if err := f.handle(t.Context(), onBus(detail)); err != nil {
						t.Fatal(err)
					}
				}
				if got := f.memory.statuses["PAY-1"]; got != test.want {
					t.Fatalf("%s\n%+v, want %+v", bytes.Join(order, []byte("\n")), got, test.want)
				}
				f = newFixture()
				var running sync.WaitGroup
				for _, detail := range slices.Concat(test.details, test.details) {
					running.Go(func() {
						if err := f.handle(context.Background(), onBus(detail)); err != nil {
							t.Error(err)
						}
					})
				}
				running.Wait()
				if got := f.memory.statuses["PAY-1"]; got != test.want {
					t.Fatalf("at the same time: %+v, want %+v", got, test.want)
				}
			})
		})
	}
}

// permute calls do with every order of the elements.
func permute(all [][]byte, do func([][]byte)) {
	var from func(int)
	from = func(k int) {
		if k == len(all) {
			do(all)
		}
		for i := k; i < len(all); i++ {
			all[k], all[i] = all[i], all[k]
			from(k + 1)
			all[k], all[i] = all[i], all[k]
		}
	}
	from(0)
}

func TestAnEventIsStoredOnceAndPaymentsAreSeparate(t *testing.T) {
	f, other := newFixture(), paymenttest.Event()
	other.EventData.Identifiers.SvcUniquePaymentID, other.EventData.Amount = "PAY-2", "9223372036854775808.10"
	for range 3 {
		for _, detail := range [][]byte{at(1, "RELEASED", "2026-01-31T12:00:00.000Z", now), paymenttest.Encode(other)} {
			if err := f.handle(t.Context(), onBus(detail)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if f.count("stored") != 2 || f.count("not newer") != 4 {
		t.Errorf("%s", &f.said)
	}
	if got := f.memory.statuses["PAY-2"].amount; got != "9223372036854775808.10" {
		t.Errorf("the amount is stored as %s", got)
	}
}

// Nothing shows which of two events without a time is the later one.
func TestAnEventWithoutATimeIsStoredOnlyIfItIsTheFirst(t *testing.T) {
	f := newFixture()
	for _, detail := range [][]byte{at(2, "FIRST", "yesterday", time.Time{}), at(1, "LOW", "", time.Time{}),
		at(3, "HIGH", "", time.Time{}), at(2, "FIRST", "yesterday", time.Time{})} {
		if err := f.handle(t.Context(), onBus(detail)); err != nil {
			t.Fatal(err)
		}
	}
	got := f.memory.statuses["PAY-1"]
	if got.status != "FIRST" || got.statusTime != "" || f.count("not newer") != 3 ||
		!strings.Contains(f.said.String(), `"deviations":["eventData.paymentStatus.statusTime"]`) {
		t.Errorf("%v, %s", got, &f.said)
	}
	err := f.handle(t.Context(), onBus(at(1, "DATED", "", now)))
	if err != nil || f.memory.statuses["PAY-1"].status != "DATED" {
		t.Errorf("%v, %v", f.memory.statuses["PAY-1"], err)
	}
}

// The data of an event are what the service sent, and the function stores what it can read.
func TestEventsWithOtherTypesAreStored(t *testing.T) {
	for _, change := range [][2]string{{"1250.00", "null"}, {"1250.00", `"1250.00"`}, {`"USD"`, "[]"},
		{`{"hasLinkedCases":false}`, "null"}, {`{}`, `"20260131MMQFMP"`}} {
		f, detail := newFixture(), at(1, "RELEASED", "2026-01-31T12:00:00.000Z", now)
		detail = bytes.Replace(detail, []byte(change[0]), []byte(change[1]), 1)
		if err := f.handle(t.Context(), onBus(detail)); err != nil || f.memory.statuses["PAY-1"].status != "RELEASED" ||
			!bytes.Contains(detail, []byte(change[1])) {
			t.Errorf("%s: %v, %v", detail, f.memory.statuses["PAY-1"], err)
		}
	}
}

// Lambda sends the event to the queue of failed events, where a person finds it.
func TestAnEventThatCannotBeStoredIsAnError(t *testing.T) {
	for _, missing := range []string{`"svcUniquePaymentId":"PAY-1",`, `"status":"RELEASED",`} {
		f, detail := newFixture(), at(1, "RELEASED", "2026-01-31T12:00:00.000Z", now)
		without := bytes.Replace(detail, []byte(missing), nil, 1)
		if len(without) == len(detail) {
			t.Fatalf("%s is not in %s", missing, detail)
		}
		err := f.handle(t.Context(), onBus(without))
		if !errors.Is(err, errIncomplete) || len(f.memory.statuses) > 0 {
			t.Errorf("without %s: %v", missing, err)
		}
	}
	f := newFixture()
	detail := f.refer(t, at(1, "RELEASED", "2026-01-31T12:00:00.000Z", now))
	f.bucket.Delete(f.bucket.Keys()[0])
	if err := f.handle(t.Context(), onBus(detail)); !errors.Is(err, bus.ErrGone) {
		t.Errorf("the object is gone: %v", err)
	}
	if err := f.handle(t.Context(), onBus([]byte(`{"eventId":1}`))); err == nil {
		t.Error("a detail that is not an event is accepted")
	}
}

// failing is a store that cannot be written.
type failing struct{ error }

func (f failing) put(context.Context, status) (bool, error) { return false, f.error }

// Lambda repeats an event after an error only.
func TestAFailureIsAnErrorAndIsRepeated(t *testing.T) {
	f, detail := newFixture(), at(1, "RELEASED", "2026-01-31T12:00:00.000Z", now)
	throttled := errors.New("throttled")
	f.store = failing{throttled}
	if err := f.handle(t.Context(), onBus(detail)); !errors.Is(err, throttled) || f.said.Len() > 0 {
		t.Errorf("%s, %v", &f.said, err)
	}
	f.store = &f.memory
	if err := f.handle(t.Context(), onBus(detail)); err != nil || f.count("stored") != 1 {
		t.Errorf("%s, %v", &f.said, err)
	}
}
