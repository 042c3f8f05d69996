package payhook

import (
	"bytes"
	"encoding/json"
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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
	file := func(name string) []byte { return readFile(t, filepath.Join("..", "pipeline", name)) }
	var policy struct {
		Statement []struct{ Action, Resource any }
	}
	if err := json.Unmarshal(file("deploy.json"), &policy); err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{}
	for _, s := range policy.Statement {
		for _, role := range list(s.Resource) {
			allowed[strings.TrimPrefix(role.(string), "arn:aws:iam::<Account>")] = s.Action == "sts:AssumeRole"
		}
	}
	if !maps.Equal(allowed, needed) {
		t.Errorf("allowed: %v, needed: %v", allowed, needed)
	}
	if !bytes.Contains(file("trust.json"), []byte(`:environment:production"`)) ||
		!bytes.Contains(file("deploy.yml"), []byte("\n    environment: production ")) {
		t.Error("the role does not trust the workflow")
	}
}

// What is deployed or released has passed the checks, and nothing of it comes from the cache of another workflow.
func TestDeploymentsAndReleasesNeedTheChecks(t *testing.T) {
	workflows := filepath.Join("..", "..", ".github", "workflows")
	ci := string(readFile(t, filepath.Join(workflows, "ci.yml")))
	for _, name := range []string{filepath.Join(workflows, "release.yml"),
		filepath.Join("..", "pipeline", "deploy.yml")} {
		text := string(readFile(t, name))
		if !strings.Contains(text, "\n    uses: ./.github/workflows/ci.yml ") ||
			strings.Count(text, "\n    runs-on: ") != strings.Count(text, "\n    needs: ci\n    runs-on: ")+
				strings.Count(text, "\n    needs: release\n    runs-on: ") { // which needs ci
			t.Errorf("%s does not call ci.yml first", name)
		}
		for _, cached := range []string{"actions/setup-go@", "actions/setup-node@"} {
			for _, step := range strings.Split(text, cached)[1:] {
				step, _, _ = strings.Cut(step, "\n      - ")
				if !strings.Contains(step, "cache: false") {
					t.Errorf("%s: %s uses a cache", name, cached)
				}
			}
		}
	}
	// A workflow that calls ci.yml has its name there: with the same group, GitHub would cancel it.
	if !strings.Contains(ci, "\n  workflow_call:\n") ||
		!strings.Contains(ci, "group: ci-${{ github.workflow }}-${{ github.ref }}\n") ||
		!strings.Contains(ci, "cache: ${{ github.workflow == 'ci' }} ") {
		t.Error("a workflow cannot call ci.yml")
	}
}
