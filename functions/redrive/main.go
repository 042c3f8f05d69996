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
	h, err := newFunction(os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "redrive:", err)
		os.Exit(1)
	}
	lambda.Start(h.Handle)
}

// newFunction returns the function with the settings and stores of its environment.
func newFunction(getenv func(string) string) (*handler.Handler, error) {
	conf, err := settings.ParseFunction("redrive", getenv)
	if err != nil {
		return nil, fmt.Errorf("settings:\n%w", err)
	}
	clients, err := stack.NewClients(getenv)
	if err != nil {
		return nil, err
	}
	stores, found, deliveries := clients.Redrive(conf)
	return handler.New(handler.Stores{Stores: stores, Finder: found, Deliveries: deliveries},
		clients.KeyService(conf), conf, awsenv.NewLog(os.Stdout, getenv(settings.StackEnv))), nil
}
