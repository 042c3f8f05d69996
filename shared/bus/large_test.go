package bus_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"payhook.example/shared/bus"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
)

var large = payment.RawEvent{
	EventName: "PAYMENT_STATUS.RELEASED", EventID: "6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60",
	EventTimestamp: time.Date(2026, 1, 31, 12, 0, 0, 123e6, time.UTC), SentTimestamp: "2026-01-31T12:00:00.123+0000",
	Bytes: []byte("{ \"amount\" : 100.00 }"),
}

// stored returns a bucket with an event, and the detail that refers to it.
func stored(t testing.TB, e payment.RawEvent) (bucket *objects.Memory, detail []byte) {
	t.Helper()
	bucket = &objects.Memory{}
	detail, err := bus.NewLargeEvents(bucket, "large-events").Put(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return bucket, detail
}

// raw returns an event with these members after its eventId.
func raw(t *testing.T, members string) payment.RawEvent {
	t.Helper()
	e, err := payment.DecodeRawEvent([]byte(`{"eventName":"A.B","eventId":"` + large.EventID + `",` + members + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// resolve resolves a detail whose event is in a bucket with the name largeEvents.
func resolve(ctx context.Context, bucket objects.Getter, detail []byte) ([]byte, error) {
	return bus.Resolve(ctx, func(name string) objects.Getter {
		if name != "large-events" {
			return &objects.Memory{}
		}
		return bucket
	}, detail)
}

// failing is a bucket whose calls of a method fail.
func failing(method string, err error) *objects.Memory {
	return &objects.Memory{Fails: func(_ context.Context, call, _ string) error {
		if call == method {
			return err
		}
		return nil
	}}
}

// replaced returns a detail with another text in one place.
func replaced(detail []byte, before, after string) []byte {
	return bytes.Replace(detail, []byte(before), []byte(after), 1)
}

// overwrite replaces the content of every object.
func overwrite(t *testing.T, bucket *objects.Memory, body string) {
	t.Helper()
	for _, key := range bucket.Keys() {
		if err := bucket.Put(t.Context(), key, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheTimeOfAnEventIsThatOfItsLastWrite(t *testing.T) {
	bucket, detail := stored(t, large)
	store := bus.NewLargeEvents(bucket, "large-events")
	later := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	bucket.Now = func() time.Time { return later }
	if _, err := store.Put(t.Context(), large); err != nil || len(bucket.Keys()) != 1 {
		t.Errorf("the same event twice makes the objects %q: %v", bucket.Keys(), err)
	}
	down := bus.NewLargeEvents(failing("Put", errDown), "large-events")
	if _, err := down.Put(t.Context(), large); !errors.Is(err, errDown) {
		t.Error(err)
	}
	if at, err := store.StoredAt(t.Context(), detail); err != nil || !at.Equal(later) {
		t.Errorf("%s, %v", at, err)
	}
	for name, test := range map[string]struct {
		bucket bus.LargeEventBucket
		detail []byte
		gone   bool
	}{
		"a part of a key":         {bucket, replaced(detail, `.json"`, `"`), true}, // the key begins with it
		"deleted":                 {&objects.Memory{}, detail, true},
		"another bucket":          {bucket, replaced(detail, `"large-events"`, `"other"`), false},
		"no JSON":                 {bucket, []byte("x"), false},
		"a list that is denied":   {failing("List", errDown), detail, false},
		"another event's content": {bucket, replaced(detail, "events/6", "events/7"), true},
	} {
		at, err := bus.NewLargeEvents(test.bucket, "large-events").StoredAt(t.Context(), test.detail)
		if err == nil || errors.Is(err, bus.ErrGone) != test.gone || !at.IsZero() {
			t.Errorf("%s: %s, %v", name, at, err)
		}
	}
}

// A content is found by the id alone, in any case, and only if it is not changed.
func TestContentsOfAnEventAreFound(t *testing.T) {
	bucket, _ := stored(t, large)
	second := large
	second.EventID, second.Bytes = strings.ToUpper(large.EventID), []byte(`{"amount":2}`)
	if _, err := bus.NewLargeEvents(bucket, "large-events").Put(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	find := func(id string, wanted []byte) []byte {
		t.Helper()
		key, found, err := bus.FindLargeEvent(t.Context(), bucket, id,
			func(content []byte) bool { return bytes.Equal(content, wanted) })
		if err != nil || !bytes.Equal(bucket.Objects()[key], found) {
			t.Errorf("%s, %v", key, err)
		}
		return found
	}
	for _, want := range [][]byte{large.Bytes, second.Bytes} {
		if got := find(second.EventID, want); !bytes.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := find(large.EventID[:8], large.Bytes); got != nil {
		t.Errorf("another id: %q", got)
	}
	odd := fmt.Sprintf("events/%s/x;touch pwned;\x1b/%x.json", large.EventID, sha256.Sum256([]byte("[]")))
	if err := bucket.Put(t.Context(), odd, []byte("[]")); err != nil {
		t.Fatal(err)
	}
	if got := find(large.EventID, []byte("[]")); got != nil { // its key would be printed
		t.Errorf("another key: %q", got)
	}
	overwrite(t, bucket, "{}")
	if got := find(large.EventID, []byte("{}")); got != nil {
		t.Errorf("changed: %q", got)
	}
	for method, want := range map[error]error{objects.ErrNotFound: nil, errDown: errDown} { // after they were listed
		bucket.Fails = failing("Get", method).Fails
		_, got, err := bus.FindLargeEvent(t.Context(), bucket, large.EventID, nil)
		if got != nil || !errors.Is(err, want) {
			t.Errorf("%v: %q, %v", method, got, err)
		}
	}
	if _, _, err := bus.FindLargeEvent(t.Context(), failing("List", errDown), "", nil); !errors.Is(err, errDown) {
		t.Errorf("a list that is denied: %v", err)
	}
}

func TestResolveReturnsTheSignedEvent(t *testing.T) {
	bucket, detail := stored(t, large)
	marked := append([]byte("\ufeff"), large.Bytes...)
	for name, test := range map[string]struct{ detail, want []byte }{
		"a reference":             {detail, large.Bytes},
		"after a byte order mark": {append([]byte("\ufeff"), detail...), large.Bytes},
		"an event":                {large.Bytes, large.Bytes}, "an event after a byte order mark": {marked, marked},
	} {
		if got, err := resolve(t.Context(), bucket, test.detail); err != nil || !bytes.Equal(got, test.want) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	// Nobody can mistake the detail for the event.
	if _, err := payment.DecodeEvent(detail); err == nil || !strings.Contains(err.Error(), "event.claimCheck") {
		t.Errorf("DecodeEvent accepts a reference: %v", err)
	}
	for _, part := range []string{`"bucket":"large-events"`, `"size":21`,
		`"eventTimestamp":"2026-01-31T12:00:00.123+0000"`} {
		if !strings.Contains(string(detail), part) {
			t.Errorf("%s is not in %s", part, detail)
		}
	}
}

func TestResolveReturnsNothingElse(t *testing.T) {
	for name, test := range map[string]struct {
		before, after string // in the detail
		object        string // instead of the event
		fails         error  // of the bucket
		want          error
	}{
		"other bytes":     {object: "{ \"amount\" : 900.00 }", want: bus.ErrAltered},
		"longer":          {object: string(large.Bytes) + " ", want: bus.ErrAltered},
		"shorter":         {object: "{}", want: bus.ErrAltered},
		"of another size": {before: `"size":21`, after: `"size":20`, want: bus.ErrAltered},
		"of no size":      {before: `"size":21`, after: `"size":-1`, want: bus.ErrAltered},
		"gone":            {before: `.json`, after: `.jsn`, want: bus.ErrGone},
		"another bucket":  {before: `"large-events"`, after: `"other"`, want: bus.ErrGone},
		"denied":          {fails: objects.ErrDenied, want: bus.ErrDenied},
		"down":            {fails: errDown, want: errDown},
		"no JSON":         {before: `{`, after: `x`},
	} {
		bucket, detail := stored(t, large)
		if test.object != "" {
			overwrite(t, bucket, test.object)
		}
		bucket.Fails = failing("Get", test.fails).Fails
		got, err := resolve(t.Context(), bucket, replaced(detail, test.before, test.after))
		if got != nil || err == nil || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
		for _, other := range []error{bus.ErrGone, bus.ErrDenied, bus.ErrAltered} {
			if errors.Is(err, other) && other != test.want {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// A reference has the event's own timestamp, whatever it is, or none. What EventBridge or a reader could not take
// is left out.
func TestADetailHasTheTimestampThatWasSent(t *testing.T) {
	for sent, want := range map[string]string{
		`"2026-01-31T14:00:00+0200"`: `"2026-01-31T14:00:00+0200"`, `"yes\"terday"`: `"yes\"terday"`,
		`"` + strings.Repeat("x", 300<<10) + `"`: "", "99999999999999999999": "", "null": "", `{"a":[]}`: "", `""`: "",
	} {
		e := raw(t, `"eventTimestamp":`+sent)
		bucket, detail := stored(t, e)
		var got map[string]jsontext.Value
		if err := json.Unmarshal(detail, &got); err != nil || string(got["eventTimestamp"]) != want {
			t.Errorf("%.50s: %s, %v", sent, detail, err)
		}
		if event, err := resolve(t.Context(), bucket, detail); err != nil || !bytes.Equal(event, e.Bytes) {
			t.Errorf("%.50s is resolved to %s, %v", sent, event, err)
		}
		again, err := payment.DecodeRawEvent(detail)
		if err != nil || !again.EventTimestamp.Equal(e.EventTimestamp) {
			t.Errorf("%.50s: the reference has the time %v, %v", sent, again.EventTimestamp, err)
		}
	}
}

// The largest source, detail-type and delivery id leave room in a request of 2 KiB.
func TestLargestReferenceFitsSmallestRequest(t *testing.T) {
	e := raw(t, `"eventTimestamp":"2026-01-31T12:00:00.123456789Z","x":"`+strings.Repeat("x", 6<<20)+`"`)
	e.EventName = strings.Repeat("A", 126) + ".B" // the longest
	bucket := strings.Repeat("b", 63)             // AWS, "General purpose bucket naming rules"
	detail, err := bus.NewLargeEvents(&objects.Memory{}, bucket).Put(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	b := bus.New(nil, strings.Repeat("s", 256), 2048)
	if e := (bus.Event{DetailType: e.EventName, Detail: detail, DeliveryID: uuid.New().String()}); !b.Fits(e) {
		t.Errorf("it has %d bytes", b.Size(e))
	}
}

func FuzzResolve(f *testing.F) {
	bucket, detail := stored(f, large)
	f.Add(detail)
	f.Add(large.Bytes)
	f.Add([]byte(`{"claimCheck":null}`))
	f.Add([]byte(`{"claimCheck":{"bucket":"large-events","key":"","size":-1,"sha256":""}}`))
	f.Add(replaced(detail, `"size":21`, `"size":-21`))
	f.Fuzz(func(t *testing.T, detail []byte) {
		got, err := resolve(t.Context(), bucket, detail)
		// The result is the detail itself or the object in the bucket.
		if err == nil && !slices.ContainsFunc([][]byte{detail, large.Bytes},
			func(want []byte) bool { return bytes.Equal(got, want) }) {
			t.Fatalf("%s resolves to %s", detail, got)
		}
	})
}
