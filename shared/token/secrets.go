package token

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Getter is the part of the Secrets Manager client that a [Reader] uses.
type Getter interface {
	GetSecretValue(context.Context, *secretsmanager.GetSecretValueInput,
		...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error)
}

// Store is the part of the Secrets Manager client that a [Refresher] uses.
type Store interface {
	Getter
	PutSecretValue(context.Context, *secretsmanager.PutSecretValueInput,
		...func(*secretsmanager.Options)) (*secretsmanager.PutSecretValueOutput, error)
}

// SecretError is returned when a call of Secrets Manager failed. Its text contains no
// ARN and no data of a secret.
type SecretError struct {
	Secret    string // a description of the secret
	Operation string // GetSecretValue or PutSecretValue
	Code      string // of the API, such as AccessDeniedException; "" if there was no answer
	cause     error
}

func (e *SecretError) Error() string {
	problem := e.Code
	switch problem {
	case "":
		problem = "no answer: " + connectionProblem(e.cause)
		if !sent(e.cause) {
			problem = "no request was sent: AWS credentials or the region are missing"
		}
	case limitExceeded:
		problem += ": the secret has 100 versions of the last 24 hours and accepts no more until one is older"
	}
	return fmt.Sprintf("token: %s: %s: %s", e.Secret, e.Operation, problem)
}

// sent reports whether the SDK sent a request before err, or was told to stop. It
// sends none without credentials or a region.
func sent(err error) bool {
	_, unanswered := errors.AsType[*smithyhttp.RequestSendError](err)
	_, answered := errors.AsType[*smithyhttp.ResponseError](err)
	return unanswered || answered || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// limitExceeded is the code of PutSecretValue for a secret with too many versions
// (AWS, "PutSecretValue" in the Secrets Manager API reference).
const limitExceeded = "LimitExceededException"

// Unwrap returns the SDK's error, whose text can contain an ARN.
func (e *SecretError) Unwrap() error { return e.cause }

func secretError(secret, operation string, cause error) error {
	e := &SecretError{Secret: secret, Operation: operation, cause: cause}
	if api, ok := errors.AsType[smithy.APIError](cause); ok {
		e.Code = api.ErrorCode()
	}
	return e
}

// The descriptions of the two secrets.
const (
	tokenSecret       = "the secret with the token"
	credentialsSecret = "the secret with the client credentials"
)

// value returns the text of a secret. ok is false if the secret has no value or does
// not exist, for which Secrets Manager returns the same error.
func value(ctx context.Context, secrets Getter, name, id string) (text string, ok bool, err error) {
	out, err := secrets.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &id})
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		return "", false, nil
	}
	if err != nil {
		return "", false, secretError(name, "GetSecretValue", err)
	}
	return aws.ToString(out.SecretString), true, nil
}

// bearer returns the token in a secret. Its errors are [ErrNone],
// [ErrUnreadable] and [*SecretError].
func bearer(ctx context.Context, secrets Getter, id string) (Bearer, error) {
	text, ok, err := value(ctx, secrets, tokenSecret, id)
	switch {
	case err != nil:
		return Bearer{}, err
	case !ok:
		return Bearer{}, ErrNone
	}
	return parseBearer(text)
}
