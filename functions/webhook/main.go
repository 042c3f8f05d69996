// Webhook is the Lambda function behind the function URL or the HTTP API that the
// payment service sends its webhooks to. It reads its settings from the environment,
// creates the clients once, and passes both to the packages that do the work.
package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"

	"payhook.example/shared/aws/client"
	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/aws/eventbridge"
	"payhook.example/shared/aws/keyservice"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/awsenv"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
	"payhook.example/shared/setup"
)

func main() {
	awsenv.Tune(os.Getenv)
	h, connect, err := newFunction(os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1)
	}
	connect()
	lambda.Start(lambda.Handler(h)) // its Invoke gets the bytes of the invocation as they are
}

// newFunction returns the function with the settings and stores of its environment.
// connect opens the connections that the first invocation needs.
func newFunction(getenv func(string) string) (h *handler, connect func(), err error) {
	conf, err := settings.ParseWebhook(getenv)
	if err != nil {
		return nil, nil, fmt.Errorf("settings:\n%w", err)
	}
	connections := client.NewConnections(intake.Parallel)
	cfg, err := client.Config(getenv, connections)
	if err != nil {
		return nil, nil, err
	}
	stores := newStores(dynamodb.NewClient(cfg), eventbridge.NewClient(cfg, connections.Once()), s3.NewClient(cfg),
		conf)
	h = newHandler(stores, keyservice.NewClient(cfg, connections, conf), conf,
		awsenv.NewLog(os.Stdout, getenv(names.StackEnv)))
	return h, func() { open(cfg, connections, conf) }, nil
}

// connectTimeout limits the time that the function waits for connections when it starts.
const connectTimeout = time.Second

// open opens connections to DynamoDB, EventBridge and the key service, at the same time, so that the first invocation
// does not wait for them. What could not be opened within a second is opened when it is needed.
func open(cfg aws.Config, connections *client.Connections, s settings.Function) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	var urls []*url.URL
	if s.UsesSignature() && s.KeysAuth != settings.BearerToken && s.ServiceCAs == nil {
		urls = append(urls, s.KeyService)
	}
	if u, err := dynamodb.Endpoint(ctx, cfg); err == nil {
		urls = append(urls, &u)
	}
	if u, err := eventbridge.Endpoint(ctx, cfg); err == nil {
		urls = append(urls, &u)
	}
	connections.Open(ctx, urls...)
}

type dynamoDB interface {
	dynamodb.KeysAPI
	dynamodb.LedgerAPI
}

// newStores returns the stores of the function.
func newStores(db dynamoDB, events eventbridge.PutAPI, buckets s3.API, conf settings.Function) setup.Stores {
	stores := setup.Stores{
		Ledger:  dynamodb.NewLedger(db, conf.LedgerTable),
		Keys:    dynamodb.NewKeys(db, conf.KeysTable),
		Bus:     eventbridge.NewBus(events, conf.EventBusName),
		Claims:  s3.NewBucket(buckets, conf.ClaimBucket),
		Parking: s3.NewWriter(buckets, conf.ParkingBucket),
	}
	if conf.EvidenceBucket != "" {
		stores.Evidence = s3.NewWriter(buckets, conf.EvidenceBucket)
	}
	return stores
}

// newHandler creates the handler from its stores and settings. keyService calls the key service.
func newHandler(stores setup.Stores, keyService *http.Client, s settings.Function, log *awsenv.Log) *handler {
	h := &handler{
		allowed:         s.Networks,
		authentication:  s.Authentication,
		log:             log,
		successStatus:   s.SuccessStatus,
		maxPayloadBytes: s.MaxPayloadBytes,
	}
	var mechanisms intake.Mechanisms
	if s.UsesSignature() {
		mechanisms.Signature = setup.Signature(stores.Keys, keyService, s)
	}
	if m := s.MTLS; m != nil {
		h.origin = &origin{m.DomainName, m.APIID}
		mechanisms.MTLS = &intake.MTLS{
			Verifier: clientcert.NewVerifier(m.Truststore, m.Policy),
			Accepted: keys.NewCertificates(stores.Keys),
		}
	}
	if !s.CaptureUntil.IsZero() {
		h.captured = s.Proof
		h.capturer = proof.NewCapturer(stores.Parking, stores.Keys, s.Scheme, s.CaptureUntil)
	}
	h.receiver = intake.NewReceiver(setup.Pipeline(stores, s), mechanisms)
	return h
}
