// Package stores has the stores of a deployed stack, for the functions that publish.
package stores

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"payhook.example/shared/aws/client"
	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/aws/eventbridge"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/aws/tokenstore"
	"payhook.example/shared/intake"
	"payhook.example/shared/settings"
	"payhook.example/shared/token"
)

// Clients are clients of AWS that share a pool of connections.
type Clients struct {
	config      aws.Config
	connections *client.Connections
	dynamoDB    *dynamodb.Client
	eventBridge *eventbridge.Client
	s3          *s3.Client
}

// NewClients returns the clients of a function with that environment. They make no call yet.
func NewClients(getenv func(string) string) (Clients, error) {
	connections := client.NewConnections(intake.Parallel)
	cfg, err := client.Config(getenv, connections)
	if err != nil {
		return Clients{}, err
	}
	return Clients{config: cfg, connections: connections, dynamoDB: dynamodb.NewClient(cfg),
		eventBridge: eventbridge.NewClient(cfg), s3: s3.NewClient(cfg)}, nil
}

// Load returns the settings and the clients of a function with that environment.
func Load(function string, getenv func(string) string) (settings.Config, Clients, error) {
	conf, err := settings.ParseConfig(function, getenv)
	if err != nil {
		return conf, Clients{}, fmt.Errorf("settings:\n%w", err)
	}
	clients, err := NewClients(getenv)
	return conf, clients, err
}

// connectTimeout limits the time that a function waits for connections when it starts.
const connectTimeout = time.Second

// Connect opens connections to DynamoDB, EventBridge and the hosts of other URLs, at the same time, so that the first
// invocation does not wait for them. What could not be opened within a second is opened when it is needed.
func (c Clients) Connect(others ...*url.URL) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	if u, err := dynamodb.Endpoint(ctx, c.config); err == nil {
		others = append(others, &u)
	}
	if u, err := eventbridge.Endpoint(ctx, c.config); err == nil {
		others = append(others, &u)
	}
	c.connections.Open(ctx, others...)
}

// KeyEndpoint returns the client that calls the key endpoint, with the access token if that needs it. Without the token
// and CAs of the service, it uses the connections of c.
func (c Clients) KeyEndpoint(s settings.Config) *http.Client {
	if s.KeyEndpointAuth == settings.BearerToken {
		return WithToken(tokenstore.Source(c.config, s.TokenParameter, s.TokenSecret), s)
	}
	return &http.Client{Transport: trusting(s, c.connections)}
}

// trusting returns connections that trust the CAs of the service, or others if it has none of its own.
func trusting(s settings.Config, others http.RoundTripper) http.RoundTripper {
	if s.ServiceCAs == nil {
		return others
	}
	return client.NewConnections(1).Trust(s.ServiceCAs)
}

// WithToken returns a client that sends the access token to the key endpoint.
func WithToken(source token.Source, s settings.Config) *http.Client {
	return &http.Client{Transport: token.NewTransport(token.NewReader(source), s.KeyEndpoint, trusting(s, nil))}
}

// Stores returns the stores of the webhook function or of redrive.
func (c Clients) Stores(s settings.Config) intake.Stores {
	stores := intake.Stores{
		Ledger:      dynamodb.NewLedger(c.dynamoDB, s.LedgerTable),
		Keys:        dynamodb.NewKeys(c.dynamoDB, s.KeysTable),
		Bus:         eventbridge.NewBus(c.eventBridge, s.EventBusName),
		LargeEvents: s3.NewBucket(c.s3, s.LargeEventBucket),
		Parking:     s3.NewBucket(c.s3, s.ParkingBucket),
	}
	if s.EvidenceBucket != "" {
		stores.Evidence = s3.NewBucket(c.s3, s.EvidenceBucket)
	}
	return stores
}
