package payhook

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A change that is not in the version's hash would only be deployed to $LATEST. While an alias moves, the version in
// use and the next one both have their permissions: no deployment changes a policy, the next version waits for the new
// one, and the old one is deleted in the cleanup of the deployment.
func TestEveryChangeOfAFunctionPublishesAVersionAndNoPolicyInUseChanges(t *testing.T) {
	const webhook, both = "Webhook", "Redrive Webhook"
	const all = "Redrive Redrive/ScheduleRole Token Token/ScheduleRole Webhook"
	before := payhook(t, nil)
	for _, c := range []struct {
		settings           map[string]any // nil: other code
		versions, policies string         // those that are new
	}{
		{map[string]any{"webhookTimeout": "20s", "scopes": "payments.read"}, "Token Webhook", ""},
		{map[string]any{"successStatus": 202}, webhook, ""},
		{map[string]any{"keyEndpointAuth": "bearer"}, both, webhook},
		{map[string]any{"storeRejected": "1h"}, both, both},
		{map[string]any{"evidence": "7y"}, both, webhook},
		{map[string]any{"eventBusName": "payments"}, both, all},
		{map[string]any{"ledgerTable": "another"}, both, both},
		{map[string]any{"largeEventBucket": "another"}, both, both},
		{map[string]any{"parkingBucket": "another"}, both, both},
		{map[string]any{"stackName": "Staging"}, "Redrive Token Webhook", all}, // the dimension of metrics
		{nil, "Redrive Token Webhook", ""},
		{map[string]any{"alarmEmail": "ops@payments.example", "encryption": "cmk",
			"webhookConcurrency": 7}, "", ""}, // of the function, not of a version
	} {
		after := payhook(t, c.settings)
		if c.settings == nil {
			after = synthesized(t, "another program")
		}
		var versions, policies []string
		for id, name := range before.names {
			function, isVersion := strings.CutSuffix(name, "/Function/CurrentVersion")
			policy := before.Resources[name]
			switch {
			case isVersion && after.names[id] == "":
				versions = append(versions, function)
			case policy.Type != "AWS::IAM::Policy":
			case after.names[id] == "":
				name = strings.TrimSuffix(name, "/DefaultPolicy")
				policies = append(policies, strings.TrimSuffix(name, "/Role"))
			default:
				if diff := cmp.Diff(policy.Properties, after.Resources[name].Properties); diff != "" {
					t.Errorf("%v changes %s (-before +after)\n%s", c.settings, name, diff)
				}
			}
		}
		slices.Sort(versions)
		slices.Sort(policies)
		if got := strings.Join(versions, " "); got != c.versions {
			t.Errorf("%v: versions of %q are new, want %q", c.settings, got, c.versions)
		}
		if got := strings.Join(policies, " "); got != c.policies {
			t.Errorf("%v replaces the policies of %q, want %q", c.settings, got, c.policies)
		}
	}
}

// movable are the types of resources whose logical id may change. Every other one keeps data, has an address or a name
// that no other can have at the same time, or is the only one of its kind for another resource, such as a policy.
var movable = []string{"AWS::ApiGatewayV2::Api", "AWS::ApiGatewayV2::Integration", "AWS::ApiGatewayV2::Route",
	"AWS::IAM::Policy", "AWS::IAM::Role", "AWS::Lambda::Function", "AWS::Lambda::Permission", "AWS::Lambda::Version",
	"AWS::Logs::MetricFilter", "AWS::Scheduler::Schedule"}

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
	for _, variant := range reviewed {
		tm := payhook(t, variant.settings)
		for id, path := range tm.names {
			if kind := tm.Resources[path].Type; !slices.Contains(movable, kind) {
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
