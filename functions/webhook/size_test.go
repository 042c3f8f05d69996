package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"

	"payhook.example/shared/awstest"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/telemetry"
)

// sizesEnv enables the measurement of large deliveries, which takes half a minute. In
// the measured process it is the number of events.
const sizesEnv = "PAYHOOK_SIZES"

// distance is the duration of a call of AWS in the measurement.
const distance = 10 * time.Millisecond

type distantDynamoDB struct{ *awstest.DynamoDB }

func (d distantDynamoDB) PutItem(ctx context.Context, in *dynamodb.PutItemInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	time.Sleep(distance)
	return d.DynamoDB.PutItem(ctx, in, opts...)
}

func (d distantDynamoDB) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	time.Sleep(distance)
	return d.DynamoDB.UpdateItem(ctx, in, opts...)
}

func (d distantDynamoDB) BatchExecuteStatement(ctx context.Context, in *dynamodb.BatchExecuteStatementInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.BatchExecuteStatementOutput, error) {
	time.Sleep(distance)
	return d.DynamoDB.BatchExecuteStatement(ctx, in, opts...)
}

type distantBus struct{ *awstest.EventBridge }

func (d distantBus) PutEvents(ctx context.Context, in *eventbridge.PutEventsInput,
	opts ...func(*eventbridge.Options)) (*eventbridge.PutEventsOutput, error) {
	time.Sleep(distance)
	return d.EventBridge.PutEvents(ctx, in, opts...)
}

// TestEventsPerDelivery measures how many events of a delivery the function
// records, and its memory and CPU time.
func TestEventsPerDelivery(t *testing.T) {
	var n int
	switch asked := os.Getenv(sizesEnv); asked {
	case "":
		t.Skip("a measurement: " + sizesEnv + "=1")
	case "1":
	default:
		if _, err := fmt.Sscan(asked, &n); err != nil {
			t.Fatal(err)
		}
		measure(t, n)
		return
	}
	for _, n := range []int{100, 1000, 5000, 10_000} {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEventsPerDelivery$", "-test.v")
		child.Env = append(os.Environ(), fmt.Sprint(sizesEnv, "=", n), "GOMAXPROCS=2")
		out, err := child.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, line, _ := strings.Cut(string(out), "measured: ")
		line, _, _ = strings.Cut(line, "\n")
		t.Log(line)
	}
}

func measure(t *testing.T, n int) {
	e := newEndpoint(t, nil)
	s := conf(t, e.service.URL, nil)
	e.handler = newHandler(s, clients{distantDynamoDB{e.db}, distantBus{e.bus}, e.buckets, &http.Client{}},
		telemetry.New(e.log, "webhook"))
	e.send(t, paymenttest.Event()) // caches the key
	var events [][]byte
	for i := range n {
		raw := paymenttest.Encode(paymenttest.Event())
		if n > 5000 { // 6 MiB hold fewer of the representative size
			raw = fmt.Appendf(nil, `{"eventName":"PAYMENT_STATUS.RELEASED","eventId":"%s",`+
				`"eventTimestamp":"2026-01-31T12:00:00.123Z","eventData":{"amount":%d.10,"note":"%s"}}`,
				uuid.New().String(), i, strings.Repeat("x", 330))
		}
		events = append(events, raw)
	}
	payload := paymenttest.RawDelivery(uuid.New().String(), events...)
	request := e.request(t, paymenttest.Webhook{Payload: payload})
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	start := time.Now()
	response := e.handle(t, request)
	took := time.Since(start)
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	got := body(t, response)
	if response.StatusCode != 200 || got["recorded"] != float64(n) {
		t.Errorf("%d %s", response.StatusCode, response.Body)
	}
	line := e.line(t)
	fmt.Printf("measured: %d events, %d KiB: answered %d after %v; %v of CPU; %v left to redrive; peak %d MiB\n",
		n, len(payload)>>10, response.StatusCode, took.Round(time.Millisecond), cpu.Round(time.Millisecond),
		line["LeftPending"], after.Maxrss>>10)
}
