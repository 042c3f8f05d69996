// Package client has the configuration of the AWS clients of a function ([Config]), their connections
// ([Connections]) and their errors ([Error]).
//
// Lambda sets the Region and the credentials of the function's role as environment variables, and they do not change
// while the function runs (AWS, "Working with Lambda environment variables" in the Lambda Developer Guide). So the
// other sources that the SDK's package config can read are not linked into a function: it starts faster without them.
package client

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"payhook.example/shared/calls"
)

// CallTimeout is the time that one try of a call may take.
const CallTimeout = 5 * time.Second

// newRetryer returns what retries the calls of a client through 3 seconds of errors, if their context lasts so long,
// however many calls fail at the same time. The SDK's own number of attempts, pauses and quota of retries (of a client,
// for all its calls together) are not used: they change with its versions and let calls fail within a second.
func newRetryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = calls.Attempts
		o.RateLimiter = ratelimit.None
		o.Backoff = retry.BackoffDelayerFunc(func(attempt int, _ error) (time.Duration, error) {
			return calls.PauseOf(calls.Backoff(attempt)), nil
		})
	})
}

// Config returns the configuration that the environment describes: AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY
// and AWS_SESSION_TOKEN, and AWS_ENDPOINT_URL, which replaces the endpoints of all services. With PAYHOOK_FIPS=true,
// the endpoints are FIPS endpoints, unless they are replaced: the SDK rejects both together. Its calls use connections,
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
	} else if getenv("PAYHOOK_FIPS") == "true" {
		cfg.ConfigSources = []any{fipsEndpoints{}}
	}
	return cfg, nil
}

// fipsEndpoints is a source of configuration in which the clients of the SDK find that they use FIPS endpoints.
type fipsEndpoints struct{}

// GetUseFIPSEndpoint is the method that the SDK looks for in aws.Config.ConfigSources.
func (fipsEndpoints) GetUseFIPSEndpoint(context.Context) (aws.FIPSEndpointState, bool, error) {
	return aws.FIPSEndpointStateEnabled, true, nil
}

// Error is a failed call of AWS. Its text has no message of AWS, which can name accounts and resources.
type Error struct {
	Operation string   // such as "DynamoDB Query"
	Code      string   // of the answer, such as "AccessDeniedException"; "": there was none
	Reasons   []string // of DynamoDB for throttling
	err       error
}

// ErrorOf returns the error of a call, and nil for nil. The error that is not nil is an [*Error].
func ErrorOf(operation string, err error, reasons ...string) error {
	if err == nil {
		return nil
	}
	return &Error{operation, Code(err), reasons, err}
}

// Code returns the code of an answer of AWS; "" for another error.
func Code(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}

func (e *Error) Error() string {
	text := e.Operation + ": "
	switch {
	case len(e.Reasons) > 0:
		return text + e.Code + " (" + strings.Join(e.Reasons, ", ") + ")"
	case e.Code != "":
		return text + e.Code
	case errors.Is(e.err, context.DeadlineExceeded):
		return text + "out of time"
	case errors.Is(e.err, context.Canceled):
		return text + "canceled"
	case unsent(e.err):
		return text + "no request was sent: AWS credentials or the region are missing"
	default:
		return text + "no answer"
	}
}

// unsent reports whether the SDK failed before it sent a request. It does so without credentials or a region.
func unsent(err error) bool {
	_, called := errors.AsType[*smithy.OperationError](err)
	_, unanswered := errors.AsType[*smithyhttp.RequestSendError](err)
	_, answered := errors.AsType[*smithyhttp.ResponseError](err)
	return called && !unanswered && !answered
}

// Unwrap returns the error of the SDK, whose text can have a message of AWS.
func (e *Error) Unwrap() error { return e.err }
