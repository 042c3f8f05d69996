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

// environment has the settings of a deployed function, by their variables.
type environment map[string]string

// setting returns the text of a setting.
func (e environment) setting(key string) string {
	s := settings.Named(key)
	return cmp.Or(e[s.Env()], s.Default)
}

// carriers say where and how the function expects the proof.
func (e environment) carriers() paymenttest.Carriers {
	return paymenttest.Carriers{
		SignatureHeader: e.setting("signatureHeader"), Timestamp: e.setting("timestampCarrier"),
		KeyID: e.setting("keyIdCarrier"), TimestampFormat: e.setting("timestampFormat"),
	}
}

// simulated returns the payment service of the local run, which signs and sends webhooks, and the
// settings of the webhook function. Its error is one of usage if the local run uses another service.
func simulated(ctx context.Context, d *deployment.Deployment) (paymenttest.Remote, environment, error) {
	service := paymenttest.Remote{URL: d.PaymentService}
	if !d.Simulated {
		return service, nil, cli.Usage("only the simulated payment service signs on request, and this local run uses "+
			"%s: let that service send its own webhooks", d.PaymentService)
	}
	function, err := lambda.NewFromConfig(d.AWS).GetFunctionConfiguration(ctx,
		&lambda.GetFunctionConfigurationInput{FunctionName: aws.String(d.Functions["webhook"])})
	if err != nil {
		return service, nil, cli.Unreachable(fmt.Errorf("the settings of the webhook function: %w", err))
	}
	if function.Environment == nil {
		return service, nil, nil
	}
	return service, function.Environment.Variables, nil
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

// webhook returns the webhook of which the event is one, to send to a URL.
func (s sample) webhook(to string) paymenttest.Webhook {
	w := paymenttest.Webhook{URL: to, Method: s.RequestContext.HTTP.Method, Payload: s.payload,
		ContentType: s.Headers["content-type"]}
	if s.RawQueryString != "" {
		w.URL += "?" + s.RawQueryString
	}
	return w
}
