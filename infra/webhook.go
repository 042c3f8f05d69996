package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/contract"
)

type webhook struct {
	function
	*endpoint
}

// newWebhook makes the function that receives webhooks, and connects it to the
// endpoint.
func newWebhook(stack awscdk.Stack, settings contract.Deployment, code awslambda.Code, endpoint *endpoint, ledger, keys awsdynamodb.ITableV2, bus awsevents.EventBus, buckets buckets, token token) webhook {
	scope := constructs.NewConstruct(stack, jsii.String("Webhook"))
	resources := buckets.environment()
	resources[contract.LedgerTableEnv] = ledger.TableName()
	resources[contract.KeysTableEnv] = keys.TableName()
	if settings.Webhook.KeysBearer {
		resources[contract.TokenSecretEnv] = token.secret.AttrId()
	}
	if settings.Webhook.UsesMTLS() {
		resources[contract.APIIDEnv] = endpoint.api.Ref()
	}
	f := newFunction(scope, settings, functionOptions{
		description: "Authenticates payment webhooks, records their events and publishes them",
		code:        code,
		memory:      settings.Memory,
		timeout:     settings.Webhook.Timeout.Seconds(),
		concurrency: settings.Concurrency,
		settings:    contract.WebhookSettings(),
		resources:   resources,
	})
	f.allow([]string{"dynamodb:BatchGetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}, ledger.TableArn())
	f.allow([]string{"dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}, keys.TableArn())
	f.allow([]string{"events:PutEvents"}, bus.EventBusArn())
	buckets.letKeep(f)
	if settings.Webhook.KeysBearer {
		f.allow([]string{"secretsmanager:GetSecretValue"}, token.secret.AttrId())
	}
	endpoint.connect(stack, settings, f)
	return webhook{f, endpoint}
}
