package keys

import (
	"cmp"
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/payment"
)

// InspectAPI is the part of the DynamoDB client that an [Inspector] uses.
type InspectAPI interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
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
	ID string // as it was sent to the service
	// Key is the key; nil if the service did not know the id, or if Refused.
	Key *rsa.PublicKey
	// Refused is the reason why the functions do not use the stored key; nil if they
	// use it.
	Refused   error
	FetchedAt time.Time // when the request was sent to the service
	// UnknownSince is the time at which the service first reported a known key as
	// unknown; zero if it has not. If Key is not nil, the functions still use the key.
	UnknownSince time.Time
	ExpiresAt    time.Time // from this time, no function uses it
}

// Find returns the content of the table for a key id, with a consistent read, and
// false if there is none. The id can have any spelling. The error wraps that of DynamoDB.
func (t *Inspector) Find(ctx context.Context, id string) (Cached, bool, error) {
	out, err := t.client.GetItem(ctx,
		&dynamodb.GetItemInput{TableName: t.table, Key: idKey(id), ConsistentRead: aws.Bool(true)})
	if err != nil {
		return Cached{}, false, fmt.Errorf("keys: find %s: %w", id, err)
	}
	found, ok := cachedIn(out.Item)
	return found, ok, nil
}

// List returns the content of the table for every key id, keys before unknown ids, and of
// both the one that was fetched last first. Items that are no keys are not among them. It
// reads the whole table. The error wraps that of DynamoDB.
func (t *Inspector) List(ctx context.Context) ([]Cached, error) {
	var all []Cached
	pages := dynamodb.NewScanPaginator(t.client, &dynamodb.ScanInput{TableName: t.table,
		ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("keys: list: %w", err)
		}
		for _, attributes := range out.Items {
			if found, ok := cachedIn(attributes); ok {
				all = append(all, found)
			}
		}
	}
	slices.SortFunc(all, func(a, b Cached) int {
		if unknown := a.Key == nil && a.Refused == nil; unknown != (b.Key == nil && b.Refused == nil) {
			if unknown {
				return 1
			}
			return -1
		}
		return cmp.Or(b.FetchedAt.Compare(a.FetchedAt), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// cachedIn returns the content of an item, and false if it is not the item of a key id.
func cachedIn(attributes map[string]types.AttributeValue) (Cached, bool) {
	i := itemOf(attributes)
	if i == nil || strings.Contains(i.KeyID, "#") {
		return Cached{}, false
	}
	found := Cached{ID: cmp.Or(i.SentAs, i.KeyID), FetchedAt: i.FetchedAt.time().UTC(),
		UnknownSince: i.UnknownSince.time().UTC(), ExpiresAt: i.expires().UTC()}
	if i.JWK != "" {
		found.Key, found.Refused = ParseJWK([]byte(i.JWK), i.KeyID)
	}
	return found, true
}

// idKey returns the key of the item of a key id in any spelling.
func idKey(id string) map[string]types.AttributeValue {
	canonical, _ := payment.KeyID(id)
	return itemKey(canonical)
}

// Drop deletes a key id from the table, so that a function without its own copy
// fetches the key again. It does nothing if the table does not contain the id. The
// error wraps that of DynamoDB.
func (t *Inspector) Drop(ctx context.Context, id string) error {
	if _, err := t.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: t.table, Key: idKey(id)}); err != nil {
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
