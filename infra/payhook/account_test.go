package payhook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEveryRoleHasThePermissionsBoundary(t *testing.T) {
	// The CDK reads its own context keys.
	const boundary = "@aws-cdk/core:permissionsBoundary"
	const arn = "arn:aws:iam::123456789012:policy/teams/payments-boundary"
	for name, c := range map[string]struct {
		settings map[string]any
		want     string
	}{
		"a name": {
			map[string]any{boundary: map[string]any{"name": "payments-boundary"}},
			"policy/payments-boundary"},
		"with all that is added": {map[string]any{boundary: map[string]any{"arn": arn}, "tracing": true,
			"keysAuth": "bearer"},
			arn},
	} {
		tm := payhook(t, c.settings)
		for role, r := range tm.all(t, "AWS::IAM::Role") {
			if got := tm.render(r.Properties["PermissionsBoundary"]); !strings.HasSuffix(got, c.want) {
				t.Errorf("%s: %s has the boundary %s", name, role, got)
			}
		}
	}
	for role, r := range payhook(t, nil).all(t, "AWS::IAM::Role") {
		if r.Properties["PermissionsBoundary"] != nil {
			t.Errorf("%s has a boundary, though none was asked for", role)
		}
	}
}

func TestBootstrapQualifierIsUsed(t *testing.T) {
	for name, settings := range map[string]map[string]any{
		"the CDK's own context": {"@aws-cdk/core:bootstrapQualifier": "payments"},
	} {
		app, stack := newPayhook(t, settings)
		if err := synthesize(app); err != nil {
			t.Fatal(err)
		}
		written := ""
		for _, file := range []string{"manifest.json", *stack.StackName() + ".assets.json", *stack.TemplateFile()} {
			text, err := os.ReadFile(filepath.Join(*app.Outdir(), file))
			if err != nil {
				t.Fatal(err)
			}
			written += string(text)
		}
		for _, want := range []string{
			"cdk-payments-assets-", "cdk-payments-deploy-role-", "cdk-payments-cfn-exec-role-",
			"cdk-payments-file-publishing-role-", "/cdk-bootstrap/payments/version",
		} {
			if !strings.Contains(written, want) {
				t.Errorf("%s: no %s", name, want)
			}
		}
		if strings.Contains(written, "hnb659fds") {
			t.Errorf("%s: the default bootstrap stack is used, too", name)
		}
	}
}

func TestTracingIsEnabledBySetting(t *testing.T) {
	for _, tracing := range []bool{true, false} {
		tm := payhook(t, map[string]any{"tracing": tracing})
		for name, function := range functions {
			part, _, _ := strings.Cut(function, "/")
			mode := at(tm.get(t, function, "AWS::Lambda::Function").Properties, "TracingConfig", "Mode")
			if (mode == "Active") != tracing {
				t.Errorf("tracing=%t: %s: %v", tracing, name, mode)
			}
			want := map[bool][]string{true: {"xray:PutTelemetryRecords", "xray:PutTraceSegments"}}[tracing]
			if diff := cmp.Diff(want, tm.grants(t, part+"/Role")["*"]); diff != "" {
				t.Errorf("tracing=%t: %s may do on every resource (-want +got)\n%s", tracing, name, diff)
			}
		}
	}
}
