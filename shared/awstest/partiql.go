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
// If two statements have the same key, the call fails, as with DynamoDB Local.
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
	if w.on = db.tables[w.table]; w.on == nil {
		w.err = &types.ResourceNotFoundException{Message: aws.String("no such table")}
		return w
	}
	i, ok := w.equal[w.on.key]
	if !ok {
		w.err = invalid("Where clause does not contain a mandatory equality on all key attributes")
		return w
	}
	w.key, w.values = request.Parameters[i], Item{}
	for i, value := range request.Parameters {
		w.values[":"+strconv.Itoa(i)] = value
	}
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
		for name, i := range w.equal {
			item[name] = w.values[":"+strconv.Itoa(i)]
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
	insert bool
	table  string
	// equal has the attributes that an INSERT sets, or that WHERE compares, with their
	// parameters.
	equal map[string]int
	// The expressions of an UPDATE, in which :N is the parameter N.
	update, condition string
	names             map[string]string
	returning         bool // ALL NEW *
	parameters        int
}

var (
	statementToken  = regexp.MustCompile(`"[^"]+"|'[^']+'|[A-Za-z_]+|[?{}:,=+*]`)
	knownStatements sync.Map // text -> *statement
)

// statementOf parses a statement.
func statementOf(text string) (*statement, error) {
	if known, ok := knownStatements.Load(text); ok {
		return known.(*statement), nil
	}
	tokens := statementToken.FindAllString(text, -1)
	if strings.Join(tokens, "") != strings.Join(strings.Fields(text), "") {
		return nil, invalid("Statement wasn't well formed")
	}
	p := &parser{tokens: tokens}
	s := &statement{equal: map[string]int{}, names: map[string]string{}}
	switch {
	case p.accept("INSERT"):
		s.insert = true
		p.insert(s)
	case p.accept("UPDATE"):
		p.update(s)
	default:
		p.fail("Unsupported operation")
	}
	if len(p.tokens) > 0 {
		p.fail("unexpected " + p.peek())
	}
	if p.err != nil {
		return nil, p.err
	}
	knownStatements.Store(text, s)
	return s, nil
}

func (p *parser) insert(s *statement) {
	p.expect("INTO")
	s.table = p.quoted('"')
	p.expect("VALUE")
	p.expect("{")
	for again := true; again && p.err == nil; again = p.accept(",") {
		name := p.quoted('\'')
		p.expect(":")
		s.equal[name] = s.parameters
		p.parameter(s)
	}
	p.expect("}")
}

// update translates the clauses of an UPDATE to an update expression and a condition.
func (p *parser) update(s *statement) {
	s.table = p.quoted('"')
	var set, remove, conditions []string
	for p.err == nil && !p.accept("WHERE") {
		if p.accept("REMOVE") {
			remove = append(remove, p.attributeName(s))
			continue
		}
		p.expect("SET")
		assignment := p.attributeName(s) + " = "
		p.expect("=")
		if p.peek() != "?" {
			assignment += p.attributeName(s) + " + "
			p.expect("+")
		}
		set = append(set, assignment+p.parameter(s))
	}
	for again := true; again && p.err == nil; again = p.accept("AND") {
		name := p.attributeName(s)
		p.expect("=")
		s.equal[s.names[name]] = s.parameters
		conditions = append(conditions, name+" = "+p.parameter(s))
	}
	if p.accept("RETURNING") {
		for _, word := range []string{"ALL", "NEW", "*"} {
			p.expect(word)
		}
		s.returning = true
	}
	s.condition = strings.Join(conditions, " AND ")
	if len(set) > 0 {
		s.update = "SET " + strings.Join(set, ", ")
	}
	if len(remove) > 0 {
		s.update += " REMOVE " + strings.Join(remove, ", ")
	}
}

// quoted returns the text of a token in quotes of that kind.
func (p *parser) quoted(quote byte) string {
	t := p.next()
	if len(t) < 3 || t[0] != quote {
		p.fail("expected a name in " + string(quote) + ", not " + t)
		return ""
	}
	return t[1 : len(t)-1]
}

// attributeName returns the name of the next attribute in expressions.
func (p *parser) attributeName(s *statement) string {
	name := "#" + strconv.Itoa(len(s.names))
	s.names[name] = p.quoted('"')
	return name
}

// parameter returns the name of the next parameter in expressions.
func (p *parser) parameter(s *statement) string {
	p.expect("?")
	s.parameters++
	return ":" + strconv.Itoa(s.parameters-1)
}
