// Webhook is the Lambda function behind the function URL or the HTTP API that the
// payment service sends its webhooks to.
package main

import (
	"fmt"
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
	conf, clients, err := stack.Load("webhook", os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1)
	}
	h := handler.New(clients.Stores(conf), clients.KeyService(conf), conf,
		awsenv.NewLog(os.Stdout, os.Getenv(settings.StackEnv)))
	clients.Connect(ahead(conf)...)
	lambda.Start(lambda.Handler(h)) // its Invoke gets the bytes of the invocation as they are
}

// ahead returns the URL of the key service if its first call can use a connection that is opened before.
func ahead(conf settings.Config) []*url.URL {
	if conf.UsesSignature() && conf.KeysAuth != settings.BearerToken && conf.ServiceCAs == nil {
		return []*url.URL{conf.KeyService}
	}
	return nil
}
