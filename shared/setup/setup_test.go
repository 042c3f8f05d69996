package setup_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"payhook.example/shared/awstest"
	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/setup"
)

// Package bus retries, and only what failed. All other calls are retried by the SDK.
func TestOnlyTheSDKsRetriesOfPutEventsAreOff(t *testing.T) {
	var mu sync.Mutex
	calls := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		calls[r.Header.Get("X-Amz-Target")]++
		mu.Unlock()
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer server.Close()
	env := map[string]string{
		"AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL": server.URL, "AWS_ACCESS_KEY_ID": "id",
		"AWS_SECRET_ACCESS_KEY": "secret",
	}
	c, err := setup.NewClients(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	source, text := "source", "{}"
	if _, err := c.EventBridge.PutEvents(t.Context(), &eventbridge.PutEventsInput{
		Entries: []types.PutEventsRequestEntry{{Source: &source, DetailType: &text, Detail: &text}},
	}); err == nil {
		t.Error("PutEvents did not fail")
	}
	table := "ledger"
	if _, err := c.DynamoDB.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &table}); err == nil {
		t.Error("DescribeTable did not fail")
	}
	if calls["AWSEvents.PutEvents"] != 1 || calls["DynamoDB_20120810.DescribeTable"] != 3 {
		t.Errorf("the calls are %v, want 1 of PutEvents and 3 of DescribeTable", calls)
	}
}

func TestAPipelineUsesWhatItsSettingsName(t *testing.T) {
	db, events, buckets := awstest.NewDynamoDB(), &awstest.EventBridge{}, awstest.NewS3()
	db.CreateLedger("the-table")
	p := setup.Pipeline(db, events, buckets, settings.Publishing{
		LedgerTable: "the-table", ClaimBucket: "claims", ParkingBucket: "parking", EventBusName: "the-bus",
		EventSource:   "the-source",
		MaxEntryBytes: 1 << 20, ClaimCheckBytes: 1 << 10, DeduplicationWindow: time.Hour, RedriveGrace: time.Second,
	}, time.Minute)
	raw, err := payment.DecodeRawEvent(paymenttest.Encode(paymenttest.Event()))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-time.Minute)
	entry := ledger.NewEntry(raw, "5b1e8f9c-3d43-4f26-9c0d-2f1f6a5b7c8d", at)
	if r := ledger.New(db, "the-table", "the-bus", ledger.Options{}).Record(t.Context(), []ledger.Entry{entry},
		ledger.NewHolder(), at); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	if r := intake.NewRedriver(p, 1).Run(t.Context()); r.Published != 1 || r.Err != nil {
		t.Fatalf("%+v", r)
	}
	if e := events.Entries()[0]; *e.EventBusName != "the-bus" || *e.Source != "the-source" {
		t.Errorf("the event is on %s, from %s", *e.EventBusName, *e.Source)
	}
}
