package eventbridge_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	gocmp "github.com/google/go-cmp/cmp"

	"payhook.example/shared/aws/eventbridge"
	"payhook.example/shared/bus"
	"payhook.example/shared/storetest"
)

// request is a request as it travels.
type request struct {
	Name    string // of DescribeEventBus
	Entries []struct {
		EventBusName, Source, DetailType, Detail string
		Time                                     json.RawMessage
		Resources                                []string
	}
}

// onTheWire returns the bus with the SDK's client on a real connection, to a server that answers as answer says.
func onTheWire(t *testing.T, answer func(w http.ResponseWriter, r request)) *eventbridge.FindableBus {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var sent request
		body, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(body, &sent) != nil {
			t.Errorf("%s, %v", body, err)
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		answer(w, sent)
	}))
	t.Cleanup(server.Close)
	cfg := aws.Config{Region: "eu-central-1", BaseEndpoint: &server.URL,
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", "")}
	return eventbridge.NewFindableBus(eventbridge.NewClient(cfg), "payments")
}

// serve answers as EventBridge does with the bus.
func serve(t *testing.T, m *bus.Memory) func(http.ResponseWriter, request) {
	return func(w http.ResponseWriter, r request) {
		if m.Missing && r.Name != "" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"__type":"ResourceNotFoundException"}`)
			return
		} else if r.Name != "" {
			_, _ = io.WriteString(w, `{}`)
			return
		}
		var entries []bus.Entry
		for _, sent := range r.Entries {
			e := bus.Entry{Source: sent.Source, DetailType: sent.DetailType, Detail: []byte(sent.Detail)}
			if len(sent.Resources) > 0 {
				e.DeliveryID = sent.Resources[0]
			}
			var seconds float64
			if err := json.Unmarshal(sent.Time, &seconds); err != nil || sent.EventBusName != "payments" ||
				len(sent.Resources) > 1 {
				t.Errorf("%+v is sent", sent)
			}
			e.Time = time.UnixMilli(int64(math.Round(seconds * 1000)))
			entries = append(entries, e)
		}
		failures, err := m.Put(t.Context(), entries)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"__type":"ValidationException"}`)
			return
		}
		var results []string
		for n, failure := range failures {
			result := fmt.Sprintf(`{"EventId":"%d"}`, n)
			if e, ok := errors.AsType[*bus.EntryError](failure); ok {
				result = fmt.Sprintf(`{"ErrorCode":%q,"ErrorMessage":"text"}`, e.Code)
			}
			results = append(results, result)
		}
		fmt.Fprintf(w, `{"Entries":[%s]}`, strings.Join(results, ","))
	}
}

func TestTheBusAndTheMemoryHaveTheSameResults(t *testing.T) {
	for seed := range uint64(10) {
		behind := &bus.Memory{Missing: seed == 9}
		b := onTheWire(t, serve(t, behind))
		storetest.Bus(t, seed, 200, behind.Missing, storetest.EventBus{Store: b, Finder: b, Entries: behind.Entries})
	}
}

// event is a request of one event.
var event = []bus.Entry{{Source: "payhook", DetailType: "A.B", Detail: []byte("{}"), Time: time.Now()}}

// A request that AWS rejects arrives as an error whose fault the SDK does not
// know, since the model of PutEvents does not list it.
func TestAFailedRequestSaysWhereTheCauseIs(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		body   string
		want   bus.Fault
		text   string // after the operation
	}{
		"rejected": {400, `{"__type":"ValidationException","message":"arn:aws:events"}`, bus.OfEntry,
			"ValidationException"},
		"rejected, no code":   {400, ``, bus.OfEntry, ""},
		"too large":           {413, ``, bus.OfEntry, ""},
		"cannot be read":      {400, `{"__type":"SerializationException"}`, bus.OfEntry, "SerializationException"},
		"throttled":           {400, `{"__type":"ThrottlingException"}`, bus.OfService, "ThrottlingException"},
		"too many requests":   {429, ``, bus.OfService, ""},
		"timed out":           {408, ``, bus.OfService, ""},
		"not permitted":       {400, `{"__type":"AccessDeniedException"}`, bus.OfCaller, "AccessDeniedException"},
		"expired credentials": {403, `{"__type":"ExpiredTokenException"}`, bus.OfCaller, "ExpiredTokenException"},
		"no such caller":      {403, `{"__type":"InvalidClientTokenId"}`, bus.OfCaller, "InvalidClientTokenId"},
		"service failed":      {500, `{"__type":"InternalException"}`, bus.OfService, "InternalException"},
		"unavailable":         {503, ``, bus.OfService, ""},
		"not implemented":     {501, ``, bus.OfService, ""},
		// EventBridge may have taken the entries.
		"taken, and the answer cannot be read": {200, `{"Entries":`, bus.OfService, "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			b := onTheWire(t, func(w http.ResponseWriter, _ request) {
				calls++
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			})
			_, err := b.Put(t.Context(), event)
			failed := map[string]error{"EventBridge PutEvents: ": err}
			if test.status != 200 {
				failed["EventBridge DescribeEventBus: "] = b.Find(t.Context())
			}
			for operation, err := range failed {
				text := operation + cmp.Or(test.text, "UnknownError")
				if e, ok := errors.AsType[*bus.RequestError](err); !ok || e.Fault != test.want || err.Error() != text {
					t.Errorf("%v, %#v; want %q", err, err, text)
				}
			}
			if calls != len(failed) {
				t.Errorf("%d requests", calls)
			}
		})
	}
	b := onTheWire(t, func(w http.ResponseWriter, _ request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"__type":"ResourceNotFoundException"}`)
	})
	_, err := b.Put(t.Context(), event)
	if e, ok := errors.AsType[*bus.RequestError](err); !ok || e.Fault != bus.OfCaller {
		t.Errorf("%v of no bus", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.Put(ctx, event)
	if e, ok := errors.AsType[*bus.RequestError](err); !ok || e.Fault != bus.OfService || !errors.Is(err, ctx.Err()) {
		t.Errorf("%v without time", err)
	}
}

// An event is on the bus only if EventBridge gave it an id and no error.
func TestAnEntryIsTakenOnlyWithAnIDAndWithoutAnError(t *testing.T) {
	other := &bus.EntryError{Fault: bus.OfEntry, Code: "Other"}
	for entries, want := range map[string]error{
		`{"EventId":"1"}`: nil, ``: &bus.EntryError{}, `{}`: &bus.EntryError{}, `{"EventId":""}`: &bus.EntryError{},
		`{"ErrorCode":"Other"}`: other, `{"ErrorCode":"Other","EventId":"1"}`: other,
		`{"ErrorCode":"InternalFailure"}`:     &bus.EntryError{Code: "InternalFailure"},
		`{"ErrorCode":"ThrottlingException"}`: &bus.EntryError{Code: "ThrottlingException"},
	} {
		b := onTheWire(t, func(w http.ResponseWriter, _ request) { fmt.Fprintf(w, `{"Entries":[%s]}`, entries) })
		failures, err := b.Put(t.Context(), event)
		if diff := gocmp.Diff([]error{want}, failures); diff != "" || err != nil {
			t.Errorf("%s: %v, %s", entries, err, diff)
		}
	}
}

// The SDK computes a Time from UnixNano, which wraps around.
func TestATimeArrivesAsItIsOrNotAtAll(t *testing.T) {
	for text, want := range map[string]string{
		"2026-01-31T12:00:00.123Z":       "1769860800.123",
		"1969-12-31T23:59:59.5Z":         "-0.5",
		"1678-01-01T00:00:00Z":           "-9214560000",
		"2262-04-11T23:47:16.854Z":       "9223372036.854",
		"2262-04-11T23:47:16.854775808Z": "", // the first instant that UnixNano can't tell
		"2262-04-12T00:00:00Z":           "",
		"1677-09-21T00:12:43.145224191Z": "",
		"0001-01-01T00:00:00Z":           "",
		"9999-12-31T23:59:59.999Z":       "",
	} {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		var got json.RawMessage
		b := onTheWire(t, func(w http.ResponseWriter, r request) {
			got = r.Entries[0].Time
			_, _ = io.WriteString(w, `{"Entries":[{"EventId":"1"}]}`)
		})
		if _, err := b.Put(t.Context(), []bus.Entry{{Detail: []byte("{}"), Time: at}}); err != nil {
			t.Fatal(err)
		}
		same := string(got) == want
		if !same && want != "" && got != nil {
			var seconds, wanted float64
			same = json.Unmarshal(got, &seconds) == nil && json.Unmarshal([]byte(want), &wanted) == nil &&
				seconds == wanted
		}
		if !same {
			t.Errorf("%s: Time %s, want %q", text, got, want)
		}
	}
}
