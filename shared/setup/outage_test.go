package setup_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	eventbus "payhook.example/shared/aws/eventbridge"
	"payhook.example/shared/awstest"
	"payhook.example/shared/intake"
	"payhook.example/shared/parking"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/setup"
)

// serve answers the calls of DynamoDB, EventBridge and S3.
func serve(db *awstest.DynamoDB) http.HandlerFunc {
	tables := awstest.Handler(db)
	return func(w http.ResponseWriter, r *http.Request) {
		switch target := r.Header.Get(awstest.TargetHeader); {
		case strings.HasPrefix(target, "DynamoDB"):
			tables.ServeHTTP(w, r)
		case target == "AWSEvents.PutEvents":
			_, _ = io.WriteString(w, `{"FailedEntryCount":0,"Entries":[`+
				list(r, `"DetailType":`, `{"EventId":"1"}`)+`]}`)
		default:
			_, _ = io.Copy(io.Discard, r.Body)
		}
	}
}

func newLedger() *awstest.DynamoDB {
	db := awstest.NewDynamoDB()
	db.CreateLedger("ledger")
	return db
}

// list returns a text as often as a part occurs in the body of a request.
func list(r *http.Request, part, text string) string {
	body, _ := io.ReadAll(r.Body)
	return strings.TrimPrefix(strings.Repeat(","+text, bytes.Count(body, []byte(part))), ",")
}

func clients(t *testing.T, url string) setup.Clients {
	t.Helper()
	env := map[string]string{
		"AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "id",
		"AWS_SECRET_ACCESS_KEY": "secret",
	}
	c, err := setup.NewClients(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func ofDynamoDB(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get(awstest.TargetHeader), "DynamoDB")
}
func ofS3(r *http.Request) bool { return r.Header.Get(awstest.TargetHeader) == "" }

// failures are the ways in which a store fails.
var failures = map[string]http.HandlerFunc{
	"500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
	"503": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
	"throttled": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"__type":"ThrottlingException"}`)
	},
	"closed": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	"statements": func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.Header.Get(awstest.TargetHeader), ".BatchExecuteStatement") {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, `{"Responses":[`+
			list(r, `"Statement":`, `{"Error":{"Code":"ProvisionedThroughputExceeded"}}`)+`]}`)
	},
}

// The sender never sends a webhook again, so a store that fails for a moment must not reject it.
func TestAWebhookIsStoredThoughAStoreFailsForThreeSeconds(t *testing.T) {
	key := paymenttest.NewKey(2048)
	for store, c := range map[string]struct {
		of func(*http.Request) bool
		in []string
	}{
		"DynamoDB": {ofDynamoDB, []string{"500", "503", "throttled", "closed", "statements"}},
		"S3":       {ofS3, []string{"500", "503", "closed"}},
	} {
		for _, how := range c.in {
			for _, fails := range []time.Duration{time.Second, 3 * time.Second} {
				for name, webhook := range map[string]struct{ events, bytes int }{
					"one event": {1, 100}, "many": {150, 100}, "large": {3, settings.ClaimCheckBytes},
				} {
					server := awstest.NewOutage(t, fails, c.of, failures[how], serve(newLedger()))
					synctest.Test(t, func(t *testing.T) {
						start := time.Now()
						clients := clients(t, server.URL)
						p := setup.Pipeline(clients.DynamoDB, eventbus.NewBus(clients.EventBridge, "bus"), clients.S3,
							parking.NewStore(clients.S3, "evidence"), settings.Function{
								EventBusName: "bus", EventSource: "source",
								LedgerTable: "ledger", ClaimBucket: "claims", MaxEntryBytes: 1 << 20,
								DeduplicationWindow: time.Hour, RedriveGrace: time.Minute})
						ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
						defer cancel()
						r := receiveSigned(ctx, t, p, key, eventsOf(webhook.events, webhook.bytes))
						if r.Outcome != intake.Accepted || r.Recorded != webhook.events ||
							r.Published != webhook.events {
							t.Errorf("%s, %s for %s, %s: after %s %+v", store, how, fails, name, time.Since(start), r)
						}
					})
					if server.Failed.Load() == 0 {
						t.Errorf("%s, %s, %s: no call failed", store, how, name)
					}
				}
			}
		}
	}
}

// The SDK stops to retry after some failures, of all calls of a client together.
func TestEachOfManyCallsOutlastsAnOutage(t *testing.T) {
	server := awstest.NewOutage(t, 3*time.Second, ofDynamoDB, failures["500"], serve(newLedger()))
	synctest.Test(t, func(t *testing.T) {
		db := clients(t, server.URL).DynamoDB
		var wg sync.WaitGroup
		for range 150 {
			wg.Go(func() {
				if _, err := db.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("ledger"),
					Key: awstest.Item{"eventId": &dynamodbtypes.AttributeValueMemberS{Value: "1"}}}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}
