// Package tokenstore has the stores of package token: secrets of AWS Secrets Manager, and a parameter of AWS Systems
// Manager Parameter Store. They are safe for concurrent use.
package tokenstore

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"payhook.example/shared/token"
)

// New returns the store that the token function writes: the parameter with a name or, if the name is "", the secret
// with a name or ARN, which must exist. key is the id or ARN of the key of the parameter; "" for that of AWS, aws/ssm.
func New(cfg aws.Config, parameterName, key, secretID string) token.Store {
	if parameterName != "" {
		client := ssm.NewFromConfig(cfg)
		return &parameterStore{parameter{client, parameterName}, client, key}
	}
	client := secretsmanager.NewFromConfig(cfg)
	return &secretStore{secret{client, secretID, tokenSecret}, client}
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
