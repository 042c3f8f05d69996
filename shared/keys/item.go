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
	KeyID        string       `dynamodbav:"keyId"` // partition key
	JWK          string       `dynamodbav:"jwk,omitempty"`
	FetchedAt    milliseconds `dynamodbav:"fetchedAt,omitempty"`    // when the request was sent to the service
	UnknownSince milliseconds `dynamodbav:"unknownSince,omitempty"` // when the service first reported it as unknown
	UnknownAt    milliseconds `dynamodbav:"unknownAt,omitempty"`    // when it last did
	ExpiresAt    int64        `dynamodbav:"expiresAt,omitempty"`    // Unix seconds: the TTL
}

// sourceItem is the item of a source of authentic webhooks.
type sourceItem struct {
	Name      string       `dynamodbav:"keyId"` // partition key
	SeenAt    milliseconds `dynamodbav:"seenAt,omitempty"`
	ExpiresAt int64        `dynamodbav:"expiresAt,omitempty"` // Unix seconds: the TTL
}

// certificateItem is the item of the client certificate that was accepted last. It does
// not expire, so it also shows a certificate that expired long ago.
type certificateItem struct {
	Name         string       `dynamodbav:"keyId"` // partition key: lastCertificateID
	Subject      string       `dynamodbav:"subject,omitempty"`
	Issuer       string       `dynamodbav:"issuer,omitempty"`
	SerialNumber string       `dynamodbav:"serialNumber,omitempty"`
	Fingerprint  string       `dynamodbav:"fingerprint,omitempty"`
	Pin          string       `dynamodbav:"pin,omitempty"`
	NotAfter     int64        `dynamodbav:"notAfter,omitempty"` // Unix seconds
	AcceptedAt   milliseconds `dynamodbav:"acceptedAt,omitempty"`
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

// timeOf returns the time of Unix seconds; 0 stands for none.
func timeOf(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// record is what the table contains for a key id.
type record struct {
	jwk          []byte // nil: the id was unknown, or its key was removed
	fetchedAt    time.Time
	unknownSince time.Time // zero: never
	unknownAt    time.Time // zero: never
	expires      time.Time // zero: not known
}

// newItem returns the attributes of the item of a key id, without unknownAt.
func newItem(id string, r record) map[string]types.AttributeValue {
	return marshal(item{KeyID: id, JWK: string(r.jwk), FetchedAt: millisecondsOf(r.fetchedAt),
		UnknownSince: millisecondsOf(r.unknownSince), ExpiresAt: r.expires.Unix()})
}

// recordOf returns the record in an item, or nil if it contains none, or attributes of
// other types. Such a key is fetched again.
func recordOf(attributes map[string]types.AttributeValue) *record {
	var i item
	if err := attributevalue.UnmarshalMap(attributes, &i); err != nil || i.FetchedAt == 0 {
		return nil
	}
	r := &record{fetchedAt: i.FetchedAt.time(), unknownSince: i.UnknownSince.time(), unknownAt: i.UnknownAt.time(),
		expires: timeOf(i.ExpiresAt)}
	if i.JWK != "" {
		r.jwk = []byte(i.JWK)
	}
	return r
}

// newSourceItem returns the attributes of the item of a source that is seen now.
func newSourceItem(name string, now time.Time) map[string]types.AttributeValue {
	return marshal(sourceItem{name, millisecondsOf(now), now.Add(knownFor).Unix()})
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

// marshal returns the attributes of an item of this file.
func marshal(i any) map[string]types.AttributeValue {
	attributes, _ := attributevalue.MarshalMap(i) // strings and numbers cannot fail
	return attributes
}

func itemKey(id string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{names.KeysKey: &types.AttributeValueMemberS{Value: id}}
}

func number(n int64) *types.AttributeValueMemberN {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}
