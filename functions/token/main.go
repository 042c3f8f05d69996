// Token is the Lambda function that keeps a valid access token in Secrets Manager or Parameter Store.
// It runs on a schedule.
package main

import (
	"fmt"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"payhook.example/functions/token/tokenhandler"
	"payhook.example/shared/aws/client"
	"payhook.example/shared/aws/tokenstore"
	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/settings"
)

func main() {
	lambdaruntime.Adapt(os.Getenv)
	h, err := newFunction(os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "token:", err)
		os.Exit(1)
	}
	lambda.Start(h.Handle)
}

// newFunction returns the function with the settings and stores of its environment.
func newFunction(getenv func(string) string) (*tokenhandler.Handler, error) {
	conf, err := settings.ParseConfig("token", getenv)
	if err != nil {
		return nil, fmt.Errorf("settings:\n%w", err)
	}
	cfg, err := client.Config(getenv, client.NewConnections(1)) // its calls are sequential
	if err != nil {
		return nil, err
	}
	return tokenhandler.New(
		tokenstore.New(cfg, conf.TokenParameter, conf.TokenKey, conf.TokenSecret),
		tokenstore.Credentials(cfg, conf.CredentialsSecret),
		conf,
		lambdaruntime.NewLog(os.Stdout, getenv(settings.StackEnv)),
	), nil
}
