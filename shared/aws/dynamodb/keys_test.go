package dynamodb_test

import (
	"fmt"
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

// The requests of the store. What they do is compared with the store in memory on an emulator.
func TestTheRequestsOfTheKeys(t *testing.T) {
	client, w := answering(t, `{}`)
	table, inspector := dynamodb.NewKeys(client, "keys"), dynamodb.NewKeysInspector(client, "keys")
	ctx, removed := t.Context(), keyRecord()
	removed.UnknownSince = time.Time{}
	const refused = "ReturnValuesOnConditionCheckFailure: ALL_OLD"
	const update = "Key: {keyId=%q}\nReturnValues: ALL_NEW\n" + refused + "\nUpdateExpression: "
	const remove = "SET sentAs = :sentAs, fetchedAt = :at, expiresAt = :expires%s REMOVE jwk, rejected, unknownAt"
	const removable = "ConditionExpression: attribute_not_exists(jwk) OR expiresAt <= :now OR (fetchedAt <= :at AND " +
		"unknownSince <= :oldest)\nExpressionAttributeValues: {:at=1769860800123 :expires=1769860803 :now=1769860800 " +
		":oldest=1769860801123 :sentAs=\"ID\"%s}\n"
	for want, do := range map[string]func() error{
		"GetItem\nConsistentRead: false\nKey: {keyId=\"id\"}": func() error {
			_, err := table.Get(ctx, "id")
			return err
		},
		"GetItem\nConsistentRead: true\nKey: {keyId=\"id\"}": func() error {
			_, err := inspector.Get(ctx, "id")
			return err
		},
		"GetItem\nConsistentRead: false\nKey: {keyId=\"source\"}": func() error {
			_, err := table.Source(ctx, "source")
			return err
		},
		"PutItem\nConditionExpression: attribute_not_exists(fetchedAt) OR fetchedAt <= :at\n" +
			"ExpressionAttributeValues: {:at=1769860800123}\nItem: {expiresAt=1769860803 fetchedAt=1769860800123 " +
			"jwk=\"{}\" keyId=\"id\" rejected={L=[\"use is not sig\"]} sentAs=\"ID\" unknownAt=1769860802123 " +
			"unknownSince=1769860801123}\n" + refused: func() error { return table.Put(ctx, keyRecord()) },
		"PutItem\nConditionExpression: attribute_not_exists(fetchedAt) OR fetchedAt <= :at\n" +
			"ExpressionAttributeValues: {:at=1769860800123}\nItem: {fetchedAt=1769860800123 keyId=\"id\"}\n" +
			refused: func() error { return table.Put(ctx, keys.Record{ID: "id", FetchedAt: start}) },
		"UpdateItem\n" + fmt.Sprintf(removable, " :since=1769860801123") +
			fmt.Sprintf(update+remove, "id", ", unknownSince = :since"): func() error {
			_, err := table.Remove(ctx, keyRecord(), start.Add(time.Second))
			return err
		},
		"UpdateItem\n" + fmt.Sprintf(removable, "") + fmt.Sprintf(update+remove, "id", ""): func() error {
			_, err := table.Remove(ctx, removed, start.Add(time.Second))
			return err
		},
		"UpdateItem\nConditionExpression: attribute_exists(jwk) AND expiresAt > :now AND fetchedAt <= :at\n" +
			"ExpressionAttributeValues: {:at=1769860800123 :now=1769860800 :since=1769860801123}\n" +
			fmt.Sprintf(update, "id") + "SET unknownSince = if_not_exists(unknownSince, :since), " +
			"unknownAt = :at": func() error {
			_, err := table.ReportUnknown(ctx, "id", start, start.Add(time.Second))
			return err
		},
		"UpdateItem\nConditionExpression: attribute_not_exists(misses) OR misses < :limit\n" +
			"ExpressionAttributeValues: {:expires=1769860800 :limit=7 :one=1 :zero=0}\n" +
			fmt.Sprintf(update, "misses#1") + "SET misses = if_not_exists(misses, :zero) + :one, " +
			"expiresAt = :expires": func() error {
			_, err := table.Take(ctx, "misses#1", 7, start)
			return err
		},
		"PutItem\nConditionExpression: attribute_not_exists(seenAt) OR seenAt <= :at\n" +
			"ExpressionAttributeValues: {:at=1769860801123}\n" +
			"Item: {expiresAt=1769860802 keyId=\"source#1\" seenAt=1769860800123}\n" + refused: func() error {
			_, err := table.RecordSource(ctx, "source#1", start, start.Add(time.Second), start.Add(2*time.Second))
			return err
		},
		"Scan\nConsistentRead: true": func() error {
			_, err := inspector.Records(ctx)
			return err
		},
		"DeleteItem\nKey: {keyId=\"id\"}": func() error { return inspector.Delete(ctx, "id") },
	} {
		sends(t, w, want, func() {
			if err := do(); err != nil {
				t.Error(err)
			}
		})
	}
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
	if diff := cmp.Diff(&want, marked); diff != "" || err != nil {
		t.Error("report unknown:", err, diff)
	}
	if left, err := table.Take(t.Context(), "misses#1", 1, start); !left || err != nil {
		t.Error("take:", left, err)
	}
	if seen, err := table.RecordSource(t.Context(), "s", start, start, start); !seen.Equal(start) || err != nil {
		t.Error("record source:", seen, err)
	}
}

// A key whose item cannot be read is fetched again. Other items of the table are no keys.
func TestRecordsAreTheItemsOfKeysThatCanBeRead(t *testing.T) {
	garbage := value{"N": "1.5"}
	items := []map[string]any{itemOf()}
	for _, change := range []map[string]any{
		{"fetchedAt": nil}, {"fetchedAt": text("1")}, {"fetchedAt": garbage}, {"expiresAt": garbage},
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
		if r, err := dynamodb.NewKeys(client, "keys").Get(t.Context(), "id"); r != nil || err != nil {
			t.Errorf("%v: %+v, %v", change, r, err)
		}
	}
	client, w := answering(t, `{"Items":[],"LastEvaluatedKey":{"keyId":{"S":"x"}}}`, `{"Items":`+encoded(items)+`}`)
	all, err := dynamodb.NewKeysInspector(client, "keys").Records(t.Context())
	if diff := cmp.Diff([]keys.Record{keyRecord()}, all); diff != "" || err != nil || len(w.Requests()) != 2 {
		t.Error(err, diff)
	}
}
