package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/awstest"
	"payhook.example/shared/ledger"
)

// A page of the index has its items, also those that can't be decoded, and its cursor.
func TestAPageOfTheIndex(t *testing.T) {
	client, _ := answering(t, `{"Items":[{"eventId":{"S":"1"},"size":{"S":"x"},"order":{"N":"5"}},`+
		`{"eventId":{"S":"2"},"size":{"N":"3"},"order":{"N":"6"}}],`+
		`"LastEvaluatedKey":{"eventId":{"S":"2"},"order":{"N":"6"},"shard":{"S":"s"}}}`)
	page, next, err := dynamodb.NewLedgerReader(client, "ledger").Query(t.Context(), ledger.Query{})
	if err != nil || len(page) != 2 || fmt.Sprint(page[0].Err) != "can't decode size" || page[1].Err != nil {
		t.Fatalf("%+v, %v", page, err)
	}
	page[0].Err = nil
	five, six := time.UnixMilli(5).UTC(), time.UnixMilli(6).UTC()
	want := []ledger.Item{{EventID: "1", LeasedUntil: five}, {EventID: "2", LeasedUntil: six, Size: 3}}
	if diff := cmp.Diff(want, page); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(&ledger.Item{EventID: "2", Shard: "s", LeasedUntil: six}, next); diff != "" {
		t.Error(diff)
	}
}

// keysOf returns the eventIds that a request asks for.
func keysOf(t *testing.T, r awstest.Request) (ids []string) {
	t.Helper()
	type keys struct{ Keys []map[string]value }
	for _, key := range decoded[struct{ RequestItems map[string]keys }](t, r.Body).RequestItems["ledger"].Keys {
		ids = append(ids, key["eventId"]["S"].(string))
	}
	return ids
}

// partly answers a call of BatchGetItem without the keys that are left.
func partly(t *testing.T, left func(id string) bool) func(awstest.Request) string {
	return func(r awstest.Request) string {
		items, rest := []map[string]value{}, []map[string]value{}
		for _, id := range keysOf(t, r) {
			if item := map[string]value{"eventId": text(id)}; left(id) {
				rest = append(rest, item)
			} else {
				items = append(items, item)
			}
		}
		answer := map[string]any{"Responses": map[string]any{"ledger": items}}
		if len(rest) > 0 {
			answer["UnprocessedKeys"] = map[string]any{"ledger": map[string]any{"Keys": rest}}
		}
		return encoded(answer)
	}
}

// DynamoDB may answer a part of a call. The pauses between calls that get nothing grow to a second. One that gets some
// of the items is followed by the next at once.
func TestWhatIsLeftUnprocessedIsAskedForAgain(t *testing.T) {
	ids, left := strings.Split("0123456789", ""), 10
	client, w := serving(t, partly(t, func(id string) bool {
		if id == "0" {
			left--
		}
		return id < fmt.Sprint(left)
	}))
	stuck, stuckWire := serving(t, partly(t, func(id string) bool { return id == "0" }))
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		got, err := dynamodb.NewLedgerReader(client, "ledger").Get(t.Context(), ids, true)
		requests := w.Requests()
		if err != nil || len(got) != len(ids) || time.Since(start) != 0 || len(requests) != 10 ||
			!strings.Contains(requests[9].Body, `"ConsistentRead":true`) || len(keysOf(t, requests[9])) != 1 {
			t.Errorf("%d items with %d calls in %s, %v", len(got), len(requests), time.Since(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		got, err = dynamodb.NewLedgerReader(stuck, "ledger").Get(ctx, ids, true)
		if !errors.Is(err, context.DeadlineExceeded) || len(got) != len(ids)-1 || time.Since(start) != 5*time.Second {
			t.Errorf("%d of %d after %s, %v", len(got), len(ids), time.Since(start), err)
		}
		// After 0, 0, 25, 75, 175, 375, 775, 1575, 2575, 3575 and 4575 ms.
		if n := len(stuckWire.Requests()); n != 11 {
			t.Errorf("%d calls in 5 seconds", n)
		}
	})
}

func TestAnErrorHasTheReasonsOfThrottlingWithoutTheirResources(t *testing.T) {
	reasons := func(texts ...string) string {
		all := []string{`{"resource":"arn:aws:dynamodb:eu-central-1:123456789012:table/keys"}`}
		for _, r := range texts {
			all = append(all, `{"reason":"`+r+`","resource":"arn:aws:dynamodb"}`)
		}
		list := "[" + strings.Join(all, ",") + "]"
		return `"ThrottlingReasons":` + list + `,"throttlingReasons":` + list // the errors differ
	}
	for want, answer := range map[string]string{
		"ProvisionedThroughputExceededException (A, B)": awstest.Refused("ProvisionedThroughputExceededException",
			reasons("A", "B", "A")),
		"ThrottlingException (A)":  awstest.Refused("ThrottlingException", reasons("A")),
		"RequestLimitExceeded (A)": awstest.Refused("RequestLimitExceeded", reasons("A")),
		"ThrottlingException":      awstest.Refused("ThrottlingException", reasons()),
	} {
		client, _ := answering(t, answer)
		if _, err := dynamodb.NewKeys(client, "keys").Get(t.Context(), "id"); fmt.Sprint(
			err,
		) != "DynamoDB GetItem: "+want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
