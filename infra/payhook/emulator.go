package payhook

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

// unsupported are the resource types that MiniStack 1.5.33, the emulator of local runs,
// cannot deploy. It does not support alarms on metric math either.
var unsupported = []string{
	"AWS::CodeDeploy::Application",
	"AWS::CodeDeploy::DeploymentConfig",
	"AWS::CodeDeploy::DeploymentGroup",
	"AWS::Events::Archive",
	"AWS::Events::EventBusPolicy",
	"AWS::Logs::QueryDefinition",
	"AWS::SecretsManager::ResourcePolicy",
	"AWS::SecretsManager::RotationSchedule",
}

// removeUnsupported removes the resources of a stack that the emulator does not support,
// and writes their names to w. The remaining resources must not refer to them.
func removeUnsupported(stack awscdk.Stack, w io.Writer) {
	for _, node := range *stack.Node().FindAll(constructs.ConstructOrder_POSTORDER) {
		if !*awscdk.CfnResource_IsCfnResource(node) {
			continue
		}
		resource := node.(awscdk.CfnResource)
		if alias, ok := node.(awslambda.CfnAlias); ok {
			// It names the deployment group that shifts the alias, which is removed.
			alias.CfnOptions().SetUpdatePolicy(nil)
		}
		what := *resource.CfnResourceType()
		if alarm, ok := node.(awscloudwatch.CfnAlarm); ok && alarm.Metrics() != nil {
			what += " on metric math"
		} else if !slices.Contains(unsupported, what) {
			continue
		}
		node.Node().Scope().Node().TryRemoveChild(node.Node().Id())
		fmt.Fprintf(w, "removed, the local emulator does not support it: %s (%s)\n",
			strings.TrimSuffix(*node.Node().Path(), "/Resource"), what)
	}
}
