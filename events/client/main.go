// Command client calls a protected API of the payment service. It is an example of a program in its own module. To use
// it, copy the folder and set the path of your checkout of Payhook:
//
//	go mod edit -replace=payhook.example=../payhook
//
// Then:
//
//	TOKEN_SECRET=... BASE_URL=https://api.payments.example go run . GET /v1/protected/payments
//	TOKEN_SECRET=... BASE_URL=https://api.payments.example go run . POST /v1/protected/payments '{"amount":1}'
//
// TOKEN_SECRET is the stack's output TokenSecret. With the setting tokenStore=parameter, set TOKEN_PARAMETER to the
// output TokenParameter instead. The only permission that the program needs is secretsmanager:GetSecretValue on this
// secret, or ssm:GetParameter on this parameter. It prints the status to standard error and the answer to standard
// output, and exits with 1 unless the status is 2xx.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"

	"payhook.example/shared/aws/tokenstore"
	"payhook.example/shared/token"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 && len(args) != 3 {
		return errors.New("usage: client METHOD PATH [BODY]")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	baseURL, err := url.Parse(os.Getenv("BASE_URL"))
	if err != nil || baseURL.Host == "" {
		return errors.New("BASE_URL must be the payment service's URL")
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	if cfg.Region == "" {
		return errors.New("no AWS region: set AWS_REGION or AWS_PROFILE")
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		return fmt.Errorf("no AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: %w",
			err)
	}

	// Create the reader once, in main or in the init phase of a Lambda function: it caches
	// the token and reads a new one before the token expires.
	source := tokenstore.Source(cfg, os.Getenv("TOKEN_PARAMETER"), os.Getenv("TOKEN_SECRET"))
	client := token.NewClient(token.NewReader(source), baseURL)

	// The client is a standard http.Client.
	request, err := http.NewRequestWithContext(ctx, args[0], baseURL.JoinPath(args[1]).String(),
		strings.NewReader(strings.Join(args[2:], "")))
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	fmt.Fprintln(os.Stderr, response.Status)
	if _, err := io.Copy(os.Stdout, response.Body); err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s", args[0], args[1], response.Status)
	}
	return nil
}
