package payhook

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssecretsmanager"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// token is the zero value with tokenStore=none.
type token struct {
	scheduled
	store
	credentials awssecretsmanager.CfnSecret // with the client id and secret
}

// store is where the access token is: what a principal needs for it.
type store struct {
	service, read, write string  // of IAM
	id, arn              *string // for the functions, and for IAM
	context              string  // of the encryption: the name of the member with the ARN
	variable             string  // of the functions, with the id
}

// newTokenStore creates the secret for the access token, without a value. A parameter that is
// encrypted cannot be created by CloudFormation (AWS, "AWS::SSM::Parameter" in the CloudFormation User
// Guide). The token function creates it, and it stays when the stack is deleted. Its name is that of the
// deployment, which differs from all others in the account and Region.
func (p *Payhook) newTokenStore(scope constructs.Construct) store {
	if p.conf.TokenStore == settings.InParameter {
		name := "/payhook/" + p.conf.StackName + "/token"
		arn := awscdk.Stack_Of(p).FormatArn(&awscdk.ArnComponents{Service: jsii.String("ssm"),
			Resource: jsii.String("parameter"), ResourceName: jsii.String(name[1:])})
		return store{"ssm", "ssm:GetParameter", "ssm:PutParameter", jsii.String(name), arn,
			"PARAMETER_ARN", settings.TokenParameterEnv}
	}
	secret := p.newSecret(scope, "Secret", settings.TokenSecretDescription(p.conf.StackName),
		"The token function replaces the token before it expires, which is more often than rotation could.")
	// Callers use it until they know the parameter, after a change of TokenStore.
	secret.ApplyRemovalPolicy(keptUnlessLocal(p.conf), nil)
	return store{"secretsmanager", "secretsmanager:GetSecretValue", "secretsmanager:PutSecretValue",
		secret.AttrId(), secret.AttrId(), "SecretARN", settings.TokenSecretEnv}
}

// newToken creates the function that checks the access token every minute and refreshes it in time, the store of the
// token, and the secret in which a person stores the client credentials, without a value.
func (p *Payhook) newToken() token {
	if !p.conf.UsesToken() {
		return token{}
	}
	scope := constructs.NewConstruct(p, jsii.String("Token"))
	store := p.newTokenStore(scope)
	credentials := p.newSecret(scope, "Credentials",
		"The client id and secret for the payment service, stored by a person",
		"The payment service issues client credentials out of band, so that nothing can rotate them without its "+
			"operator. events/README.md describes the procedure (Rotate the client credentials).")
	credentials.ApplyRemovalPolicy(keptUnlessLocal(p.conf), nil)

	f := p.newFunction(scope, functionOptions{
		name:        "token",
		description: "Keeps a valid access token of the payment service",
		memory:      256,
		timeout:     settings.TokenTimeout,
		resources: settings.Resources{store.variable: *store.id,
			settings.CredentialsSecretEnv: *credentials.AttrId()},
	})
	f.role.allow([]string{store.read, store.write}, store.arn)
	f.role.allow([]string{"secretsmanager:GetSecretValue"}, credentials.AttrId())
	return token{p.runEveryMinute(scope, f), store, credentials}
}

// newSecret creates a secret without a value. The L2 construct would generate a value,
// which a reader cannot distinguish from a real one. It has no rotation, for a reason.
func (p *Payhook) newSecret(scope constructs.Construct, id, description,
	noRotation string) awssecretsmanager.CfnSecret {
	secret := awssecretsmanager.NewCfnSecret(scope, jsii.String(id), &awssecretsmanager.CfnSecretProps{
		Description: jsii.String(description), KmsKeyId: p.keyARN(),
	})
	p.stores(secret)
	p.explainUnlessEncrypted(secret, "CKV_AWS_149", ownKeys)
	explain(secret, "AwsSolutions-SMG4", noRotation)
	return secret
}
