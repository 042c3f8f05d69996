package awstest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	eventbridgetypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/awsenv"
	"payhook.example/shared/awstest"
	"payhook.example/shared/bus"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
)

// endpointVariable contains the URL of a service with the real protocols, such as
// http://127.0.0.1:4566. If it is set, every test also runs against this service,
// through the real SDK clients.
const endpointVariable = "PAYHOOK_AWS_ENDPOINT"

// The operations are those that the packages call.
type (
	dynamoDB interface {
		ledger.API
		ledger.InspectAPI
		keys.API
		keys.InspectAPI
	}
	eventBridge interface{ bus.API }
	objects     interface{ parking.API }
)

// services are the services of a test case: a table with the key "id" and the index
// "pending" on "shard" and "due", a bus, and a bucket.
type services struct {
	dynamoDB
	eventBridge
	objects
	table, bus, bucket string
	// reader may get the objects of the bucket, and may not list it.
	reader objects
}

var pendingIndex = awstest.Index{Name: "pending", PartitionKey: "shard", PartitionType: types.ScalarAttributeTypeN,
	SortKey: "due", SortType: types.ScalarAttributeTypeN, Include: []string{"kept"}}

// inMemory runs a test case with the services in memory, called directly and over HTTP
// with the real SDK clients. The emulator accepts what some cases expect to be rejected: those run
// in memory only.
func inMemory(t *testing.T, try func(t *testing.T, s services)) {
	t.Helper()
	for _, name := range []string{"in memory", "in memory over HTTP"} {
		t.Run(name, func(t *testing.T) {
			db, events, buckets, reader := awstest.NewDynamoDB(), &awstest.EventBridge{}, awstest.NewS3(),
				awstest.NewS3()
			db.CreateTable("table", "id", pendingIndex)
			buckets.MakeBucket("bucket")
			reader.MakeBucket("bucket")
			reader.DenyList = true
			s := services{db, events, buckets, "table", "bus", "bucket", reader}
			if name != "in memory" {
				server := httptest.NewServer(awstest.Handler{DynamoDB: db})
				defer server.Close()
				s.dynamoDB = dynamodb.NewFromConfig(configOf(server.URL))
			}
			try(t, s)
		})
	}
}

// on runs a test case in memory, and with the endpoint if there is one.
func on(t *testing.T, try func(t *testing.T, s services)) {
	t.Helper()
	inMemory(t, try)
	endpoint := os.Getenv(endpointVariable)
	if endpoint == "" {
		return
	}
	t.Run("endpoint", func(t *testing.T) {
		try(t, dial(t, endpoint))
	})
}

// configOf returns the configuration of clients of an endpoint.
func configOf(endpoint string) aws.Config {
	return aws.Config{
		Region:       or("AWS_REGION", "us-east-1"),
		BaseEndpoint: &endpoint,
		HTTPClient:   &http.Client{Transport: awsenv.NewConnections(8), Timeout: time.Minute},
		Credentials: credentials.NewStaticCredentialsProvider(
			or("AWS_ACCESS_KEY_ID", "test"), or("AWS_SECRET_ACCESS_KEY", "test"), os.Getenv("AWS_SESSION_TOKEN")),
	}
}

// dialTable creates the table for the test case.
func dialTable(t *testing.T, cfg aws.Config, name string) *dynamodb.Client {
	t.Helper()
	ctx := t.Context()
	db := dynamodb.NewFromConfig(cfg)
	_, err := db.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("shard"), AttributeType: types.ScalarAttributeTypeN},
			{AttributeName: aws.String("due"), AttributeType: types.ScalarAttributeTypeN},
		},
		KeySchema: []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{
			IndexName: aws.String("pending"),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeInclude,
				NonKeyAttributes: []string{"kept"}},
			KeySchema: []types.KeySchemaElement{
				{AttributeName: aws.String("shard"), KeyType: types.KeyTypeHash},
				{AttributeName: aws.String("due"), KeyType: types.KeyTypeRange},
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	gone := context.WithoutCancel(ctx)
	t.Cleanup(func() { _, _ = db.DeleteTable(gone, &dynamodb.DeleteTableInput{TableName: &name}) })
	if err := dynamodb.NewTableExistsWaiter(db).Wait(ctx, &dynamodb.DescribeTableInput{TableName: &name},
		time.Minute); err != nil {
		t.Fatal(err)
	}
	return db
}

// dial creates a table, a bus and a bucket for the test case at an endpoint.
func dial(t *testing.T, endpoint string) services {
	t.Helper()
	cfg, name := configOf(endpoint), "conformance-"+uuid.New().String()
	ctx, gone := t.Context(), context.WithoutCancel(t.Context())
	db := dialTable(t, cfg, name)
	events := eventbridge.NewFromConfig(cfg)
	if _, err := events.CreateEventBus(ctx, &eventbridge.CreateEventBusInput{Name: &name}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = events.DeleteEventBus(gone, &eventbridge.DeleteEventBusInput{Name: &name}) })
	buckets := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := buckets.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &name}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := buckets.ListObjectsV2(gone, &s3.ListObjectsV2Input{Bucket: &name}); err == nil {
			for _, o := range out.Contents {
				_, _ = buckets.DeleteObject(gone, &s3.DeleteObjectInput{Bucket: &name, Key: o.Key})
			}
		}
		_, _ = buckets.DeleteBucket(gone, &s3.DeleteBucketInput{Bucket: &name})
	})
	return services{db, events, buckets, name, name, name, dialReader(t, cfg, name)}
}

// dialReader creates a user that can only get the objects of a bucket.
func dialReader(t *testing.T, cfg aws.Config, bucket string) objects {
	t.Helper()
	ctx, gone := t.Context(), context.WithoutCancel(t.Context())
	users := iam.NewFromConfig(cfg)
	if _, err := users.CreateUser(ctx, &iam.CreateUserInput{UserName: &bucket}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = users.DeleteUser(gone, &iam.DeleteUserInput{UserName: &bucket}) })
	policy := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObject",` +
		`"Resource":"arn:aws:s3:::` + bucket + `/*"}]}`
	if _, err := users.PutUserPolicy(ctx,
		&iam.PutUserPolicyInput{UserName: &bucket, PolicyName: &bucket, PolicyDocument: &policy}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = users.DeleteUserPolicy(gone, &iam.DeleteUserPolicyInput{UserName: &bucket, PolicyName: &bucket})
	})
	made, err := users.CreateAccessKey(ctx, &iam.CreateAccessKeyInput{UserName: &bucket})
	if err != nil {
		t.Fatal(err)
	}
	key := made.AccessKey
	t.Cleanup(func() {
		_, _ = users.DeleteAccessKey(gone, &iam.DeleteAccessKeyInput{UserName: &bucket, AccessKeyId: key.AccessKeyId})
	})
	cfg.Credentials = credentials.NewStaticCredentialsProvider(*key.AccessKeyId, *key.SecretAccessKey, "")
	return s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
}

// or returns an environment variable, or the default if it is not set.
func or(variable, otherwise string) string {
	if value := os.Getenv(variable); value != "" {
		return value
	}
	return otherwise
}

func text(s string) types.AttributeValue   { return &types.AttributeValueMemberS{Value: s} }
func number(n int) types.AttributeValue    { return &types.AttributeValueMemberN{Value: strconv.Itoa(n)} }
func binary(s string) types.AttributeValue { return &types.AttributeValueMemberB{Value: []byte(s)} }

// put writes an item without a condition.
func (s services) put(t *testing.T, item awstest.Item) {
	t.Helper()
	if _, err := s.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &s.table, Item: item}); err != nil {
		t.Fatal(err)
	}
}

// item returns the item in the table.
func (s services) item(t *testing.T, id string) awstest.Item {
	t.Helper()
	out, err := s.GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName: &s.table, Key: awstest.Item{"id": text(id)}, ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

func code(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}

// conditionFailed returns the error of a write whose condition failed.
func conditionFailed(err error) (*types.ConditionalCheckFailedException, bool) {
	return errors.AsType[*types.ConditionalCheckFailedException](err)
}

func same(t *testing.T, got, want awstest.Item) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(types.AttributeValueMemberS{}, types.AttributeValueMemberN{},
		types.AttributeValueMemberB{}, types.AttributeValueMemberBOOL{})); diff != "" {
		t.Error(diff)
	}
}

// These are the conditions with which package ledger records and replaces.
func TestConditionsOfTheLedger(t *testing.T) {
	const (
		record  = "attribute_not_exists(#id) OR (attribute_not_exists(#shard) AND #expiresAt <= :v)"
		replace = "attribute_not_exists(#id) OR " +
			"(attribute_not_exists(#shard) AND (#digest <> :v OR attribute_exists(#parkedAt)))"
	)
	tests := map[string]struct {
		condition string
		old       awstest.Item
		holds     bool
	}{
		"new":     {record, nil, true},
		"pending": {record, awstest.Item{"shard": number(1), "due": number(2)}, false},
		"pending, with an expiry": {record, awstest.Item{"shard": number(1), "due": number(2),
			"expiresAt": number(50)}, false},
		"published":                 {record, awstest.Item{"expiresAt": number(101)}, false},
		"published, expires now":    {record, awstest.Item{"expiresAt": number(100)}, true},
		"published, expired":        {record, awstest.Item{"expiresAt": number(99)}, true},
		"expired, by fewer digits":  {record, awstest.Item{"expiresAt": number(9)}, true},
		"published, without expiry": {record, awstest.Item{"publishedAt": number(1)}, false},
		"replace new":               {replace, nil, true},
		"replace other content":     {replace, awstest.Item{"digest": binary("e")}, true},
		"replace the same content":  {replace, awstest.Item{"digest": binary("d")}, false},
		"replace what is parked":    {replace, awstest.Item{"digest": binary("d"), "parkedAt": number(1)}, true},
		"replace what is pending":   {replace, awstest.Item{"digest": binary("e"), "shard": number(1)}, false},
	}
	on(t, func(t *testing.T, s services) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				id := "condition " + name
				if test.old != nil {
					test.old["id"] = text(id)
					s.put(t, test.old)
				}
				item := awstest.Item{"id": text(id), "shard": number(7), "due": number(8), "event": binary("new")}
				used := map[string]string{"#id": "id", "#shard": "shard", "#expiresAt": "expiresAt"}
				value := number(100)
				if test.condition == replace {
					used = map[string]string{"#id": "id", "#shard": "shard", "#digest": "digest",
						"#parkedAt": "parkedAt"}
					value = binary("d")
				}
				in := &dynamodb.PutItemInput{
					TableName: &s.table, Item: item, ConditionExpression: &test.condition,
					ExpressionAttributeNames:            used,
					ExpressionAttributeValues:           awstest.Item{":v": value},
					ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
				}
				_, err := s.PutItem(t.Context(), in)
				if test.holds {
					if err != nil {
						t.Fatal(err)
					}
					same(t, s.item(t, id), item)
					return
				}
				failed, ok := conditionFailed(err)
				if !ok {
					t.Fatalf("got %v", err)
				}
				same(t, failed.Item, test.old)
				same(t, s.item(t, id), test.old)

				in.ReturnValuesOnConditionCheckFailure = ""
				_, err = s.PutItem(t.Context(), in)
				if failed, ok = conditionFailed(err); !ok {
					t.Fatalf("got %v", err)
				}
				if failed.Item != nil {
					t.Errorf("the old item came unasked: %v", failed.Item)
				}
			})
		}
	})
}

func TestComparisonWithAMissingAttributeIsFalse(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		s.put(t, awstest.Item{"id": text("published"), "n": text("10")})
		for _, id := range []string{"published", "absent"} {
			for _, condition := range []string{"due = :v", "due <= :v", "due > :v", "n < :v",
				"(attribute_not_exists(id) AND attribute_exists(n)) OR due > :v"} {
				_, err := s.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
					TableName: &s.table, Key: awstest.Item{"id": text(id)},
					UpdateExpression: aws.String("SET changed = :v"), ConditionExpression: &condition,
					ExpressionAttributeValues: awstest.Item{":v": number(10)},
				})
				if _, ok := errors.AsType[*types.ConditionalCheckFailedException](err); !ok {
					t.Errorf("%s, %s: got %v", id, condition, err)
				}
			}
		}
		if got := s.item(t, "absent"); len(got) != 0 {
			t.Errorf("a failed condition made %v", got)
		}
		same(t, s.item(t, "published"), awstest.Item{"id": text("published"), "n": text("10")})
	})
}

// This is the condition with which package keys counts.
func TestConditionOfBudgets(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		var left atomic.Int32
		var wg sync.WaitGroup
		for range 12 {
			wg.Go(func() {
				_, err := s.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
					TableName: &s.table, Key: awstest.Item{"id": text("misses#1")},
					UpdateExpression: aws.String("SET misses = if_not_exists(misses, :zero) + :one, " +
						"expiresAt = :expires"),
					ConditionExpression: aws.String("attribute_not_exists(misses) OR misses < :budget"),
					ExpressionAttributeValues: awstest.Item{":zero": number(0), ":one": number(1),
						":budget": number(10), ":expires": number(99)},
				})
				_, ok := conditionFailed(err)
				switch {
				case err == nil:
					left.Add(1)
				case !ok:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if left.Load() != 10 {
			t.Errorf("%d of 10", left.Load())
		}
		same(t, s.item(t, "misses#1"),
			awstest.Item{"id": text("misses#1"), "misses": number(10), "expiresAt": number(99)})
	})
}

// These are the updates and conditions of package keys.
func TestConditionsOfKeys(t *testing.T) {
	type change struct{ old, want awstest.Item } // without a wanted item, the condition fails
	tests := map[string]struct {
		update, condition string
		values            awstest.Item
		changes           map[string]change
	}{
		"store": {"SET fetchedAt = :at", "attribute_not_exists(fetchedAt) OR fetchedAt <= :at",
			awstest.Item{":at": number(100)}, map[string]change{
				"new":             {nil, awstest.Item{"fetchedAt": number(100)}},
				"again":           {awstest.Item{"fetchedAt": number(100)}, awstest.Item{"fetchedAt": number(100)}},
				"by fewer digits": {awstest.Item{"fetchedAt": number(99)}, awstest.Item{"fetchedAt": number(100)}},
				"fetched later":   {awstest.Item{"fetchedAt": number(1000)}, nil},
			}},
		"mark as unknown": {"SET unknownSince = if_not_exists(unknownSince, :since), unknownAt = :at",
			"attribute_exists(jwk) AND expiresAt > :now AND fetchedAt <= :at",
			awstest.Item{":at": number(1000), ":now": number(100), ":since": number(50)}, map[string]change{
				"known": {
					awstest.Item{"jwk": text("{}"), "fetchedAt": number(9), "expiresAt": number(101)},
					awstest.Item{"jwk": text("{}"), "fetchedAt": number(9), "expiresAt": number(101),
						"unknownSince": number(50), "unknownAt": number(1000)}},
				"marked before": {
					awstest.Item{"jwk": text("{}"), "fetchedAt": number(1000), "expiresAt": number(101),
						"unknownSince": number(7), "unknownAt": number(8)},
					awstest.Item{"jwk": text("{}"), "fetchedAt": number(1000), "expiresAt": number(101),
						"unknownSince": number(7), "unknownAt": number(1000)}},
				"fetched later": {awstest.Item{"jwk": text("{}"), "fetchedAt": number(1001), "expiresAt": number(101)},
					nil},
				"expired":   {awstest.Item{"jwk": text("{}"), "fetchedAt": number(9), "expiresAt": number(100)}, nil},
				"removed":   {awstest.Item{"fetchedAt": number(9), "expiresAt": number(101)}, nil},
				"not there": {nil, nil},
			}},
		"remove": {"SET fetchedAt = :at REMOVE jwk, unknownAt",
			"attribute_not_exists(jwk) OR expiresAt <= :now OR (fetchedAt <= :at AND unknownSince <= :oldest)",
			awstest.Item{":at": number(1000), ":now": number(100), ":oldest": number(50)}, map[string]change{
				"not there": {nil, awstest.Item{"fetchedAt": number(1000)}},
				"expired": {awstest.Item{"jwk": text("{}"), "fetchedAt": number(9), "expiresAt": number(100)},
					awstest.Item{"fetchedAt": number(1000), "expiresAt": number(100)}},
				"unknown for long enough": {
					awstest.Item{"jwk": text("{}"), "fetchedAt": number(9), "expiresAt": number(999),
						"unknownSince": number(50), "unknownAt": number(60)},
					awstest.Item{"fetchedAt": number(1000), "expiresAt": number(999), "unknownSince": number(50)}},
				"not for long enough": {awstest.Item{"jwk": text("{}"), "fetchedAt": number(9),
					"expiresAt": number(999), "unknownSince": number(51)}, nil},
				"fetched later": {awstest.Item{"jwk": text("{}"), "fetchedAt": number(1001), "expiresAt": number(999),
					"unknownSince": number(50)}, nil},
				"never unknown": {awstest.Item{"jwk": text("{}"), "fetchedAt": number(9), "expiresAt": number(999)},
					nil},
			}},
		"record a source": {"SET seenAt = :at", "attribute_not_exists(seenAt) OR seenAt <= :oldest",
			awstest.Item{":at": number(200), ":oldest": number(100)}, map[string]change{
				"new":                  {nil, awstest.Item{"seenAt": number(200)}},
				"seen long ago":        {awstest.Item{"seenAt": number(100)}, awstest.Item{"seenAt": number(200)}},
				"seen not so long ago": {awstest.Item{"seenAt": number(101)}, nil},
			}},
	}
	on(t, func(t *testing.T, s services) {
		for name, test := range tests {
			for which, c := range test.changes {
				id := name + ", " + which
				if c.old != nil {
					c.old["id"] = text(id)
					s.put(t, c.old)
				}
				out, err := s.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
					TableName: &s.table, Key: awstest.Item{"id": text(id)}, UpdateExpression: &test.update,
					ConditionExpression: &test.condition, ExpressionAttributeValues: test.values,
					ReturnValues:                        types.ReturnValueAllNew,
					ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
				})
				failed, ok := conditionFailed(err)
				switch {
				case c.want == nil && !ok, c.want != nil && err != nil:
					t.Errorf("%s: %v", id, err)
				case c.want == nil:
					same(t, failed.Item, c.old)
					same(t, s.item(t, id), c.old)
				default:
					c.want["id"] = text(id)
					same(t, out.Attributes, c.want)
					same(t, s.item(t, id), c.want)
				}
			}
		}
	})
}

// query reads the index page by page and returns the ids in order.
func (s services) query(t *testing.T, shard, at, limit int) (ids []string, pages int) {
	t.Helper()
	var after awstest.Item
	for {
		out, err := s.Query(t.Context(), &dynamodb.QueryInput{
			TableName: &s.table, IndexName: aws.String("pending"),
			KeyConditionExpression:    aws.String("#shard = :shard AND #due <= :at"),
			ExpressionAttributeNames:  map[string]string{"#shard": "shard", "#due": "due"},
			ExpressionAttributeValues: awstest.Item{":shard": number(shard), ":at": number(at)},
			ExclusiveStartKey:         after, Limit: aws.Int32(int32(limit)),
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Items) > limit || int(out.Count) != len(out.Items) {
			t.Errorf("%d items, counted %d, with a limit of %d", len(out.Items), out.Count, limit)
		}
		for _, item := range out.Items {
			id := item["id"].(*types.AttributeValueMemberS).Value
			ids = append(ids, id)
			same(t, item, awstest.Item{"id": text(id), "shard": number(shard), "due": item["due"]})
		}
		pages++
		if after = out.LastEvaluatedKey; after == nil {
			return ids, pages
		}
	}
}

func TestIndexIsSparseAndInNumericOrder(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		for _, due := range []int{100, 9, 10, 1000, 99} {
			s.put(t, awstest.Item{"id": text(fmt.Sprint("due ", due)), "shard": number(1), "due": number(due),
				"event": binary("{}")})
		}
		s.put(t, awstest.Item{"id": text("other shard"), "shard": number(2), "due": number(1)})
		s.put(t, awstest.Item{"id": text("no shard"), "due": number(1)})
		s.put(t, awstest.Item{"id": text("no due"), "shard": number(1)})
		for _, limit := range []int{1, 2, 4, 25} {
			if ids, _ := s.query(t, 1, 100, limit); !slices.Equal(ids,
				[]string{"due 9", "due 10", "due 99", "due 100"}) {
				t.Errorf("limit %d: got %q", limit, ids)
			}
		}
		if ids, pages := s.query(t, 3, 100, 5); len(ids) != 0 || pages != 1 {
			t.Errorf("an empty shard: %q", ids)
		}
		if _, err := s.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
			TableName: &s.table, Key: awstest.Item{"id": text("due 10")},
			UpdateExpression:         aws.String("REMOVE #shard, due"),
			ExpressionAttributeNames: map[string]string{"#shard": "shard"},
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
			TableName: &s.table, Key: awstest.Item{"id": text("due 9")}, UpdateExpression: aws.String("SET due = :due"),
			ExpressionAttributeValues: awstest.Item{":due": number(100_000)},
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.DeleteItem(t.Context(),
			&dynamodb.DeleteItemInput{TableName: &s.table, Key: awstest.Item{"id": text("due 99")}}); err != nil {
			t.Fatal(err)
		}
		if ids, _ := s.query(t, 1, 1000, 25); !slices.Equal(ids, []string{"due 100", "due 1000"}) {
			t.Errorf("got %q", ids)
		}
	})
}

func TestQueryContinuesAfterThePageDespiteChanges(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		for due := range 6 {
			s.put(t, awstest.Item{"id": text(fmt.Sprint(due)), "shard": number(1), "due": number(due)})
		}
		in := &dynamodb.QueryInput{
			TableName: &s.table, IndexName: aws.String("pending"),
			KeyConditionExpression:    aws.String("#shard = :s AND due <= :at"),
			ExpressionAttributeNames:  map[string]string{"#shard": "shard"},
			ExpressionAttributeValues: awstest.Item{":s": number(1), ":at": number(100)}, Limit: aws.Int32(3),
		}
		first, err := s.Query(t.Context(), in)
		if err != nil || len(first.Items) != 3 || first.LastEvaluatedKey == nil {
			t.Fatalf("got %v, %v", first, err)
		}
		// What the cursor stands on is published.
		if _, err := s.DeleteItem(t.Context(),
			&dynamodb.DeleteItemInput{TableName: &s.table, Key: awstest.Item{"id": text("2")}}); err != nil {
			t.Fatal(err)
		}
		in.ExclusiveStartKey, in.Limit = first.LastEvaluatedKey, aws.Int32(10)
		second, err := s.Query(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, item := range second.Items {
			ids = append(ids, item["id"].(*types.AttributeValueMemberS).Value)
		}
		if !slices.Equal(ids, []string{"3", "4", "5"}) || second.LastEvaluatedKey != nil {
			t.Errorf("got %q, %v", ids, second.LastEvaluatedKey)
		}
	})
}

func TestInvalidRequestsAreRejected(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		put := func(table string, condition *string, names map[string]string, values awstest.Item) error {
			_, err := s.PutItem(t.Context(), &dynamodb.PutItemInput{
				TableName: &table, Item: awstest.Item{"id": text("refused")}, ConditionExpression: condition,
				ExpressionAttributeNames: names, ExpressionAttributeValues: values,
			})
			return err
		}
		if err := put(s.table+"-none", nil, nil, nil); code(err) != "ResourceNotFoundException" {
			t.Errorf("no such table: %v", err)
		}
		for name, err := range map[string]error{
			"syntax":          put(s.table, aws.String("id = = :v"), nil, awstest.Item{":v": text("x")}),
			"undefined value": put(s.table, aws.String("id = :v"), nil, nil),
			"undefined name":  put(s.table, aws.String("attribute_not_exists(#id)"), nil, nil),
			"unused value":    put(s.table, aws.String("attribute_not_exists(id)"), nil, awstest.Item{":v": text("x")}),
			"reserved word":   put(s.table, aws.String("attribute_not_exists(shard)"), nil, nil),
			"unused name":     put(s.table, aws.String("attribute_not_exists(id)"), map[string]string{"#n": "n"}, nil),
		} {
			if code(err) != "ValidationException" {
				t.Errorf("%s: got %v", name, err)
			}
		}
		if got := s.item(t, "refused"); len(got) != 0 {
			t.Errorf("written despite the error: %v", got)
		}
	})
}

// The names and types of keys are those of the table and its index.
func TestKeysAreChecked(t *testing.T) {
	inMemory(t, func(t *testing.T, s services) {
		s.put(t, awstest.Item{"id": text("a"), "shard": number(1), "due": number(1), "kept": number(1)})
		rejected := func(name string, err error) {
			t.Helper()
			if code(err) != "ValidationException" {
				t.Errorf("%s: got %v", name, err)
			}
		}
		for name, key := range map[string]awstest.Item{
			"a number": {"id": number(1)}, "bytes": {"id": binary("a")},
			"empty": {"id": text("")}, "another name": {"x": text("a")}, "none": {}, "two names": {"id": text("a"),
				"x": text("a")},
			"too long": {"id": text(strings.Repeat("a", 2049))},
		} {
			_, err := s.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &s.table, Key: key})
			rejected("GetItem with "+name, err)
			_, err = s.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: &s.table, Key: key})
			rejected("DeleteItem with "+name, err)
			_, err = s.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: &s.table, Key: key,
				UpdateExpression: aws.String("REMOVE x")})
			rejected("UpdateItem with "+name, err)
			keys := types.KeysAndAttributes{Keys: []map[string]types.AttributeValue{key}}
			_, err = s.BatchGetItem(t.Context(),
				&dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{s.table: keys}})
			rejected("BatchGetItem with "+name, err)
			if name != "two names" {
				_, err = s.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &s.table, Item: key})
				rejected("PutItem with "+name, err)
			}
		}
		for name, other := range map[string]awstest.Item{
			"a partition": {"shard": text("1"), "due": number(1)}, "a sort key": {"shard": number(1), "due": text("1")},
			"a partition alone": {"shard": text("1")},
		} {
			item := awstest.Item{"id": text("b")}
			maps.Copy(item, other)
			_, err := s.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &s.table, Item: item})
			rejected("PutItem with "+name+" of another type", err)
		}
		for name, expression := range map[string]string{
			"the key": "SET id = :v", "a sort key of another type": "SET due = :v",
			"two sections": "SET x = :v SET y = :v",
		} {
			_, err := s.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: &s.table,
				Key: awstest.Item{"id": text("a")}, UpdateExpression: &expression,
				ExpressionAttributeValues: awstest.Item{":v": text("a")}})
			rejected("UpdateItem of "+name, err)
		}
		if got := s.item(t, "b"); len(got) != 0 {
			t.Errorf("written despite the error: %v", got)
		}
	})
}

// A key condition compares each key of the index once, with a value of its type.
func TestKeyConditionsAreChecked(t *testing.T) {
	inMemory(t, func(t *testing.T, s services) {
		query := func(condition string, due types.AttributeValue, start awstest.Item) error {
			in := &dynamodb.QueryInput{TableName: &s.table, IndexName: aws.String("pending"),
				KeyConditionExpression: &condition, ExclusiveStartKey: start,
				ExpressionAttributeNames:  map[string]string{"#shard": "shard"},
				ExpressionAttributeValues: awstest.Item{":shard": number(1)}}
			if due != nil {
				in.ExpressionAttributeValues[":due"] = due
			}
			_, err := s.Query(t.Context(), in)
			return err
		}
		const both = "#shard = :shard AND due <= :due"
		key := awstest.Item{"id": text("a"), "shard": number(1), "due": number(1)}
		change := func(name string, value types.AttributeValue) awstest.Item {
			changed := maps.Clone(key)
			if changed[name] = value; value == nil {
				delete(changed, name)
			}
			return changed
		}
		for name, err := range map[string]error{
			"both keys": query(both, number(1), nil), "the partition": query("#shard = :shard", nil, nil),
			"after a key": query(both, number(1), key),
		} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, err := range map[string]error{
			"a string":             query(both, text("1"), nil),
			"another attribute":    query("#shard = :shard AND kept = :due", number(1), nil),
			"no equality":          query("#shard <= :shard", nil, nil),
			"one key twice":        query(both+" AND due > :due", number(1), nil),
			"no partition":         query("due <= :due AND due > :shard AND kept = #shard", number(1), nil),
			"after half a key":     query(both, number(1), change("due", nil)),
			"after more":           query(both, number(1), change("kept", number(1))),
			"after another type":   query(both, number(1), change("due", text("1"))),
			"after another string": query(both, number(1), change("id", number(1))),
		} {
			if code(err) != "ValidationException" {
				t.Errorf("%s: got %v", name, err)
			}
		}
	})
}

func (s services) entries(n int) []eventbridgetypes.PutEventsRequestEntry {
	var entries []eventbridgetypes.PutEventsRequestEntry
	for i := range n {
		entries = append(entries, eventbridgetypes.PutEventsRequestEntry{
			EventBusName: &s.bus, Source: aws.String("payhook"), DetailType: aws.String("PAYMENT_STATUS.RELEASED"),
			Detail: aws.String(fmt.Sprintf(`{"i":%d}`, i)), Time: aws.Time(time.Unix(1_750_000_000, 0)),
			Resources: []string{"delivery"},
		})
	}
	return entries
}

func TestItemsAreLimitedTo400KB(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		const limit = 400 << 10
		filler := func(rest int) types.AttributeValue { return binary(strings.Repeat("x", limit-rest)) }
		for _, test := range []struct {
			name string
			more int
			code string
		}{{"400 KB", 0, ""}, {"400 KB and a byte", 1, "ValidationException"}} {
			// The number 0 has one byte.
			rest := len("id"+"a"+"rest"+"shard") + 1 - test.more
			item := awstest.Item{"id": text("a"), "rest": filler(rest), "shard": number(0)}
			if _, err := s.PutItem(t.Context(),
				&dynamodb.PutItemInput{TableName: &s.table, Item: item}); code(err) != test.code {
				t.Errorf("PutItem of %s: %q, want %q", test.name, code(err), test.code)
			}
			s.put(t, awstest.Item{"id": text("b"), "shard": number(1)})
			_, err := s.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
				TableName: &s.table, Key: awstest.Item{"id": text("b")},
				UpdateExpression: aws.String("SET rest = :rest"),
				// An update counts for more than the item that it makes.
				ExpressionAttributeValues: awstest.Item{":rest": filler(rest + 1 + 1000*(1-test.more))},
			})
			if code(err) != test.code {
				t.Errorf("UpdateItem to %s: %q, want %q", test.name, code(err), test.code)
			}
			if err != nil && s.item(t, "b")["rest"] != nil {
				t.Errorf("a rejected update changed the item")
			}
		}
	})
}

func TestPagesOfAnIndexAreLimitedTo1MB(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		// Keys of 2,000 bytes; 523 items of 2,005 bytes are more than 1 MB.
		for i := range 530 {
			s.put(t, awstest.Item{"id": text(fmt.Sprintf("%02000d", i)), "shard": number(1), "due": number(i + 1),
				"rest": text(strings.Repeat("x", 100))})
		}
		out, err := s.Query(t.Context(), &dynamodb.QueryInput{
			TableName: &s.table, IndexName: aws.String("pending"),
			KeyConditionExpression:    aws.String("#shard = :shard"),
			ExpressionAttributeNames:  map[string]string{"#shard": "shard"},
			ExpressionAttributeValues: awstest.Item{":shard": number(1)},
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(out.Items); n < 515 || n > 523 || out.LastEvaluatedKey == nil {
			t.Errorf("%d items are on the first page, and its key to go on with is %v", n, out.LastEvaluatedKey)
		}
	})
}

// withDetails returns an entry for each detail.
func (s services) withDetails(details ...string) []eventbridgetypes.PutEventsRequestEntry {
	entries := s.entries(len(details))
	for i := range details {
		entries[i].Detail = &details[i]
	}
	return entries
}

// nested returns a JSON object with that many levels.
func nested(levels int) string {
	return `{"a":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`
}

func TestPutEventsRejectsRequestsOverALimit(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		// Without their details, the entries have 50 bytes each.
		const rest = 14 + len("payhook") + len("PAYMENT_STATUS.RELEASED") + len("delivery")
		sized := func(total int) []eventbridgetypes.PutEventsRequestEntry {
			const first = 300_000
			detail := func(size int) string { return `{"a":"` + strings.Repeat("x", size-len(`{"a":""}`)) + `"}` }
			return s.withDetails(detail(first), detail(total-first-2*rest))
		}
		type entry = eventbridgetypes.PutEventsRequestEntry
		incomplete := func(change func(e *entry)) []entry {
			entries := s.entries(1)
			change(&entries[0])
			return entries
		}
		for _, test := range []struct {
			name     string
			entries  []eventbridgetypes.PutEventsRequestEntry
			rejected bool
		}{
			{"no entry", []eventbridgetypes.PutEventsRequestEntry{}, true},
			{"10 entries", s.entries(10), false},
			{"11 entries", s.entries(11), true},
			{"1 MB less one byte", sized(1<<20 - 1), false},
			{"1 MB", sized(1 << 20), true},
			{"1,000 levels", s.withDetails("{}", nested(1000)), false},
			{"1,001 levels", s.withDetails("{}", nested(1001)), true},
			{"the largest and the least integer", s.withDetails(`{"a":[9223372036854775807,-9223372036854775808]}`),
				false},
			{"a larger integer", s.withDetails("{}", `{"a":[9223372036854775808]}`), true},
			{"a lesser integer", s.withDetails("{}", `{"a":{"b":-9223372036854775809}}`), true},
			{"a very long integer", s.withDetails("{}", `{"a":`+strings.Repeat("9", 5000)+`}`), true},
			{"a long number that is not an integer",
				s.withDetails(`{"a":[9223372036854775808.5,9E30,123456789012345678901234567890.10]}`), false},
			{"digits in a text", s.withDetails(`{"99999999999999999999":"99999999999999999999"}`), false},
			{"no entry with a source", incomplete(func(e *eventbridgetypes.PutEventsRequestEntry) { e.Source = nil }),
				true},
			{"no entry with a detail-type",
				incomplete(func(e *eventbridgetypes.PutEventsRequestEntry) { e.DetailType = aws.String("") }), true},
			{"no entry with a detail", incomplete(func(e *eventbridgetypes.PutEventsRequestEntry) { e.Detail = nil }),
				true},
		} {
			out, err := s.PutEvents(t.Context(), &eventbridge.PutEventsInput{Entries: test.entries})
			switch {
			case test.rejected && code(err) != "ValidationException":
				t.Errorf("%s: got %+v, %v, want ValidationException", test.name, out, err)
			case !test.rejected && (err != nil || out.FailedEntryCount != 0):
				t.Errorf("%s: got %+v, %v", test.name, out, err)
			}
		}
	})
}

func TestPutEventsRejectsSingleEntries(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		for _, test := range []struct {
			name, code string
			change     func(e *eventbridgetypes.PutEventsRequestEntry)
		}{
			{"no source", "InvalidArgument", func(e *eventbridgetypes.PutEventsRequestEntry) { e.Source = nil }},
			{"an empty detail-type", "InvalidArgument",
				func(e *eventbridgetypes.PutEventsRequestEntry) { e.DetailType = aws.String("") }},
			{"a detail-type of 128 characters", "",
				func(e *eventbridgetypes.PutEventsRequestEntry) {
					e.DetailType = aws.String(strings.Repeat("ü",
						128))
				}},
			{"a detail-type of 129 characters", "InvalidArgument",
				func(e *eventbridgetypes.PutEventsRequestEntry) {
					e.DetailType = aws.String(strings.Repeat("x",
						129))
				}},
			{"no detail", "InvalidArgument", func(e *eventbridgetypes.PutEventsRequestEntry) { e.Detail = nil }},
			{"no JSON", "MalformedDetail", detail("{ no JSON")},
			{"an array", "MalformedDetail", detail("[]")},
			{"a number", "MalformedDetail", detail("1")},
			{"null", "MalformedDetail", detail("null")},
			{"two objects", "MalformedDetail", detail("{}{}")},
			{"no number", "MalformedDetail", detail(`{"a":NaN}`)},
			{"a control character", "MalformedDetail", detail("{\"a\":\"\n\"}")},
			{"a trailing comma", "MalformedDetail", detail(`{"a":1,}`)},
			{"a number that begins with 0", "MalformedDetail", detail(`{"a":01}`)},
			{"space around it", "", detail(" \n{\t} ")},
		} {
			entries := s.entries(3)
			test.change(&entries[1])
			out, err := s.PutEvents(t.Context(), &eventbridge.PutEventsInput{Entries: entries})
			if err != nil || len(out.Entries) != 3 {
				t.Errorf("%s: got %+v, %v", test.name, out, err)
				continue
			}
			failed := int32(0)
			for i, e := range out.Entries {
				want := ""
				if i == 1 {
					want = test.code
				}
				if aws.ToString(e.ErrorCode) != want || (want == "") != (aws.ToString(e.EventId) != "") {
					t.Errorf("%s: entry %d: %q %q, want %q", test.name, i, aws.ToString(e.ErrorCode),
						aws.ToString(e.EventId), want)
				}
				if e.ErrorCode != nil {
					failed++
				}
			}
			if out.FailedEntryCount != failed {
				t.Errorf("%s: %d failed entries are counted, want %d", test.name, out.FailedEntryCount, failed)
			}
		}
	})
}

func detail(text string) func(*eventbridgetypes.PutEventsRequestEntry) {
	return func(e *eventbridgetypes.PutEventsRequestEntry) { e.Detail = &text }
}

func (s services) object(t *testing.T, key, body string) {
	t.Helper()
	sum := sha256.Sum256([]byte(body))
	if _, err := s.PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: &s.bucket, Key: &key, Body: strings.NewReader(body), ContentType: aws.String("application/json"),
		ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(sum[:])),
	}); err != nil {
		t.Fatal(err)
	}
}

func TestGetObjectReturnsWhatWasPut(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		for _, body := range []string{"first", "", strings.Repeat("\x00\xffbytes", 100_000)} {
			s.object(t, "events/a b/ü.json", body) // each in place of the one before
			out, err := s.GetObject(t.Context(),
				&s3.GetObjectInput{Bucket: &s.bucket, Key: aws.String("events/a b/ü.json")})
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(out.Body)
			out.Body.Close()
			if err != nil || !bytes.Equal(got, []byte(body)) || aws.ToString(out.ContentType) != "application/json" {
				t.Errorf("got %d bytes of %q, %v", len(got), aws.ToString(out.ContentType), err)
			}
		}
	})
}

func TestMissingObjectsHaveTheirOwnError(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		_, err := s.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &s.bucket, Key: aws.String("never")})
		if _, ok := errors.AsType[*s3types.NoSuchKey](err); !ok {
			t.Errorf("got %v", err)
		}
		if _, err := s.GetObject(t.Context(),
			&s3.GetObjectInput{Bucket: aws.String(s.bucket + "-none"),
				Key: aws.String("x")}); code(err) != "NoSuchBucket" {
			t.Errorf("got %v", err)
		}
	})
}

func TestMissingObjectsAreDeniedWithoutListBucket(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		key := aws.String("never")
		if _, err := s.reader.GetObject(t.Context(),
			&s3.GetObjectInput{Bucket: &s.bucket, Key: key}); code(err) != "AccessDenied" {
			t.Errorf("GetObject: got %v", err)
		}
		if _, err := s.reader.ListObjectsV2(t.Context(),
			&s3.ListObjectsV2Input{Bucket: &s.bucket}); code(err) != "AccessDenied" {
			t.Errorf("ListObjectsV2: got %v", err)
		}
	})
}

func TestListingIsInByteOrderAndPaged(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		keys := []string{"p/2026/01/31/a", "p/2026/01/31/B", "p/2026/02/01/a", "p/2026/12/31/é", "p/2026/12/31/z",
			"q/other", "p0", "p/"}
		for _, key := range keys {
			s.object(t, key, key)
		}
		want := []string{"p/", "p/2026/01/31/B", "p/2026/01/31/a", "p/2026/02/01/a", "p/2026/12/31/z", "p/2026/12/31/é"}
		list := func(after string, most int32) (got []string) {
			in := &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String("p/"), MaxKeys: &most}
			if after != "" {
				in.StartAfter = &after
			}
			for {
				out, err := s.ListObjectsV2(t.Context(), in)
				if err != nil {
					t.Fatal(err)
				}
				if len(out.Contents) > int(most) || int(aws.ToInt32(out.KeyCount)) != len(out.Contents) {
					t.Errorf("%d objects, counted %d, at most %d", len(out.Contents), aws.ToInt32(out.KeyCount), most)
				}
				for _, o := range out.Contents {
					got = append(got, *o.Key)
					if aws.ToInt64(o.Size) != int64(len(*o.Key)) {
						t.Errorf("%s has %d bytes", *o.Key, aws.ToInt64(o.Size))
					}
				}
				if !aws.ToBool(out.IsTruncated) {
					return got
				}
				in.ContinuationToken = out.NextContinuationToken
			}
		}
		for _, most := range []int32{1, 2, 6, 1000} {
			if diff := cmp.Diff(want, list("", most)); diff != "" {
				t.Errorf("%d at a time: %s", most, diff)
			}
			if diff := cmp.Diff(want[3:], list("p/2026/01/31/a", most)); diff != "" {
				t.Errorf("%d at a time, behind one that is there: %s", most, diff)
			}
			if diff := cmp.Diff(want[4:], list("p/2026/06", most)); diff != "" {
				t.Errorf("%d at a time, behind one that is not there: %s", most, diff)
			}
		}
	})
}

func TestPutObjectRejectsAWrongChecksum(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		sum := sha256.Sum256([]byte("another"))
		_, err := s.PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: &s.bucket, Key: aws.String("altered"), Body: strings.NewReader("body"),
			ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(sum[:])),
		})
		if code(err) != "BadDigest" {
			t.Errorf("got %v", err)
		}
	})
}

func TestPutObjectWithIfNoneMatch(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		for i := range 2 {
			_, err := s.PutObject(t.Context(), &s3.PutObjectInput{
				Bucket: &s.bucket, Key: aws.String("once"), Body: strings.NewReader("body"),
				IfNoneMatch: aws.String("*"),
			})
			if again := i == 1; again != (code(err) == "PreconditionFailed") || err != nil && !again {
				t.Errorf("put %d: got %v", i, err)
			}
		}
	})
}

func TestBatchGetItem(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		key := func(i int) awstest.Item {
			return awstest.Item{"id": text(fmt.Sprint("batch ", i))}
		}
		for i := range 3 {
			item := key(i)
			item["shard"], item["bytes"] = number(7), binary("large")
			s.put(t, item)
		}
		read := func(keys ...int) (*dynamodb.BatchGetItemOutput, error) {
			ask := types.KeysAndAttributes{
				ConsistentRead: aws.Bool(true), ProjectionExpression: aws.String("#id, #shard, #due"),
				ExpressionAttributeNames: map[string]string{"#id": "id", "#shard": "shard", "#due": "due"},
			}
			for _, i := range keys {
				ask.Keys = append(ask.Keys, key(i))
			}
			return s.BatchGetItem(t.Context(),
				&dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{s.table: ask}})
		}
		out, err := read(2, 0, 9)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, item := range out.Responses[s.table] {
			if len(item) != 2 || item["shard"].(*types.AttributeValueMemberN).Value != "7" {
				t.Errorf("got %v", item)
			}
			found[item["id"].(*types.AttributeValueMemberS).Value] = true
		}
		if len(found) != 2 || !found["batch 0"] || !found["batch 2"] || len(out.UnprocessedKeys) != 0 {
			t.Errorf("found %v, unprocessed %v", found, out.UnprocessedKeys)
		}
		many := make([]int, 101)
		for i := range many {
			many[i] = i
		}
		for name, keys := range map[string][]int{"one key twice": {1, 1}, "101 keys": many} {
			if _, err := read(keys...); code(err) != "ValidationException" {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := read(many[:100]...); err != nil {
			t.Errorf("100 keys: %v", err)
		}
		one, err := s.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &s.table, Key: key(1),
			ProjectionExpression: aws.String("#id, #due"), ExpressionAttributeNames: map[string]string{"#id": "id",
				"#due": "due"}})
		if err != nil {
			t.Fatal(err)
		}
		same(t, one.Item, key(1))
	})
}

func TestQueryDescendingWithProjection(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		for i := range 4 {
			s.put(t, awstest.Item{"id": text(fmt.Sprint("backwards ", i)), "shard": number(61), "due": number(i),
				"kept": number(10 * i), "other": number(i)})
		}
		out, err := s.Query(t.Context(), &dynamodb.QueryInput{
			TableName: &s.table, IndexName: aws.String("pending"), ScanIndexForward: aws.Bool(false),
			Limit:                     aws.Int32(2),
			KeyConditionExpression:    aws.String("#shard = :shard AND #due > :at"),
			ExpressionAttributeNames:  map[string]string{"#shard": "shard", "#due": "due"},
			ExpressionAttributeValues: map[string]types.AttributeValue{":shard": number(61), ":at": number(0)},
		})
		if err != nil {
			t.Fatal(err)
		}
		var kept []string
		for _, item := range out.Items {
			if len(item) != 4 {
				t.Errorf("the index has %v", item)
			}
			kept = append(kept, item["kept"].(*types.AttributeValueMemberN).Value)
		}
		if !slices.Equal(kept, []string{"30", "20"}) {
			t.Errorf("got %v", kept)
		}
	})
}
