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

	"payhook/shared/awstest"
	"payhook/shared/bus"
	"payhook/shared/payment"
)

var at = time.Date(2026, 1, 31, 12, 0, 0, 123e6, time.UTC)

func event(detail string) bus.Event {
	return bus.Event{
		RawEvent:   payment.RawEvent{EventName: "PAYMENT_STATUS.RELEASED", EventTimestamp: at, Bytes: []byte(detail)},
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
	return bus.New(eb, "payments", "payhook", bus.Options{Backoff: time.Nanosecond})
}

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
		EventBusName: aws.String("payments"), Source: aws.String("payhook"), DetailType: aws.String("PAYMENT_STATUS.RELEASED"),
		Detail: &detail, Time: &at, Resources: []string{"0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d"},
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
		"one":                 {[]int{10}, []int{1}},
		"ten":                 {slices.Repeat([]int{10}, 10), []int{10}},
		"eleven":              {slices.Repeat([]int{10}, 11), []int{1, 10}},
		"a hundred":           {slices.Repeat([]int{10}, 100), slices.Repeat([]int{10}, 10)},
		"two that fill one":   {[]int{500, 500 - 2*80}, []int{2}},
		"two that do not fit": {[]int{500, 501 - 2*80}, []int{1, 1}},
		"a large one between": {[]int{10, 900, 10}, []int{1, 1, 1}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			eb := &awstest.EventBridge{}
			var requests []int
			eb.Answer = func(entries []types.PutEventsRequestEntry) (map[int]string, error) {
				requests = append(requests, len(entries))
				return nil, nil
			}
			b := bus.New(eb, "b", "src-7by", bus.Options{MaxBytes: 1000})
			if overhead := b.Size(event("")); overhead != 14+7+23+36 {
				t.Fatalf("an empty event counts %d bytes", overhead)
			}
			var events []bus.Event
			for _, size := range test.sizes {
				events = append(events, event(strings.Repeat("x", size)))
			}
			if errs := b.Publish(t.Context(), events); failures(errs) > 0 {
				t.Fatal(errs)
			}
			slices.Sort(requests)
			if diff := cmp.Diff(test.want, requests); diff != "" {
				t.Error(diff)
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

func TestWhatFailsIsReportedWhereItStands(t *testing.T) {
	eb := &awstest.EventBridge{}
	eb.Answer = func(entries []types.PutEventsRequestEntry) (map[int]string, error) {
		codes := map[int]string{}
		for i, e := range entries {
			switch *e.Detail {
			case `{"i":3}`:
				codes[i] = "InternalFailure" // for as long as it is tried
			case `{"i":15}`:
				codes[i] = "MalformedDetail" // no use to try again
			}
		}
		return codes, nil
	}
	errs := newBus(eb).Publish(t.Context(), many(20))
	for i, err := range errs {
		var entry *bus.EntryError
		if failed := i == 3 || i == 15; failed != errors.As(err, &entry) {
			t.Errorf("position %d: %v", i, err)
		}
	}
	// Two batches; one of them is tried four times in all.
	if n := eb.Calls(); n != 5 {
		t.Errorf("%d requests", n)
	}
}

func TestARequestThatFailsIsTriedAgainIfThatMayHelp(t *testing.T) {
	tests := map[string]struct {
		err   error
		calls int
	}{
		"no answer":     {errors.New("connection reset"), 4},
		"server fault":  {&smithy.GenericAPIError{Code: "InternalFailure", Fault: smithy.FaultServer}, 4},
		"throttled":     {&smithy.GenericAPIError{Code: "ThrottlingException", Fault: smithy.FaultClient}, 4},
		"not permitted": {&smithy.GenericAPIError{Code: "AccessDeniedException", Fault: smithy.FaultClient}, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			eb := &awstest.EventBridge{Answer: func([]types.PutEventsRequestEntry) (map[int]string, error) { return nil, test.err }}
			errs := newBus(eb).Publish(t.Context(), many(3))
			if failures(errs) != 3 || !errors.Is(errs[2], test.err) {
				t.Errorf("got %v", errs)
			}
			if n := eb.Calls(); n != test.calls {
				t.Errorf("%d requests, want %d", n, test.calls)
			}
		})
	}
}

func TestPublishStopsWhenTheTimeIsUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	eb := &awstest.EventBridge{Answer: func([]types.PutEventsRequestEntry) (map[int]string, error) {
		cancel()
		return nil, errors.New("connection reset")
	}}
	b := bus.New(eb, "b", "s", bus.Options{Backoff: time.Hour})
	if errs := b.Publish(ctx, many(2)); failures(errs) != 2 || eb.Calls() != 1 {
		t.Errorf("%d requests, %v", eb.Calls(), errs)
	}
}

func TestPausesDoubleAndCanBeChosen(t *testing.T) {
	var longest []time.Duration
	eb := &awstest.EventBridge{Answer: func([]types.PutEventsRequestEntry) (map[int]string, error) {
		return nil, errors.New("connection reset")
	}}
	b := bus.New(eb, "b", "s", bus.Options{Backoff: time.Hour, Pause: func(d time.Duration) time.Duration {
		longest = append(longest, d)
		return 0
	}})
	b.Publish(t.Context(), many(1))
	if diff := cmp.Diff([]time.Duration{time.Hour, 2 * time.Hour, 4 * time.Hour}, longest); diff != "" {
		t.Error(diff)
	}
}

func TestAnAnswerThatIsTooShortCountsAsAFailure(t *testing.T) {
	eb := &short{EventBridge: &awstest.EventBridge{}}
	errs := bus.New(eb, "b", "s", bus.Options{Attempts: 1}).Publish(t.Context(), many(3))
	if failures(errs) != 1 || errs[2] == nil {
		t.Errorf("got %v", errs)
	}
}

func TestFits(t *testing.T) {
	b := bus.New(nil, "b", "s", bus.Options{})
	limit := bus.DefaultMaxBytes - b.Size(event(""))
	if !b.Fits(event(strings.Repeat("x", limit))) || b.Fits(event(strings.Repeat("x", limit+1))) {
		t.Error("the limit is another")
	}
}

// short leaves the last entry out of its answer.
type short struct{ *awstest.EventBridge }

func (s *short) PutEvents(ctx context.Context, in *eventbridge.PutEventsInput, opts ...func(*eventbridge.Options)) (*eventbridge.PutEventsOutput, error) {
	out, err := s.EventBridge.PutEvents(ctx, in, opts...)
	if err == nil {
		out.Entries = out.Entries[:len(out.Entries)-1]
	}
	return out, err
}
