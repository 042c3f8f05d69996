package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"uuid"

	"github.com/aws/aws-lambda-go/events"

	"payhook.example/infra/bench/result"
	"payhook.example/shared/paymenttest"
)

// delivery makes the invocations of one row of the report.
type delivery struct {
	name   string
	events int
	status int // of the answer
	count  int // how many are sent to each function in a round
	// stored means that the ledger stores what it gets. Otherwise it accepts everything.
	stored bool
	down   bool // the key service answers 503
	make   func(s *sender) ([]byte, error)
}

// sender signs deliveries.
type sender struct {
	ctx context.Context
	paymenttest.Sender
	keyID string // of deliveries whose key is in memory after the first
	last  []byte // the payload that others repeat or contradict
	n     int    // how many contradict it
}

// invocation returns the invocation that a function URL makes of a webhook (AWS,
// "Invoking Lambda function URLs", https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html).
func (s *sender) invocation(w paymenttest.Webhook, keyID string,
	change func(*events.LambdaFunctionURLRequest)) ([]byte, error) {
	from := s.Sender
	from.Key.ID = keyID
	w.URL = "https://abcdefghijklmnopqrstuvwxyz012345.lambda-url.eu-central-1.on.aws/"
	r, err := from.Request(s.ctx, w)
	if err != nil {
		return nil, err
	}
	var body bytes.Buffer
	if _, err := body.ReadFrom(r.Body); err != nil {
		return nil, err
	}
	host := r.URL.Host
	headers := map[string]string{
		"host": host, "accept": "*/*", "user-agent": "payment-service/1.0",
		"content-length":  strconv.Itoa(body.Len()),
		"x-amzn-trace-id": "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700", "x-forwarded-for": "198.51.100.7",
		"x-forwarded-port": "443", "x-forwarded-proto": "https",
		"x-amzn-tls-version": "TLSv1.3", "x-amzn-tls-cipher-suite": "TLS_AES_128_GCM_SHA256",
	}
	for name, values := range r.Header {
		headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	id := uuid.New().String()
	request := events.LambdaFunctionURLRequest{
		Version: "2.0", RawPath: "/", Headers: headers, Body: body.String(),
		RequestContext: events.LambdaFunctionURLRequestContext{
			AccountID: "anonymous", RequestID: id, APIID: strings.Split(host, ".")[0], DomainName: host,
			DomainPrefix: strings.Split(host, ".")[0], Time: time.Now().UTC().Format("02/Jan/2006:15:04:05 -0700"),
			TimeEpoch: time.Now().UnixMilli(),
			HTTP: events.LambdaFunctionURLRequestContextHTTPDescription{Method: r.Method, Path: "/",
				Protocol: "HTTP/1.1", SourceIP: "198.51.100.7", UserAgent: "payment-service/1.0"},
		},
	}
	if change != nil {
		change(&request)
	}
	return json.Marshal(request)
}

// accepted returns deliveries of n new events each.
func accepted(n, count int) delivery {
	return delivery{name: result.Events(n), events: n, status: http.StatusOK, count: count,
		make: func(s *sender) ([]byte, error) {
			return s.invocation(paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Events(n)...)},
				s.keyID, nil)
		}}
}

// flawed returns deliveries of one event with a flaw.
func flawed(name string, w paymenttest.Webhook, status int,
	change func(*events.LambdaFunctionURLRequest)) delivery {
	return delivery{name: name, events: 1, status: status, count: rejections, make: func(s *sender) ([]byte, error) {
		if w.Payload == nil {
			w.Payload = paymenttest.Delivery(paymenttest.Event())
			defer func() { w.Payload = nil }()
		}
		return s.invocation(w, s.keyID, change)
	}}
}

// rejections is how many deliveries of each kind of rejection are sent in a round.
const rejections = 20

// rejected returns deliveries of every kind that is not simply accepted.
func rejected() []delivery {
	again := delivery{name: "duplicate", events: 1, status: http.StatusOK, count: rejections, stored: true,
		make: func(s *sender) ([]byte, error) {
			if s.last == nil {
				s.last = paymenttest.Delivery(paymenttest.Event())
			}
			return s.invocation(paymenttest.Webhook{Payload: s.last}, s.keyID, nil)
		}}
	conflict := again
	conflict.name = "conflict"
	conflict.make = func(s *sender) ([]byte, error) {
		if s.last == nil {
			s.last = paymenttest.Delivery(paymenttest.Event())
		}
		s.n++
		other := bytes.Replace(s.last, []byte("1250.00"), fmt.Appendf(nil, "1250.%02d", s.n-1), 1)
		return s.invocation(paymenttest.Webhook{Payload: other}, s.keyID, nil)
	}
	unknown := flawed("key unknown", paymenttest.Webhook{}, http.StatusUnauthorized, nil)
	unknown.make = func(s *sender) ([]byte, error) {
		return s.invocation(paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())},
			unknownKeys+uuid.New().String()[len(unknownKeys):], nil)
	}
	unavailable := unknown
	unavailable.name, unavailable.status, unavailable.down = "key unavailable", http.StatusServiceUnavailable, true
	forged := func(name string, w paymenttest.Webhook) delivery {
		return flawed(name, w, http.StatusUnauthorized, nil)
	}
	return []delivery{
		again, conflict,
		flawed("invalid", paymenttest.Webhook{Payload: []byte(`{"deliveryId":1}`)},
			http.StatusUnprocessableEntity, nil),
		forged("signature forged", paymenttest.Webhook{Flaw: paymenttest.SignatureChanged}),
		forged("signature missing", paymenttest.Webhook{Flaw: paymenttest.SignatureMissing}),
		forged("signature malformed", paymenttest.Webhook{Flaw: paymenttest.SignatureMalformed}),
		forged("signature repeated", paymenttest.Webhook{Flaw: paymenttest.SignatureRepeated}),
		forged("timestamp outside window", paymenttest.Webhook{Age: time.Hour}),
		unknown, unavailable,
		flawed("method", paymenttest.Webhook{Method: http.MethodPut}, http.StatusMethodNotAllowed, nil),
		flawed("payload empty", paymenttest.Webhook{}, http.StatusBadRequest,
			func(r *events.LambdaFunctionURLRequest) { r.Body = "" }),
		flawed("payload encoding", paymenttest.Webhook{}, http.StatusBadRequest,
			func(r *events.LambdaFunctionURLRequest) { r.IsBase64Encoded = true }),
	}
}

// largeBytes is the size of an invocation that is nearly as large as Lambda accepts.
const largeBytes = 5_800_000

// large returns deliveries of one event whose invocation has largeBytes.
func large() []delivery {
	const part = `{"reference":"0123456789abcdef","amount":1250.00},`
	escapes := strings.Count(part, `"`) // each is escaped in the invocation
	of := func(name string, flaw paymenttest.Flaw, status, parts int, asBase64 bool) delivery {
		return delivery{name: name, events: 1, status: status, count: 3, make: func(s *sender) ([]byte, error) {
			event := paymenttest.Event()
			event.EventData.Identifiers.RailReferenceID = jsontext.Value(`{"parts":[` +
				strings.TrimSuffix(strings.Repeat(part, parts), ",") + `]}`)
			return s.invocation(paymenttest.Webhook{Payload: paymenttest.Delivery(event), Flaw: flaw}, s.keyID,
				func(r *events.LambdaFunctionURLRequest) {
					if asBase64 {
						r.Body, r.IsBase64Encoded = base64.StdEncoding.EncodeToString([]byte(r.Body)), true
					}
				})
		}}
	}
	text, encoded := largeBytes/(len(part)+escapes), largeBytes/4*3/len(part)
	return []delivery{
		of("5.8 MB, accepted", "", http.StatusOK, text, false),
		of("5.8 MB, signature forged", paymenttest.SignatureChanged, http.StatusUnauthorized, text, false),
		of("5.8 MB in base64, accepted", "", http.StatusOK, encoded, true),
	}
}
