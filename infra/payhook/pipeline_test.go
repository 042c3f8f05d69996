package payhook

import (
	"encoding/json"
	"maps"
	"os"
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

// unneeded are the permissions that CloudFormation needs for properties that no template has.
var unneeded = strings.Fields(`
	acm-pca:* application-autoscaling:* ec2:* elasticfilesystem:* kinesis:* s3files:* s3tables:* *:*Kinesis*
	codedeploy:*Revision codedeploy:*OnPremises* cloudwatch:PutMetricData dynamodb:*Item dynamodb:Query dynamodb:Scan
	dynamodb:*ReplicaAutoScaling iam:*Group* iam:*User* lambda:*CodeSigning* lambda:*CapacityProvider
	lambda:*ProvisionedConcurrency* lambda:*Scaling* lambda:*LayerVersion lambda:AssociateRuntimeAlias
	lambda:Put*Recursion* lambda:Put*RuntimeManagement* logs:*BearerToken* logs:*DataProtection* logs:*IndexPolic*
	logs:*DeletionProtection s3:*Abac s3:*Accelerate* s3:*Analytics* s3:*BucketNotification s3:*CORS s3:*Cors
	s3:*Inventory* s3:*Metadata* s3:*Metrics* s3:*ObjectAcl s3:*Replication* s3:*Tiering* s3:*Website s3:DeleteObject
	s3:REST* s3:getObject secretsmanager:*Region* secretsmanager:GetSecretValue sns:*DataProtection*`)

// The policy of CloudFormation has the actions that AWS's schemas name for the resources of all
// templates, and no others. make lint runs this test: the schemas are those of cfn-lint.
func TestCloudFormationHasThePermissionsThatItNeeds(t *testing.T) {
	if os.Getenv("PAYHOOK_LINT") == "" {
		t.Skip("PAYHOOK_LINT is not set; make lint sets it")
	}
	found, err := filepath.Glob("../../.local/lint/lib/python3*/site-packages/cfnlint/data/schemas")
	if err != nil || len(found) != 1 {
		t.Fatalf("the schemas of cfn-lint: %q, %v", found, err)
	}
	read := func(value any, path ...string) {
		t.Helper()
		if err := json.Unmarshal(readFile(t, filepath.Join(append(found, path...)...)), value); err != nil {
			t.Fatal(err)
		}
	}
	var files map[string]string // by the types
	read(&files, "providers", "us-east-1.json")
	// API Gateway creates the delivery of the access log for whoever creates the stage (AWS,
	// https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-logging.html).
	needed, skipped := map[string]string{}, map[string]bool{}
	for _, action := range []string{"GetLogDelivery", "UpdateLogDelivery", "DeleteLogDelivery", "ListLogDeliveries"} {
		needed["logs:"+action] = "the access log"
	}
	for _, settings := range linted {
		for _, r := range payhook(t, settings).Resources {
			var schema struct {
				Handlers map[string]struct{ Permissions []string }
			}
			read(&schema, "resources", files[r.Type]+".json")
			if len(schema.Handlers) == 0 {
				t.Fatalf("the schema of %s names no permissions", r.Type)
			}
			// A deployment lists nothing.
			delete(schema.Handlers, "list")
			for _, handler := range schema.Handlers {
				for _, action := range handler.Permissions {
					if pattern := matching(unneeded, action); pattern != "" {
						skipped[pattern] = true
					} else {
						needed[action] = r.Type
					}
				}
			}
		}
	}
	actions, _ := allowed(t, "execution.json")
	used := map[string]bool{}
	for action, kind := range needed {
		if pattern := matching(actions, action); pattern != "" {
			used[pattern] = true
		} else {
			t.Errorf("%s needs %s", kind, action)
		}
	}
	for _, action := range actions {
		if !used[action] {
			t.Errorf("nothing needs %s", action)
		}
	}
	for _, pattern := range unneeded {
		if !skipped[pattern] {
			t.Errorf("no schema has %s", pattern)
		}
	}
	// The quota of a managed policy.
	if n := len(strings.Join(strings.Fields(pipelineFile(t, "execution.json")), "")); n > 6144 {
		t.Errorf("%d characters, want at most 6,144", n)
	}
}

// matching returns the first of the patterns that an action matches.
func matching(patterns []string, action string) string {
	for _, pattern := range patterns {
		if ok, _ := filepath.Match(pattern, action); ok {
			return pattern
		}
	}
	return ""
}
