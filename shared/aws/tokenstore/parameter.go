package tokenstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"payhook.example/shared/aws/client"
	"payhook.example/shared/token"
)

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
	if _, missing := errors.AsType[*types.ParameterNotFound](err); missing {
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
	return aws.ToString(out.Parameter.Value), nil
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
	in := &ssm.PutParameterInput{Name: &p.name, Value: &text, Type: types.ParameterTypeSecureString,
		Overwrite: aws.Bool(true), Tier: types.ParameterTierIntelligentTiering}
	if p.key != "" {
		in.KeyId = &p.key
	}
	_, err := p.client.PutParameter(ctx, in)
	if err == nil {
		return nil
	}
	failed := client.ErrorOf("Parameter Store PutParameter", err)
	if _, full := errors.AsType[*types.ParameterMaxVersionLimitExceeded](err); full {
		failed = fmt.Errorf("%w: the oldest of 100 versions has a label, which only a person adds; remove the label",
			failed)
	}
	return parameterError(failed)
}

// Limited implements [token.Store].
func (*parameterStore) Limited() bool { return false }
