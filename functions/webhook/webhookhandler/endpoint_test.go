package webhookhandler

import (
	"context"
	"encoding/base64"
	"encoding/json/v2"
	"net/http"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"payhook.example/functions/internal/functiontest"
	"payhook.example/shared/keys"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

// endpoint is the function with stores in memory, and a payment service on this machine.
type endpoint struct {
	*functiontest.Function
	*Handler
	service *paymenttest.Server
	keys    keyTable
}

// keyTable is a table of keys in memory. A write of a key waits for stored, if that is set.
type keyTable struct {
	*keys.Memory
	stored  chan struct{}
	senders int // how many were recorded
}

func (t *keyTable) RecordSender(ctx context.Context, name string, now, oldest, expires time.Time) (time.Time, error) {
	t.senders++
	return t.Memory.RecordSender(ctx, name, now, oldest, expires)
}

func (t *keyTable) Put(ctx context.Context, r keys.Record, version string) (bool, *keys.Record, error) {
	if t.stored != nil && r.Answer == keys.Fresh {
		<-t.stored
	}
	return t.Memory.Put(ctx, r, version)
}

// start sets the function up. env are environment variables.
func start(t testing.TB, baseURL string, keyEndpoint *http.Client, env map[string]string) *endpoint {
	t.Helper()
	e := &endpoint{Function: functiontest.New(t, "webhook", map[string]string{"baseUrl": baseURL}, env)}
	e.keys.Memory = &e.Keys
	stores := e.Stores()
	stores.Keys = &e.keys
	e.Handler = New(stores, keyEndpoint, e.Conf, e.NewLog())
	return e
}

func newEndpoint(t testing.TB, env map[string]string) *endpoint {
	t.Helper()
	return withService(t, functiontest.SigningKey(), env)
}

// withService returns an endpoint with a service that has a signing key.
func withService(t testing.TB, key paymenttest.Key, env map[string]string) *endpoint {
	t.Helper()
	service := paymenttest.NewServer(paymenttest.Options{Key: key})
	t.Cleanup(service.Close)
	e := start(t, service.URL, &http.Client{}, env)
	e.service = service
	return e
}

// request signs a webhook and returns the event of the function URL.
func (e *endpoint) request(t testing.TB, w paymenttest.Webhook) events.APIGatewayV2HTTPRequest {
	t.Helper()
	signed, err := e.service.Sender().Sign(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	r := unsigned(signed.Payload)
	r.RawQueryString, r.Headers = signed.Query, signed.Headers
	return r
}

// signed returns the event of an authentic webhook with these events.
func (e *endpoint) signed(t testing.TB, list ...payment.Event) events.APIGatewayV2HTTPRequest {
	t.Helper()
	return e.request(t, paymenttest.Webhook{Payload: paymenttest.Delivery(list...)})
}

// unsigned returns a webhook without any proof.
func unsigned(payload []byte) events.APIGatewayV2HTTPRequest {
	r := events.APIGatewayV2HTTPRequest{Version: "2.0", RawPath: "/", Headers: map[string]string{},
		Body: string(payload)}
	r.RequestContext.HTTP.Method = http.MethodPost
	return r
}

// encode returns the event of a request as AWS encodes it.
func encode(t testing.TB, r events.APIGatewayV2HTTPRequest) []byte {
	t.Helper()
	if !utf8.ValidString(r.Body) {
		r.Body, r.IsBase64Encoded = base64.StdEncoding.EncodeToString([]byte(r.Body)), true
	}
	event, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return event
}

// invoke invokes the function as Lambda does, and decodes its response as AWS does.
func (e *endpoint) invoke(ctx context.Context, t testing.TB,
	r events.APIGatewayV2HTTPRequest) (response events.LambdaFunctionURLResponse) {
	t.Helper()
	text, err := e.Invoke(ctx, encode(t, r))
	if err == nil {
		err = json.Unmarshal(text, &response)
	}
	if err != nil {
		t.Fatal(err)
	}
	return response
}

func (e *endpoint) handle(t testing.TB, r events.APIGatewayV2HTTPRequest) events.LambdaFunctionURLResponse {
	t.Helper()
	ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "request-1"})
	return e.invoke(ctx, t, r)
}

// send sends an authentic webhook with these events.
func (e *endpoint) send(t testing.TB, list ...payment.Event) events.LambdaFunctionURLResponse {
	t.Helper()
	return e.handle(t, e.signed(t, list...))
}
