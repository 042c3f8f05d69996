// Webhook is the Lambda function behind the function URL or the HTTP API that the
// payment service sends its webhooks to. It reads its settings from the environment,
// creates the clients once, and passes both to the packages that do the work.
package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/aws/eventbridge"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/awsenv"
	"payhook.example/shared/bus"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
	"payhook.example/shared/parking"
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

// newFunction returns the function with the settings and clients of its environment.
// connect opens the connections that the first invocation needs.
func newFunction(getenv func(string) string) (h *handler, connect func(), err error) {
	conf, err := settings.ParseWebhook(getenv)
	if err != nil {
		return nil, nil, fmt.Errorf("settings:\n%w", err)
	}
	c, err := setup.NewClients(getenv)
	if err != nil {
		return nil, nil, err
	}
	var others []*url.URL
	if conf.UsesSignature() && conf.KeysAuth != settings.BearerToken && conf.ServiceCAs == nil {
		others = []*url.URL{conf.KeyService}
	}
	all := clients{c.DynamoDB, eventbridge.NewBus(c.EventBridge, conf.EventBusName), c.S3, setup.KeyService(c, conf)}
	return newHandler(conf, all,
		awsenv.NewLog(os.Stdout, getenv(names.StackEnv))), func() { c.Connect(others...) }, nil
}

// clients are the services that the function calls.
type clients struct {
	dynamoDB   dynamoDB
	bus        bus.Store
	s3         s3.API
	keyService *http.Client
}

type dynamoDB interface {
	dynamodb.KeysAPI
	dynamodb.LedgerAPI
}

// newHandler creates the handler from its clients and settings.
func newHandler(s settings.Function, c clients, log *awsenv.Log) *handler {
	h := &handler{
		allowed:         s.Networks,
		authentication:  s.Authentication,
		log:             log,
		successStatus:   s.SuccessStatus,
		maxPayloadBytes: s.MaxPayloadBytes,
	}
	var mechanisms intake.Mechanisms
	store := dynamodb.NewKeys(c.dynamoDB, s.KeysTable)
	if s.UsesSignature() {
		mechanisms.Signature = setup.Signature(store, c.keyService, s)
	}
	if m := s.MTLS; m != nil {
		h.origin = &origin{m.DomainName, m.APIID}
		mechanisms.MTLS = &intake.MTLS{
			Verifier: clientcert.NewVerifier(m.Truststore, m.Policy),
			Accepted: keys.NewCertificates(store),
		}
	}
	if !s.CaptureUntil.IsZero() {
		h.proof = s.Proof
		h.capturer = parking.NewCapturer(
			parking.NewStore(c.s3, s.ParkingBucket),
			store,
			s.CaptureUntil,
		)
	}
	var evidence *parking.Store
	if s.EvidenceBucket != "" {
		evidence = parking.NewStore(c.s3, s.EvidenceBucket)
	}
	h.receiver = intake.NewReceiver(setup.Pipeline(c.dynamoDB, c.bus, c.s3, evidence, s),
		mechanisms)
	return h
}
