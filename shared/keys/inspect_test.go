package keys

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/awstest"
	"payhook.example/shared/names"
)

// rfc7638 is the key of section 3.1 of RFC 7638.
const rfc7638 = `{"kty":"RSA","alg":"RS256","use":"sig","kid":"%s",` +
	`"n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjB` +
	`ZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8` +
	`KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_` +
	`xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw","e":"AQAB"}`

func newInspector(t *testing.T, id string, item awstest.Item) (*Inspector, *awstest.DynamoDB) {
	t.Helper()
	db := awstest.NewDynamoDB()
	db.CreateTable("keys", names.KeysKey)
	if item != nil {
		item[names.KeysKey] = &types.AttributeValueMemberS{Value: id}
		if _, err := db.PutItem(t.Context(),
			&dynamodb.PutItemInput{TableName: aws.String("keys"), Item: item}); err != nil {
			t.Fatal(err)
		}
	}
	return NewInspector(db, "keys"), db
}

func TestFindReturnsWhatTheFunctionsUse(t *testing.T) {
	id, at := uuid.New().String(), time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	text := fmt.Sprintf(rfc7638, id)
	key, err := ParseJWK([]byte(text), id, []int{65537})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		jwk            string
		known, refused bool
	}{
		"known":       {text, true, false},
		"unknown":     {"", false, false},
		"another id":  {fmt.Sprintf(rfc7638, uuid.New().String()), false, true},
		"not a JWK":   {"[]", false, true},
		"no exponent": {strings.Replace(text, `,"e":"AQAB"`, "", 1), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			item := awstest.Item{"fetchedAt": number(at.UnixMilli()), names.KeysTTL: number(at.Add(time.Hour).Unix())}
			if test.jwk != "" {
				item["jwk"] = &types.AttributeValueMemberS{Value: test.jwk}
			}
			inspector, _ := newInspector(t, id, item)
			got, ok, err := inspector.Find(t.Context(), id)
			if err != nil || !ok {
				t.Fatalf("%t, %v", ok, err)
			}
			if known := got.Key != nil; known != test.known || known && !got.Key.Equal(key) {
				t.Errorf("key: %+v", got.Key)
			}
			if (got.Refused != nil) != test.refused {
				t.Errorf("refused: %v", got.Refused)
			}
			if got.FetchedAt != at || got.ExpiresAt != at.Add(time.Hour) {
				t.Errorf("fetched %s, expires %s", got.FetchedAt, got.ExpiresAt)
			}
		})
	}
}

func TestDropMakesFunctionsFetchAgain(t *testing.T) {
	f := newFleet(t)
	f.expect(f.cache(), nil, Service, 1)
	inspector := NewInspector(f.db, "keys")
	if got, ok, err := inspector.Find(t.Context(), id); !ok || err != nil || !got.Key.Equal(&generated(0).PublicKey) ||
		!got.FetchedAt.Equal(f.now) {
		t.Fatalf("%+v, %t, %v", got, ok, err)
	}
	f.expect(f.cache(), nil, SharedTable, 0)
	for range 2 { // dropping it twice is not an error
		if err := inspector.Drop(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok, err := inspector.Find(t.Context(), id); ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
	f.expect(f.cache(), nil, Service, 1)
}

func TestFindIgnoresBudgets(t *testing.T) {
	inspector, _ := newInspector(t, "misses#1", awstest.Item{"misses": number(1)})
	if _, ok, err := inspector.Find(t.Context(), "misses#1"); ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
}

func TestFindReportsAFailingTable(t *testing.T) {
	inspector, _ := newInspector(t, "", nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := inspector.Find(ctx, uuid.New().String()); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := inspector.Drop(ctx, uuid.New().String()); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestThumbprintIsThatOfRFC7638(t *testing.T) {
	id := uuid.New().String()
	key, err := ParseJWK([]byte(fmt.Sprintf(rfc7638, id)), id, []int{65537})
	if err != nil {
		t.Fatal(err)
	}
	if got := Thumbprint(key); got != "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs" {
		t.Errorf("got %s", got)
	}
}
