package webhookhandler

import (
	"bytes"
	"encoding/base64"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"

	"payhook.example/shared/intake"
)

// request is what the function reads of an event with payload format 2.0, which
// function URLs and HTTP APIs send (AWS, "Invoking Lambda function URLs" in the Lambda
// developer guide, https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html).
type request struct {
	Version        string            `json:"version"`
	RawPath        string            `json:"rawPath"`
	RawQueryString string            `json:"rawQueryString"`
	Headers        map[string]string `json:"headers"`
	RequestContext struct {
		DomainName string `json:"domainName"`
		APIID      string `json:"apiId"`
		HTTP       struct {
			Method   string `json:"method"`
			SourceIP string `json:"sourceIp"`
		} `json:"http"`
		ELB            *struct{} `json:"elb"` // not of payload format 2.0
		Authentication struct {
			ClientCert struct {
				PEM string `json:"clientCertPem"` // the other fields say nothing more
			} `json:"clientCert"`
		} `json:"authentication"`
	} `json:"requestContext"`
	Body            position `json:"body"`
	IsBase64Encoded bool     `json:"isBase64Encoded"`

	HTTPMethod string `json:"httpMethod"` // not of payload format 2.0

	body jsontext.Value // a JSON string, which is a part of the event; nil for none
}

// The event is one text in memory, of up to 6 MiB, and most of it is the body:
//
//	{"version":"2.0", ... "body":"{\"deliveryId\": ... }", ... }
//	                             |begin             |end
//
// request.body is this part, without a copy. The text of [request.payload] is the only copy, unescaped or decoded from
// base64. It has memory of its own, since Lambda's library uses that of the event again.

// position is where a JSON string is in the event.
type position struct{ begin, end int }

// UnmarshalJSONFrom reads a string, or null for none.
func (p *position) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	value, err := d.ReadValue()
	switch {
	case err != nil:
		return err
	case value.Kind() == '"':
		p.end = int(d.InputOffset())
		p.begin = p.end - len(value)
	case value.Kind() != 'n':
		return errors.New("not a string")
	}
	return nil
}

// The errors of events. They quote nothing of the event.
var (
	errNotJSON = errors.New("webhook: the event is not JSON")
	errRESTAPI = fmt.Errorf("%w: an event of a REST API or of payload format 1.0", intake.NotAWebhookEvent)
	errALB     = fmt.Errorf("%w: an event of an Application Load Balancer", intake.NotAWebhookEvent)
	errOther   = fmt.Errorf("%w: not an event of a function URL or an HTTP API", intake.NotAWebhookEvent)
)

// readRequest decodes the event of a webhook. The error wraps [intake.NotAWebhookEvent] if the event is
// another JSON value, such as a test event of the console.
func readRequest(event []byte) (request, error) {
	r, err := decodeRequest(event)
	switch {
	case err != nil:
	case r.RequestContext.HTTP.Method != "":
		return r, nil
	case r.RequestContext.ELB != nil:
		err = errALB
	case r.HTTPMethod != "" || r.Version == "1.0":
		err = errRESTAPI
	default:
		err = errOther
	}
	return request{}, err
}

// decodeRequest decodes an event. A member that is null counts as absent. Names that occur
// twice and invalid UTF-8 are rejected: AWS sends neither.
func decodeRequest(event []byte) (r request, err error) {
	if err := json.Unmarshal(event, &r); err != nil {
		if jsontext.Value(event).IsValid() {
			return request{}, errOther
		}
		return request{}, errNotJSON
	}
	if r.Body.end > 0 {
		r.body = event[r.Body.begin:r.Body.end]
	}
	return r, nil
}

// unquote returns the text of a JSON string, in memory of its own.
func unquote(v jsontext.Value) []byte {
	text, _ := jsontext.AppendUnquote(make([]byte, 0, len(v)), v)
	return text
}

// payload returns the bytes that were sent.
func (r request) payload() ([]byte, error) {
	var payload []byte
	switch {
	case r.body == nil:
	case !r.IsBase64Encoded:
		payload = unquote(r.body)
	default:
		text := r.body[1 : len(r.body)-1]
		if bytes.IndexByte(text, '\\') >= 0 {
			text = unquote(r.body)
		}
		payload = make([]byte, base64.StdEncoding.DecodedLen(len(text)))
		n, err := base64.StdEncoding.Decode(payload, text)
		if err != nil {
			return nil, intake.PayloadEncoding
		}
		payload = payload[:n]
	}
	if len(payload) == 0 {
		return nil, intake.PayloadEmpty
	}
	return payload, nil
}
