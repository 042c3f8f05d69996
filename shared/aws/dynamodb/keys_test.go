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
	return keys.Record{ID: "id", Version: "1", SentAs: "ID", JWK: "{}", FetchedAt: start,
		UnknownSince: start.Add(time.Second), AskedAs: "Id", Answer: keys.Fresh, Failures: 2,
		LeasedUntil: start.Add(2 * time.Second), ExpiresAt: start.Add(3 * time.Second).Truncate(time.Second)}
}

// itemOf is the item of keyRecord.
func itemOf() map[string]any {
	return map[string]any{"keyId": text("id"), "version": text("1"), "sentAs": text("ID"), "jwk": text("{}"),
		"fetchedAt": number(start.UnixMilli()), "unknownSince": number(start.UnixMilli() + 1000),
		"askedAs": text("Id"), "answer": text("fresh"), "failures": number(2),
		"leasedUntil": number(start.UnixMilli() + 2000), "expiresAt": number(start.Unix() + 3)}
}

func TestAWriteOfKeysReturnsWhatIsThereInstead(t *testing.T) {
	answered := func(answer string) *dynamodb.Keys {
		client, _ := answering(t, answer)
		return dynamodb.NewKeys(client, "keys")
	}
	refused := func(members ...string) *dynamodb.Keys {
		return answered(awstest.Refused("ConditionalCheckFailedException", members...))
	}
	ctx, record := t.Context(), keyRecord()
	for name, c := range map[string]struct {
		store   *dynamodb.Keys
		stored  bool
		instead *keys.Record
	}{
		"written": {answered(`{}`), true, nil}, "deleted meanwhile": {refused(), false, nil},
		"another": {refused(`"Item":` + encoded(itemOf())), false, &record},
	} {
		stored, instead, err := c.store.Put(ctx, keys.Record{ID: "id", Version: "2"}, "0")
		if diff := cmp.Diff(c.instead, instead); diff != "" || stored != c.stored || err != nil {
			t.Errorf("%s: put: %t, %v, %s", name, stored, err, diff)
		}
		if left, err := c.store.Take(ctx, "misses#1", 1, start); left != c.stored || err != nil {
			t.Errorf("%s: take: %t, %v", name, left, err)
		}
	}
	const item = `"Item":{"seenAt":{"N":"5"}}`
	seen, err := answered(`{}`).RecordSender(ctx, "s", start, start, start)
	before, failed := refused(item).RecordSender(ctx, "s", start, start, start)
	read, missing := answered(`{`+item+`}`).Sender(ctx, "s")
	if five := time.UnixMilli(5).UTC(); !seen.Equal(start) || before != five || read != five ||
		errors.Join(err, failed, missing) != nil {
		t.Errorf("%v, %v; %v, %v; %v, %v", seen, err, before, failed, read, missing)
	}
}

// A key whose item cannot be read is fetched again: its record has the version, so that it can be replaced. Other items
// of the table are no keys.
func TestRecordsAreTheItemsOfKeysThatCanBeRead(t *testing.T) {
	garbage, full := value{"N": "1.5"}, keyRecord()
	unreadable := &keys.Record{ID: "id", Version: "1", ExpiresAt: time.Time{}.UTC()}
	var items []map[string]any
	var readable []keys.Record
	for _, c := range []struct {
		change map[string]any
		want   *keys.Record
	}{
		{nil, &full}, {map[string]any{"fetchedAt": text("1")}, unreadable},
		{map[string]any{"fetchedAt": garbage}, unreadable},
		{map[string]any{"expiresAt": garbage}, unreadable}, {map[string]any{"failures": text("x")}, unreadable},
		{map[string]any{"unknownSince": text("1")}, unreadable}, {map[string]any{"version": nil}, nil},
		{map[string]any{"keyId": text("misses#1")}, nil},
	} {
		item := itemOf()
		for name, v := range c.change {
			if item[name] = v; v == nil {
				delete(item, name)
			}
		}
		items = append(items, item)
		if c.want != nil {
			readable = append(readable, *c.want)
		}
		client, _ := answering(t, `{"Item":`+encoded(item)+`}`)
		read, err := dynamodb.NewKeys(client, "keys").Get(t.Context(), "id")
		shown, failed := dynamodb.NewKeysInspector(client, "keys").Get(t.Context(), "id")
		if diff := cmp.Diff([]*keys.Record{c.want, c.want}, []*keys.Record{read, shown}); diff != "" ||
			errors.Join(err, failed) != nil {
			t.Errorf("%v: %v, %v, %s", c.change, err, failed, diff)
		}
	}
	client, w := answering(t, `{"Items":[],"LastEvaluatedKey":{"keyId":{"S":"x"}}}`, `{"Items":`+encoded(items)+`}`)
	all, err := dynamodb.NewKeysInspector(client, "keys").Records(t.Context())
	if diff := cmp.Diff(readable, all); diff != "" || err != nil || len(w.Requests()) != 2 {
		t.Error(err, diff)
	}
}
