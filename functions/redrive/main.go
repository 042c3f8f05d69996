// Redrive is the Lambda function that publishes, on a schedule, what was
// recorded and did not reach the bus. It reads its settings from the
// environment, makes the clients once, and hands both to the packages that do
// the work.
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
	"payhook/shared/ledger"
	"payhook/shared/parking"
	"payhook/shared/signature"
	"payhook/shared/telemetry"
)

func main() {
	h, err := wire(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "redrive:", err)
		os.Exit(1)
	}
	lambda.Start(h.Handle)
}

func wire(ctx context.Context) (*handler, error) {
	settings, err := contract.ParseRedrive(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("settings:\n%w", err)
	}
	pool := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns = 2 * intake.DefaultParallel
		t.MaxIdleConnsPerHost = intake.DefaultParallel
	}).WithTimeout(5 * time.Second)
	cfg, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(pool))
	if err != nil {
		return nil, err
	}
	events := eventbridge.NewFromConfig(cfg, func(o *eventbridge.Options) {
		o.Retryer = aws.NopRetryer{} // package bus tries again, and only what failed
	})
	db, buckets := dynamodb.NewFromConfig(cfg), s3.NewFromConfig(cfg)
	lot := parking.NewLot(buckets, settings.ParkingBucket)
	opts := intake.Options{
		Timeout: settings.Timeout, Grace: settings.RedriveGrace, MaxAttempts: settings.RedriveAttempts,
		Claims: claimcheck.NewStore(buckets, settings.ClaimBucket), ClaimBytes: settings.ClaimCheckBytes, Exponents: settings.KeyExponents,
	}
	book := ledger.New(db, settings.LedgerTable, ledger.Options{Window: settings.DeduplicationWindow})
	target := bus.New(events, settings.EventBusName, settings.EventSource, bus.Options{MaxBytes: settings.MaxEntryBytes})
	// What is replayed is parked already: its receiver parks nothing again.
	replayer := intake.NewReceiver(signature.Scheme{}, nil, nil, book, target, opts)
	opts.Parking = lot
	return &handler{
		redriver: intake.NewRedriver(book, target, opts),
		replayer: replayer,
		lot:      lot,
		log:      telemetry.New(os.Stdout, os.Getenv("AWS_LAMBDA_FUNCTION_NAME")),
	}, nil
}
