package payment_test

import (
	jsonv1 "encoding/json"
	"encoding/json/v2"
	"math/big"
	"strings"
	"testing"
	"time"

	"payhook.example/shared/payment"
)

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
		`{"events":[{"eventTimestamp":"` + early + `"},{"eventTimestamp":"` + late + `"}]}`:             late,
		`{"events":[{"eventTimestamp":"` + late + `"},{"eventTimestamp":"` + early + `"}]}`:             late,
		`{"events":[{"eventTimestamp":"` + early + `"},{"eventTimestamp":"tomorrow"}]}`:                 early,
		`{"events":[{"eventTimestamp":"tomorrow"},{"eventTimestamp":"` + early + `"}]}`:                 early,
		`{"events":[{"statusTime":"` + late + `"},{"eventTimestamp":"` + early + `"}]}`:                 early,
		`{"eventTimestamp":"` + late + `","events":[{"eventTimestamp":"` + early + `"}]}`:               early,
		`{"events":[{"eventData":{"eventTimestamp":"` + late + `"},"eventTimestamp":"` + early + `"}]}`: early,
		`{"other":[{"eventTimestamp":"` + late + `"}],"events":[{"eventTimestamp":"` + early + `"}]}`:   early,
		`{"events":[{"eventTimestamp":"` + early + `"},`:                                                early,
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
		text, err := json.Marshal(a)
		var got payment.Amount
		if err != nil || string(text) != string(a) || json.Unmarshal(text, &got) != nil || got != a {
			t.Errorf("%s: %s, %v, %s", a, text, err, got)
		}
	}
	if text, err := json.Marshal(payment.Amount("")); err != nil || string(text) != "null" {
		t.Errorf("no amount: %s, %v", text, err)
	}
	for name, unmarshal := range map[string]func([]byte, any) error{"encoding/json": jsonv1.Unmarshal,
		"json v2": func(b []byte, v any) error { return json.Unmarshal(b, v) }} {
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
