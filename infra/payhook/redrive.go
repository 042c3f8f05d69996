package payhook

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
)

// newRedrive creates the function that publishes, every minute, the events that the
// webhook function recorded and could not publish. It also replays parked deliveries
// and events on request.
func newRedrive(scope constructs.Construct, conf settings.Deployment, code awslambda.Code, ledger,
	keys awsdynamodb.ITableV2, bus awsevents.EventBus, buckets buckets) scheduled {
	scope = constructs.NewConstruct(scope, jsii.String("Redrive"))
	resources := buckets.environment()
	resources[names.LedgerTableEnv] = ledger.TableName()
	if conf.Webhook.UsesMTLS() {
		resources[names.KeysTableEnv] = keys.TableName()
	}
	f := newFunction(scope, conf, functionOptions{
		description: "Publishes recorded events that are not published yet",
		code:        code,
		memory:      512,
		timeout:     conf.RedriveTimeout.Seconds(),
		settings:    settings.RedriveSettings(),
		resources:   resources,
	})
	// A replay writes the items of a delivery, or of one parked event. To settle a
	// conflict, it reads the item of the first version.
	f.allow([]string{"dynamodb:BatchGetItem", "dynamodb:PutItem", "dynamodb:UpdateItem",
		"dynamodb:PartiQLInsert", "dynamodb:PartiQLUpdate"}, ledger.TableArn())
	f.allow([]string{"dynamodb:Query"}, jsii.String(*ledger.TableArn()+"/index/"+names.LedgerPendingIndex))
	if conf.Webhook.UsesMTLS() {
		// The table contains the client certificate that was accepted last.
		f.allow([]string{"dynamodb:GetItem"}, keys.TableArn())
	}
	f.allow([]string{"events:PutEvents"}, bus.EventBusArn())
	buckets.allowWrite(f)
	buckets.allowReplay(f)
	return runEveryMinute(scope, f)
}
