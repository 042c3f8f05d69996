package bus_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"

	adapter "payhook.example/shared/aws/eventbridge"
	"payhook.example/shared/bus"
)

// sentEntry is one entry of a PutEvents request as it travels.
type sentEntry struct {
	Detail    string
	Time      json.RawMessage
	Resources json.RawMessage
}

// onTheWire returns a bus with the SDK's own client on a real connection, to a
// server that answers each request as answer says.
func onTheWire(t *testing.T, answer func(w http.ResponseWriter, entries []sentEntry)) *bus.Bus {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct{ Entries []sentEntry }
		body, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(body, &request) != nil {
			t.Errorf("%s, %v", body, err)
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		answer(w, request.Entries)
	}))
	t.Cleanup(server.Close)
	client := eventbridge.New(eventbridge.Options{
		Region: "eu-central-1", BaseEndpoint: &server.URL, Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
	})
	return bus.New(adapter.NewBus(client, "payments"), "payhook", maxBytes)
}

func takeAll(w http.ResponseWriter, entries []sentEntry) {
	var results []string
	for i := range entries {
		results = append(results, fmt.Sprintf(`{"EventId":"%d"}`, i))
	}
	fmt.Fprintf(w, `{"FailedEntryCount":0,"Entries":[%s]}`, strings.Join(results, ","))
}

// A request that AWS rejects arrives as an error whose fault the SDK does not
// know, since the model of PutEvents does not list it.
func TestRejectedRequestsAreSplitOnTheWire(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		body   string
		failed int // of ten events
		calls  int
	}{
		"rejected":            {400, `{"__type":"ValidationException","message":"no"}`, 1, 9},
		"rejected, no code":   {400, ``, 1, 9},
		"too large":           {413, ``, 1, 9},
		"cannot be read":      {400, `{"__type":"SerializationException"}`, 1, 9},
		"throttled":           {400, `{"__type":"ThrottlingException"}`, 10, 4},
		"too many requests":   {429, ``, 10, 4},
		"timed out":           {408, ``, 10, 4},
		"not permitted":       {400, `{"__type":"AccessDeniedException"}`, 10, 1},
		"expired credentials": {403, `{"__type":"ExpiredTokenException"}`, 10, 1},
		"no such bus":         {400, `{"__type":"ResourceNotFoundException"}`, 10, 1},
		"service failed":      {500, `{"__type":"InternalException"}`, 10, 4},
		"unavailable":         {503, ``, 10, 4},
		"not implemented":     {501, ``, 10, 4},
		// EventBridge may have taken the entries, so they are not split.
		"taken, and the answer cannot be read": {200, `{"Entries":`, 10, 4},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			b := onTheWire(t, func(w http.ResponseWriter, entries []sentEntry) {
				calls++
				for _, e := range entries {
					if e.Detail == `{"i":6}` {
						w.WriteHeader(test.status)
						_, _ = io.WriteString(w, test.body)
						return
					}
				}
				takeAll(w, entries)
			})
			errs := b.Publish(t.Context(), many(10))
			if failures(errs) != test.failed || errs[6] == nil || calls > test.calls ||
				test.failed == 10 && calls != test.calls {
				t.Errorf("%d failed with %d requests: %v", failures(errs), calls, errs[6])
			}
		})
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
		var got sentEntry
		b := onTheWire(t, func(w http.ResponseWriter, entries []sentEntry) {
			got = entries[0]
			takeAll(w, entries)
		})
		detail := `{"eventTimestamp":"` + text + `"}`
		e := bus.Event{DetailType: "A.B", Time: at, Detail: []byte(detail)}
		if errs := b.Publish(t.Context(), []bus.Event{e}); failures(errs) > 0 {
			t.Fatal(errs)
		}
		same := string(got.Time) == want
		if !same && want != "" && got.Time != nil {
			var seconds, wanted float64
			same = json.Unmarshal(got.Time, &seconds) == nil && json.Unmarshal([]byte(want), &wanted) == nil &&
				seconds == wanted
		}
		if !same || got.Detail != detail || got.Resources != nil {
			t.Errorf("%s: Time %s, want %q; detail %s, resources %s", text, got.Time, want, got.Detail, got.Resources)
		}
	}
}
