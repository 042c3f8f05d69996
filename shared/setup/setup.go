// Package setup builds what the functions that publish have in common: their AWS
// clients, their pipeline, and how they verify signatures.
package setup

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/aws/eventbridge"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/aws/tokenstore"
	"payhook.example/shared/awsenv"
	"payhook.example/shared/bus"
	"payhook.example/shared/claimcheck"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
	"payhook.example/shared/settings"
	"payhook.example/shared/token"
)

// Clients are AWS clients that share a pool of connections.
type Clients struct {
	Config      aws.Config
	Connections *awsenv.Connections
	DynamoDB    *dynamodb.Client
	EventBridge *eventbridge.Client
	S3          *s3.Client
}

// NewClients returns the clients of a function with that environment. They make no
// call yet.
func NewClients(getenv func(string) string) (Clients, error) {
	connections := awsenv.NewConnections(intake.Parallel)
	cfg, err := awsenv.Config(getenv, connections)
	if err != nil {
		return Clients{}, err
	}
	return Clients{cfg, connections, dynamodb.NewClient(cfg), eventbridge.NewClient(cfg, connections.Once()),
		s3.NewClient(cfg)}, nil
}

// connectTimeout limits the time that a function waits for connections when it starts.
const connectTimeout = time.Second

// Connect opens connections to DynamoDB, EventBridge and the hosts of other URLs, at the
// same time, so that the first invocation does not wait for them. It takes at most a
// second. What could not be opened by then is opened when it is needed.
func (c Clients) Connect(others ...*url.URL) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	if e, err := dynamodb.Endpoint(ctx, c.Config); err == nil {
		others = append(others, &e)
	}
	if e, err := eventbridge.Endpoint(ctx, c.Config); err == nil {
		others = append(others, &e)
	}
	c.Connections.Open(ctx, others...)
}

// Pipeline returns the pipeline that a function with these settings publishes with. evidence can
// be nil.
func Pipeline(db dynamodb.LedgerAPI, events bus.Store, objects s3.API, evidence *parking.Store,
	s settings.Function) *intake.Pipeline {
	return intake.NewPipeline(
		ledger.New(dynamodb.NewLedger(db, s.LedgerTable), ledger.Options{Window: s.DeduplicationWindow}),
		bus.New(events, s.EventSource, s.MaxEntryBytes),
		claimcheck.NewStore(s3.NewBucket(objects, s.ClaimBucket), s.ClaimBucket),
		parking.NewStore(objects, s.ParkingBucket),
		intake.Options{Grace: s.RedriveGrace, ClaimBytes: settings.ClaimCheckBytes, Evidence: evidence},
	)
}

// KeyService returns the client that calls the key service, with the access token if that needs it.
func KeyService(c Clients, s settings.Function) *http.Client {
	if s.KeysAuth == settings.BearerToken {
		return WithToken(tokenstore.Source(c.Config, s.TokenParameter, s.TokenSecret), s)
	}
	return &http.Client{Transport: trusting(s, c.Connections)}
}

// trusting returns connections that trust the CAs of the service, or others if it has none of its own.
func trusting(s settings.Function, others http.RoundTripper) http.RoundTripper {
	if s.ServiceCAs == nil {
		return others
	}
	return awsenv.NewConnections(1).Trust(s.ServiceCAs)
}

// WithToken returns a client that sends the access token to the key service.
func WithToken(source token.Source, s settings.Function) *http.Client {
	return &http.Client{Transport: token.NewTransport(token.NewReader(source), s.KeyService, trusting(s, nil))}
}

// Signature returns what verifies the signatures of webhooks with these settings.
func Signature(store keys.Store, keyService *http.Client, s settings.Function) *intake.Signature {
	origin := keys.NewOrigin(keyService, s.KeyService, settings.KeyTimeout)
	return &intake.Signature{Scheme: s.Scheme, Window: s.Window, Revoked: s.Revoked,
		Keys: keys.New(origin, store, KeyOptions(s))}
}

// KeyOptions returns the options of the cache of keys.
func KeyOptions(s settings.Function) keys.Options {
	return keys.Options{Freshness: s.KeyFreshness, MaxAge: s.KeyMaxAge, MissBudget: s.KeyMissBudget}
}
