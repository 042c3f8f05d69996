package webhookhandler

import (
	"encoding/base64"
	jsonv1 "encoding/json"
	"encoding/json/v2"
	"maps"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/intake"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// The types of aws-lambda-go and encoding/json read the same from an event that AWS sends.
func TestAnEventIsDecodedLikeWithAWSLambdaGo(t *testing.T) {
	for name, text := range map[string]string{
		"a function URL": `{"version":"2.0","routeKey":"$default","rawPath":"/","rawQueryString":"a=1&b=%20",
			"cookies":["c=1"],"headers":{"x-svc-key-id":"k","X-Other":"é\u00e9\"\\\/"},
			"queryStringParameters":{"a":"1"},"requestContext":{"accountId":"anonymous",
			"apiId":"id","authentication":null,
			"authorizer":{"iam":{}},"domainName":"d","http":{"method":"POST","path":"/","protocol":"HTTP/1.1",
			"sourceIp":"192.0.2.1","userAgent":"u"},"requestId":"r","time":"t","timeEpoch":1583348638390},
			"body":"{\"a\":\"\\u00e9\\n😀\"}\n","pathParameters":null,"isBase64Encoded":false,"stageVariables":null}`,
		"escapes":         `{"headers":{"\u0061b":"\u0062c","\"":"\\"},"\u0062ody":"\u0064"}`,
		"base64":          `{"body":"eyJhIjoxfQ==","isBase64Encoded":true}`,
		"base64, escaped": `{"isBase64Encoded":true,"body":"eyJhIjox\/\u0061=="}`,
		"nothing":         `{}`,
		"base64, no body": `{"isBase64Encoded":true}`,
		"null":            `null`,
		"members are null": `{"version":null,"rawQueryString":null,"headers":null,"requestContext":null,"body":null,
			"isBase64Encoded":null}`,
		"a header is null": `{"headers":{"a":null,"b":""}}`,
		"white space":      " {\n\"body\" :\t\"a\" } \r\n",
		// An example of API Gateway's documentation, with further members.
		"a certificate": `{"version":"2.0","requestContext":{"apiId":"api-id","authentication":{"clientCert":{
			"clientCertPem":"CERT_CONTENT","subjectDN":"www.example.com","issuerDN":"Example issuer",
			"serialNumber":"a1:a1:a1","validity":{"x":{},"notBefore":"May 28 12:30:02 2019 GMT",
			"notAfter":"Aug  5 09:36:04 2021 GMT"},"other":[1]},"iam":{"x":1}},
			"domainName":"id.execute-api.us-east-1.amazonaws.com"},"body":"x"}`,
		"an empty body":      `{"body":""}`,
		"unknown, nested":    `{"other":{"body":"no","headers":[{"a":"b"]},"body":"yes"}`,
		"not an object":      `[]`,
		"two values":         `{} {}`,
		"cut in a context":   `{"requestContext":{"http":{"method":"PO`,
		"empty":              ``,
		"the body: a number": `{"body":1}`,
		"a header: a list":   `{"headers":{"a":["b"]}}`,
		"base64: a string":   `{"isBase64Encoded":"true"}`,
		"context: a string":  `{"requestContext":"x"}`,
	} {
		var want events.APIGatewayV2HTTPRequest
		wantErr := jsonv1.Unmarshal([]byte(text), &want)
		event := []byte(text)
		got, err := decodeRequest(event)
		if (err != nil) != (wantErr != nil) {
			t.Errorf("%s: %v, want %v", name, err, wantErr)
		}
		if err != nil {
			continue
		}
		from, to := want.RequestContext, got.RequestContext
		if diff := cmp.Diff([]any{want.Version, want.RawPath, want.RawQueryString, want.IsBase64Encoded,
			from.DomainName, from.APIID, from.HTTP.Method, from.HTTP.SourceIP,
			from.Authentication.ClientCert.ClientCertPem},
			[]any{got.Version, got.RawPath, got.RawQueryString, got.IsBase64Encoded, to.DomainName, to.APIID,
				to.HTTP.Method, to.HTTP.SourceIP, to.Authentication.ClientCert.PEM}); diff != "" ||
			!maps.Equal(want.Headers, got.Headers) {
			t.Errorf("%s: the headers are %v; (-want +got):\n%s", name, got.Headers, diff)
		}
		sent := []byte(want.Body)
		if want.IsBase64Encoded {
			sent, err = base64.StdEncoding.DecodeString(want.Body)
		}
		if len(sent) == 0 && err == nil {
			err = intake.PayloadEmpty
		}
		payload, payloadErr := got.payload()
		clear(event) // Lambda's library uses its memory again
		if (payloadErr != nil) != (err != nil) || err == nil && string(payload) != string(sent) {
			t.Errorf("%s: payload %q, %v, want %q, %v", name, payload, payloadErr, sent, err)
		}
	}
}

// AWS sends neither duplicate names nor invalid UTF-8, of which receivers could read
// different parts. Lambda answers 502 for an error of the function.
func TestAnEventThatCannotBeDecodedIsAnError(t *testing.T) {
	for _, text := range []string{``, `{"CANARY`, `{"body":CANARY}`, `{"body":"CANARY",}`,
		`{"body":"x"}CANARY`, `{"body":"a","body":"CANARY"}`,
		`{"headers":{"a":"1","a":"CANARY"}}`, "{\"body\":\"CANARY\xff\"}", "{\"headers\":{\"a\":\"CANARY\xc3\"}}",
		`{"body":"\ud800CANARY"}`} {
		if answer, err := (&Handler{}).Invoke(t.Context(), []byte(text)); err != errNotJSON || answer != nil {
			t.Errorf("%s: %s, %v", text, answer, err)
		}
	}
}

// Each event is one that AWS documents for its source, or one that people invoke a function with.
func TestAnEventThatIsNoWebhookIsNamed(t *testing.T) {
	const rest, alb, other = "an event of a REST API or of payload format 1.0",
		"an event of an Application Load Balancer", "not an event of a function URL or an HTTP API"
	endpoints := map[string]*endpoint{
		"signature": newEndpoint(t, map[string]string{settings.StoreRejectedUntilEnv: "2099-01-01T00:00:00Z",
			"PAYHOOK_ALLOWED_NETWORKS": "192.0.2.0/24"}),
		"both": newEndpoint(t, withAPI(t, settings.ByBoth, paymenttest.NewCA("Operator CA"))),
	}
	cases := map[string]string{
		`{"resource":"/","path":"/","httpMethod":"POST","headers":{"X-SVC-Signature":"CANARY"},
			"multiValueHeaders":{"X-SVC-Signature":["CANARY"]},"queryStringParameters":null,
			"requestContext":{"resourcePath":"/","httpMethod":"POST","protocol":"HTTP/1.1","apiId":"id",
			"identity":{"sourceIp":"192.0.2.1","clientCert":{"clientCertPem":"CANARY"}},"domainName":
			"hook.bank.example"},"body":"{\"CANARY\":1}","isBase64Encoded":false}`: rest,
		`{"version":"1.0","type":"REQUEST","methodArn":"CANARY","requestContext":{}}`: rest,
		`{"requestContext":{"elb":{"targetGroupArn":"CANARY"}},"httpMethod":"POST","path":"/",
			"queryStringParameters":{},"headers":{"x-forwarded-for":"192.0.2.1"},"body":"CANARY",
			"isBase64Encoded":false}`: alb,
		`{"requestContext":{"elb":{}},"httpMethod":"GET","path":"/","multiValueHeaders":{"a":["b"]},"body":""}`: alb,
	}
	for _, event := range []string{
		// VPC Lattice, a WebSocket API, a schedule, queues and buckets.
		`{"version":"2.0","path":"/","method":"POST","headers":{"a":["CANARY"]},"requestContext":{"identity":{}},
			"body":"CANARY"}`,
		`{"raw_path":"/","method":"POST","headers":{"a":"CANARY"},"body":"CANARY","is_base64_encoded":false}`,
		`{"requestContext":{"routeKey":"$connect","eventType":"CONNECT","apiId":"id"},"isBase64Encoded":false}`,
		`{"version":"0","id":"x","detail-type":"Scheduled Event","source":"aws.events","detail":{}}`,
		`{"Records":[{"messageId":"x","body":"CANARY","eventSource":"aws:sqs"}]}`,
		`{"key1":"value1","key2":"value2","key3":"value3"}`,
		` { } `, `null`, `[{"CANARY":1}]`, `"CANARY"`, `1`, `{"requestContext":{"http":{}}}`,
		`{"requestContext":{"elb":null}}`, `{"requestContext":"CANARY"}`, `{"headers":{"CANARY":1}}`, `{"version":2}`,
		`{"requestContext":{"http":{"method":null,"path":"/"}},"body":"CANARY"}`, `{"isBase64Encoded":"CANARY"}`,
		`{"requestContext":{"http":{"method":"POST"}},"body":{"deliveryId":"CANARY"}}`,
	} {
		cases[event] = other
	}
	for event, want := range cases {
		for name, e := range endpoints {
			e.Log.Reset()
			answer, err := e.Invoke(t.Context(), []byte(event))
			line := e.Line()
			if err != nil || !strings.HasPrefix(string(answer), `{"statusCode":400,`) ||
				line["outcome"] != intake.NotAWebhookEvent.Name || line["cause"] != "not a webhook: "+want ||
				line["BadRequest"] != 1.0 || line["ClientErrors"] != 1.0 ||
				strings.Contains(e.Log.String()+string(answer), "CANARY") {
				t.Errorf("%s, %s: answered %s, %v, logged as %v", name, event, answer, err, line)
			}
			e.NothingHappened()
		}
	}
}

// A payload of the safe size, of characters that are all escaped, and 64 KiB for the rest of the request are less than
// an invocation may have: 6 MB (AWS, "Lambda quotas"). Larger typical payloads fit as functions/README.md says.
func TestTheSafePayloadAlwaysFitsIntoAnInvocation(t *testing.T) {
	// fits is about a payload that repeats a part. The size of its JSON is that of the part, as often.
	fits := func(part []byte, size int, asBase64 bool) bool {
		text, err := json.Marshal(unsigned(part)) // of encoding/json/v2, which escapes what RFC 8259 requires
		if err != nil {
			t.Fatal(err)
		}
		n := size / len(part)
		body := n * (len(text) - len(encode(t, unsigned([]byte("x")))) + 1)
		if asBase64 {
			body = base64.StdEncoding.EncodedLen(n * len(part))
		}
		return body+64<<10 < 6<<20
	}
	quote, safe := []byte{'"'}, settings.SafePayloadBytes
	if !fits(quote, safe, false) || !fits(quote, safe, true) || fits(quote, safe+1, false) {
		t.Error("the safe size is not the largest")
	}
	one, kib := paymenttest.Encode(paymenttest.Event()), 1<<10
	if !fits(one, 5*kib*kib, false) || fits(one, 5734*kib, false) || !fits(one, 4505*kib, true) ||
		fits(one, 4608*kib, true) {
		t.Error("other typical payloads fit")
	}
}
