package payhook

import (
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// tagsOf returns the tags of the stack. CloudFormation applies them to every resource
// that can have tags (AWS, "Resource tag" in the CloudFormation User Guide).
func tagsOf(conf settings.Deployment) *map[string]*string {
	tags := map[string]*string{}
	for name, value := range conf.Tags {
		tags[name] = jsii.String(value)
	}
	return &tags
}

// boundaryOf returns the permissions boundary of every role, or nil for that of the
// CDK's own context.
func boundaryOf(conf settings.Deployment) awscdk.PermissionsBoundary {
	switch policy := conf.PermissionsBoundary; {
	case policy == "":
		return nil
	case strings.HasPrefix(policy, "arn:"):
		return awscdk.PermissionsBoundary_FromArn(jsii.String(policy))
	default:
		return awscdk.PermissionsBoundary_FromName(jsii.String(policy))
	}
}

// synthesizerOf returns the stack synthesizer with the qualifier of the bootstrap
// stack, or nil for the CDK's default.
func synthesizerOf(conf settings.Deployment) awscdk.IStackSynthesizer {
	if conf.BootstrapQualifier == "" {
		return nil
	}
	return awscdk.NewDefaultStackSynthesizer(&awscdk.DefaultStackSynthesizerProps{
		Qualifier: jsii.String(conf.BootstrapQualifier),
	})
}
