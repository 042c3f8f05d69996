package payhook

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/settings"
)

// functions are the names of the functions in the template by their folder.
var functions = map[string]string{"webhook": "Webhook/Function", "redrive": "Redrive/Function",
	"token": "Token/Function"}

// statements returns the statements of all policies of a role.
func (tm *template) statements(t *testing.T, role string) (all []map[string]any) {
	t.Helper()
	for name, policy := range tm.all(t, "AWS::IAM::Policy") {
		roles := list(policy.Properties["Roles"])
		if !slices.ContainsFunc(roles, func(r any) bool { return tm.render(r) == role }) {
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
			on := tm.render(r)
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

// The reviewed templates show that all others retain it.
func TestALocalDeploymentDeletesItsData(t *testing.T) {
	for name, r := range payhook(t, local, map[string]any{"encryption": "cmk", "evidence": "7y"}).Resources {
		if strings.HasPrefix(r.DeletionPolicy, "Retain") && r.Type != "AWS::Lambda::Version" ||
			at(r.Properties, "Replicas", 0, "DeletionProtectionEnabled") == true {
			t.Errorf("%s stays: %s", name, r.DeletionPolicy)
		}
	}
}

func TestEnvironmentsContainExactlyTheSettings(t *testing.T) {
	conf := map[string]any{"keysAuth": "bearer", "timestampTolerance": "2m", "eventBusName": "payments",
		"scopes": "a b"}
	tm := payhook(t, conf)
	deployment, err := parse(t, required, conf)
	if err != nil {
		t.Fatal(err)
	}
	published := map[string]string{settings.LedgerTableEnv: "Ledger", settings.ClaimBucketEnv: "Claims",
		settings.ParkingBucketEnv: "Parking", settings.EventBusNameEnv: "payments"}
	for function, resources := range map[string][]map[string]string{
		"webhook": {published, {settings.KeysTableEnv: "Keys", settings.TokenSecretEnv: "Token/Secret.Id"}},
		"redrive": {published},
		"token": {{settings.TokenSecretEnv: "Token/Secret.Id",
			settings.CredentialsSecretEnv: "Token/Credentials.Id"}},
	} {
		got := map[string]string{}
		properties := tm.get(t, functions[function], "AWS::Lambda::Function").Properties
		for name, value := range at(properties, "Environment", "Variables").(map[string]any) {
			got[name] = tm.render(value)
		}
		// Go reads the bundle of CA certificates once.
		want := map[string]string{settings.StackEnv: "Payhook", "SSL_CERT_DIR": "/nonexistent"}
		for _, resources := range resources {
			maps.Copy(want, resources)
		}
		for _, s := range settings.ReadBy(function) {
			want[s.Env()] = deployment.Text(s)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", function, diff)
		}
		if _, err := settings.ParseFunction(function, func(name string) string { return got[name] }); err != nil {
			t.Errorf("%s would not start: %v", function, err)
		}
	}
}
