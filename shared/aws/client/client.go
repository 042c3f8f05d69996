// Package client has the configuration of the AWS clients of a function ([Config]), their connections
// ([Connections]) and their errors ([Error]).
//
// Lambda sets the Region and the credentials of the function's role as environment variables, and they do not change
// while the function runs (AWS, "Working with Lambda environment variables" in the Lambda Developer Guide). So the
// other sources that the SDK's package config can read are not linked into a function: it starts faster without them.
package client

import (
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"payhook.example/shared/objects"
)

// CallTimeout is the time that one try of a call may take.
const CallTimeout = 5 * time.Second

// newRetryer returns what retries the calls of a client through 3 seconds of errors, if their context lasts so long,
// however many calls fail at the same time. The SDK's own number of attempts, pauses and quota of retries (of a client,
// for all its calls together) are not used: they change with its versions and let calls fail within a second.
func newRetryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = objects.Attempts
		o.RateLimiter = ratelimit.None
		o.Backoff = retry.BackoffDelayerFunc(func(attempt int, _ error) (time.Duration, error) {
			return objects.PauseOf(objects.Backoff(attempt)), nil
		})
	})
}

// Config returns the configuration that the environment describes: AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY
// and AWS_SESSION_TOKEN, and AWS_ENDPOINT_URL, which replaces the endpoints of all services. Its calls use connections,
// and are retried through at least 3 seconds of errors, as long as their context lasts.
func Config(getenv func(string) string, connections *Connections) (aws.Config, error) {
	cfg := aws.Config{
		Region: getenv("AWS_REGION"),
		Credentials: credentials.NewStaticCredentialsProvider(getenv("AWS_ACCESS_KEY_ID"),
			getenv("AWS_SECRET_ACCESS_KEY"), getenv("AWS_SESSION_TOKEN")),
		HTTPClient: connections.Client(),
		Retryer:    func() aws.Retryer { return newRetryer() },
		// The defaults of package config.
		AccountIDEndpointMode:      aws.AccountIDEndpointModePreferred,
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenSupported,
	}
	if cfg.Region == "" {
		return aws.Config{}, errors.New("AWS_REGION: is required")
	}
	if url := getenv("AWS_ENDPOINT_URL"); url != "" {
		cfg.BaseEndpoint = &url
	}
	return cfg, nil
}
