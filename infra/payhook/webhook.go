package payhook

import (
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
)

type webhook struct {
	function
	*endpoint
}

// newWebhook creates the function that receives webhooks, and connects it to the
// endpoint.
func newWebhook(stack awscdk.Stack, conf settings.Deployment, code awslambda.Code, endpoint *endpoint, ledger,
	keys awsdynamodb.ITableV2, bus awsevents.EventBus, buckets buckets, token token) webhook {
	scope := constructs.NewConstruct(stack, jsii.String("Webhook"))
	resources := buckets.environment()
	resources[names.LedgerTableEnv] = ledger.TableName()
	resources[names.KeysTableEnv] = keys.TableName()
	if conf.Webhook.KeysBearer {
		resources[names.TokenSecretEnv] = token.secret.AttrId()
	}
	if conf.Webhook.UsesMTLS() {
		resources[names.APIIDEnv] = endpoint.api.Ref()
	}
	if conf.CaptureRejected > 0 {
		// The time is absolute, so that the capture ends by itself: a new process of the
		// function does not extend it. A new deployment does.
		until := time.Now().Add(conf.CaptureRejected).UTC().Format(time.RFC3339)
		resources[names.CaptureUntilEnv] = jsii.String(until)
	}
	f := newFunction(scope, conf, functionOptions{
		description: "Authenticates payment webhooks, records their events and publishes them",
		code:        code,
		memory:      settings.WebhookMemory,
		timeout:     conf.Webhook.Timeout.Seconds(),
		concurrency: conf.Concurrency,
		settings:    settings.WebhookSettings(),
		resources:   resources,
	})
	f.allow([]string{"dynamodb:BatchGetItem", "dynamodb:PutItem", "dynamodb:UpdateItem",
		"dynamodb:PartiQLInsert", "dynamodb:PartiQLUpdate"}, ledger.TableArn())
	f.allow([]string{"dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}, keys.TableArn())
	f.allow([]string{"events:PutEvents"}, bus.EventBusArn())
	buckets.allowWrite(f)
	if conf.CaptureRejected > 0 {
		buckets.allowCapture(f)
	}
	if conf.Webhook.KeysBearer {
		f.allow([]string{"secretsmanager:GetSecretValue"}, token.secret.AttrId())
	}
	endpoint.connect(stack, conf, f)
	return webhook{f, endpoint}
}
