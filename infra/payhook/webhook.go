package payhook

import (
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

type webhook struct {
	function
	*endpoint
}

// newWebhook creates the function that receives webhooks, and connects it to the endpoint.
func (p *Payhook) newWebhook(endpoint *endpoint) {
	conf := p.conf
	scope := constructs.NewConstruct(p, jsii.String("Webhook"))
	resources := p.named()
	if conf.UsesMTLS() {
		resources[settings.APIIDEnv] = *endpoint.api.Ref()
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
	if conf.CaptureRejected > 0 {
		f.role.allow([]string{"s3:PutObject"}, in(p.buckets.parking, rejectedFolder)...)
	}
	p.allowReceiving(f)
	endpoint.connect(p, f)
	p.webhook = webhook{f, endpoint}
}

// allowReceiving lets the function use the resources with which it finds webhooks authentic and accepts them.
func (p *Payhook) allowReceiving(f function) {
	if p.conf.UsesSignature() {
		f.role.allow([]string{"dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}, p.keysTable.TableArn())
	}
	if p.conf.KeysAuth == settings.BearerToken {
		f.role.allow([]string{p.token.read}, p.token.arn)
	}
	f.role.allow([]string{"s3:PutObject"}, in(p.buckets.parking, invalidFolder)...)
	if p.buckets.evidence != nil {
		f.role.allow([]string{"s3:PutObject"}, in(p.buckets.evidence, acceptedFolder)...)
	}
}
