// Webhook is the Lambda function behind the function URL or the HTTP API that the
// payment service sends its webhooks to.
package main

import (
	"fmt"
	"io"
	"net/url"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"payhook.example/functions/webhook/handler"
	"payhook.example/shared/aws/stack"
	"payhook.example/shared/awsenv"
	"payhook.example/shared/settings"
)

func main() {
	awsenv.Tune(os.Getenv)
	h, connect, err := newFunction(os.Getenv, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1)
	}
	connect()
	lambda.Start(lambda.Handler(h)) // its Invoke gets the bytes of the invocation as they are
}

// newFunction returns the function with the settings and stores of its environment.
// connect opens the connections that the first invocation needs.
func newFunction(getenv func(string) string, log io.Writer) (h *handler.Handler, connect func(), err error) {
	conf, clients, err := stack.Load("webhook", getenv)
	if err != nil {
		return nil, nil, err
	}
	var first []*url.URL
	if conf.UsesSignature() && conf.KeysAuth != settings.BearerToken && conf.ServiceCAs == nil {
		first = append(first, conf.KeyService)
	}
	return handler.New(clients.Stores(conf), clients.KeyService(conf), conf,
		awsenv.NewLog(log, getenv(settings.StackEnv))), func() { clients.Connect(first...) }, nil
}
