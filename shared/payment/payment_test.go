package payment_test

import (
	"bytes"
	"encoding/json"
	"encoding/json/jsontext"
	jsonv2 "encoding/json/v2"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/payment"
)

const event = `{"eventName":"PAYMENT_STATUS.RELEASED","eventId":"6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60",` +
	`"eventTimestamp":"2026-01-31T12:00:00.123Z","eventData":{"identifiers":{"paymentRequestId":"REQ-1",` +
	`"paymentEndToEndId":"E2E-1","svcUniquePaymentId":"SVC-1","railReferenceId":{},"svcPostingIds":["P-1",` +
	`"P-2"]},"paymentExecutedValueDate":"2026-01-31","amount":1234567890.10,"amountType":"PAYMENT",` +
	`"paymentCurrency":"EUR","paymentStatus":{"status":"RELEASED","statusTime":"2026-01-31T11:59:59.000Z"},` +
	`"returns":{"hasReturnDetails":false},"cancelations":{"hasCancelationDetails":true},` +
	`"cases":{"hasLinkedCases":false}}}`

const delivery = `{"deliveryId":"0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d","events":[` + event + `]}`

func TestAnEventKeepsItsBytes(t *testing.T) {
	spaced := strings.ReplaceAll(delivery, `{"eventName"`, "{ \"unknown\" : [1.0, 1e2, \"\\u0041\"],\n\t\"eventName\"")
	got, err := payment.DecodeDelivery([]byte(spaced))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Events) != 1 || got.DeliveryID != "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d" {
		t.Fatalf("got %+v", got)
	}
	e := got.Events[0]
	if !strings.Contains(spaced, string(e.Bytes)) || !bytes.HasPrefix(e.Bytes, []byte("{ \"unknown\" : [1.0, 1e2")) ||
		!bytes.HasSuffix(e.Bytes, []byte(`"hasLinkedCases":false}}}`)) {
		t.Errorf("bytes are not those that were sent: %s", e.Bytes)
	}
	want := payment.RawEvent{
		EventName: "PAYMENT_STATUS.RELEASED", EventID: "6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60",
		EventTimestamp: time.Date(2026, 1, 31, 12, 0, 0, 123e6, time.UTC), SentTimestamp: "2026-01-31T12:00:00.123Z",
		Amount: "1234567890.10", Currency: "EUR", Bytes: e.Bytes,
	}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Error(diff)
	}
}

func TestAnEventHasItsAmountAndCurrency(t *testing.T) {
	long := strings.Repeat("1", 128)
	for data, want := range map[string][2]string{
		`{"amount":-1.50e3,"paymentCurrency":"\u0045UR"}`:                 {"-1.50e3", "EUR"},
		`{"amount":"1.5","paymentCurrency":978}`:                          {},
		`{"amount":null}`:                                                 {},
		`{"amount":` + long + `,"paymentCurrency":"` + long[2:] + `"}`:    {long, long[2:]},
		`{"amount":1` + long + `,"paymentCurrency":"1` + long + `"}`:      {},
		`{"x":{"amount":1},"identifiers":{"amount":1}}`:                   {},
		`{"amount":1,"x":[{"paymentCurrency":"EUR"}],"y":{"amount":"1"}}`: {"1", ""},
	} {
		got, err := payment.DecodeRawEvent([]byte(`{"eventName":"A.B","eventData":` + data +
			`,"eventId":"6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60"}`))
		if err != nil || [2]string{got.Amount, got.Currency} != want {
			t.Errorf("%s: %q, %q, %v", data, got.Amount, got.Currency, err)
		}
	}
}

func TestDecodeEventReadsEveryField(t *testing.T) {
	want := payment.Event{
		EventName: "PAYMENT_STATUS.RELEASED", EventID: "6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60",
		EventTimestamp: time.Date(2026, 1, 31, 12, 0, 0, 123e6, time.UTC),
		EventData: payment.Data{
			Identifiers: payment.Identifiers{
				PaymentRequestID: "REQ-1", PaymentEndToEndID: "E2E-1", SvcUniquePaymentID: "SVC-1",
				RailReferenceID: jsontext.Value(`{}`), SvcPostingIDs: []string{"P-1", "P-2"},
			},
			PaymentExecutedValueDate: "2026-01-31", Amount: "1234567890.10", AmountType: "PAYMENT",
			PaymentCurrency: "EUR",
			PaymentStatus: payment.PaymentStatus{Status: "RELEASED",
				StatusTime: time.Date(2026, 1, 31, 11, 59, 59, 0, time.UTC)},
			Cancelations: payment.Cancelations{HasCancelationDetails: true},
		},
	}
	got, err := payment.DecodeEvent([]byte(event))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	roundTrip(t, got)
}

// deliveryTest changes one thing in a valid delivery.
type deliveryTest struct {
	name, old, new string
	want           string // part of the error; "" for none
}

// payload returns the changed delivery.
func (d deliveryTest) payload() string {
	if d.name == "cut off" {
		return delivery[:len(delivery)-5]
	}
	return strings.Replace(delivery, d.old, d.new, 1)
}

const id = `"eventId":"6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60"`

var deliveryTests = []deliveryTest{
	{"as it is", "", "", ""},
	{"unknown fields", `"amountType"`, `"amountKind":{"a":[null]},"amountType"`, ""},
	{"upper-case UUID", id, `"eventId":"6F1C8F0E-6A50-4C6C-9C55-0D3A2B1E4F60"`, ""},
	{"escaped name", `"eventId"`, `"event\u0049d"`, ""},
	{"escaped first letter of a value", `"0b7e4c1e`, `"\u0030b7e4c1e`, ""},
	{"no event data", event[strings.Index(event, `,"eventData"`):], "}", ""},
	{"amount of 1000 digits", "1234567890.10", strings.Repeat("9", 1000), ""},
	{"timestamp without fraction", "00:00.123Z", "00:00Z", ""},
	{"timestamp of offset zero", "00:00.123Z", "00:00.123+00:00", ""},

	{"not JSON", delivery, "hello", "payload: is not well-formed JSON in UTF-8, at byte 0"},
	{"cut off", `}]}`, "", "payload: is not well-formed JSON in UTF-8"},
	{"array", delivery, "[]", "payload: must be an object"},
	{"null", delivery, "null", "payload: must be an object"},
	{"trailing data", `}]}`, `}]} {}`, "payload: is not well-formed JSON in UTF-8"},
	{"two byte order marks", `{"deliveryId"`, "\ufeff\ufeff" + `{"deliveryId"`,
		"not well-formed JSON in UTF-8, at byte 3"},
	{"comment", `{"deliveryId"`, `/**/{"deliveryId"`, "not well-formed"},

	{"delivery id missing", `"deliveryId":"0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d",`, "", "deliveryId: must be a UUID"},
	{"delivery id not a UUID", "0b7e4c1e-3d43", "0b7e4c1e-3d4z", "deliveryId: must be a UUID"},
	{"delivery id a number", `"0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d"`, "1", "deliveryId: must be a UUID"},
	{"delivery id twice", `"deliveryId"`, `"deliveryId":"0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d","deliveryId"`,
		"payload: has a name twice"},
	{"delivery id in another case", `"deliveryId"`, `"DeliveryID"`,
		"payload: has a name that differs from deliveryId only in case"},
	{"events missing", `"events"`, `"other"`, "events: must be an array of at least one event"},
	{"events empty", "[" + event + "]", "[]", "events: must be an array of at least one event"},
	{"events an object", "[" + event + "]", event, "events: must be an array"},
	{"event id twice", id, id + "," + id, "payload: has a name twice in one object"},
	{"event id twice, once escaped", id, id + `,"\u0065ventId":"x"`, "payload: has a name twice in one object"},
	{"event id also in another case", id, id + `,"EventId":"x"`,
		"events[0]: has a name that differs from eventId only in case"},
	{"timestamp in lower case", "31T12:00:00.123Z", "31t12:00:00.123z", ""},
	{"timestamp of a leap second", "2026-01-31T12:00:00.123Z", "2026-06-30T23:59:60.123Z", ""},
	{"amount twice", `"amount":`, `"amount":1,"amount":`, "payload: has a name twice in one object"},
	{"amount with a leading zero", "1234567890.10", "01", "not well-formed"},
	{"name twice in an unknown field", `"railReferenceId":{}`, `"railReferenceId":{"a":1,"a":1}`,
		"has a name twice"},
	{"invalid UTF-8", "REQ-1", "REQ-\xff", "not well-formed"},
	{"invalid UTF-8 in an unknown field", `"railReferenceId":{}`, "\"railReferenceId\":{\"a\":\"\xc0\x80\"}",
		"not well-formed"},
	{"unpaired surrogate", "REQ-1", `REQ-\ud800`, "not well-formed"},
	{"control character", "REQ-1", "REQ-\x01", "not well-formed"},
	{"nested deeper than the bus accepts", `"railReferenceId":{}`,
		`"railReferenceId":{"a":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}", ""},
	{"an integer that the bus rejects", "1234567890.10", "9223372036854775808", ""},
	{"nested too deep", `"railReferenceId":{}`,
		`"railReferenceId":{"a":` + strings.Repeat("[", 10001) + strings.Repeat("]", 10001) + "}",
		"not well-formed"},
}

func TestDecodeDeliveryRejectsWhatTheInterfaceDoesNotAllow(t *testing.T) {
	for _, test := range deliveryTests {
		t.Run(test.name, func(t *testing.T) {
			_, err := payment.DecodeDelivery([]byte(test.payload()))
			if test.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			field, ok := errors.AsType[*payment.FieldError](err)
			if !ok {
				t.Fatalf("got %v, want a FieldError", err)
			}
			if !strings.Contains(field.Error(), test.want) {
				t.Errorf("got %q, want %q", field.Error(), test.want)
			}
		})
	}
}

func TestPathContainsOnlyNamesOfTheInterface(t *testing.T) {
	for pointer, want := range map[jsontext.Pointer]string{
		"":                   "",
		"/eventData":         "eventData",
		"/eventData/amount":  "eventData.amount",
		"/eventData/a~1b~0/": "eventData.*",
		"/eventData/identifiers/svcPostingIds/12":   "eventData.identifiers.svcPostingIds[12]",
		"/eventData/identifiers/railReferenceId/x":  "eventData.identifiers.railReferenceId.*",
		"/eventdata/amount":                         "*",
		"/x/eventData/amount":                       "*",
		"/eventData/amount/0":                       "eventData.amount.*",
		"/eventData/identifiers/svcPostingIds/12/0": "eventData.identifiers.svcPostingIds[12].*",
		`/eventData/\`:                              "eventData.*",
	} {
		if got := payment.Path(pointer); got != want {
			t.Errorf("%q: %q, want %q", pointer, got, want)
		}
	}
}

func TestPeekIDsReadsRejectedPayloads(t *testing.T) {
	const a, b = "6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60", "6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f61"
	type ids struct {
		Delivery string
		Events   []string
	}
	for payload, want := range map[string]ids{
		delivery: {"0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d", []string{a}},
		`{"events":[{"eventId":"` + a + `","x":{"eventId":"` + b + `"}},7,{"eventId":7},{"eventId":"x"},{"eventId":"` +
			b + `"}],"deliveryId":"` + a + `"}`: {a, []string{a, b}},
		`{"deliveryId":"` + a + `","deliveryId":7,"other":[{"eventId":"` + b + `"}],"events":{"eventId":"` + b +
			`"}}`: {a, nil},
		`{"deliveryId":"` + a + `","events":[{"eventId":"` + b + `"},` +
			"\xff": {a, []string{b}},
		"hello": {}, "": {}, `["` + a + `"]`: {},
		// Only the ids of the delivery and of its events count.
		`{"other":"` + b + `","eventId":"` + b + `","deliveryId":"` + a + `","events":[{"deliveryId":"` + b +
			`","other":"` + b + `","eventId":"` + a + `","x":{"deliveryId":"` + b + `","eventId":"` + b + `"}}]}`: {a,
			[]string{a}},
		`{"events":{"deliveryId":"` + b + `","eventId":"` + b + `"}}`: {},
		`[[{"deliveryId":"` + b + `","eventId":"` + b + `"}]]`:        {},
		`["deliveryId","` + b + `"]`:                                  {},
		`{"x":"deliveryId","` + b + `":1}`:                            {},
		// The last of two counts, and invalid UTF-8 elsewhere does not.
		`{"deliveryId":"` + a + `","deliveryId":"` + b + `","x":"` + "\xff" +
			`","events":[{"eventId":"` + a + `"}]}`: {b, []string{a}},
		`{"deliveryId":"` + a + `","events":[{"eventId":`: {a, nil},
	} {
		d, e := payment.PeekIDs([]byte(payload), 1000)
		if diff := cmp.Diff(want, ids{d, e}); diff != "" {
			t.Errorf("%s: %s", payload, diff)
		}
	}
	// One object is stored for each eventId, so their number is limited; the deliveryId can follow them.
	many := `{"events":[` + strings.Repeat(`{"eventId":"`+a+`"},`, 20) + `{}],"deliveryId":"` + b + `"}`
	if id, e := payment.PeekIDs([]byte(many), 10); id != b || len(e) != 10 {
		t.Errorf("%s, %d ids", id, len(e))
	}
}

func FuzzDecodeDelivery(f *testing.F) {
	f.Add([]byte(delivery))
	f.Add([]byte(strings.Replace(delivery, event, event+" , "+event, 1)))
	f.Add([]byte(`{"deliveryId":"","events":[{}]}`))
	f.Add([]byte(`{"events":[[[[`))
	f.Add([]byte("\xff"))
	f.Add([]byte(strings.NewReplacer("1234567890.10", `"1"`, `["P-1"`, "[[7],null", `"RELEASED"`, "{}",
		"2026-01-31T11:59:59.000Z", "yesterday", `"2026-01-31T12:00:00.123Z"`, "[]").Replace(delivery)))
	f.Add([]byte("\ufeff" + strings.Replace(delivery, event, "null,"+event+",{},"+event+",7", 1)))
	f.Fuzz(func(t *testing.T, payload []byte) {
		got, err := payment.DecodeDelivery(payload)
		if err != nil {
			if _, ok := errors.AsType[*payment.FieldError](err); !ok {
				t.Fatalf("not a FieldError: %v", err)
			}
			return
		}
		payload = payment.WithoutBOM(payload)
		if !json.Valid(payload) {
			t.Fatal("accepted a payload that the standard library rejects")
		}
		var v1 struct {
			DeliveryID string            `json:"deliveryId"`
			Events     []json.RawMessage `json:"events"`
		}
		if err := json.Unmarshal(payload, &v1); err != nil || v1.DeliveryID != got.DeliveryID ||
			len(v1.Events) != len(got.Events)+len(got.Rejected) || (got.Err != nil) != (len(got.Rejected) > 0) {
			t.Fatalf("encoding/json decodes another delivery: %v", err)
		}
		for n, r := range got.Rejected {
			if _, err := payment.DecodeEvent(v1.Events[r.Position-n]); err == nil {
				t.Fatalf("%s is rejected", v1.Events[r.Position-n])
			}
			v1.Events = slices.Delete(v1.Events, r.Position-n, r.Position-n+1)
		}
		for i, e := range got.Events {
			if !bytes.Equal(e.Bytes, v1.Events[i]) {
				t.Fatalf("encoding/json decodes another event: %s, %s", e.Bytes, v1.Events[i])
			}
			again, err := payment.DecodeRawEvent(e.Bytes)
			if err != nil || !cmp.Equal(again, e) {
				t.Fatalf("DecodeRawEvent returns another event: %v", err)
			}
			whole, err := payment.DecodeEvent(e.Bytes)
			if err != nil {
				t.Fatalf("DecodeEvent: %v", err)
			}
			text, errText := jsonv2.Marshal(whole)
			if read, err := payment.DecodeEvent(text); err != nil || errText != nil || read.Deviations != nil {
				t.Fatalf("DecodeEvent does not read what it returned: %s, %v, %v", text, errText, err)
			}
			if data := e.RoutingData(); data != nil && !json.Valid(data) {
				t.Fatalf("the routing data is %s", data)
			}
			var standard payment.Event
			if err := json.Unmarshal(e.Bytes, &standard); err == nil && standard.EventID != e.EventID {
				t.Fatalf("encoding/json decodes another eventId: %q, %q", standard.EventID, e.EventID)
			}
		}
	})
}

// An error names the value that is wrong, and has no data of the payload.
func TestErrorsNameTheValue(t *testing.T) {
	const reference = `{"claimCheck":{"a":[1]},"eventName":"A.B","eventId":"x","eventTimestamp":"2026-01-31T12:00:00Z"}`
	const malformed = "event: is not well-formed JSON in UTF-8, at byte "
	const twice = "event: has a name twice in one object, at byte 26"
	for raw, want := range map[string]string{
		reference: "event.eventId: must be a UUID",
		strings.Replace(reference, `[1]`, `[1`, 1):                    malformed + "21",
		strings.Replace(reference, `{"a"`, `{"CANARY":1,"CANARY"`, 1): twice,
		`{"claimCheck":`: malformed + "14",
		`{"eventData":{"paymentStatus":{"status":"A"},"amount":},"eventName":""}`: malformed + "54",
		`{"eventData":{"identifiers":{"svcPostingIds":[1]}},"eventId":7}`:         "event.eventId: must be a UUID",
	} {
		if _, err := payment.DecodeRawEvent([]byte(raw)); err == nil || err.Error() != "payment: "+want {
			t.Errorf("%s: %v, want %s", raw, err, want)
		}
	}
}

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
		`"2026-01-31T12:00:00.123"`:       {EventTimestamp: at, SentTimestamp: "2026-01-31T12:00:00.123"},
		`"2026-01-31T12:00"`:              {EventTimestamp: noon, SentTimestamp: "2026-01-31T12:00"},
		`"20260131T120000,123z"`:          {EventTimestamp: at, SentTimestamp: "20260131T120000,123z"},
		`"2026-01-31T12:00:00.123\u005a"`: {EventTimestamp: at, SentTimestamp: "2026-01-31T12:00:00.123Z"},
		`"yesterday"`:                     {SentTimestamp: "yesterday"},
		`"` + long[1:] + `"`:              {SentTimestamp: long[1:]},
		`"` + long + `"`:                  {},
		`""`:                              {}, `1769860800123`: {}, `null`: {}, `{}`: {},
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
		"[" + event + "]":                      {": must be an object", ""},
		"{}":                                   {".eventId: must be a UUID", ""},
		edited(t, id+",", ""):                  {".eventId: must be a UUID", ""},
		edited(t, id, `"eventId":null`):        {".eventId: must be a UUID", ""},
		edited(t, id, `"eventId":["a"]`):       {".eventId: must be a UUID", ""},
		edited(t, id, `"eventId":"x"`):         {".eventId: must be a UUID", ""},
		edited(t, name+",", ""):                {".eventName: must be GROUP.STATUS", eventID},
		edited(t, name, `"eventName":null`):    {".eventName: must be GROUP.STATUS", eventID},
		edited(t, name, `"eventName":{"a":1}`): {".eventName: must be GROUP.STATUS", eventID},
		edited(t, name, `"eventName":"A"`):     {".eventName: must be GROUP.STATUS", eventID},
		edited(t, name, name+`,"claimCheck":1`): {
			".claimCheck: is the name of a reference to an event: resolve it first (package bus)", eventID},
		edited(t, id, id+`,"EventId":"x"`):     {": has a name that differs from eventId only in case", eventID},
		edited(t, id, id+`,"eventDATA":null`):  {": has a name that differs from eventData only in case", eventID},
		edited(t, id, id+`,"CLAIMCHECK":null`): {": has a name that differs from claimCheck only in case", eventID},
		edited(t, id, `"EVENTID":7`):           {": has a name that differs from eventId only in case", ""},
	} {
		e, err := payment.DecodeEvent([]byte(bad))
		if field, ok := errors.AsType[*payment.FieldError](err); !ok || !cmp.Equal(e, payment.Event{}) ||
			!strings.HasPrefix(field.Error(), "event"+want.problem) {
			t.Errorf("%s: %+v, %v", bad, e, err)
		}
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
	marked, markedEvent := []byte("\ufeff"+delivery), []byte("\ufeff"+event)
	got, err := payment.DecodeDelivery(marked)
	raw, errRaw := payment.DecodeRawEvent(markedEvent)
	whole, errWhole := payment.DecodeEvent(markedEvent)
	if errors.Join(err, errRaw, errWhole) != nil || len(got.Events) != 1 || string(got.Events[0].Bytes) != event ||
		string(raw.Bytes) != event || whole.EventID == "" {
		t.Errorf("%+v, %v; %+v, %v; %+v, %v", got, err, raw, errRaw, whole, errWhole)
	}
	id, ids := payment.PeekIDs(marked, 10)
	again, at := payment.PeekDeliveryID(marked), payment.PeekTime(marked)
	if id != got.DeliveryID || len(ids) != 1 || again != id || at.IsZero() {
		t.Errorf("%s, %s; %s; %s", id, ids, again, at)
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
		filled(64<<10) + "}":             id,
		filled(64<<10+1) + "}":           "",
		`{"events":[` + strings.Repeat(event+",", 200) + `7],` + first + "}": "", "{": "", "": "",
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
