package bus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/bus"
	"payhook.example/shared/calls"
)

func event(detail string) bus.Event {
	return bus.Event{
		DetailType: "PAYMENT_STATUS.RELEASED", Time: time.Date(2026, 1, 31, 12, 0, 0, 123e6, time.UTC),
		Detail: []byte(detail), DeliveryID: "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d",
	}
}

// filled returns an event with a detail of that many bytes.
func filled(size int) bus.Event { return event("{" + strings.Repeat(" ", size-2) + "}") }

func many(n int) []bus.Event {
	events := make([]bus.Event, n)
	for i := range events {
		events[i] = event(fmt.Sprintf(`{"i":%d}`, i))
	}
	return events
}

// store is a bus in memory. It keeps the details of each request.
type store struct {
	bus.Memory
	mu       sync.Mutex
	requests [][]string
}

func (s *store) Put(ctx context.Context, entries []bus.Entry) ([]error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	request := make([]string, len(entries))
	for i, e := range entries {
		request[i] = string(e.Detail)
	}
	s.requests = append(s.requests, request)
	return s.Memory.Put(ctx, entries)
}

func newBus(s bus.Store) *bus.Bus { return bus.New(s, "payhook", maxBytes) }

const maxBytes = 1 << 20

func init() { calls.PauseOf = func(time.Duration) time.Duration { return 0 } }

// failed returns the positions of the events that failed.
func failed(errs []error) (positions []int) {
	for i, err := range errs {
		if err != nil {
			positions = append(positions, i)
		}
	}
	return positions
}

func TestAnEntryIsTheEventItself(t *testing.T) {
	var m bus.Memory
	e := event(" { \"amount\" : 100.00,\t\"text\":\"\\u00e9é\" }\n")
	if errs := newBus(&m).Publish(t.Context(), []bus.Event{e}); failed(errs) != nil {
		t.Fatal(errs)
	}
	want := []bus.Entry{{Source: "payhook", Event: e}}
	want[0].Detail = bytes.Clone(e.Detail)
	clear(e.Detail)
	if diff := cmp.Diff(want, m.Entries()); diff != "" || m.Find(t.Context()) != nil {
		t.Error(diff)
	}
	m.Missing = true
	errs := newBus(&m).Publish(t.Context(), many(1))
	if failed(errs) != nil || len(m.Entries()) != 1 || m.Find(t.Context()) != bus.ErrMissing {
		t.Errorf("what is put on a bus that does not exist is lost: %v", errs)
	}
}

// AWS, "PutEvents" and "PutEventsRequestEntry" in the EventBridge API reference.
func TestTheMemoryRejectsWhatEventBridgeDoes(t *testing.T) {
	var m bus.Memory
	put := func(events ...bus.Event) ([]error, error) {
		var entries []bus.Entry
		for _, e := range events {
			entries = append(entries, bus.Entry{Source: "payhook", Event: e})
		}
		return m.Put(t.Context(), entries)
	}
	room := maxBytes - newBus(nil).Size(event(""))
	for name, events := range map[string][]bus.Event{"eleven": many(11), "none": nil, "1 MB": {filled(room)}} {
		_, err := put(events...)
		if e, ok := errors.AsType[*bus.RequestError](err); !ok || e.Fault != bus.OfEntry || len(m.Entries()) > 0 {
			t.Errorf("%s: %v, %d entries", name, err, len(m.Entries()))
		}
	}
	long, longer := event("{}"), event("{}")
	long.DetailType, longer.DetailType = strings.Repeat("ü", 128), strings.Repeat("ü", 129)
	var got []error
	for _, events := range [][]bus.Event{many(10), {filled(room - 1)}, {long, longer}, {event("[]"), event("{,}")}} {
		failures, err := put(events...)
		got = append(append(got, failures...), err)
	}
	malformed := &bus.EntryError{Fault: bus.OfEntry, Code: "MalformedDetail"}
	want := append(make([]error, 14), &bus.EntryError{Fault: bus.OfEntry, Code: "InvalidArgument"}, nil, malformed,
		malformed, nil)
	if diff := cmp.Diff(want, got); diff != "" || len(m.Entries()) != 12 {
		t.Errorf("%d entries, %s", len(m.Entries()), diff)
	}
}

func TestBatchesHoldWhatEventBridgeTakes(t *testing.T) {
	const overhead = 14 + 7 + 23 + 36 // of each event
	for name, test := range map[string]struct {
		sizes []int // of events
		want  []int // entries of each request
	}{
		"ten":                              {slices.Repeat([]int{90}, 10), []int{10}},
		"eleven":                           {slices.Repeat([]int{90}, 11), []int{1, 10}},
		"two that fill one":                {[]int{500, 499}, []int{2}},
		"two that do not fit":              {[]int{500, 500}, []int{1, 1}},
		"a large one between":              {[]int{90, 980, 90}, []int{1, 1, 1}},
		"two that fill the second":         {[]int{980, 500, 499}, []int{1, 2}},
		"two that do not fit the second":   {[]int{980, 500, 500}, []int{1, 1, 1}},
		"ones that EventBridge can't take": {[]int{1080, 1080}, []int{1, 1}},
		"none":                             {nil, nil},
	} {
		var s store
		b := bus.New(&s, "src-7by", 1000)
		var events []bus.Event
		for _, size := range test.sizes {
			e := filled(size - overhead)
			if events = append(events, e); b.Size(e) != size || b.Fits(e) != (size < 1000) {
				t.Errorf("%d bytes: %d, and fits: %v", size, b.Size(e), b.Fits(e))
			}
		}
		if errs := b.Publish(t.Context(), events); failed(errs) != nil {
			t.Fatal(errs)
		}
		var requests []int
		for _, request := range s.requests {
			requests = append(requests, len(request))
		}
		slices.Sort(requests)
		if diff := cmp.Diff(test.want, requests); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if b := bus.New(nil, "src-7by", 1000); b.Fits(filled(1000-overhead)) || !b.Fits(filled(999-overhead)) {
		t.Error("EventBridge takes less than the limit, not as much")
	}
}

var errDown = errors.New("connection reset")

// Only what may succeed another time is tried again, and only a request with an unknown cause is split.
func TestTheFaultDecidesWhatIsTriedAgain(t *testing.T) {
	var pauses []time.Duration
	none := calls.PauseOf
	defer func() { calls.PauseOf = none }()
	calls.PauseOf = func(longest time.Duration) time.Duration {
		pauses = append(pauses, longest)
		return 0
	}
	all := []int{0, 1, 2, 3}
	down, denied, invalid := fmt.Errorf("down: %w", errDown), fmt.Errorf("denied: %w", errDown),
		fmt.Errorf("invalid: %w", errDown)
	for text, test := range map[string]struct {
		err      error // of the third of four events
		requests int
		failed   []int
	}{
		"connection reset":                          {errDown, 4, all},
		"down: connection reset":                    {&bus.RequestError{Fault: bus.OfService, Err: down}, 4, all},
		"denied: connection reset":                  {&bus.RequestError{Fault: bus.OfCaller, Err: denied}, 1, all},
		"invalid: connection reset":                 {&bus.RequestError{Fault: bus.OfEntry, Err: invalid}, 5, []int{2}},
		"bus: entry not taken: ThrottlingException": {&bus.EntryError{Code: "ThrottlingException"}, 4, []int{2}},
		"bus: entry not taken: MalformedDetail": {&bus.EntryError{Fault: bus.OfEntry, Code: "MalformedDetail"}, 1,
			[]int{2}},
	} {
		var s store
		s.Reject = func(e bus.Entry) error {
			if string(e.Detail) == `{"i":2}` {
				return test.err
			}
			return nil
		}
		pauses = nil
		errs := newBus(&s).Publish(t.Context(), many(4))
		if !slices.Equal(failed(errs), test.failed) || errs[2].Error() != text ||
			errors.Is(errs[2], errDown) != strings.HasSuffix(text, errDown.Error()) ||
			len(s.requests) != test.requests || len(s.Entries()) != 4-len(test.failed) {
			t.Errorf("%s: %d requests, %d entries, %v", text, len(s.requests), len(s.Entries()), errs)
		}
		want := []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond}
		if test.requests != 4 {
			want = nil
		}
		if diff := cmp.Diff(want, pauses); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

// rejecting rejects every request with an event at one of these positions.
func rejecting(rejected ...int) func(bus.Entry) error {
	return func(e bus.Entry) error {
		for _, i := range rejected {
			if string(e.Detail) == fmt.Sprintf(`{"i":%d}`, i) {
				return &bus.RequestError{Fault: bus.OfEntry, Err: errors.New("ValidationException")}
			}
		}
		return nil
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
		"one of two":      {2, []int{1}, 3},
		"two apart":       {10, []int{2, 7}, 11},
		"all":             {10, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 19},
		"in two requests": {20, []int{3, 13}, 18},
	} {
		var s store
		s.Reject = rejecting(test.rejected...)
		errs := newBus(&s).Publish(t.Context(), many(test.events))
		if diff := cmp.Diff(test.rejected, failed(errs)); diff != "" || len(s.requests) > test.calls {
			t.Errorf("%s: %d requests, want at most %d; %s", name, len(s.requests), test.calls, diff)
		}
		published := map[string]bool{}
		for _, e := range s.Entries() {
			published[string(e.Detail)] = true
		}
		if n := len(published); n != test.events-len(test.rejected) || n != len(s.Entries()) {
			t.Errorf("%s: %d entries, %d of them different", name, len(s.Entries()), n)
		}
	}
}

func TestTheSearchForRejectedEventsStopsWhenTheTimeIsUp(t *testing.T) {
	for last := range 4 {
		ctx, cancel := context.WithCancel(t.Context())
		var s store
		s.Reject = func(e bus.Entry) error {
			if len(s.requests) == last+1 {
				cancel()
			}
			return rejecting(0, 9)(e)
		}
		errs := newBus(&s).Publish(ctx, many(10))
		if last == 0 && len(s.requests) != 1 { // a rejected request is not split
			t.Errorf("%d requests after the first", len(s.requests))
		}
		if taken := len(s.Entries()); len(failed(errs)) != 10-taken {
			t.Errorf("%v, and %d are on the bus", errs, taken)
		}
		cancel()
	}
}
