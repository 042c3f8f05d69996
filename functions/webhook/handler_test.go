package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
	"uuid"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	smtypes "github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/awstest"
	"payhook.example/shared/claimcheck"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
	"payhook.example/shared/telemetry"
	"payhook.example/shared/token"
)

// endpoint is the function, set up as in main, with AWS services in memory and a
// payment service on this machine.
type endpoint struct {
	*handler
	service *paymenttest.Server
	db      *awstest.DynamoDB
	broken  *brokenDynamoDB
	bus     *awstest.EventBridge
	buckets *awstest.S3
	log     *bytes.Buffer
}

// brokenDynamoDB fails the writes of some items.
type brokenDynamoDB struct {
	*awstest.DynamoDB
	fails func(id string) error
}

func (b *brokenDynamoDB) PutItem(ctx context.Context, in *dynamodb.PutItemInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	if id, ok := in.Item[names.LedgerKey].(*dynamodbtypes.AttributeValueMemberS); ok && b.fails != nil {
		if err := b.fails(id.Value); err != nil {
			return nil, err
		}
	}
	return b.DynamoDB.PutItem(ctx, in, opts...)
}

func (b *brokenDynamoDB) BatchExecuteStatement(ctx context.Context, in *dynamodb.BatchExecuteStatementInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.BatchExecuteStatementOutput, error) {
	if b.fails == nil {
		return b.DynamoDB.BatchExecuteStatement(ctx, in, opts...)
	}
	out := &dynamodb.BatchExecuteStatementOutput{}
	for _, s := range in.Statements {
		var r dynamodbtypes.BatchStatementResponse
		if id, ok := s.Parameters[0].(*dynamodbtypes.AttributeValueMemberS); ok && b.fails(id.Value) != nil {
			r.Error = &dynamodbtypes.BatchStatementError{Code: dynamodbtypes.BatchStatementErrorCodeEnumAccessDenied}
		} else {
			one, err := b.DynamoDB.BatchExecuteStatement(ctx,
				&dynamodb.BatchExecuteStatementInput{Statements: []dynamodbtypes.BatchStatementRequest{s}}, opts...)
			if err != nil {
				return nil, err
			}
			r = one.Responses[0]
		}
		out.Responses = append(out.Responses, r)
	}
	return out, nil
}

// conf returns the default settings with some changes.
func conf(t testing.TB, baseURL string, change map[string]string) settings.Webhook {
	t.Helper()
	env := map[string]string{
		names.LedgerTableEnv: "ledger", names.KeysTableEnv: "keys",
		names.ClaimBucketEnv: "claims", names.ParkingBucketEnv: "parking",
	}
	for _, s := range settings.WebhookSettings() {
		env[s.Env()] = s.Default
	}
	env[settings.BaseURL.Env()], env[settings.EventBusName.Env()] = baseURL, "payhook"
	maps.Copy(env, change)
	s, err := settings.ParseWebhook(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// signingKey is the service's key in all tests. Generating one takes longer than most
// tests.
var signingKey = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(2048) })

func newEndpoint(t *testing.T, change map[string]string) *endpoint {
	t.Helper()
	e := &endpoint{service: paymenttest.NewServer(paymenttest.Options{Key: signingKey()}), db: awstest.NewDynamoDB(),
		bus: &awstest.EventBridge{}, buckets: awstest.NewS3(), log: &bytes.Buffer{}}
	e.buckets.MakeBucket("claims")
	e.buckets.MakeBucket("parking")
	t.Cleanup(e.service.Close)
	e.db.CreateLedger("ledger")
	e.db.CreateTable("keys", names.KeysKey)
	e.broken = &brokenDynamoDB{DynamoDB: e.db}
	e.handler = newHandler(conf(t, e.service.URL, change), clients{e.broken, e.bus, e.buckets, &http.Client{}},
		telemetry.New(e.log, "webhook"))
	return e
}

// request signs a webhook and returns the event of the function URL.
func (e *endpoint) request(t testing.TB, w paymenttest.Webhook) events.APIGatewayV2HTTPRequest {
	t.Helper()
	w.URL = "https://hook.example/"
	signed, err := e.service.Sender().Sign(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	return urlRequest(t, signed)
}

func urlRequest(t testing.TB, signed paymenttest.Signed) events.APIGatewayV2HTTPRequest {
	t.Helper()
	u, err := url.Parse(signed.URL)
	if err != nil {
		t.Fatal(err)
	}
	headers := map[string]string{}
	for name, values := range signed.Header {
		headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	r := events.APIGatewayV2HTTPRequest{Version: "2.0", RawPath: "/", RawQueryString: u.RawQuery, Headers: headers,
		Body: string(signed.Body)}
	r.RequestContext.HTTP.Method = signed.Method
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
func invoke(ctx context.Context, t testing.TB, h *handler,
	r events.APIGatewayV2HTTPRequest) (response events.LambdaFunctionURLResponse) {
	t.Helper()
	text, err := h.Invoke(ctx, encode(t, r))
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
	return invoke(ctx, t, e.handler, r)
}

func (e *endpoint) send(t testing.TB, list ...payment.Event) events.LambdaFunctionURLResponse {
	t.Helper()
	return e.handle(t, e.request(t, paymenttest.Webhook{Payload: paymenttest.Delivery(list...)}))
}

// untouched fails the test if anything was written or published.
func (e *endpoint) untouched(t *testing.T) {
	t.Helper()
	if n := len(e.db.Items("ledger")) + len(e.bus.Entries()); n != 0 {
		t.Errorf("%d items or entries were written", n)
	}
}

// line is the outcome line of the last webhook.
func (e *endpoint) line(t *testing.T) map[string]any {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(e.log.String()), "\n")
	var line map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &line); err != nil {
		t.Fatal(err)
	}
	return line
}

func body(t *testing.T, r events.LambdaFunctionURLResponse) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(r.Body), &m); err != nil {
		t.Fatalf("%q: %v", r.Body, err)
	}
	return m
}

func TestADeliveryIsRecordedPublishedAndMarked(t *testing.T) {
	for _, n := range []int{1, 2, 10, 25, 100} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			e := newEndpoint(t, nil)
			sent := paymenttest.Events(n)
			payload := paymenttest.Delivery(sent...)
			r := e.handle(t, e.request(t, paymenttest.Webhook{Payload: payload}))
			if r.StatusCode != 200 || r.Headers["Content-Type"] != "application/json" {
				t.Fatalf("%d %s", r.StatusCode, r.Body)
			}
			delivery, err := payment.DecodeDelivery(payload)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]any{"deliveryId": delivery.DeliveryID, "recorded": float64(n),
				"duplicates": 0.0}, body(t, r)); diff != "" {
				t.Error(diff)
			}
			details := map[string]bool{}
			for _, entry := range e.bus.Entries() {
				details[*entry.Detail] = true
			}
			for _, event := range delivery.Events {
				if !details[string(event.Bytes)] {
					t.Errorf("%s is not on the bus", event.EventID)
				}
			}
			if len(details) != n || len(e.bus.Entries()) != n {
				t.Errorf("%d entries", len(e.bus.Entries()))
			}
			for id, item := range e.db.Items("ledger") {
				if item[names.LedgerPendingShard] != nil {
					t.Errorf("%s is pending", id)
				}
			}
			singles, batches := 1, 0 // each a record and a mark
			if n > 1 {
				singles, batches = 0, (n+24)/25
			}
			// One each is for the key.
			if puts, updates, both := e.db.Calls("PutItem"), e.db.Calls("UpdateItem"),
				e.db.Calls("BatchExecuteStatement"); puts != singles+1 || updates != singles+1 || both != 2*batches {
				t.Errorf("%d puts, %d updates and %d batches for %d events", puts, updates, both, n)
			}
		})
	}
}

func TestADuplicateNeedsOneFailedWrite(t *testing.T) {
	e := newEndpoint(t, nil)
	event := paymenttest.Event()
	e.send(t, event)
	puts, updates, published := e.db.Calls("PutItem"), e.db.Calls("UpdateItem"), e.bus.Calls()
	r := e.send(t, event)
	if got := body(t, r); r.StatusCode != 200 || got["duplicates"] != 1.0 || got["recorded"] != 0.0 {
		t.Fatalf("%d %s", r.StatusCode, r.Body)
	}
	if e.db.Calls("PutItem") != puts+1 || e.db.Calls("UpdateItem") != updates || e.bus.Calls() != published ||
		e.db.Calls("GetItem") != 1 {
		t.Error("a duplicate needs more than a write")
	}
}

func TestADeliveryOfNewAndDuplicateEvents(t *testing.T) {
	e := newEndpoint(t, nil)
	sent := paymenttest.Events(20)
	e.send(t, sent[:10]...)
	if got := body(t, e.send(t, sent...)); got["recorded"] != 10.0 || got["duplicates"] != 10.0 {
		t.Errorf("got %v", got)
	}
	if n := len(e.bus.Entries()); n != 20 {
		t.Errorf("%d entries", n)
	}
}

func TestAConflictIsLoggedAndNotPublished(t *testing.T) {
	e := newEndpoint(t, nil)
	first, beside := paymenttest.Event(), paymenttest.Event()
	e.send(t, first)
	changed := first
	changed.EventData.Amount = "0.01"
	r := e.send(t, changed, beside)
	if got := body(t, r); r.StatusCode != 200 || got["conflicts"] != 1.0 || got["recorded"] != 1.0 {
		t.Fatalf("%d %s", r.StatusCode, r.Body)
	}
	if entries := e.bus.Entries(); len(entries) != 2 || !strings.Contains(*entries[1].Detail, beside.EventID) {
		t.Errorf("%d entries", len(entries))
	}
	if line := e.line(t); line["Conflicts"] != 1.0 || line["level"] != "ERROR" {
		t.Errorf("logged as %v", line)
	}
}

func TestTheSameEventTwiceInOneDelivery(t *testing.T) {
	e := newEndpoint(t, nil)
	event := paymenttest.Event()
	if got := body(t, e.send(t, event, event)); got["recorded"] != 1.0 || got["duplicates"] != 1.0 {
		t.Errorf("got %v", got)
	}
	other := paymenttest.Event()
	changed := other
	changed.EventData.Amount = "0.01"
	if r := e.send(t, other, changed); r.StatusCode != 200 || body(t, r)["conflicts"] != 1.0 {
		t.Errorf("%d %s", r.StatusCode, r.Body)
	}
	if n := len(e.bus.Entries()); n != 2 {
		t.Errorf("%d entries", n)
	}
}

// parked returns the one parked object.
func (e *endpoint) parked(t *testing.T) parking.Parked {
	t.Helper()
	store := parking.NewStore(e.buckets, "parking")
	var all []parking.Parked
	if err := store.List(t.Context(), time.Time{}, time.Time{}, func(name string) bool {
		p, err := store.Get(t.Context(), name)
		if err != nil {
			t.Error(err)
		}
		all = append(all, p)
		return true
	}); err != nil || len(all) != 1 {
		t.Fatalf("%d objects are parked: %v", len(all), err)
	}
	return all[0]
}

// proves fails the test unless p has the whole proof of its payload.
func proves(t *testing.T, p parking.Parked, payload []byte) {
	t.Helper()
	key, err := keys.ParseJWK(p.JWK, p.KeyID, []int{65537})
	if err != nil {
		t.Fatal(err)
	}
	if err := signature.Verify(key, p.Payload,
		signature.Proof{Timestamp: p.Timestamp, KeyID: p.KeyID, Signature: p.Signature}); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(p.Payload, payload) {
		t.Errorf("another payload is parked: %s", p.Payload)
	}
}

func TestAConflictIsParkedWithItsProof(t *testing.T) {
	e := newEndpoint(t, nil)
	first, beside := paymenttest.Event(), paymenttest.Event()
	e.send(t, first)
	changed := first
	changed.EventData.Amount = "0.01"
	payload := paymenttest.Delivery(changed, beside)
	r := e.handle(t, e.request(t, paymenttest.Webhook{Payload: payload}))
	if got := body(t, r); r.StatusCode != 200 || got["conflicts"] != 1.0 || got["recorded"] != 1.0 {
		t.Fatalf("%d %s", r.StatusCode, r.Body)
	}
	p := e.parked(t)
	proves(t, p, payload)
	if p.Reason != parking.Conflict || !slices.Equal(p.EventIDs, []string{first.EventID}) ||
		p.DeliveryID != body(t, r)["deliveryId"] {
		t.Errorf("parked as %s of %v", p.Reason, p.EventIDs)
	}
	if line := e.line(t); line["Conflicts"] != 1.0 || line["Parked"] != 1.0 || line["level"] != "ERROR" {
		t.Errorf("logged as %v", line)
	}
}

func TestAnInvalidAuthenticPayloadIsParkedWithItsProof(t *testing.T) {
	e := newEndpoint(t, nil)
	id := uuid.New().String()
	payload := []byte(`{"deliveryId":"` + id + `","events":[{"eventId":"` + id + `","eventName":7}]}`)
	r := e.handle(t, e.request(t, paymenttest.Webhook{Payload: payload}))
	if r.StatusCode != 422 {
		t.Fatalf("%d %s", r.StatusCode, r.Body)
	}
	p := e.parked(t)
	proves(t, p, payload)
	if p.Reason != parking.Invalid || p.DeliveryID != id || !slices.Equal(p.EventIDs, []string{id}) ||
		!strings.Contains(p.Cause, "events[0].eventName") {
		t.Errorf("parked as %s of %v: %s", p.Reason, p.EventIDs, p.Cause)
	}
}

// A sender may repeat a webhook that was answered 422, or one in conflict.
func TestARepeatedWebhookIsParkedAndCountedOnce(t *testing.T) {
	e := newEndpoint(t, nil)
	first := paymenttest.Event()
	e.send(t, first)
	first.EventData.Amount = "0.01"
	for _, payload := range [][]byte{[]byte("{}"), paymenttest.Delivery(first)} {
		request := e.request(t, paymenttest.Webhook{Payload: payload, Age: time.Minute})
		before := len(e.buckets.Objects("parking"))
		answer := e.handle(t, request)
		if line := e.line(t); line["Parked"] != 1.0 {
			t.Errorf("logged as %v", line)
		}
		objects, name := e.buckets.Objects("parking"), e.line(t)["parked"]
		if len(objects) == before {
			t.Error("nothing is parked")
		}
		if diff := cmp.Diff(answer, e.handle(t, request)); diff != "" {
			t.Errorf("the second answer differs: %s", diff)
		}
		if line := e.line(t); line["Parked"] != nil || line["parked"] != name {
			t.Errorf("the second line is %v", line)
		}
		if diff := cmp.Diff(objects, e.buckets.Objects("parking")); diff != "" {
			t.Errorf("the second webhook changed the bucket: %s", diff)
		}
		// With another proof it is another object.
		e.handle(t, e.request(t, paymenttest.Webhook{Payload: payload}))
		if line := e.line(t); line["Parked"] != 1.0 || line["parked"] == name {
			t.Errorf("signed again: line %v", line)
		}
	}
}

// An event that EventBridge rejects does not affect the others of its delivery: it is
// recorded like them and parked at once.
func TestAnEventThatEventBridgeRejectsIsParkedWithItsField(t *testing.T) {
	e := newEndpoint(t, nil)
	wrong, deep, beside := paymenttest.Event(), paymenttest.Event(), paymenttest.Event()
	wrong.EventData.Amount = "9223372036854775808"
	deep.EventData.Identifiers.RailReferenceID = jsontext.Value(`{"CANARY":` + strings.Repeat("[", 1000) +
		strings.Repeat("]", 1000) + `}`)
	payload := paymenttest.Delivery(wrong, beside, deep)
	r := e.handle(t, e.request(t, paymenttest.Webhook{Payload: payload}))
	if got := body(t, r); r.StatusCode != 200 || got["recorded"] != 3.0 {
		t.Fatalf("%d %s", r.StatusCode, r.Body)
	}
	line := e.line(t)
	if line["Parked"] != 2.0 || line["LeftPending"] != nil || line["level"] != "ERROR" ||
		line["cause"] != "event.eventData.amount: is an integer outside 64 bits" {
		t.Errorf("logged as %v", line)
	}
	if strings.Contains(e.log.String(), "CANARY") {
		t.Error("a member name of the payload is in the log")
	}
	if entries := e.bus.Entries(); len(entries) != 1 || *entries[0].Detail != string(paymenttest.Encode(beside)) {
		t.Errorf("%d entries", len(entries))
	}
	store := parking.NewStore(e.buckets, "parking")
	for id, want := range map[string]string{
		wrong.EventID: "event.eventData.amount: is an integer outside 64 bits, at /eventData/amount",
		deep.EventID:  "event.eventData.identifiers.railReferenceId.*: is nested deeper than 1000 levels",
	} {
		list, err := store.FindEvent(t.Context(), id)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		p, err := store.Get(t.Context(), list[0])
		if err != nil || p.Reason != parking.Unpublishable || p.Cause != want || !bytes.Contains(payload, p.Event) ||
			p.Attempts != 0 {
			t.Errorf("%s %d %v, want %s", p.Cause, p.Attempts, err, want)
		}
	}
	for _, item := range e.db.Items("ledger") {
		if item[names.LedgerPendingShard] != nil {
			t.Error("an event is pending")
		}
	}
	// Sent again, it is a duplicate, and no other object is parked.
	r = e.handle(t, e.request(t, paymenttest.Webhook{Payload: payload}))
	if got := body(t, r); r.StatusCode != 200 || got["duplicates"] != 3.0 || e.line(t)["Parked"] != nil {
		t.Errorf("%d %s", r.StatusCode, r.Body)
	}
}

// The bus has only the claim check of a large event.
func TestALargeEventThatEventBridgeRejectsIsSentAsClaimCheck(t *testing.T) {
	e := newEndpoint(t, map[string]string{settings.ClaimCheckBytes.Env(): "1024"})
	large := paymenttest.Event()
	large.EventData.Amount = "9223372036854775808"
	large.EventData.Identifiers.PaymentRequestID = strings.Repeat("x", 1024)
	if r := e.send(t, large); r.StatusCode != 200 || len(e.bus.Entries()) != 1 {
		t.Fatalf("%d %s", r.StatusCode, r.Body)
	}
	raw, err := claimcheck.Resolve(t.Context(), e.buckets, []byte(*e.bus.Entries()[0].Detail))
	if err != nil || !bytes.Equal(raw, paymenttest.Encode(large)) {
		t.Error(err)
	}
	if event, err := payment.DecodeEvent(raw); err != nil || event.EventData.Amount != large.EventData.Amount {
		t.Errorf("a consumer can't read it: %v", err)
	}
}

func TestAnEventThatCannotBeParkedStaysPending(t *testing.T) {
	e := newEndpoint(t, nil)
	e.buckets.Fails = func(string, string) error { return errors.New("bucket is down") }
	wrong := paymenttest.Event()
	wrong.EventData.Amount = "9223372036854775808"
	if r := e.send(t, wrong); r.StatusCode != 200 {
		t.Fatalf("%d %s", r.StatusCode, r.Body)
	}
	if line := e.line(t); line["Parked"] != nil || line["LeftPending"] != 1.0 {
		t.Errorf("logged as %v", line)
	}
	for _, item := range e.db.Items("ledger") {
		if item[names.LedgerPendingShard] == nil || item["event"] == nil {
			t.Error("the event is missing")
		}
	}
}

func TestAWebhookThatCannotBeParkedIsAnswered503(t *testing.T) {
	e := newEndpoint(t, nil)
	e.buckets.Fails = func(string, string) error { return errors.New("bucket is down") }
	event := paymenttest.Event()
	e.send(t, event)
	event.EventData.Amount = "0.01"
	for _, payload := range [][]byte{paymenttest.Delivery(event), []byte("{}")} {
		r := e.handle(t, e.request(t, paymenttest.Webhook{Payload: payload}))
		if r.StatusCode != 503 || r.Headers["Retry-After"] == "" {
			t.Errorf("%d %s", r.StatusCode, r.Body)
		}
	}
}

func TestAForgedWebhookIsNotParked(t *testing.T) {
	e := newEndpoint(t, nil)
	r := e.request(t, paymenttest.Webhook{Payload: []byte("hello")})
	r.Body = "hullo"
	if got := e.handle(t, r); got.StatusCode != 401 ||
		len(e.buckets.Objects("parking"))+len(e.buckets.Objects("claims")) != 0 {
		t.Errorf("%d", got.StatusCode)
	}
}

func TestALargeEventIsSentAsClaimCheck(t *testing.T) {
	e := newEndpoint(t, nil)
	large, beside := paymenttest.Event(), paymenttest.Event()
	large.EventData.AmountType = strings.Repeat("x", 4<<20)
	if got := body(t, e.send(t, beside, large)); got["recorded"] != 2.0 {
		t.Fatalf("got %v", got)
	}
	for i, want := range [][]byte{paymenttest.Encode(beside), paymenttest.Encode(large)} {
		entry := e.bus.Entries()[i]
		got, err := claimcheck.Resolve(t.Context(), e.buckets, []byte(*entry.Detail))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("event %d: %d bytes, %v", i, len(got), err)
		}
		if *entry.DetailType != large.EventName || len(*entry.Detail) > 1000 {
			t.Errorf("event %d is on the bus as %s of %d bytes", i, *entry.DetailType, len(*entry.Detail))
		}
	}
	if got := body(t, e.send(t, large)); got["duplicates"] != 1.0 {
		t.Errorf("sent again: %v", got)
	}
	large.EventData.Amount = "0.01"
	if got := body(t, e.send(t, large)); got["conflicts"] != 1.0 {
		t.Errorf("sent changed: %v", got)
	}
}

func TestALargeEventThatCannotBeStoredIsNotRecorded(t *testing.T) {
	e := newEndpoint(t, nil)
	e.buckets.Fails = func(string, string) error { return errors.New("bucket is down") }
	large := paymenttest.Event()
	large.EventData.AmountType = strings.Repeat("x", 1<<20)
	if r := e.send(t, large); r.StatusCode != 503 {
		t.Errorf("%d %s", r.StatusCode, r.Body)
	}
	e.untouched(t)
}

// All webhooks that are not authentic have the same answer.
func TestUnauthenticWebhooksHaveTheSameAnswer(t *testing.T) {
	header := func(name string, change func(string) string) func(*events.APIGatewayV2HTTPRequest) {
		return func(r *events.APIGatewayV2HTTPRequest) {
			if value := change(r.Headers[name]); value != "" {
				r.Headers[name] = value
			} else {
				delete(r.Headers, name)
			}
		}
	}
	drop := func(string) string { return "" }
	const sigHeader, timestamp, keyID = "x-svc-signature", "x-svc-timestamp", "x-svc-key-id"
	tests := []struct {
		name    string
		change  func(*events.APIGatewayV2HTTPRequest)
		age     time.Duration
		outcome string
	}{
		{"no signature", header(sigHeader, drop), 0, "signature-missing"},
		{"no timestamp", header(timestamp, drop), 0, "signature-missing"},
		{"no key id", header(keyID, drop), 0, "signature-missing"},
		{"signature twice", header(sigHeader, func(s string) string { return s + "," + s }), 0, "signature-repeated"},
		{"timestamp twice", header(timestamp, func(s string) string { return s + ", " + s }), 0, "signature-repeated"},
		{"key id twice", header(keyID, func(s string) string { return s + "," + s }), 0, "signature-repeated"},
		{"signature not base64url", header(sigHeader, func(s string) string { return "!" + s[1:] }), 0,
			"signature-malformed"},
		{"signature cut", header(sigHeader, func(s string) string { return s[:100] }), 0, "signature-malformed"},
		{"timestamp not a time", header(timestamp, func(string) string { return "noon" }), 0, "signature-malformed"},
		{"key id not a UUID", header(keyID, func(string) string { return "../admin" }), 0, "signature-malformed"},
		{"too old", nil, 6 * time.Minute, "timestamp-outside-window"},
		{"in the future", nil, -6 * time.Minute, "timestamp-outside-window"},
		{"unknown key", header(keyID, func(string) string { return uuid.New().String() }), 0, "key-unknown"},
		{"timestamp changed", header(timestamp, func(s string) string { return strings.Replace(s, "Z", "+00:00", 1) }),
			0, "signature-mismatch"},
		{"body changed", func(r *events.APIGatewayV2HTTPRequest) { r.Body = strings.Replace(r.Body, "EUR", "USD", 1) },
			0, "signature-mismatch"},
		{"not JSON either", func(r *events.APIGatewayV2HTTPRequest) { r.Body = "hello" }, 0, "signature-mismatch"},
	}
	var want string
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := newEndpoint(t, nil)
			event := paymenttest.Event()
			event.EventData.PaymentCurrency = "EUR"
			r := e.request(t, paymenttest.Webhook{Payload: paymenttest.Delivery(event), Age: test.age})
			if test.change != nil {
				test.change(&r)
			}
			got := e.handle(t, r)
			if got.StatusCode != 401 || got.Headers["Content-Type"] != "application/problem+json" ||
				got.Headers["WWW-Authenticate"] != "Signature" {
				t.Errorf("%d %v", got.StatusCode, got.Headers)
			}
			if want == "" {
				want = fmt.Sprint(got)
			}
			if fmt.Sprint(got) != want {
				t.Errorf("answered %v, want %v as the others", got, want)
			}
			e.untouched(t)
			if line := e.line(t); line["outcome"] != test.outcome || line["Unauthenticated"] != 1.0 ||
				line["requestId"] != "request-1" {
				t.Errorf("logged as %v", line)
			}
		})
	}
}

func TestAnswersToRequestsThatAreNotDeliveries(t *testing.T) {
	signed := func(payload string) func(*testing.T, *endpoint) events.APIGatewayV2HTTPRequest {
		return func(t *testing.T, e *endpoint) events.APIGatewayV2HTTPRequest {
			return e.request(t, paymenttest.Webhook{Payload: []byte(payload)})
		}
	}
	unsigned := func(change func(*events.APIGatewayV2HTTPRequest)) func(*testing.T,
		*endpoint) events.APIGatewayV2HTTPRequest {
		return func(*testing.T, *endpoint) events.APIGatewayV2HTTPRequest {
			var r events.APIGatewayV2HTTPRequest
			r.RequestContext.HTTP.Method = "POST"
			change(&r)
			return r
		}
	}
	tests := map[string]struct {
		request func(*testing.T, *endpoint) events.APIGatewayV2HTTPRequest
		status  int
		header  string // "Name: value"
		body    string // a part of it
		outcome string
	}{
		"GET": {unsigned(func(r *events.APIGatewayV2HTTPRequest) { r.RequestContext.HTTP.Method = "GET" }),
			405, "Allow: POST", "", "method-not-allowed"},
		"no method": {unsigned(func(r *events.APIGatewayV2HTTPRequest) { r.RequestContext.HTTP.Method = "" }),
			405, "Allow: POST", "", "method-not-allowed"},
		"empty": {unsigned(func(*events.APIGatewayV2HTTPRequest) {}), 400, "", "no body", "payload-empty"},
		"empty in base64": {unsigned(func(r *events.APIGatewayV2HTTPRequest) { r.IsBase64Encoded = true }), 400, "",
			"no body", "payload-empty"},
		"not base64": {unsigned(func(r *events.APIGatewayV2HTTPRequest) {
			r.IsBase64Encoded, r.Body = true,
				"!!"
		}), 400, "", "decoded", "payload-encoding"},
		"too large": {unsigned(func(r *events.APIGatewayV2HTTPRequest) { r.Body = strings.Repeat("x", 6<<20+1) }),
			413, "", "too large", "payload-too-large"},
		"too large coded": {unsigned(func(r *events.APIGatewayV2HTTPRequest) {
			r.IsBase64Encoded, r.Body = true, base64.StdEncoding.EncodeToString(make([]byte, 6<<20+1))
		}), 413, "", "too large", "payload-too-large"},
		"a byte too large coded": {unsigned(func(r *events.APIGatewayV2HTTPRequest) {
			// It has no padding, so only its decoded size shows that it is too large.
			r.IsBase64Encoded, r.Body = true, base64.StdEncoding.EncodeToString(make([]byte, 6<<20+3))
		}), 413, "", "too large", "payload-too-large"},
		"largest": {unsigned(func(r *events.APIGatewayV2HTTPRequest) {
			r.IsBase64Encoded, r.Body = true, base64.StdEncoding.EncodeToString(make([]byte, 6<<20))
		}), 401, "", "", "signature-missing"},
		"not JSON":    {signed("hello"), 422, "", "payload: is not well-formed JSON", "invalid"},
		"no delivery": {signed("{}"), 422, "", "deliveryId: is missing", "invalid"},
		"no events": {signed(`{"deliveryId":"` + uuid.New().String() + `","events":[]}`), 422, "",
			"events: must hold at least one event", "invalid"},
		"amount as string": {signed(strings.Replace(string(paymenttest.Delivery(paymenttest.Event())), `"amount":`,
			`"amount":"1","x":`, 1)), 422, "", "events[0].eventData.amount: must be a number", "invalid"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(t, nil)
			got := e.handle(t, test.request(t, e))
			if got.StatusCode != test.status || got.Headers["Content-Type"] != "application/problem+json" {
				t.Fatalf("%d %v %s", got.StatusCode, got.Headers, got.Body)
			}
			if name, value, ok := strings.Cut(test.header, ": "); ok && got.Headers[name] != value {
				t.Errorf("headers are %v", got.Headers)
			}
			problem := body(t, got)
			if detail, _ := problem["detail"].(string); !strings.Contains(detail, test.body) ||
				problem["status"] != float64(test.status) {
				t.Errorf("body is %s", got.Body)
			}
			e.untouched(t)
			if line := e.line(t); line["outcome"] != test.outcome {
				t.Errorf("logged as %v", line)
			}
		})
	}
}

func TestABodyMayComeInBase64(t *testing.T) {
	e := newEndpoint(t, nil)
	event := paymenttest.Event()
	event.EventData.AmountType = "\u00e9\u20ac"
	r := e.request(t, paymenttest.Webhook{Payload: paymenttest.Delivery(event)})
	r.Body, r.IsBase64Encoded = base64.StdEncoding.EncodeToString([]byte(r.Body)), true
	if got := e.handle(t, r); got.StatusCode != 200 {
		t.Errorf("%d %s", got.StatusCode, got.Body)
	}
}

func TestAnOutageOfTheKeyEndpointIsAnswered503(t *testing.T) {
	e := newEndpoint(t, nil)
	if err := e.service.Misbehave(paymenttest.Keys, paymenttest.Fault{Name: paymenttest.Down}); err != nil {
		t.Fatal(err)
	}
	event := paymenttest.Event()
	r := e.send(t, event)
	if r.StatusCode != 503 || r.Headers["Retry-After"] == "" {
		t.Fatalf("%d %v", r.StatusCode, r.Headers)
	}
	e.untouched(t)
	if err := e.service.Misbehave(paymenttest.Keys, paymenttest.Fault{}); err != nil {
		t.Fatal(err)
	}
	if r := e.send(t, event); r.StatusCode != 200 {
		t.Fatalf("%d %s", r.StatusCode, r.Body)
	}
	if err := e.service.Misbehave(paymenttest.Keys, paymenttest.Fault{Name: paymenttest.Down}); err != nil {
		t.Fatal(err)
	}
	if r := e.send(t, paymenttest.Event()); r.StatusCode != 200 {
		t.Errorf("with the key cached: %d %s", r.StatusCode, r.Body)
	}
}

// secrets are secrets in memory.
type secrets map[string]string

func (s secrets) GetSecretValue(_ context.Context, in *secretsmanager.GetSecretValueInput,
	_ ...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error) {
	text, ok := s[*in.SecretId]
	if !ok {
		return nil, &smtypes.ResourceNotFoundException{}
	}
	return &secretsmanager.GetSecretValueOutput{SecretString: &text}, nil
}

func (s secrets) PutSecretValue(_ context.Context, in *secretsmanager.PutSecretValueInput,
	_ ...func(*secretsmanager.Options)) (*secretsmanager.PutSecretValueOutput, error) {
	s[*in.SecretId] = *in.SecretString
	return &secretsmanager.PutSecretValueOutput{}, nil
}

func TestTheTokenIsSentToTheKeyEndpoint(t *testing.T) {
	service := paymenttest.NewServer(paymenttest.Options{Key: signingKey(), KeysBearer: true})
	defer service.Close()
	id, secret := service.Client()
	kept := secrets{"credentials": `{"client_id":"` + id + `","client_secret":"` + secret + `"}`}
	s := conf(t, service.URL, map[string]string{
		settings.KeysAuth.Env(): "bearer", names.TokenSecretEnv: "token",
	})
	send := func() (events.LambdaFunctionURLResponse, string) {
		db, log := awstest.NewDynamoDB(), &bytes.Buffer{}
		db.CreateLedger("ledger")
		db.CreateTable("keys", names.KeysKey)
		h := newHandler(s, clients{db, &awstest.EventBridge{}, awstest.NewS3(), withToken(s, kept)},
			telemetry.New(log, "webhook"))
		signed, err := service.Sender().Sign(t.Context(),
			paymenttest.Webhook{URL: "https://hook.example/", Payload: paymenttest.Delivery(paymenttest.Event())})
		if err != nil {
			t.Fatal(err)
		}
		return invoke(t.Context(), t, h, urlRequest(t, signed)), log.String()
	}
	if r, _ := send(); r.StatusCode != 503 {
		t.Errorf("without a token: %d", r.StatusCode)
	}
	authURL, err := url.Parse(service.URL)
	if err != nil {
		t.Fatal(err)
	}
	endpoint := token.NewEndpoint(authURL, "manager-1", token.EndpointOptions{})
	if _, err := token.NewRefresher(kept, "token", "credentials", endpoint,
		token.RefresherOptions{}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, log := send()
	if r.StatusCode != 200 {
		t.Errorf("with a token: %d %s", r.StatusCode, r.Body)
	}
	var stored struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.Unmarshal([]byte(kept["token"]), &stored); err != nil || stored.AccessToken == "" ||
		strings.Contains(log, stored.AccessToken) {
		t.Errorf("the token is in the log, or was not used: %v", err)
	}
}

func TestAUsedBudgetIsAnswered503(t *testing.T) {
	e := newEndpoint(t, map[string]string{settings.KeyMissBudget.Env(): "1"})
	unknown := e.request(t, paymenttest.Webhook{Payload: []byte("{}")})
	unknown.Headers["x-svc-key-id"] = uuid.New().String()
	if r := e.handle(t, unknown); r.StatusCode != 401 {
		t.Fatalf("%d", r.StatusCode)
	}
	if r := e.send(t, paymenttest.Event()); r.StatusCode != 503 || r.Headers["Retry-After"] == "" {
		t.Errorf("%d %s", r.StatusCode, r.Body)
	}
	if line := e.line(t); line["KeyOutOfBudget"] != 1.0 {
		t.Errorf("logged as %v", line)
	}
}

func TestAnOutageOfTheLedgerIsAnswered503(t *testing.T) {
	e := newEndpoint(t, nil)
	sent := paymenttest.Events(3)
	e.broken.fails = func(id string) error {
		if id == sent[1].EventID {
			return errors.New("table is broken")
		}
		return nil
	}
	r := e.send(t, sent...)
	if got := body(t, r); r.StatusCode != 503 || got["unrecorded"] != 1.0 || got["recorded"] != 2.0 ||
		r.Headers["Retry-After"] == "" {
		t.Fatalf("%d %s", r.StatusCode, r.Body)
	}
	if n := len(e.bus.Entries()); n != 2 {
		t.Errorf("%d of the 2 that were recorded are on the bus", n)
	}
	e.broken.fails = nil
	if got := body(t, e.send(t, sent...)); got["recorded"] != 1.0 || got["duplicates"] != 2.0 {
		t.Errorf("sent again: %v", got)
	}
}

func TestAWebhookIsAcceptedDuringAnOutageOfTheBus(t *testing.T) {
	e := newEndpoint(t, nil)
	e.bus.Answer = func([]types.PutEventsRequestEntry) (map[int]string, error) { return nil, errors.New("bus is down") }
	if r := e.send(t, paymenttest.Events(3)...); r.StatusCode != 200 {
		t.Fatalf("%d %s", r.StatusCode, r.Body)
	}
	pending := 0
	for _, item := range e.db.Items("ledger") {
		if item[names.LedgerPendingShard] != nil && item["event"] != nil {
			pending++
		}
	}
	if pending != 3 {
		t.Errorf("%d are pending", pending)
	}
	if line := e.line(t); line["LeftPending"] != 3.0 || line["level"] != "WARN" || line["cause"] != "bus is down" {
		t.Errorf("logged as %v", line)
	}
}

func TestAnAnswerIsSentBeforeTheDeadline(t *testing.T) {
	e := newEndpoint(t, nil)
	e.send(t, paymenttest.Event()) // the key is cached now
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	r := invoke(ctx, t, e.handler,
		e.request(t, paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Events(5)...)}))
	if r.StatusCode != 503 || r.Headers["Retry-After"] == "" {
		t.Errorf("%d %s", r.StatusCode, r.Body)
	}
	if line := e.line(t); line["outcome"] != "out-of-time" {
		t.Errorf("logged as %v", line)
	}
}

func TestTheSuccessStatusIsASetting(t *testing.T) {
	e := newEndpoint(t, map[string]string{settings.SuccessStatus.Env(): "202"})
	if r := e.send(t, paymenttest.Event()); r.StatusCode != 202 || r.Body == "" {
		t.Errorf("%d %q", r.StatusCode, r.Body)
	}
	e = newEndpoint(t, map[string]string{settings.SuccessStatus.Env(): "204"})
	if r := e.send(t, paymenttest.Event()); r.StatusCode != 204 || r.Body != "" {
		t.Errorf("%d %q", r.StatusCode, r.Body)
	}
}

func TestNothingSecretIsLoggedOrAnswered(t *testing.T) {
	e := newEndpoint(t, nil)
	event := paymenttest.Event()
	event.EventData.Identifiers.PaymentRequestID = "CANARY"
	r := e.request(t, paymenttest.Webhook{Payload: paymenttest.Delivery(event)})
	answers := fmt.Sprint(e.handle(t, r))
	secrets := []string{"CANARY", r.Headers["x-svc-signature"]}
	bad := e.request(t, paymenttest.Webhook{Payload: []byte(`{"CANARY":"CANARY","CANARY":1}`)})
	answers += fmt.Sprint(e.handle(t, bad))
	secrets = append(secrets, bad.Headers["x-svc-signature"])
	bad.Headers["x-svc-key-id"], bad.Headers["x-svc-timestamp"] = "CANARY", "CANARY"
	answers += fmt.Sprint(e.handle(t, bad))
	e.broken.fails = func(string) error {
		return &dynamodbtypes.ResourceNotFoundException{
			Message: aws.String("arn:aws:dynamodb:eu-central-1:123456789012:table/CANARY")}
	}
	answers += fmt.Sprint(e.send(t, paymenttest.Event()))
	for _, secret := range secrets {
		if strings.Contains(e.log.String(), secret) || strings.Contains(answers, secret) {
			t.Errorf("%q is in the log or the answer", secret)
		}
	}
}

func TestEachOutcomeLineHasItsMetrics(t *testing.T) {
	e := newEndpoint(t, nil)
	e.send(t, paymenttest.Events(2)...)
	line := e.line(t)
	directive := line["_aws"].(map[string]any)["CloudWatchMetrics"].([]any)[0].(map[string]any)
	if directive["Namespace"] != "Payhook" || line["FunctionName"] != "webhook" {
		t.Errorf("got %v", directive)
	}
	for _, m := range directive["Metrics"].([]any) {
		name := m.(map[string]any)["Name"].(string)
		if _, ok := line[name].(float64); !ok {
			t.Errorf("metric %s has no value", name)
		}
	}
	if line["Recorded"] != 2.0 || line["Accepted"] != 1.0 {
		t.Errorf("got %v", line)
	}
}

func FuzzFunctionURLEvent(f *testing.F) {
	service := paymenttest.NewServer(paymenttest.Options{Key: signingKey()})
	f.Cleanup(service.Close)
	db := awstest.NewDynamoDB()
	db.CreateLedger("ledger")
	db.CreateTable("keys", names.KeysKey)
	bus, buckets := &awstest.EventBridge{}, awstest.NewS3()
	buckets.MakeBucket("parking")
	h := newHandler(conf(f, service.URL, nil), clients{db, bus, buckets, &http.Client{}},
		telemetry.New(io.Discard, "webhook"))
	signed, err := service.Sender().Sign(f.Context(),
		paymenttest.Webhook{URL: "https://hook.example/", Payload: []byte("{}")})
	if err != nil {
		f.Fatal(err)
	}
	for _, change := range []func(*events.APIGatewayV2HTTPRequest){
		func(*events.APIGatewayV2HTTPRequest) {},
		func(r *events.APIGatewayV2HTTPRequest) { r.IsBase64Encoded = true },
		func(r *events.APIGatewayV2HTTPRequest) { r.Headers["X-SVC-Signature"] = "x" },
		func(r *events.APIGatewayV2HTTPRequest) { r.Body = "" },
	} {
		r := urlRequest(f, signed)
		change(&r)
		f.Add(encode(f, r))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		answer, err := h.Invoke(t.Context(), text)
		if err != nil {
			return
		}
		var response events.LambdaFunctionURLResponse
		if err := json.Unmarshal(answer, &response); err != nil || response.StatusCode < 400 ||
			response.StatusCode >= 500 && response.StatusCode != 503 {
			t.Fatalf("%s %v", answer, err)
		}
		if len(db.Items("ledger"))+len(bus.Entries()) > 0 {
			t.Fatal("something was written")
		}
	})
}

// nothing is a client of AWS whose calls all succeed without effect.
type nothing struct{ *awstest.DynamoDB }

func (nothing) PutItem(context.Context, *dynamodb.PutItemInput,
	...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	return &dynamodb.PutItemOutput{}, nil
}

func (nothing) UpdateItem(context.Context, *dynamodb.UpdateItemInput,
	...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	return &dynamodb.UpdateItemOutput{}, nil
}

func (nothing) BatchExecuteStatement(_ context.Context, in *dynamodb.BatchExecuteStatementInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.BatchExecuteStatementOutput, error) {
	return &dynamodb.BatchExecuteStatementOutput{
		Responses: make([]dynamodbtypes.BatchStatementResponse, len(in.Statements))}, nil
}

func (nothing) PutEvents(_ context.Context, in *eventbridge.PutEventsInput,
	_ ...func(*eventbridge.Options)) (*eventbridge.PutEventsOutput, error) {
	return &eventbridge.PutEventsOutput{Entries: slices.Repeat([]types.PutEventsResultEntry{{EventId: aws.String("1")}},
		len(in.Entries))}, nil
}

// BenchmarkWebhook measures the function for a delivery of one event with a cached key,
// from the bytes of the event to those of the response, and alternately the RSA
// verification alone. It excludes AWS and the SDK.
func BenchmarkWebhook(b *testing.B) {
	service := paymenttest.NewServer(paymenttest.Options{Key: signingKey()})
	defer service.Close()
	db := awstest.NewDynamoDB()
	db.CreateTable("keys", names.KeysKey)
	h := newHandler(conf(b, service.URL, nil), clients{nothing{db}, nothing{}, awstest.NewS3(), &http.Client{}},
		telemetry.New(io.Discard, "webhook"))
	payload := paymenttest.Delivery(paymenttest.Event())
	signed, err := service.Sender().Sign(b.Context(),
		paymenttest.Webhook{URL: "https://hook.example/", Payload: payload})
	if err != nil {
		b.Fatal(err)
	}
	event := encode(b, urlRequest(b, signed))
	key := &service.Key().Private.PublicKey
	sum := sha256.Sum256(payload)
	sig, err := rsa.SignPKCS1v15(nil, service.Key().Private, crypto.SHA256, sum[:])
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	var whole, bare time.Duration
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		if r, err := h.Invoke(ctx, event); err != nil || !bytes.HasPrefix(r, []byte(`{"statusCode":200,`)) {
			b.Fatalf("%s %v", r, err)
		}
		between := time.Now()
		if err := rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], sig); err != nil {
			b.Fatal(err)
		}
		whole += between.Sub(start)
		bare += time.Since(between)
	}
	b.ReportMetric(float64(whole)/float64(b.N), "ns/webhook")
	b.ReportMetric(float64(bare)/float64(b.N), "ns/bare-verify")
	b.ReportMetric(float64(whole)/float64(bare), "webhook/bare-verify")
}

// eventIDs returns the eventIds of an outcome line by the result of each event.
func eventIDs(t *testing.T, line map[string]any) map[string][]string {
	t.Helper()
	text, err := json.Marshal(line["ids"])
	if err != nil {
		t.Fatal(err)
	}
	var ids map[string][]string
	if err := json.Unmarshal(text, &ids); err != nil {
		t.Fatal(err)
	}
	return ids
}

func TestTheOutcomeLineHasTheResultOfEachEvent(t *testing.T) {
	e := newEndpoint(t, nil)
	known, fresh := paymenttest.Event(), paymenttest.Event()
	repeated, rejected := paymenttest.Event(), paymenttest.Event()
	e.send(t, known, repeated)
	changed := known
	changed.EventData.Amount = "0.01"
	rejected.EventData.Amount = "9223372036854775808"
	e.send(t, changed, fresh, repeated, rejected)
	want := map[string][]string{"conflict": {known.EventID}, "published": {fresh.EventID},
		"duplicate": {repeated.EventID}, "unpublishable": {rejected.EventID}}
	line := e.line(t)
	if diff := cmp.Diff(want, eventIDs(t, line)); diff != "" || line["idsLeftOut"] != nil {
		t.Errorf("left out %v, (-want +got)\n%s", line["idsLeftOut"], diff)
	}

	e.bus.Answer = func(entries []types.PutEventsRequestEntry) (map[int]string, error) {
		return nil, errors.New("bus is down")
	}
	again := paymenttest.Event()
	e.send(t, again, again)
	want = map[string][]string{"pending": {again.EventID}, "duplicate": {again.EventID}}
	if diff := cmp.Diff(want, eventIDs(t, e.line(t))); diff != "" {
		t.Errorf("while the bus is down (-want +got)\n%s", diff)
	}

	e.send(t)
	if line := e.line(t); line["ids"] != nil {
		t.Errorf("of an invalid delivery: %v", line["ids"])
	}
}

func TestTheOutcomeLineOfALargeDeliveryIsShort(t *testing.T) {
	e := newEndpoint(t, nil)
	sent := paymenttest.Events(200)
	e.send(t, sent[:100]...)
	e.send(t, sent...)
	ids, line := eventIDs(t, e.line(t)), e.line(t)
	if len(ids["published"]) != 10 || len(ids["duplicate"]) != 10 || line["idsLeftOut"] != 180.0 {
		t.Errorf("%d published, %d duplicates, %v left out", len(ids["published"]), len(ids["duplicate"]),
			line["idsLeftOut"])
	}
	if text, err := json.Marshal(line); err != nil || len(text) > 4000 {
		t.Errorf("the line has %d bytes, %v", len(text), err)
	}
}
