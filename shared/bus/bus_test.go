package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	adapter "payhook.example/shared/aws/eventbridge"
	"payhook.example/shared/awstest"
	"payhook.example/shared/bus"
	"payhook.example/shared/parallel"
)

var at = time.Date(2026, 1, 31, 12, 0, 0, 123e6, time.UTC)

func event(detail string) bus.Event {
	return bus.Event{
		DetailType: "PAYMENT_STATUS.RELEASED", Time: at, Detail: []byte(detail),
		DeliveryID: "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d",
	}
}

func many(n int) []bus.Event {
	events := make([]bus.Event, n)
	for i := range events {
		events[i] = event(fmt.Sprintf(`{"i":%d}`, i))
	}
	return events
}

func newBus(eb *awstest.EventBridge) *bus.Bus {
	return bus.New(adapter.NewBus(eb, "payments"), "payhook", maxBytes)
}

const maxBytes = 1 << 20

func init() { parallel.PauseOf = func(time.Duration) time.Duration { return 0 } }

func failures(errs []error) (n int) {
	for _, err := range errs {
		if err != nil {
			n++
		}
	}
	return n
}

func TestAnEntryIsTheEventItself(t *testing.T) {
	eb := &awstest.EventBridge{}
	detail := "{ \"amount\" : 100.00,\t\"text\":\"\\u00e9é\" }"
	if errs := newBus(eb).Publish(t.Context(), []bus.Event{event(detail)}); failures(errs) > 0 {
		t.Fatal(errs)
	}
	got := eb.Entries()[0]
	want := types.PutEventsRequestEntry{
		EventBusName: aws.String("payments"), Source: aws.String("payhook"),
		DetailType: aws.String("PAYMENT_STATUS.RELEASED"),
		Detail:     &detail, Time: &at, Resources: []string{"0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d"},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(types.PutEventsRequestEntry{})); diff != "" {
		t.Error(diff)
	}
}

func TestBatchesHoldWhatEventBridgeTakes(t *testing.T) {
	tests := map[string]struct {
		sizes []int // of details
		want  []int // entries of each request
	}{
		"one":                             {[]int{10}, []int{1}},
		"ten":                             {slices.Repeat([]int{10}, 10), []int{10}},
		"eleven":                          {slices.Repeat([]int{10}, 11), []int{1, 10}},
		"a hundred":                       {slices.Repeat([]int{10}, 100), slices.Repeat([]int{10}, 10)},
		"two that fill one":               {[]int{500, 499 - 2*80}, []int{2}},
		"two that do not fit":             {[]int{500, 500 - 2*80}, []int{1, 1}},
		"a large one between":             {[]int{10, 900, 10}, []int{1, 1, 1}},
		"two that fill the second":        {[]int{900, 500, 499 - 2*80}, []int{1, 2}},
		"two that do not fit the second":  {[]int{900, 500, 500 - 2*80}, []int{1, 1, 1}},
		"one that EventBridge can't take": {[]int{1000}, []int{1}},
		"none":                            {nil, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			eb := &awstest.EventBridge{}
			var requests []int
			eb.Answer = func(entries []types.PutEventsRequestEntry) (map[int]string, error) {
				requests = append(requests, len(entries))
				return nil, nil
			}
			b := bus.New(adapter.NewBus(eb, "b"), "src-7by", 1000)
			if overhead := b.Size(event("")); overhead != 14+7+23+36 {
				t.Fatalf("an empty event counts %d bytes", overhead)
			}
			var events []bus.Event
			for _, size := range test.sizes {
				events = append(events, event("{"+strings.Repeat(" ", size-2)+"}"))
			}
			if errs := b.Publish(t.Context(), events); failures(errs) > 0 {
				t.Fatal(errs)
			}
			slices.Sort(requests)
			if diff := cmp.Diff(test.want, requests); diff != "" || eb.Calls() != len(test.want) {
				t.Errorf("%d requests %s", eb.Calls(), diff)
			}
		})
	}
}

func TestOnlyFailedPositionsAreTriedAgain(t *testing.T) {
	eb := &awstest.EventBridge{}
	var requests [][]string
	eb.Answer = func(entries []types.PutEventsRequestEntry) (map[int]string, error) {
		var details []string
		codes := map[int]string{}
		for i, e := range entries {
			details = append(details, *e.Detail)
			if len(requests) == 0 && i%3 == 1 || len(requests) == 1 && i == 1 {
				codes[i] = "ThrottlingException"
			}
		}
		requests = append(requests, details)
		return codes, nil
	}
	if errs := newBus(eb).Publish(t.Context(), many(8)); failures(errs) > 0 {
		t.Fatal(errs)
	}
	want := [][]string{
		{`{"i":0}`, `{"i":1}`, `{"i":2}`, `{"i":3}`, `{"i":4}`, `{"i":5}`, `{"i":6}`, `{"i":7}`},
		{`{"i":1}`, `{"i":4}`, `{"i":7}`},
		{`{"i":4}`},
	}
	if diff := cmp.Diff(want, requests); diff != "" {
		t.Error(diff)
	}
	if n := len(eb.Entries()); n != 8 {
		t.Errorf("%d entries for 8 events", n)
	}
}

func TestPausesDouble(t *testing.T) {
	eb := &awstest.EventBridge{Answer: func([]types.PutEventsRequestEntry) (map[int]string, error) {
		return nil, errors.New("connection reset")
	}}
	var pauses []time.Duration
	none := parallel.PauseOf
	defer func() { parallel.PauseOf = none }()
	parallel.PauseOf = func(longest time.Duration) time.Duration {
		pauses = append(pauses, longest)
		return 0
	}
	newBus(eb).Publish(t.Context(), many(1))
	if diff := cmp.Diff([]time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond},
		pauses); diff != "" || eb.Calls() != 4 {
		t.Errorf("%d requests %s", eb.Calls(), diff)
	}
}

func TestWhatAnAnswerLeavesOutIsTriedAgain(t *testing.T) {
	eb := &short{EventBridge: &awstest.EventBridge{}}
	errs := bus.New(adapter.NewBus(eb, "b"), "s", maxBytes).Publish(t.Context(), many(3))
	// Every answer leaves out the last entry, and the requests after the first have no other.
	if failures(errs) != 1 || errs[2] == nil || eb.Calls() != 4 {
		t.Errorf("%d requests, %v", eb.Calls(), errs)
	}
}

// An event is on the bus only if EventBridge gave it an id and no error.
func TestAnEntryIsTakenOnlyWithAnIDAndWithoutAnError(t *testing.T) {
	for name, test := range map[string]struct {
		entry types.PutEventsResultEntry
		want  error
	}{
		"an id":       {types.PutEventsResultEntry{EventId: aws.String("1")}, nil},
		"nothing":     {types.PutEventsResultEntry{}, &bus.EntryError{}},
		"an empty id": {types.PutEventsResultEntry{EventId: aws.String("")}, &bus.EntryError{}},
		"an error": {types.PutEventsResultEntry{ErrorCode: aws.String("Other")},
			&bus.EntryError{Fault: bus.OfEntry, Code: "Other"}},
		"an error and an id": {types.PutEventsResultEntry{ErrorCode: aws.String("Other"), EventId: aws.String("1")},
			&bus.EntryError{Fault: bus.OfEntry, Code: "Other"}},
	} {
		api := answering{&eventbridge.PutEventsOutput{Entries: []types.PutEventsResultEntry{test.entry}}}
		errs := bus.New(adapter.NewBus(api, "b"), "s", maxBytes).Publish(t.Context(), many(1))
		if diff := cmp.Diff([]error{test.want}, errs); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// answering is an EventBridge that answers every request alike.
type answering struct{ out *eventbridge.PutEventsOutput }

func (a answering) PutEvents(context.Context, *eventbridge.PutEventsInput,
	...func(*eventbridge.Options)) (*eventbridge.PutEventsOutput, error) {
	return a.out, nil
}

// EventBridge takes less than the limit, not as much.
func TestFits(t *testing.T) {
	b := bus.New(nil, "s", 1000)
	room := 1000 - b.Size(event(""))
	if !b.Fits(event(strings.Repeat("x", room-1))) || b.Fits(event(strings.Repeat("x", room))) {
		t.Error("the limit is another")
	}
}

// rejecting rejects every request with an event at one of these positions.
func rejecting(rejected ...int) func([]types.PutEventsRequestEntry) (map[int]string, error) {
	return func(entries []types.PutEventsRequestEntry) (map[int]string, error) {
		for _, e := range entries {
			for _, i := range rejected {
				if *e.Detail == fmt.Sprintf(`{"i":%d}`, i) {
					return nil, &smithy.GenericAPIError{Code: "ValidationException", Fault: smithy.FaultClient}
				}
			}
		}
		return nil, nil
	}
}

func TestAnEventThatMakesARequestFailFailsAlone(t *testing.T) {
	for name, test := range map[string]struct {
		events   int
		rejected []int
		calls    int
	}{
		"none":            {10, nil, 1},
		"the only one":    {1, []int{0}, 1},
		"the first":       {10, []int{0}, 7},
		"the last":        {10, []int{9}, 9},
		"one of two":      {2, []int{1}, 3},
		"two apart":       {10, []int{2, 7}, 11},
		"all":             {10, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 19},
		"in two requests": {20, []int{3, 13}, 18},
	} {
		t.Run(name, func(t *testing.T) {
			eb := &awstest.EventBridge{Answer: rejecting(test.rejected...)}
			errs := newBus(eb).Publish(t.Context(), many(test.events))
			for i, err := range errs {
				if slices.Contains(test.rejected, i) != (err != nil) {
					t.Errorf("position %d: %v", i, err)
				}
			}
			var got []string
			for _, e := range eb.Entries() {
				got = append(got, *e.Detail)
			}
			slices.Sort(got)
			if n := len(slices.Compact(got)); n != test.events-len(test.rejected) || n != len(eb.Entries()) {
				t.Errorf("%d entries, %d of them different", len(eb.Entries()), n)
			}
			if eb.Calls() > test.calls {
				t.Errorf("%d requests, want at most %d", eb.Calls(), test.calls)
			}
		})
	}
}

func TestAnEventThatEventBridgeIsKnownToRejectIsNotSent(t *testing.T) {
	for _, wrong := range [][]int{{0}, {4, 9}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}} {
		eb := &awstest.EventBridge{}
		events := many(12)
		for _, i := range wrong {
			events[i] = event(`{"eventData":{"amount":99999999999999999999}}`)
		}
		errs := newBus(eb).Publish(t.Context(), events)
		for i, err := range errs {
			if _, ok := errors.AsType[*bus.DetailError](err); ok != slices.Contains(wrong, i) || !ok && err != nil {
				t.Errorf("position %d: %v", i, err)
			}
		}
		if n := len(eb.Entries()); n != 12-len(wrong) {
			t.Errorf("%d entries", n)
		}
	}
}

// What is rejected and what is throttled may meet in one request.
func TestThrottlingWhileRejectedEventsAreSoughtLosesNoEvent(t *testing.T) {
	reject := rejecting(4)
	eb := &awstest.EventBridge{}
	throttled := map[int]bool{}
	eb.Answer = func(entries []types.PutEventsRequestEntry) (map[int]string, error) {
		if n := len(entries); n < 10 && !throttled[n] {
			throttled[n] = true
			return nil, &smithy.GenericAPIError{Code: "ThrottlingException", Fault: smithy.FaultClient}
		}
		return reject(entries)
	}
	errs := newBus(eb).Publish(t.Context(), many(10))
	if failures(errs) != 1 || errs[4] == nil || len(eb.Entries()) != 9 {
		t.Errorf("%v, %d entries", errs, len(eb.Entries()))
	}
}

func TestTheSearchForRejectedEventsStopsWhenTheTimeIsUp(t *testing.T) {
	for _, last := range []int{1, 2, 3, 4} {
		ctx, cancel := context.WithCancel(t.Context())
		reject := rejecting(0, 9)
		calls := 0
		eb := &awstest.EventBridge{Answer: func(entries []types.PutEventsRequestEntry) (map[int]string, error) {
			if calls++; calls == last {
				cancel()
			}
			return reject(entries)
		}}
		errs := newBus(eb).Publish(ctx, many(10))
		if calls != last {
			t.Errorf("%d requests after %d", calls, last)
		}
		// A rejected request is not split when the time is up.
		if last == 1 && eb.Calls() != 1 {
			t.Errorf("%d requests, also without time", eb.Calls())
		}
		if taken := len(eb.Entries()); failures(errs) != 10-taken {
			t.Errorf("%d failed and %d are on the bus", failures(errs), taken)
		}
		cancel()
	}
}

// short leaves the last entry out of its answer.
type short struct{ *awstest.EventBridge }

func (s *short) PutEvents(ctx context.Context, in *eventbridge.PutEventsInput,
	opts ...func(*eventbridge.Options)) (*eventbridge.PutEventsOutput, error) {
	out, err := s.EventBridge.PutEvents(ctx, in, opts...)
	if err == nil {
		out.Entries = out.Entries[:len(out.Entries)-1]
	}
	return out, err
}
