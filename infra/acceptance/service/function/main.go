// Service is the simulated payment service as a Lambda function behind a function URL.
// Its state is an object in S3 that the sender of webhooks writes, and that it only reads.
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
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"payhook.example/shared/awsenv"
	"payhook.example/shared/paymenttest"
)

func main() {
	f, err := newFunction(os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
	lambda.Start(f.handle)
}

type function struct{ service http.Handler }

func newFunction(getenv func(string) string) (*function, error) {
	bucket, key := getenv("STATE_BUCKET"), "state.json"
	cfg, err := awsenv.Config(getenv, awsenv.NewConnections(1))
	if err != nil {
		return nil, err
	}
	objects := s3.NewFromConfig(cfg)
	return &function{paymenttest.Stateless(func(ctx context.Context) (state paymenttest.State, err error) {
		// S3 returns the latest object to every read that starts after a write (AWS, "Amazon
		// S3 data consistency model" in the S3 User Guide:
		// https://docs.aws.amazon.com/AmazonS3/latest/userguide/Welcome.html#ConsistencyModel).
		out, err := objects.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
		if err != nil {
			fmt.Fprintln(os.Stderr, "service: the state cannot be read:", err)
			return state, err
		}
		defer out.Body.Close()
		return state, json.NewDecoder(out.Body).Decode(&state)
	})}, nil
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
