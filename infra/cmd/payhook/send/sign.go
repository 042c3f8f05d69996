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

// sample is an event of a function URL or an HTTP API in payload format 2.0 (AWS, "Invoking
// Lambda function URLs" in the Lambda developer guide).
type sample struct {
	events.APIGatewayV2HTTPRequest
	payload []byte
}

// parseSample reads a sample event. It returns false if text is something else.
func parseSample(text []byte) (s sample, ok bool) {
	r := &s.APIGatewayV2HTTPRequest
	if json.Unmarshal(text, r) != nil || r.Version != "2.0" || r.RequestContext.HTTP.Method == "" {
		return s, false
	}
	if r.Headers == nil {
		r.Headers = map[string]string{}
	}
	s.payload = []byte(r.Body)
	if !r.IsBase64Encoded {
		return s, true
	}
	var err error
	s.payload, err = base64.StdEncoding.DecodeString(r.Body)
	return s, err == nil
}

// webhook returns w with what the event has of a webhook: the method, the query and the payload.
func (s sample) webhook(w paymenttest.Webhook) paymenttest.Webhook {
	w.Method, w.Payload, w.ContentType = s.RequestContext.HTTP.Method, s.payload, s.Headers["content-type"]
	if s.RawQueryString != "" {
		w.URL += "?" + s.RawQueryString
	}
	return w
}
