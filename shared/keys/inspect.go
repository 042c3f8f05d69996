package keys

import (
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/big"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// InspectAPI is the part of the DynamoDB client that an [Inspector] uses.
type InspectAPI interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	DeleteItem(context.Context, *dynamodb.DeleteItemInput, ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput,
		error)
}

// Inspector reads and deletes keys of the shared table, for a person. It is safe for
// concurrent use.
type Inspector struct {
	client InspectAPI
	table  *string
}

// NewInspector returns an Inspector of the table of that name.
func NewInspector(client InspectAPI, table string) *Inspector { return &Inspector{client, &table} }

// Cached is the content of the table for a key id. Its times are in UTC.
type Cached struct {
	// Key is the key; nil if the service did not know the id, or if Refused.
	Key *rsa.PublicKey
	// Refused is the reason why the functions do not use the stored key; nil if they
	// use it. It ignores the setting of the allowed exponents.
	Refused   error
	FetchedAt time.Time // when the request was sent to the service
	// UnknownSince is the time at which the service first reported a known key as
	// unknown; zero if it has not. If Key is not nil, the functions still use the key.
	UnknownSince time.Time
	ExpiresAt    time.Time // from this time, no function uses it
}

// Find returns the content of the table for a key id, with a consistent read, and
// false if there is none. The id is case-sensitive: it must be written as in the
// webhook. The error wraps that of DynamoDB.
func (t *Inspector) Find(ctx context.Context, id string) (Cached, bool, error) {
	out, err := t.client.GetItem(ctx,
		&dynamodb.GetItemInput{TableName: t.table, Key: itemKey(id), ConsistentRead: aws.Bool(true)})
	if err != nil {
		return Cached{}, false, fmt.Errorf("keys: find %s: %w", id, err)
	}
	i := itemOf(out.Item)
	if i == nil {
		return Cached{}, false, nil
	}
	found := Cached{FetchedAt: i.FetchedAt.time().UTC(), UnknownSince: i.UnknownSince.time().UTC(),
		ExpiresAt: i.expires().UTC()}
	if i.JWK != "" {
		found.Key, found.Refused = ParseJWK([]byte(i.JWK), id, AnyExponent([]byte(i.JWK)))
	}
	return found, true, nil
}

// Drop deletes a key id from the table, so that a function without its own copy
// fetches the key again. It does nothing if the table does not contain the id. The
// error wraps that of DynamoDB.
func (t *Inspector) Drop(ctx context.Context, id string) error {
	if _, err := t.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: t.table, Key: itemKey(id)}); err != nil {
		return fmt.Errorf("keys: drop %s: %w", id, err)
	}
	return nil
}

// Thumbprint returns the JWK thumbprint of a key with SHA-256 (RFC 7638), in
// base64url without padding. Two people can compare it to check that they have the
// same key. It is safe for concurrent use.
func Thumbprint(key *rsa.PublicKey) string {
	encode := base64.RawURLEncoding.EncodeToString
	// Section 3: only the required members, in this order, without white space.
	sum := sha256.Sum256([]byte(`{"e":"` + encode(big.NewInt(int64(key.E)).Bytes()) + `","kty":"RSA","n":"` +
		encode(key.N.Bytes()) + `"}`))
	return encode(sum[:])
}
