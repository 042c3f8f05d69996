package eventbridge_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"payhook.example/shared/aws/eventbridge"
	"payhook.example/shared/awstest"
	"payhook.example/shared/bus"
)

// answering returns a bus with these answers.
func answering(t *testing.T, answers ...string) (*eventbridge.Bus, *awstest.Wire) {
	t.Helper()
	cfg, w := awstest.Answering(t, answers...)
	return eventbridge.NewBus(eventbridge.NewClient(cfg), "payments"), w
}

// one is a request of one event.
var one = []bus.Entry{{Source: "payhook", DetailType: "A.B", Detail: []byte("{}"), Time: time.Now()}}

func TestARequestHasTheEvents(t *testing.T) {
	b, w := answering(t, `{"Entries":[{"EventId":"1"},{"EventId":"2"}]}`)
	const detail = " {\"é\":\"\\u00e9\"}\n"
	failures, err := b.Put(t.Context(), []bus.Entry{
		{Source: "payhook", DetailType: "A.B", Detail: []byte(detail), DeliveryID: "id"},
		{Source: "other", DetailType: "C.D", Detail: []byte("{}")}})
	if diff := gocmp.Diff([]error{nil, nil}, failures); diff != "" || err != nil {
		t.Error(err, diff)
	}
	type entry struct {
		EventBusName, Source, DetailType, Detail string
		Resources                                []string
	}
	var got struct{ Entries []entry }
	requests := w.Requests()
	if err := json.Unmarshal([]byte(requests[0].Body), &got); err != nil {
		t.Fatal(err)
	}
	want := []entry{{EventBusName: "payments", Source: "payhook", DetailType: "A.B", Detail: detail,
		Resources: []string{"id"}}, {EventBusName: "payments", Source: "other", DetailType: "C.D", Detail: "{}"}}
	if diff := gocmp.Diff(want, got.Entries); diff != "" || requests[0].Operation != "PutEvents" {
		t.Error(diff)
	}
	if err := b.Find(t.Context()); err != nil {
		t.Error(err)
	}
	if r := w.Requests()[0]; r.Operation != "DescribeEventBus" || r.Body != `{"Name":"payments"}` {
		t.Errorf("%+v", r)
	}
}

// A request that AWS rejects arrives as an error whose fault the SDK does not
// know, since the model of PutEvents does not list it. Package bus retries.
func TestAFailedRequestSaysWhereTheCauseIs(t *testing.T) {
	for name, test := range map[string]struct {
		answer string
		want   bus.Fault
		text   string // after the operation
	}{
		"rejected":            {awstest.Refused("ValidationException"), bus.OfEntry, "ValidationException"},
		"rejected, no code":   {awstest.Status(400, ""), bus.OfEntry, ""},
		"too large":           {awstest.Status(413, ""), bus.OfEntry, ""},
		"throttled":           {awstest.Refused("ThrottlingException"), bus.OfService, "ThrottlingException"},
		"too many requests":   {awstest.Status(429, ""), bus.OfService, ""},
		"timed out":           {awstest.Status(408, ""), bus.OfService, ""},
		"not permitted":       {awstest.Refused("AccessDeniedException"), bus.OfCaller, "AccessDeniedException"},
		"expired credentials": {awstest.Refused("ExpiredTokenException"), bus.OfCaller, "ExpiredTokenException"},
		"no bus": {awstest.Refused("ResourceNotFoundException"), bus.OfCaller,
			"ResourceNotFoundException"},
		"service failed": {awstest.Status(500, ""), bus.OfService, ""},
		"501":            {awstest.Status(501, ""), bus.OfService, ""},
		// EventBridge may have taken the entries.
		"taken, and the answer cannot be read": {`{"Entries":`, bus.OfService, "no answer"},
	} {
		b, w := answering(t, test.answer)
		_, err := b.Put(t.Context(), one)
		text := "EventBridge PutEvents: " + cmp.Or(test.text, "UnknownError")
		if e, ok := errors.AsType[*bus.RequestError](err); !ok || e.Fault != test.want || err.Error() != text {
			t.Errorf("%s: %v, %#v; want %q", name, err, err, text)
		}
		if n := len(w.Requests()); n != 1 {
			t.Errorf("%s: %d requests", name, n)
		}
	}
	b, _ := answering(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Put(ctx, one)
	if e, ok := errors.AsType[*bus.RequestError](err); !ok || e.Fault != bus.OfService || !errors.Is(err, ctx.Err()) {
		t.Errorf("%v without time", err)
	}
}

func TestOnlyABusThatIsNotFoundIsMissing(t *testing.T) {
	const notFound = "ResourceNotFoundException"
	for name, test := range map[string]struct {
		answers []string
		want    string // "": found
	}{
		"found after failures": {[]string{awstest.Status(500, ""), awstest.Status(500, ""), "{}"}, ""},
		"missing":              {[]string{awstest.Refused(notFound)}, bus.ErrMissing.Error()},
		"denied": {[]string{awstest.Refused("AccessDeniedException")},
			"EventBridge DescribeEventBus: AccessDeniedException"},
	} {
		b, w := answering(t, test.answers...)
		err := b.Find(t.Context())
		if (err == nil) != (test.want == "") || err != nil && err.Error() != test.want ||
			len(w.Requests()) != len(test.answers) || errors.Is(err, bus.ErrMissing) != (name == "missing") {
			t.Errorf("%s: %v", name, err)
		}
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
		b, _ := answering(t, `{"Entries":[`+entries+`]}`)
		failures, err := b.Put(t.Context(), one)
		if diff := gocmp.Diff([]error{want}, failures); diff != "" || err != nil {
			t.Errorf("%s: %v, %s", entries, err, diff)
		}
	}
}

// The SDK computes a Time from UnixNano, which wraps around.
func TestATimeArrivesAsItIsOrNotAtAll(t *testing.T) {
	b, w := answering(t, `{"Entries":[{"EventId":"1"}]}`)
	for text, want := range map[string]any{
		"2026-01-31T12:00:00.123Z":       1769860800.123,
		"1969-12-31T23:59:59.5Z":         -0.5,
		"1678-01-01T00:00:00Z":           -9214560000.,
		"2262-04-11T23:47:16.854Z":       9223372036.854,
		"2262-04-11T23:47:16.854775808Z": nil, // the first instant that UnixNano can't tell
		"1677-09-21T00:12:43.145224191Z": nil,
		"0001-01-01T00:00:00Z":           nil,
		"9999-12-31T23:59:59.999Z":       nil,
	} {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Put(t.Context(), []bus.Entry{{Detail: []byte("{}"), Time: at}}); err != nil {
			t.Fatal(err)
		}
		var got struct{ Entries []map[string]any }
		if err := json.Unmarshal([]byte(w.Requests()[0].Body), &got); err != nil {
			t.Fatal(err)
		}
		if at := got.Entries[0]["Time"]; at != want {
			t.Errorf("%s: Time %v, want %v", text, at, want)
		}
	}
}
