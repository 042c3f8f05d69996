package bus_test

import (
	"errors"
	"strings"
	"testing"

	"payhook.example/shared/bus"
)

func TestWhatEventBridgeRejectsIsFoundWithItsField(t *testing.T) {
	const large, deep = "is an integer outside 64 bits", "is nested deeper than 1000 levels"
	amount := func(text string) string { return `{"eventData":{"amount":` + text + `}}` }
	for detail, want := range map[string]struct{ err, pointer string }{
		amount("9223372036854775808"):                        {"eventData.amount: " + large, "/eventData/amount"},
		amount("-9223372036854775809"):                       {"eventData.amount: " + large, "/eventData/amount"},
		amount(strings.Repeat("9", 1000)):                    {"eventData.amount: " + large, "/eventData/amount"},
		`{"a":1,"a":9223372036854775808}`:                    {"*: " + large, "/a"},
		`{"a":1234567890123456789,"b":12345678901234567890}`: {"*: " + large, "/b"},
		`{"eventData":{"secret":{"names":[1,18446744073709551616]}}}`: {"eventData.*: " + large,
			"/eventData/secret/names/1"},
		`{"eventData":{"identifiers":{"svcPostingIds":[0,99999999999999999999]}}}`: {
			"eventData.identifiers.svcPostingIds[1]: " + large, "/eventData/identifiers/svcPostingIds/1"},
		strings.Repeat(`{"a":`, 1000) + "{}" + strings.Repeat("}", 1000): {"*: " + deep, strings.Repeat("/a", 1000)},
		// Levels that end, and brackets in strings, do not count.
		`{"eventData":` + strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat(`,"b":"c"}`, 1000) + "}": {
			"eventData.*: " + deep, "/eventData" + strings.Repeat("/a", 999)},
		`{"eventData":` + strings.Repeat(`{"a":"]]}}","b":`, 1000) + "1" + strings.Repeat("}", 1001): {
			"eventData.*: " + deep, "/eventData" + strings.Repeat("/b", 999)},
		`{"eventData":{"x":"[","y":` + strings.Repeat("[", 999) + strings.Repeat("]", 999) + `}}`: {
			"eventData.*: " + deep, "/eventData/y" + strings.Repeat("/0", 998)},
	} {
		e, ok := errors.AsType[*bus.DetailError](bus.Check([]byte(detail)))
		if !ok || e.Error() != "event."+want.err || string(e.Pointer) != want.pointer {
			t.Errorf("%.60s: %v, want %s", detail, e, want.err)
		}
	}
	for _, detail := range []string{
		amount("9223372036854775807"), amount("-9223372036854775808"), amount("0.12345678901234567890123"),
		amount("12345678901234567890123.10"), amount("1E400"), amount("12345678901234567890123E2"),
		amount("12345678901234567890123e2"), amount(`"\"99999999999999999999"`), `{"eventData":"text`,
		`{"eventData":"text\`,
	} {
		if err := bus.Check([]byte(detail)); err != nil {
			t.Errorf("%.60s: %v", detail, err)
		}
	}
}
