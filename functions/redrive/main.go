// Redrive is the Lambda function that publishes, on a schedule, events that were
// recorded but are not on the bus. It also replays and dismisses what is parked, and replays
// rejected webhooks. It reads its settings from the environment, creates the stores once,
// and passes both to the packages that do the work.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"payhook.example/shared/aws/client"
	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/aws/eventbridge"
	"payhook.example/shared/aws/keyservice"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/awsenv"
	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
	"payhook.example/shared/settings"
	"payhook.example/shared/setup"
)

func main() {
	awsenv.Tune(os.Getenv)
	h, err := newFunction(os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "redrive:", err)
		os.Exit(1)
	}
	lambda.Start(h.Handle)
}

// newFunction returns the function with the settings and stores of its environment.
func newFunction(getenv func(string) string) (*handler, error) {
	conf, err := settings.ParseRedrive(getenv)
	if err != nil {
		return nil, fmt.Errorf("settings:\n%w", err)
	}
	connections := client.NewConnections(intake.Parallel)
	cfg, err := client.Config(getenv, connections)
	if err != nil {
		return nil, err
	}
	stores := newStores(dynamodb.NewClient(cfg), eventbridge.NewClient(cfg, connections.Once()), s3.NewClient(cfg),
		conf)
	return newHandler(stores, keyservice.NewClient(cfg, connections, conf), conf,
		awsenv.NewLog(os.Stdout, getenv(names.StackEnv))), nil
}

// stores are those of the function.
type stores struct {
	setup.Stores
	bus         bus.Finder
	certificate keys.CertificateReader
	parking     parking
}

type dynamoDB interface {
	dynamodb.LedgerAPI
	dynamodb.KeysAPI
}

func newStores(db dynamoDB, events eventbridge.FindAPI, buckets s3.API, conf settings.Function) stores {
	b := eventbridge.NewFindableBus(events, conf.EventBusName)
	k := dynamodb.NewKeys(db, conf.KeysTable)
	parked := s3.NewBucket(buckets, conf.ParkingBucket)
	all := stores{setup.Stores{
		Ledger:  dynamodb.NewLedger(db, conf.LedgerTable),
		Keys:    k,
		Bus:     b,
		Claims:  s3.NewBucket(buckets, conf.ClaimBucket),
		Parking: parked,
	}, b, k, parked}
	if conf.EvidenceBucket != "" {
		all.Evidence = s3.NewWriter(buckets, conf.EvidenceBucket)
	}
	return all
}

// findTimeout is the time to find the bus. A call that is not answered leaves the rest to the run.
const findTimeout = 5 * time.Second

// newHandler creates the handler from its stores and settings. keyService calls the key service, for rejected webhooks.
func newHandler(all stores, keyService *http.Client, s settings.Function, log *awsenv.Log) *handler {
	accepting := setup.Pipeline(all.Stores, s)
	all.Evidence = nil // a parked delivery has its proof
	pipeline := setup.Pipeline(all.Stores, s)
	h := &handler{
		redriver: intake.NewRedriver(pipeline, s.RedriveAttempts),
		replayer: intake.NewReplayer(pipeline, nil, s.Revoked),
		findBus: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, findTimeout)
			defer cancel()
			return bus.Find(ctx, all.bus)
		},
		parking: all.parking,
		revoked: s.RevokedKeys,
		log:     log,
		now:     func() time.Time { return time.Now().UTC() },
	}
	if s.MTLS != nil {
		h.replayer = intake.NewReplayer(pipeline, s.MTLS.Truststore, s.Revoked)
		h.trust = &trust{s.MTLS, s.Authentication, all.certificate}
	} else if s.KeysTable != "" {
		h.rejected = newRejected(accepting, setup.Signature(all.Keys, keyService, s), s)
	}
	return h
}
