// Redrive is the Lambda function that publishes, on a schedule, events that were
// recorded but are not on the bus. It also replays and dismisses what is parked, and replays
// rejected webhooks.
package main

import (
	"fmt"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"payhook.example/functions/redrive/handler"
	"payhook.example/shared/aws/stack"
	"payhook.example/shared/awsenv"
	"payhook.example/shared/settings"
)

func main() {
	awsenv.Tune(os.Getenv)
	conf, clients, err := stack.Load("redrive", os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "redrive:", err)
		os.Exit(1)
	}
	h := handler.New(clients.Stores(conf), clients.KeyService(conf), conf,
		awsenv.NewLog(os.Stdout, os.Getenv(settings.StackEnv)))
	lambda.Start(h.Handle)
}
