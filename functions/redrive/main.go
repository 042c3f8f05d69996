// Redrive is the Lambda function that publishes, on a schedule, events that were
// recorded but are not on the bus. It also replays and dismisses parked objects, and replays
// captured webhooks. It reads its settings from the environment, creates the clients once,
// and passes both to the packages that do the work.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/aws/eventbridge"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/awsenv"
	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/names"
	"payhook.example/shared/parking"
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

// newFunction returns the function with the settings and clients of its environment.
func newFunction(getenv func(string) string) (*handler, error) {
	conf, err := settings.ParseRedrive(getenv)
	if err != nil {
		return nil, fmt.Errorf("settings:\n%w", err)
	}
	c, err := setup.NewClients(getenv)
	if err != nil {
		return nil, err
	}
	b := eventbridge.NewFindableBus(c.EventBridge, conf.EventBusName)
	return newHandler(conf, clients{c.DynamoDB, b, c.S3, setup.KeyService(c, conf)},
		awsenv.NewLog(os.Stdout, getenv(names.StackEnv))), nil
}

// clients are the services that the function calls.
type clients struct {
	dynamoDB   dynamoDB
	bus        eventBus
	s3         s3.API
	keyService *http.Client // only for captured webhooks
}

type eventBus interface {
	bus.Store
	bus.Finder
}

type dynamoDB interface {
	dynamodb.LedgerAPI
	dynamodb.KeysAPI
}

// findTimeout is the time to find the bus. A call that is not answered leaves the rest to the run.
const findTimeout = 5 * time.Second

// newHandler creates the handler from its clients and settings.
func newHandler(s settings.Function, c clients, log *awsenv.Log) *handler {
	pipeline := setup.Pipeline(c.dynamoDB, c.bus, c.s3, nil, s)
	h := &handler{
		redriver: intake.NewRedriver(pipeline, s.RedriveAttempts),
		replayer: intake.NewReplayer(pipeline, nil, s.Revoked),
		findBus: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, findTimeout)
			defer cancel()
			return bus.Find(ctx, c.bus)
		},
		parking: parking.NewStore(c.s3, s.ParkingBucket),
		revoked: s.RevokedKeys,
		log:     log,
		now:     func() time.Time { return time.Now().UTC() },
	}
	if s.MTLS != nil {
		h.replayer = intake.NewReplayer(pipeline, s.MTLS.Truststore, s.Revoked)
		h.trust = &trust{s.MTLS, s.Authentication, dynamodb.NewCertificate(c.dynamoDB, s.KeysTable)}
	} else if s.KeysTable != "" {
		h.captured = newCaptured(s, c)
	}
	return h
}
