package payhook

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awseventschemas"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/events/schema"
	"payhook.example/shared/names"
	"payhook.example/shared/settings"
)

// newSchemas creates an EventBridge schema registry with the schemas of package schema,
// from which consumers download code bindings. It does nothing if the setting
// schemaRegistry is false.
//
// The registry accepts OpenAPI 3 and JSON Schema Draft 4, and no newer one:
// https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-schema-create.html
// Its name is left to CloudFormation, because the name of the bus or of the stack can be
// longer than the name of a registry.
func newSchemas(stack awscdk.Stack, conf settings.Deployment) {
	if !conf.SchemaRegistry {
		return
	}
	scope := constructs.NewConstruct(stack, jsii.String("Schemas"))
	registry := awseventschemas.NewCfnRegistry(scope, jsii.String("Registry"), &awseventschemas.CfnRegistryProps{
		Description: jsii.String("Payment events and webhooks"),
	})
	for _, name := range schema.Names() {
		awseventschemas.NewCfnSchema(scope, jsii.String(name), &awseventschemas.CfnSchemaProps{
			RegistryName: registry.AttrRegistryName(),
			SchemaName:   jsii.String(name),
			Type:         jsii.String("OpenApi3"),
			Content:      jsii.String(schema.OpenAPI(name, conf.Webhook.EventSource)),
		})
	}
	if !conf.Local { // the emulator has no registry
		output(stack, names.SchemaRegistryOutput, "the registry with the schemas of the events",
			registry.AttrRegistryName())
	}
}
