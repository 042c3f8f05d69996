package awstest_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/awstest"
)

// batch runs statements, in which TABLE stands for the name of the table.
func (s services) batch(t *testing.T, statements ...types.BatchStatementRequest) []types.BatchStatementResponse {
	t.Helper()
	for i := range statements {
		statements[i].Statement = aws.String(strings.Replace(*statements[i].Statement, "TABLE", s.table, 1))
	}
	out, err := s.BatchExecuteStatement(t.Context(), &dynamodb.BatchExecuteStatementInput{Statements: statements})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Responses) != len(statements) {
		t.Fatalf("%d answers to %d statements", len(out.Responses), len(statements))
	}
	return out.Responses
}

func statement(text string, parameters ...types.AttributeValue) types.BatchStatementRequest {
	return types.BatchStatementRequest{Statement: &text, Parameters: parameters,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld}
}

// codeOf returns the code of a statement's error, or "".
func codeOf(r types.BatchStatementResponse) types.BatchStatementErrorCodeEnum {
	if r.Error == nil {
		return ""
	}
	return r.Error.Code
}

// codes fails the test if the errors of the statements are others.
func codes(t *testing.T, responses []types.BatchStatementResponse, want ...types.BatchStatementErrorCodeEnum) {
	t.Helper()
	for i, r := range responses {
		if got := codeOf(r); got != want[i] {
			t.Errorf("statement %d: got %q, want %q: %+v", i, got, want[i], r.Error)
		}
	}
}

const (
	insertStatement = `INSERT INTO "TABLE" VALUE {'id': ?, 'shard': ?, 'due': ?, 'event': ?, 'attempts': ?, 'yes': ?}`
	markStatement   = `UPDATE "TABLE" SET "publishedAt" = ? SET "expiresAt" = ? SET "eventTimestamp" = ? ` +
		`REMOVE "event" REMOVE "claimed" ` +
		`REMOVE "shard" REMOVE "due" REMOVE "holder" REMOVE "attempts" ` +
		`WHERE "id" = ? AND "digest" = ? AND "shard" = ?`
	leaseStatement = `UPDATE "TABLE" SET "due" = ? SET "holder" = ? SET "attempts" = "attempts" + ? ` +
		`WHERE "id" = ? AND "due" = ? AND "shard" = ? RETURNING ALL NEW *`
)

func insertOf(id, event string) types.BatchStatementRequest {
	return statement(insertStatement, text(id), number(1), number(2), binary(event), number(0),
		&types.AttributeValueMemberBOOL{Value: true})
}

func TestInsertsOfABatchAreIndependent(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		old := awstest.Item{"id": text("old"), "n": number(1)}
		s.put(t, old)
		got := s.batch(t, insertOf("a", "\x00\xff"), insertOf("old", "new"), insertOf("b", "{}"))
		codes(t, got, "", types.BatchStatementErrorCodeEnumDuplicateItem, "")
		if got[1].Error.Item != nil {
			t.Errorf("the item is in the error: %v", got[1].Error.Item)
		}
		same(t, s.item(t, "old"), old)
		for id, event := range map[string]string{"a": "\x00\xff", "b": "{}"} {
			same(t, s.item(t, id), awstest.Item{"id": text(id), "shard": number(1), "due": number(2),
				"event": binary(event), "attempts": number(0), "yes": &types.AttributeValueMemberBOOL{Value: true}})
		}
		if ids, _ := s.query(t, 1, 10, 25); len(ids) != 2 {
			t.Errorf("in the index: %q", ids)
		}
	})
}

func TestMarksOfABatchAreIndependent(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		pending := func(id string) awstest.Item {
			return awstest.Item{"id": text(id), "digest": binary("d"), "shard": number(1), "due": number(2),
				"event": binary("{}"), "holder": binary("h")}
		}
		for _, id := range []string{"a", "b", "other content"} {
			s.put(t, pending(id))
		}
		published := awstest.Item{"id": text("published"), "digest": binary("d"), "publishedAt": number(1)}
		s.put(t, published)
		mark := func(id, digest string) types.BatchStatementRequest {
			return statement(markStatement, number(5), number(6), number(7), text(id), binary(digest), number(1))
		}
		const unmet = types.BatchStatementErrorCodeEnumConditionalCheckFailed
		got := s.batch(t, mark("a", "d"), mark("other content", "e"), mark("published", "d"), mark("absent", "d"),
			mark("b", "d"))
		codes(t, got, "", unmet, unmet, unmet, "")
		if t.Failed() {
			return
		}
		same(t, got[1].Error.Item, pending("other content"))
		same(t, got[2].Error.Item, published)
		if got[3].Error.Item != nil {
			t.Errorf("an absent item has %v", got[3].Error.Item)
		}
		for _, id := range []string{"a", "b"} {
			same(t, s.item(t, id), awstest.Item{"id": text(id), "digest": binary("d"), "publishedAt": number(5),
				"expiresAt": number(6), "eventTimestamp": number(7)})
		}
		same(t, s.item(t, "other content"), pending("other content"))
		same(t, s.item(t, "published"), published)
		if got := s.item(t, "absent"); len(got) != 0 {
			t.Errorf("an update makes an item: %v", got)
		}
		if ids, _ := s.query(t, 1, 10, 25); len(ids) != 1 {
			t.Errorf("in the index: %q", ids)
		}
		scanned, err := s.Scan(t.Context(), &dynamodb.ScanInput{TableName: &s.table, IndexName: aws.String("pending")})
		if err != nil || len(scanned.Items) != 1 {
			t.Errorf("a scan of the index: %v, %v", scanned, err)
		}
	})
}

func TestLeasesOfABatchReturnTheNewItems(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		item := func(id string, due, attempts int, holder string) awstest.Item {
			return awstest.Item{"id": text(id), "shard": number(1), "due": number(due), "event": binary("{}"),
				"attempts": number(attempts), "holder": binary(holder)}
		}
		s.put(t, item("a", 10, 0, "first"))
		s.put(t, item("b", 10, 7, "first"))
		s.put(t, item("taken", 15, 1, "first"))
		incomplete := awstest.Item{"id": text("incomplete"), "due": number(10), "shard": number(1)}
		s.put(t, incomplete)
		lease := func(id string) types.BatchStatementRequest {
			return statement(leaseStatement, number(20), binary("second"), number(1), text(id), number(10), number(1))
		}
		const unmet = types.BatchStatementErrorCodeEnumConditionalCheckFailed
		got := s.batch(t, lease("a"), lease("taken"), lease("b"), lease("absent"), lease("incomplete"))
		codes(t, got, "", unmet, "", unmet, types.BatchStatementErrorCodeEnumValidationError)
		if t.Failed() {
			return
		}
		same(t, got[0].Item, item("a", 20, 1, "second"))
		same(t, got[2].Item, item("b", 20, 8, "second"))
		same(t, got[1].Error.Item, item("taken", 15, 1, "first"))
		same(t, s.item(t, "a"), item("a", 20, 1, "second"))
		same(t, s.item(t, "incomplete"), incomplete)

		again := s.batch(t, lease("a"), lease("b"))
		codes(t, again, unmet, unmet)
		same(t, again[0].Error.Item, item("a", 20, 1, "second"))
	})
}

func TestAWrongStatementFailsAlone(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		const invalid = types.BatchStatementErrorCodeEnumValidationError
		for name, wrong := range map[string]types.BatchStatementRequest{
			"syntax":             statement(`UPDATE "TABLE" SET WHERE "id" = ?`, text("a")),
			"no key":             statement(`UPDATE "TABLE" SET "n" = ? WHERE "shard" = ?`, number(1), number(1)),
			"missing parameter":  statement(`UPDATE "TABLE" SET "n" = ? WHERE "id" = ?`, number(1)),
			"insert without key": statement(`INSERT INTO "TABLE" VALUE {'n': ?}`, number(1)),
			"too large":          insertOf("large", strings.Repeat("x", 400<<10)),
		} {
			got := s.batch(t, wrong, insertOf("beside "+name, "{}"))
			t.Log(name)
			codes(t, got, invalid, "")
		}
		got := s.batch(t, statement(`INSERT INTO "TABLEx" VALUE {'id': ?}`, text("a")), insertOf("c", "{}"))
		codes(t, got, types.BatchStatementErrorCodeEnumResourceNotFound, "")
	})
}

func TestAStatementWithAWrongKeyFailsAlone(t *testing.T) {
	inMemory(t, func(t *testing.T, s services) {
		s.put(t, awstest.Item{"id": text("old")})
		for name, wrong := range map[string]types.BatchStatementRequest{
			"key a number":   statement(`INSERT INTO "TABLE" VALUE {'id': ?}`, number(1)),
			"key empty":      statement(`INSERT INTO "TABLE" VALUE {'id': ?}`, text("")),
			"where a number": statement(`UPDATE "TABLE" SET "n" = ? WHERE "id" = ?`, number(1), number(1)),
			"set the key":    statement(`UPDATE "TABLE" SET "id" = ? WHERE "id" = ?`, text("b"), text("old")),
			"remove the key": statement(`UPDATE "TABLE" REMOVE "id" WHERE "id" = ?`, text("old")),
			"insert a wrong index key": statement(`INSERT INTO "TABLE" VALUE {'id': ?, 'shard': ?}`, text("b"),
				text("1")),
			"set a wrong index key": statement(`UPDATE "TABLE" SET "due" = ? WHERE "id" = ?`, text("1"), text("old")),
		} {
			got := s.batch(t, wrong, insertOf("beside "+name, "{}"))
			t.Log(name)
			codes(t, got, types.BatchStatementErrorCodeEnumValidationError, "")
		}
	})
}

// DynamoDB Local 3.3.1 rejects such a batch, and has run its statements nevertheless, so this does
// not test whether they were run.
func TestABatchWithTheSameKeyTwiceIsRejected(t *testing.T) {
	inMemory(t, func(t *testing.T, s services) {
		update := func(id string) types.BatchStatementRequest {
			return statement(`UPDATE "TABLE" SET "n" = ? WHERE "id" = ?`, number(1), text(id))
		}
		s.put(t, awstest.Item{"id": text("old")})
		for name, twice := range map[string][]types.BatchStatementRequest{
			"insert": {insertOf("a", "1"), insertOf("a", "2")}, "update": {update("old"), update("old")},
			"both": {insertOf("a", "1"), update("a")},
		} {
			for i := range twice {
				twice[i].Statement = aws.String(strings.Replace(*twice[i].Statement, "TABLE", s.table, 1))
			}
			_, err := s.BatchExecuteStatement(t.Context(), &dynamodb.BatchExecuteStatementInput{Statements: twice})
			if code(err) != "ValidationException" {
				t.Errorf("%s: got %v", name, err)
			}
		}
		// A statement that reaches no item has no key.
		wrong := statement(`INSERT INTO "TABLE" VALUE {'id': ?}`, number(1))
		again := wrong
		const invalid = types.BatchStatementErrorCodeEnumValidationError
		codes(t, s.batch(t, wrong, again, insertOf("b", "{}")), invalid, invalid, "")
	})
}

func TestABatchHas25StatementsAtMost(t *testing.T) {
	on(t, func(t *testing.T, s services) {
		var list []types.BatchStatementRequest
		for n := range 25 {
			list = append(list, insertOf(strings.Repeat("i", n+1), "{}"))
		}
		for _, r := range s.batch(t, list...) {
			if r.Error != nil {
				t.Errorf("%+v", r.Error)
			}
		}
		for _, wrong := range [][]types.BatchStatementRequest{nil, append(list, insertOf("one more", "{}"))} {
			_, err := s.BatchExecuteStatement(t.Context(), &dynamodb.BatchExecuteStatementInput{Statements: wrong})
			if err == nil {
				t.Errorf("%d statements are taken", len(wrong))
			}
		}
		if got := s.item(t, "one more"); len(got) != 0 {
			t.Error("a statement of a rejected batch was run")
		}
	})
}
