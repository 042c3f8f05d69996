package payhook

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// functions are the names of the functions in the template by their folder.
var functions = map[string]string{"webhook": "Webhook/Function", "redrive": "Redrive/Function",
	"token": "Token/Function"}

// statements returns the statements of all policies of a role.
func (tm *template) statements(t *testing.T, role string) (all []map[string]any) {
	t.Helper()
	for name, policy := range tm.all(t, "AWS::IAM::Policy") {
		roles := list(policy.Properties["Roles"])
		if !slices.Contains(roles, any(role)) {
			continue
		}
		if len(roles) > 1 {
			t.Errorf("%s is the policy of more than one role", name)
		}
		for _, s := range list(at(policy.Properties, "PolicyDocument", "Statement")) {
			all = append(all, s.(map[string]any))
		}
	}
	return all
}

// grants lists, for each resource, the actions that a role can perform on it.
func (tm *template) grants(t *testing.T, role string) map[string][]string {
	t.Helper()
	properties := tm.get(t, role, "AWS::IAM::Role").Properties
	if properties["ManagedPolicyArns"] != nil || properties["Policies"] != nil {
		t.Errorf("%s has other policies: %v", role, properties)
	}
	grants := map[string][]string{}
	for _, s := range tm.statements(t, role) {
		if s["Effect"] != "Allow" || s["NotAction"] != nil || s["NotResource"] != nil {
			t.Errorf("%s: not a plain permission: %v", role, s)
		}
		for _, r := range list(s["Resource"]) {
			on := fmt.Sprint(r)
			for _, action := range list(s["Action"]) {
				grants[on] = append(grants[on], action.(string))
			}
			slices.Sort(grants[on])
		}
	}
	return grants
}

func list(value any) []any {
	if l, ok := value.([]any); ok {
		return l
	}
	return []any{value}
}

// The emulator must be able to deploy what is left, also of options that it does not have. The data is deleted with the
// stack; the reviewed templates show that all others retain it.
func TestALocalTemplateHasOnlyWhatTheEmulatorSupports(t *testing.T) {
	conf := map[string]any{"encryption": "cmk", "evidence": "7y"}
	tm := payhook(t, local, conf)
	for path, r := range tm.Resources {
		if slices.Contains(unsupported, r.Type) || r.Properties["Metrics"] != nil {
			t.Errorf("%s is a %s", path, r.Type)
		}
		if strings.HasPrefix(r.DeletionPolicy, "Retain") && r.Type != "AWS::Lambda::Version" ||
			at(r.Properties, "Replicas", 0, "DeletionProtectionEnabled") == true {
			t.Errorf("%s stays: %s", path, r.DeletionPolicy)
		}
	}
	for function, path := range functions {
		properties := tm.get(t, path, "AWS::Lambda::Function").Properties
		want := map[string]string{"amd64": "x86_64", "arm64": "arm64"}[thisMachine]
		if got := at(properties, "Architectures", 0); got != want {
			t.Errorf("%s: %v, want %s", function, got, want)
		}
	}
	if removed := len(payhook(t, conf).Resources) - len(tm.Resources); removed != 4 {
		t.Errorf("%d resources are removed", removed)
	}
}
