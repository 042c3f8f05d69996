package bus_test

import (
	"bytes"
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
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

var errBucket = errors.New("the bucket is down")

// stored returns a bucket with an event, and the detail that refers to it.
func stored(t testing.TB, e payment.RawEvent) (bucket *objects.Memory, detail []byte) {
	t.Helper()
	bucket = &objects.Memory{}
	detail, err := bus.NewClaims(bucket, "claims").Put(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return bucket, detail
}

// resolve resolves a detail whose event is in a bucket with the name claims.
func resolve(ctx context.Context, bucket objects.Getter, detail []byte) ([]byte, error) {
	return bus.Resolve(ctx, func(name string) objects.Getter {
		if name != "claims" {
			return &objects.Memory{}
		}
		return bucket
	}, detail)
}

// failing is a bucket that cannot be listed or read.
func failing(err error) *objects.Memory {
	return &objects.Memory{Fails: func(context.Context, string, string) error { return err }}
}

func TestTheTimeOfAnEventIsThatOfItsLastWrite(t *testing.T) {
	bucket, detail := stored(t, large)
	store := bus.NewClaims(bucket, "claims")
	later := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	bucket.Now = func() time.Time { return later }
	if _, err := store.Put(t.Context(), large); err != nil || len(bucket.Keys()) != 1 {
		t.Errorf("the same event twice makes the objects %q: %v", bucket.Keys(), err)
	}
	if at, err := store.StoredAt(t.Context(), detail); err != nil || !at.Equal(later) {
		t.Errorf("%s, %v", at, err)
	}
	for name, test := range map[string]struct {
		store  bus.ClaimBucket
		detail []byte
		gone   bool
	}{
		// Another key begins with that of the first.
		"a part of a key":         {bucket, bytes.Replace(detail, []byte(`.json"`), []byte(`"`), 1), true},
		"deleted":                 {&objects.Memory{}, detail, true},
		"another bucket":          {bucket, bytes.Replace(detail, []byte(`"claims"`), []byte(`"other"`), 1), false},
		"no JSON":                 {bucket, []byte("x"), false},
		"a list that is denied":   {failing(errBucket), detail, false},
		"another event's content": {bucket, bytes.Replace(detail, []byte("events/6"), []byte("events/7"), 1), true},
	} {
		at, err := bus.NewClaims(test.store, "claims").StoredAt(t.Context(), test.detail)
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
	if _, err := bus.NewClaims(bucket, "claims").Put(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	find := func(id string, wanted []byte) []byte {
		t.Helper()
		key, found, err := bus.FindClaim(t.Context(), bucket, id,
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
	overwrite(t, bucket, "{}")
	if got := find(large.EventID, []byte("{}")); got != nil {
		t.Errorf("changed: %q", got)
	}
	deleted := &objects.Memory{} // after they were listed
	if err := deleted.Put(t.Context(), bucket.Keys()[0], large.Bytes); err != nil {
		t.Fatal(err)
	}
	deleted.Fails = func(_ context.Context, call, _ string) error {
		if call == "Get" {
			return objects.ErrNotFound
		}
		return nil
	}
	if _, got, err := bus.FindClaim(t.Context(), deleted, large.EventID, nil); got != nil || err != nil {
		t.Errorf("deleted: %q, %v", got, err)
	}
	if _, _, err := bus.FindClaim(t.Context(), failing(errBucket), large.EventID, nil); !errors.Is(err, errBucket) {
		t.Errorf("a list that is denied: %v", err)
	}
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

func TestResolveReturnsTheSignedEvent(t *testing.T) {
	bucket, detail := stored(t, large)
	got, err := resolve(t.Context(), bucket, detail)
	if err != nil || !bytes.Equal(got, large.Bytes) {
		t.Errorf("got %s, %v", got, err)
	}
	// Nobody can mistake the detail for the event.
	if _, err := payment.DecodeEvent(detail); err == nil || !strings.Contains(err.Error(), "event.claimCheck") {
		t.Errorf("DecodeEvent accepts a reference: %v", err)
	}
	for _, part := range []string{`"bucket":"claims"`, `"size":21`, `"eventTimestamp":"2026-01-31T12:00:00.123+0000"`} {
		if !strings.Contains(string(detail), part) {
			t.Errorf("%s is not in %s", part, detail)
		}
	}
}

// Rules match the amount of an event that is in S3 as they match others.
func TestADetailHasTheFieldsThatRulesMatch(t *testing.T) {
	for _, amount := range []string{"2000000", "1234567890.10", "1E3", "0.00", "-0", "123456789012345678"} {
		raw, err := payment.DecodeRawEvent([]byte(`{"eventName":"PAYMENT_STATUS.RELEASED",` +
			`"eventId":"6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60","eventTimestamp":"2026-01-31T12:00:00Z",` +
			`"eventData":{"note":"` + strings.Repeat("x", 1000) + `","amount": ` + amount +
			` ,"paymentCurrency":"\u0045UR",` +
			`"amountType":"PAYMENT","paymentStatus":{"more":[{}],"status":"RELEASED","statusTime":"` +
			strings.Repeat("9", 200) + `"},` +
			`"returns":{"hasReturnDetails":true},"cancelations":{},"cases":{"hasLinkedCases":false,"x":1}}}`))
		if err != nil {
			t.Fatal(err)
		}
		_, detail := stored(t, raw)
		want := `"eventData":{"amount":` + amount +
			`,"paymentCurrency":"\u0045UR","paymentStatus":{"status":"RELEASED"},` +
			`"returns":{"hasReturnDetails":true},"cases":{"hasLinkedCases":false}},"claimCheck":{`
		if !strings.Contains(string(detail), want) {
			t.Errorf("%s is not in %s", want, detail)
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
		raw, err := payment.DecodeRawEvent([]byte(`{"eventName":"A.B",` +
			`"eventId":"6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60",` +
			`"eventTimestamp":` + sent + `}`))
		if err != nil {
			t.Fatal(err)
		}
		bucket, detail := stored(t, raw)
		var got map[string]jsontext.Value
		if err := json.Unmarshal(detail, &got); err != nil || string(got["eventTimestamp"]) != want {
			t.Errorf("%.50s: %s, %v", sent, detail, err)
		}
		if event, err := resolve(t.Context(), bucket, detail); err != nil || !bytes.Equal(event, raw.Bytes) {
			t.Errorf("%.50s is resolved to %s, %v", sent, event, err)
		}
		again, err := payment.DecodeRawEvent(detail)
		if err != nil || !again.EventTimestamp.Equal(raw.EventTimestamp) {
			t.Errorf("%.50s: the reference has the time %v, %v", sent, again.EventTimestamp, err)
		}
	}
}

func TestResolveSkipsAByteOrderMark(t *testing.T) {
	bucket, detail := stored(t, large)
	got, err := resolve(t.Context(), bucket, append([]byte("\ufeff"), detail...))
	if err != nil || !bytes.Equal(got, large.Bytes) {
		t.Errorf("%s, %v", got, err)
	}
	marked := append([]byte("\ufeff"), large.Bytes...)
	if got, err := resolve(t.Context(), bucket, marked); err != nil || !bytes.Equal(got, marked) {
		t.Errorf("%s, %v", got, err)
	}
}

func TestResolveReturnsOtherDetailsUnchanged(t *testing.T) {
	got, err := resolve(t.Context(), nil, large.Bytes)
	if err != nil || !bytes.Equal(got, large.Bytes) {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestResolveRejectsWhatIsAltered(t *testing.T) {
	for name, body := range map[string]string{"other bytes": "{ \"amount\" : 900.00 }",
		"longer": string(large.Bytes) + " ", "shorter": "{}", "empty": ""} {
		bucket, detail := stored(t, large)
		altered := strings.Replace(string(detail), `"size":21`, fmt.Sprintf(`"size":%d`, len(body)), 1)
		if _, err := resolve(t.Context(), bucket, []byte(altered)); len(body) != len(large.Bytes) &&
			!errors.Is(err, bus.ErrAltered) {
			t.Errorf("a reference to another size, %s: %v", name, err)
		}
		overwrite(t, bucket, body)
		if _, err := resolve(t.Context(), bucket, detail); !errors.Is(err, bus.ErrAltered) {
			t.Errorf("another object, %s: %v", name, err)
		}
	}
}

func TestResolveReturnsTheErrorOfTheBucket(t *testing.T) {
	bucket, detail := stored(t, large)
	for name, test := range map[string]struct {
		bucket objects.Getter
		detail []byte
		want   error
	}{
		"gone":           {&objects.Memory{}, detail, bus.ErrGone},
		"another bucket": {bucket, bytes.Replace(detail, []byte(`"claims"`), []byte(`"other"`), 1), bus.ErrGone},
		"denied":         {failing(objects.ErrDenied), detail, bus.ErrDenied},
		"down":           {failing(errBucket), detail, errBucket},
	} {
		got, err := resolve(t.Context(), test.bucket, test.detail)
		if got != nil || !errors.Is(err, test.want) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
		for _, other := range []error{bus.ErrGone, bus.ErrDenied, bus.ErrAltered} {
			if errors.Is(err, other) && other != test.want {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if _, err := resolve(t.Context(), bucket, []byte("not JSON")); err == nil {
		t.Error("a detail that is not JSON is resolved")
	}
}

// The largest source, detail-type and delivery id leave room in a request of 2 KiB.
func TestLargestReferenceFitsSmallestRequest(t *testing.T) {
	bucket := strings.Repeat("b", 63)       // AWS, "General purpose bucket naming rules"
	name := strings.Repeat("A", 126) + ".B" // the longest
	id := uuid.New().String()
	raw := []byte(`{"eventName":"` + name + `","eventId":"` + id +
		`","eventTimestamp":"2026-01-31T12:00:00.123456789Z","x":"` + strings.Repeat("x", 6<<20) + `"}`)
	event, err := payment.DecodeRawEvent(raw)
	if err != nil {
		t.Fatal(err)
	}
	detail, err := bus.NewClaims(&objects.Memory{}, bucket).Put(t.Context(), event)
	if err != nil {
		t.Fatal(err)
	}
	const least = 2048
	b := bus.New(nil, strings.Repeat("s", 256), least)
	if e := (bus.Event{DetailType: event.EventName, Detail: detail, DeliveryID: id}); !b.Fits(e) {
		t.Errorf("it has %d bytes", b.Size(e))
	}
}

func FuzzResolve(f *testing.F) {
	bucket, detail := stored(f, large)
	f.Add(detail)
	f.Add(large.Bytes)
	f.Add([]byte(`{"claimCheck":null}`))
	f.Add([]byte(`{"claimCheck":{"bucket":"claims","key":"","size":-1,"sha256":""}}`))
	f.Add(bytes.Replace(detail, []byte(`"size":21`), []byte(`"size":-21`), 1))
	f.Fuzz(func(t *testing.T, detail []byte) {
		got, err := resolve(t.Context(), bucket, detail)
		// The result is the detail itself or the object in the bucket.
		if err == nil && !bytes.Equal(got, detail) && !bytes.Equal(got, large.Bytes) {
			t.Fatalf("%s resolves to %s", detail, got)
		}
	})
}
