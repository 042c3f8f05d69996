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

// Whoever can move a tag of an action would get what the workflow may do, in production the role.
func TestWorkflowsNameActionsByCommit(t *testing.T) {
	workflows, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(workflows) < 3 {
		t.Fatal(workflows, err)
	}
	for _, name := range append(workflows, filepath.FromSlash("../pipeline/deploy.yml")) {
		for line := range strings.Lines(string(readFile(t, name))) {
			_, action, is := strings.Cut(line, "uses: ")
			if is && !regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+\n$`).MatchString(action) {
				t.Errorf("%s: %s", name, action)
			}
		}
	}
}
