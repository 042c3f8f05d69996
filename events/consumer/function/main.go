// Function is an example of a Lambda function that consumes events of Payhook. A rule on the
// bus invokes it. It resolves references to large events and keeps the latest status of each payment,
// by its svcUniquePaymentId. Copy it as a starting point.
//
// Environment: TABLE, the name of a DynamoDB table with the key paymentId.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"payhook.example/shared/aws/s3"
)

func main() {
	cfg, err := config.LoadDefaultConfig(context.Background())
	if err == nil && os.Getenv("TABLE") == "" {
		err = errors.New("TABLE is not set")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "function:", err)
		os.Exit(1)
	}
	client := s3.NewClient(cfg)
	h := &handler{
		resolve: func(ctx context.Context, detail []byte) ([]byte, error) { return s3.Resolve(ctx, client, detail) },
		store:   table{dynamodb.NewFromConfig(cfg), os.Getenv("TABLE")},
		log:     slog.New(slog.NewJSONHandler(os.Stdout, nil)),
	}
	lambda.Start(h.handle)
}
