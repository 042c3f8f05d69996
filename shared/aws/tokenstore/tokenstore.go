// Package tokenstore has the stores of package token: secrets of AWS Secrets Manager, and a parameter of AWS Systems
// Manager Parameter Store. They are safe for concurrent use.
package tokenstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"payhook.example/shared/aws/client"
	"payhook.example/shared/token"
)

// New returns the store that the token function writes: the parameter with a name or, if the name is "", the secret
// with a name or ARN, which must exist. key is the id or ARN of the key of the parameter; "" for that of AWS, aws/ssm.
func New(cfg aws.Config, parameterName, key, secretID string) token.Store {
	if parameterName != "" {
		api := ssm.NewFromConfig(cfg)
		return &parameterStore{parameter{api, parameterName}, api, key}
	}
	api := secretsmanager.NewFromConfig(cfg)
	return &secretStore{secret{api, secretID, tokenSecret}, api}
}

// Source returns the store of [New] for its readers. The only permission that they need is ssm:GetParameter or
// secretsmanager:GetSecretValue, and kms:Decrypt with a customer managed key (AWS, "AWS KMS encryption for AWS Systems
// Manager Parameter Store SecureString parameters").
func Source(cfg aws.Config, parameterName, secretID string) token.Source {
	if parameterName != "" {
		return &parameter{ssm.NewFromConfig(cfg), parameterName}
	}
	return &secret{secretsmanager.NewFromConfig(cfg), secretID, tokenSecret}
}

// Credentials returns the secret with the client credentials, by its name or ARN.
func Credentials(cfg aws.Config, secretID string) token.Source {
	return &secret{secretsmanager.NewFromConfig(cfg), secretID, "the secret with the client credentials"}
}

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

// Load implements [token.Source]. It returns ErrNone if the secret has an empty value, has none, or does not exist:
// Secrets Manager returns the same error for the last two.
func (s *secret) Load(ctx context.Context) (string, error) {
	out, err := s.client.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &s.id})
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		return "", token.ErrNone
	}
	if err != nil {
		return "", &token.StoreError{Store: s.name, Err: client.ErrorOf("Secrets Manager GetSecretValue", err)}
	}
	if out.SecretString == nil {
		return notEmpty(string(out.SecretBinary)) // such as one from a file
	}
	return notEmpty(*out.SecretString)
}

// notEmpty returns a text, or ErrNone for an empty one, such as that of a secret that a person created.
func notEmpty(text string) (string, error) {
	if text == "" {
		return "", token.ErrNone
	}
	return text, nil
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

// ParameterReadAPI reads a parameter.
type ParameterReadAPI interface {
	GetParameter(context.Context, *ssm.GetParameterInput, ...func(*ssm.Options)) (*ssm.GetParameterOutput, error)
}

// ParameterAPI reads and writes a parameter.
type ParameterAPI interface {
	ParameterReadAPI
	PutParameter(context.Context, *ssm.PutParameterInput, ...func(*ssm.Options)) (*ssm.PutParameterOutput, error)
}

type parameter struct {
	client ParameterReadAPI
	name   string
}

// Load implements [token.Source]. A parameter can be replaced if its value cannot be decrypted: after a change of its
// key, CloudFormation encrypts a secret again, but nothing a parameter.
func (p *parameter) Load(ctx context.Context) (string, error) {
	out, err := p.client.GetParameter(ctx, &ssm.GetParameterInput{Name: &p.name, WithDecryption: aws.Bool(true)})
	if _, missing := errors.AsType[*ssmtypes.ParameterNotFound](err); missing {
		return "", token.ErrNone
	}
	if err != nil {
		failed := parameterError(client.ErrorOf("Parameter Store GetParameter", err))
		// The codes without kms:Decrypt, and if the key is disabled or deleted (AWS, "GetParameter" in the Systems
		// Manager API reference).
		code := client.Code(err)
		failed.Replaceable = code == "AccessDeniedException" || code == "InvalidKeyId"
		return "", failed
	}
	return notEmpty(aws.ToString(out.Parameter.Value))
}

func parameterError(err error) *token.StoreError {
	return &token.StoreError{Store: "the parameter with the token", Err: err}
}

// parameterStore is a SecureString, which the first write creates: CloudFormation cannot (AWS, "AWS::SSM::Parameter" in
// the CloudFormation User Guide).
type parameterStore struct {
	parameter
	client ParameterAPI
	key    string
}

// maxLength is the length of the longest text of a parameter, an advanced one, in bytes (AWS, "Managing parameter
// tiers" in the Systems Manager User Guide).
const maxLength = 8 << 10

// Save implements [token.Store]. It creates a version, and a second one if the SDK repeats a request whose response
// was lost. Parameter Store keeps 100 versions and removes the oldest one for a new one (AWS, "PutParameter" in the
// Systems Manager API reference). With Intelligent-Tiering, a parameter is a standard one, without charge, unless the
// text has more than 4 KB.
func (p *parameterStore) Save(ctx context.Context, text string) error {
	if len(text) > maxLength {
		return parameterError(errors.New("PutParameter: the token is too long: a parameter takes 8 KB; a secret " +
			"takes 64 KB (tokenStore=secret)"))
	}
	in := &ssm.PutParameterInput{Name: &p.name, Value: &text, Type: ssmtypes.ParameterTypeSecureString,
		Overwrite: aws.Bool(true), Tier: ssmtypes.ParameterTierIntelligentTiering}
	if p.key != "" {
		in.KeyId = &p.key
	}
	_, err := p.client.PutParameter(ctx, in)
	if err == nil {
		return nil
	}
	failed := client.ErrorOf("Parameter Store PutParameter", err)
	if _, full := errors.AsType[*ssmtypes.ParameterMaxVersionLimitExceeded](err); full {
		failed = fmt.Errorf("%w: the oldest of 100 versions has a label, which only a person adds; remove the label",
			failed)
	}
	return parameterError(failed)
}

// Limited implements [token.Store].
func (*parameterStore) Limited() bool { return false }
