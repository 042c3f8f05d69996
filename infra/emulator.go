package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
)

// refused are the resource types that MiniStack 1.5.33, the emulator of local
// runs, fails to deploy. It also refuses alarms on metric math.
var refused = []string{
	"AWS::CodeDeploy::Application",
	"AWS::CodeDeploy::DeploymentConfig",
	"AWS::CodeDeploy::DeploymentGroup",
	"AWS::CloudWatch::CompositeAlarm",
	"AWS::Events::Archive",
	"AWS::Events::EventBusPolicy",
	"AWS::EventSchemas::Discoverer",
	"AWS::EventSchemas::Registry",
	"AWS::EventSchemas::RegistryPolicy",
	"AWS::EventSchemas::Schema",
	"AWS::Logs::QueryDefinition",
	"AWS::SecretsManager::ResourcePolicy",
	"AWS::SecretsManager::RotationSchedule",
}

// leaveOut removes from a stack what the emulator refuses, and says on w what it
// removed. Nothing that stays may refer to what goes.
func leaveOut(stack awscdk.Stack, w io.Writer) {
	for _, node := range *stack.Node().FindAll(constructs.ConstructOrder_POSTORDER) {
		if !*awscdk.CfnResource_IsCfnResource(node) {
			continue
		}
		resource := node.(awscdk.CfnResource)
		if alias, ok := node.(awslambda.CfnAlias); ok {
			// It names what shifts the alias, which is left out.
			alias.CfnOptions().SetUpdatePolicy(nil)
		}
		what := *resource.CfnResourceType()
		if alarm, ok := node.(awscloudwatch.CfnAlarm); ok && alarm.Metrics() != nil {
			what += " on metric math"
		} else if !slices.Contains(refused, what) {
			continue
		}
		node.Node().Scope().Node().TryRemoveChild(node.Node().Id())
		fmt.Fprintf(w, "left out, the local emulator refuses it: %s (%s)\n",
			strings.TrimSuffix(*node.Node().Path(), "/Resource"), what)
	}
}
