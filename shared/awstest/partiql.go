package awstest

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/names"
)

// maxStatements is how many statements one BatchExecuteStatement takes (AWS,
// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchExecuteStatement.html).
const maxStatements = 25

// BatchExecuteStatement runs INSERT and UPDATE statements, each for itself. A statement
// that fails has an error in its response, and the call succeeds (AWS,
// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchStatementError.html).
// If two statements have the same key, the call fails, as with DynamoDB Local.
func (db *DynamoDB) BatchExecuteStatement(ctx context.Context, in *dynamodb.BatchExecuteStatementInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.BatchExecuteStatementOutput, error) {
	return processed(ctx, db, in, func(in *dynamodb.BatchExecuteStatementInput) (
		*dynamodb.BatchExecuteStatementOutput, error) {
		if n := len(in.Statements); n == 0 || n > maxStatements {
			return nil, invalid(fmt.Sprintf("%d statements", n))
		}
		statements, errs := make([]statement, len(in.Statements)), make([]error, len(in.Statements))
		seen := map[string]bool{}
		for i, s := range in.Statements {
			if statements[i], errs[i] = db.prepare(s); errs[i] != nil {
				continue
			}
			at := statements[i].table + "/" + statements[i].id
			if seen[at] {
				return nil, invalid("Provided list of item keys contains duplicates")
			}
			seen[at] = true
		}
		out := &dynamodb.BatchExecuteStatementOutput{}
		for i, s := range statements {
			response := types.BatchStatementResponse{TableName: &s.table}
			if errs[i] == nil {
				response.Item, errs[i] = db.write(s.write)
			}
			if errs[i] != nil || !s.returning {
				response.Item = nil
			}
			response.Error = s.problem(errs[i])
			out.Responses = append(out.Responses, response)
		}
		return out, nil
	})
}

// statement is an INSERT or an UPDATE of PartiQL, as far as Payhook uses it: all values are
// parameters (AWS,
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-reference.insert.html and
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-reference.update.html).
type statement struct {
	write
	table     string
	insert    bool
	returning bool // ALL NEW *
}

// prepare parses a statement. The caller holds the lock.
func (db *DynamoDB) prepare(request types.BatchStatementRequest) (s statement, err error) {
	p := newParser(aws.ToString(request.Statement), nil, nil)
	p.statement, p.parameters = true, request.Parameters
	s.want = request.ReturnValuesOnConditionCheckFailure
	switch {
	case p.accept("INSERT"):
		p.expect("INTO")
		s.insert, s.table = true, p.name()
		p.expect("VALUE", "{")
		item := Item{}
		p.list(func() {
			name := strings.Trim(p.next(), "'")
			p.expect(":")
			item[name] = p.constant()
		})
		p.expect("}")
		p.equal = item
		s.holds = func(old Item) bool { return old == nil }
		s.change = func(Item) (Item, error) { return item, nil }
	default:
		p.expect("UPDATE")
		s.table = p.name()
		changes := p.changes()
		s.change = changes.apply
		defer func() {
			if _, ok := changes[names.LedgerKey]; ok && err == nil {
				err = invalid("Cannot update attribute " + names.LedgerKey + ". This attribute is part of the key")
			}
		}()
		p.expect("WHERE")
		s.holds = p.and()
		if s.returning = p.accept("RETURNING"); s.returning {
			p.expect("ALL", "NEW", "*")
		}
	}
	if err = p.end(); err == nil {
		s.on, s.id, err = db.find(&s.table, p.equal)
	}
	return s, err
}

// problem returns the error of a statement in its response; nil for none.
func (s statement) problem(err error) *types.BatchStatementError {
	problem := &types.BatchStatementError{Code: types.BatchStatementErrorCodeEnumValidationError}
	switch err := err.(type) {
	case nil:
		return nil
	case *types.ConditionalCheckFailedException:
		problem.Code, problem.Item = types.BatchStatementErrorCodeEnumConditionalCheckFailed, err.Item
		if s.insert {
			// Without the item, whatever the statement asks for.
			problem.Code, problem.Item = types.BatchStatementErrorCodeEnumDuplicateItem, nil
		}
	case *types.ResourceNotFoundException:
		problem.Code = types.BatchStatementErrorCodeEnumResourceNotFound
	}
	problem.Message = aws.String(err.Error())
	return problem
}

// ExecuteStatement runs one statement. Its error is that of a single write, or that an item exists (AWS,
// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_ExecuteStatement.html).
func (db *DynamoDB) ExecuteStatement(ctx context.Context, in *dynamodb.ExecuteStatementInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.ExecuteStatementOutput, error) {
	return processed(ctx, db, in, func(in *dynamodb.ExecuteStatementInput) (*dynamodb.ExecuteStatementOutput, error) {
		s, err := db.prepare(types.BatchStatementRequest{Statement: in.Statement, Parameters: in.Parameters,
			ReturnValuesOnConditionCheckFailure: in.ReturnValuesOnConditionCheckFailure})
		if err != nil {
			return nil, err
		}
		item, err := db.write(s.write)
		if _, ok := err.(*types.ConditionalCheckFailedException); ok && s.insert {
			return nil, &types.DuplicateItemException{Message: aws.String("Duplicate primary key exists in table")}
		}
		out := &dynamodb.ExecuteStatementOutput{}
		if err == nil && s.returning {
			out.Items = []map[string]types.AttributeValue{item}
		}
		return out, err
	})
}
