package awstest_test

import (
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
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/aws/client"
	adapter "payhook.example/shared/aws/dynamodb"
	s3adapter "payhook.example/shared/aws/s3"
	"payhook.example/shared/awstest"
	"payhook.example/shared/names"
)

// endpointVariable contains the URL of a service with the real protocols, such as
// http://127.0.0.1:4566. If it is set, every row also runs against this service, through the real
// SDK clients.
const endpointVariable = "PAYHOOK_AWS_ENDPOINT"

// The operations are those that the packages call.
type (
	dynamoDB interface {
		adapter.LedgerAPI
		adapter.KeysAPI
		adapter.KeysInspectAPI
	}
	objects interface{ s3adapter.API }
)

// services are the services of a row: a ledger and a bucket, which all have one name.
type services struct {
	dynamoDB
	objects
	name   string
	reader objects // may get the objects of the bucket, and may not list it
	row    string  // its objects and items have names of its own
	ctx    context.Context
}

// item is an item without its key.
type item map[string]any

// row is a call with its result. Its items are stored before.
type row struct {
	what  string
	items map[string]item // by a part of their keys
	call  call
	want  any // the result, or the code of the error
}

type call func(s services) (any, error)

// When these rows pass, the services in memory behave like those at the endpoint, as far as the
// code relies on them.
func TestServicesBehaveLikeAWS(t *testing.T) {
	db, buckets, reader := awstest.NewDynamoDB(), awstest.NewS3(), awstest.NewS3()
	reader.DenyList = true
	for _, name := range []string{"memory", "http"} {
		db.CreateLedger(name)
		buckets.MakeBucket(name)
		reader.MakeBucket(name)
	}
	server := httptest.NewServer(awstest.Handler(db))
	defer server.Close()
	all := []services{
		{dynamoDB: db, objects: buckets, reader: reader, name: "memory"},
		{dynamoDB: dynamodb.NewFromConfig(configOf(server.URL)), objects: buckets, reader: reader,
			name: "http"},
	}
	if endpoint := os.Getenv(endpointVariable); endpoint != "" {
		all = append(all, dial(t.Context(), endpoint))
	}
	for _, s := range all {
		rows := slices.Concat(writes(), statements(), reads(), stored())
		if s.name == "memory" || s.name == "http" {
			rows = append(rows, strict()...)
		}
		for _, r := range rows {
			t.Run(strings.SplitN(s.name, "-", 2)[0]+"/"+r.what, func(t *testing.T) {
				s.row, s.ctx = r.what, t.Context()
				s.try(t, r)
			})
		}
	}
}

func (s services) try(t *testing.T, r row) {
	for part, i := range r.items {
		if _, err := s.PutItem(s.ctx, &dynamodb.PutItemInput{TableName: &s.name, Item: s.encode(part, i)}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := r.call(s)
	if code := codeOf(err); code != "" {
		got = code
	} else if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decoded(r.want), decoded(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		if diff := cmp.Diff(decoded(s.get("")), decoded(failed.Item)); diff != "" {
			t.Errorf("the item of the error (-stored +got):\n%s", diff)
		}
	}
	if old, ok := r.items[""]; ok && err != nil {
		if diff := cmp.Diff(decoded(old), decoded(s.get(""))); diff != "" {
			t.Errorf("stored after an error (-before +after):\n%s", diff)
		}
	}
}

func codeOf(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}

// decoded returns items without their keys as values of Go, so that they can be compared.
func decoded(v any) any {
	switch v := v.(type) {
	case item:
		return decoded(must(attributevalue.MarshalMap(v)))
	case awstest.Item:
		plain := map[string]any{}
		if err := attributevalue.UnmarshalMap(v, &plain); err != nil {
			panic(err)
		}
		delete(plain, names.LedgerKey)
		return plain
	}
	return v
}

func each[E any](list []E) (all []any) {
	for _, e := range list {
		all = append(all, decoded(e))
	}
	return all
}

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// configOf returns the configuration of clients of an endpoint.
func configOf(endpoint string) aws.Config {
	return aws.Config{Region: "us-east-1", BaseEndpoint: &endpoint,
		HTTPClient:  &http.Client{Transport: client.NewConnections(8), Timeout: time.Minute},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")}
}

// dial creates a ledger, a bucket and the user who reads it in an emulator.
func dial(ctx context.Context, endpoint string) services {
	cfg, name := configOf(endpoint), "emulator-"+uuid.New().String()
	attribute := func(name string, kind types.ScalarAttributeType) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: &name, AttributeType: kind}
	}
	key := func(name string, kind types.KeyType) types.KeySchemaElement {
		return types.KeySchemaElement{AttributeName: &name, KeyType: kind}
	}
	db := dynamodb.NewFromConfig(cfg)
	must(db.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{attribute(names.LedgerKey, types.ScalarAttributeTypeS),
			attribute(names.LedgerShard, types.ScalarAttributeTypeS),
			attribute(names.LedgerDue, types.ScalarAttributeTypeN)},
		KeySchema: []types.KeySchemaElement{key(names.LedgerKey, types.KeyTypeHash)},
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{
			IndexName: aws.String(names.LedgerIndex),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeInclude,
				NonKeyAttributes: []string{names.LedgerRecordedAt, names.LedgerSize}},
			KeySchema: []types.KeySchemaElement{key(names.LedgerShard, types.KeyTypeHash),
				key(names.LedgerDue, types.KeyTypeRange)},
		}},
	}))
	client := func() *s3.Client { return s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true }) }
	buckets, users := client(), iam.NewFromConfig(cfg)
	must(buckets.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &name}))
	must(users.CreateUser(ctx, &iam.CreateUserInput{UserName: &name}))
	policy := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObject",` +
		`"Resource":"arn:aws:s3:::` + name + `/*"}]}`
	must(users.PutUserPolicy(ctx, &iam.PutUserPolicyInput{UserName: &name, PolicyName: &name, PolicyDocument: &policy}))
	reader := must(users.CreateAccessKey(ctx, &iam.CreateAccessKeyInput{UserName: &name})).AccessKey
	cfg.Credentials = credentials.NewStaticCredentialsProvider(*reader.AccessKeyId, *reader.SecretAccessKey, "")
	return services{dynamoDB: db, objects: buckets, reader: client(), name: name}
}

// encode returns an item with its key.
func (s services) encode(part string, i item) awstest.Item {
	encoded := must(attributevalue.MarshalMap(i))
	maps.Copy(encoded, s.key(part))
	return encoded
}

func (s services) key(part string) awstest.Item {
	return awstest.Item{names.LedgerKey: &types.AttributeValueMemberS{Value: s.id(part)}}
}

// id returns the key of an item of the row.
func (s services) id(part string) string { return s.row + " " + part }

// get returns a stored item.
func (s services) get(part string) awstest.Item {
	return must(s.GetItem(s.ctx, &dynamodb.GetItemInput{TableName: &s.name, Key: s.key(part),
		ConsistentRead: aws.Bool(true)})).Item
}

var placeholder = regexp.MustCompile(`[#:](\w+)`)

// placeholders returns the attributes that expressions name with a #, and the values that they
// name with a colon; nil for none, since DynamoDB rejects those that are not used.
func placeholders(values item, expressions ...string) (attributes map[string]string, used awstest.Item) {
	for _, match := range placeholder.FindAllStringSubmatch(strings.Join(expressions, " "), -1) {
		switch v, ok := values[match[1]]; {
		case match[0][0] == '#':
			if attributes == nil {
				attributes = map[string]string{}
			}
			attributes[match[0]] = match[1]
		case ok:
			if used == nil {
				used = awstest.Item{}
			}
			used[match[0]] = must(attributevalue.Marshal(v))
		}
	}
	return attributes, used
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// put returns the stored item.
func put(condition string, i item) call {
	return func(s services) (any, error) {
		attributes, values := placeholders(constants, condition)
		_, err := s.PutItem(s.ctx, &dynamodb.PutItemInput{TableName: &s.name, Item: s.encode("", i),
			ConditionExpression: optional(condition), ExpressionAttributeNames: attributes,
			ExpressionAttributeValues:           values,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld})
		return s.get(""), err
	}
}

// update returns the new item, if it is also stored.
func update(part, change, condition string) call {
	return func(s services) (any, error) {
		attributes, values := placeholders(constants, change, condition)
		out, err := s.UpdateItem(s.ctx, &dynamodb.UpdateItemInput{TableName: &s.name, Key: s.key(part),
			UpdateExpression: &change, ConditionExpression: optional(condition),
			ExpressionAttributeNames: attributes, ExpressionAttributeValues: values,
			ReturnValues:                        types.ReturnValueAllNew,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld})
		if err == nil && cmp.Diff(decoded(out.Attributes), decoded(s.get(part))) != "" {
			return nil, fmt.Errorf("returned %v", out.Attributes)
		}
		return s.get(part), err
	}
}

const (
	unmet   = "ConditionalCheckFailedException"
	invalid = "ValidationException"
)

// constants are the values in expressions, by their names without a colon.
var constants = item{"zero": 0, "one": 1, "nine": 9, "ten": 10, "hundred": 100, "d": []byte("d"), "x": "x",
	"large": make([]byte, 400<<10)}

// The item of the conditions has the number n = 10, the text s = "10" and the bytes b = "d".
var conditions = map[string]bool{
	"n = :ten": true, "n = :nine": false, "n <> :nine": true, "n <> :ten": false, "n < :hundred": true,
	"n < :ten":  false,
	"n <= :ten": true, "n <= :nine": false, "n > :nine": true, "n > :ten": false, "n > :hundred": false,
	"b = :d": true, "b <> :d": false, "s = :ten": false, "s <> :ten": true, "s <= :hundred": false,
	"s > :nine":      false,
	"#absent = :ten": false, "absent <> :ten": true, "absent <= :ten": false, "absent < :ten": false,
	"absent > :ten":       false,
	"attribute_exists(n)": true, "attribute_exists(#absent)": false, "attribute_not_exists(#n)": false,
	"attribute_not_exists(absent)":           true,
	"n = :nine OR b = :d AND s = :x":         false,
	"n = :ten OR b = :d AND s = :x":          true,
	"(n = :ten OR b = :d) AND s = :x":        false,
	"(n = :nine OR #n = :ten) AND n <= :ten": true,
}

func writes() []row {
	const (
		changed     = "SET #absent = :one"
		replaceable = "attribute_not_exists(#eventId) OR n <= :nine"
	)
	old := item{"n": 10, "s": "10", "b": []byte("d")}
	large := func(more int) item { // the key has 9 bytes
		return item{"rest": make([]byte, 400<<10-len("eventId"+"400 KB...")-len("rest")+more)}
	}
	rows := []row{
		{"a new item", nil, put(replaceable, old), old},
		{"an item that may be replaced", one(item{"n": 9}), put(replaceable, old), old},
		{"an item that stays", one(item{"n": 10}), put(replaceable, old), unmet},
		{"an absent item", nil, update("", changed, "n = :ten OR attribute_exists(#eventId)"), unmet},
		{"the old item is returned on request only", one(item{"n": 1}), func(s services) (any, error) {
			_, err := s.PutItem(s.ctx, &dynamodb.PutItemInput{TableName: &s.name, Item: s.key(""),
				ConditionExpression: aws.String("attribute_not_exists(eventId)")})
			failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
			return ok && failed.Item == nil, nil
		}, true},
		{"SET and REMOVE", one(item{"n": 10, "s": "10"}),
			update("", "SET absent = :x, m = #n, #n = #n + :one REMOVE s, gone", ""),
			item{"n": 11, "m": 10, "absent": "x"}},
		{"if_not_exists", one(item{"n": 10}), update("", "SET n = if_not_exists(n, :zero) + :one, "+
			"m = if_not_exists(m, :zero) + :one, k = if_not_exists(k, :x)", ""), item{"n": 11, "m": 1, "k": "x"}},
		{"the sum of an absent number", one(item{"s": "10"}), update("", "SET n = n + :one", ""), invalid},
		{"12 at the same time with a budget of 10", nil, func(s services) (any, error) {
			var all sync.WaitGroup
			codes := make(chan string, 12)
			for range cap(codes) {
				all.Go(func() {
					_, err := update("", "SET n = if_not_exists(n, :zero) + :one",
						"attribute_not_exists(n) OR n < :ten")(s)
					codes <- codeOf(err)
				})
			}
			all.Wait()
			close(codes)
			met := 0
			for code := range codes {
				if code == "" {
					met++
				}
			}
			return []any{met, decoded(s.get(""))}, nil
		}, []any{10, decoded(item{"n": 10})}},

		{"400 KB..", nil, put("", large(0)), large(0)},
		{"400 KB+.", nil, put("", large(1)), invalid},
		{"an update to more than 400 KB", one(item{"n": 1}), update("", "SET #rest = :large", ""), invalid},
		{"syntax", nil, put("eventId = = :x", old), invalid},
		{"an undefined value", nil, put("eventId = :undefined", old), invalid},
		{"no such table", nil, func(s services) (any, error) {
			s.name += "-none"
			return s.PutItem(s.ctx, &dynamodb.PutItemInput{TableName: &s.name, Item: s.key("")})
		}, "ResourceNotFoundException"},
	}
	for c, holds := range conditions {
		r := row{"condition " + c, one(old), update("", changed, c), unmet}
		if holds {
			r.want = item{"n": 10, "s": "10", "b": []byte("d"), "absent": 1}
		}
		rows = append(rows, r)
	}
	return rows
}

// one is an item as the only one of a row.
func one(i item) map[string]item { return map[string]item{"": i} }

// write is a statement of PartiQL about one item of the row. Its table is TABLE, and the key is in
// place of the parameter "KEY".
type write struct {
	text       string
	part       string
	parameters []any
}

// batch returns for each statement the code of its error as "error", and its item or that of the
// error. The stored items follow.
func batch(writes ...write) call {
	return func(s services) (any, error) {
		in := &dynamodb.BatchExecuteStatementInput{Statements: []types.BatchStatementRequest{}}
		for _, w := range writes {
			statement := types.BatchStatementRequest{Statement: aws.String(strings.Replace(w.text, "TABLE", s.name, 1)),
				ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld}
			for _, p := range w.parameters {
				if p == "KEY" {
					p = s.id(w.part)
				}
				statement.Parameters = append(statement.Parameters, must(attributevalue.Marshal(p)))
			}
			in.Statements = append(in.Statements, statement)
		}
		out, err := s.BatchExecuteStatement(s.ctx, in)
		if err != nil {
			return nil, err
		}
		var results []any
		for _, r := range out.Responses {
			if r.Error == nil {
				results = append(results, decoded(r.Item))
				continue
			}
			i := decoded(r.Error.Item).(map[string]any)
			i["error"] = string(r.Error.Code)
			results = append(results, i)
		}
		for _, w := range writes {
			results = append(results, decoded(s.get(w.part)))
		}
		return results, nil
	}
}

// several are the results of a batch.
func several(items ...item) (all []any) { return each(items) }

func statements() []row {
	insert := func(part, event string) write {
		return write{`INSERT INTO "TABLE" VALUE ` +
			`{'eventId': ?, 'shard': ?, 'due': ?, 'event': ?, 'attempts': ?, 'yes': ?}`, part,
			[]any{"KEY", "s", 2, []byte(event), 0, true}}
	}
	inserted := func(event string) item {
		return item{"shard": "s", "due": 2, "event": []byte(event), "attempts": 0, "yes": true}
	}
	mark := func(part, digest string) write {
		return write{`UPDATE "TABLE" SET "publishedAt" = ? SET "expiresAt" = ? SET "eventTimestamp" = ? ` +
			`REMOVE "event" REMOVE "claimed" REMOVE "shard" REMOVE "due" REMOVE "holder" REMOVE "attempts" ` +
			`WHERE "eventId" = ? AND "digest" = ? AND "shard" = ?`, part, []any{5, 6, 7, "KEY", []byte(digest), "s"}}
	}
	pending := item{"digest": []byte("d"), "shard": "s", "due": 2, "event": []byte("{}"), "holder": []byte("h")}
	marked := item{"digest": []byte("d"), "publishedAt": 5, "expiresAt": 6, "eventTimestamp": 7}
	published := item{"digest": []byte("d"), "publishedAt": 1}
	lease := func(part string) write {
		return write{`UPDATE "TABLE" SET "due" = ? SET "holder" = ? SET "attempts" = "attempts" + ? ` +
			`WHERE "eventId" = ? AND "due" = ? AND "shard" = ? RETURNING ALL NEW *`, part,
			[]any{20, []byte("second"), 1, "KEY", 10, "s"}}
	}
	leased := func(due, attempts int, holder string) item {
		return item{"shard": "s", "due": due, "event": []byte("{}"), "attempts": attempts, "holder": []byte(holder)}
	}
	failed := func(code types.BatchStatementErrorCodeEnum, i item) item {
		i = maps.Clone(i)
		if i == nil {
			i = item{}
		}
		i["error"] = string(code)
		return i
	}
	var many []write
	for n := range 26 {
		many = append(many, insert(fmt.Sprint(n), "{}"))
	}
	const (
		duplicate = types.BatchStatementErrorCodeEnumDuplicateItem
		unmet     = types.BatchStatementErrorCodeEnumConditionalCheckFailed
		wrong     = types.BatchStatementErrorCodeEnumValidationError
	)
	rows := []row{
		{"inserts are independent", map[string]item{"old": published},
			batch(insert("a", "\x00\xff"), insert("old", "new"), insert("b", "{}")),
			several(nil, failed(duplicate, nil), nil, inserted("\x00\xff"), published, inserted("{}"))},
		{"marks are independent", map[string]item{"a": pending, "other": pending, "old": published, "b": pending},
			batch(mark("a", "d"), mark("other", "e"), mark("old", "d"), mark("absent", "d"), mark("b", "d")),
			several(nil, failed(unmet, pending), failed(unmet, published), failed(unmet, nil), nil,
				marked, pending, published, nil, marked)},
		{"leases return the new items", map[string]item{"a": leased(10, 0, "first"), "b": leased(10, 7, "first"),
			"taken": leased(15, 1, "first"), "incomplete": {"due": 10, "shard": "s"}},
			batch(lease("a"), lease("taken"), lease("b"), lease("absent"), lease("incomplete")),
			several(leased(20, 1, "second"), failed(unmet, leased(15, 1, "first")), leased(20, 8, "second"),
				failed(unmet, nil), failed(wrong, nil), leased(20, 1, "second"), leased(15, 1, "first"),
				leased(20, 8, "second"), nil, item{"due": 10, "shard": "s"})},
		{"no statement", nil, batch(), invalid},
		{"26 statements", nil, batch(many...), invalid},
		{"a statement about no table", nil, batch(write{`INSERT INTO "TABLEx" VALUE {'eventId': ?}`, "", []any{"KEY"}},
			insert("a", "{}")), several(failed(types.BatchStatementErrorCodeEnumResourceNotFound, nil), nil, nil,
			inserted("{}"))},
	}
	for name, w := range map[string]write{
		"syntax":             {`UPDATE "TABLE" SET WHERE "eventId" = ?`, "", []any{"KEY"}},
		"without a key":      {`UPDATE "TABLE" SET "n" = ? WHERE "shard" = ?`, "", []any{1, "s"}},
		"without a value":    {`UPDATE "TABLE" SET "n" = ? WHERE "eventId" = ?`, "", []any{"KEY"}},
		"insert without key": {`INSERT INTO "TABLE" VALUE {'n': ?}`, "", []any{1}},
		"too large":          insert("", strings.Repeat("x", 400<<10)),
	} {
		rows = append(rows, row{"a wrong statement fails alone: " + name, nil, batch(w, insert("a", "{}")),
			several(failed(wrong, nil), nil, nil, inserted("{}"))})
	}
	return rows
}

// strict returns what AWS rejects and the emulator accepts.
func strict() []row {
	statement := func(text string, parameters ...any) write { return write{text, "", parameters} }
	rejected := several(item{"error": string(types.BatchStatementErrorCodeEnumValidationError)}, item{"n": 1})
	twice := statement(`UPDATE "TABLE" SET "n" = ? WHERE "eventId" = ?`, 1, "KEY")
	return []row{
		{"a section twice", one(item{"n": 1}), update("", "SET n = :one SET m = :one", ""), invalid},
		{"another key in the index", one(item{"n": 1}), update("", "SET due = :x", ""), invalid},
		{"an empty key in the index", nil, put("", item{"shard": ""}), invalid},
		{"quotation marks", one(item{"n": 1}), update("", `SET "n" = :one`, ""), invalid},
		{"no key", one(item{"n": 1}), update("", "REMOVE eventId", ""), invalid},
		{"an item twice in a batch", one(item{"n": 1}), batch(twice, twice), invalid},
		{"a statement with a value too many", one(item{"n": 1}),
			batch(statement(`UPDATE "TABLE" SET "n" = ? WHERE "eventId" = ?`, 2, "KEY", 3)), rejected},
		{"a statement with another key", one(item{"n": 1}),
			batch(statement(`UPDATE "TABLE" SET "n" = ? WHERE "eventId" = ?`, 1, 2)), rejected},
		{"a statement that changes the key", one(item{"n": 1}),
			batch(statement(`UPDATE "TABLE" SET "eventId" = ? WHERE "eventId" = ?`, "x", "KEY")), rejected},
		{"a statement with another key in the index", one(item{"n": 1}),
			batch(statement(`UPDATE "TABLE" SET "shard" = ? WHERE "eventId" = ?`, 1, "KEY")), rejected},
	}
}

// query returns the parts of the keys of the found items in order, of all pages.
func query(condition string, change func(in *dynamodb.QueryInput)) call {
	return func(s services) (any, error) {
		shard := maps.Clone(constants)
		shard["shard"] = s.row
		attributes, values := placeholders(shard, condition)
		in := &dynamodb.QueryInput{TableName: &s.name, IndexName: aws.String(names.LedgerIndex),
			KeyConditionExpression: &condition, ExpressionAttributeNames: attributes, ExpressionAttributeValues: values}
		change(in)
		var parts []string
		for {
			out, err := s.Query(s.ctx, in)
			if err != nil {
				return nil, err
			}
			if in.Limit != nil && len(out.Items) > int(*in.Limit) || int(out.Count) != len(out.Items) {
				return nil, fmt.Errorf("%d items of %d", out.Count, len(out.Items))
			}
			for _, i := range out.Items {
				part := strings.TrimPrefix(i[names.LedgerKey].(*types.AttributeValueMemberS).Value, s.id(""))
				parts = append(parts, part)
				if i["event"] != nil || i[names.LedgerSize] == nil {
					return nil, fmt.Errorf("the index has %v", i)
				}
			}
			if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil {
				return parts, nil
			}
		}
	}
}

func reads() []row {
	const dueBy = "#shard = :shard AND #due <= :hundred"
	// in returns items in a shard, which has the name of the row, and others.
	in := func(shard string) map[string]item {
		items := map[string]item{"other": {"shard": "of no row", "due": 1}, "no shard": {"due": 1},
			"no due": {"shard": shard}}
		for _, due := range []int{100, 9, 10, 1000, 99} {
			items[fmt.Sprint(due)] = item{"shard": shard, "due": due, "event": []byte("{}"), "size": 2}
		}
		return items
	}
	limit := func(n int32) func(*dynamodb.QueryInput) {
		return func(in *dynamodb.QueryInput) { in.Limit = &n }
	}
	many := make([]string, 101)
	for n := range many {
		many[n] = fmt.Sprint(n)
	}
	remove := func(s services, part string) {
		must(s.DeleteItem(s.ctx, &dynamodb.DeleteItemInput{TableName: &s.name, Key: s.key(part)}))
	}
	rows := []row{
		{"a query of an empty shard", nil, query(dueBy, limit(5)), []string(nil)},
		{"a query in descending order", in("a query in descending order"), query("#shard = :shard AND #due > :ten",
			func(in *dynamodb.QueryInput) { in.ScanIndexForward, in.Limit = aws.Bool(false), aws.Int32(2) }),
			[]string{"1000", "100", "99"}},
		{"a query on an attribute that is no key", nil, query("#shard = :shard AND #size = :ten", limit(1)), invalid},
		{"the index follows changes", in("the index follows changes"), func(s services) (any, error) {
			must(update("10", "REMOVE #shard, due", "")(s))
			must(update("9", "SET due = due + :hundred", "")(s))
			remove(s, "99")
			return query("#shard = :shard AND #due > :one", limit(25))(s)
		}, []string{"100", "9", "1000"}},
		{"a query continues where the last item was deleted", in("a query continues where the last item was deleted"),
			func(s services) (any, error) {
				return query(dueBy, func(in *dynamodb.QueryInput) {
					in.Limit = aws.Int32(2)
					in.ExclusiveStartKey = must(s.Query(s.ctx, in)).LastEvaluatedKey
					remove(s, "10")
				})(s)
			}, []string{"99", "100"}},
		{"a page of the index has 1 MB", nil, func(s services) (any, error) {
			for n := range 530 { // with keys of 2,000 bytes; 523 items are more than 1 MB
				part := fmt.Sprintf("%0*d", 1999-len(s.row), n)
				must(s.PutItem(s.ctx, &dynamodb.PutItemInput{TableName: &s.name,
					Item: s.encode(part, item{"shard": s.row, "due": n, "size": 2})}))
			}
			var first *dynamodb.QueryOutput
			_, err := query("#shard = :shard", func(in *dynamodb.QueryInput) { first = must(s.Query(s.ctx, in)) })(s)
			n := len(first.Items)
			return n > 500 && n < 524 && first.LastEvaluatedKey != nil, err
		}, true},
		{"a scan of the index", in("a scan of the index"), func(s services) (any, error) {
			n := 0
			for in := (&dynamodb.ScanInput{TableName: &s.name, IndexName: aws.String(names.LedgerIndex)}); ; {
				out := must(s.Scan(s.ctx, in))
				for _, i := range out.Items {
					if strings.HasPrefix(i[names.LedgerKey].(*types.AttributeValueMemberS).Value, s.row) {
						n++
					}
				}
				if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil {
					return n, nil
				}
			}
		}, 6},
		{"a projection", one(item{"n": 1, "size": 2}), func(s services) (any, error) {
			out, err := s.GetItem(s.ctx, &dynamodb.GetItemInput{TableName: &s.name, Key: s.key(""),
				ProjectionExpression:     aws.String("#eventId, #due, n"),
				ExpressionAttributeNames: map[string]string{"#eventId": "eventId", "#due": "due"}})
			return out.Item, err
		}, item{"n": 1}},
		{"a batch of keys", in("b"), getBatch("9", "absent", "100"), []any{
			decoded(item{"shard": "b", "due": 100}), decoded(item{"shard": "b", "due": 9})}},
		{"a batch with one key twice", nil, getBatch("a", "a"), invalid},
		{"a batch of 100 keys", nil, getBatch(many[:100]...), []any(nil)},
		{"a batch of 101 keys", nil, getBatch(many...), invalid},
	}
	for _, n := range []int32{1, 2, 4, 25} {
		name := fmt.Sprintf("a query in numeric order, %d at a time", n)
		rows = append(rows, row{name, in(name), query(dueBy, limit(n)), []string{"9", "10", "99", "100"}})
	}
	return rows
}

// getBatch returns the items of a batch in the order of their text.
func getBatch(parts ...string) call {
	return func(s services) (any, error) {
		ask := types.KeysAndAttributes{ConsistentRead: aws.Bool(true), ProjectionExpression: aws.String("#shard, #due"),
			ExpressionAttributeNames: map[string]string{"#shard": "shard", "#due": "due"}}
		for _, part := range parts {
			ask.Keys = append(ask.Keys, s.key(part))
		}
		out, err := s.BatchGetItem(s.ctx,
			&dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{s.name: ask}})
		if err != nil {
			return nil, err
		}
		found := each(out.Responses[s.name])
		slices.SortFunc(found, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		return found, nil
	}
}

// store stores an object with the checksum of another text, which is the same if it is "".
func (s services) store(part, body, checksum, ifNoneMatch string) error {
	sum := sha256.Sum256([]byte(body + checksum))
	_, err := s.PutObject(s.ctx, &s3.PutObjectInput{Bucket: &s.name, Key: aws.String(s.id(part)),
		Body: strings.NewReader(body), ContentType: aws.String("application/json"), IfNoneMatch: optional(ifNoneMatch),
		ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(sum[:]))})
	return err
}

// list lists a number of objects at a time after that one.
func list(after string, most int32) call {
	return func(s services) (any, error) {
		for _, part := range []string{"p/31/a", "p/31/B", "p/32/a", "p/99/é", "p/99/z", "q", "p0", "p/"} {
			if err := s.store(part, part, "", ""); err != nil {
				return nil, err
			}
		}
		in := &s3.ListObjectsV2Input{Bucket: &s.name, Prefix: aws.String(s.id("p/")), MaxKeys: &most}
		if after != "" {
			in.StartAfter = aws.String(s.id(after))
		}
		var found []string
		for {
			out, err := s.ListObjectsV2(s.ctx, in)
			if err != nil {
				return nil, err
			}
			if len(out.Contents) > int(most) || int(aws.ToInt32(out.KeyCount)) != len(out.Contents) {
				return nil, fmt.Errorf("%d objects, counted %d", len(out.Contents), aws.ToInt32(out.KeyCount))
			}
			for _, o := range out.Contents {
				part := strings.TrimPrefix(*o.Key, s.id(""))
				if found = append(found, part); *o.Size != int64(len(part)) {
					return nil, fmt.Errorf("%s has %d bytes", part, *o.Size)
				}
			}
			if in.ContinuationToken = out.NextContinuationToken; !aws.ToBool(out.IsTruncated) {
				return found, nil
			}
		}
	}
}

func stored() []row {
	get := func(change func(s *services)) call {
		return func(s services) (any, error) {
			change(&s)
			return s.GetObject(s.ctx, &s3.GetObjectInput{Bucket: &s.name, Key: aws.String("never")})
		}
	}
	listed := []string{"p/", "p/31/B", "p/31/a", "p/32/a", "p/99/z", "p/99/é"}
	large := strings.Repeat("\x00\xffbytes", 100_000)
	rows := []row{
		{"an object in place of another", nil, func(s services) (any, error) {
			for _, body := range []string{"first", "", large} {
				if err := s.store("a b/ü", body, "", ""); err != nil {
					return nil, err
				}
			}
			out := must(s.GetObject(s.ctx, &s3.GetObjectInput{Bucket: &s.name, Key: aws.String(s.id("a b/ü"))}))
			return string(must(io.ReadAll(out.Body))) + aws.ToString(out.ContentType), nil
		}, large + "application/json"},
		{"no such object", nil, get(func(*services) {}), "NoSuchKey"},
		{"no such bucket", nil, get(func(s *services) { s.name += "-none" }), "NoSuchBucket"},
		{"no such object, without ListBucket", nil, get(func(s *services) { s.objects = s.reader }), "AccessDenied"},
		{"a list without ListBucket", nil, func(s services) (any, error) {
			return s.reader.ListObjectsV2(s.ctx, &s3.ListObjectsV2Input{Bucket: &s.name})
		}, "AccessDenied"},
		{"another checksum", nil, func(s services) (any, error) { return nil, s.store("", "a", "b", "") },
			"BadDigest"},
		{"only if there is none", nil, func(s services) (any, error) {
			if err := s.store("", "body", "", "*"); err != nil {
				return nil, err
			}
			return nil, s.store("", "body", "", "*")
		}, "PreconditionFailed"},
	}
	for _, most := range []int32{1, 2, 6, 1000} {
		for after, want := range map[string][]string{"": listed, "p/31/a": listed[3:], "p/5": listed[4:]} {
			rows = append(rows, row{fmt.Sprintf("list %d after %s", most, strings.ReplaceAll(after, "/", ".")), nil,
				list(after, most), want})
		}
	}
	return rows
}
