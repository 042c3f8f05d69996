package apigateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/apigatewayv2"
	"github.com/aws/aws-sdk-go-v2/service/apigatewayv2/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Read returns the API on a domain as it is deployed in an account: the mapping of
// the domain, the routes with their functions and permissions, the throttling of
// the stage, and the truststore from S3.
func Read(ctx context.Context, cfg aws.Config, account, domain string) (API, error) {
	client := apigatewayv2.NewFromConfig(cfg)
	api := API{Domain: domain, Account: account, Routes: map[string]Route{}}
	name, err := client.GetDomainName(ctx, &apigatewayv2.GetDomainNameInput{DomainName: &domain})
	if err != nil {
		return API{}, err
	}
	mappings, err := client.GetApiMappings(ctx, &apigatewayv2.GetApiMappingsInput{DomainName: &domain})
	if err != nil {
		return API{}, err
	}
	if len(mappings.Items) != 1 || aws.ToString(mappings.Items[0].ApiMappingKey) != "" {
		return API{}, fmt.Errorf("apigateway: %s has %d mappings, not one for all paths", domain, len(mappings.Items))
	}
	api.ID, api.Stage = *mappings.Items[0].ApiId, *mappings.Items[0].Stage
	if err := api.readRoutes(ctx, cfg, client); err != nil {
		return API{}, err
	}
	stage, err := client.GetStage(ctx, &apigatewayv2.GetStageInput{ApiId: &api.ID, StageName: &api.Stage})
	if err != nil {
		return API{}, err
	}
	if s := stage.DefaultRouteSettings; s != nil {
		api.Rate, api.Burst = aws.ToFloat64(s.ThrottlingRateLimit), int(aws.ToInt32(s.ThrottlingBurstLimit))
	}
	if m := name.MutualTlsAuthentication; m != nil && aws.ToString(m.TruststoreUri) != "" {
		if api.Truststore, err = readTruststore(ctx, cfg, m); err != nil {
			return API{}, err
		}
	}
	return api, nil
}

func (api *API) readRoutes(ctx context.Context, cfg aws.Config, client *apigatewayv2.Client) error {
	routes, err := client.GetRoutes(ctx, &apigatewayv2.GetRoutesInput{ApiId: &api.ID})
	if err != nil {
		return err
	}
	for _, r := range routes.Items {
		id := strings.TrimPrefix(aws.ToString(r.Target), "integrations/")
		integration, err := client.GetIntegration(ctx,
			&apigatewayv2.GetIntegrationInput{ApiId: &api.ID, IntegrationId: &id})
		if err != nil {
			return err
		}
		if integration.IntegrationType != types.IntegrationTypeAwsProxy ||
			aws.ToString(integration.PayloadFormatVersion) != "2.0" {
			return fmt.Errorf("apigateway: route %s is not a Lambda proxy integration with payload format 2.0",
				*r.RouteKey)
		}
		route := Route{
			Function: functionOf(aws.ToString(integration.IntegrationUri)),
			Timeout:  time.Duration(aws.ToInt32(integration.TimeoutInMillis)) * time.Millisecond,
		}
		allowed, err := api.mayInvoke(ctx, lambda.NewFromConfig(cfg), cfg.Region, route.Function, *r.RouteKey)
		if err != nil {
			return err
		}
		route.Denied = !allowed
		api.Routes[*r.RouteKey] = route
	}
	if len(api.Routes) == 0 {
		return fmt.Errorf("apigateway: the API %s has no route", api.ID)
	}
	return nil
}

// functionOf returns the ARN of a function from the URI of an integration, which is
// the ARN or holds it.
func functionOf(uri string) string {
	if _, arn, ok := strings.Cut(uri, "/functions/"); ok {
		return strings.TrimSuffix(arn, "/invocations")
	}
	return uri
}

// mayInvoke reports whether the function's policy allows API Gateway to invoke it
// for a route (AWS, "Invoking a Lambda function using an Amazon API Gateway
// endpoint"). The emulator does not ask for it.
func (api *API) mayInvoke(ctx context.Context, client *lambda.Client, region, function, routeKey string) (bool, error) {
	input := &lambda.GetPolicyInput{FunctionName: &function}
	if parts := strings.Split(function, ":"); len(parts) == 8 {
		input.FunctionName, input.Qualifier = aws.String(strings.Join(parts[:7], ":")), &parts[7]
	}
	out, err := client.GetPolicy(ctx, input)
	if _, ok := errors.AsType[*lambdatypes.ResourceNotFoundException](err); ok {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var policy struct {
		Statement []struct {
			Effect    string
			Principal any
			Action    string
			Condition map[string]map[string]string
		}
	}
	if err := json.Unmarshal([]byte(*out.Policy), &policy); err != nil {
		return false, fmt.Errorf("apigateway: the policy of %s: %w", function, err)
	}
	method, path, ok := strings.Cut(routeKey, " ")
	if !ok {
		method, path = "*", "/"+routeKey
	}
	if method == "ANY" {
		method = "*"
	}
	source := fmt.Sprintf("arn:aws:execute-api:%s:%s:%s/%s/%s%s", region, api.Account, api.ID, api.Stage, method, path)
	for _, s := range policy.Statement {
		if s.Effect == "Allow" && s.Action == "lambda:InvokeFunction" && isAPIGateway(s.Principal) &&
			allows(s.Condition, source) {
			return true, nil
		}
	}
	return false, nil
}

func isAPIGateway(principal any) bool {
	service, ok := principal.(map[string]any)
	return ok && service["Service"] == "apigateway.amazonaws.com"
}

// allows reports whether a condition on the ARN of the source, if there is one, is
// met.
func allows(condition map[string]map[string]string, source string) bool {
	for operator, keys := range condition {
		for key, value := range keys {
			if (operator != "ArnLike" && operator != "ArnEquals") || !strings.EqualFold(key, "aws:SourceArn") ||
				!like(value, source) {
				return false
			}
		}
	}
	return true
}

// like reports whether an ARN matches a pattern with * and ?.
func like(pattern, arn string) bool {
	expression := regexp.QuoteMeta(pattern)
	expression = strings.ReplaceAll(strings.ReplaceAll(expression, `\*`, ".*"), `\?`, ".")
	return regexp.MustCompile("^" + expression + "$").MatchString(arn)
}

// readTruststore reads the object that the domain names. API Gateway does so when
// the domain is created or updated, and needs s3:GetObject on it.
func readTruststore(ctx context.Context, cfg aws.Config, m *types.MutualTlsAuthentication) ([]byte, error) {
	uri, err := url.Parse(*m.TruststoreUri)
	if err != nil || uri.Scheme != "s3" || uri.Host == "" {
		return nil, fmt.Errorf("apigateway: the truststore %s is not in S3", *m.TruststoreUri)
	}
	out, err := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true }).GetObject(ctx, &s3.GetObjectInput{
		Bucket: &uri.Host, Key: aws.String(strings.TrimPrefix(uri.Path, "/")), VersionId: m.TruststoreVersion,
	})
	if err != nil {
		return nil, err
	}
	defer out.Body.Close()
	return io.ReadAll(out.Body)
}
