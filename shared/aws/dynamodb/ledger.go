// Package dynamodb has the stores of a stack that are in DynamoDB.
package dynamodb

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	awsclient "payhook.example/shared/aws/client"
	"payhook.example/shared/calls"
	"payhook.example/shared/ledger"
)

// LedgerAPI is what a [Ledger] needs of DynamoDB. The functions that record or publish events have it.
type LedgerAPI interface {
	ExecuteStatement(context.Context, *dynamodb.ExecuteStatementInput,
		...func(*dynamodb.Options)) (*dynamodb.ExecuteStatementOutput, error)
	BatchExecuteStatement(context.Context, *dynamodb.BatchExecuteStatementInput,
		...func(*dynamodb.Options)) (*dynamodb.BatchExecuteStatementOutput, error)
	LedgerReadAPI
}

// Ledger is the [ledger.Store] of a stack: a table with one item for each event, whose attributes are
// [ledger.Attributes], and a sparse index. It writes with statements of PartiQL, since BatchWriteItem
// has no conditions. A statement is billed like the single write that it stands for. It is safe for concurrent use.
type Ledger struct {
	LedgerReader
	client LedgerAPI
	texts  sync.Map // of statements, by shape
}

// NewLedger returns the store in the table of that name.
func NewLedger(client LedgerAPI, table string) *Ledger {
	return &Ledger{LedgerReader: *NewLedgerReader(client, table), client: client}
}

// shape is what the text of a statement depends on.
type shape struct {
	set, where uint32 // a bit for each of the attributes; an insert has no where
	kept       ledger.AttributeSet
	lease      bool
}

// text returns the text of the statements of a shape. All values are parameters (AWS,
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-reference.insert.html and
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-reference.update.html).
func (l *Ledger) text(s shape) *string {
	if text, ok := l.texts.Load(s); ok {
		return text.(*string)
	}
	var values, where []string
	update := "UPDATE " + quote(l.table)
	for n, f := range ledger.Attributes {
		name := quote(f.Name)
		switch {
		case s.set&(1<<n) != 0:
			values = append(values, "'"+f.Name+"': ?")
			update += " SET " + name + " = ?"
		case f.In > s.kept:
			update += " REMOVE " + name
		}
		if s.where&(1<<n) != 0 {
			where = append(where, name+" = ?")
		}
	}
	text := "INSERT INTO " + quote(l.table) + " VALUE {" + strings.Join(values, ", ") + "}"
	if where != nil {
		var returning string
		if s.lease {
			update, returning = update+` SET "attempts" = "attempts" + ?`, " RETURNING ALL NEW *"
		}
		text = update + " WHERE " + strings.Join(where, " AND ") + returning
	}
	l.texts.Store(s, &text)
	return &text
}

// quote returns a name as PartiQL has it: some are its keywords.
func quote(name string) string { return `"` + name + `"` }

// mostValues is how many values most statements have.
const mostValues = 12

// statement returns the statement of a write.
func (l *Ledger) statement(w *ledger.Write) types.BatchStatementRequest {
	set, parameters := encode(&w.Item, true, make([]types.AttributeValue, 0, mostValues))
	if w.If == nil {
		return types.BatchStatementRequest{Statement: l.text(shape{set: set}), Parameters: parameters}
	}
	// DynamoDB rejects a change of the key, even to the value that it has (AWS,
	// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_UpdateItem.html).
	key, parameters := parameters[0], parameters[1:]
	if w.Lease {
		parameters = append(parameters, number(1))
	}
	where, parameters := encode(w.If, false, append(parameters, key))
	s := shape{set &^ 1, where | 1, w.Kept, w.Lease}
	return types.BatchStatementRequest{Statement: l.text(s), Parameters: parameters,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld}
}

// Write implements [ledger.Store]. If the answer of a call is lost, each of its writes has that error: it may have
// taken effect. If DynamoDB rejects the call because of one of them, each is made alone.
func (l *Ledger) Write(ctx context.Context, writes []ledger.Write) []ledger.WriteResult {
	statements := make([]types.BatchStatementRequest, len(writes))
	for n := range writes {
		statements[n] = l.statement(&writes[n])
	}
	if len(writes) == 1 {
		return []ledger.WriteResult{l.runOne(ctx, statements[0])}
	}
	results, err := l.runBatch(ctx, statements)
	for n := range results {
		r := &results[n]
		switch {
		// AWS documents an item in the answer, and not that there always is one. The condition of a lease that
		// was made does not hold again, and the answer that says so has the item.
		case err == nil && writes[n].Lease && r.Done && r.Found == nil, awsclient.Code(err) == "ValidationException":
			*r = l.runOne(ctx, statements[n])
		case err != nil:
			r.Err = err
		}
	}
	return results
}

// transient are the errors after which a statement may succeed if it is tried again.
// One that reports InternalServerError may have taken effect, as a single write may
// have whose answer was lost. The conditions of all statements allow for that.
var transient = []types.BatchStatementErrorCodeEnum{
	types.BatchStatementErrorCodeEnumThrottlingError, types.BatchStatementErrorCodeEnumProvisionedThroughputExceeded,
	types.BatchStatementErrorCodeEnumRequestLimitExceeded, types.BatchStatementErrorCodeEnumTransactionConflict,
	types.BatchStatementErrorCodeEnumInternalServerError,
}

// runOne runs a single statement.
func (l *Ledger) runOne(ctx context.Context, s types.BatchStatementRequest) ledger.WriteResult {
	out, err := l.client.ExecuteStatement(ctx, &dynamodb.ExecuteStatementInput{Statement: s.Statement,
		Parameters: s.Parameters, ReturnValuesOnConditionCheckFailure: s.ReturnValuesOnConditionCheckFailure})
	if err == nil {
		r := ledger.WriteResult{Done: true}
		if len(out.Items) > 0 { // of a lease
			r.Found = itemOf(out.Items[0])
		}
		return r
	}
	if unmet, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return ledger.WriteResult{Found: itemOf(unmet.Item)}
	}
	switch awsclient.Code(err) {
	case "DuplicateItemException", // AWS, "ExecuteStatement" in the DynamoDB API reference
		string(types.BatchStatementErrorCodeEnumDuplicateItem): // DynamoDB Local, as of each statement of a batch
		return ledger.WriteResult{}
	}
	return ledger.WriteResult{Err: failed("ExecuteStatement", err)}
}

// runBatch runs the statements of one batch. It tries
// again those that failed for a moment, and no others. The error is that of the call.
func (l *Ledger) runBatch(ctx context.Context, statements []types.BatchStatementRequest) ([]ledger.WriteResult, error) {
	results := make([]ledger.WriteResult, len(statements))
	at := make([]int, len(statements)) // the positions of the statements that are left
	for i := range at {
		at[i] = i
	}
	statements = slices.Clone(statements)
	for attempt := 1; ; attempt++ {
		out, err := l.client.BatchExecuteStatement(ctx, &dynamodb.BatchExecuteStatementInput{Statements: statements})
		if err == nil && len(out.Responses) != len(statements) {
			err = errors.New("an answer is missing")
		}
		err = failed("BatchExecuteStatement", err)
		if err != nil && attempt == 1 {
			return results, err
		}
		left := 0
		for n, i := range at {
			switch {
			case err != nil:
				results[i] = ledger.WriteResult{Err: err}
			case out.Responses[n].Error == nil:
				results[i] = ledger.WriteResult{Done: true, Found: itemOf(out.Responses[n].Item)}
			default:
				results[i] = resultOf(out.Responses[n].Error)
				if slices.Contains(transient, out.Responses[n].Error.Code) {
					statements[left], at[left] = statements[n], i
					left++
				}
			}
		}
		if left == 0 || attempt == calls.Attempts || ctx.Err() != nil {
			return results, nil
		}
		_ = calls.Pause(ctx, calls.Backoff(attempt))
		statements, at = statements[:left], at[:left]
	}
}

// resultOf returns the result of a statement that failed in a batch that was run (AWS,
// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchStatementError.html).
func resultOf(e *types.BatchStatementError) ledger.WriteResult {
	switch e.Code {
	case types.BatchStatementErrorCodeEnumConditionalCheckFailed:
		return ledger.WriteResult{Found: itemOf(e.Item)}
	case types.BatchStatementErrorCodeEnumDuplicateItem: // without the item, whatever the statement asks for
		return ledger.WriteResult{}
	}
	return ledger.WriteResult{Err: &awsclient.Error{Operation: service + "BatchExecuteStatement", Code: string(e.Code)}}
}
