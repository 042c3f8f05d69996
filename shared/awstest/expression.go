package awstest

import (
	"math/big"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// invalid returns the error of DynamoDB for an invalid request.
func invalid(message string) error {
	return &smithy.GenericAPIError{Code: "ValidationException", Message: message, Fault: smithy.FaultClient}
}

var token = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*|[#:][A-Za-z0-9_]+|<=|<>|[=<>(),+]`)

// parser parses the expressions of DynamoDB that Payhook uses: conditions with AND, OR, =,
// <>, <, <=, > and attribute_(not_)exists, and updates with SET, REMOVE, + and if_not_exists. Every
// other operator or function is an error.
type parser struct {
	tokens []string
	names  map[string]string
	values Item
	item   Item // the item that operands refer to
	err    error
}

func newParser(expression string, names map[string]string, values, item Item) *parser {
	p := &parser{names: names, values: values, item: item}
	tokens, ok := tokensOf(expression)
	if !ok {
		p.fail("syntax")
	}
	p.tokens = tokens
	return p
}

// tokensOf returns the tokens of an expression. It reports false if there is an invalid one.
func tokensOf(expression string) ([]string, bool) {
	// A query evaluates the same expression for every item.
	if known, ok := knownTokens.Load(expression); ok {
		return known.([]string), true
	}
	tokens := token.FindAllString(expression, -1)
	if strings.Join(tokens, "") != strings.Join(strings.Fields(expression), "") {
		return nil, false
	}
	knownTokens.Store(expression, tokens)
	return tokens, true
}

// used returns an error if no expression of a request uses a name or a value, which
// DynamoDB rejects.
func used(names map[string]string, values Item, expressions ...*string) error {
	stands := func(placeholder string) bool {
		for _, e := range expressions {
			if e == nil {
				continue
			}
			if tokens, _ := tokensOf(*e); slices.Contains(tokens, placeholder) {
				return true
			}
		}
		return false
	}
	for name := range names {
		if !stands(name) {
			return invalid("name " + name + " is not used")
		}
	}
	for value := range values {
		if !stands(value) {
			return invalid("value " + value + " is not used")
		}
	}
	return nil
}

// reserved are the reserved words of DynamoDB that are similar to attribute names of
// Payhook (AWS, "Reserved words in DynamoDB").
var reserved = map[string]bool{
	"COUNT": true, "DATA": true, "DATE": true, "HASH": true, "INDEX": true, "ITEM": true, "KEY": true, "NAME": true,
	"OWNER": true, "SHARD": true, "SIZE": true, "STATE": true, "STATUS": true, "TIME": true, "TIMESTAMP": true,
	"TOKEN": true, "TTL": true, "VALUE": true, "VALUES": true,
}

var knownTokens sync.Map // expression -> []string

// evaluate reports whether a condition holds for an item, nil for none.
func evaluate(expression string, names map[string]string, values, item Item) (bool, error) {
	p := newParser(expression, names, values, item)
	holds := p.or()
	if len(p.tokens) > 0 {
		p.fail("unexpected " + p.peek())
	}
	return holds, p.err
}

// partitionOf returns the value of the partition key in the key condition of a query. The
// condition must compare keys of the index with values of their types, each key once.
func partitionOf(expression string, names map[string]string, values Item, x Index) (types.AttributeValue, error) {
	p := newParser(expression, names, values, nil)
	want := map[string]types.ScalarAttributeType{x.PartitionKey: x.PartitionType, x.SortKey: x.SortType}
	var partition types.AttributeValue
	for again := true; again && p.err == nil; again = p.accept("AND") {
		name, operator, value := p.name(p.next()), p.next(), p.operand()
		switch {
		case want[name] == "":
			p.fail("a condition on " + name + ", which is no key or has one")
		case typeOf(value) != want[name]:
			p.fail("Condition parameter type does not match schema type")
		case name == x.PartitionKey && operator == "=":
			partition = value
		}
		delete(want, name)
	}
	if partition == nil {
		p.fail("Query condition missed key schema element")
	}
	return partition, p.err
}

func (p *parser) fail(message string) {
	if p.err == nil {
		p.err = invalid("expression: " + message)
	}
	p.tokens = nil
}

func (p *parser) peek() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

func (p *parser) next() string {
	t := p.peek()
	if t == "" {
		p.fail("unexpected end")
		return ""
	}
	p.tokens = p.tokens[1:]
	return t
}

func (p *parser) accept(t string) bool {
	if !strings.EqualFold(p.peek(), t) {
		return false
	}
	p.tokens = p.tokens[1:]
	return true
}

func (p *parser) expect(t string) {
	if !p.accept(t) {
		p.fail("expected " + t)
	}
}

func (p *parser) or() bool {
	holds := p.and()
	for p.accept("OR") {
		holds = p.and() || holds
	}
	return holds
}

func (p *parser) and() bool {
	holds := p.primary()
	for p.accept("AND") {
		holds = p.primary() && holds
	}
	return holds
}

func (p *parser) primary() bool {
	switch {
	case p.accept("("):
		holds := p.or()
		p.expect(")")
		return holds
	case p.accept("attribute_exists"):
		return p.attribute() != nil
	case p.accept("attribute_not_exists"):
		return p.attribute() == nil
	}
	left := p.operand()
	operator := p.next()
	right := p.operand()
	if left == nil || right == nil {
		return false // a comparison with a missing attribute is false
	}
	switch order := compare(left, right); operator {
	case "=":
		return order == 0
	case "<>":
		return order != 0
	case "<":
		return order == -1
	case "<=":
		return order == -1 || order == 0
	case ">":
		return order == 1
	}
	p.fail("operator " + operator)
	return false
}

func (p *parser) attribute() types.AttributeValue {
	p.expect("(")
	v := p.operand()
	p.expect(")")
	return v
}

func (p *parser) operand() types.AttributeValue {
	t := p.next()
	if strings.HasPrefix(t, ":") {
		v := p.values[t]
		if v == nil {
			p.fail("value " + t + " is not defined")
		}
		return v
	}
	return p.item[p.name(t)]
}

func (p *parser) name(t string) string {
	if !strings.HasPrefix(t, "#") {
		if reserved[strings.ToUpper(t)] {
			p.fail(t + " is a reserved word")
		}
		return t
	}
	name := p.names[t]
	if name == "" {
		p.fail("name " + t + " is not defined")
	}
	return name
}

// update applies an update expression to item; operands refer to old. The expression must
// not name the key.
func update(expression string, names map[string]string, values, old, item Item, key string) error {
	p := newParser(expression, names, values, old)
	target := func() string {
		name := p.name(p.next())
		if name == key {
			p.fail("Cannot update attribute " + key + ". This attribute is part of the key")
		}
		return name
	}
	for p.err == nil && p.peek() != "" {
		switch {
		case p.accept("SET"):
			for again := true; again && p.err == nil; again = p.accept(",") {
				name := target()
				p.expect("=")
				if v := p.sum(); v != nil {
					item[name] = v
				} else {
					p.fail("an operand does not exist")
				}
			}
		case p.accept("REMOVE"):
			for again := true; again && p.err == nil; again = p.accept(",") {
				delete(item, target())
			}
		default:
			p.fail("unexpected " + p.peek())
		}
	}
	return p.err
}

func (p *parser) sum() types.AttributeValue {
	v := p.term()
	if !p.accept("+") {
		return v
	}
	a, aOK := v.(*types.AttributeValueMemberN)
	b, bOK := p.term().(*types.AttributeValueMemberN)
	if !aOK || !bOK {
		p.fail("+ needs numbers")
		return nil
	}
	return &types.AttributeValueMemberN{Value: new(big.Rat).Add(rat(a), rat(b)).RatString()}
}

func (p *parser) term() types.AttributeValue {
	if !p.accept("if_not_exists") {
		return p.operand()
	}
	p.expect("(")
	first := p.operand()
	p.expect(",")
	second := p.operand()
	p.expect(")")
	if first != nil {
		return first
	}
	return second
}
