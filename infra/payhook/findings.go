package payhook

import (
	"strings"

	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// finding is what checkov (CKV_...) or the AwsSolutions pack of cdk-nag
// (AwsSolutions-...) reports for a resource and what is meant to be so.
type finding struct{ id, reason string }

// explainFindings writes into the template's metadata, where checkov and cdk-nag
// look for it, why a finding is no defect. make audit holds the findings of
// checkov to exactly those that are explained.
func (p *Payhook) explainFindings() {
	for _, resource := range p.resources() {
		path := strings.TrimPrefix(strings.TrimSuffix(*resource.Node().Path(), "/Resource"), *p.Node().Path()+"/")
		var checkov, nag []any
		for _, f := range findings(p.conf, *resource.CfnResourceType(), path) {
			if strings.HasPrefix(f.id, "CKV") {
				checkov = append(checkov, map[string]any{"id": f.id, "comment": f.reason})
			} else {
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

const keysOfAWS = "It is encrypted with a key of AWS; the setting encryption takes a customer managed key instead."

// findings returns the findings for the resource at path, a path such as
// Webhook/Function.
func findings(conf settings.Deployment, kind, path string) []finding {
	var all []finding
	add := func(id, reason string) { all = append(all, finding{id, reason}) }
	ownKeys := conf.Encryption == settings.EncryptionAWS
	switch kind {
	case "AWS::Lambda::Function":
		if conf.Concurrency == 0 || path != "Webhook/Function" {
			add("CKV_AWS_115", "Reserved concurrency is a setting of the webhook function: the figure depends on the "+
				"account's quota and on the load. It also keeps concurrency for the other two.")
		}
		add("CKV_AWS_116", "No invocation holds the only copy of anything. A webhook is invoked synchronously and "+
			"its sender gets the answer; what a scheduled run leaves undone the next one does. Errors, throttles and "+
			"runs that are missing raise alarms.")
		add("CKV_AWS_117", "The function reaches nothing in a VPC: it calls AWS and the payment service's public "+
			"endpoints, over TLS.")
		add("CKV_AWS_173", "The environment holds names and settings and no secret; Lambda encrypts it with a key of "+
			"AWS.")
	case "AWS::Lambda::Url":
		add("CKV_AWS_258", "The payment service has no AWS identity. The function verifies each request's signature "+
			"before it does anything else with it.")
	case "AWS::ApiGatewayV2::Route":
		reason := "The payment service has no AWS identity, so that no authorizer of API Gateway fits. The function " +
			"authenticates each request before it does anything else with it."
		if conf.Webhook.UsesMTLS() {
			reason += " API Gateway rejects clients without a certificate of a CA in the truststore, and no other " +
				"way leads to the function: the execute-api endpoint is disabled and there is no function URL."
		}
		add("AwsSolutions-APIG4", reason)
	case "AWS::SecretsManager::Secret":
		if ownKeys {
			add("CKV_AWS_149", keysOfAWS)
		}
		if path == "Token/Secret" {
			add("AwsSolutions-SMG4", "The token function replaces the token before it expires, which is more often "+
				"than rotation could.")
		} else {
			add("AwsSolutions-SMG4", "The payment service issues client credentials out of band, so that nothing can "+
				"rotate them without its operator. events/README.md describes the procedure (Rotate the client "+
				"credentials).")
		}
	case "AWS::Logs::LogGroup":
		if ownKeys {
			add("CKV_AWS_158", keysOfAWS+" No line holds a payload, a signature or a secret.")
		}
	case "AWS::SNS::Topic":
		if ownKeys {
			add("CKV_AWS_26", "Alarms hold nothing of a payment, and CloudWatch can publish to an encrypted topic "+
				"only with a customer managed key: see the setting encryption.")
		}
	case "AWS::SQS::Queue":
		if path == "Encryption/BusFailures" {
			add("CKV_AWS_27", "It is encrypted with a key of SQS, so that it takes messages while the customer "+
				"managed key cannot be used. The events in them are encrypted with that key.")
		} else if ownKeys {
			add("CKV_AWS_27", keysOfAWS)
		}
		add("AwsSolutions-SQS3", "It is a dead-letter queue itself, of a schedule or of the bus, which the rule does "+
			"not look for.")
	case "AWS::S3::Bucket":
		if path == "AccessLogs" {
			add("CKV_AWS_18", "It holds the access logs of the other buckets. A bucket that logs its own requests "+
				"writes a log for every log.")
		}
	case "AWS::IAM::Policy":
		if part, _, _ := strings.Cut(path, "/"); conf.Tracing || part != "Token" {
			if !strings.HasSuffix(path, "/Role/DefaultPolicy") {
				break
			}
			add("AwsSolutions-IAM5", "An object cannot be named before it exists: the wildcard matches the objects "+
				"of one folder of one bucket. With the setting tracing, X-Ray has no resources to name.")
		}
	case "AWS::IAM::Role":
		if strings.HasPrefix(path, "Canary/") {
			add("AwsSolutions-IAM4", "It is CodeDeploy's role, with the policy that AWS maintains for deployments of "+
				"Lambda functions.")
		}
	}
	return all
}
