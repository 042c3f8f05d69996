package payhook

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// protectBus denies PutEvents on the bus to every principal except the publishers, so
// that no other principal of the account can publish events that look authenticated.
// Without the policy, every principal with events:PutEvents can. protectBus does nothing
// if the setting protectBus is false.
//
// For a session of a role, aws:PrincipalArn is the ARN of the role, not of the
// session (AWS, "AWS global condition context keys" in the IAM User Guide).
//
// The statement does not apply to AWS services, because EventBridge itself publishes the
// events of a replay from an archive. This gives no access: a service has no identity
// policy, and no other statement allows it to publish. A bus of another account, and a
// rule with this bus as its target, publish with a role, which is denied.
func protectBus(scope constructs.Construct, conf settings.Deployment, bus awsevents.EventBus,
	publishers ...awsiam.IRole) {
	if !conf.ProtectBus {
		return
	}
	roles := make([]*string, len(publishers))
	for i, p := range publishers {
		roles[i] = p.RoleArn()
	}
	awsevents.NewCfnEventBusPolicy(scope, jsii.String("BusPolicy"), &awsevents.CfnEventBusPolicyProps{
		EventBusName: bus.EventBusName(),
		StatementId:  jsii.String(onlyPayhookPublishes),
		// ToJSON of a PolicyStatement would write jsii's internal form of a map into the
		// template.
		Statement: map[string]any{
			"Sid":       onlyPayhookPublishes,
			"Effect":    "Deny",
			"Principal": "*",
			"Action":    "events:PutEvents",
			"Resource":  bus.EventBusArn(),
			"Condition": map[string]any{
				"ArnNotEquals": map[string]any{"aws:PrincipalArn": roles},
				"BoolIfExists": map[string]any{"aws:PrincipalIsAWSService": "false"},
			},
		},
	})
}

const onlyPayhookPublishes = "OnlyPayhookPublishes"
