package dynamodb_test

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/awstest"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/names"
	"payhook.example/shared/storetest"
)

func TestTheTableAndTheMemoryHaveTheSameResults(t *testing.T) {
	for seed := range uint64(20) {
		db := awstest.NewDynamoDB()
		db.CreateLedger("ledger")
		memory := &ledger.Memory{}
		remove := func(ctx context.Context, id string) {
			if _, err := db.DeleteItem(ctx, &sdk.DeleteItemInput{TableName: aws.String("ledger"),
				Key: awstest.Item{names.LedgerKey: &types.AttributeValueMemberS{Value: id}}}); err != nil {
				t.Fatal(err)
			}
		}
		storetest.Ledger(t, seed, 500, 0, storetest.LedgerStore{Store: memory, Delete: memory.Delete},
			storetest.LedgerStore{Store: dynamodb.NewLedger(db, "ledger"), Delete: remove})
	}
}

func TestTheTableOfKeysAndTheMemoryHaveTheSameResults(t *testing.T) {
	for seed := range uint64(20) {
		db, memory := awstest.NewDynamoDB(), &keys.Memory{}
		db.CreateTable("keys", names.KeysKey)
		table := dynamodb.NewKeys(db, "keys")
		storetest.Keys(t, seed, 500, storetest.KeyStore{Store: memory, CertificateReader: memory, InspectStore: memory},
			storetest.KeyStore{Store: table, CertificateReader: table,
				InspectStore: dynamodb.NewKeysInspector(db, "keys")})
	}
}
