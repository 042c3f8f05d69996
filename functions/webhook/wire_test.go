package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"payhook.example/shared/awstest"
	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/setup"
	"payhook.example/shared/telemetry"
)

// meeting blocks callers until a given number of them have arrived.
type meeting struct {
	mu      sync.Mutex
	waiting int
	all     int
	open    chan struct{}
}

func newMeeting(all int) *meeting { return &meeting{all: all, open: make(chan struct{})} }

func (m *meeting) join(ctx context.Context) error {
	m.mu.Lock()
	open := m.open
	if m.waiting++; m.waiting == m.all {
		close(m.open)
		m.waiting, m.open = 0, make(chan struct{})
	}
	m.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// aws answers over HTTP. It delays each kind of request until as many requests as a
// delivery needs are in progress.
func awsServer(t *testing.T, events int) (server *httptest.Server, connections *atomic.Int32) {
	rounds := map[string]*meeting{
		"DynamoDB_20120810.BatchExecuteStatement": newMeeting((events + 24) / 25),
		"AWSEvents.PutEvents":                     newMeeting((events + 9) / 10),
	}
	connections = &atomic.Int32{}
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		target := r.Header.Get("X-Amz-Target")
		if err := rounds[target].join(r.Context()); err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		if target != "AWSEvents.PutEvents" {
			n := strings.Count(string(body), `"Statement":`)
			io.WriteString(w, `{"Responses":[`+strings.TrimSuffix(strings.Repeat(`{},`, n), ",")+`]}`)
			return
		}
		n := strings.Count(string(body), `"DetailType"`)
		io.WriteString(w, `{"FailedEntryCount":0,"Entries":[`+
			strings.TrimSuffix(strings.Repeat(`{"EventId":"1"},`, n), ",")+`]}`)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return server, connections
}

// keysInMemory has the key table in memory. Only the ledger uses HTTP.
type keysInMemory struct {
	*dynamodb.Client
	keys *awstest.DynamoDB
}

func (k keysInMemory) GetItem(ctx context.Context, in *dynamodb.GetItemInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	return k.keys.GetItem(ctx, in, opts...)
}

func (k keysInMemory) PutItem(ctx context.Context, in *dynamodb.PutItemInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	if *in.TableName == "keys" {
		return k.keys.PutItem(ctx, in, opts...)
	}
	return k.Client.PutItem(ctx, in, opts...)
}

func (k keysInMemory) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	if *in.TableName == "keys" {
		return k.keys.UpdateItem(ctx, in, opts...)
	}
	return k.Client.UpdateItem(ctx, in, opts...)
}

// With fewer concurrent calls, the server would never answer.
func TestADeliveryNeedsThreeRoundTripsOnReusedConnections(t *testing.T) {
	const events = 100
	server, connections := awsServer(t, events)
	service := paymenttest.NewServer(paymenttest.Options{Key: signingKey()})
	defer service.Close()
	env := map[string]string{
		"AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL": server.URL, "AWS_ACCESS_KEY_ID": "test",
		"AWS_SECRET_ACCESS_KEY": "test",
	}
	c, err := setup.NewClients(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	keys := awstest.NewDynamoDB()
	keys.CreateTable("keys", names.KeysKey)
	h := newHandler(conf(t, service.URL, nil),
		clients{keysInMemory{c.DynamoDB, keys}, c.EventBridge, c.S3, &http.Client{}},
		telemetry.New(io.Discard, "webhook"))
	for range 3 {
		signed, err := service.Sender().Sign(t.Context(),
			paymenttest.Webhook{URL: "https://hook.example/",
				Payload: paymenttest.Delivery(paymenttest.Events(events)...)})
		if err != nil {
			t.Fatal(err)
		}
		if r := invoke(t.Context(), t, h, urlRequest(t, signed)); r.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", r.StatusCode, r.Body)
		}
	}
	// A connection goes back to the pool a moment after its answer was read, so
	// that a few more than the 10 calls at once may be opened. Closed after each call
	// they would be 54.
	if n := connections.Load(); n > 15 {
		t.Errorf("%d connections for 10 calls at once", n)
	}
	t.Logf("%d connections", connections.Load())
}
