// Package parameterstore has the store of package token in AWS Systems Manager Parameter Store.
package parameterstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"

	awsclient "payhook.example/shared/aws/client"
	"payhook.example/shared/token"
)

// Client calls Parameter Store. It has all of the interfaces of this package.
type Client = ssm.Client

// NewClient returns a client with that configuration.
func NewClient(cfg aws.Config) *Client { return ssm.NewFromConfig(cfg) }

// ReadAPI reads a parameter.
type ReadAPI interface {
	GetParameter(context.Context, *ssm.GetParameterInput, ...func(*ssm.Options)) (*ssm.GetParameterOutput, error)
}

// WriteAPI reads and writes a parameter.
type WriteAPI interface {
	ReadAPI
	PutParameter(context.Context, *ssm.PutParameterInput, ...func(*ssm.Options)) (*ssm.PutParameterOutput, error)
}

// Parameter is a [token.Source]. It is safe for concurrent use.
type Parameter struct {
	client ReadAPI
	name   string
}

const theToken = "the parameter with the token"

// NewToken returns the parameter with that name. The only permission that it needs is ssm:GetParameter on that
// parameter, and kms:Decrypt with a customer managed key (AWS, "AWS KMS encryption for AWS Systems Manager Parameter
// Store SecureString parameters").
func NewToken(client ReadAPI, name string) *Parameter { return &Parameter{client, name} }

// Load implements [token.Source]. A parameter can be replaced if its value cannot be decrypted: after a change of its
// key, CloudFormation encrypts a secret again, but nothing a parameter.
func (p *Parameter) Load(ctx context.Context) (string, error) {
	out, err := p.client.GetParameter(ctx, &ssm.GetParameterInput{Name: &p.name, WithDecryption: aws.Bool(true)})
	if _, missing := errors.AsType[*types.ParameterNotFound](err); missing {
		return "", token.ErrNone
	}
	if err != nil {
		// The codes without kms:Decrypt, and if the key is disabled or deleted (AWS, "GetParameter" in the Systems
		// Manager API reference).
		code := awsclient.Code(err)
		return "", &token.StoreError{Store: theToken, Err: awsclient.ErrorOf("Parameter Store GetParameter", err),
			Replaceable: code == "AccessDeniedException" || code == "InvalidKeyId"}
	}
	return aws.ToString(out.Parameter.Value), nil
}

// Store is a [token.Store] in a parameter. It is safe for concurrent use.
type Store struct {
	*Parameter
	client WriteAPI
	keyID  string
}

// NewStore returns the parameter with that name, a SecureString, which the first write creates: CloudFormation cannot
// (AWS, "AWS::SSM::Parameter" in the CloudFormation User Guide). keyID is the id or ARN of the key that encrypts it; ""
// for the key of AWS, aws/ssm.
func NewStore(client WriteAPI, name, keyID string) *Store {
	return &Store{NewToken(client, name), client, keyID}
}

// Save implements [token.Store]. It creates a version, and a second one if the SDK repeats a request whose response
// was lost. Parameter Store keeps 100 versions and removes the oldest one for a new one (AWS, "PutParameter" in the
// Systems Manager API reference). With Intelligent-Tiering, a parameter is a standard one, without charge, unless the
// text has more than 4 KB (AWS, "Managing parameter tiers" in the Systems Manager User Guide).
func (s *Store) Save(ctx context.Context, text string) error {
	if len(text) > maxLength {
		return &token.StoreError{Store: theToken, Err: errors.New("PutParameter: the token is too long: a parameter " +
			"takes 8 KB; a secret takes 64 KB (tokenStore=secret)")}
	}
	in := &ssm.PutParameterInput{Name: &s.name, Value: &text, Type: types.ParameterTypeSecureString,
		Overwrite: aws.Bool(true), Tier: types.ParameterTierIntelligentTiering}
	if s.keyID != "" {
		in.KeyId = &s.keyID
	}
	_, err := s.client.PutParameter(ctx, in)
	if err == nil {
		return nil
	}
	failed := awsclient.ErrorOf("Parameter Store PutParameter", err)
	if _, full := errors.AsType[*types.ParameterMaxVersionLimitExceeded](err); full {
		failed = fmt.Errorf("%w: the oldest of 100 versions has a label, which only a person adds; remove the label",
			failed)
	}
	return &token.StoreError{Store: theToken, Err: failed}
}

// maxLength is the length of the longest text of a parameter, an advanced one, in bytes (AWS,
// "Managing parameter tiers" in the Systems Manager User Guide).
const maxLength = 8 << 10

// Limited implements [token.Store].
func (*Store) Limited() bool { return false }
