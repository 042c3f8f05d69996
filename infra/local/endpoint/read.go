package endpoint

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/apigatewayv2"
	"github.com/aws/aws-sdk-go-v2/service/apigatewayv2/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Read returns the API on a domain as it is deployed in an account: the mapping of
// the domain, its route with the function, and the truststore from S3.
func Read(ctx context.Context, cfg aws.Config, account, domain string) (API, error) {
	client := apigatewayv2.NewFromConfig(cfg)
	name, err := client.GetDomainName(ctx, &apigatewayv2.GetDomainNameInput{DomainName: &domain})
	if err != nil {
		return API{}, err
	}
	mappings, err := client.GetApiMappings(ctx, &apigatewayv2.GetApiMappingsInput{DomainName: &domain})
	if err != nil || len(mappings.Items) != 1 {
		return API{}, fmt.Errorf("endpoint: %s does not have one API: %w", domain, err)
	}
	api := API{Domain: domain, Account: account, ID: *mappings.Items[0].ApiId, Stage: *mappings.Items[0].Stage}
	routes, err := client.GetRoutes(ctx, &apigatewayv2.GetRoutesInput{ApiId: &api.ID})
	if err != nil || len(routes.Items) != 1 {
		return API{}, fmt.Errorf("endpoint: the API %s does not have one route: %w", api.ID, err)
	}
	api.RouteKey = *routes.Items[0].RouteKey
	id := strings.TrimPrefix(aws.ToString(routes.Items[0].Target), "integrations/")
	integration, err := client.GetIntegration(ctx,
		&apigatewayv2.GetIntegrationInput{ApiId: &api.ID, IntegrationId: &id})
	if err != nil {
		return API{}, err
	}
	// The URI is the ARN of the function, or contains it.
	api.Function = aws.ToString(integration.IntegrationUri)
	if _, arn, ok := strings.Cut(api.Function, "/functions/"); ok {
		api.Function = strings.TrimSuffix(arn, "/invocations")
	}
	api.Timeout = time.Duration(aws.ToInt32(integration.TimeoutInMillis)) * time.Millisecond
	if m := name.MutualTlsAuthentication; m != nil && aws.ToString(m.TruststoreUri) != "" {
		api.Truststore, err = readTruststore(ctx, cfg, m)
	}
	return api, err
}

// readTruststore reads the object that the domain names. API Gateway does so when
// the domain is created or updated, and needs s3:GetObject on it.
func readTruststore(ctx context.Context, cfg aws.Config, m *types.MutualTlsAuthentication) ([]byte, error) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(*m.TruststoreUri, "s3://"), "/")
	out, err := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true }).GetObject(ctx,
		&s3.GetObjectInput{Bucket: &bucket, Key: &key, VersionId: m.TruststoreVersion})
	if err != nil {
		return nil, err
	}
	defer out.Body.Close()
	return io.ReadAll(out.Body)
}
