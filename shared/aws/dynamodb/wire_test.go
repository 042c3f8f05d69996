package dynamodb_test

import (
	"encoding/json"
	"encoding/json/jsontext"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/awstest"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
)

func init() { objects.PauseOf = func(longest time.Duration) time.Duration { return longest } }

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

// lines returns a request with a line for each member, in order.
func lines(t *testing.T, r awstest.Request) string {
	t.Helper()
	members := decoded[map[string]jsontext.Value](t, r.Body)
	text := r.Operation + "\n"
	for _, name := range slices.Sorted(maps.Keys(members)) {
		v := members[name]
		if err := v.Canonicalize(); err != nil {
			t.Fatal(err)
		}
		text += "  " + name + ": " + string(v) + "\n"
	}
	return text
}

var update = flag.Bool("update", false, "write the requests into testdata")

// What the requests do is compared with the stores in memory on an emulator.
func TestTheRequestsAreThoseOfTheFile(t *testing.T) {
	const file = "testdata/requests.txt"
	client, w := answering(t, `{}`)
	var got strings.Builder
	sends := func(what string, do func() error) {
		t.Helper()
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		for _, r := range w.Requests() {
			got.WriteString("# " + what + "\n" + lines(t, r) + "\n")
		}
	}
	ctx, id := t.Context(), "id"
	table := dynamodb.NewLedger(client, "ledger")
	for _, w := range writes() {
		sends(w.what, func() error { return table.Write(ctx, []ledger.Write{w.Write})[0].Err })
	}
	reader, lister := dynamodb.NewLedgerReader(client, "ledger"), dynamodb.NewLedgerLister(client, "ledger")
	sends("get", func() error { _, err := reader.Get(ctx, []string{"1", "2"}, true); return err })
	sends("get without content", func() error { _, err := lister.Get(ctx, []string{"1", "2"}, false); return err })
	sends("query", func() error {
		_, _, err := reader.Query(ctx, ledger.Query{Shard: "pending/1", At: start, Limit: 5})
		return err
	})
	sends("query of what is due later, from a cursor on", func() error {
		_, _, err := reader.Query(ctx, ledger.Query{Shard: "parked/1", At: start, Later: true, Limit: 5,
			After: &ledger.Item{EventID: id, Shard: "parked/1", Due: start.Add(time.Second)}})
		return err
	})
	sends("each", func() error { return lister.Each(ctx, func() error { return nil }, nil) })

	store, inspector := dynamodb.NewKeys(client, "keys"), dynamodb.NewKeysInspector(client, "keys")
	one := start.Add(time.Second)
	removed := keyRecord()
	removed.UnknownSince = time.Time{}
	sends("get a key", func() error { _, err := store.Get(ctx, id); return err })
	sends("get a key for a person", func() error { _, err := inspector.Get(ctx, id); return err })
	sends("put", func() error { return store.Put(ctx, keyRecord()) })
	sends("put of few attributes", func() error { return store.Put(ctx, keys.Record{ID: id, FetchedAt: start}) })
	sends("remove", func() error { _, err := store.Remove(ctx, keyRecord(), one); return err })
	sends("remove what was not unknown", func() error { _, err := store.Remove(ctx, removed, one); return err })
	sends("report unknown", func() error { _, err := store.ReportUnknown(ctx, id, start, one); return err })
	sends("take", func() error { _, err := store.Take(ctx, "misses#1", 7, start); return err })
	sends("record a source", func() error {
		_, err := store.RecordSource(ctx, "source#1", start, one, start.Add(2*time.Second))
		return err
	})
	sends("source", func() error { _, err := store.Source(ctx, "source#1"); return err })
	sends("records", func() error { _, err := inspector.Records(ctx); return err })
	sends("delete", func() error { return inspector.Delete(ctx, id) })
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" || err != nil {
		t.Errorf("with -update, the file has the requests (-want +got):\n%s%v", diff, err)
	}
}
