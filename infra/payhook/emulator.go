package payhook

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
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

// removeUnsupported removes the resources that the emulator does not support,
// and writes their names to standard error. The remaining resources must not refer to them.
func (p *Payhook) removeUnsupported() {
	for _, resource := range p.resources() {
		if alias, ok := resource.(awslambda.CfnAlias); ok {
			// It names the deployment group that shifts the alias, which is removed.
			alias.CfnOptions().SetUpdatePolicy(nil)
		}
		what := *resource.CfnResourceType()
		if alarm, ok := resource.(awscloudwatch.CfnAlarm); ok && alarm.Metrics() != nil {
			what += " on metric math"
		} else if !slices.Contains(unsupported, what) {
			continue
		}
		resource.Node().Scope().Node().TryRemoveChild(resource.Node().Id())
		fmt.Fprintf(os.Stderr, "removed, the local emulator does not support it: %s (%s)\n",
			strings.TrimSuffix(*resource.Node().Path(), "/Resource"), what)
	}
}
