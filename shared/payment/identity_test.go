package payment_test

import (
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/payment"
)

// edited returns the event with one part replaced.
func edited(t *testing.T, old, replacement string) string {
	t.Helper()
	if strings.Count(event, old) != 1 {
		t.Fatalf("%q is not once in the event", old)
	}
	return strings.Replace(event, old, replacement, 1)
}

func TestATimestampDoesNotStopAnEvent(t *testing.T) {
	noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	at := noon.Add(123 * time.Millisecond)
	long := strings.Repeat("9", 129)
	for value, want := range map[string]payment.RawEvent{
		`"2026-01-31T12:00:00.123+0000"`:  {EventTimestamp: at, SentTimestamp: "2026-01-31T12:00:00.123+0000"},
		`"2026-01-31T12:00:00.123+00"`:    {EventTimestamp: at, SentTimestamp: "2026-01-31T12:00:00.123+00"},
		`"2026-01-31T12:00:00.123"`:       {EventTimestamp: at, SentTimestamp: "2026-01-31T12:00:00.123"},
		`"2026-01-31T14:00:00.123+02:00"`: {EventTimestamp: at, SentTimestamp: "2026-01-31T14:00:00.123+02:00"},
		`"2026-01-31T12:00Z"`:             {EventTimestamp: noon, SentTimestamp: "2026-01-31T12:00Z"},
		`"2026-01-31T12:00"`:              {EventTimestamp: noon, SentTimestamp: "2026-01-31T12:00"},
		`"20260131T120000,123z"`:          {EventTimestamp: at, SentTimestamp: "20260131T120000,123z"},
		`"2026-01-31T12:00:00.123\u005a"`: {EventTimestamp: at, SentTimestamp: "2026-01-31T12:00:00.123Z"},
		`"2026-06-30T23:59:60Z"`: {EventTimestamp: time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC),
			SentTimestamp: "2026-06-30T23:59:60Z"},
		`"yesterday"`:        {SentTimestamp: "yesterday"},
		`"` + long[1:] + `"`: {SentTimestamp: long[1:]},
		`"` + long + `"`:     {},
		`""`:                 {}, `1769860800123`: {}, `null`: {}, `{}`: {},
		`["2026-01-31T12:00:00Z"]`: {}, "": {},
	} {
		event, status := "", "{}"
		if value != "" {
			event, status = `"eventTimestamp":`+value+`,`, `{"statusTime":`+value+`}`
		}
		raw := inEvent(event + `"eventData":{"paymentStatus":` + status + `}`)
		got, err := payment.DecodeRawEvent(raw)
		read, failed := payment.DecodeEvent(raw)
		deviates := slices.Contains(got.Deviations, "eventTimestamp")
		if err != nil || failed != nil || !got.EventTimestamp.Equal(want.EventTimestamp) ||
			got.SentTimestamp != want.SentTimestamp || deviates != want.EventTimestamp.IsZero() ||
			!read.EventTimestamp.Equal(want.EventTimestamp) ||
			!read.EventData.PaymentStatus.StatusTime.Equal(want.EventTimestamp) {
			t.Errorf("%s: %+v, %v, and read as %+v, %v", value, got, err, read, failed)
		}
	}
}

// An element of events without identity is named, and the others are decoded as without it.
func TestAnEventWithoutIdentityDoesNotStopTheOthers(t *testing.T) {
	const other = "6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f61"
	good := strings.Replace(event, "4f60", "4f61", 1)
	name := `"eventName":"PAYMENT_STATUS.RELEASED"`
	const eventID = "6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60"
	for bad, want := range map[string]struct{ problem, id string }{
		"null": {": must be an object", ""}, "7": {": must be an object", ""}, `"x"`: {": must be an object", ""},
		"[" + event + "]":                       {": must be an object", ""},
		"{}":                                    {".eventName: is missing", ""},
		edited(t, id+",", ""):                   {".eventId: is missing", ""},
		edited(t, id, `"eventId":null`):         {".eventId: must be a string", ""},
		edited(t, id, `"eventId":["a"]`):        {".eventId: must be a string", ""},
		edited(t, id, `"eventId":"x"`):          {".eventId: must be a UUID", ""},
		edited(t, name+",", ""):                 {".eventName: is missing", eventID},
		edited(t, name, `"eventName":null`):     {".eventName: must be a string", eventID},
		edited(t, name, `"eventName":{"a":1}`):  {".eventName: must be a string", eventID},
		edited(t, name, `"eventName":"A"`):      {".eventName: must be GROUP.STATUS", eventID},
		edited(t, name, name+`,"claimCheck":1`): {".claimCheck: is the name of a reference", eventID},
		edited(t, id, id+`,"EventId":"x"`):      {": has a name that differs from eventId only in case", eventID},
		edited(t, id, id+`,"eventDATA":null`):   {": has a name that differs from eventData only in case", eventID},
		edited(t, id, id+`,"CLAIMCHECK":null`):  {": has a name that differs from claimCheck only in case", eventID},
		edited(t, id, `"EVENTID":7`):            {": has a name that differs from eventId only in case", ""},
	} {
		for events, at := range map[string][]int{ // where the bad ones are
			"good,bad": {1}, "bad,good": {0}, "good,bad,good": {1}, "bad,bad,good": {0, 1}, "bad": {0},
			"bad,bad": {0, 1},
		} {
			n := strings.Count(events, "good")
			text := strings.NewReplacer("good", good, "bad", bad).Replace(events)
			got, err := payment.DecodeDelivery([]byte(strings.Replace(delivery, event, text, 1)))
			var rejected []payment.Rejected
			for _, position := range at {
				rejected = append(rejected, payment.Rejected{Position: position, EventID: want.id})
			}
			if n > 0 && (err != nil || !cmp.Equal(got.Rejected, rejected)) || len(got.Events) != n {
				t.Fatalf("%s: %+v, %v", text, got, err)
			}
			field, ok := errors.AsType[*payment.FieldError](errors.Join(err, got.Err))
			if want := fmt.Sprintf("events[%d]", at[0]) + want.problem; !ok || !strings.HasPrefix(field.Error(), want) {
				t.Errorf("%s: %v, want %s", text, field, want)
			}
			for _, e := range got.Events {
				if e.EventID != other || string(e.Bytes) != good || e.EventName == "" || e.EventTimestamp.IsZero() {
					t.Errorf("%s: %+v", text, e)
				}
			}
		}
	}
}

// What follows an event without identity is read as well: it can make the whole payload ambiguous.
func TestAnEventWithoutIdentityDoesNotHideWhatFollows(t *testing.T) {
	good := strings.Replace(event, "4f60", "4f61", 1)
	for _, bad := range []string{`{"a":1,"a":2}`, `{"eventId":7,"x":{"a":1,"\u0061":2}}`, "{\"x\":\"\xff\"}",
		`{"x":"\ud800"}`,
		`{"x":01}`, `[1,]`, `nul`, edited(t, `"railReferenceId":{}`, `"railReferenceId":{"a":1,"a":2}`)} {
		for _, events := range []string{good + ",null," + bad, "null," + bad + "," + good} {
			if got, err := payment.DecodeDelivery([]byte(strings.Replace(delivery, event, events, 1))); err == nil {
				t.Errorf("%s: %+v", events, got)
			}
		}
	}
	for _, change := range [][2]string{{`"deliveryId":"0b7e4c1e`, `"deliveryId":"zb7e4c1e`}, {"null]}",
		`null],"Events":[]}`},
		{"null]}", `null],"DELIVERYID":1}`}, {"null]}", "null]}x"}} {
		text := strings.Replace(strings.Replace(delivery, event, good+",null", 1), change[0], change[1], 1)
		if got, err := payment.DecodeDelivery([]byte(text)); err == nil {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

// A byte order mark is skipped, and is not in the bytes of an event.
func TestAByteOrderMarkIsSkipped(t *testing.T) {
	const mark = "\ufeff"
	got, err := payment.DecodeDelivery([]byte(mark + delivery))
	if err != nil || len(got.Events) != 1 || string(got.Events[0].Bytes) != event {
		t.Errorf("%+v, %v", got, err)
	}
	if e, err := payment.DecodeRawEvent([]byte(mark + event)); err != nil || string(e.Bytes) != event {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err := payment.DecodeEvent([]byte(mark + event)); err != nil || e.EventID == "" {
		t.Errorf("%+v, %v", e, err)
	}
	if id, ids := payment.PeekIDs([]byte(mark+delivery), 10); id != got.DeliveryID || len(ids) != 1 {
		t.Errorf("%s, %s", id, ids)
	}
	if id := payment.PeekDeliveryID([]byte(mark + delivery)); id != got.DeliveryID {
		t.Errorf("%q", id)
	}
	if at := payment.PeekTime([]byte(mark + delivery)); at.IsZero() {
		t.Error("no time")
	}
}

func TestPeekDeliveryIDReadsTheBeginning(t *testing.T) {
	const id = "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d"
	first := delivery[1:strings.Index(delivery, `,"events"`)]
	events := `"events":[` + event + `]`
	filled := func(n int) string { // so that the deliveryId ends at byte n
		begin, end := `{"x":"`, `",`+first
		return begin + strings.Repeat("x", n-len(begin+end)) + end
	}
	for payload, want := range map[string]string{
		delivery:                         id,
		"{" + events + "," + first + "}": id,
		"{" + events + "," + first:       id,
		`{"a":{"deliveryId":"6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60"},` + first + "}": id,
		`{"deliveryId":null,` + first + `}`:                                         id,
		`{"deliveryId":"x",` + first + `}`:                                          id,
		`{"\u0064eliveryId":"` + id + `"}`:                                          id,
		`{"x":"` + "\xff" + `",` + first + `}`:                                      id,
		filled(64<<10) + "}":                                                        id,
		filled(64<<10+1) + "}":                                                      "",
		"[" + delivery + "]":                                                        "",
		`{"events":[` + strings.Repeat(event+",", 200) + `7],` + first + "}":        "", "{": "", "": "",
		`{"deliveryId":`:               "",
		`{"events":[,],` + first + "}": "",
	} {
		if got := payment.PeekDeliveryID([]byte(payload)); got != want {
			t.Errorf("%.100s: %q, want %q", payload, got, want)
		}
	}
}

// FuzzEventData checks that every valid value is accepted as eventData.
func FuzzEventData(f *testing.F) {
	eventData := event[strings.Index(event, `{"identifiers"`) : len(event)-1]
	for _, text := range []string{eventData, "null", `{"amount":null}`, `[{"a":1e400}]`, `{"a":1,"a":2}`, "{",
		`"\ud800"`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data string) {
		raw := []byte(strings.Replace(event, eventData, data, 1))
		valid := jsontext.Value(data).IsValid() && jsontext.Value(raw).IsValid()
		e, err := payment.DecodeRawEvent(raw)
		if valid && (err != nil || string(e.Bytes) != string(raw)) {
			t.Fatalf("%s: %v", data, err)
		}
	})
}
