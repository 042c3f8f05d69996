package bus_test

import (
	"errors"
	"strings"
	"testing"

	"payhook.example/shared/bus"
)

func TestWhatEventBridgeRejectsIsFoundWithItsField(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`{"a":`, n-1) + "{}" + strings.Repeat("}", n-1) }
	for name, test := range map[string]struct{ detail, want, pointer string }{
		"greatest integer": {`{"eventData":{"amount":9223372036854775807}}`, "", ""},
		"one more": {`{"eventData":{"amount":9223372036854775808}}`,
			"event.eventData.amount: is an integer outside 64 bits", "/eventData/amount"},
		"least integer": {`{"eventData":{"amount":-9223372036854775808}}`, "", ""},
		"one less": {`{"eventData":{"amount":-9223372036854775809}}`,
			"event.eventData.amount: is an integer outside 64 bits", "/eventData/amount"},
		"a thousand digits": {`{"eventData":{"amount":` + strings.Repeat("9", 1000) + `}}`,
			"event.eventData.amount: is an integer outside 64 bits", "/eventData/amount"},
		"many decimals":            {`{"eventData":{"amount":0.12345678901234567890123}}`, "", ""},
		"many digits and decimals": {`{"eventData":{"amount":12345678901234567890123.10}}`, "", ""},
		"an exponent":              {`{"eventData":{"amount":1E400}}`, "", ""},
		"digits and a capital E":   {`{"eventData":{"amount":12345678901234567890123E2}}`, "", ""},
		"a name that occurs twice": {`{"a":1,"a":9223372036854775808}`,
			"event.*: is an integer outside 64 bits", "/a"},
		"1001 levels, and a member after each": {`{"eventData":` + strings.Repeat(`{"a":`, 1000) + "1" +
			strings.Repeat(`,"b":"c"}`, 1000) + "}", "event.eventData.*: is nested deeper than 1000 levels", ""},
		"1001 levels, and brackets in strings": {`{"eventData":` + strings.Repeat(`{"a":"]]}}","b":`, 1000) + "1" +
			strings.Repeat("}", 1001), "event.eventData.*: is nested deeper than 1000 levels", ""},
		"the end in a string":       {`{"eventData":"text`, "", ""},
		"the end after a backslash": {`{"eventData":"text\`, "", ""},
		"digits and an exponent":    {`{"eventData":{"amount":12345678901234567890123e2}}`, "", ""},
		"digits in a string":        {`{"eventData":{"amountType":"\"99999999999999999999"}}`, "", ""},
		"digits in a name":          {`{"99999999999999999999":1}`, "", ""},
		"in a field not known": {`{"eventData":{"secret":{"names":[1,18446744073709551616]}}}`,
			"event.eventData.*: is an integer outside 64 bits", "/eventData/secret/names/1"},
		"the second of two": {`{"a":1234567890123456789,"b":12345678901234567890}`,
			"event.*: is an integer outside 64 bits", "/b"},
		"in an array": {`{"eventData":{"identifiers":{"svcPostingIds":[0,99999999999999999999]}}}`,
			"event.eventData.identifiers.svcPostingIds[1]: is an integer outside 64 bits",
			"/eventData/identifiers/svcPostingIds/1"},
		"1000 levels": {deep(1000), "", ""},
		"1001 levels": {deep(1001), "event.*: is nested deeper than 1000 levels",
			strings.Repeat("/a", 1000)},
		"1001 levels of arrays": {`{"eventData":{"x":"[","y":` + strings.Repeat("[", 999) +
			strings.Repeat("]", 999) + `}}`, "event.eventData.*: is nested deeper than 1000 levels", ""},
		"brackets in strings":    {`{"a":"` + strings.Repeat("[{", 2000) + `\\","b":1}`, "", ""},
		"many beside each other": {`{"a":[` + strings.Repeat("[],", 2000) + `[]]}`, "", ""},
	} {
		err := bus.Check([]byte(test.detail))
		if test.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		detail, ok := errors.AsType[*bus.DetailError](err)
		if !ok || err.Error() != test.want ||
			test.pointer != "" && string(detail.Pointer) != test.pointer {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}

// Check runs for every event, so an ordinary one costs it no memory.
func TestCheckOfAnOrdinaryEventAllocatesNothing(t *testing.T) {
	for name, detail := range map[string]string{
		"18 digits":              `{"a":123456789012345678,"b":123456789012345678,"c":[123456789012345678,1]}`,
		"decimals":               `{"a":123456789012345678.12345678}`,
		"digits in a string":     `{"a":"12345678901234567890","99999999999999999999":1}`,
		"after an escaped quote": `{"a":"\"12345678901234567890"}`,
		"after a backslash":      `{"a":"\\","b":"12345678901234567890"}`,
		"1000 levels":            strings.Repeat(`{"a":`, 999) + "{}" + strings.Repeat("}", 999),
		"many beside each other": `{"a":[` + strings.Repeat("[{}],", 2000) + `[]]}`,
		"brackets in strings":    `{"a":"` + strings.Repeat("[{", 2000) + `"}`,
	} {
		text := []byte(detail)
		if n := testing.AllocsPerRun(10, func() {
			if err := bus.Check(text); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
