package paymenttest

import (
	"encoding/base64"
	"io"
	"net/http"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"payhook.example/shared/signature"
)

// LambdaEvent returns what a webhook function reads of the event that a function URL makes of a request from a sender
// with that address (AWS, "Invoking Lambda function URLs" in the Lambda developer guide). It reads the body.
func LambdaEvent(r *http.Request, sender string) (e events.APIGatewayV2HTTPRequest, err error) {
	body, err := io.ReadAll(r.Body)
	e = events.APIGatewayV2HTTPRequest{Version: "2.0", RawPath: r.URL.EscapedPath(), RawQueryString: r.URL.RawQuery,
		Headers: signature.Headers(r.Header), Body: string(body)}
	e.RequestContext.HTTP.Method, e.RequestContext.HTTP.SourceIP = r.Method, sender
	if !utf8.Valid(body) {
		e.Body, e.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	}
	return e, err
}
