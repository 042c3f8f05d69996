// Package secretsmanager has the stores of package token in AWS Secrets Manager.
package secretsmanager

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"

	awsclient "payhook.example/shared/aws/client"
	"payhook.example/shared/token"
)

// Client calls Secrets Manager. It has all of the interfaces of this package.
type Client = secretsmanager.Client

// NewClient returns a client with that configuration.
func NewClient(cfg aws.Config) *Client { return secretsmanager.NewFromConfig(cfg) }

// ReadAPI reads a secret.
type ReadAPI interface {
	GetSecretValue(context.Context, *secretsmanager.GetSecretValueInput,
		...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error)
}

// WriteAPI reads and writes a secret.
type WriteAPI interface {
	ReadAPI
	PutSecretValue(context.Context, *secretsmanager.PutSecretValueInput,
		...func(*secretsmanager.Options)) (*secretsmanager.PutSecretValueOutput, error)
}

// Secret is a [token.Source]. It is safe for concurrent use.
type Secret struct {
	client   ReadAPI
	id, name string
}

const theToken = "the secret with the token"

// NewToken returns the secret with the token, by its name or ARN. The only permission that it needs is
// secretsmanager:GetSecretValue on that secret, and kms:Decrypt with a customer managed key.
func NewToken(client ReadAPI, id string) *Secret { return &Secret{client, id, theToken} }

// NewCredentials returns the secret with the client credentials, by its name or ARN.
func NewCredentials(client ReadAPI, id string) *Secret {
	return &Secret{client, id, "the secret with the client credentials"}
}

// Load implements [token.Source]. It returns ErrNone if the secret has no value or does not exist, for which
// Secrets Manager returns the same error.
func (s *Secret) Load(ctx context.Context) (string, error) {
	out, err := s.client.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &s.id})
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		return "", token.ErrNone
	}
	if err != nil {
		return "", &token.StoreError{Store: s.name, Err: awsclient.ErrorOf("Secrets Manager GetSecretValue", err)}
	}
	if out.SecretString == nil {
		return string(out.SecretBinary), nil // such as one from a file
	}
	return *out.SecretString, nil
}

// Store is a [token.Store] in a secret. It is safe for concurrent use.
type Store struct {
	*Secret
	client WriteAPI
}

// NewStore returns the secret with the token, by its name or ARN. It must exist.
func NewStore(client WriteAPI, id string) *Store { return &Store{NewToken(client, id), client} }

// Save implements [token.Store]. It creates a version. The SDK adds a ClientRequestToken and uses it for its
// retries, so a write whose response was lost is not made twice.
func (s *Store) Save(ctx context.Context, text string) error {
	_, err := s.client.PutSecretValue(ctx, &secretsmanager.PutSecretValueInput{SecretId: &s.id, SecretString: &text})
	if err == nil {
		return nil
	}
	failed := awsclient.ErrorOf("Secrets Manager PutSecretValue", err)
	// AWS, "PutSecretValue" in the Secrets Manager API reference.
	if _, full := errors.AsType[*types.LimitExceededException](err); full {
		failed = fmt.Errorf("%w: the secret has 100 versions of the last 24 hours and accepts no more until one is "+
			"older", failed)
	}
	return &token.StoreError{Store: theToken, Err: failed}
}

// Limited implements [token.Store].
func (*Store) Limited() bool { return true }
