package payhook

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pipelineFile returns a file of the folder pipeline.
func pipelineFile(t *testing.T, name string) string {
	t.Helper()
	return string(readFile(t, filepath.Join("..", "pipeline", name)))
}

// allowed returns the actions and resources of a policy.
func allowed(t *testing.T, name string) (actions, resources []string) {
	t.Helper()
	var policy struct {
		Statement []struct{ Action, Resource any }
	}
	if err := json.Unmarshal([]byte(pipelineFile(t, name)), &policy); err != nil {
		t.Fatal(err)
	}
	for _, s := range policy.Statement {
		for _, action := range list(s.Action) {
			actions = append(actions, action.(string))
		}
		for _, resource := range list(s.Resource) {
			resources = append(resources, resource.(string))
		}
	}
	return actions, resources
}

// Whoever deploys assumes the roles that the app names, and needs nothing else: these roles have the
// other permissions (AWS, "Bootstrapping" in the CDK Developer Guide).
func TestTheDeployerMayAssumeTheRolesOfTheCDK(t *testing.T) {
	app, _ := newPayhook(t, "")
	if err := synthesize(app); err != nil {
		t.Fatal(err)
	}
	names := strings.NewReplacer("${AWS::AccountId}", "<Account>", "${AWS::Region}", "<Region>")
	needed := map[string]bool{}
	for _, name := range []string{"manifest.json", "Payhook.assets.json"} {
		text := string(readFile(t, filepath.Join(*app.Outdir(), name)))
		for _, role := range regexp.MustCompile(`:role/[^"]*`).FindAllString(text, -1) {
			needed[names.Replace(role)] = true
		}
	}
	// CloudFormation assumes it.
	delete(needed, ":role/cdk-hnb659fds-cfn-exec-role-<Account>-<Region>")
	actions, resources := allowed(t, "deploy.json")
	for i, role := range resources {
		resources[i] = strings.TrimPrefix(role, "arn:aws:iam::<Account>")
	}
	if want := slices.Sorted(maps.Keys(needed)); !slices.Equal(resources, want) ||
		!slices.Equal(actions, []string{"sts:AssumeRole"}) {
		t.Errorf("allowed: %q on %q, needed on %q", actions, resources, want)
	}
	if !strings.Contains(pipelineFile(t, "trust.json"), `:environment:production"`) ||
		!strings.Contains(pipelineFile(t, "deploy.yml"), "\n    environment: production ") {
		t.Error("the role does not trust the workflow")
	}
}

// Whoever can move a tag of an action would get what the workflow may do, in production the role.
func TestWorkflowsNameActionsByCommit(t *testing.T) {
	for _, name := range []string{"../pipeline/deploy.yml", "../../.github/workflows/ci.yml"} {
		for line := range strings.Lines(string(readFile(t, filepath.FromSlash(name)))) {
			_, action, is := strings.Cut(line, "uses: ")
			if is && !regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+\n$`).MatchString(action) {
				t.Errorf("%s: %s", name, action)
			}
		}
	}
}
