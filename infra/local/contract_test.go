package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	sdks3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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
	client := dynamodb.NewClient(f.Stack.AWS)
	const seed = 0
	events, ids := "contract-ledger", "contract-keys"
	f.createTable(t, client, events, settings.LedgerKey, types.GlobalSecondaryIndex{
		IndexName: aws.String(settings.LedgerIndex),
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String(settings.LedgerShard), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String(settings.LedgerIndexTime), KeyType: types.KeyTypeRange},
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
	bucket := &sdks3.CreateBucketInput{Bucket: aws.String("contract-objects")}
	if _, err := f.Stack.S3().CreateBucket(t.Context(), bucket); err != nil {
		t.Fatal(err)
	}
	compareCalls(t, seed, 300, []objects.Store{&objects.Memory{}, s3.NewBucket(f.Stack.S3(), *bucket.Bucket)},
		(*random).objectCall)
	f.compareTokens(t, seed)
	gone := eventbridge.NewBus(eventbridge.NewClient(f.Stack.AWS), "none")
	if err := gone.Find(t.Context()); !errors.Is(err, bus.ErrMissing) {
		t.Errorf("a bus that does not exist: %v", err)
	}
}

// compareTokens compares a secret and a parameter with a token in memory.
func (f *fixture) compareTokens(t *testing.T, seed uint64) {
	t.Helper()
	name := "contract-token"
	if _, err := secretsmanager.NewFromConfig(f.Stack.AWS).CreateSecret(t.Context(),
		&secretsmanager.CreateSecretInput{Name: &name}); err != nil {
		t.Fatal(err)
	}
	stores := []token.Store{
		&token.Memory{},
		tokenstore.New(f.Stack.AWS, "", "", name),
		tokenstore.New(f.Stack.AWS, "/"+name, "", ""),
	}
	save := func(text string) func(context.Context, token.Store) any {
		return func(ctx context.Context, s token.Store) any { return s.Save(ctx, text) }
	}
	compare(t, "the first", stores, save("first")) // the emulator returns "" for a secret without a value
	compareCalls(t, seed, 150, stores, func(r *random) (string, func(context.Context, token.Store) any) {
		if r.IntN(10) == 0 {
			return "save", save(fmt.Sprintf(`{"%0*d":"ü\n"}`, r.IntN(4000), r.Int()))
		}
		return "load", func(ctx context.Context, s token.Store) any {
			text, err := s.Load(ctx)
			return []any{text, err}
		}
	})
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
			types.AttributeDefinition{AttributeName: aws.String(settings.LedgerIndexTime), AttributeType: "N"})
	}
	if _, err := client.CreateTable(t.Context(), in); err != nil {
		t.Fatal(err)
	}
}

// compare makes a call of each store and fails the test if a result differs from that of the first one.
func compare[S any](t *testing.T, what string, stores []S, do func(context.Context, S) any) {
	t.Helper()
	compareLater(t, what, 0, stores, do)
}

// compareLater repeats a call that only reads for that long until the results are the same.
func compareLater[S any](t *testing.T, what string, wait time.Duration, stores []S, do func(context.Context, S) any) {
	t.Helper()
	want := do(t.Context(), stores[0])
	for n, other := range stores[1:] {
		for deadline := time.Now().Add(wait); ; {
			diff := different(want, do(t.Context(), other))
			if diff == "" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s (-store 0 +store %d):\n%s", what, n+1, diff)
			}
		}
	}
}

// compareCalls makes n random calls of each store and fails the test if a result differs from that of the first one.
func compareCalls[S any](t *testing.T, seed uint64, n int, stores []S,
	random func(*random) (what string, call func(context.Context, S) any)) {
	t.Helper()
	r := newRandom(seed)
	for number := range n {
		what, call := random(r)
		compare(t, fmt.Sprintf("seed %d, call %d, %s", seed, number, what), stores, call)
	}
}

// different returns how two results differ; "" if they do not.
func different(a, b any) string {
	if reflect.DeepEqual(a, b) { // much faster
		return ""
	}
	return cmp.Diff(a, b, cmpopts.EquateErrors())
}

// atOnce makes a call ten times at the same time, and returns how often it was true.
func atOnce[S any](call func(ctx context.Context, s S, n int) bool) func(context.Context, S) any {
	return func(ctx context.Context, s S) any {
		var done atomic.Int32
		var all sync.WaitGroup
		for n := range 10 {
			all.Go(func() {
				if call(ctx, s, n) {
					done.Add(1)
				}
			})
		}
		all.Wait()
		return done.Load()
	}
}

// random chooses calls about few events, so that they meet.
type random struct{ *rand.Rand }

func newRandom(seed uint64) *random { return &random{rand.New(rand.NewPCG(seed, 0))} }

const fewEvents = 6

func idOf(n int) string { return fmt.Sprintf("%08d-0000-4000-8000-000000000000", n) }

func (r *random) id() string { return idOf(r.IntN(fewEvents)) }

func allIDs() (all []string) {
	for n := range fewEvents {
		all = append(all, idOf(n))
	}
	return all
}

// time returns one of few times. Some have fewer digits: they are numbers in a table.
func (r *random) time() time.Time {
	if n := r.IntN(16); n < 3 {
		return time.UnixMilli([]int64{9000, 10_000, 99_000}[n]).UTC()
	}
	return time.UnixMilli(1769860800123 + 1000*r.Int64N(4)).UTC()
}

// some returns one of these, often the zero value.
func some[T any](r *random, of ...T) (t T) {
	if n := r.IntN(2 * len(of)); n < len(of) {
		return of[n]
	}
	return t
}

// key returns one of few keys, of which many begin with others.
func (r *random) key() (key string) {
	for range 1 + r.IntN(3) {
		key += []string{"a", "a/", "B", "a-", "0.json", "ü"}[r.IntN(6)]
	}
	return key
}

// objectCall returns what a call does, and the call, which returns its result.
func (r *random) objectCall() (what string, do func(ctx context.Context, s objects.Store) any) {
	key, after, limit := r.key(), "", 1+r.IntN(8)
	body := bytes.Repeat([]byte{byte('a' + r.IntN(26))}, r.IntN(4)*r.IntN(10))
	switch r.IntN(8) {
	case 0:
		return "put " + key, func(ctx context.Context, s objects.Store) any {
			mine := bytes.Clone(body)
			defer clear(mine) // what is stored stays
			return s.Put(ctx, key, mine)
		}
	case 1, 2:
		return "create " + key, func(ctx context.Context, s objects.Store) any {
			mine := bytes.Clone(body)
			defer clear(mine)
			existed, err := s.Create(ctx, key, mine)
			return []any{existed, err}
		}
	case 3, 4:
		limit = r.IntN(30)
		return fmt.Sprint("get ", key, limit), func(ctx context.Context, s objects.Store) any {
			found, err := s.Get(ctx, key, limit)
			defer clear(found)
			return []any{string(found), err}
		}
	}
	prefix := key
	if r.IntN(2) == 0 {
		prefix, after = "", r.key()
	}
	return fmt.Sprintf("list %q after %q, %d", prefix, after, limit), func(ctx context.Context, s objects.Store) any {
		page, more, err := s.List(ctx, prefix, after, limit)
		for n, o := range page {
			if o.StoredAt.IsZero() {
				err = errors.New("no time of " + o.Key)
			}
			page[n].StoredAt = time.Time{} // the clocks differ
		}
		return []any{append([]objects.Object{}, page...), more, err}
	}
}
