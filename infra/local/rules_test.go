package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"

	"payhook.example/shared/bus"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

// The table of patterns in events/README.md has a row for each pattern, and each matches what its row says:
// an event, and a reference to it. The amounts are within the limits that AWS documents.
func TestThePatternsMatchWhatTheirTableSays(t *testing.T) {
	client := eventbridge.NewFromConfig(emulated(t))
	claims := bus.NewClaims(&objects.Memory{}, "claims")
	files, err := filepath.Glob("../../events/rules/*.json")
	document, readErr := os.ReadFile("../../events/README.md")
	if err != nil || readErr != nil || len(files) == 0 {
		t.Fatal(len(files), err, readErr)
	}
	const flags = `,"returns":{"hasReturnDetails":false},"cancelations":{"hasCancelationDetails":false},` +
		`"cases":{"hasLinkedCases":false}`
	for _, c := range []struct {
		from, to string // what is replaced in an event
		change   string // of the patterns that match: + for a further one, - for one that does not
	}{
		{"", "", ""},
		{"PAYMENT_STATUS.RELEASED", "PAYMENT_STATUS.REJECTED", "-released"},
		{"PAYMENT_STATUS.RELEASED", "PAYMENT_STATUS_2.RELEASED", "-released -payment-status"},
		{"PAYMENT_STATUS.RELEASED", "payment_status.RELEASED", "-released -payment-status"},
		{`"status":"RELEASED"`, `"status":"REJECTED"`, "-released-status"},
		{`"status":"RELEASED",`, ``, "-released-status"},
		{`"USD"`, `"EUR"`, "+euro"},
		{`"USD"`, `"\u0045UR"`, "+euro"},
		{`"USD"`, `"eur"`, ""},
		{`"USD"`, `"USD","settlementCurrency":"EUR"`, ""},
		{`"paymentCurrency":"USD",`, ``, ""},
		{`"hasReturnDetails":false`, `"hasReturnDetails":true`, "+needs-attention"},
		{`"hasCancelationDetails":false`, `"hasCancelationDetails":true`, "+needs-attention"},
		{`"hasLinkedCases":false`, `"hasLinkedCases":true`, "+needs-attention"},
		{flags, ``, ""},
		{"1250.00", "999.99", "-amount-range"},
		{"1250.00", "1E3", ""},
		{"1250.00", "999999.99", ""},
		{"1250.00", "1000000.00", "-amount-range"},
		{`"amount":1250.00,`, ``, "-amount-range -high-value"},
		{`"USD"`, `"USD","claimCheck":{"key":"x"}`, ""},
	} {
		raw := string(paymenttest.Encode(paymenttest.Event()))
		if strings.Count(raw, c.from) != 1 && c.from != "" {
			t.Fatalf("%s is not once in %s", c.from, raw)
		}
		raw = strings.Replace(raw, c.from, c.to, 1)
		event, err := payment.DecodeRawEvent([]byte(raw))
		if err != nil {
			t.Fatalf("%s: %v", c.to, err)
		}
		reference, err := claims.Put(t.Context(), event)
		if err != nil {
			t.Fatal(err)
		}
		for kind, detail := range map[string]string{"event": raw, "reference": string(reference)} {
			changes := strings.Fields("+all +amount-range +high-value +payment-status +released +released-status")
			changes = append(changes, strings.Fields(c.change)...)
			if kind == "reference" {
				changes = append(changes, "+claim-check", "+high-value")
			}
			want := map[string]bool{}
			for _, change := range changes {
				want[change[1:]] = change[0] == '+'
			}
			envelope := fmt.Sprintf(`{"version":"0","id":"1","detail-type":%q,"source":"payhook",`+
				`"account":"111122223333","time":"2026-01-31T12:00:00Z","region":"us-east-1","resources":[],`+
				`"detail":%s}`, event.EventName, detail)
			for _, file := range files {
				pattern, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				out, err := client.TestEventPattern(t.Context(), &eventbridge.TestEventPatternInput{
					Event: &envelope, EventPattern: aws.String(string(pattern))})
				if err != nil {
					t.Fatal(err)
				}
				name := strings.TrimSuffix(filepath.Base(file), ".json")
				if out.Result != want[name] {
					t.Errorf("%s instead of %s, %s: %s matches: %t", c.to, c.from, kind, name, out.Result)
				}
				if !strings.Contains(string(document), "\n| `"+name+"` |") {
					t.Errorf("README.md has no row for %s", name)
				}
			}
		}
	}
}
