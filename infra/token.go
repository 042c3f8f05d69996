package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
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

// newToken makes the function that looks at the access token every minute and
// refreshes it in time, the secret with the token, and the secret with the client
// credentials, which the operator fills. Both secrets start without any value.
func newToken(scope constructs.Construct, conf settings.Deployment, code awslambda.Code) token {
	scope = constructs.NewConstruct(scope, jsii.String("Token"))
	secret := newSecret(scope, "Secret", "The access token for the payment service, kept fresh by Payhook")
	// It can be had again at any time.
	secret.ApplyRemovalPolicy(awscdk.RemovalPolicy_DESTROY, nil)
	credentials := newSecret(scope, "Credentials", "The client id and secret for the payment service, filled by its operator")
	credentials.ApplyRemovalPolicy(keptUnlessLocal(conf), nil)

	f := newFunction(scope, conf, functionOptions{
		description: "Keeps a valid access token in Secrets Manager",
		code:        code,
		memory:      256,
		timeout:     conf.Token.Timeout.Seconds(),
		concurrency: conf.TokenConcurrency,
		settings:    settings.TokenSettings(),
		resources: map[string]*string{
			names.TokenSecretEnv:       secret.AttrId(),
			names.CredentialsSecretEnv: credentials.AttrId(),
		},
	})
	f.allow([]string{"secretsmanager:GetSecretValue", "secretsmanager:PutSecretValue"}, secret.AttrId())
	f.allow([]string{"secretsmanager:GetSecretValue"}, credentials.AttrId())
	return token{runEveryMinute(scope, f), secret, credentials}
}

// newSecret makes a secret without a value. The L2 construct would put a
// generated one in, which no reader could tell from a real one.
func newSecret(scope constructs.Construct, id, description string) awssecretsmanager.CfnSecret {
	return awssecretsmanager.NewCfnSecret(scope, jsii.String(id), &awssecretsmanager.CfnSecretProps{
		Description: jsii.String(description),
	})
}
