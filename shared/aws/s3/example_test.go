package s3_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"payhook.example/shared/aws/s3"
	"payhook.example/shared/awstest"
	"payhook.example/shared/bus"
	"payhook.example/shared/payment"
)

// A consumer resolves every detail. In a program, the configuration of the client is that of package config of the SDK.
func ExampleResolve() {
	ctx := context.Background()
	var stored []byte // all that this S3 has
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			stored, _ = io.ReadAll(r.Body)
		} else {
			_, _ = w.Write(stored)
		}
	}))
	defer server.Close()
	client := s3.NewClient(awstest.Config(server.URL))

	// What Payhook does with an event that is too large for the bus.
	event, err := payment.DecodeRawEvent([]byte(`{"eventName":"PAYMENT_STATUS.RELEASED",` +
		`"eventId":"6f1c0d7a-52a8-4a0e-9b5c-0d6d1a2b3c4e","eventTimestamp":"2026-01-31T12:00:00.000Z",` +
		`"eventData":{"amount":100.00}}`))
	if err != nil {
		log.Fatal(err)
	}
	detail, err := bus.NewLargeEvents(s3.NewBucket(client, "large-events"), "large-events").Put(ctx, event)
	if err != nil {
		log.Fatal(err)
	}

	// What a consumer does with the detail that it receives.
	raw, err := s3.Resolve(ctx, client, detail)
	if err != nil {
		log.Fatal(err)
	}
	decoded, err := payment.DecodeEvent(raw)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(decoded.EventID, decoded.EventData.Amount)
	// Output:
	// 6f1c0d7a-52a8-4a0e-9b5c-0d6d1a2b3c4e 100.00
}
