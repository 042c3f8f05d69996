package payhook

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// stays is, for each type of resource, whether its logical id must stay: it keeps data, has an address or a name
// that no other can have at the same time, or is the only one of its kind for another resource, such as a policy.
var stays = map[string]bool{
	"AWS::ApiGatewayV2::Api": false, "AWS::ApiGatewayV2::ApiMapping": true, "AWS::ApiGatewayV2::DomainName": true,
	"AWS::ApiGatewayV2::Integration": false, "AWS::ApiGatewayV2::Route": false, "AWS::ApiGatewayV2::Stage": true,
	"AWS::CertificateManager::Certificate": true, "AWS::CloudWatch::Alarm": true, "AWS::CloudWatch::Dashboard": true,
	"AWS::DynamoDB::GlobalTable": true, "AWS::Events::Archive": true, "AWS::Events::EventBus": true,
	"AWS::Events::EventBusPolicy": true, "AWS::IAM::Policy": false, "AWS::IAM::Role": false, "AWS::KMS::Key": true,
	"AWS::Lambda::Alias": true, "AWS::Lambda::EventInvokeConfig": true, "AWS::Lambda::Function": false,
	"AWS::Lambda::Permission": false, "AWS::Lambda::Url": true, "AWS::Lambda::Version": false,
	"AWS::Logs::LogGroup": true, "AWS::Logs::MetricFilter": false, "AWS::Route53::RecordSet": true,
	"AWS::S3::Bucket": true, "AWS::S3::BucketPolicy": true, "AWS::SNS::Subscription": true, "AWS::SNS::Topic": true,
	"AWS::SNS::TopicPolicy": true, "AWS::SQS::Queue": true, "AWS::SQS::QueuePolicy": true,
	"AWS::Scheduler::Schedule": false, "AWS::SecretsManager::Secret": true,
}

// CloudFormation creates a resource with another logical id before it deletes the earlier one. So a name exists
// already, and the deployment fails; or the data stays in a resource that the stack does not have any more. A construct
// that is renamed or moved changes the logical ids of all that is in it, and no other test sees it.
//
// The list has each logical id of any reviewed variant, with its type. With -update, the test adds new ones. It removes
// none: restore the path of the construct, or set the id with OverrideLogicalId. If a resource must go, remove its
// line, and describe in infra/RUNBOOK.md what a deployment does to a stack that has it.
func TestLogicalIDsStay(t *testing.T) {
	file := filepath.Join("testdata", "logicalids.txt")
	listed, now := strings.Fields(string(readFile(t, file))), map[string]string{}
	variants := []map[string]any{{"domainName": "hook.bank.example", "hostedZoneId": "Z0123456789ABC"}}
	for _, variant := range reviewed {
		variants = append(variants, variant.settings)
	}
	for _, conf := range variants {
		tm := payhook(t, map[string]any{"stackName": "Bank"}, conf)
		for id, path := range tm.names {
			kind := tm.Resources[path].Type
			must, known := stays[kind]
			if !known {
				t.Errorf("%s: decide in this file whether the logical id of a %s must stay", path, kind)
			}
			if must {
				now[id] = kind
			}
		}
	}
	var text strings.Builder
	for _, id := range slices.Sorted(maps.Keys(now)) {
		if fmt.Fprintf(&text, "%s %s\n", id, now[id]); !*update && !slices.Contains(listed, id) {
			t.Errorf("%s lacks %s: if it is new, go test ./infra/payhook -run LogicalIDs -update", file, id)
		}
	}
	for i := 0; i < len(listed); i += 2 {
		if id := listed[i]; now[id] != listed[i+1] {
			t.Errorf("no template has the %s %s any more", listed[i+1], id)
		}
	}
	if *update && !t.Failed() {
		writeFile(t, file, text.String())
	}
}
