package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"payhook.example/functions/webhook/webhookhandler"
	"payhook.example/shared/aws/stores"
	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// plain is a handler without anything that Payhook adds: it verifies no signature, and records,
// publishes and marks one event after another, with the defaults of the SDK.
type plain struct {
	db  *dynamodb.Client
	bus *eventbridge.Client
}

func newPlain(ctx context.Context) (plain, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	return plain{dynamodb.NewFromConfig(cfg), eventbridge.NewFromConfig(cfg)}, err
}

func (p plain) Invoke(ctx context.Context, event []byte) ([]byte, error) {
	var request events.LambdaFunctionURLRequest
	var delivery struct {
		DeliveryID string
		Events     []json.RawMessage
	}
	if err := json.Unmarshal(event, &request); err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(request.Body), &delivery); err != nil {
		return nil, err
	}
	for _, raw := range delivery.Events {
		var one struct{ EventID, EventName string }
		if err := json.Unmarshal(raw, &one); err != nil {
			return nil, err
		}
		id := &dynamodbtypes.AttributeValueMemberS{Value: one.EventID}
		item := map[string]dynamodbtypes.AttributeValue{
			settings.LedgerKey: id,
			"event":            &dynamodbtypes.AttributeValueMemberB{Value: raw},
		}
		if _, err := p.db.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String("ledger"), Item: item,
			ConditionExpression: aws.String("attribute_not_exists(eventId)")}); err != nil {
			return nil, err
		}
		if _, err := p.bus.PutEvents(ctx, &eventbridge.PutEventsInput{Entries: []types.PutEventsRequestEntry{{
			EventBusName: aws.String("payhook"), Source: aws.String("payhook"), DetailType: &one.EventName,
			Detail: aws.String(string(raw)), Resources: []string{delivery.DeliveryID}}}}); err != nil {
			return nil, err
		}
		if _, err := p.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{TableName: aws.String("ledger"),
			Key:                 map[string]dynamodbtypes.AttributeValue{settings.LedgerKey: id},
			UpdateExpression:    aws.String("REMOVE event"),
			ConditionExpression: aws.String("attribute_exists(eventId)")}); err != nil {
			return nil, err
		}
	}
	return json.Marshal(events.LambdaFunctionURLResponse{StatusCode: 200})
}

// serveAWS answers the calls of both handlers 10 ms after it has read them. It has the keys that were stored. Other
// calls have no effect, so that they need little CPU time.
func serveAWS(b *testing.B) (url string) {
	var mu sync.Mutex
	keys := map[string]json.RawMessage{} // items with a key, by its id
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || len(body) == 0 {
			return // the function opens a connection ahead
		}
		time.Sleep(10 * time.Millisecond)
		list := func(field, element, counted string) string {
			elements := strings.Repeat(","+element, bytes.Count(body, []byte(counted)))
			return fmt.Sprintf(`{%q:[%s]}`, field, strings.TrimPrefix(elements, ","))
		}
		answer := "{}"
		mu.Lock()
		defer mu.Unlock()
		switch target := r.Header.Get("X-Amz-Target"); {
		case strings.HasSuffix(target, ".PutItem") && bytes.Contains(body, []byte(`"TableName":"keys"`)):
			var put struct{ Item json.RawMessage }
			var item struct {
				KeyID struct{ S string }
				JWK   json.RawMessage
			}
			if err := errors.Join(json.Unmarshal(body, &put), json.Unmarshal(put.Item, &item)); err != nil {
				b.Error(err)
			}
			if item.JWK != nil {
				keys[item.KeyID.S] = put.Item
			}
		case strings.HasSuffix(target, ".GetItem"):
			var get struct {
				Key struct{ KeyID struct{ S string } }
			}
			if err := json.Unmarshal(body, &get); err != nil {
				b.Error(err)
			}
			if item := keys[get.Key.KeyID.S]; item != nil {
				answer = fmt.Sprintf(`{"Item":%s}`, item)
			}
		case strings.HasSuffix(target, ".PutEvents"):
			answer = list("Entries", `{"EventId":"1"}`, `"DetailType":`)
		case strings.HasSuffix(target, ".BatchExecuteStatement"):
			answer = list("Responses", `{"TableName":"ledger"}`, `"Statement":`)
		}
		w.Header().Set("X-Amz-Crc32", fmt.Sprint(crc32.ChecksumIEEE([]byte(answer)))) // which the SDK checks
		_, _ = io.WriteString(w, answer)
	}))
	b.Cleanup(server.Close)
	return server.URL
}

// BenchmarkDelivery compares the function with [plain]: a delivery of one event, one of one event with a new key, one
// of 100 events, and the start with the first delivery. Both are called in turns, so that the load of the machine is
// the same for both. A ratio of 0.5 means that the function needs half of what plain needs. The CPU
// time includes that of the servers in this process.
//
// NewKey includes the signing of the delivery. A start is what main does, and the first delivery, with a key that
// another process has stored. It excludes the start of the process, and TLS.
func BenchmarkDelivery(b *testing.B) {
	signing := paymenttest.NewKey(2048)
	keyEndpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(10 * time.Millisecond)
		key := signing
		key.ID = path.Base(r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(key.JWK())
	}))
	defer keyEndpoint.Close()
	env := map[string]string{
		"AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL": serveAWS(b), "AWS_ACCESS_KEY_ID": "id",
		"AWS_SECRET_ACCESS_KEY": "secret", "PAYHOOK_BASE_URL": keyEndpoint.URL, "PAYHOOK_EVENT_BUS_NAME": "payhook",
		settings.LedgerTableEnv: "ledger", settings.KeysTableEnv: "keys",
		settings.LargeEventBucketEnv: "large-events", settings.ParkingBucketEnv: "parking",
	}
	for name, value := range env {
		b.Setenv(name, value)
	}
	start := func() *webhookhandler.Handler {
		conf, clients, err := stores.Load("webhook", os.Getenv)
		if err != nil {
			b.Fatal(err)
		}
		clients.Connect(conf.KeyEndpoint)
		return webhookhandler.New(clients.Stores(conf), clients.KeyEndpoint(conf), conf,
			lambdaruntime.NewLog(io.Discard, "Payhook"))
	}
	startPlain := func() plain {
		p, err := newPlain(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		return p
	}
	// delivery returns a function that sends a new delivery of n events, signed by a key, to a handler.
	delivery := func(n int, key paymenttest.Key) func(lambda.Handler) {
		signed, err := (&paymenttest.Sender{Key: key}).Sign(b.Context(),
			paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Events(n)...)})
		if err != nil {
			b.Fatal(err)
		}
		r := events.APIGatewayV2HTTPRequest{Version: "2.0", Headers: signed.Headers, Body: string(signed.Payload)}
		r.RequestContext.HTTP.Method = http.MethodPost
		event, err := json.Marshal(r)
		if err != nil {
			b.Fatal(err)
		}
		return func(h lambda.Handler) {
			ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
			defer cancel()
			answer, err := h.Invoke(ctx, event)
			if err != nil || !bytes.HasPrefix(answer, []byte(`{"statusCode":200,`)) {
				b.Fatalf("%s %v", answer, err)
			}
		}
	}
	warm, warmPlain := start(), startPlain()
	newKey := func() {
		key := signing
		key.ID = uuid.New().String()
		delivery(1, key)(warm)
	}
	one, hundred := delivery(1, signing), delivery(100, signing)
	one(warm)
	one(warmPlain)
	for _, c := range []struct {
		name        string
		ours, other func()
	}{
		{"Start", func() { one(start()) }, func() { one(startPlain()) }},
		{"1Event", func() { one(warm) }, func() { one(warmPlain) }},
		{"NewKey", newKey, func() { one(warmPlain) }},
		{"100Events", func() { hundred(warm) }, func() { hundred(warmPlain) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			var ours, other used
			for b.Loop() {
				ours.add(c.ours)
				other.add(c.other)
			}
			b.ReportMetric(0, "ns/op") // of both together
			b.ReportMetric(ours.took.Seconds()*1000/float64(b.N), "ms")
			b.ReportMetric(float64(ours.took)/float64(other.took), "time/plain")
			b.ReportMetric(float64(ours.cpu)/float64(other.cpu), "CPU/plain")
		})
	}
}

// used is the time and the CPU time that calls took.
type used struct{ took, cpu time.Duration }

func (u *used) add(call func()) {
	start, cpu := time.Now(), cpuTime()
	call()
	u.took += time.Since(start)
	u.cpu += cpuTime() - cpu
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
