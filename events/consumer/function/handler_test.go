package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/awstest"
	"payhook.example/shared/claimcheck"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

var now = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

type fixture struct {
	*handler
	db     *awstest.DynamoDB
	bucket *awstest.S3
	mu     sync.Mutex
	said   bytes.Buffer
}

func newFixture() *fixture {
	f := &fixture{db: awstest.NewDynamoDB(), bucket: awstest.NewS3()}
	f.db.CreateTable("processed", "eventId")
	f.bucket.MakeBucket("claims")
	f.handler = &handler{claims: f.bucket, table: f.db, tableName: "processed", threshold: big.NewRat(1_000_000, 1),
		log: slog.New(slog.NewJSONHandler(f, nil)), now: func() time.Time { return now }}
	return f
}

// Write collects the log.
func (f *fixture) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.said.Write(line)
}

// outcomes returns how often each outcome is in the log.
func (f *fixture) outcomes() map[string]int {
	count := map[string]int{}
	for line := range strings.Lines(f.said.String()) {
		var entry struct{ Outcome string }
		if json.Unmarshal([]byte(line), &entry) == nil {
			count[entry.Outcome]++
		}
	}
	return count
}

func of(amount string) payment.Event {
	e := paymenttest.Event()
	e.EventData.Amount = payment.Amount(amount)
	return e
}

func onBus(detail []byte) events.EventBridgeEvent { return events.EventBridgeEvent{Detail: detail} }

func TestTheExactAmountDecides(t *testing.T) {
	for amount, want := range map[string]string{
		"999999.99": "low", "999999.99999999999999999": "low", "0": "low", "-5000000000.01": "low",
		"1000000": "processed", "1000000.00": "processed", "1E6": "processed", "1000000.00000000000000001": "processed",
		"5000000000.01": "processed", "9223372036854775807": "processed", "1e300": "processed",
		"1." + strings.Repeat("0", 1001): "processed", // cannot be compared
	} {
		f, e := newFixture(), of(amount)
		if err := f.handle(t.Context(), onBus(paymenttest.Encode(e))); err != nil || f.outcomes()[want] != 1 {
			t.Errorf("%.30s: %v, %v, want %s", amount, f.outcomes(), err, want)
		}
		items := f.db.Items("processed")
		if (len(items) == 1) != (want == "processed") {
			t.Errorf("%.30s: %d items", amount, len(items))
		}
		for _, item := range items {
			if got := item["amount"].(*types.AttributeValueMemberS).Value; got != amount {
				t.Errorf("%.30s is stored as %.30s", amount, got)
			}
			if got := item["expires"].(*types.AttributeValueMemberN).Value; got != "1773748800" {
				t.Errorf("it expires at %s", got)
			}
		}
	}
}

func TestAPaymentWithoutAmountIsLow(t *testing.T) {
	f := newFixture()
	detail := bytes.Replace(paymenttest.Encode(of("1250.00")), []byte(`"amount":1250.00,`), nil, 1)
	if err := f.handle(t.Context(), onBus(detail)); err != nil || f.outcomes()["low"] != 1 {
		t.Errorf("%v, %v", f.outcomes(), err)
	}
}

// EventBridge delivers at least once, also at the same time.
func TestAnEventIsProcessedOnce(t *testing.T) {
	f, detail := newFixture(), paymenttest.Encode(of("2000000.00"))
	var running sync.WaitGroup
	for range 20 {
		running.Go(func() {
			if err := f.handle(context.Background(), onBus(detail)); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if got := f.outcomes(); got["processed"] != 1 || got["duplicate"] != 19 || len(f.db.Items("processed")) != 1 {
		t.Errorf("%v, %d items", got, len(f.db.Items("processed")))
	}
}

func TestALargeEventIsResolved(t *testing.T) {
	f := newFixture()
	raw, err := payment.DecodeRawEvent(paymenttest.Encode(of("9223372036854775808"))) // not in the reference
	if err != nil {
		t.Fatal(err)
	}
	detail, err := claimcheck.NewStore(f.bucket, "claims").Put(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.handle(t.Context(), onBus(detail)); err != nil || f.outcomes()["processed"] != 1 {
		t.Errorf("%v, %v", f.outcomes(), err)
	}
	f.bucket.MakeBucket("claims")
	if err := f.handle(t.Context(), onBus(detail)); !errors.Is(err, claimcheck.ErrGone) {
		t.Errorf("the object is gone: %v", err)
	}
}

// failing is a table that cannot be written.
type failing struct{ error }

func (f failing) PutItem(context.Context, *dynamodb.PutItemInput,
	...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	return nil, f.error
}

// Lambda repeats an event after an error only.
func TestAFailureIsAnErrorAndIsRepeated(t *testing.T) {
	f, detail := newFixture(), paymenttest.Encode(of("2000000"))
	throttled := errors.New("throttled")
	table := f.table
	f.table = failing{throttled}
	if err := f.handle(t.Context(), onBus(detail)); !errors.Is(err, throttled) || len(f.outcomes()) != 0 {
		t.Errorf("%v, %v", f.outcomes(), err)
	}
	f.table = table
	if err := f.handle(t.Context(), onBus(detail)); err != nil || f.outcomes()["processed"] != 1 {
		t.Errorf("%v, %v", f.outcomes(), err)
	}
	if err := f.handle(t.Context(), onBus([]byte(`{"eventId":1}`))); err == nil {
		t.Error("a detail that is not an event is accepted")
	}
}
