package dynamodb_test

import (
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/awstest"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
)

func keysTable() (*awstest.DynamoDB, *dynamodb.Keys) {
	db := awstest.NewDynamoDB()
	db.CreateTable("keys", names.KeysKey)
	return db, dynamodb.NewKeys(db, "keys")
}

func put(t *testing.T, db *awstest.DynamoDB, item awstest.Item) {
	t.Helper()
	if _, err := db.PutItem(t.Context(), &sdk.PutItemInput{TableName: aws.String("keys"), Item: item}); err != nil {
		t.Fatal(err)
	}
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// A key whose item cannot be read is fetched again.
func TestAnItemWithOtherTypesIsNoRecord(t *testing.T) {
	garbage := &types.AttributeValueMemberN{Value: "1.5"}
	for name, item := range map[string]awstest.Item{
		"nothing": {}, "a text": {"fetchedAt": text("1")}, "not a whole number": {"fetchedAt": garbage},
		"expires at no time":      {"fetchedAt": number(1000), names.KeysTTL: garbage},
		"unknown since no number": {"fetchedAt": number(1000), "unknownSince": text("1")},
	} {
		db, table := keysTable()
		item[names.KeysKey] = text("id")
		put(t, db, item)
		all, failed := dynamodb.NewKeysInspector(db, "keys").Records(t.Context())
		if r, err := table.Get(t.Context(), "id"); r != nil || err != nil || len(all) != 0 || failed != nil {
			t.Errorf("%s: %+v, %v, %v, %v", name, r, err, all, failed)
		}
	}
}

func TestACertificateThatCannotBeReadIsAnError(t *testing.T) {
	db, table := keysTable()
	if err := table.RecordCertificate(t.Context(), keys.AcceptedCertificate{Fingerprint: "a", NotAfter: time.Now(),
		AcceptedAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	for id, item := range db.Items("keys") {
		for attribute, value := range map[string]types.AttributeValue{
			"notAfter": text("1"), "acceptedAt": &types.AttributeValueMemberN{Value: "0.5"},
		} {
			item := maps.Clone(item)
			item[attribute] = value
			put(t, db, item)
			if last, err := table.LastCertificate(t.Context()); err == nil || last != nil {
				t.Errorf("%s with a wrong %s: %+v", id, attribute, last)
			}
		}
	}
}

func TestWhatIsNotNeededAnyMoreExpires(t *testing.T) {
	db, table := keysTable()
	now := time.UnixMilli(1769860800123)
	expires := now.Add(time.Hour)
	r := keys.Record{ID: "id", FetchedAt: now, ExpiresAt: expires}
	_, removed := table.Remove(t.Context(), keys.Record{ID: "removed", FetchedAt: now, ExpiresAt: expires}, now)
	_, counted := table.Take(t.Context(), "misses#1", 1, expires)
	_, seen := table.RecordSource(t.Context(), "source#1", now, now, expires)
	for _, err := range []error{table.Put(t.Context(), r), removed, counted, seen} {
		if err != nil {
			t.Fatal(err)
		}
	}
	items := db.Items("keys")
	for name, item := range items {
		n, ok := item[names.KeysTTL].(*types.AttributeValueMemberN)
		if !ok || n.Value != strconv.FormatInt(expires.Unix(), 10) {
			t.Errorf("%s: %v", name, item)
		}
	}
	if len(items) != 4 {
		t.Errorf("%d items", len(items))
	}
}
