package endpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"payhook.example/infra/deployment"
)

// truststore is the object with the truststore of a domain.
type truststore struct{ TruststoreURI, TruststoreVersion string }

// Read returns the API on a domain as it is deployed in the account of an emulator: the mapping
// of the domain, its route with the function, and the truststore from S3.
func Read(ctx context.Context, cfg aws.Config, account, domain string) (API, error) {
	get := func(path string, into any) error {
		text, err := deployment.Get(ctx, *cfg.BaseEndpoint, cfg.Region, "apigateway", "/v2/"+path)
		if err != nil {
			return fmt.Errorf("endpoint: %w", err)
		}
		return json.Unmarshal(text, into)
	}
	var name struct{ MutualTLSAuthentication truststore }
	if err := get("domainnames/"+domain, &name); err != nil {
		return API{}, err
	}
	var mappings struct {
		Items []struct{ APIID, Stage string }
	}
	if err := get("domainnames/"+domain+"/apimappings", &mappings); err != nil || len(mappings.Items) != 1 {
		return API{}, fmt.Errorf("endpoint: %s does not have one API: %w", domain, err)
	}
	api := API{Domain: domain, Account: account, ID: mappings.Items[0].APIID, Stage: mappings.Items[0].Stage}
	var routes struct {
		Items []struct{ RouteKey, Target string }
	}
	if err := get("apis/"+api.ID+"/routes", &routes); err != nil || len(routes.Items) != 1 {
		return API{}, fmt.Errorf("endpoint: the API %s does not have one route: %w", api.ID, err)
	}
	api.RouteKey = routes.Items[0].RouteKey
	var integration struct {
		IntegrationURI  string
		TimeoutInMillis int64
	}
	if err := get("apis/"+api.ID+"/"+routes.Items[0].Target, &integration); err != nil {
		return API{}, err
	}
	// The URI is the ARN of the function, or contains it.
	api.Function = integration.IntegrationURI
	if _, arn, ok := strings.Cut(api.Function, "/functions/"); ok {
		api.Function = strings.TrimSuffix(arn, "/invocations")
	}
	api.Timeout = time.Duration(integration.TimeoutInMillis) * time.Millisecond
	var err error
	if m := name.MutualTLSAuthentication; m.TruststoreURI != "" {
		api.Truststore, err = m.read(ctx, cfg)
	}
	return api, err
}

// read reads the object. API Gateway does so when the domain is created or updated, and needs
// s3:GetObject on it.
func (t truststore) read(ctx context.Context, cfg aws.Config) ([]byte, error) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(t.TruststoreURI, "s3://"), "/")
	in := &s3.GetObjectInput{Bucket: &bucket, Key: &key}
	if t.TruststoreVersion != "" {
		in.VersionId = &t.TruststoreVersion
	}
	out, err := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true }).GetObject(ctx, in)
	if err != nil {
		return nil, err
	}
	defer out.Body.Close()
	return io.ReadAll(out.Body)
}
