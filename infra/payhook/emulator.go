package payhook

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
)

// unsupported are the resource types that MiniStack 1.5.33, the emulator of local runs,
// cannot deploy.
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
		if what := *resource.CfnResourceType(); slices.Contains(unsupported, what) {
			resource.Node().Scope().Node().TryRemoveChild(resource.Node().Id())
			notSupported(resource.Node().Scope(), *resource.Node().Id(), what)
		}
	}
}

// notSupported writes to standard error that a resource is not deployed to the emulator.
func notSupported(scope constructs.IConstruct, id, what string) {
	fmt.Fprintf(os.Stderr, "removed, the local emulator does not support it: %s (%s)\n",
		strings.TrimSuffix(*scope.Node().Path()+"/"+id, "/Resource"), what)
}
