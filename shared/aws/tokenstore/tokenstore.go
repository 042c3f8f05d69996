// Package tokenstore chooses the store of the token: the parameter with a name or, if the name is "", the secret with
// a name or ARN. No other package does.
package tokenstore

import (
	"github.com/aws/aws-sdk-go-v2/aws"

	"payhook.example/shared/aws/parameterstore"
	"payhook.example/shared/aws/secretsmanager"
	"payhook.example/shared/token"
)

// New returns the store that the token function writes. key is the ARN of the key of the parameter; "" for that of AWS.
func New(cfg aws.Config, parameter, key, secretID string) token.Store {
	if parameter != "" {
		return parameterstore.NewStore(parameterstore.NewClient(cfg), parameter, key)
	}
	return secretsmanager.NewStore(secretsmanager.NewClient(cfg), secretID)
}

// Source returns the store for its readers.
func Source(cfg aws.Config, parameter, secretID string) token.Source {
	if parameter != "" {
		return parameterstore.NewToken(parameterstore.NewClient(cfg), parameter)
	}
	return secretsmanager.NewToken(secretsmanager.NewClient(cfg), secretID)
}
