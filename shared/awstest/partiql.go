package awstest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// maxStatements is how many statements one BatchExecuteStatement takes (AWS,
// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchExecuteStatement.html).
const maxStatements = 25

// maxStatementBytes is the longest statement, without its parameters (AWS,
// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchStatementRequest.html).
const maxStatementBytes = 8192

// BatchExecuteStatement runs INSERT and UPDATE statements, each for itself. A statement
// that fails has an error in its response, and the call succeeds (AWS,
// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchStatementError.html).
// If two statements have the same key, the call fails, as with DynamoDB Local 3.3.1.
func (db *DynamoDB) BatchExecuteStatement(ctx context.Context, in *dynamodb.BatchExecuteStatementInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.BatchExecuteStatementOutput, error) {
	return processed(ctx, db, in, db.batchExecuteStatement)
}

func (db *DynamoDB) batchExecuteStatement(in *dynamodb.BatchExecuteStatementInput) (
	*dynamodb.BatchExecuteStatementOutput, error) {
	if n := len(in.Statements); n == 0 || n > maxStatements {
		return nil, invalid(fmt.Sprintf("%d statements", n))
	}
	writes, seen := make([]write, len(in.Statements)), map[[2]string]bool{}
	for i, s := range in.Statements {
		if n := len(aws.ToString(s.Statement)); n == 0 || n > maxStatementBytes {
			return nil, invalid(fmt.Sprintf("a statement of %d characters", n))
		}
		w := db.prepare(s)
		if w.err == nil {
			at := [2]string{w.table, text(w.key)}
			if seen[at] {
				return nil, invalid("Provided list of item keys contains duplicates")
			}
			seen[at] = true
		}
		writes[i] = w
	}
	out := &dynamodb.BatchExecuteStatementOutput{}
	for i, w := range writes {
		out.Responses = append(out.Responses, db.execute(w, in.Statements[i].ReturnValuesOnConditionCheckFailure))
	}
	return out, nil
}

// write is a statement with its parameters, or the reason why it reaches no item.
type write struct {
	*statement
	on     *table
	key    types.AttributeValue
	values Item // of the expressions
	err    error
}

// prepare returns the write of a request. The caller holds the lock.
func (db *DynamoDB) prepare(request types.BatchStatementRequest) (w write) {
	if w.statement, w.err = statementOf(aws.ToString(request.Statement)); w.err != nil {
		return w
	}
	if w.parameters != len(request.Parameters) {
		w.err = invalid("the number of parameters does not match the statement")
		return w
	}
	if w.on, w.err = db.open(&w.table); w.err != nil {
		return w
	}
	w.values = Item{}
	for i, value := range request.Parameters {
		w.values[":"+strconv.Itoa(i)] = value
	}
	parameter, ok := w.equal[w.on.key]
	if !ok {
		w.err = invalid("Where clause does not contain a mandatory equality on all key attributes")
		return w
	}
	w.key = w.values[parameter]
	w.err = checkKey(w.key, types.ScalarAttributeTypeS, maxPartitionKey)
	return w
}

// execute runs one statement. The caller holds the lock.
func (db *DynamoDB) execute(w write, want types.ReturnValuesOnConditionCheckFailure) types.BatchStatementResponse {
	if w.err != nil {
		return failed(nil, w.err)
	}
	if w.insert {
		item := Item{}
		for name, parameter := range w.equal {
			item[name] = w.values[parameter]
		}
		err := db.put(w.on, item, expressions{condition: aws.String("attribute_not_exists(#key)"),
			names: map[string]string{"#key": w.on.key}})
		if _, exists := errors.AsType[*types.ConditionalCheckFailedException](err); exists {
			// Without the item, whatever the statement asks for.
			err = &types.DuplicateItemException{Message: aws.String("Duplicate primary key exists in table")}
		}
		return failed(&w.table, err)
	}
	item, err := db.update(w.on, Item{w.on.key: w.key},
		expressions{&w.update, &w.condition, w.names, w.values, want})
	response := failed(&w.table, err)
	if err == nil && w.returning {
		response.Item = item
	}
	return response
}

// failed returns the response to a statement with that error; nil means success.
func failed(table *string, err error) types.BatchStatementResponse {
	response := types.BatchStatementResponse{TableName: table}
	if err == nil {
		return response
	}
	problem := &types.BatchStatementError{Code: types.BatchStatementErrorCodeEnumValidationError,
		Message: aws.String(err.Error())}
	switch err := err.(type) {
	case *types.ConditionalCheckFailedException:
		problem.Code, problem.Item = types.BatchStatementErrorCodeEnumConditionalCheckFailed, err.Item
	case *types.DuplicateItemException:
		problem.Code = types.BatchStatementErrorCodeEnumDuplicateItem
	case *types.ResourceNotFoundException:
		problem.Code = types.BatchStatementErrorCodeEnumResourceNotFound
	}
	response.Error = problem
	return response
}

// statement is an INSERT or an UPDATE of PartiQL, as far as Payhook uses it (AWS,
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-reference.insert.html and
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-reference.update.html). All values
// are parameters.
type statement struct {
	insert     bool
	table      string
	parameters int
	// equal has the attributes that an INSERT sets, or that WHERE compares, with their
	// parameters.
	equal map[string]string
	// The expressions of an UPDATE.
	update, condition string
	names             map[string]string
	returning         bool // ALL NEW *
}

var (
	statementToken = regexp.MustCompile(`"([^"]+)"|'([^']+)'|[A-Za-z]+|[?{}:,=+*]`)
	// The forms of statements after translate.
	insertForm = regexp.MustCompile(`^INSERT INTO #0 VALUE { (\$\d+ : :\d+(?: , \$\d+ : :\d+)*) }$`)
	updateForm = regexp.MustCompile(`^UPDATE #0((?: SET #\d+ =(?: #\d+ \+)? :\d+| REMOVE #\d+)+)` +
		` WHERE (#\d+ = :\d+(?: AND #\d+ = :\d+)*)( RETURNING ALL NEW \*)?$`)
	equality        = regexp.MustCompile(`([#$]\d+) [=:] (:\d+)`)
	knownStatements sync.Map // text -> *statement
)

// statementOf parses a statement. It translates it to an update expression and a condition
// of DynamoDB.
func statementOf(text string) (*statement, error) {
	if known, ok := knownStatements.Load(text); ok {
		return known.(*statement), nil
	}
	s := &statement{equal: map[string]string{}, names: map[string]string{}}
	form, ok := s.translate(text)
	set := insertForm.FindStringSubmatch(form)
	parts := updateForm.FindStringSubmatch(form)
	switch {
	case !ok || set == nil && parts == nil:
		return nil, invalid("Statement wasn't well formed")
	case set != nil:
		s.insert, s.condition = true, set[1]
	default:
		s.update, s.condition, s.returning = parts[1], parts[2], parts[3] != ""
	}
	for _, pair := range equality.FindAllStringSubmatch(s.condition, -1) {
		s.equal[s.names[pair[1]]] = pair[2]
	}
	s.table = s.names["#0"]
	delete(s.names, "#0")
	knownStatements.Store(text, s)
	return s, nil
}

// translate returns a statement with one space between its tokens, #N or $N for its N-th
// name in double or single quotes, and :N for its N-th parameter. It reports false if there
// is an invalid token.
func (s *statement) translate(text string) (form string, ok bool) {
	var given, translated []string
	for _, found := range statementToken.FindAllStringSubmatch(text, -1) {
		token := found[0]
		given = append(given, token)
		switch next := strconv.Itoa(len(s.names)); {
		case found[1] != "":
			token = "#" + next
			s.names[token] = found[1]
		case found[2] != "":
			token = "$" + next
			s.names[token] = found[2]
		case token == "?":
			token = ":" + strconv.Itoa(s.parameters)
			s.parameters++
		}
		translated = append(translated, token)
	}
	return strings.Join(translated, " "), strings.Join(given, "") == strings.Join(strings.Fields(text), "")
}
