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

	"payhook.example/shared/bus"
	"payhook.example/shared/claimcheck"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
	"payhook.example/shared/telemetry"
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
	conf, err := settings.ParseRedrive(os.Getenv)
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
	return newHandler(conf, clients{
		dynamoDB: dynamodb.NewFromConfig(cfg),
		eventBridge: eventbridge.NewFromConfig(cfg, func(o *eventbridge.Options) {
			o.Retryer = aws.NopRetryer{} // package bus retries, and only what failed
		}),
		s3: s3.NewFromConfig(cfg),
	}, telemetry.New(os.Stdout, os.Getenv("AWS_LAMBDA_FUNCTION_NAME"))), nil
}

// clients are the AWS services that the function calls.
type clients struct {
	dynamoDB    dynamoDB
	eventBridge bus.API
	s3          parking.API
}

type dynamoDB interface {
	ledger.API
	keys.CertificateReadAPI
}

// newHandler connects everything but the clients.
func newHandler(s settings.Redrive, c clients, log *telemetry.Log) *handler {
	lot := parking.NewStore(c.s3, s.ParkingBucket)
	opts := intake.Options{
		Timeout: s.Timeout, Grace: s.RedriveGrace, MaxAttempts: s.Attempts, Parking: lot,
		Claims: claimcheck.NewStore(c.s3, s.ClaimBucket), ClaimBytes: s.ClaimCheckBytes, Exponents: s.KeyExponents,
	}
	var t *trust
	if s.Trust != nil {
		opts.Truststore = s.Trust.Truststore
		t = &trust{s.Trust, s.Authentication, c.dynamoDB, s.KeysTable}
	}
	book := ledger.New(c.dynamoDB, s.LedgerTable, ledger.Options{Window: s.DeduplicationWindow})
	target := bus.New(c.eventBridge, s.EventBusName, s.EventSource, bus.Options{MaxBytes: s.MaxEntryBytes})
	return &handler{
		redriver: intake.NewRedriver(book, target, opts),
		replayer: intake.NewReceiver(signature.Scheme{}, nil, nil, book, target, opts),
		lot:      lot,
		log:      log,
		trust:    t,
	}
}
