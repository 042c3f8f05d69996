package payhook

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awssecretsmanager"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

type webhook struct {
	function
	ingress *ingress
}

// newWebhook creates the function that receives webhooks, and connects it to the ingress.
func (p *Payhook) newWebhook(ingress *ingress) {
	conf := p.conf
	scope := constructs.NewConstruct(p, jsii.String("Webhook"))
	resources := p.named()
	if conf.UsesMTLS() {
		resources[settings.APIIDEnv] = *ingress.api.Ref()
	}
	f := p.newFunction(scope, functionOptions{
		name:        "webhook",
		description: "Authenticates payment webhooks, records their events and publishes them",
		memory:      settings.WebhookMemory,
		timeout:     conf.WebhookTimeout,
		concurrency: conf.WebhookConcurrency,
		resources:   resources,
	})
	f.role.allow([]string{"dynamodb:BatchGetItem",
		"dynamodb:PartiQLInsert", "dynamodb:PartiQLUpdate"}, p.ledger.TableArn())
	f.role.allow([]string{"events:PutEvents"}, p.bus.EventBusArn())
	p.buckets.allowWrite(f)
	if conf.StoreRejected > 0 {
		f.role.allow([]string{"s3:PutObject"}, in(p.buckets.parking, rejectedFolder)...)
	}
	p.allowReceiving(f)
	ingress.connect(p, f)
	p.webhook = webhook{f, ingress}
}

// allowReceiving lets the function use the resources with which it finds webhooks authentic and accepts them.
func (p *Payhook) allowReceiving(f function) {
	if p.conf.UsesSignature() {
		f.role.allow([]string{"dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}, p.keysTable.TableArn())
	}
	if p.conf.KeyEndpointAuth == settings.BearerToken {
		f.role.allow([]string{p.token.store.read}, p.token.store.arn)
	}
	f.role.allow([]string{"s3:PutObject"}, in(p.buckets.parking, invalidFolder)...)
	if p.buckets.evidence != nil {
		f.role.allow([]string{"s3:PutObject"}, in(p.buckets.evidence, acceptedFolder)...)
	}
}

// newRedrive creates the function that publishes, every minute, the events that the webhook function recorded and could
// not publish. It also replays parked deliveries and events, and rejected webhooks, on request.
func (p *Payhook) newRedrive() {
	conf := p.conf
	scope := constructs.NewConstruct(p, jsii.String("Redrive"))
	f := p.newFunction(scope, functionOptions{
		name:        "redrive",
		description: "Publishes recorded events that are not published yet",
		memory:      512,
		timeout:     conf.RedriveTimeout(),
		resources:   p.named(),
	})
	// A replay writes the items of a delivery, or of one parked event. To dismiss a
	// conflict, it reads the item of the first content.
	f.role.allow([]string{"dynamodb:BatchGetItem",
		"dynamodb:PartiQLInsert", "dynamodb:PartiQLUpdate"}, p.ledger.TableArn())
	f.role.allow([]string{"dynamodb:Query"}, jsii.String(*p.ledger.TableArn()+"/index/"+settings.LedgerIndex))
	if conf.ReplaysRejected() {
		p.allowReceiving(f)
		f.role.allow([]string{"s3:GetObject"}, in(p.buckets.parking, rejectedFolder)...)
	}
	f.role.allow([]string{"events:DescribeEventBus", "events:PutEvents"}, p.bus.EventBusArn())
	p.buckets.allowWrite(f)
	p.buckets.allowReplay(f)
	p.redrive = p.runEveryMinute(scope, f)
}

// token is the zero value with tokenStore=none.
type token struct {
	scheduled
	store       store
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
// stack, which differs from all others in the account and Region.
func (p *Payhook) newTokenStore(scope constructs.Construct) store {
	if p.conf.TokenStore == settings.InParameter {
		name := "/payhook/" + p.conf.StackName() + "/token"
		return store{service: "ssm", read: "ssm:GetParameter", write: "ssm:PutParameter", id: &name,
			arn: p.arn("ssm", "parameter"+name), context: "PARAMETER_ARN",
			variable: settings.TokenParameterEnv}
	}
	secret := p.newSecret(scope, "Secret",
		"The access token of "+p.conf.StackName()+", refreshed by Payhook")
	// Callers use it until they know the parameter, after a change of TokenStore.
	secret.ApplyRemovalPolicy(keptUnlessLocal(p.conf), nil)
	return store{service: "secretsmanager", read: "secretsmanager:GetSecretValue",
		write: "secretsmanager:PutSecretValue", id: secret.AttrId(), arn: secret.AttrId(), context: "SecretARN",
		variable: settings.TokenSecretEnv}
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
		"The client id and secret for the payment service, stored by a person")
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
// which a reader cannot distinguish from a real one.
func (p *Payhook) newSecret(scope constructs.Construct, id, description string) awssecretsmanager.CfnSecret {
	secret := awssecretsmanager.NewCfnSecret(scope, jsii.String(id), &awssecretsmanager.CfnSecretProps{
		Description: jsii.String(description), KmsKeyId: p.keyARN(),
	})
	p.encrypted(secret, "CKV_AWS_149")
	return secret
}
