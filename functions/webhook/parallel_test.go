package main

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"payhook.example/shared/awstest"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/telemetry"
)

// lateKeys answers the writes of the table of keys only when an event is on the bus.
type lateKeys struct {
	*awstest.DynamoDB
	published chan struct{}
	err       error
}

func (l lateKeys) PutItem(ctx context.Context, in *dynamodb.PutItemInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	if *in.TableName != "keys" {
		return l.DynamoDB.PutItem(ctx, in, opts...)
	}
	select {
	case <-l.published:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l.err != nil {
		return nil, l.err
	}
	return l.DynamoDB.PutItem(ctx, in, opts...)
}

// The first delivery with a new key does not wait until the key and its source are in the
// table. The answer does.
func TestAKeyIsStoredWhileTheEventsArePublished(t *testing.T) {
	for name, failure := range map[string]error{"": nil, "the table fails": errors.New("the table fails")} {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(t, nil)
			published := make(chan struct{})
			e.bus.Answer = func([]types.PutEventsRequestEntry) (map[int]string, error) {
				close(published)
				return nil, nil
			}
			e.handler = newHandler(conf(t, e.service.URL, nil),
				clients{lateKeys{e.db, published, failure}, e.bus, e.buckets, &http.Client{}},
				telemetry.New(e.log, "webhook"))
			r := e.request(t, paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())})
			r.RequestContext.HTTP.SourceIP = "192.0.2.1"
			if got := e.handle(t, r); got.StatusCode != http.StatusOK {
				t.Fatalf("%d %s", got.StatusCode, got.Body)
			}
			line := e.line(t)
			if _, failed := line["KeyTableFailed"]; failed != (failure != nil) || line["LeftPending"] != nil {
				t.Errorf("logged as %v", line)
			}
			want := 3 // the key, the source, the budget
			if failure != nil {
				want = 1
			}
			if n := len(e.db.Items("keys")); n != want {
				t.Errorf("%d items in the table of keys, want %d", n, want)
			}
		})
	}
}
