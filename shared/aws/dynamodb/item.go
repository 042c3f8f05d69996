package dynamodb

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/ledger"
)

type attributes = map[string]types.AttributeValue

// encode appends the values of the attributes of an item that are not zero, in their order, and returns a bit for each
// of them. What is written with a shard has attempts, also zero.
func encode(i *ledger.Item, written bool, values []types.AttributeValue) (bits uint32, _ []types.AttributeValue) {
	for n, f := range ledger.Attributes {
		value := f.Value(i)
		if value == nil && written && i.Shard != "" && f.Name == "attempts" {
			value = int64(0) // a lease can only add to what exists
		}
		if value != nil {
			bits |= 1 << n
			values = append(values, attribute(value))
		}
	}
	return bits, values
}

// attribute returns a value of an item as DynamoDB has it.
func attribute(value any) types.AttributeValue {
	switch v := value.(type) {
	case int64:
		return number(v)
	case bool:
		return &types.AttributeValueMemberBOOL{Value: v}
	case []byte:
		return &types.AttributeValueMemberB{Value: v}
	}
	return text(value.(string))
}

// valueOf returns a value of DynamoDB as that of an item; nil for one that no item has.
func valueOf(a types.AttributeValue) any {
	switch v := a.(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberBOOL:
		return v.Value
	case *types.AttributeValueMemberB:
		return v.Value
	case *types.AttributeValueMemberN:
		if n, err := strconv.ParseInt(v.Value, 10, 64); err == nil {
			return n
		}
	}
	return nil
}

// decode returns an item that was read, as far as its attributes can be decoded.
func decode(read attributes) (i ledger.Item) {
	var failed []string
	for _, f := range ledger.Attributes {
		if a, ok := read[f.Name]; ok && !f.Set(&i, valueOf(a)) {
			failed = append(failed, f.Name)
		}
	}
	if failed != nil {
		slices.Sort(failed)
		i.Err = fmt.Errorf("can't decode %s", strings.Join(failed, ", "))
	}
	return i
}

// itemOf returns the item that a write returns; nil for none.
func itemOf(read attributes) *ledger.Item {
	if len(read) == 0 {
		return nil
	}
	i := decode(read)
	return &i
}

// decodeAll returns the items that were read.
func decodeAll(list []attributes) []ledger.Item {
	items := make([]ledger.Item, len(list))
	for n, read := range list {
		items[n] = decode(read)
	}
	return items
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}
