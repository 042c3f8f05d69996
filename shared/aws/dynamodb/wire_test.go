package dynamodb_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/awstest"
	"payhook.example/shared/calls"
	"payhook.example/shared/keys"
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

type call struct {
	what string
	do   func() error
}

// everyCall returns the calls of every store of a client.
func everyCall(ctx context.Context, client *dynamodb.Client) (all []call) {
	const id = "id"
	one, unknown := start.Add(time.Second), keys.Record{ID: id, Version: "1", Answer: keys.Unknown}
	table, reader := dynamodb.NewLedger(client, "ledger"), dynamodb.NewLedgerReader(client, "ledger")
	store := dynamodb.NewKeys(client, "keys")
	inspector := dynamodb.NewKeysInspector(client, "keys")
	for _, w := range writes() {
		all = append(all, call{w.what, func() error { return table.Write(ctx, []ledger.Write{w.Write})[0].Err }})
	}
	return append(all,
		call{"get", func() error { _, err := reader.Get(ctx, []string{"1", "2"}, true); return err }},
		call{"get without content", func() error { _, err := reader.Get(ctx, []string{"1", "2"}, false); return err }},
		call{"query", func() error {
			_, _, err := reader.Query(ctx, ledger.Query{Shard: "pending/1", At: start, Limit: 5})
			return err
		}},
		call{"query of what is due later, from an item on", func() error {
			_, _, err := reader.Query(ctx, ledger.Query{Shard: "parked/1", At: start, Later: true, Limit: 5,
				After: &ledger.Item{EventID: id, Shard: "parked/1", ParkedAt: one}})
			return err
		}},
		call{"get a key", func() error { _, err := store.Get(ctx, id); return err }},
		call{"get a key for a person", func() error { _, err := inspector.Get(ctx, id); return err }},
		call{"put a key", func() error { _, _, err := store.Put(ctx, keyRecord(), "0"); return err }},
		call{"put the first key", func() error { _, _, err := store.Put(ctx, keyRecord(), ""); return err }},
		call{"put an answer", func() error { _, _, err := store.Put(ctx, unknown, "0"); return err }},
		call{"put the first answer", func() error { _, _, err := store.Put(ctx, unknown, ""); return err }},
		call{"take", func() error { _, err := store.Take(ctx, "misses#1", 7, start); return err }},
		call{"record a sender", func() error {
			_, err := store.RecordSender(ctx, "sender#1", start, one, start.Add(2*time.Second))
			return err
		}},
		call{"sender", func() error { _, err := store.Sender(ctx, "sender#1"); return err }},
		call{"records", func() error { _, err := inspector.Records(ctx); return err }},
		call{"delete", func() error { return inspector.Delete(ctx, id) }})
}

// A call that is refused names its operation. What the requests do is compared with the stores in memory on an
// emulator, whose reads are all consistent.
func TestARefusedCallNamesItsOperation(t *testing.T) {
	consistent := []string{"get", "get without content", "get a key for a person", "records"}
	client, w := answering(t, awstest.Refused("AccessDeniedException"))
	for _, c := range everyCall(t.Context(), client) {
		err, r := c.do(), w.Requests()[0]
		if fmt.Sprint(err) != "DynamoDB "+r.Operation+": AccessDeniedException" {
			t.Errorf("%s: %v", c.what, err)
		}
		if strings.Contains(r.Body, `"ConsistentRead":true`) != slices.Contains(consistent, c.what) {
			t.Errorf("%s: %s", c.what, r.Body)
		}
	}
}
