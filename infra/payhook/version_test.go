package payhook

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// versions returns the logical name of each function's version by the function.
// A version with another logical name is another version.
func (tm *template) versions(t *testing.T) map[string]string {
	t.Helper()
	names := map[string]string{}
	for id, path := range tm.names {
		if function, ok := strings.CutSuffix(path, "/Function/CurrentVersion"); ok {
			names[function] = id
		}
	}
	if len(names) != len(functions) {
		t.Fatalf("versions of %q", slices.Sorted(maps.Keys(names)))
	}
	return names
}

// A change that is not in the version's hash would only be deployed to $LATEST.
func TestEveryChangeOfAFunctionPublishesAVersion(t *testing.T) {
	before := payhook(t, nil).versions(t)
	all := []string{"Redrive", "Token", "Webhook"}
	for setting, c := range map[string]struct {
		value   any
		changes []string
	}{
		"webhookTimeout":     {"20s", []string{"Webhook"}},
		"successStatus":      {202, []string{"Webhook"}},
		"keysAuth":           {"bearer", []string{"Redrive", "Webhook"}},
		"captureRejected":    {"1h", []string{"Redrive", "Webhook"}},
		"scopes":             {"payments.read", []string{"Token"}},
		"eventBusName":       {"payments", []string{"Redrive", "Webhook"}},
		"ledgerTable":        {"another", []string{"Redrive", "Webhook"}},
		"claimBucket":        {"another", []string{"Redrive", "Webhook"}},
		"parkingBucket":      {"another", []string{"Redrive", "Webhook"}},
		"stackName":          {"PayhookStaging", all}, // the dimension of metrics
		"":                   {nil, all},              // other code
		"alarmEmail":         {"ops@payments.example", nil},
		"webhookConcurrency": {7, nil}, // of the function, not of a version
	} {
		program := map[bool]string{true: "another program"}[setting == ""]
		after := synthesized(t, program, map[string]any{setting: c.value})
		var changed []string
		for function, version := range after.versions(t) {
			if version != before[function] {
				changed = append(changed, function)
			}
		}
		slices.Sort(changed)
		if !slices.Equal(changed, c.changes) {
			t.Errorf("%q: versions of %q are new, want %q", setting, changed, c.changes)
		}
	}
}

// While an alias moves, the version in use and the next one both have their permissions: no deployment changes a
// policy, the next version waits for the new one, and the old one is deleted in the cleanup of the deployment.
func TestNoDeploymentChangesAPolicyInUse(t *testing.T) {
	webhook, both := []string{"Webhook/Role/DefaultPolicy"},
		[]string{"Redrive/Role/DefaultPolicy", "Webhook/Role/DefaultPolicy"}
	all := append([]string{"Redrive/ScheduleRole/DefaultPolicy", "Token/Role/DefaultPolicy",
		"Token/ScheduleRole/DefaultPolicy"}, both...)
	slices.Sort(all)
	for setting, c := range map[string]struct {
		value   any
		changes []string
	}{
		"keysAuth":        {"bearer", webhook},
		"captureRejected": {"1h", both},
		"evidence":        {"7y", webhook},
		"ledgerTable":     {"another", both},
		"claimBucket":     {"another", both},
		"parkingBucket":   {"another", both},
		"eventBusName":    {"another", all},
		"encryption":      {"cmk", nil},
	} {
		without, with := payhook(t, nil), payhook(t, map[string]any{setting: c.value})
		var changed []string
		for id, name := range without.names {
			policy := without.Resources[name]
			if policy.Type != "AWS::IAM::Policy" {
				continue
			}
			if with.names[id] == "" {
				changed = append(changed, name)
			} else if diff := cmp.Diff(policy.Properties, with.Resources[name].Properties); diff != "" {
				t.Errorf("%s changes %s (-without +with)\n%s", setting, name, diff)
			}
		}
		slices.Sort(changed)
		if !slices.Equal(changed, c.changes) {
			t.Errorf("%s replaces the policies %q, want %q", setting, changed, c.changes)
		}
		for id, name := range with.names {
			policy := with.Resources[name]
			if policy.Type != "AWS::IAM::Policy" {
				continue
			}
			// Two policies of one name in one role would be one, which the cleanup would delete.
			if policy.Properties["PolicyName"] != id || policy.DeletionPolicy != "" {
				t.Errorf("%s: %s is named %v, and its DeletionPolicy is %q", setting, id,
					policy.Properties["PolicyName"], policy.DeletionPolicy)
			}
			function, _, _ := strings.Cut(name, "/Role/")
			if f := with.Resources[function+"/Function"]; f != nil && !slices.Contains(f.DependsOn, id) {
				t.Errorf("%s: %s does not wait for %s", setting, function, name)
			}
		}
	}
}
