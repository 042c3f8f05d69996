package keys

import (
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/names"
)

// item is the item of a key id. The partition keys of the other items have a '#', which
// no key id has: "misses#" or "reserve#" and a minute, "captured#" and an hour, "source#"
// and the hash of a source address, and "certificate#last".
//
// An item with FetchedAt and without JWK means that the id was unknown at that time. If it
// has UnknownSince, the key was known before and was removed.
type item struct {
	KeyID        string       `dynamodbav:"keyId"`            // partition key: the id in its canonical form
	SentAs       string       `dynamodbav:"sentAs,omitempty"` // the id in the request to the service
	JWK          string       `dynamodbav:"jwk,omitempty"`
	FetchedAt    milliseconds `dynamodbav:"fetchedAt,omitempty"`    // when the request was sent to the service
	UnknownSince milliseconds `dynamodbav:"unknownSince,omitempty"` // when the service first reported it as unknown
	UnknownAt    milliseconds `dynamodbav:"unknownAt,omitempty"`    // when it last did
	ExpiresAt    int64        `dynamodbav:"expiresAt,omitempty"`    // Unix seconds: the TTL
}

// milliseconds is a time in Unix milliseconds; 0 stands for none.
type milliseconds int64

func (m milliseconds) time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(m))
}

func millisecondsOf(t time.Time) milliseconds {
	if t.IsZero() {
		return 0
	}
	return milliseconds(t.UnixMilli())
}

// itemOf returns the item with these attributes, or nil if it contains no record of a key
// id, or attributes of other types. Such a key is fetched again.
func itemOf(attributes map[string]types.AttributeValue) *item {
	var i item
	if err := attributevalue.UnmarshalMap(attributes, &i); err != nil || i.FetchedAt == 0 {
		return nil
	}
	return &i
}

// expires returns the expiry of the item; the zero time if it is not known.
func (i *item) expires() time.Time {
	if i.ExpiresAt == 0 {
		return time.Time{}
	}
	return time.Unix(i.ExpiresAt, 0)
}

// sourceItem is the item of a source of authentic webhooks.
type sourceItem struct {
	Name      string       `dynamodbav:"keyId"` // partition key
	SeenAt    milliseconds `dynamodbav:"seenAt,omitempty"`
	ExpiresAt int64        `dynamodbav:"expiresAt,omitempty"` // Unix seconds: the TTL
}

// seenAt returns when an authentic webhook came from the source of an item; the zero time
// if the item does not say so.
func seenAt(attributes map[string]types.AttributeValue) time.Time {
	var i sourceItem
	if err := attributevalue.UnmarshalMap(attributes, &i); err != nil {
		return time.Time{}
	}
	return i.SeenAt.time()
}

// marshal returns the attributes of an item.
func marshal(i any) map[string]types.AttributeValue {
	attributes, _ := attributevalue.MarshalMap(i) // strings, numbers and times cannot fail
	return attributes
}

func itemKey(id string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{names.KeysKey: &types.AttributeValueMemberS{Value: id}}
}

func number(n int64) *types.AttributeValueMemberN {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}
