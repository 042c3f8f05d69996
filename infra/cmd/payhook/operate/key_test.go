package operate

import (
	"crypto/rand"
	"crypto/rsa"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/awstest"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
)

var generated = sync.OnceValue(func() *rsa.PublicKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return &key.PublicKey
})

// cache puts a key into the table as the functions do; an empty text is an id
// that the service did not know.
func (w *world) cache(id, jwk string, age, keep time.Duration) {
	w.t.Helper()
	at := w.now.Add(-age)
	item := awstest.Item{
		names.KeysKey: &types.AttributeValueMemberS{Value: id},
		"fetchedAt":   &types.AttributeValueMemberN{Value: strconv.FormatInt(at.UnixMilli(), 10)},
		names.KeysTTL: &types.AttributeValueMemberN{Value: strconv.FormatInt(at.Add(keep).Unix(), 10)},
	}
	if jwk != "" {
		item["jwk"] = &types.AttributeValueMemberS{Value: jwk}
	}
	if _, err := w.db.PutItem(w.t.Context(),
		&dynamodb.PutItemInput{TableName: aws.String("keys"), Item: item}); err != nil {
		w.t.Fatal(err)
	}
}

func textOf(t *testing.T, id string) string {
	t.Helper()
	return string(keys.FormatJWK(id, generated()))
}

func TestACachedKeyIsShown(t *testing.T) {
	w := newWorld(t)
	id := uuid.New().String()
	w.cache(id, textOf(t, id), 12*time.Minute, 24*time.Hour)
	out, _ := w.expect(0, "key", id)
	w.contains(out, id, "cached", "2048 bits, exponent 65537", keys.Thumbprint(generated()),
		"2026-01-31T11:48:00.000Z (12m ago)", "(in 23h48m)")
	out, _ = w.expect(0, "key", id, "--json")
	want := cachedKey{
		KeyID: id, State: "cached", Bits: 2048, Exponent: 65537, Thumbprint: keys.Thumbprint(generated()),
		FetchedAt: noon.Add(-12 * time.Minute), AgeSeconds: aws.Float64(720),
		ExpiresAt: noon.Add(24*time.Hour - 12*time.Minute),
	}
	if diff := cmp.Diff(want, document[cachedKey](t, out)); diff != "" {
		t.Error(diff)
	}
}

// mark marks a cached key as the functions do when the service first calls it
// unknown.
func (w *world) mark(id string, ago time.Duration) {
	w.t.Helper()
	_, err := w.db.UpdateItem(w.t.Context(), &dynamodb.UpdateItemInput{
		TableName:        aws.String("keys"),
		Key:              awstest.Item{names.KeysKey: &types.AttributeValueMemberS{Value: id}},
		UpdateExpression: aws.String("SET unknownSince = :since"),
		ExpressionAttributeValues: awstest.Item{
			":since": &types.AttributeValueMemberN{Value: strconv.FormatInt(w.now.Add(-ago).UnixMilli(), 10)},
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestWithdrawnKeyShowsSinceWhen(t *testing.T) {
	w := newWorld(t)
	id := uuid.New().String()
	w.cache(id, textOf(t, id), 2*time.Hour, 24*time.Hour)
	w.mark(id, 3*time.Minute)
	out, _ := w.expect(cli.StatusFailed, "key", id)
	w.contains(out, "withdrawn", "keyUnknownGrace (5m unless set otherwise)", "unknown since",
		"2026-01-31T11:57:00.000Z (3m ago)", keys.Thumbprint(generated()))
	out, _ = w.expect(cli.StatusFailed, "key", id, "--json")
	if got := document[cachedKey](t, out); got.State != "withdrawn" || !got.Stale ||
		!got.UnknownSince.Equal(noon.Add(-3*time.Minute)) {
		t.Errorf("%s", out)
	}

	w.cache(id, "", time.Minute, 22*time.Hour)
	w.mark(id, 8*time.Minute)
	out, _ = w.expect(cli.StatusFailed, "key", id)
	w.contains(out, "removed", "answered 401", "unknown since", "(8m ago)", "last asked")
	out, _ = w.expect(cli.StatusFailed, "key", id, "--json")
	if got := document[cachedKey](t, out); got.State != "removed" || got.Stale ||
		!got.UnknownSince.Equal(noon.Add(-8*time.Minute)) {
		t.Errorf("%s", out)
	}
}

func TestAnOldKeyIsShownAsStale(t *testing.T) {
	for age, stale := range map[time.Duration]bool{time.Hour - time.Second: false, time.Hour: true} {
		w := newWorld(t)
		id := uuid.New().String()
		w.cache(id, textOf(t, id), age, 24*time.Hour)
		out, _ := w.expect(0, "key", id)
		if got := strings.Contains(out, "stale: older than keyFreshness (1h unless set otherwise)"); got != stale {
			t.Errorf("%v old: %s", age, out)
		}
		out, _ = w.expect(0, "key", id, "--json")
		if got := document[cachedKey](t, out); got.State != "cached" || got.Stale != stale {
			t.Errorf("%v old: %s", age, out)
		}
	}
}

func TestAKeyThatIsNotUsedSaysWhy(t *testing.T) {
	id := uuid.New().String()
	for state, cache := range map[string]func(*world){
		"absent":  func(*world) {},
		"unknown": func(w *world) { w.cache(id, "", 12*time.Second, time.Minute) },
		"expired": func(w *world) { w.cache(id, textOf(t, id), 24*time.Hour, 24*time.Hour) },
		"refused": func(w *world) { w.cache(id, textOf(t, uuid.New().String()), time.Minute, 24*time.Hour) },
	} {
		w := newWorld(t)
		cache(w)
		out, _ := w.expect(cli.StatusFailed, "key", id)
		w.contains(out, stateTexts[state])
		out, _ = w.expect(cli.StatusFailed, "key", id, "--json")
		if got := document[cachedKey](t, out); got.State != state || got.KeyID != id ||
			(got.Cause != "") != (state == "refused") {
			t.Errorf("%s: %s", state, out)
		}
	}
}

func TestDroppedKeyIsDeleted(t *testing.T) {
	w := newWorld(t)
	id, other := uuid.New().String(), uuid.New().String()
	w.cache(id, textOf(t, id), time.Minute, 24*time.Hour)
	w.cache(other, textOf(t, other), time.Minute, 24*time.Hour)
	out, _ := w.expect(0, "key", id, "--drop")
	w.contains(out, "dropped.", keys.Thumbprint(generated()), "keyFreshness (1h unless set otherwise)",
		"keyMaxAge (24h)")
	w.expect(cli.StatusFailed, "key", id)
	w.expect(0, "key", other)

	out, _ = w.expect(0, "key", id, "--drop")
	w.contains(out, "nothing was cached, so nothing was dropped")
	out, _ = w.expect(0, "key", other, "--drop", "--json")
	if got := document[cachedKey](t, out); !got.Dropped || got.State != "cached" {
		t.Errorf("%s", out)
	}
}

// A key is cached under its id as the webhooks write it.
func TestAKeyIsFoundInEitherCase(t *testing.T) {
	id := "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d"
	for _, cached := range []string{id, strings.ToUpper(id), "0B7E4C1E-3d43-4f26-9c0d-2f1f6a5b7c8d"} {
		w := newWorld(t)
		w.cache(cached, textOf(t, cached), time.Minute, 24*time.Hour)
		for _, asked := range []string{id, strings.ToUpper(id), cached} {
			if asked != cached && cached != id && cached != strings.ToUpper(id) {
				continue // another mixture of cases is another text
			}
			out, _ := w.expect(0, "key", asked, "--json")
			if got := document[cachedKey](t, out); got.KeyID != cached {
				t.Errorf("%s for %s: %s", asked, cached, out)
			}
		}
		w.expect(0, "key", cached, "--drop")
		if left := w.db.Items("keys"); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
	}
}
