package ledger

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"payhook.example/shared/parallel"
)

// maxBatch is how many statements one BatchExecuteStatement takes (AWS,
// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchExecuteStatement.html).
// A statement is billed like the single write that it stands for.
const maxBatch = 25

// maxBatchBytes is the largest sum of events in a batch of requests or, if it leases them,
// of answers. No event is as large. AWS
// documents no limit for BatchExecuteStatement; BatchWriteItem takes 16 MB.
const maxBatchBytes = 1 << 20

// inBatches calls do for each batch of n elements of these sizes, several at the same
// time, with the elements from begin to before end.
func (l *Ledger) inBatches(n int, size func(i int) int, do func(begin, end int)) {
	var ends []int
	var begin, bytes int
	for i := range n {
		if i-begin == l.opts.Batch || bytes+size(i) > maxBatchBytes {
			ends = append(ends, i)
			begin, bytes = i, 0
		}
		bytes += size(i)
	}
	if n > 0 {
		ends = append(ends, n)
	}
	parallel.Each(len(ends), l.opts.Parallel, func(n int) {
		begin := 0
		if n > 0 {
			begin = ends[n-1]
		}
		do(begin, ends[n])
	})
}

// ofNoSize is the size of what does not count.
func ofNoSize(int) int { return 0 }

// executed is the result of one statement.
type executed struct {
	item map[string]types.AttributeValue // what it returns, or the item that its condition does not hold for
	err  error
}

// met reports whether the condition of the statement held.
func (e executed) met() bool {
	return !isStatementError(e.err, types.BatchStatementErrorCodeEnumConditionalCheckFailed)
}

// exists reports whether INSERT found an item, without saying which.
func (e executed) exists() bool {
	return isStatementError(e.err, types.BatchStatementErrorCodeEnumDuplicateItem)
}

// undecided reports whether the statement had no effect for a reason that a single
// write can tell more about: INSERT finds an item, without saying which; or
// DynamoDB rejects what was written in PartiQL.
func (e executed) undecided() bool {
	if api, ok := errors.AsType[smithy.APIError](e.err); ok && api.ErrorCode() == "ValidationException" {
		return true // of the call
	}
	return e.err == errAlone || e.exists() ||
		isStatementError(e.err, types.BatchStatementErrorCodeEnumValidationError)
}

// errAlone is the error of a statement that is not run, since it would be the only one of
// its batch.
var errAlone = errors.New("a single statement")

// transient are the errors after which a statement may succeed if it is tried again.
// One that reports InternalServerError may have taken effect, as a single write may
// have whose answer was lost. The conditions of all statements allow for that.
var transient = []types.BatchStatementErrorCodeEnum{
	types.BatchStatementErrorCodeEnumThrottlingError, types.BatchStatementErrorCodeEnumProvisionedThroughputExceeded,
	types.BatchStatementErrorCodeEnumRequestLimitExceeded, types.BatchStatementErrorCodeEnumTransactionConflict,
	types.BatchStatementErrorCodeEnumInternalServerError,
}

// statementError is the error of one statement of a batch that was run (AWS,
// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchStatementError.html).
func statementError(e *types.BatchStatementError) error {
	return &smithy.OperationError{ServiceID: dynamodb.ServiceID, OperationName: "BatchExecuteStatement",
		Err: &smithy.GenericAPIError{Code: string(e.Code), Message: aws.ToString(e.Message)}}
}

func isStatementError(err error, codes ...types.BatchStatementErrorCodeEnum) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return false
	}
	for _, code := range codes {
		if api.ErrorCode() == string(code) {
			return true
		}
	}
	return false
}

// execute runs the statements of one batch, and returns the result of each. It tries
// again those that failed for a moment, and no others. If the answer of a call is
// lost, each of its statements has that error: it may have taken effect.
func (l *Ledger) execute(ctx context.Context, statements []types.BatchStatementRequest) []executed {
	results := make([]executed, len(statements))
	at := make([]int, len(statements)) // the positions of the statements that are left
	for i := range at {
		at[i] = i
	}
	for attempt := 1; ; attempt++ {
		out, err := l.client.BatchExecuteStatement(ctx, &dynamodb.BatchExecuteStatementInput{Statements: statements})
		if err == nil && len(out.Responses) != len(statements) {
			err = errors.New("BatchExecuteStatement did not answer every statement")
		}
		left := 0
		for n, i := range at {
			if err != nil {
				results[i] = executed{err: err}
				continue
			}
			r := out.Responses[n]
			if r.Error == nil {
				results[i] = executed{item: r.Item}
				continue
			}
			results[i] = executed{r.Error.Item, statementError(r.Error)}
			if isStatementError(results[i].err, transient...) {
				statements[left], at[left] = statements[n], i
				left++
			}
		}
		if left == 0 || attempt == parallel.Attempts || ctx.Err() != nil {
			return results
		}
		_ = parallel.Pause(ctx, parallel.Backoff(attempt))
		statements, at = statements[:left], at[:left]
	}
}

// The attributes of a pending item, in the order in which they are inserted.
var pendingAttributes = []string{
	"eventId", "digest", "deliveryId", "recordedAt", "event", "size", "shard", "due", "holder", "attempts", "claimed",
}

// insert returns the statement that writes a pending item unless there is an item of
// that id, pending, published or expired (AWS,
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-reference.insert.html).
func (l *Ledger) insert(item map[string]types.AttributeValue) types.BatchStatementRequest {
	var text strings.Builder
	parameters := make([]types.AttributeValue, 0, len(item))
	text.WriteString("INSERT INTO " + quote(*l.table) + " VALUE {")
	for _, name := range pendingAttributes {
		value, ok := item[name]
		if !ok {
			continue
		}
		if len(parameters) > 0 {
			text.WriteString(", ")
		}
		text.WriteString("'" + name + "': ?")
		parameters = append(parameters, value)
	}
	text.WriteString("}")
	statement := text.String()
	return types.BatchStatementRequest{Statement: &statement, Parameters: parameters}
}

// quote returns a name as PartiQL has it: some are its keywords.
func quote(name string) string { return `"` + name + `"` }
