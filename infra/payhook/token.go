package payhook

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssecretsmanager"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
)

type token struct {
	scheduled
	secret      awssecretsmanager.CfnSecret // with the access token
	credentials awssecretsmanager.CfnSecret // with the client id and secret
}

// newToken creates the function that checks the access token every minute and refreshes
// it in time, the secret with the token, and the secret in which a person stores the
// client credentials. Both secrets are created without a value.
func (p *Payhook) newToken() token {
	scope := constructs.NewConstruct(p, jsii.String("Token"))
	secret := newSecret(scope, "Secret", "The access token for the payment service, refreshed by Payhook")
	// A new token can be requested at any time.
	secret.ApplyRemovalPolicy(awscdk.RemovalPolicy_DESTROY, nil)
	credentials := newSecret(scope, "Credentials",
		"The client id and secret for the payment service, stored by a person")
	credentials.ApplyRemovalPolicy(keptUnlessLocal(p.conf), nil)

	f := p.newFunction(scope, functionOptions{
		name:        "token",
		description: "Keeps a valid access token in Secrets Manager",
		memory:      256,
		timeout:     settings.TokenTimeout,
		resources: map[string]*string{
			names.TokenSecretEnv:       secret.AttrId(),
			names.CredentialsSecretEnv: credentials.AttrId(),
		},
	})
	f.allow([]string{"secretsmanager:GetSecretValue", "secretsmanager:PutSecretValue"}, secret.AttrId())
	f.allow([]string{"secretsmanager:GetSecretValue"}, credentials.AttrId())
	return token{runEveryMinute(scope, f), secret, credentials}
}

// newSecret creates a secret without a value. The L2 construct would generate a value,
// which a reader cannot distinguish from a real one.
func newSecret(scope constructs.Construct, id, description string) awssecretsmanager.CfnSecret {
	return awssecretsmanager.NewCfnSecret(scope, jsii.String(id), &awssecretsmanager.CfnSecretProps{
		Description: jsii.String(description),
	})
}
