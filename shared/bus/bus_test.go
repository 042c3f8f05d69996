package bus_test

import (
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
	"payhook.example/shared/objects"
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

func init() { objects.PauseOf = func(time.Duration) time.Duration { return 0 } }

func failures(errs []error) (n int) {
	for _, err := range errs {
		if err != nil {
			n++
		}
	}
	return n
}

func TestAnEntryIsTheEventItself(t *testing.T) {
	var m bus.Memory
	e := event(" { \"amount\" : 100.00,\t\"text\":\"\\u00e9é\" }\n")
	if errs := newBus(&m).Publish(t.Context(), []bus.Event{e}); failures(errs) > 0 {
		t.Fatal(errs)
	}
	if diff := cmp.Diff([]bus.Entry{{Source: "payhook", Event: e}}, m.Entries()); diff != "" {
		t.Error(diff)
	}
}

// The end-to-end tests compare this with an emulator.
func TestTheMemoryRejectsWhatEventBridgeDoes(t *testing.T) {
	put := func(events ...bus.Event) (*bus.Memory, []error, error) {
		var m bus.Memory
		entries := make([]bus.Entry, len(events))
		for i, e := range events {
			entries[i] = bus.Entry{Source: "payhook", Event: e}
		}
		failures, err := m.Put(t.Context(), entries)
		return &m, failures, err
	}
	room := maxBytes - newBus(nil).Size(event(""))
	for name, c := range map[string]struct {
		events []bus.Event
		taken  bool
	}{
		"ten": {many(10), true}, "eleven": {many(11), false}, "none": {nil, false},
		"1 MB less a byte": {[]bus.Event{event("{" + strings.Repeat(" ", room-3) + "}")}, true},
		"1 MB":             {[]bus.Event{event("{" + strings.Repeat(" ", room-2) + "}")}, false},
	} {
		m, _, err := put(c.events...)
		e, rejected := errors.AsType[*bus.RequestError](err)
		if rejected == c.taken || rejected && e.Fault != bus.OfEntry || c.taken != (len(m.Entries()) > 0) {
			t.Errorf("%s: %v, %d entries", name, err, len(m.Entries()))
		}
	}
	long, list := event("{}"), event("[]")
	long.DetailType = strings.Repeat("x", 129)
	m, failures, err := put(event("{}"), long, list)
	if diff := cmp.Diff([]error{nil, &bus.EntryError{Fault: bus.OfEntry, Code: "InvalidArgument"},
		&bus.EntryError{Fault: bus.OfEntry, Code: "MalformedDetail"}}, failures); diff != "" || err != nil ||
		len(m.Entries()) != 1 {
		t.Errorf("%v, %s", err, diff)
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
			var s store
			b := bus.New(&s, "src-7by", 1000)
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
			var requests []int
			for _, request := range s.requests {
				requests = append(requests, len(request))
			}
			slices.Sort(requests)
			if diff := cmp.Diff(test.want, requests); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOnlyFailedPositionsAreTriedAgain(t *testing.T) {
	var s store
	s.Reject = func(e bus.Entry) error {
		n := len(s.requests)
		if i := slices.Index(s.requests[n-1], string(e.Detail)); n == 1 && i%3 == 1 || n == 2 && i == 1 {
			return &bus.EntryError{Code: "ThrottlingException"}
		}
		return nil
	}
	if errs := newBus(&s).Publish(t.Context(), many(8)); failures(errs) > 0 {
		t.Fatal(errs)
	}
	want := [][]string{
		{`{"i":0}`, `{"i":1}`, `{"i":2}`, `{"i":3}`, `{"i":4}`, `{"i":5}`, `{"i":6}`, `{"i":7}`},
		{`{"i":1}`, `{"i":4}`, `{"i":7}`},
		{`{"i":4}`},
	}
	if diff := cmp.Diff(want, s.requests); diff != "" {
		t.Error(diff)
	}
	if n := len(s.Entries()); n != 8 {
		t.Errorf("%d entries for 8 events", n)
	}
}

var errDown = errors.New("connection reset")

// Only what may succeed another time is tried again, and only a request with an unknown cause is split.
func TestTheFaultDecidesWhatIsTriedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		err              error // of the third of four events
		requests, failed int
	}{
		"of the service":        {&bus.RequestError{Fault: bus.OfService, Err: errDown}, 4, 4},
		"unknown":               {errDown, 4, 4},
		"of the caller":         {&bus.RequestError{Fault: bus.OfCaller, Err: errDown}, 1, 4},
		"of an unknown entry":   {&bus.RequestError{Fault: bus.OfEntry, Err: errDown}, 5, 1},
		"one entry, for a time": {&bus.EntryError{Fault: bus.OfService, Code: "ThrottlingException"}, 4, 1},
		"one entry":             {&bus.EntryError{Fault: bus.OfEntry, Code: "MalformedDetail"}, 1, 1},
	} {
		var s store
		s.Reject = func(e bus.Entry) error {
			if string(e.Detail) == `{"i":2}` {
				return test.err
			}
			return nil
		}
		errs := newBus(&s).Publish(t.Context(), many(4))
		if failures(errs) != test.failed || !errors.Is(errs[2], test.err) || len(s.requests) != test.requests ||
			len(s.Entries()) != 4-test.failed {
			t.Errorf("%s: %d requests, %d entries, %v", name, len(s.requests), len(s.Entries()), errs)
		}
	}
}

func TestPausesDouble(t *testing.T) {
	var pauses []time.Duration
	none := objects.PauseOf
	defer func() { objects.PauseOf = none }()
	objects.PauseOf = func(longest time.Duration) time.Duration {
		pauses = append(pauses, longest)
		return 0
	}
	newBus(&bus.Memory{Reject: func(bus.Entry) error { return errDown }}).Publish(t.Context(), many(1))
	if diff := cmp.Diff([]time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond},
		pauses); diff != "" {
		t.Error(diff)
	}
}

// answers are those of calls, one after another.
type answers []error

func (a *answers) Find(context.Context) error {
	err := (*a)[0]
	*a = (*a)[1:]
	return err
}

func TestOnlyABusThatIsNotFoundIsMissing(t *testing.T) {
	denied := &bus.RequestError{Fault: bus.OfCaller, Err: errors.New("denied")}
	for name, c := range map[string]struct {
		answers answers
		want    error
	}{
		"found":           {answers{nil}, nil},
		"missing":         {answers{bus.ErrMissing}, bus.ErrMissing},
		"denied":          {answers{denied}, denied},
		"a failure first": {answers{errDown, errDown, errDown, bus.ErrMissing}, bus.ErrMissing},
		"failures":        {answers{errDown, errDown, errDown, errDown}, errDown},
	} {
		if err := bus.Find(t.Context(), &c.answers); !errors.Is(err, c.want) || len(c.answers) > 0 {
			t.Errorf("%s: %v, and %d calls less", name, err, len(c.answers))
		}
	}
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
		"the last":        {10, []int{9}, 9},
		"one of two":      {2, []int{1}, 3},
		"two apart":       {10, []int{2, 7}, 11},
		"all":             {10, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 19},
		"in two requests": {20, []int{3, 13}, 18},
	} {
		t.Run(name, func(t *testing.T) {
			var s store
			s.Reject = rejecting(test.rejected...)
			errs := newBus(&s).Publish(t.Context(), many(test.events))
			for i, err := range errs {
				if slices.Contains(test.rejected, i) != (err != nil) {
					t.Errorf("position %d: %v", i, err)
				}
			}
			var got []string
			for _, e := range s.Entries() {
				got = append(got, string(e.Detail))
			}
			slices.Sort(got)
			if n := len(slices.Compact(got)); n != test.events-len(test.rejected) || n != len(s.Entries()) {
				t.Errorf("%d entries, %d of them different", len(s.Entries()), n)
			}
			if len(s.requests) > test.calls {
				t.Errorf("%d requests, want at most %d", len(s.requests), test.calls)
			}
		})
	}
}

func TestAnEventThatEventBridgeIsKnownToRejectIsNotSent(t *testing.T) {
	for _, wrong := range [][]int{{0}, {4, 9}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}} {
		var m bus.Memory
		events := many(12)
		for _, i := range wrong {
			events[i] = event(`{"eventData":{"amount":99999999999999999999}}`)
		}
		errs := newBus(&m).Publish(t.Context(), events)
		for i, err := range errs {
			if _, ok := errors.AsType[*bus.DetailError](err); ok != slices.Contains(wrong, i) || !ok && err != nil {
				t.Errorf("position %d: %v", i, err)
			}
		}
		if n := len(m.Entries()); n != 12-len(wrong) {
			t.Errorf("%d entries", n)
		}
	}
}

// What is rejected and what is throttled may meet in one request.
func TestThrottlingWhileRejectedEventsAreSoughtLosesNoEvent(t *testing.T) {
	var s store
	throttled := map[int]bool{}
	s.Reject = func(e bus.Entry) error {
		if n := len(s.requests[len(s.requests)-1]); n < 10 && !throttled[n] {
			throttled[n] = true
			return errDown
		}
		return rejecting(4)(e)
	}
	errs := newBus(&s).Publish(t.Context(), many(10))
	if failures(errs) != 1 || errs[4] == nil || len(s.Entries()) != 9 {
		t.Errorf("%v, %d entries", errs, len(s.Entries()))
	}
}

func TestTheSearchForRejectedEventsStopsWhenTheTimeIsUp(t *testing.T) {
	for _, last := range []int{1, 2, 3, 4} {
		ctx, cancel := context.WithCancel(t.Context())
		var s store
		s.Reject = func(e bus.Entry) error {
			if len(s.requests) == last {
				cancel()
			}
			return rejecting(0, 9)(e)
		}
		errs := newBus(&s).Publish(ctx, many(10))
		if last == 1 && len(s.requests) != 1 { // a rejected request is not split
			t.Errorf("%d requests after the first", len(s.requests))
		}
		if taken := len(s.Entries()); failures(errs) != 10-taken {
			t.Errorf("%d failed and %d are on the bus", failures(errs), taken)
		}
		cancel()
	}
}
