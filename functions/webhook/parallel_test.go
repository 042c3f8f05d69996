package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"payhook.example/shared/awstest"
	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/telemetry"
)

// lateKeys answers the writes of the table of keys only when a channel is closed.
type lateKeys struct {
	*awstest.DynamoDB
	until chan struct{}
	err   error
}

func (l lateKeys) PutItem(ctx context.Context, in *dynamodb.PutItemInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	if *in.TableName != "keys" {
		return l.DynamoDB.PutItem(ctx, in, opts...)
	}
	select {
	case <-l.until:
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

func TestTheAnswerWaitsUntilTheKeyIsStored(t *testing.T) {
	signingKey()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{t: t, service: &keyServiceInMemory{}}
		b.service.knows()
		db, bus, stored := awstest.NewDynamoDB(), &awstest.EventBridge{}, make(chan struct{})
		db.CreateLedger("ledger")
		db.CreateTable("keys", names.KeysKey)
		b.handler = newHandler(conf(t, "https://service.example", nil),
			clients{lateKeys{db, stored, nil}, bus, awstest.NewS3(), &http.Client{Transport: b.service}},
			telemetry.New(io.Discard, "webhook"))
		event := encode(t, b.request(signingKey().ID, "")) // of no source that could be stored
		answer := make(chan []byte, 1)
		go func() {
			text, err := b.handler.Invoke(t.Context(), event)
			if err != nil {
				t.Error(err)
			}
			answer <- text
		}()
		synctest.Wait()
		if len(answer) > 0 || len(bus.Entries()) != 1 {
			t.Errorf("%d answers, and %d events on the bus", len(answer), len(bus.Entries()))
		}
		close(stored)
		if text := <-answer; !bytes.HasPrefix(text, []byte(`{"statusCode":200,`)) {
			t.Errorf("%s", text)
		}
	})
}
