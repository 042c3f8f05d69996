package local

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	sdks3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/aws/eventbridge"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/aws/tokenstore"
	"payhook.example/shared/bus"
	"payhook.example/shared/objects"
	"payhook.example/shared/settings"
	"payhook.example/shared/token"
)

// indexDelay is how long the emulator's index may take to follow its table.
const indexDelay = 5 * time.Second

// The stores in the emulator have the results of those in memory.
func (f *fixture) testStores(t *testing.T) {
	client := dynamodb.NewClient(f.AWS)
	for seed := range uint64(3) {
		events, ids := fmt.Sprint("contract-ledger-", seed), fmt.Sprint("contract-keys-", seed)
		f.createTable(t, client, events, settings.LedgerKey, types.GlobalSecondaryIndex{
			IndexName: aws.String(settings.LedgerIndex),
			KeySchema: []types.KeySchemaElement{
				{AttributeName: aws.String(settings.LedgerShard), KeyType: types.KeyTypeHash},
				{AttributeName: aws.String(settings.LedgerDue), KeyType: types.KeyTypeRange},
			},
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeInclude,
				NonKeyAttributes: settings.LedgerProjection()},
		})
		f.createTable(t, client, ids, settings.KeysKey)
		remove := func(ctx context.Context, id string) {
			key := map[string]types.AttributeValue{settings.LedgerKey: &types.AttributeValueMemberS{Value: id}}
			if _, err := client.DeleteItem(ctx, &sdk.DeleteItemInput{TableName: &events, Key: key}); err != nil {
				t.Fatal(err)
			}
		}
		compareLedgers(t, seed, indexDelay, ledgerStore{dynamodb.NewLedger(client, events), remove})
		compareKeys(t, seed, keyStore{dynamodb.NewKeys(client, ids), dynamodb.NewKeysInspector(client, ids)})
		compareCalls(t, seed, 500, []objects.Store{&objects.Memory{}, f.createBucket(t, seed)}, (*random).objectCall)
		f.compareTokens(t, seed)
	}
	gone := eventbridge.NewBus(eventbridge.NewClient(f.AWS), "none")
	if err := gone.Find(t.Context()); !errors.Is(err, bus.ErrMissing) {
		t.Errorf("a bus that does not exist: %v", err)
	}
}

// compareTokens compares a secret and a parameter with a token in memory.
func (f *fixture) compareTokens(t *testing.T, seed uint64) {
	t.Helper()
	name := fmt.Sprint("contract-token-", seed)
	if _, err := secretsmanager.NewFromConfig(f.AWS).CreateSecret(t.Context(),
		&secretsmanager.CreateSecretInput{Name: &name}); err != nil {
		t.Fatal(err)
	}
	stores := []token.Store{
		&token.Memory{},
		tokenstore.New(f.AWS, "", "", name),
		tokenstore.New(f.AWS, "/"+name, "", ""),
	}
	save := func(text string) func(context.Context, token.Store) any {
		return func(ctx context.Context, s token.Store) any { return s.Save(ctx, text) }
	}
	compare(t, "the first", stores, save("first")) // the emulator returns "" for a secret without a value
	compareCalls(t, seed, 400, stores, func(r *random) (string, func(context.Context, token.Store) any) {
		if r.IntN(10) == 0 {
			return "save", save(fmt.Sprintf(`{"%0*d":"ü\n"}`, r.IntN(4000), r.Int()))
		}
		return "load", func(ctx context.Context, s token.Store) any {
			text, err := s.Load(ctx)
			return []any{text, err}
		}
	})
}

// createBucket creates a bucket. The emulator ends with the test.
func (f *fixture) createBucket(t *testing.T, seed uint64) s3.Bucket {
	t.Helper()
	name := fmt.Sprint("contract-objects-", seed)
	if _, err := f.S3().CreateBucket(t.Context(), &sdks3.CreateBucketInput{Bucket: &name}); err != nil {
		t.Fatal(err)
	}
	return s3.NewBucket(f.S3(), name)
}

// createTable creates a table. The emulator ends with the test.
func (f *fixture) createTable(t *testing.T, client *dynamodb.Client, name, key string,
	indexes ...types.GlobalSecondaryIndex) {
	t.Helper()
	in := &sdk.CreateTableInput{TableName: &name, BillingMode: types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{{AttributeName: &key, KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &key, AttributeType: "S"}}}
	if len(indexes) > 0 {
		in.GlobalSecondaryIndexes = indexes
		in.AttributeDefinitions = append(in.AttributeDefinitions,
			types.AttributeDefinition{AttributeName: aws.String(settings.LedgerShard), AttributeType: "S"},
			types.AttributeDefinition{AttributeName: aws.String(settings.LedgerDue), AttributeType: "N"})
	}
	if _, err := client.CreateTable(t.Context(), in); err != nil {
		t.Fatal(err)
	}
}
