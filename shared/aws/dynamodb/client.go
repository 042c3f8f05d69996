package dynamodb

import (
	"context"
	"errors"
	"net/url"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	awsclient "payhook.example/shared/aws/client"
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

// failed returns the error of a call, with DynamoDB's reasons for throttling. A statement of a batch has no reasons
// (https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchStatementError.html). The resources of the
// reasons are ARNs and left out.
func failed(operation string, err error) error {
	var reasons []types.ThrottlingReason
	if e, ok := errors.AsType[*types.ProvisionedThroughputExceededException](err); ok {
		reasons = e.ThrottlingReasons
	} else if e, ok := errors.AsType[*types.ThrottlingException](err); ok {
		reasons = e.ThrottlingReasons
	} else if e, ok := errors.AsType[*types.RequestLimitExceeded](err); ok {
		reasons = e.ThrottlingReasons
	}
	var texts []string
	for _, r := range reasons {
		if text := aws.ToString(r.Reason); text != "" && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return awsclient.ErrorOf(service+operation, err, texts...)
}

const service = "DynamoDB "
