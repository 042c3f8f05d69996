package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"payhook.example/functions/webhook/handler"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// signingKey is the service's key.
var signingKey = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(2048) })

// serveAWS answers the calls of the function 10 ms after it has read them. It has the key that was stored. Other
// calls have no effect, so that they need little CPU time.
func serveAWS(b *testing.B) (url string) {
	var mu sync.Mutex
	var key json.RawMessage
	id := strings.ReplaceAll(signingKey().ID, "-", "") // as the table has it
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
			if err := json.Unmarshal(body, &put); err != nil {
				b.Error(err)
			}
			key = put.Item
		case strings.HasSuffix(target, ".GetItem") && key != nil && bytes.Contains(body, []byte(id)):
			answer = fmt.Sprintf(`{"Item":%s}`, key)
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

// BenchmarkDelivery takes the time of a delivery of one event, of one of 100 events, and of the start with the first
// delivery. A start is what main does, and the first delivery, with a key that another process has stored. It
// excludes the start of the process, and TLS.
func BenchmarkDelivery(b *testing.B) {
	service := paymenttest.NewServer(paymenttest.Options{Key: signingKey()})
	defer service.Close()
	env := map[string]string{
		"AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL": serveAWS(b), "AWS_ACCESS_KEY_ID": "id",
		"AWS_SECRET_ACCESS_KEY": "secret", "PAYHOOK_BASE_URL": service.URL, "PAYHOOK_EVENT_BUS_NAME": "payhook",
		settings.LedgerTableEnv: "ledger", settings.KeysTableEnv: "keys",
		settings.ClaimBucketEnv: "claims", settings.ParkingBucketEnv: "parking",
	}
	for name, value := range env {
		b.Setenv(name, value)
	}
	start := func() *handler.Handler {
		h, connect, err := newFunction(os.Getenv, io.Discard)
		if err != nil {
			b.Fatal(err)
		}
		connect()
		return h
	}
	// delivery returns a function that sends a new delivery of n events to a handler.
	delivery := func(n int) func(lambda.Handler) {
		signed, err := service.Sender().Sign(b.Context(),
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
	warm, one, hundred := start(), delivery(1), delivery(100)
	one(warm)
	for name, run := range map[string]func(){
		"Start": func() { one(start()) }, "1Event": func() { one(warm) }, "100Events": func() { hundred(warm) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				run()
			}
		})
	}
}
