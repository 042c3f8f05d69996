package send

import (
	"encoding/base64"
	"encoding/json"

	"github.com/aws/aws-lambda-go/events"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/paymenttest"
)

// simulated returns the payment service of the local run, which signs and sends webhooks. Its error
// is one of usage if the local run uses another service.
func simulated(d *deployment.Deployment) (paymenttest.Remote, error) {
	if !d.Simulated {
		return paymenttest.Remote{}, cli.Usage("only the simulated payment service signs on request, and this local run "+
			"uses %s: let that service send its own webhooks", d.PaymentService)
	}
	return paymenttest.Remote{URL: d.PaymentService}, nil
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
