package payhook

import (
	"path"
	"strings"

	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// finding is what checkov (CKV_...) or the AwsSolutions pack of cdk-nag (AwsSolutions-...)
// reports and what is meant to be so.
type finding struct {
	id     string
	kind   string // the type of the resources that have it
	path   string // the pattern of their paths, such as */Function (path.Match); "": all
	unless bool   // the settings of the stack leave no such finding
	reason string
}

const ownKeys = "It is encrypted with a key of AWS; the setting encryption takes a customer managed key instead."

// findings returns every finding that is no defect.
func findings(conf settings.Deployment) []finding {
	customerKey := conf.Encryption != settings.EncryptionAWS
	const concurrency = "Reserved concurrency is a setting of the webhook function: the figure depends on the " +
		"account's quota and on the load. It also keeps concurrency for the other two."
	route := "The payment service has no AWS identity, so that no authorizer of API Gateway fits. The function " +
		"authenticates each request before it does anything else with it."
	if conf.UsesMTLS() {
		route += " API Gateway rejects clients without a certificate of a CA in the truststore, and no other " +
			"way leads to the function: the execute-api endpoint is disabled and there is no function URL."
	}
	const wildcard = "An object cannot be named before it exists: the wildcard matches the objects " +
		"of one folder of one bucket."
	return []finding{
		{id: "CKV_AWS_115", kind: "AWS::Lambda::Function", path: "Webhook/Function",
			unless: conf.WebhookConcurrency > 0, reason: concurrency},
		{id: "CKV_AWS_115", kind: "AWS::Lambda::Function", path: "[RT]*/Function", reason: concurrency},
		{id: "CKV_AWS_116", kind: "AWS::Lambda::Function",
			reason: "No invocation holds the only copy of anything. A webhook is invoked synchronously and its " +
				"sender gets the answer; what a scheduled run leaves undone the next one does. Errors, throttles and " +
				"runs that are missing raise alarms."},
		{id: "CKV_AWS_117", kind: "AWS::Lambda::Function", unless: len(conf.SubnetIDs) > 0,
			reason: "The function reaches nothing in a VPC: it calls AWS and the payment service's public " +
				"endpoints, over TLS. The setting subnetIds puts it into subnets."},
		{id: "CKV_AWS_173", kind: "AWS::Lambda::Function",
			reason: "The environment holds names and settings and no secret; Lambda encrypts it with a key of AWS."},
		{id: "CKV_AWS_258", kind: "AWS::Lambda::Url",
			reason: "The payment service has no AWS identity. The function verifies each request's signature " +
				"before it does anything else with it."},
		{id: "AwsSolutions-APIG4", kind: "AWS::ApiGatewayV2::Route", reason: route},
		{id: "CKV_AWS_149", kind: "AWS::SecretsManager::Secret", unless: customerKey, reason: ownKeys},
		{id: "AwsSolutions-SMG4", kind: "AWS::SecretsManager::Secret", path: "Token/Secret",
			reason: "The token function replaces the token before it expires, which is more often than " +
				"rotation could."},
		{id: "AwsSolutions-SMG4", kind: "AWS::SecretsManager::Secret", path: "Token/Credentials",
			reason: "The payment service issues client credentials out of band, so that nothing can rotate them " +
				"without its operator. events/README.md describes the procedure (Rotate the client credentials)."},
		{id: "CKV_AWS_158", kind: "AWS::Logs::LogGroup", unless: customerKey,
			reason: ownKeys + " No line holds a payload, a signature or a secret."},
		{id: "CKV_AWS_26", kind: "AWS::SNS::Topic", unless: customerKey,
			reason: "Alarms hold nothing of a payment, and CloudWatch can publish to an encrypted topic " +
				"only with a customer managed key: see the setting encryption."},
		{id: "CKV_AWS_27", kind: "AWS::SQS::Queue", unless: customerKey, reason: ownKeys},
		{id: "CKV_AWS_27", kind: "AWS::SQS::Queue", path: "Encryption/BusFailures",
			reason: "It is encrypted with a key of SQS, so that it takes messages while the customer " +
				"managed key cannot be used. The events in them are encrypted with that key."},
		{id: "AwsSolutions-SQS3", kind: "AWS::SQS::Queue",
			reason: "It is a dead-letter queue itself, of a schedule or of the bus, which the rule does not look for."},
		{id: "CKV_AWS_18", kind: "AWS::S3::Bucket", path: "AccessLogs",
			reason: "It holds the access logs of the other buckets. A bucket that logs its own requests " +
				"writes a log for every log."},
		{id: "AwsSolutions-IAM5", kind: "AWS::IAM::Policy", path: "[RW]*/Role/DefaultPolicy", reason: wildcard},
		{id: "AwsSolutions-IAM5", kind: "AWS::IAM::Policy", path: "*/Role/Network",
			reason: "Lambda makes these calls for network interfaces, and AWS requires all resources. The code of " +
				"the function cannot make them."},
	}
}

// explainFindings writes into the template's metadata, where checkov and cdk-nag
// look for it, why a finding is no defect. make audit holds the findings of
// both to exactly those that are explained.
func (p *Payhook) explainFindings() {
	all := findings(p.conf)
	for _, resource := range p.resources() {
		at := strings.TrimPrefix(strings.TrimSuffix(*resource.Node().Path(), "/Resource"), *p.Node().Path()+"/")
		var checkov, nag []any
		for _, f := range all {
			matches, _ := path.Match(f.path, at)
			switch {
			case f.unless || f.kind != *resource.CfnResourceType() || f.path != "" && !matches:
			case strings.HasPrefix(f.id, "CKV"):
				checkov = append(checkov, map[string]any{"id": f.id, "comment": f.reason})
			default:
				nag = append(nag, map[string]any{"id": f.id, "reason": f.reason})
			}
		}
		if len(checkov) > 0 {
			resource.AddMetadata(jsii.String("checkov"), map[string]any{"skip": checkov})
		}
		if len(nag) > 0 {
			resource.AddMetadata(jsii.String("cdk_nag"), map[string]any{"rules_to_suppress": nag})
		}
	}
}
