package awstest

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
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
	db.mu.Lock()
	defer db.mu.Unlock()
	db.calls["BatchExecuteStatement"]++
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n := len(in.Statements); n == 0 || n > maxStatements {
		return nil, invalid(fmt.Sprintf("%d statements", n))
	}
	for _, s := range in.Statements {
		if n := len(aws.ToString(s.Statement)); n == 0 || n > maxStatementBytes {
			return nil, invalid(fmt.Sprintf("a statement of %d characters", n))
		}
	}
	if db.duplicates(in.Statements) {
		return nil, invalid("Provided list of item keys contains duplicates")
	}
	out := &dynamodb.BatchExecuteStatementOutput{}
	for _, s := range in.Statements {
		out.Responses = append(out.Responses, db.execute(s))
	}
	return out, nil
}

// duplicates reports whether two statements have the same key. It ignores statements that
// fail before they reach an item. The caller holds the lock.
func (db *DynamoDB) duplicates(requests []types.BatchStatementRequest) bool {
	seen := map[[2]string]bool{}
	for _, r := range requests {
		s, t, failure := db.prepare(r)
		if failure != nil {
			continue
		}
		key := s.key(t, r.Parameters)
		if key == nil || checkKey(key, types.ScalarAttributeTypeS, maxPartitionKey) != nil {
			continue
		}
		at := [2]string{s.table, text(key)}
		if seen[at] {
			return true
		}
		seen[at] = true
	}
	return false
}

// prepare returns the statement of a request and its table, or why it fails. The caller
// holds the lock.
func (db *DynamoDB) prepare(request types.BatchStatementRequest) (*statement, *table, *types.BatchStatementResponse) {
	fail := func(code types.BatchStatementErrorCodeEnum, message string) *types.BatchStatementResponse {
		r := failed(code, message)
		return &r
	}
	s, err := statementOf(aws.ToString(request.Statement))
	if err == "" && s.parameters != len(request.Parameters) {
		err = "the number of parameters does not match the statement"
	}
	if err != "" {
		return nil, nil, fail(types.BatchStatementErrorCodeEnumValidationError, err)
	}
	t := db.tables[s.table]
	if t == nil {
		return nil, nil, fail(types.BatchStatementErrorCodeEnumResourceNotFound, "no such table")
	}
	return s, t, nil
}

// execute runs one statement. The caller holds the lock.
func (db *DynamoDB) execute(request types.BatchStatementRequest) types.BatchStatementResponse {
	s, t, failure := db.prepare(request)
	switch {
	case failure != nil:
		return *failure
	case s.insert:
		return db.insert(t, s, request)
	}
	return db.updateBy(t, s, request)
}

func failed(code types.BatchStatementErrorCodeEnum, message string) types.BatchStatementResponse {
	return types.BatchStatementResponse{Error: &types.BatchStatementError{Code: code, Message: &message}}
}

func (db *DynamoDB) insert(t *table, s *statement, request types.BatchStatementRequest) types.BatchStatementResponse {
	item := Item{}
	for _, a := range s.set {
		item[a.name] = request.Parameters[a.parameter]
	}
	id, err := t.checkItem(item)
	switch {
	case err != nil:
		return failed(types.BatchStatementErrorCodeEnumValidationError, err.Error())
	case t.items[id] != nil:
		// Without the item, whatever the statement asks for.
		return named(s, failed(types.BatchStatementErrorCodeEnumDuplicateItem, "Duplicate primary key exists in table"))
	case ItemSize(item) > maxItemBytes:
		return failed(types.BatchStatementErrorCodeEnumValidationError,
			"Item size has exceeded the maximum allowed size")
	}
	db.set(t, id, item)
	return types.BatchStatementResponse{TableName: &s.table}
}

func (db *DynamoDB) updateBy(t *table, s *statement, request types.BatchStatementRequest) types.BatchStatementResponse {
	key := s.key(t, request.Parameters)
	if key == nil {
		return failed(types.BatchStatementErrorCodeEnumValidationError,
			"Where clause does not contain a mandatory equality on all key attributes")
	}
	if slices.Contains(s.remove, t.key) ||
		slices.ContainsFunc(s.set, func(a assignment) bool { return a.name == t.key }) {
		return failed(types.BatchStatementErrorCodeEnumValidationError, "Cannot update attribute "+t.key)
	}
	id, err := t.keyOf(Item{t.key: key})
	if err != nil {
		return failed(types.BatchStatementErrorCodeEnumValidationError, err.Error())
	}
	old := t.items[id]
	for _, c := range s.where {
		if c.holds(old, request.Parameters) {
			continue
		}
		response := failed(types.BatchStatementErrorCodeEnumConditionalCheckFailed, "The conditional request failed")
		if request.ReturnValuesOnConditionCheckFailure == types.ReturnValuesOnConditionCheckFailureAllOld &&
			old != nil {
			response.Error.Item = maps.Clone(old)
		}
		return named(s, response)
	}
	item, ok := s.apply(old, request.Parameters)
	if !ok {
		return failed(types.BatchStatementErrorCodeEnumValidationError,
			"The provided expression refers to an attribute that does not exist in the item")
	}
	if _, err := t.checkItem(item); err != nil {
		return failed(types.BatchStatementErrorCodeEnumValidationError, err.Error())
	}
	if ItemSize(item) > maxItemBytes {
		return failed(types.BatchStatementErrorCodeEnumValidationError,
			"Item size to update has exceeded the maximum allowed size")
	}
	db.set(t, id, item)
	response := types.BatchStatementResponse{TableName: &s.table}
	if s.returning {
		response.Item = maps.Clone(item)
	}
	return response
}

// apply returns an item after an UPDATE. It reports false if an operand of a sum is not a
// number.
func (s *statement) apply(old Item, parameters []types.AttributeValue) (Item, bool) {
	item := maps.Clone(old)
	for _, a := range s.set {
		value := parameters[a.parameter]
		if a.plus != "" {
			x, okX := old[a.plus].(*types.AttributeValueMemberN)
			y, okY := value.(*types.AttributeValueMemberN)
			if !okX || !okY {
				return nil, false
			}
			value = sumOf(x, y)
		}
		item[a.name] = value
	}
	for _, name := range s.remove {
		delete(item, name)
	}
	return item, true
}

func named(s *statement, r types.BatchStatementResponse) types.BatchStatementResponse {
	r.TableName = &s.table
	return r
}

// statement is an INSERT or an UPDATE of PartiQL, as far as Payhook uses it (AWS,
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-reference.insert.html and
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-reference.update.html). All values
// are parameters.
type statement struct {
	insert     bool
	table      string
	set        []assignment
	remove     []string
	where      []condition
	returning  bool // ALL NEW *
	parameters int
}

// key returns the value of the table's key in a statement, or nil.
func (s *statement) key(t *table, parameters []types.AttributeValue) types.AttributeValue {
	if s.insert {
		for _, a := range s.set {
			if a.name == t.key {
				return parameters[a.parameter]
			}
		}
		return nil
	}
	for _, c := range s.where {
		if c.name == t.key {
			return parameters[c.parameter]
		}
	}
	return nil
}

// assignment sets an attribute to a parameter, or to the sum of the attribute plus and
// the parameter.
type assignment struct {
	name, plus string
	parameter  int
}

// condition compares an attribute with a parameter. It does not hold if the attribute is
// missing.
type condition struct {
	name      string
	parameter int
}

func (c condition) holds(item Item, parameters []types.AttributeValue) bool {
	return item[c.name] != nil && compare(item[c.name], parameters[c.parameter]) == 0
}

var (
	statementToken  = regexp.MustCompile(`"[^"]+"|'[^']+'|[A-Za-z_]+|[?{}:,=+*]`)
	knownStatements sync.Map // text -> *statement
)

// statementOf parses a statement, or returns what is wrong with it.
func statementOf(text string) (*statement, string) {
	if known, ok := knownStatements.Load(text); ok {
		return known.(*statement), ""
	}
	tokens := statementToken.FindAllString(text, -1)
	if strings.Join(tokens, "") != strings.Join(strings.Fields(text), "") {
		return nil, "Statement wasn't well formed"
	}
	p := &parser{tokens: tokens}
	s := &statement{}
	switch {
	case p.accept("INSERT"):
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
		return nil, "Statement wasn't well formed: " + p.err.Error()
	}
	knownStatements.Store(text, s)
	return s, ""
}

func (p *parser) insert(s *statement) {
	s.insert = true
	p.expect("INTO")
	s.table = p.quoted('"')
	p.expect("VALUE")
	p.expect("{")
	for again := true; again && p.err == nil; again = p.accept(",") {
		name := p.quoted('\'')
		p.expect(":")
		s.set = append(s.set, assignment{name: name, parameter: p.parameter(s)})
	}
	p.expect("}")
}

func (p *parser) update(s *statement) {
	s.table = p.quoted('"')
	for p.err == nil && !p.accept("WHERE") {
		if p.accept("REMOVE") {
			s.remove = append(s.remove, p.quoted('"'))
			continue
		}
		p.expect("SET")
		a := assignment{name: p.quoted('"')}
		p.expect("=")
		if p.peek() != "?" {
			a.plus = p.quoted('"')
			p.expect("+")
		}
		a.parameter = p.parameter(s)
		s.set = append(s.set, a)
	}
	for again := true; again && p.err == nil; again = p.accept("AND") {
		c := condition{name: p.quoted('"')}
		p.expect("=")
		c.parameter = p.parameter(s)
		s.where = append(s.where, c)
	}
	if p.accept("RETURNING") {
		for _, word := range []string{"ALL", "NEW", "*"} {
			p.expect(word)
		}
		s.returning = true
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

// parameter returns the position of the next parameter.
func (p *parser) parameter(s *statement) int {
	p.expect("?")
	s.parameters++
	return s.parameters - 1
}
