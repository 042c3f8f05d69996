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
