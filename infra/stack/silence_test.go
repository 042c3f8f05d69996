package stack

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// pipes is a listener whose connections are in memory, so that they are part of a bubble.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, open := <-p; open {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { close(p); return nil }
func (pipes) Addr() net.Addr { return &net.IPAddr{} }

// bodies sends the body of a request as a reader alone: see [client.Connections.RoundTrip].
type bodies struct{ http.RoundTripper }

func (b bodies) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return b.RoundTripper.RoundTrip(r)
}

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p <- server
	return client, nil
}

// A call gets a byte at least once a minute, or it is an error. A long download goes on, and so does an invocation
// while the function can run. A silent call is not repeated.
func TestASilentCallIsAnError(t *testing.T) {
	describe := func(ctx context.Context, cfg aws.Config) error {
		_, err := cloudformation.NewFromConfig(cfg).DescribeStacks(ctx, &cloudformation.DescribeStacksInput{})
		return err
	}
	invoke := func(ctx context.Context, cfg aws.Config) error {
		_, err := lambda.NewFromConfig(cfg).Invoke(ctx, &lambda.InvokeInput{FunctionName: aws.String("redrive")})
		return err
	}
	get := func(ctx context.Context, cfg aws.Config) error {
		out, err := s3.NewFromConfig(cfg).GetObject(ctx,
			&s3.GetObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")})
		if err != nil {
			return err
		}
		defer out.Body.Close()
		time.Sleep(time.Hour) // the reader takes its time
		_, err = io.Copy(io.Discard, out.Body)
		return err
	}
	const s, answer = time.Second, "<DescribeStacksResponse><DescribeStacksResult/></DescribeStacksResponse>"
	for name, test := range map[string]struct {
		call   func(context.Context, aws.Config) error
		head   time.Duration // until the headers come
		parts  time.Duration // between the parts of the answer
		number int           // of the parts, after which nothing comes if there are fewer than 5
		fails  time.Duration // when it fails; 0: it succeeds
	}{
		"at once":                {call: describe, number: 5},
		"slow":                   {call: describe, head: 59 * s, parts: 59 * s, number: 5},
		"no answer":              {call: describe, head: 1000 * time.Hour, fails: time.Minute},
		"half an answer":         {call: describe, head: 10 * s, parts: 10 * s, number: 2, fails: 90 * s},
		"an invocation":          {call: invoke, head: 64 * s, number: 5},
		"an invocation, no end":  {call: invoke, head: 1000 * time.Hour, fails: 65 * s},
		"a long download":        {call: get, parts: 59 * s, number: 5},
		"half a download":        {call: get, number: 2, fails: time.Hour + time.Minute},
		"a download, no headers": {call: get, head: 1000 * time.Hour, fails: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var requests atomic.Int32
				connections, end := make(pipes), make(chan struct{})
				defer time.Sleep(time.Second) // of a connection that is closed
				defer close(end)
				server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					requests.Add(1)
					wait := func(d time.Duration) {
						select {
						case <-end:
						case <-time.After(d):
						}
					}
					wait(test.head)
					w.(http.Flusher).Flush()
					for i := range 5 {
						if i == test.number {
							wait(1000 * time.Hour)
						}
						wait(test.parts)
						io.WriteString(w, answer[i*len(answer)/5:(i+1)*len(answer)/5])
						w.(http.Flusher).Flush()
					}
				})}
				go server.Serve(connections)
				defer server.Close()
				cfg := EmulatorConfig("http://aws.example", "us-east-1")
				transport := &http.Transport{DialContext: connections.dial}
				defer transport.CloseIdleConnections()
				cfg.HTTPClient = &http.Client{Transport: bodies{transport}}
				start := time.Now()
				err := test.call(t.Context(), cfg)
				_, silent := errors.AsType[*silentError](err)
				if test.fails == 0 && err != nil || test.fails > 0 && (!silent || time.Since(start) != test.fails) ||
					requests.Load() != 1 {
					t.Errorf("after %s and %d requests: %v", time.Since(start), requests.Load(), err)
				}
			})
		})
	}
}
