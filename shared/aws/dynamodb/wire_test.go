package dynamodb_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/awstest"
	"payhook.example/shared/calls"
	"payhook.example/shared/ledger"
)

func init() { calls.PauseOf = func(longest time.Duration) time.Duration { return longest } }

// answering returns a client of a server with these answers.
func answering(t *testing.T, answers ...string) (*dynamodb.Client, *awstest.Wire) {
	t.Helper()
	return serving(t, awstest.InTurn(answers...))
}

func serving(t *testing.T, answer func(awstest.Request) string) (*dynamodb.Client, *awstest.Wire) {
	t.Helper()
	w := awstest.NewWire(t, answer)
	return dynamodb.NewClient(awstest.Config(w.URL)), w
}

// value is an attribute value in JSON.
type value map[string]any

func text(s string) value { return value{"S": s} }

func number(n int64) value { return value{"N": fmt.Sprint(n)} }

// encoded returns a value in JSON.
func encoded(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// decoded returns a request or answer.
func decoded[T any](t *testing.T, raw string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// A call that is refused names its operation. What the requests do is compared with the stores in memory on an
// emulator, whose reads are all consistent.
func TestARefusedCallNamesItsOperation(t *testing.T) {
	client, w := answering(t, awstest.Refused("AccessDeniedException"))
	table, reader := dynamodb.NewLedger(client, "ledger"), dynamodb.NewLedgerReader(client, "ledger")
	store, inspector, ctx := dynamodb.NewKeys(client, "keys"), dynamodb.NewKeysInspector(client, "keys"), t.Context()
	for name, c := range map[string]struct {
		consistent bool
		do         func() error
	}{
		"write":                  {false, func() error { return table.Write(ctx, inserts[:1])[0].Err }},
		"get":                    {true, func() error { _, err := reader.Get(ctx, []string{"1"}, true); return err }},
		"query":                  {false, func() error { _, _, err := reader.Query(ctx, ledger.Query{}); return err }},
		"get a key":              {false, func() error { _, err := store.Get(ctx, "id"); return err }},
		"get a key for a person": {true, func() error { _, err := inspector.Get(ctx, "id"); return err }},
		"put a key":              {false, func() error { _, _, err := store.Put(ctx, keyRecord(), "0"); return err }},
		"take":                   {false, func() error { _, err := store.Take(ctx, "misses#1", 7, start); return err }},
		"record a sender": {false, func() error {
			_, err := store.RecordSender(ctx, "sender#1", start, start, start)
			return err
		}},
		"sender":  {false, func() error { _, err := store.Sender(ctx, "sender#1"); return err }},
		"records": {true, func() error { _, err := inspector.Records(ctx); return err }},
		"delete":  {false, func() error { return inspector.Delete(ctx, "id") }},
	} {
		err, r := c.do(), w.Requests()[0]
		if fmt.Sprint(err) != "DynamoDB "+r.Operation+": AccessDeniedException" {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(r.Body, `"ConsistentRead":true`) != c.consistent {
			t.Errorf("%s: %s", name, r.Body)
		}
	}
}
