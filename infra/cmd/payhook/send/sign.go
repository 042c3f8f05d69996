package send

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// simulated returns the payment service of the local run, which signs and sends webhooks, and a
// webhook with the URL and locations that are deployed. Its error is one of usage if the local
// run uses another service.
func simulated(ctx context.Context, d *deployment.Deployment) (service paymenttest.Remote,
	deployed paymenttest.Webhook, err error) {
	service.URL = d.PaymentService
	if !d.Simulated {
		return service, deployed, cli.Usage("only the simulated payment service signs on request, and this local run "+
			"uses %s: let that service send its own webhooks", d.PaymentService)
	}
	function, err := lambda.NewFromConfig(d.AWS).GetFunctionConfiguration(ctx,
		&lambda.GetFunctionConfigurationInput{FunctionName: aws.String(d.Functions["webhook"])})
	if err != nil {
		return service, deployed, cli.Unreachable(fmt.Errorf("the settings of the webhook function: %w", err))
	}
	setting := func(key string) string {
		s := settings.Named(key)
		if function.Environment == nil {
			return s.Default
		}
		return cmp.Or(function.Environment.Variables[s.Env()], s.Default)
	}
	deployed.URL = d.WebhookURL
	deployed.Locations = paymenttest.Locations{
		SignatureHeader: setting("signatureHeader"), Timestamp: setting("timestampLocation"),
		KeyID: setting("keyIdLocation"),
	}
	return service, deployed, nil
}

// read sets what a file has of a webhook. A sample event of a function URL or an HTTP API in payload format 2.0 (AWS,
// "Invoking Lambda function URLs" in the Lambda developer guide) has method, query and payload; any other text is the
// payload.
func read(text []byte, w *paymenttest.Webhook) {
	w.Payload = text
	var r events.APIGatewayV2HTTPRequest
	if json.Unmarshal(text, &r) != nil || r.Version != "2.0" || r.RequestContext.HTTP.Method == "" {
		return
	}
	payload, err := []byte(r.Body), error(nil)
	if r.IsBase64Encoded {
		payload, err = base64.StdEncoding.DecodeString(r.Body)
	}
	if err != nil {
		return
	}
	w.Method, w.Payload, w.ContentType = r.RequestContext.HTTP.Method, payload, r.Headers["content-type"]
	if r.RawQueryString != "" {
		w.URL = "?" + r.RawQueryString
	}
}
