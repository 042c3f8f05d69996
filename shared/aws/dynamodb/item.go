package dynamodb

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/ledger"
	"payhook.example/shared/settings"
)

type attributes = map[string]types.AttributeValue

// codec is an attribute of the ledger's table. Times are in Unix milliseconds, the TTL in Unix seconds.
type codec struct {
	name   string
	part   ledger.Part
	encode func(*ledger.Item) types.AttributeValue // nil if the field is zero
	decode func(*ledger.Item, types.AttributeValue) error
}

// codecs are the attributes of the ledger's table, in the order in which they are written. The first is the key.
var codecs = [...]codec{
	ofText(settings.LedgerKey, ledger.Identity, func(i *ledger.Item) *string { return &i.EventID }),
	ofArray("digest", ledger.Identity, func(i *ledger.Item) []byte { return i.Digest[:] }),
	ofText("deliveryId", ledger.Identity, func(i *ledger.Item) *string { return &i.DeliveryID }),
	ofTime(settings.LedgerRecordedAt, ledger.Identity, func(i *ledger.Item) *time.Time { return &i.RecordedAt }),
	ofText("decidedBy", ledger.Identity, func(i *ledger.Item) *string { return &i.Decision.By }),
	ofTime("decidedAt", ledger.Identity, func(i *ledger.Item) *time.Time { return &i.Decision.At }),
	ofText("reason", ledger.Identity, func(i *ledger.Item) *string { return &i.Decision.Reason }),
	ofText("amount", ledger.Identity, func(i *ledger.Item) *string { return &i.Amount }),
	ofText("currency", ledger.Identity, func(i *ledger.Item) *string { return &i.Currency }),
	{settings.LedgerEvent, ledger.Content,
		func(i *ledger.Item) types.AttributeValue {
			if i.Detail == nil {
				return nil
			}
			return binary(i.Detail)
		},
		func(i *ledger.Item, v types.AttributeValue) (err error) {
			i.Detail, err = bytesOf(v)
			return err
		}},
	ofInt(settings.LedgerSize, ledger.Content, func(i *ledger.Item) *int { return &i.Size },
		func(*ledger.Item) bool { return false }),
	{settings.LedgerClaimed, ledger.Content,
		func(i *ledger.Item) types.AttributeValue {
			if !i.Claimed {
				return nil
			}
			return &types.AttributeValueMemberBOOL{Value: true}
		},
		func(i *ledger.Item, v types.AttributeValue) error {
			b, ok := v.(*types.AttributeValueMemberBOOL)
			if !ok {
				return errType
			}
			i.Claimed = b.Value
			return nil
		}},
	ofText("state", ledger.Rest, func(i *ledger.Item) *ledger.State { return &i.State }),
	ofText(settings.LedgerShard, ledger.Rest, func(i *ledger.Item) *string { return &i.Shard }),
	ofTime(settings.LedgerDue, ledger.Rest, func(i *ledger.Item) *time.Time { return &i.Due }),
	// What is pending has it also if it is zero: a lease can add to what exists alone.
	ofInt("attempts", ledger.Rest, func(i *ledger.Item) *int { return &i.Attempts },
		func(i *ledger.Item) bool { return i.Shard != "" }),
	ofArray("holder", ledger.Rest, func(i *ledger.Item) []byte { return i.Holder[:] }),
	ofText(settings.LedgerCause, ledger.Rest, func(i *ledger.Item) *string { return &i.Cause }),
	ofText("problem", ledger.Rest, func(i *ledger.Item) *string { return &i.Problem }),
	ofTime("eventTimestamp", ledger.Rest, func(i *ledger.Item) *time.Time { return &i.EventTimestamp }),
	ofTime("publishedAt", ledger.Rest, func(i *ledger.Item) *time.Time { return &i.PublishedAt }),
	{settings.LedgerTTL, ledger.Rest,
		func(i *ledger.Item) types.AttributeValue {
			if i.ExpiresAt.IsZero() {
				return nil
			}
			return number(i.ExpiresAt.Unix())
		},
		func(i *ledger.Item, v types.AttributeValue) error {
			n, err := intOf(v)
			if err == nil {
				i.ExpiresAt = time.Unix(n, 0).UTC()
			}
			return err
		}},
}

// errType is the error of an attribute that has another type.
var errType = errors.New("another type")

func ofText[T ~string](name string, part ledger.Part, at func(*ledger.Item) *T) codec {
	return codec{name, part,
		func(i *ledger.Item) types.AttributeValue {
			if *at(i) == "" {
				return nil
			}
			return text(string(*at(i)))
		},
		func(i *ledger.Item, v types.AttributeValue) error {
			s, ok := v.(*types.AttributeValueMemberS)
			if !ok {
				return errType
			}
			*at(i) = T(s.Value)
			return nil
		}}
}

// ofArray is of an array of bytes.
func ofArray(name string, part ledger.Part, at func(*ledger.Item) []byte) codec {
	return codec{name, part,
		func(i *ledger.Item) types.AttributeValue {
			if strings.Trim(string(at(i)), "\x00") == "" {
				return nil
			}
			return binary(at(i))
		},
		func(i *ledger.Item, v types.AttributeValue) error {
			b, err := bytesOf(v)
			if err == nil && len(b) != len(at(i)) {
				return errType
			}
			copy(at(i), b)
			return err
		}}
}

func ofTime(name string, part ledger.Part, at func(*ledger.Item) *time.Time) codec {
	return codec{name, part,
		func(i *ledger.Item) types.AttributeValue {
			if at(i).IsZero() {
				return nil
			}
			return number(at(i).UnixMilli())
		},
		func(i *ledger.Item, v types.AttributeValue) error {
			n, err := intOf(v)
			if err == nil {
				*at(i) = time.UnixMilli(n).UTC()
			}
			return err
		}}
}

// ofInt is of a number, which is also written if it is zero and zero says so.
func ofInt(name string, part ledger.Part, at func(*ledger.Item) *int,
	zero func(*ledger.Item) bool) codec {
	return codec{name, part,
		func(i *ledger.Item) types.AttributeValue {
			if *at(i) == 0 && !zero(i) {
				return nil
			}
			return number(int64(*at(i)))
		},
		func(i *ledger.Item, v types.AttributeValue) error {
			n, err := intOf(v)
			if err == nil {
				*at(i) = int(n)
			}
			return err
		}}
}

func bytesOf(v types.AttributeValue) ([]byte, error) {
	b, ok := v.(*types.AttributeValueMemberB)
	if !ok {
		return nil, errType
	}
	return b.Value, nil
}

func intOf(v types.AttributeValue) (int64, error) {
	n, ok := v.(*types.AttributeValueMemberN)
	if !ok {
		return 0, errType
	}
	return strconv.ParseInt(n.Value, 10, 64)
}

// encode appends the values of the fields that are not zero, and returns a bit for each of them.
func encode(i *ledger.Item, values []types.AttributeValue) (uint32, []types.AttributeValue) {
	var bits uint32
	for n := range codecs {
		if v := codecs[n].encode(i); v != nil {
			bits |= 1 << n
			values = append(values, v)
		}
	}
	return bits, values
}

// decode returns an item that was read, as far as its attributes can be decoded.
func decode(read attributes) (i ledger.Item) {
	var failed []string
	for n := range codecs {
		c := &codecs[n]
		if v, ok := read[c.name]; ok && c.decode(&i, v) != nil {
			failed = append(failed, c.name)
		}
	}
	if failed != nil {
		slices.Sort(failed)
		i.Err = fmt.Errorf("can't decode %s", strings.Join(failed, ", "))
	}
	return i
}

// decodeNew returns the new item of a write. Its size is left out: only the index needs it.
func decodeNew(written attributes) ledger.Item {
	delete(written, settings.LedgerSize)
	return decode(written)
}

// decodeAll returns the items that were read.
func decodeAll(list []attributes) []ledger.Item {
	items := make([]ledger.Item, len(list))
	for n, read := range list {
		items[n] = decode(read)
	}
	return items
}

func keyOf(eventID string) attributes { return attributes{settings.LedgerKey: text(eventID)} }

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func binary(b []byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: b} }
