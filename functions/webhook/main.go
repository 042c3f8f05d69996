// Webhook is the Lambda function behind the function URL that the payment
// service sends its webhooks to. It reads its settings from the environment,
// makes the clients once, and hands both to the packages that do the work.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"payhook/shared/bus"
	"payhook/shared/claimcheck"
	"payhook/shared/contract"
	"payhook/shared/intake"
	"payhook/shared/keys"
	"payhook/shared/ledger"
	"payhook/shared/parking"
	"payhook/shared/telemetry"
)

func main() {
	h, err := wire(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1)
	}
	lambda.Start(h.Handle)
}

func wire(ctx context.Context) (*handler, error) {
	settings, err := contract.ParseWebhook(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("settings:\n%w", err)
	}
	cfg, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(pool()))
	if err != nil {
		return nil, err
	}
	return newHandler(settings, dynamodb.NewFromConfig(cfg), eventbridge.NewFromConfig(cfg, once), s3.NewFromConfig(cfg),
		telemetry.New(os.Stdout, os.Getenv("AWS_LAMBDA_FUNCTION_NAME"))), nil
}

// pool keeps as many connections as calls are under way at once: one that is
// closed after its call would cost the next one a handshake.
func pool() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns = 2 * intake.DefaultParallel
		t.MaxIdleConnsPerHost = intake.DefaultParallel
	}).WithTimeout(5 * time.Second)
}

// once leaves trying again to package bus, which repeats only what failed.
func once(o *eventbridge.Options) { o.Retryer = aws.NopRetryer{} }

// dynamoDB is what of DynamoDB the function needs.
type dynamoDB interface {
	keys.API
	ledger.API
}

// newHandler wires everything but the clients.
func newHandler(s contract.Webhook, db dynamoDB, events bus.API, buckets parking.API, log *telemetry.Log) *handler {
	cache := keys.New(
		keys.NewOrigin(&http.Client{}, s.BaseURL, s.KeyTimeout),
		keys.NewTable(db, s.KeysTable),
		keys.Options{
			Exponents:  s.KeyExponents,
			Freshness:  s.KeyFreshness,
			MaxAge:     s.KeyMaxAge,
			UnknownTTL: s.UnknownKeyTTL,
			MissBudget: s.KeyMissBudget,
		},
	)
	opts := intake.Options{Timeout: s.Timeout, Grace: s.RedriveGrace, ClaimBytes: s.ClaimCheckBytes}
	if s.ClaimBucket != "" {
		opts.Claims = claimcheck.NewStore(buckets, s.ClaimBucket)
	}
	if s.ParkingBucket != "" {
		opts.Parking = parking.NewLot(buckets, s.ParkingBucket)
	}
	receiver := intake.NewReceiver(s.Scheme, s.Window, cache,
		ledger.New(db, s.LedgerTable, ledger.Options{Window: s.DeduplicationWindow}),
		bus.New(events, s.EventBusName, s.EventSource, bus.Options{MaxBytes: s.MaxEntryBytes}),
		opts,
	)
	return &handler{
		receiver:        receiver,
		log:             log,
		method:          s.HTTPMethod,
		successStatus:   s.SuccessStatus,
		maxPayloadBytes: s.MaxPayloadBytes,
	}
}
