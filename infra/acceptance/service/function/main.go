// Service is the simulated payment service as a Lambda function behind a function URL. Its state is a variable of its
// environment.
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"payhook.example/shared/paymenttest"
)

func main() {
	f, err := newFunction(os.Getenv("STATE"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
	lambda.Start(f.handle)
}

type function struct{ service http.Handler }

// newFunction returns the service with a state in JSON, or with an empty one.
func newFunction(text string) (*function, error) {
	var state paymenttest.State
	if text != "" {
		if err := json.Unmarshal([]byte(text), &state); err != nil {
			return nil, err
		}
	}
	return &function{state.Handler()}, nil
}

// handle answers a request of a function URL.
func (f *function) handle(ctx context.Context, in events.LambdaFunctionURLRequest) (
	out events.LambdaFunctionURLResponse, err error) {
	body := []byte(in.Body)
	if in.IsBase64Encoded {
		if body, err = base64.StdEncoding.DecodeString(in.Body); err != nil {
			return out, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, in.RequestContext.HTTP.Method, in.RawPath+"?"+in.RawQueryString,
		bytes.NewReader(body))
	if err != nil {
		return out, err
	}
	for name, value := range in.Headers {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	f.service.ServeHTTP(w, r)
	out.StatusCode, out.Body, out.Headers = w.Code, w.Body.String(), map[string]string{}
	for name, values := range w.Header() {
		out.Headers[name] = strings.Join(values, ", ")
	}
	return out, nil
}
