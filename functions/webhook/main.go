// Webhook is the Lambda function behind the function URL or the HTTP API that the
// payment service sends its webhooks to. It reads its settings from the environment,
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
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"payhook.example/shared/bus"
	"payhook.example/shared/claimcheck"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
	"payhook.example/shared/settings"
	"payhook.example/shared/telemetry"
	"payhook.example/shared/token"
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
	conf, err := settings.ParseWebhook(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("settings:\n%w", err)
	}
	cfg, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(pool()))
	if err != nil {
		return nil, err
	}
	return newHandler(conf, clients{
		dynamoDB:    dynamodb.NewFromConfig(cfg),
		eventBridge: eventbridge.NewFromConfig(cfg, once),
		s3:          s3.NewFromConfig(cfg),
		keyService:  keyService(conf, secretsmanager.NewFromConfig(cfg)),
	}, telemetry.New(os.Stdout, os.Getenv("AWS_LAMBDA_FUNCTION_NAME"))), nil
}

// clients are all that the function calls.
type clients struct {
	dynamoDB interface {
		keys.API
		ledger.API
	}
	eventBridge bus.API
	s3          parking.API
	keyService  *http.Client
}

// keyService returns the client that fetches keys: one that sends the access
// token where the service wants it.
func keyService(s settings.Webhook, secrets token.Getter) *http.Client {
	if !s.KeysBearer {
		return &http.Client{}
	}
	return token.NewClient(token.NewReader(secrets, s.TokenSecret, token.ReaderOptions{}), s.BaseURL)
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

// newHandler wires everything but the clients.
func newHandler(s settings.Webhook, c clients, log *telemetry.Log) *handler {
	cache := keys.New(
		keys.NewOrigin(c.keyService, s.BaseURL, s.KeyTimeout),
		keys.NewTable(c.dynamoDB, s.KeysTable),
		keys.Options{
			Exponents:    s.KeyExponents,
			Freshness:    s.KeyFreshness,
			MaxAge:       s.KeyMaxAge,
			UnknownGrace: s.KeyUnknownGrace,
			UnknownTTL:   s.UnknownKeyTTL,
			MissBudget:   s.KeyMissBudget,
			MissReserve:  s.KeyMissReserve,
		},
	)
	opts := intake.Options{Timeout: s.Timeout, Grace: s.RedriveGrace, ClaimBytes: s.ClaimCheckBytes}
	if s.ClaimBucket != "" {
		opts.Claims = claimcheck.NewStore(c.s3, s.ClaimBucket)
	}
	if s.ParkingBucket != "" {
		opts.Parking = parking.NewStore(c.s3, s.ParkingBucket)
	}
	h := &handler{
		authentication:  s.Authentication,
		log:             log,
		method:          s.HTTPMethod,
		successStatus:   s.SuccessStatus,
		maxPayloadBytes: s.MaxPayloadBytes,
	}
	if m := s.MTLS; m != nil {
		h.origin = &origin{m.DomainName, m.APIID}
		opts.MTLS = &intake.MTLS{
			Verifier: clientcert.NewVerifier(m.Truststore, m.Policy),
			Alone:    !s.UsesSignature(),
			Accepted: keys.NewCertificates(c.dynamoDB, s.KeysTable),
		}
	}
	h.receiver = intake.NewReceiver(s.Scheme, s.Window, cache,
		ledger.New(c.dynamoDB, s.LedgerTable, ledger.Options{Window: s.DeduplicationWindow}),
		bus.New(c.eventBridge, s.EventBusName, s.EventSource, bus.Options{MaxBytes: s.MaxEntryBytes}),
		opts,
	)
	return h
}
