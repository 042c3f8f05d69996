package token

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Source is where a [Reader] finds the token: [InSecret], [InParameter] or a [Store].
type Source interface {
	// read returns the text. Its errors are ErrNone and *StoreError.
	read(context.Context) (string, error)
}

// Store is where a [Refresher] keeps the token: [StoreInSecret] or [StoreInParameter].
type Store interface {
	Source
	// write replaces the text. Its error is a *StoreError.
	write(context.Context, string) error
	// limited reports whether AWS accepts only 100 writes a day.
	limited() bool
}

// Getter is the part of the Secrets Manager client that reads a secret.
type Getter interface {
	GetSecretValue(context.Context, *secretsmanager.GetSecretValueInput,
		...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error)
}

// Secrets is the part of the Secrets Manager client that reads and writes a secret.
type Secrets interface {
	Getter
	PutSecretValue(context.Context, *secretsmanager.PutSecretValueInput,
		...func(*secretsmanager.Options)) (*secretsmanager.PutSecretValueOutput, error)
}

// ParameterGetter is the part of the Parameter Store client that reads a parameter.
type ParameterGetter interface {
	GetParameter(context.Context, *ssm.GetParameterInput, ...func(*ssm.Options)) (*ssm.GetParameterOutput, error)
}

// Parameters is the part of the Parameter Store client that reads and writes a parameter.
type Parameters interface {
	ParameterGetter
	PutParameter(context.Context, *ssm.PutParameterInput, ...func(*ssm.Options)) (*ssm.PutParameterOutput, error)
}

// InSecret returns the secret with that name or ARN. The only permission that it needs is
// secretsmanager:GetSecretValue on that secret, and kms:Decrypt with a customer managed key.
func InSecret(client Getter, id string) Source { return secret{client, id, tokenSecret} }

// StoreInSecret returns the secret with that name or ARN, which must exist.
func StoreInSecret(client Secrets, id string) Store {
	return secretStore{secret{client, id, tokenSecret}, client}
}

// InParameter returns the parameter with that name. The only permission that it needs is
// ssm:GetParameter on that parameter, and kms:Decrypt with a customer managed key (AWS, "AWS KMS
// encryption for AWS Systems Manager Parameter Store SecureString parameters").
func InParameter(client ParameterGetter, name string) Source { return parameter{client, name} }

// Stored returns the parameter with that name or, if the name is "", the secret with that name or ARN.
func Stored(cfg aws.Config, parameter, secretID string) Source {
	if parameter != "" {
		return InParameter(ssm.NewFromConfig(cfg), parameter)
	}
	return InSecret(secretsmanager.NewFromConfig(cfg), secretID)
}

// StoreInParameter returns the parameter with that name, a SecureString, which the first write
// creates: CloudFormation cannot (AWS, "AWS::SSM::Parameter" in the CloudFormation User Guide).
// keyID is the id or ARN of the key that encrypts it; "" for the key of AWS, aws/ssm.
func StoreInParameter(client Parameters, name, keyID string) Store {
	return parameterStore{parameter{client, name}, client, keyID}
}

// The descriptions of the stores.
const (
	tokenSecret       = "the secret with the token"
	tokenParameter    = "the parameter with the token"
	credentialsSecret = "the secret with the client credentials"
)

type secret struct {
	client   Getter
	id, name string
}

// read returns ErrNone if the secret has no value or does not exist, for which Secrets Manager
// returns the same error.
func (s secret) read(ctx context.Context) (string, error) {
	out, err := s.client.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &s.id})
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		return "", ErrNone
	}
	if err != nil {
		return "", storeError(s.name, "GetSecretValue", err)
	}
	if out.SecretString == nil {
		return string(out.SecretBinary), nil // such as one from a file
	}
	return *out.SecretString, nil
}

type secretStore struct {
	secret
	client Secrets
}

// write creates a version. The SDK adds a ClientRequestToken and uses it for its retries, so a
// write whose response was lost is not made twice.
func (s secretStore) write(ctx context.Context, text string) error {
	if _, err := s.client.PutSecretValue(ctx,
		&secretsmanager.PutSecretValueInput{SecretId: &s.id, SecretString: &text}); err != nil {
		return storeError(s.name, "PutSecretValue", err)
	}
	return nil
}

func (secretStore) limited() bool { return true }

type parameter struct {
	client ParameterGetter
	name   string
}

func (p parameter) read(ctx context.Context) (string, error) {
	out, err := p.client.GetParameter(ctx, &ssm.GetParameterInput{Name: &p.name, WithDecryption: aws.Bool(true)})
	if _, missing := errors.AsType[*ssmtypes.ParameterNotFound](err); missing {
		return "", ErrNone
	}
	if err != nil {
		return "", storeError(tokenParameter, "GetParameter", err)
	}
	return aws.ToString(out.Parameter.Value), nil
}

type parameterStore struct {
	parameter
	client Parameters
	keyID  string
}

// write creates a version, and a second one if the SDK repeats a request whose response was lost.
// Parameter Store keeps 100 versions and removes the oldest one for a new one (AWS,
// "ParameterMaxVersionLimitExceeded" in the Systems Manager API reference). With Intelligent-Tiering,
// a parameter is a standard one, without charge, unless the text has more than 4 KB (AWS, "Managing
// parameter tiers" in the Systems Manager User Guide).
func (p parameterStore) write(ctx context.Context, text string) error {
	if len(text) > maxParameter {
		return &StoreError{Store: tokenParameter, Operation: "PutParameter", Code: tooLong}
	}
	in := &ssm.PutParameterInput{Name: &p.name, Value: &text, Type: ssmtypes.ParameterTypeSecureString,
		Overwrite: aws.Bool(true), Tier: ssmtypes.ParameterTierIntelligentTiering}
	if p.keyID != "" {
		in.KeyId = &p.keyID
	}
	if _, err := p.client.PutParameter(ctx, in); err != nil {
		return storeError(tokenParameter, "PutParameter", err)
	}
	return nil
}

func (parameterStore) limited() bool { return false }

// maxParameter is the length of the longest text of a parameter, an advanced one, in bytes (AWS,
// "Managing parameter tiers" in the Systems Manager User Guide).
const maxParameter = 8 << 10

// StoreError is returned when a call of Secrets Manager or Parameter Store failed. Its text contains
// no ARN and no data that is stored.
type StoreError struct {
	Store     string // a description of the secret or parameter
	Operation string // such as GetSecretValue or PutParameter
	Code      string // of the API, such as AccessDeniedException; "" if there was no answer
	cause     error
}

func (e *StoreError) Error() string {
	problem := e.Code
	switch problem {
	case "":
		problem = "no answer: " + connectionProblem(e.cause)
		if !sent(e.cause) {
			problem = "no request was sent: AWS credentials or the region are missing"
		}
	case limitExceeded:
		problem += ": the secret has 100 versions of the last 24 hours and accepts no more until one is older"
	case hasLabel:
		problem += ": the oldest of 100 versions has a label, which only a person adds; remove the label"
	case tooLong:
		problem += ": a parameter takes 8 KB; a secret takes 64 KB (tokenStore=secret)"
	}
	return fmt.Sprintf("token: %s: %s: %s", e.Store, e.Operation, problem)
}

// sent reports whether the SDK sent a request before err, or was told to stop. It
// sends none without credentials or a region.
func sent(err error) bool {
	_, unanswered := errors.AsType[*smithyhttp.RequestSendError](err)
	_, answered := errors.AsType[*smithyhttp.ResponseError](err)
	return unanswered || answered || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

const (
	// limitExceeded is the code of PutSecretValue for a secret with too many versions
	// (AWS, "PutSecretValue" in the Secrets Manager API reference).
	limitExceeded = "LimitExceededException"
	// hasLabel is the code of PutParameter if the oldest version cannot be removed (AWS,
	// "PutParameter" in the Systems Manager API reference).
	hasLabel = "ParameterMaxVersionLimitExceeded"
	tooLong  = "the token is too long"
)

// Unwrap returns the SDK's error, whose text can contain an ARN.
func (e *StoreError) Unwrap() error { return e.cause }

func storeError(store, operation string, cause error) error {
	e := &StoreError{Store: store, Operation: operation, cause: cause}
	if api, ok := errors.AsType[smithy.APIError](cause); ok {
		e.Code = api.ErrorCode()
	}
	return e
}

// bearer returns the token in a source. Its errors are [ErrNone],
// [ErrUnreadable] and [*StoreError].
func bearer(ctx context.Context, source Source) (Bearer, error) {
	text, err := source.read(ctx)
	if err != nil {
		return Bearer{}, err
	}
	return parseBearer(text)
}
