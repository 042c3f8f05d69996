package dynamodb_test

import (
	"testing"

	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/awstest"
	"payhook.example/shared/ledger"
	"payhook.example/shared/storetest"
)

func TestTheTableAndTheMemoryHaveTheSameResults(t *testing.T) {
	for seed := range uint64(20) {
		db := awstest.NewDynamoDB()
		db.CreateLedger("ledger")
		storetest.Ledger(t, seed, 500, 0, &ledger.Memory{}, dynamodb.NewLedger(db, "ledger"))
	}
}
