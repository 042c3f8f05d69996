package payhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/build"
)

func goCommand(t *testing.T, folder string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = folder, append(append(os.Environ(), "GOTOOLCHAIN=auto", "GOWORK=off"), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", args, err, out)
	}
	return string(out)
}

// An app of somebody else has the construct twice in one stack. Its template and the reviewed ones pass cfn-lint. make
// test-unit runs this test.
func TestAnotherModuleUsesTheConstructAndTemplatesPassCfnLint(t *testing.T) {
	if os.Getenv("PAYHOOK_LINT") == "" {
		t.Skip("PAYHOOK_LINT is not set; make test-unit sets it")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	// The synthesis builds functions that do nothing. Those of Payhook take minutes.
	folder, out, replaced := t.TempDir(), t.TempDir(), module(t, "func main() {}")
	for _, name := range []string{"infra", "shared", "go.sum"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(replaced, name)); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(replaced, "go.mod"), string(readFile(t, filepath.Join(root, "go.mod"))))
	// A second stack has the same with a key.
	writeFile(t, filepath.Join(folder, "main.go"), strings.NewReplacer(
		"package payhook_test", "package main", "func ExampleNew", "func main",
		"/awsiam\"", "/awsiam\"\n\"github.com/aws/aws-cdk-go/awscdk/v2/awskms\"",
		`stack := awscdk.NewStack(app, jsii.String("Bank"), nil)`, `for _, id := range []string{"Bank", "Keyed"} {
			stack, key := awscdk.NewStack(app, &id, nil), awskms.IKey(nil)
			if id == "Keyed" { key = awskms.NewKey(stack, jsii.String("Key"), nil) }`,
		`TokenManagerID: "manager-1",`, `TokenManagerID: "manager-1", EncryptionKey: key,`,
		"app.Synth", "}\napp.Synth").Replace(string(readFile(t, "example_test.go"))))
	for _, args := range []string{"mod init bank.example/app", "mod edit -require=payhook.example@v0.0.0",
		"mod edit -replace=payhook.example=" + root, "mod tidy", "mod edit -replace=payhook.example=" + replaced,
		"run .", "mod edit -replace=payhook.example=" + root} {
		goCommand(t, folder, []string{"CDK_OUTDIR=" + out, "CDK_VALIDATION=false",
			`CDK_CONTEXT_JSON={"aws:cdk:enable-path-metadata":true}`}, strings.Fields(args)...)
	}
	tm := readTemplate(t, filepath.Join(out, "Bank.template.json"))
	with := readTemplate(t, filepath.Join(out, "Keyed.template.json"))

	// The names that Payhook chooses are unique.
	names := map[string]string{}
	for path, r := range tm.Resources {
		for property, value := range r.Properties {
			text, ok := value.(string)
			if !ok || !strings.HasSuffix(property, "Name") || property == "MetricName" ||
				r.Type == "AWS::Lambda::Alias" || strings.Contains(text, "/") { // a reference
				continue
			}
			if other, ok := names[r.Type+" "+text]; ok {
				t.Errorf("%s and %s are both named %s", path, other, text)
			}
			names[r.Type+" "+text] = path
		}
	}
	// The functions of both have one code each, and each its own stack. The bus of the app is as the app made it.
	// The other is protected.
	got, code := map[string]any{}, map[any]bool{}
	for path, f := range tm.all(t, "AWS::Lambda::Function") {
		code[at(f.Properties, "Code", "S3Key")] = true
		stack := fmt.Sprint(at(f.Properties, "Environment", "Variables", "PAYHOOK_STACK"))
		if !strings.HasPrefix(path, strings.ReplaceAll(stack, "_", "/")) {
			t.Errorf("%s is a function of %s", path, stack)
		}
	}
	for path, bus := range tm.all(t, "AWS::Events::EventBus") {
		got[path] = bus.Properties["Name"]
	}
	for path := range tm.all(t, "AWS::Events::EventBusPolicy") {
		got[path] = "protected"
	}
	for _, id := range []string{"Payments", "Reports"} {
		got[id] = fmt.Sprint(tm.Outputs[id+"EventBusName"].Value, " ", tm.Outputs[id+"FullName"].Value)
	}
	if diff := cmp.Diff(map[string]any{"Bank/Events": "bank-events", "Bank/Reports/Bus": "Bank_Reports",
		"Bank/Reports/BusPolicy": "protected", "Payments": "Bank/Events Bank_Payments",
		"Reports": "Bank/Reports/Bus Bank_Reports"}, got); diff != "" || len(code) != 3 {
		t.Errorf("%d assets of functions (-want +got)\n%s", len(code), diff)
	}

	// Only what is below the construct has its tags, key and explanations.
	for path, r := range tm.Resources {
		if !strings.HasPrefix(path, "Bank/Payments/") && !strings.HasPrefix(path, "Bank/Reports/") &&
			(r.Metadata["checkov"] != nil || r.Properties["KmsMasterKeyId"] != nil) {
			t.Errorf("%s is changed: %v", path, r)
		}
	}

	// Each grant is what is needed, and no more.
	want := map[string][]string{
		"Bank/Payments/Token/Secret.Id":          {"secretsmanager:GetSecretValue"},
		"Bank/Payments/LargeEvents.Arn/events/*": {"s3:GetObject"},
	}
	if diff := cmp.Diff(want, tm.grants(t, "Bank/Reader")); diff != "" {
		t.Errorf("the grants (-want +got)\n%s", diff)
	}
	sids := map[any]bool{}
	for _, s := range at(with.get(t, "Keyed/Key", "AWS::KMS::Key").Properties, "KeyPolicy", "Statement").([]any) {
		if sid := at(s, "Sid"); sid != nil && sids[sid] {
			t.Errorf("two statements of the key are %v", sid)
		}
		sids[at(s, "Sid")] = true
	}
	if len(sids) != 9 { // four or five for each, with the bus of Reports, and that of the account
		t.Errorf("statements of the key: %v", sids)
	}
	uses := []string{reads("s3", "aws:s3:arn", "Keyed/Payments/LargeEvents.Arn Keyed/Payments/LargeEvents.Arn/*"),
		reads("secretsmanager", "SecretARN", "Keyed/Payments/Token/Secret.Id")}
	if diff := cmp.Diff(uses, with.uses(t, "Keyed/Reader", "Keyed/Key.Arn")); diff != "" {
		t.Errorf("the grants on the key (-want +got)\n%s", diff)
	}
	for _, path := range []string{"/Events", "/Released"} {
		if diff := cmp.Diff(tm.Resources["Bank"+path].Properties, with.Resources["Keyed"+path].Properties); diff != "" {
			t.Errorf("%s is encrypted, too\n%s", path, diff)
		}
	}

	// A vendor folder has the functions, so they can be built offline: it has what is imported with any build tag
	// (https://go.dev/ref/mod#go-mod-vendor).
	vendored := goCommand(t, folder, []string{"GOPROXY=off"}, "list", "-e", "-deps", "-tags=tools", ".")
	for _, name := range build.Names {
		if !strings.Contains(vendored, "\npayhook.example/functions/"+name+"\n") {
			t.Errorf("%s is not in the vendor folder", name)
		}
		goCommand(t, folder, []string{"GOPROXY=off"}, "list", "-deps", "payhook.example/functions/"+name)
	}

	// The module that a user imports carries no test tools.
	graph := goCommand(t, folder, []string{"GOFLAGS=-mod=mod"}, "mod", "graph")
	for _, tool := range []string{"honnef.co/go/tools", "wycheproof"} {
		if strings.Contains(graph, tool) {
			t.Errorf("the module graph of a user has %s", tool)
		}
	}

	lint(t, tm)
}

// The context of an app without feature flags gives the same template.
func TestFeatureFlagsOfTheAppDoNotMatter(t *testing.T) {
	sorted := func(tm *template) string {
		var resources map[string]any
		text, err := json.Marshal(tm.Resources)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &resources); err != nil {
			t.Fatal(err)
		}
		// The names of policies depend on the order of their statements.
		digests := regexp.MustCompile(`(RoleDefaultPolicy[0-9A-F]{8})[0-9A-F]{8}`)
		return digests.ReplaceAllString(fmt.Sprint(order(resources)), "$1")
	}
	withFlags, without := payhook(t), map[string]any{}
	for flag := range flags(t) {
		without[flag] = nil
	}
	if diff := cmp.Diff(sorted(withFlags), sorted(payhook(t, without))); diff != "" {
		t.Errorf("(-with flags +without)\n%s", diff)
	}
}

// order sorts every list: the CDK sorts actions and resources of policies only with a flag of the app.
func order(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range maps.Keys(v) {
			v[key] = order(v[key])
		}
	case []any:
		slices.SortFunc(v, func(a, b any) int { return strings.Compare(fmt.Sprint(order(a)), fmt.Sprint(order(b))) })
	}
	return value
}
