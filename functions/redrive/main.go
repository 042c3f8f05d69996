// Redrive is the Lambda function that publishes, on a schedule, events that were recorded but are not on the bus. It
// also replays and dismisses what is parked, and replays rejected webhooks.
package main

import (
	"fmt"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"payhook.example/functions/redrive/redrivehandler"
	"payhook.example/shared/aws/stores"
	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/settings"
)

func main() {
	lambdaruntime.Adapt(os.Getenv)
	conf, clients, err := stores.Load("redrive", os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "redrive:", err)
		os.Exit(1)
	}
	h := redrivehandler.New(clients.Stores(conf), clients.KeyEndpoint(conf), conf,
		lambdaruntime.NewLog(os.Stdout, os.Getenv(settings.StackEnv)))
	lambda.Start(h.Handle)
}
