package payment_test

import (
	"encoding/json"
	jsonv2 "encoding/json/v2"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

// inEvent returns an event with the given members.
func inEvent(members string) []byte {
	return []byte(`{"eventName":"A.B","eventId":"6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60",` + members + `}`)
}

// is are the types of the interface.
var is = map[string]func(v any) bool{
	"eventName": isText, "eventId": isText, "eventTimestamp": isTime, "eventData": isObject,
	"eventData.identifiers": isObject, "eventData.identifiers.paymentRequestId": isText,
	"eventData.identifiers.paymentEndToEndId": isText, "eventData.identifiers.svcUniquePaymentId": isText,
	"eventData.identifiers.railReferenceId": isObject, "eventData.identifiers.svcPostingIds": isArray,
	"eventData.paymentExecutedValueDate": isText,
	"eventData.amount":                   isNumber, "eventData.amountType": isText, "eventData.paymentCurrency": isText,
	"eventData.paymentStatus": isObject, "eventData.paymentStatus.status": isText,
	"eventData.paymentStatus.statusTime": isTime, "eventData.returns": isObject,
	"eventData.returns.hasReturnDetails": isBool, "eventData.cancelations": isObject,
	"eventData.cancelations.hasCancelationDetails": isBool, "eventData.cases": isObject,
	"eventData.cases.hasLinkedCases": isBool,
}

func isText(v any) bool   { _, ok := v.(string); return ok }
func isBool(v any) bool   { _, ok := v.(bool); return ok }
func isNumber(v any) bool { _, ok := v.(json.Number); return ok }
func isArray(v any) bool  { _, ok := v.([]any); return ok }
func isObject(v any) bool { _, ok := v.(map[string]any); return ok }

func isTime(v any) bool {
	text, _ := v.(string)
	_, err := time.Parse(time.RFC3339, text)
	return err == nil
}

// decodeAny decodes JSON, and keeps the digits of numbers.
func decodeAny(t *testing.T, text string) (root map[string]any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&root); err != nil {
		t.Fatal(err)
	}
	return root
}

// correct replaces the values of an object that do not have their type, and returns their paths.
func correct(object map[string]any, at string) (wrong []string) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		path, value := at+name, object[name]
		if check := is[path]; value == nil || check == nil {
			continue
		} else if !check(value) {
			wrong = append(wrong, path)
			object[name] = nil
			continue
		}
		switch value := value.(type) {
		case map[string]any:
			wrong = append(wrong, correct(value, path+".")...)
		case []any:
			for i, element := range value {
				if element != nil && !isText(element) {
					wrong = append(wrong, fmt.Sprintf("%s[%d]", path, i))
					value[i] = ""
				}
			}
		}
	}
	return wrong
}

// Each value of an event is replaced by values of every JSON type and removed.
func TestAValueOfAnotherTypeIsZeroAndADeviation(t *testing.T) {
	found := map[string]bool{}
	for _, changed := range changes(t, event) {
		got, err := payment.DecodeEvent([]byte(changed))
		if _, errRaw := payment.DecodeRawEvent([]byte(changed)); err != nil {
			if errRaw == nil {
				t.Errorf("%s can be published, and DecodeEvent returns %v", changed, err)
			}
			continue
		}
		root := decodeAny(t, changed)
		wrong := correct(root, "")
		corrected, err := json.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		want, err := payment.DecodeEvent(corrected)
		if err != nil || want.Deviations != nil {
			t.Fatalf("%s: %v, %v", corrected, want.Deviations, err)
		}
		want.Deviations = wrong
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", changed, diff)
		}
		for _, path := range wrong {
			found[path] = true
		}
		roundTrip(t, got)
	}
	if len(found) != len(is)-2+1 { // without eventName and eventId, with svcPostingIds[0]
		t.Errorf("%d of %d paths", len(found), len(is))
	}
}

// roundTrip encodes and decodes an event.
func roundTrip(t *testing.T, e payment.Event) {
	t.Helper()
	e.Deviations = nil
	for name, encode := range map[string]func(any) ([]byte, error){
		"encoding/json":    json.Marshal,
		"encoding/json/v2": func(v any) ([]byte, error) { return jsonv2.Marshal(v) },
		"paymenttest":      func(any) ([]byte, error) { return paymenttest.Encode(e), nil },
	} {
		text, err := encode(e)
		if err != nil || strings.Contains(string(text), "0001-01-01") {
			t.Fatalf("%s: %s, %v", name, text, err)
		}
		again, err := payment.DecodeEvent(text)
		if diff := cmp.Diff(e, again); diff != "" || err != nil {
			t.Errorf("%s writes another event: %s %v %s", name, text, err, diff)
		}
		var standard payment.Event
		if err := json.Unmarshal(text, &standard); err != nil || !cmp.Equal(e, standard) {
			t.Errorf("encoding/json reads another event: %s %v %s", text, err, cmp.Diff(e, standard))
		}
	}
}

// Everything in eventData is accepted. Of an array, only the first deviation is named, so that a large one makes no
// long list.
func TestEveryDeviationIsNamed(t *testing.T) {
	const (
		at, amount, currency = "eventTimestamp", "eventData.amount", "eventData.paymentCurrency"
		rail, ids            = "eventData.identifiers.railReferenceId", "eventData.identifiers.svcPostingIds"
		status, statusTime   = "eventData.paymentStatus.status", "eventData.paymentStatus.statusTime"
	)
	deep := strings.Repeat(`{"a":[`, 2500) + strings.Repeat(`]}`, 2500)
	type paths = []string
	for members, want := range map[string]paths{
		`"more":1`:                           nil,
		`"eventData":{"amount":1e999999999}`: nil,
		`"eventData":{"amount":` + strings.Repeat("9", 100000) + `}`:                             nil,
		`"eventData":{"identifiers":{"railReferenceId":` + deep + `}}`:                           nil,
		`"eventData":{"identifiers":{"railReferenceId":"20260131MMQFMP","svcPostingIds":[123]}}`: {rail, ids + "[0]"},
		`"eventData":{"identifiers":{"svcPostingIds":["a",[],null,{},"b",false]}}`:               {ids + "[1]"},
		`"eventData":[],"eventTimestamp":1769860800123`:                                          {"eventData", at},
		`"eventTimestamp":"yesterday","eventData":{"cases":{"hasLinkedCases":"true"},"returns":1,"amount":[1]}`: {
			at, "eventData.cases.hasLinkedCases", "eventData.returns", amount},
		`"eventTimestamp":"CANARY","eventData":{"identifiers":{"svcPostingIds":["P-1",7,7]},"paymentCurrency":978,` +
			`"paymentStatus":{"status":[1]}}`: {at, ids + "[1]", currency, status},
		// Names that the interface does not define are no deviation.
		`"eventData":{"Amount":"1","other":{"amount":"1"},"amount":{}}`:                           {amount},
		`"eventData":{"paymentStatus":{"Status":{"status":1,"STATUS":2}}}`:                        nil,
		`"eventData":{"eventid":1,"EventId":2,"claimCheck":3,"claimcheck":4}`:                     nil,
		`"eventData":{"amountKind":{"a":[null,{}]},"":0}`:                                         nil,
		`"eventTimestamp":null,"more":{"eventTimestamp":1},"eventData":{"amounts":{"amount":[]}}`: {at},
	} {
		if !strings.Contains(members, `"eventTimestamp"`) {
			members = `"eventTimestamp":"2026-01-31T12:00:00Z",` + members
		}
		raw := string(inEvent(members))
		read, err := payment.DecodeEvent([]byte(raw))
		delivered, failed := payment.DecodeDelivery([]byte(strings.Replace(delivery, event, raw, 1)))
		if err != nil || failed != nil || len(delivered.Events) != 1 || delivered.Rejected != nil {
			t.Fatalf("%s: %v, %+v, %v", raw, err, delivered, failed)
		}
		e := delivered.Events[0]
		wantRead := want
		if strings.HasPrefix(members, `"eventTimestamp":null`) { // which is a deviation for a receiver alone
			wantRead = nil
		}
		diff := cmp.Diff(want, e.Deviations) + cmp.Diff(wantRead, read.Deviations)
		if diff != "" || string(e.Bytes) != raw {
			t.Errorf("%s: %s", members, diff)
		}
	}
	many := `"eventData":{"identifiers":{"svcPostingIds":[` + strings.Repeat("0,", 9999) + `0]}}`
	got, err := payment.DecodeEvent(inEvent(many))
	if ids := got.EventData.Identifiers.SvcPostingIDs; err != nil || len(got.Deviations) != 1 ||
		len(ids) != 10_000 || strings.Join(ids, "") != "" {
		t.Errorf("%d of %d, %v", len(got.Deviations), len(ids), err)
	}
}

func TestEventNamesAreOfTheInterface(t *testing.T) {
	names := map[string]bool{"A.B": true, "a.b": true, "0.9": true, "_.-": true, "azAZ09.z": true, "A.B.C": true,
		strings.Repeat("A", 126) + ".B": true, strings.Repeat("A", 127) + ".B": false,
		"": false, ".": false, "A": false, "A.": false, ".B": false, "A..B": false, "A.é": false, "A.b c": false}
	for _, c := range "/:@[`{ ,+\x7f" {
		names["A."+string(c)], names[string(c)+".B"] = false, false
	}
	for name, valid := range names {
		_, err := payment.DecodeRawEvent([]byte(strings.Replace(event, "PAYMENT_STATUS.RELEASED", name, 1)))
		if (err == nil) != valid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestPeekTimeReturnsTheLatestTime(t *testing.T) {
	early, late := "2026-01-31T12:00:00Z", "2026-01-31T12:00:01Z"
	for payload, want := range map[string]string{
		delivery: "2026-01-31T12:00:00.123Z",
		`{"events":[{"eventTimestamp":"` + early + `"},{"eventTimestamp":"` + late + `"}]}`: late,
		`{"events":[{"eventTimestamp":"` + late + `"},{"eventTimestamp":"` + early + `"}]}`: late,
		`{"events":[{"eventTimestamp":"` + early + `"},{"eventTimestamp":"tomorrow"}]}`:     early,
		`{"events":[{"statusTime":"` + late + `"},{"eventTimestamp":"` + early + `"}]}`:     early,
		`{"eventTimestamp":"` + late + `","events":[{"eventTimestamp":"` + early + `"}]}`:   early,
		`{"events":[{"eventTimestamp":"tomorrow"},{"eventTimestamp":"` + early + `"}]}`:     early,
		`{"events":[{"eventTimestamp":"` + early + `"},`:                                    early,
		`{"events":[]}`: "", "hello": "",
	} {
		got := payment.PeekTime([]byte(payload))
		if want == "" {
			if !got.IsZero() {
				t.Errorf("%s: %s", payload, got)
			}
			continue
		}
		if at, err := time.Parse(time.RFC3339, want); err != nil || !got.Equal(at) {
			t.Errorf("%s: %s, want %s, %v", payload, got, want, err)
		}
	}
}

func TestAmountIsAJSONNumber(t *testing.T) {
	for _, a := range []payment.Amount{"0", "1.50", "-1e2"} {
		text, err := jsonv2.Marshal(a)
		var got payment.Amount
		if err != nil || string(text) != string(a) || jsonv2.Unmarshal(text, &got) != nil || got != a {
			t.Errorf("%s: %s, %v, %s", a, text, err, got)
		}
	}
	if text, err := jsonv2.Marshal(payment.Amount("")); err != nil || string(text) != "null" {
		t.Errorf("no amount: %s, %v", text, err)
	}
	for name, unmarshal := range map[string]func([]byte, any) error{"encoding/json": json.Unmarshal,
		"json v2": func(b []byte, v any) error { return jsonv2.Unmarshal(b, v) }} {
		got := payment.Amount("5")
		if err := unmarshal([]byte("null"), &got); err != nil || got != "" {
			t.Errorf("%s: null is unmarshaled as %q, %v", name, got, err)
		}
	}
	if text, err := payment.Amount("null").MarshalJSON(); err == nil {
		t.Errorf("the text null is marshaled as %s", text)
	}
	if _, ok := payment.Amount("").Rat(); ok {
		t.Error("no amount has a value")
	}
	for _, wrong := range []string{"x", "01", "1 ", " 1", "1.", `"1"`, "true", "null ", "{}"} {
		if text, err := payment.Amount(wrong).MarshalJSON(); err == nil || text != nil {
			t.Errorf("%q is marshaled as %s", wrong, text)
		}
		got := payment.Amount("5")
		if err := got.UnmarshalJSON([]byte(wrong)); err == nil || got != "5" {
			t.Errorf("%q is unmarshaled as %s", wrong, got)
		}
		if _, ok := payment.Amount(wrong).Rat(); ok {
			t.Errorf("%q has a value", wrong)
		}
	}
}

func TestRatIsExactAndLimited(t *testing.T) {
	thousand := new(big.Int).Exp(big.NewInt(10), big.NewInt(1000), nil)
	for a, want := range map[payment.Amount]*big.Rat{
		"1234567890.10": big.NewRat(123456789010, 100), "0.1": big.NewRat(1, 10), "-1e-2": big.NewRat(-1, 100),
		"1e1000":  new(big.Rat).SetInt(thousand),
		"1E1000":  new(big.Rat).SetInt(thousand),
		"1e-1000": new(big.Rat).SetFrac(big.NewInt(1), thousand),
		"1e1001":  nil, "1E1001": nil, "1e-1001": nil, "1e99999999999999999999": nil, "1e-99999999999999999999": nil,
		"1/2": nil, "0x10": nil, "1_0": nil, "Inf": nil, "": nil,
		payment.Amount(strings.Repeat("1", 1001)): nil,
	} {
		got, ok := a.Rat()
		if ok != (want != nil) || want != nil && got.Cmp(want) != 0 {
			t.Errorf("%s: %t", a, ok)
		}
	}
	if _, ok := payment.Amount(strings.Repeat("1", 1000)).Rat(); !ok {
		t.Error("an amount of 1000 digits has no value")
	}
}

func TestRoutingDataContainsWhatRulesMatch(t *testing.T) {
	long := strings.Repeat("x", 127) // a string of 129 bytes
	for data, want := range map[string]string{
		`{"amount":1.50,"paymentCurrency":"EUR","paymentStatus":{"status":"RELEASED","statusTime":"T"},` +
			`"returns":{"hasReturnDetails":false},"cancelations":{"hasCancelationDetails":true},` +
			`"cases":{"hasLinkedCases":false}}`: "same",
		`{"identifiers":{"amount":2},"amount":1,"other":[1,{"amount":3}]}`:        `{"amount":1}`,
		`{"paymentCurrency":"` + long + `","amount":1}`:                           `{"amount":1}`,
		`{"paymentCurrency":"` + long[1:] + `"}`:                                  "same",
		`{"amount":9223372036854775807}`:                                          "same",
		`{"amount":9223372036854775808,"paymentCurrency":"EUR"}`:                  `{"paymentCurrency":"EUR"}`,
		`{"amount":-9223372036854775808}`:                                         "same",
		`{"amount":-9223372036854775809}`:                                         "",
		`{"amount":92233720368547758080.5}`:                                       "same",
		`{"amount":` + strings.Repeat("1", 126) + `.5}`:                           "same",
		`{"amount":` + strings.Repeat("1", 127) + `.5}`:                           "",
		`{"amount":92233720368547758080e1}`:                                       "same",
		`{"amount":92233720368547758080E1}`:                                       "same",
		`{"paymentStatus":{"other":1},"amount":2}`:                                `{"amount":2}`,
		`{"paymentStatus":{"status":"A","other":{"status":"B"}},"cases":{"x":1}}`: `{"paymentStatus":{"status":"A"}}`,
		`{}`: "", `null`: "", `"x"`: "", `[{"amount":99}]`: "",
		`{"paymentStatus":null,"status":"S","amount":1}`:                                   `{"amount":1}`,
		`{"paymentStatus":[{"status":"S"}],"amount":1}`:                                    `{"amount":1}`,
		`{"returns":"x","hasReturnDetails":true}`:                                          "",
		`{"returns":{"hasReturnDetails":null},"amount":1}`:                                 `{"amount":1}`,
		`{"amount":{"amount":5},"paymentCurrency":["EUR"],"Amount":1}`:                     "",
		`{"paymentStatus":{"status":{"status":"S"},"statusTime":7},"\u0061mount":true}`:    "",
		`{"\u0061mount":2,"amountType":"PAYMENT","paymentExecutedValueDate":"2026-01-31"}`: `{"amount":2}`,
	} {
		if want == "same" {
			want = data
		}
		e, err := payment.DecodeRawEvent([]byte(`{"eventName":"A.B","extra":{"amount":7},` +
			`"eventId":"6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60",` +
			`"eventTimestamp":"2026-01-31T12:00:00Z","eventData":` + data + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(e.RoutingData()); got != want {
			t.Errorf("%s: %s, want %s", data, got, want)
		}
	}
	e, err := payment.DecodeRawEvent([]byte(`{"eventName":"A.B",` +
		`"eventId":"6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60","eventTimestamp":"2026-01-31T12:00:00Z"}`))
	if err != nil || e.RoutingData() != nil {
		t.Errorf("without eventData: %s, %v", e.RoutingData(), err)
	}
}
