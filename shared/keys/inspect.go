package keys

import (
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/big"
	"time"

	"encoding/json/v2"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// InspectAPI is what of DynamoDB an [Inspector] needs.
type InspectAPI interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	DeleteItem(context.Context, *dynamodb.DeleteItemInput, ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error)
}

// Inspector looks at the table that all functions share keys by, for a person,
// and drops keys from it. It is safe for concurrent use.
type Inspector struct {
	client InspectAPI
	table  *string
}

// NewInspector returns an inspector of the table of that name.
func NewInspector(client InspectAPI, table string) *Inspector { return &Inspector{client, &table} }

// Cached is what the table holds of a key id. Its times are UTC.
type Cached struct {
	// Key is the key; nil if the service did not know the id, or if Refused.
	Key *rsa.PublicKey
	// Refused says why the functions do not use what is there; nil if they do, but
	// for the setting that says which exponents a key may have.
	Refused   error
	FetchedAt time.Time // when the service was asked
	// UnknownSince is when the service first called a key unknown that it had
	// given; zero if it has not. With a Key, the functions still use the key.
	UnknownSince time.Time
	ExpiresAt    time.Time // from when on no function uses it
}

// Find returns what the table holds of a key id, as of this moment, and false
// if that is nothing. The id is taken as a webhook wrote it: case counts here.
// The error is DynamoDB's.
func (i *Inspector) Find(ctx context.Context, id string) (Cached, bool, error) {
	out, err := i.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: i.table, Key: itemKey(id), ConsistentRead: aws.Bool(true)})
	if err != nil {
		return Cached{}, false, fmt.Errorf("keys: find %s: %w", id, err)
	}
	r := recordOf(out.Item)
	if r == nil {
		return Cached{}, false, nil
	}
	found := Cached{FetchedAt: r.fetchedAt.UTC(), UnknownSince: r.unknownSince.UTC(), ExpiresAt: r.expires.UTC()}
	if r.jwk != nil {
		found.Key, found.Refused = parseAnyExponent(r.jwk, id)
	}
	return found, true, nil
}

// parseAnyExponent is ParseJWK with whatever exponent the key has.
func parseAnyExponent(text []byte, id string) (*rsa.PublicKey, error) {
	var k jwk
	if err := json.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("keys: %w", errNotAJWK)
	}
	e, _ := exponent(k.E)
	return ParseJWK(text, id, []int{e})
}

// Drop deletes a key id from the table, so that a function that has no copy of
// its own asks the service again. It does nothing if the table does not hold
// the id. The error is DynamoDB's.
func (i *Inspector) Drop(ctx context.Context, id string) error {
	if _, err := i.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: i.table, Key: itemKey(id)}); err != nil {
		return fmt.Errorf("keys: drop %s: %w", id, err)
	}
	return nil
}

// Thumbprint returns the JWK thumbprint of a key with SHA-256 (RFC 7638), in
// base64url without padding: a short text by which two people can tell whether
// they look at one key. It is safe for concurrent use.
func Thumbprint(key *rsa.PublicKey) string {
	encode := base64.RawURLEncoding.EncodeToString
	// Section 3: the required members alone, in this order, without white space.
	sum := sha256.Sum256([]byte(`{"e":"` + encode(big.NewInt(int64(key.E)).Bytes()) + `","kty":"RSA","n":"` + encode(key.N.Bytes()) + `"}`))
	return encode(sum[:])
}
