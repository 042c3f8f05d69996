package payhook

import (
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// unsupported are the resource types that MiniStack 1.5.33, the emulator of local runs,
// cannot deploy. It has no alarms on metric math either.
var unsupported = []string{
	"AWS::Events::Archive",
	"AWS::Events::EventBusPolicy",
	"AWS::SecretsManager::ResourcePolicy",
	"AWS::SecretsManager::RotationSchedule",
}

// removeUnsupported removes the resources that the emulator does not support. The remaining
// resources must not refer to them.
func (p *Payhook) removeUnsupported() {
	for _, resource := range p.resources() {
		if slices.Contains(unsupported, *resource.CfnResourceType()) {
			resource.Node().Scope().Node().TryRemoveChild(resource.Node().Id())
		}
	}
	awscdk.Annotations_Of(p).AddInfoV2(jsii.String("payhook:"+settings.LocalKey), jsii.String(
		"The local emulator has no alarms on metric math and no "+strings.Join(unsupported, ", ")+
			": these are left out."))
}
