package tokenstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"

	"payhook.example/shared/aws/client"
	"payhook.example/shared/token"
)

// SecretReadAPI reads a secret.
type SecretReadAPI interface {
	GetSecretValue(context.Context, *secretsmanager.GetSecretValueInput,
		...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error)
}

// SecretAPI reads and writes a secret.
type SecretAPI interface {
	SecretReadAPI
	PutSecretValue(context.Context, *secretsmanager.PutSecretValueInput,
		...func(*secretsmanager.Options)) (*secretsmanager.PutSecretValueOutput, error)
}

type secret struct {
	client   SecretReadAPI
	id, name string
}

const tokenSecret = "the secret with the token"

// Load implements [token.Source]. It returns ErrNone if the secret has no value or does not exist, for which
// Secrets Manager returns the same error.
func (s *secret) Load(ctx context.Context) (string, error) {
	out, err := s.client.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &s.id})
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		return "", token.ErrNone
	}
	if err != nil {
		return "", &token.StoreError{Store: s.name, Err: client.ErrorOf("Secrets Manager GetSecretValue", err)}
	}
	if out.SecretString == nil {
		return string(out.SecretBinary), nil // such as one from a file
	}
	return *out.SecretString, nil
}

type secretStore struct {
	secret
	client SecretAPI
}

// Save implements [token.Store]. It creates a version. The SDK adds a ClientRequestToken and uses it for its
// retries, so a write whose response was lost is not made twice.
func (s *secretStore) Save(ctx context.Context, text string) error {
	_, err := s.client.PutSecretValue(ctx, &secretsmanager.PutSecretValueInput{SecretId: &s.id, SecretString: &text})
	if err == nil {
		return nil
	}
	failed := client.ErrorOf("Secrets Manager PutSecretValue", err)
	// AWS, "PutSecretValue" in the Secrets Manager API reference.
	if _, full := errors.AsType[*types.LimitExceededException](err); full {
		failed = fmt.Errorf("%w: the secret has 100 versions of the last 24 hours and accepts no more until one is "+
			"older", failed)
	}
	return &token.StoreError{Store: s.name, Err: failed}
}

// Limited implements [token.Store].
func (*secretStore) Limited() bool { return true }
