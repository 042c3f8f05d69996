package payhook

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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
	variants := []map[string]any{{"domainName": "hook.bank.example", "hostedZoneId": "Z0123456789ABC"}}
	for _, variant := range reviewed {
		variants = append(variants, variant.settings)
	}
	for _, conf := range variants {
		tm := payhook(t, map[string]any{"stackName": "Bank"}, conf)
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
