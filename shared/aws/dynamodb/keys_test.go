package dynamodb_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/awstest"
	"payhook.example/shared/keys"
)

var start = time.UnixMilli(1769860800123).UTC()

// keyRecord has a value in every field.
func keyRecord() keys.Record {
	return keys.Record{ID: "id", SentAs: "ID", JWK: "{}", Rejected: []keys.Violation{keys.WrongUse}, FetchedAt: start,
		UnknownSince: start.Add(time.Second), UnknownAt: start.Add(2 * time.Second),
		ExpiresAt: start.Add(3 * time.Second).Truncate(time.Second)}
}

// itemOf is the item of keyRecord.
func itemOf() map[string]any {
	return map[string]any{"keyId": text("id"), "sentAs": text("ID"), "jwk": text("{}"),
		"rejected": value{"L": []value{text("use is not sig")}}, "fetchedAt": number(start.UnixMilli()),
		"unknownSince": number(start.UnixMilli() + 1000), "unknownAt": number(start.UnixMilli() + 2000),
		"expiresAt": number(start.Unix() + 3)}
}

func TestARefusedWriteOfKeysReturnsWhatIsThere(t *testing.T) {
	client, _ := answering(t, awstest.Refused("ConditionalCheckFailedException", `"Item":`+encoded(itemOf())))
	table, want, ctx := dynamodb.NewKeys(client, "keys"), keyRecord(), t.Context()
	kept, err := table.Remove(ctx, keys.Record{ID: "id"}, start)
	if diff := cmp.Diff(&want, kept); diff != "" || err != nil {
		t.Error("remove:", err, diff)
	}
	for asked, wanted := range map[time.Time]*keys.Record{start: nil, start.Add(-time.Millisecond): &want} {
		newer, err := table.ReportUnknown(ctx, "id", asked, start)
		if diff := cmp.Diff(wanted, newer); diff != "" || err != nil {
			t.Errorf("report unknown at %s: %v %s", asked, err, diff)
		}
	}
	if left, err := table.Take(ctx, "misses#1", 1, start); left || err != nil {
		t.Error("take:", left, err)
	}
	if err := table.Put(ctx, want); err != nil {
		t.Error("put:", err)
	}
	client, _ = answering(t, awstest.Refused("ConditionalCheckFailedException", `"Item":{"seenAt":{"N":"5"}}`))
	seen, err := dynamodb.NewKeys(client, "keys").RecordSource(ctx, "source#1", start, start, start)
	if !seen.Equal(time.UnixMilli(5)) || err != nil {
		t.Error("record source:", seen, err)
	}
}

func TestAWriteOfKeysReturnsWhatWasWritten(t *testing.T) {
	client, _ := answering(t, `{"Attributes":`+encoded(itemOf())+`}`)
	table, want := dynamodb.NewKeys(client, "keys"), keyRecord()
	if kept, err := table.Remove(t.Context(), want, start); kept != nil || err != nil {
		t.Error("remove:", kept, err)
	}
	marked, err := table.ReportUnknown(t.Context(), "id", start, start)
	if diff := cmp.Diff(&want, marked); diff != "" || err != nil || marked.ExpiresAt.Location() != time.UTC {
		t.Error("report unknown:", err, diff)
	}
	if left, err := table.Take(t.Context(), "misses#1", 1, start); !left || err != nil {
		t.Error("take:", left, err)
	}
	stored, _ := answering(t, `{"Item":{"seenAt":{"N":"5"}}}`)
	at, err := dynamodb.NewKeys(stored, "keys").Source(t.Context(), "s")
	if at != time.UnixMilli(5).UTC() || err != nil {
		t.Error("source:", at, err)
	}
	if seen, err := table.RecordSource(t.Context(), "s", start, start, start); !seen.Equal(start) || err != nil {
		t.Error("record source:", seen, err)
	}
}

// A key whose item cannot be read is fetched again. Other items of the table are no keys.
func TestRecordsAreTheItemsOfKeysThatCanBeRead(t *testing.T) {
	garbage := value{"N": "1.5"}
	var items []map[string]any
	for n, change := range []map[string]any{
		{}, {"fetchedAt": nil}, {"fetchedAt": text("1")}, {"fetchedAt": garbage}, {"expiresAt": garbage},
		{"unknownSince": text("1")}, {"keyId": text("misses#1")},
	} {
		item := itemOf()
		for name, v := range change {
			if item[name] = v; v == nil {
				delete(item, name)
			}
		}
		items = append(items, item)
		client, _ := answering(t, `{"Item":`+encoded(item)+`}`)
		want := []*keys.Record{nil, nil}
		if n == 0 {
			all := keyRecord()
			want = []*keys.Record{&all, &all}
		}
		read, err := dynamodb.NewKeys(client, "keys").Get(t.Context(), "id")
		shown, failed := dynamodb.NewKeysInspector(client, "keys").Get(t.Context(), "id")
		if diff := cmp.Diff(want, []*keys.Record{read, shown}); diff != "" || errors.Join(err, failed) != nil {
			t.Errorf("%v: %v, %v, %s", change, err, failed, diff)
		}
	}
	client, w := answering(t, `{"Items":[],"LastEvaluatedKey":{"keyId":{"S":"x"}}}`, `{"Items":`+encoded(items)+`}`)
	all, err := dynamodb.NewKeysInspector(client, "keys").Records(t.Context())
	if diff := cmp.Diff([]keys.Record{keyRecord()}, all); diff != "" || err != nil || len(w.Requests()) != 2 {
		t.Error(err, diff)
	}
}
