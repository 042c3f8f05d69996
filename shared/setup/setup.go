// Package setup builds what the functions that publish have in common: their AWS
// clients and their pipeline.
package setup

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"payhook.example/shared/awsenv"
	"payhook.example/shared/bus"
	"payhook.example/shared/claimcheck"
	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
	"payhook.example/shared/settings"
)

// Clients are AWS clients that share a pool of connections.
type Clients struct {
	Config      aws.Config
	DynamoDB    *dynamodb.Client
	EventBridge *eventbridge.Client
	S3          *s3.Client
}

// NewClients returns the clients of a function with that environment. They make no
// call yet.
func NewClients(getenv func(string) string) (Clients, error) {
	cfg, err := awsenv.Config(getenv, intake.DefaultParallel)
	if err != nil {
		return Clients{}, err
	}
	return Clients{cfg, dynamodb.NewFromConfig(cfg), eventbridge.NewFromConfig(cfg, once), s3.NewFromConfig(cfg)}, nil
}

// once leaves retries to package bus, which repeats only what failed.
func once(o *eventbridge.Options) { o.Retryer = aws.NopRetryer{} }

// ObjectAPI is what of S3 the pipeline needs.
type ObjectAPI interface {
	claimcheck.PutAPI
	parking.API
}

// Pipeline returns the pipeline that a function with these settings and that timeout
// publishes with.
func Pipeline(db ledger.API, events bus.API, objects ObjectAPI, s settings.Publishing,
	timeout time.Duration) *intake.Pipeline {
	return intake.NewPipeline(
		ledger.New(db, s.LedgerTable, ledger.Options{Window: s.DeduplicationWindow}),
		bus.New(events, s.EventBusName, s.EventSource, bus.Options{MaxBytes: s.MaxEntryBytes}),
		claimcheck.NewStore(objects, s.ClaimBucket),
		parking.NewStore(objects, s.ParkingBucket),
		intake.Options{Timeout: timeout, Grace: s.RedriveGrace, ClaimBytes: s.ClaimCheckBytes},
	)
}
