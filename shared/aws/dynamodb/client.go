package dynamodb

import (
	"context"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// Client calls DynamoDB. It has all of the interfaces of this package.
type Client = dynamodb.Client

// NewClient returns a client with that configuration.
func NewClient(cfg aws.Config) *Client { return dynamodb.NewFromConfig(cfg) }

// Endpoint returns the URL that a client with that configuration calls.
func Endpoint(ctx context.Context, cfg aws.Config) (url.URL, error) {
	p := dynamodb.EndpointParameters{Region: &cfg.Region, Endpoint: cfg.BaseEndpoint}.WithDefaults()
	e, err := dynamodb.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx, p)
	return e.URI, err
}
