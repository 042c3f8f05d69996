package dynamodb

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/ledger"
)

type attributes = map[string]types.AttributeValue

// attempts is the attribute to which a lease adds.
const attempts = "attempts"

// encode appends the values of the fields of an item that are not zero, in their order, and returns a bit for each of
// them. Times are in Unix milliseconds, the TTL in Unix seconds.
func encode(i *ledger.Item, values []types.AttributeValue) (uint32, []types.AttributeValue) {
	var bits uint32
	for n := range ledger.Fields {
		f := &ledger.Fields[n]
		v := valueOf(f.At(i))
		if v == nil && i.Shard != "" && f.Name == attempts {
			v = number(0) // a lease can only add to what exists
		}
		if v != nil {
			bits |= 1 << n
			values = append(values, v)
		}
	}
	return bits, values
}

// valueOf returns the value of a field; nil if it is zero.
func valueOf(at any) types.AttributeValue {
	switch v := at.(type) {
	case *string:
		if *v != "" {
			return text(*v)
		}
	case *time.Time:
		if !v.IsZero() {
			return number(v.UnixMilli())
		}
	case *ledger.Seconds:
		if t := time.Time(*v); !t.IsZero() {
			return number(t.Unix())
		}
	case *int:
		if *v != 0 {
			return number(int64(*v))
		}
	case *bool:
		if *v {
			return &types.AttributeValueMemberBOOL{Value: true}
		}
	case *[]byte:
		if *v != nil {
			return binary(*v)
		}
	case *ledger.Digest:
		return notZero(v[:])
	case *ledger.Holder:
		return notZero(v[:])
	}
	return nil
}

// notZero returns bytes as a value; nil if all are zero.
func notZero(b []byte) types.AttributeValue {
	if len(bytes.Trim(b, "\x00")) == 0 {
		return nil
	}
	return binary(b)
}

// decode returns an item that was read, as far as its attributes can be decoded.
func decode(read attributes) (i ledger.Item) {
	var failed []string
	for _, f := range ledger.Fields {
		if v, ok := read[f.Name]; ok && !set(f.At(&i), v) {
			failed = append(failed, f.Name)
		}
	}
	if failed != nil {
		slices.Sort(failed)
		i.Err = fmt.Errorf("can't decode %s", strings.Join(failed, ", "))
	}
	return i
}

// set sets a field to a value, unless the value has another type.
func set(at any, value types.AttributeValue) bool {
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		if field, ok := at.(*string); ok {
			*field = v.Value
			return true
		}
	case *types.AttributeValueMemberBOOL:
		if field, ok := at.(*bool); ok {
			*field = v.Value
			return true
		}
	case *types.AttributeValueMemberB:
		return setBytes(at, v.Value)
	case *types.AttributeValueMemberN:
		n, err := strconv.ParseInt(v.Value, 10, 64)
		return err == nil && setNumber(at, n)
	}
	return false
}

func setBytes(at any, b []byte) bool {
	switch field := at.(type) {
	case *[]byte:
		*field = b
		return true
	case *ledger.Digest:
		return len(b) == len(field) && copy(field[:], b) > 0
	case *ledger.Holder:
		return len(b) == len(field) && copy(field[:], b) > 0
	}
	return false
}

func setNumber(at any, n int64) bool {
	switch field := at.(type) {
	case *int:
		*field = int(n)
	case *time.Time:
		*field = time.UnixMilli(n).UTC()
	case *ledger.Seconds:
		*field = ledger.Seconds(time.Unix(n, 0).UTC())
	default:
		return false
	}
	return true
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

func binary(b []byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: b} }
