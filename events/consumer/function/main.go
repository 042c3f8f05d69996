// Function is an example of a Lambda function that consumes events of Payhook. A rule on the
// bus invokes it. It resolves references to large events, decides by the exact amount, and
// processes every event once, by its eventId. Copy it as a starting point.
//
// Environment: TABLE, the name of a DynamoDB table with the key eventId and the TTL attribute
// expires; THRESHOLD, the least amount that is high.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

func main() {
	threshold, ok := new(big.Rat).SetString(os.Getenv("THRESHOLD"))
	cfg, err := config.LoadDefaultConfig(context.Background())
	if err == nil && (!ok || os.Getenv("TABLE") == "") {
		err = fmt.Errorf("TABLE and THRESHOLD, a number, must be set")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "function:", err)
		os.Exit(1)
	}
	h := &handler{
		claims:    s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = cfg.BaseEndpoint != nil }),
		table:     dynamodb.NewFromConfig(cfg),
		tableName: os.Getenv("TABLE"),
		threshold: threshold,
		log:       slog.New(slog.NewJSONHandler(os.Stdout, nil)),
		now:       time.Now,
	}
	lambda.Start(h.handle)
}
