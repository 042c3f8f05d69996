package webhookhandler

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json/v2"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// endpoint is the function, set up as in main, with AWS services in memory and a
// payment service on this machine.
type endpoint struct {
	*Handler
	service     *paymenttest.Server
	ledger      table
	keys        keyTable
	bus         bus.Memory
	largeEvents objects.Memory
	parking     objects.Memory
	records     objects.Memory
	log         *bytes.Buffer
}

// confOf returns the default settings with some changes.
func confOf(t testing.TB, baseURL string, change map[string]string) settings.Config {
	t.Helper()
	deployed, err := settings.ParseDeployment(settings.Given{Deployment: "Payhook",
		Values: settings.Texts(map[string]string{"baseUrl": baseURL, "tokenStore": settings.NoToken}, "")})
	if err != nil {
		t.Fatal(err)
	}
	env := deployed.Environment("webhook", settings.Resources{settings.LedgerTableEnv: "ledger",
		settings.KeysTableEnv: "keys", settings.LargeEventBucketEnv: "large-events", settings.ParkingBucketEnv: "parking",
		settings.EventBusNameEnv: "payhook"})
	maps.Copy(env, change)
	s, err := settings.ParseFunction("webhook", func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// signingKey is the service's key in all tests. Generating one takes longer than most
// tests.
var signingKey = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(2048) })

// table is a ledger in memory. Its first writes wait for the end of their context if hangs is set.
type table struct {
	ledger.Memory
	hangs bool
}

func (t *table) Write(ctx context.Context, writes []ledger.Write) []ledger.WriteResult {
	if t.hangs {
		<-ctx.Done()
		return slices.Repeat([]ledger.WriteResult{{Err: ctx.Err()}}, len(writes))
	}
	return t.Memory.Write(ctx, writes)
}

// keyTable is a table of keys in memory. A write of a key waits for stored, if that is set.
type keyTable struct {
	keys.Memory
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

// newServices returns stores in memory.
func newServices() *endpoint { return &endpoint{log: &bytes.Buffer{}} }

// start sets the function up. change are environment variables.
func (e *endpoint) start(t testing.TB, baseURL string, keyEndpoint *http.Client, change map[string]string) {
	t.Helper()
	c := confOf(t, baseURL, change)
	stores := intake.Stores{Ledger: &e.ledger, Keys: &e.keys, Bus: &e.bus, LargeEvents: &e.largeEvents,
		Parking: &e.parking}
	if c.EvidenceBucket != "" {
		stores.Evidence = &e.records
	}
	e.Handler = New(stores, keyEndpoint, c, lambdaruntime.NewLog(e.log, "webhook"))
}

func newEndpoint(t testing.TB, change map[string]string) *endpoint {
	t.Helper()
	e := newServices()
	e.service = paymenttest.NewServer(paymenttest.Options{Key: signingKey()})
	t.Cleanup(e.service.Close)
	e.start(t, e.service.URL, &http.Client{}, change)
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

// nothingHappened fails the test if anything was recorded, published, stored or parked.
func (e *endpoint) nothingHappened(t testing.TB) {
	t.Helper()
	if n := len(e.ledger.Items()) + len(e.bus.Entries()) + len(e.largeEvents.Keys()) + len(e.parking.Keys()); n != 0 {
		t.Errorf("%d items, entries or objects were written", n)
	}
}

// line is the outcome line of the last webhook.
func (e *endpoint) line(t testing.TB) map[string]any {
	t.Helper()
	lines := bytes.Split(bytes.TrimSpace(e.log.Bytes()), []byte("\n"))
	return decoded(t, lines[len(lines)-1])
}

func decoded(t testing.TB, text []byte) (object map[string]any) {
	t.Helper()
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return object
}
