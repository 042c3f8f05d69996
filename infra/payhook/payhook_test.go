package payhook

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
)

// functions are the names of the functions in the template by their folder.
var functions = map[string]string{"webhook": "Webhook/Function", "redrive": "Redrive/Function",
	"token": "Token/Function"}

// grants lists, for each resource, the actions that a role can perform on it.
func (tm *template) grants(t *testing.T, role string) map[string][]string {
	t.Helper()
	properties := tm.get(t, role, "AWS::IAM::Role").Properties
	for _, other := range []string{"ManagedPolicyArns", "Policies"} {
		if properties[other] != nil {
			t.Errorf("%s has %s: %v", role, other, properties[other])
		}
	}
	grants := map[string][]string{}
	for name, policy := range tm.all(t, "AWS::IAM::Policy") {
		roles := policy.Properties["Roles"].([]any)
		if !slices.ContainsFunc(roles, func(r any) bool { return tm.render(r) == role }) {
			continue
		}
		if len(roles) > 1 {
			t.Errorf("%s is the policy of more than one role", name)
		}
		for _, statement := range at(policy.Properties, "PolicyDocument", "Statement").([]any) {
			s := statement.(map[string]any)
			if s["Effect"] != "Allow" || s["NotAction"] != nil || s["NotResource"] != nil {
				t.Errorf("%s: not a plain permission: %v", name, s)
			}
			for _, r := range list(s["Resource"]) {
				on := tm.render(r)
				for _, action := range list(s["Action"]) {
					grants[on] = append(grants[on], action.(string))
				}
			}
		}
	}
	for _, actions := range grants {
		slices.Sort(actions)
	}
	return grants
}

func list(value any) []any {
	if l, ok := value.([]any); ok {
		return l
	}
	return []any{value}
}

func TestOnlyALocalDeploymentDeletesItsData(t *testing.T) {
	for kind, conf := range map[string]map[string]any{"cloud": nil, "local": local} {
		tm := payhook(t, conf, map[string]any{"encryption": "cmk", "evidence": "7y"})
		isLocal := kind == "local"
		ledger := tm.get(t, "Ledger", "AWS::DynamoDB::GlobalTable")
		if got := at(ledger.Properties, "Replicas", 0, "DeletionProtectionEnabled"); got != !isLocal {
			t.Errorf("%s: the ledger is protected from deletion: %v", kind, got)
		}
		kept := tm.all(t, "AWS::S3::Bucket")
		maps.Copy(kept, tm.all(t, "AWS::S3::BucketPolicy"))
		maps.Copy(kept, tm.all(t, "AWS::Logs::LogGroup"))
		maps.Copy(kept, tm.all(t, "AWS::KMS::Key"))
		kept["Token/Credentials"] = tm.get(t, "Token/Credentials", "AWS::SecretsManager::Secret")
		kept["Ledger"] = ledger
		for name, r := range kept {
			deletion, replacement := "RetainExceptOnCreate", "Retain"
			switch {
			case isLocal:
				deletion, replacement = "Delete", "Delete"
			case name == "Ledger": // a rollback cannot delete it
				deletion = "Retain"
			}
			// Delete is the default.
			if got := r.DeletionPolicy; got != deletion && !(isLocal && got == "") {
				t.Errorf("%s: %s: on deletion %s, want %s", kind, name, got, deletion)
			}
			if got := r.UpdateReplacePolicy; got != replacement && !(isLocal && got == "") {
				t.Errorf("%s: %s: on replacement %s, want %s", kind, name, got, replacement)
			}
		}
	}
}

func TestOnlyTheWebhookFunctionHasAPublicURL(t *testing.T) {
	tm := payhook(t, nil)
	urls := tm.all(t, "AWS::Lambda::Url")
	if len(urls) != 1 {
		t.Errorf("%d URLs", len(urls))
	}
	for name, url := range urls {
		if url.Properties["AuthType"] != "NONE" ||
			tm.render(url.Properties["TargetFunctionArn"]) != "Webhook/Function.Arn" ||
			url.Properties["Qualifier"] != aliasName {
			t.Errorf("%s: %v", name, url.Properties)
		}
	}
	// AWS requires both actions, the second one only through the URL.
	actions := map[any]any{}
	for name, p := range tm.all(t, "AWS::Lambda::Permission") {
		if tm.render(p.Properties["FunctionName"]) != "Webhook/Alias" {
			t.Errorf("%s opens %v", name, p.Properties["FunctionName"])
		}
		if p.Properties["FunctionUrlAuthType"] != "NONE" && p.Properties["InvokedViaFunctionUrl"] != true {
			t.Errorf("%s opens more than the URL", name)
		}
		actions[p.Properties["Action"]] = p.Properties["Principal"]
	}
	if diff := cmp.Diff(map[any]any{"lambda:InvokeFunctionUrl": "*", "lambda:InvokeFunction": "*"},
		actions); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestEnvironmentsContainExactlyTheSettings(t *testing.T) {
	conf := map[string]any{"keysAuth": "bearer", "timestampTolerance": "2m", "eventBusName": "payments",
		"scopes": "a b"}
	tm := payhook(t, conf)
	environment := func(function string) map[string]string {
		values := map[string]string{}
		for name, value := range at(tm.get(t, functions[function], "AWS::Lambda::Function").Properties, "Environment",
			"Variables").(map[string]any) {
			values[name] = tm.render(value)
		}
		return values
	}
	deployment, err := parse(t, required, conf)
	if err != nil {
		t.Fatal(err)
	}
	for function, want := range map[string]struct {
		settings  []*settings.Setting
		resources map[string]string
		parse     func(func(string) string) error
	}{
		"webhook": {
			settings.ReadBy("webhook"),
			map[string]string{
				names.LedgerTableEnv: "Ledger", names.KeysTableEnv: "Keys", names.TokenSecretEnv: "Token/Secret.Id",
				names.ClaimBucketEnv: "Claims", names.ParkingBucketEnv: "Parking",
				names.EventBusNameEnv: "payments",
			},
			func(getenv func(string) string) error { _, err := settings.ParseWebhook(getenv); return err },
		},
		"redrive": {
			settings.ReadBy("redrive"),
			map[string]string{
				names.LedgerTableEnv: "Ledger", names.ClaimBucketEnv: "Claims", names.ParkingBucketEnv: "Parking",
				names.EventBusNameEnv: "payments",
			},
			func(getenv func(string) string) error { _, err := settings.ParseRedrive(getenv); return err },
		},
		"token": {
			settings.ReadBy("token"),
			map[string]string{names.TokenSecretEnv: "Token/Secret.Id",
				names.CredentialsSecretEnv: "Token/Credentials.Id"},
			func(getenv func(string) string) error { _, err := settings.ParseToken(getenv); return err },
		},
	} {
		got := environment(function)
		all := maps.Clone(want.resources)
		all[names.StackEnv] = "Payhook"
		all["SSL_CERT_DIR"] = "/nonexistent" // Go reads the bundle of CA certificates once
		for _, s := range want.settings {
			all[s.Env()] = deployment.Text(s)
		}
		if diff := cmp.Diff(all, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", function, diff)
		}
		if err := want.parse(func(name string) string { return got[name] }); err != nil {
			t.Errorf("%s would not start: %v", function, err)
		}
	}
	// The certificates of a user's machine are searched as usual.
	variables := payhook(t, local).get(t, functions["token"], "AWS::Lambda::Function").Properties
	if got := at(variables, "Environment", "Variables", "SSL_CERT_DIR"); got != nil {
		t.Errorf("local: SSL_CERT_DIR is %v", got)
	}
}

func TestFunctionsHaveTheArchitectureOfTheTarget(t *testing.T) {
	for _, c := range []struct {
		settings map[string]any
		want     string
	}{{nil, "arm64"}, {local, map[string]string{"amd64": "x86_64", "arm64": "arm64"}[thisMachine]}} {
		for name, f := range payhook(t, c.settings).all(t, "AWS::Lambda::Function") {
			if got := at(f.Properties, "Architectures", 0); got != c.want {
				t.Errorf("%s: %v, want %s", name, got, c.want)
			}
			if f.Properties["Runtime"] != "provided.al2023" || f.Properties["PackageType"] != nil {
				t.Errorf("%s: runs on %v", name, f.Properties["Runtime"])
			}
		}
	}
}
