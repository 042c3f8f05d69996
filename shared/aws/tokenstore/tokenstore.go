// Package tokenstore chooses the store of the token.
package tokenstore

import (
	"github.com/aws/aws-sdk-go-v2/aws"

	"payhook.example/shared/aws/parameterstore"
	"payhook.example/shared/aws/secretsmanager"
	"payhook.example/shared/token"
)

// Source returns the parameter with that name or, if the name is "", the secret with that name or ARN.
func Source(cfg aws.Config, parameter, secretID string) token.Source {
	if parameter != "" {
		return parameterstore.NewToken(parameterstore.NewClient(cfg), parameter)
	}
	return secretsmanager.NewToken(secretsmanager.NewClient(cfg), secretID)
}
