package token

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
	"github.com/aws/smithy-go"
)

// Getter is what a [Reader] uses of a *secretsmanager.Client.
type Getter interface {
	GetSecretValue(context.Context, *secretsmanager.GetSecretValueInput, ...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error)
}

// Store is what a [Refresher] uses of a *secretsmanager.Client.
type Store interface {
	Getter
	PutSecretValue(context.Context, *secretsmanager.PutSecretValueInput, ...func(*secretsmanager.Options)) (*secretsmanager.PutSecretValueOutput, error)
}

// SecretError says that a call of Secrets Manager failed. Its text holds no
// ARN and nothing of a secret.
type SecretError struct {
	Secret    string // which one, in words
	Operation string // GetSecretValue or PutSecretValue
	Code      string // of the API, such as AccessDeniedException; "" if there was no answer
	cause     error
}

func (e *SecretError) Error() string {
	problem := e.Code
	switch problem {
	case "":
		problem = "no answer: " + connectionProblem(e.cause)
	case limitExceeded:
		problem += ": the secret has 100 versions of the last 24 hours and takes no more until one is older"
	}
	return fmt.Sprintf("token: %s: %s: %s", e.Secret, e.Operation, problem)
}

// limitExceeded is the code of PutSecretValue for a secret with too many versions
// (AWS, "PutSecretValue" in the Secrets Manager API reference).
const limitExceeded = "LimitExceededException"

// Unwrap returns the SDK's error, whose text may hold an ARN.
func (e *SecretError) Unwrap() error { return e.cause }

func secretError(secret, operation string, cause error) error {
	e := &SecretError{Secret: secret, Operation: operation, cause: cause}
	if api, ok := errors.AsType[smithy.APIError](cause); ok {
		e.Code = api.ErrorCode()
	}
	return e
}

// The two secrets, in words.
const (
	tokenSecret       = "the secret with the token"
	credentialsSecret = "the secret with the client credentials"
)

// value returns the text of a secret; ok is false if there is none, or no such
// secret: Secrets Manager answers both alike.
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

// bearer returns the token that a secret holds. Its errors are [ErrNone],
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
