package awstest

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// invalid returns the error of DynamoDB for an invalid request.
func invalid(message string) error {
	return &smithy.GenericAPIError{Code: "ValidationException", Message: message, Fault: smithy.FaultClient}
}

// value returns a value for an item: a constant, an attribute, or what is computed from them.
// It is nil if the item has no such attribute.
type value func(item Item) types.AttributeValue

// condition reports whether an item, nil for none, meets a condition.
type condition func(item Item) bool

// changes are the changes of an update, by their attributes. A nil value removes the attribute.
type changes map[string]value

// apply returns a copy of an item with the changes, whose values are computed from the item.
func (c changes) apply(old Item) (Item, error) {
	item := Item{}
	maps.Copy(item, old)
	for name, value := range c {
		if delete(item, name); value == nil {
			continue
		}
		if item[name] = value(old); item[name] == nil {
			return nil, invalid("The provided expression refers to an attribute that does not exist in the item")
		}
	}
	return item, nil
}

// parser parses what Payhook sends to DynamoDB, in expressions and in PartiQL: conditions with
// AND, OR, comparisons and attribute_(not_)exists, and changes with SET, REMOVE, + and
// if_not_exists. Everything else is an error, also a name or a value that is not defined.
type parser struct {
	tokens     []string
	names      map[string]string      // in place of #name
	values     Item                   // in place of :value
	statement  bool                   // of PartiQL
	parameters []types.AttributeValue // of a statement, in place of the next question marks

	compared []string // the attributes that comparisons name
	equal    Item     // the values that attributes are compared with by an equals sign
	err      error
}

var token = regexp.MustCompile(`[A-Za-z_]\w*|[#:]\w+|"[^"]+"|'[^']+'|<=|<>|[=<>(),+?{}:*]`)

func newParser(text string, names map[string]string, values Item) *parser {
	p := &parser{names: names, values: values, equal: Item{}}
	p.tokens = token.FindAllString(text, -1)
	if strings.Join(p.tokens, "") != strings.Join(strings.Fields(text), "") {
		p.fail("syntax")
	}
	return p
}

// parse parses an expression; without one, it returns the default.
func parse[T any](text *string, names map[string]string, values Item, otherwise T, rule func(*parser) T) (T, error) {
	if text == nil {
		return otherwise, nil
	}
	p := newParser(*text, names, values)
	parsed := rule(p)
	return parsed, p.end()
}

// always is the condition of a write that has none.
var always condition = func(Item) bool { return true }

// end returns the first error, or one if anything is left.
func (p *parser) end() error {
	if len(p.tokens)+len(p.parameters) > 0 {
		p.fail("unexpected " + p.peek())
	}
	return p.err
}

func (p *parser) fail(message string) {
	if p.err == nil {
		p.err = invalid("expression: " + message)
	}
	p.tokens, p.parameters = nil, nil
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
	}
	p.accept(t)
	return t
}

func (p *parser) accept(t string) bool {
	accepted := len(p.tokens) > 0 && strings.EqualFold(p.tokens[0], t)
	if accepted {
		p.tokens = p.tokens[1:]
	}
	return accepted
}

func (p *parser) expect(tokens ...string) {
	for _, t := range tokens {
		if !p.accept(t) {
			p.fail("expected " + t)
		}
	}
}

// list parses elements between commas.
func (p *parser) list(element func()) {
	for more := true; more && p.err == nil; more = p.accept(",") {
		element()
	}
}

func (p *parser) or() condition {
	c := p.and()
	for p.accept("OR") {
		left, right := c, p.and()
		c = func(item Item) bool { return left(item) || right(item) }
	}
	return c
}

func (p *parser) and() condition {
	c := p.primary()
	for p.accept("AND") {
		left, right := c, p.primary()
		c = func(item Item) bool { return left(item) && right(item) }
	}
	return c
}

func (p *parser) primary() condition {
	if p.accept("(") {
		c := p.or()
		p.expect(")")
		return c
	}
	for function, exists := range map[string]bool{"attribute_exists": true, "attribute_not_exists": false} {
		if p.accept(function) {
			p.expect("(")
			name := p.name()
			p.expect(")")
			return func(item Item) bool { return (item[name] != nil) == exists }
		}
	}
	return p.comparison()
}

// operators are the signs of the comparison of two values that meet an operator. Values of
// different types are only unequal.
var operators = map[string][]int{"=": {0}, "<>": {-1, 1, differ}, "<": {-1}, "<=": {-1, 0}, ">": {1}}

// comparison parses the comparison of an attribute with a constant. An attribute that the item
// has not is unequal to every constant.
func (p *parser) comparison() condition {
	name, operator, constant := p.name(), p.next(), p.constant()
	if operators[operator] == nil {
		p.fail("operator " + operator)
	}
	p.compared = append(p.compared, name)
	if operator == "=" {
		p.equal[name] = constant
	}
	return func(item Item) bool {
		return slices.Contains(operators[operator], compare(item[name], constant))
	}
}

// projection parses the names of attributes.
func (p *parser) projection() (attributes []string) {
	p.list(func() { attributes = append(attributes, p.name()) })
	return attributes
}

// name parses the name of an attribute or a table.
func (p *parser) name() string {
	t := p.next()
	name, quoted := strings.CutPrefix(t, `"`)
	name = strings.TrimSuffix(name, `"`)
	if alias, ok := strings.CutPrefix(t, "#"); ok {
		name = p.names["#"+alias]
	}
	if quoted != p.statement || !word.MatchString(name) && !quoted {
		p.fail("the name " + t)
	}
	return name
}

// word is a name without quotation marks.
var word = regexp.MustCompile(`^\w+$`)

// constant parses a value of the request.
func (p *parser) constant() (v types.AttributeValue) {
	t := p.next()
	if t == "?" && len(p.parameters) > 0 {
		v, p.parameters = p.parameters[0], p.parameters[1:]
	} else {
		v = p.values[t]
	}
	if v == nil {
		p.fail("the value " + t)
	}
	return v
}

// changes parses the sections of an update. An expression has each section once.
func (p *parser) changes() changes {
	c, sections := changes{}, map[string]bool{}
	for p.err == nil {
		section := strings.ToUpper(p.peek())
		if section != "SET" && section != "REMOVE" || sections[section] && !p.statement {
			break
		}
		sections[p.next()] = true
		p.list(func() {
			name := p.name()
			if c[name] = nil; section == "SET" {
				p.expect("=")
				c[name] = p.sum()
			}
		})
	}
	return c
}

func (p *parser) sum() value {
	first := p.term()
	if !p.accept("+") {
		return first
	}
	second := p.term()
	return func(item Item) types.AttributeValue {
		a, aOK := number(first(item))
		b, bOK := number(second(item))
		if !aOK || !bOK {
			return nil
		}
		return &types.AttributeValueMemberN{Value: strconv.FormatInt(a+b, 10)}
	}
}

func (p *parser) term() value {
	if t := p.peek(); t == "?" || strings.HasPrefix(t, ":") {
		constant := p.constant()
		return func(Item) types.AttributeValue { return constant }
	}
	var otherwise types.AttributeValue // in place of an attribute that the item has not
	function := p.accept("if_not_exists")
	if function {
		p.expect("(")
	}
	name := p.name()
	if function {
		p.expect(",")
		otherwise = p.constant()
		p.expect(")")
	}
	return func(item Item) types.AttributeValue {
		if v := item[name]; v != nil {
			return v
		}
		return otherwise
	}
}
