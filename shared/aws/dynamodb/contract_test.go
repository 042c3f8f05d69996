package dynamodb_test

import (
	"testing"

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
		storetest.Ledger(t, seed, 500, 0, &ledger.Memory{}, dynamodb.NewLedger(db, "ledger"))
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
