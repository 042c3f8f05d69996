// Webhook is the Lambda function behind the function URL or the HTTP API that the
// payment service sends its webhooks to.
package main

import (
	"fmt"
	"net/url"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"payhook.example/functions/webhook/webhookhandler"
	"payhook.example/shared/aws/stores"
	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/settings"
)

func main() {
	lambdaruntime.Adapt(os.Getenv)
	conf, clients, err := stores.Load("webhook", os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1)
	}
	h := webhookhandler.New(clients.Stores(conf), clients.KeyEndpoint(conf), conf,
		lambdaruntime.NewLog(os.Stdout, os.Getenv(settings.StackEnv)))
	clients.Connect(ahead(conf)...)
	lambda.Start(lambda.Handler(h)) // its Invoke gets the bytes of the invocation as they are
}

// ahead returns the URL of the key endpoint if its first call can use a connection that is opened before.
func ahead(conf settings.Config) []*url.URL {
	if conf.UsesSignature() && conf.KeyEndpointAuth != settings.BearerToken && conf.ServiceCAs == nil {
		return []*url.URL{conf.KeyEndpoint}
	}
	return nil
}
