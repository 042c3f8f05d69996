package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"payhook.example/infra/local/scenario"
	"payhook.example/shared/settings"
	"payhook.example/shared/token"
)

// unproven are the permissions that no path needs on the emulator, with the
// reason why AWS needs them.
var unproven = map[string]string{
	// Lambda writes a function's log with the permissions of its role (AWS, "Sending
	// Lambda function logs to CloudWatch Logs"); the emulator writes it itself.
	"logs:CreateLogStream": "the emulator writes logs without the function's role",
	"logs:PutLogEvents":    "the emulator writes logs without the function's role",
}

// The roles of the schedules are not here: the scheduler of the emulator does not use them. The
// tests of infra/payhook compare them with the calls of the schedules.

// Every path of every function works with the permissions that the stack grants. Without one of
// them, a path fails.
func TestEveryPermissionIsNeededAndNoneIsMissing(t *testing.T) {
	f := deployed(t).deploySecond(t, "PayhookIam", map[string]string{
		settings.KeysAuth.Key: "bearer", settings.RedriveAttempts.Key: "2", settings.CaptureRejected.Key: "1h",
	})
	// The webhook function needs a token to look up its first key.
	if run, err := f.RunToken(t.Context(), scenario.RefreshNow); err != nil || run.Outcome != token.Refreshed {
		t.Fatalf("the token function says %+v, %v", run, err)
	}
	for function, paths := range map[string][]path{
		"webhook": f.webhookPaths(), "redrive": f.redrivePaths(), "token": f.tokenPaths(),
	} {
		p := f.role(t, function)
		p.paths = paths
		t.Run(function, func(t *testing.T) { p.check(t, f) })
	}
}

// deploySecond deploys another stack of Payhook into the emulator, with another simulated payment
// service and bus.
func (f *fixture) deploySecond(t *testing.T, name string, values map[string]string) *fixture {
	t.Helper()
	m := *f.machine
	m.started, m.opts.baseURL, m.opts.authURL = nil, "", ""
	m.opts.settings = maps.Clone(f.Settings)
	maps.Copy(m.opts.settings, values)
	m.opts.settings[settings.StackName.Key], m.opts.settings[settings.EventBusName.Key] = name, strings.ToLower(name)
	if err := m.startService(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.service.Close() })
	s, err := m.newStack(m.opts.settings)
	if err != nil {
		t.Fatal(err)
	}
	second := &fixture{stack: s, machine: &m, service: m.service, proxy: f.proxy, arrivals: f.arrivals}
	second.synthesizeAndDeploy(t.Context(), t)
	return second
}

// check fails the test if a path of p fails, or if none fails without one of the
// permissions.
func (p *principal) check(t *testing.T, f *fixture) {
	t.Helper()
	for _, way := range p.paths {
		if denied, err := way.try(t.Context(), f.proxy); err != nil {
			t.Errorf("%s: %v; denied: %q", way.name, err, denied)
		}
	}
	if t.Failed() {
		return
	}
	t.Cleanup(func() {
		if err := p.put(context.WithoutCancel(t.Context()), p.granted); err != nil {
			t.Error(err)
		}
		f.proxy.forget()
	})
	for i, s := range p.granted {
		action, _ := s.Action.(string)
		if s.Effect != "Allow" || unproven[action] != "" {
			continue
		}
		if err := p.put(t.Context(), slices.Delete(slices.Clone(p.granted), i, i+1)); err != nil {
			t.Fatal(err)
		}
		needed := slices.IndexFunc(p.paths, func(way path) bool {
			denied, err := way.try(t.Context(), f.proxy)
			if err != nil && !slices.Contains(denied, action) {
				t.Errorf("without %s on %v, %q fails for another reason: %v; denied: %q", action, s.Resource, way.name,
					err, denied)
			}
			return err != nil
		})
		if err := p.put(t.Context(), p.granted); err != nil {
			t.Fatal(err)
		}
		if needed < 0 {
			t.Errorf("no path needs %s on %v", action, s.Resource)
			continue
		}
		t.Logf("without %s on %v, this fails: %s", action, s.Resource, p.paths[needed].name)
		p.paths[needed].recover(t, f.proxy)
	}
}

// recover waits until a path that failed works again: a process of a function caches an error
// for a moment.
func (w path) recover(t *testing.T, p *proxy) {
	t.Helper()
	for deadline := time.Now().Add(waitTimeout); ; time.Sleep(100 * time.Millisecond) {
		denied, err := w.try(t.Context(), p)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q does not work again: %v; denied: %q", w.name, err, denied)
		}
	}
}

// path is one path of a program. It fails if the program does not have the expected
// result, or if a call of AWS is denied.
type path struct {
	name string
	run  func(context.Context) error
}

// try runs a path. It returns the actions that were denied meanwhile; the error
// is not nil if there are any.
func (w path) try(ctx context.Context, p *proxy) (denied []string, err error) {
	p.forget()
	err = w.run(ctx)
	p.awaitIdle()
	if denied = p.denied(); len(denied) > 0 {
		err = errors.Join(err, errDenied)
	}
	return denied, err
}

var errDenied = errors.New("AWS denied a call")

// principal is a role of a function, with its permissions and the paths that need them.
type principal struct {
	name    string
	paths   []path
	granted []statement // each with one action on one resource
	// put replaces all permissions.
	put func(context.Context, []statement) error
}

// statement is one statement of a policy.
type statement struct {
	Sid       string `json:",omitempty"`
	Effect    string
	Action    any
	Resource  any
	Condition any `json:",omitempty"`
}

// split returns statements that say the same with one action and one resource
// each. Those that deny stay as they are.
func split(statements []statement) (single []statement) {
	for _, s := range statements {
		if s.Effect != "Allow" {
			single = append(single, s)
			continue
		}
		for _, action := range list(s.Action) {
			for _, resource := range list(s.Resource) {
				single = append(single, statement{Effect: s.Effect, Action: action, Resource: resource,
					Condition: s.Condition})
			}
		}
	}
	return single
}

func list(value any) []any {
	if l, ok := value.([]any); ok {
		return l
	}
	return []any{value}
}

// parseStatements reads the statements of a policy.
func parseStatements(policy string) ([]statement, error) {
	// IAM returns policies encoded as in a URL (AWS, "GetRolePolicy" in the IAM API
	// reference).
	if strings.HasPrefix(policy, "%") {
		decoded, err := url.PathUnescape(policy)
		if err != nil {
			return nil, err
		}
		policy = decoded
	}
	var document struct{ Statement []statement }
	err := json.Unmarshal([]byte(policy), &document)
	return document.Statement, err
}

// role returns a function's role.
func (f *fixture) role(t *testing.T, function string) *principal {
	t.Helper()
	client := iam.NewFromConfig(f.AWS)
	role, err := f.roleName(t.Context(), function)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := client.ListRolePolicies(t.Context(), &iam.ListRolePoliciesInput{RoleName: &role})
	if err != nil {
		t.Fatal(err)
	}
	if len(listed.PolicyNames) != 1 {
		t.Fatalf("%s has the policies %q, want one", role, listed.PolicyNames)
	}
	name := listed.PolicyNames[0]
	policy, err := client.GetRolePolicy(t.Context(), &iam.GetRolePolicyInput{RoleName: &role, PolicyName: &name})
	if err != nil {
		t.Fatal(err)
	}
	granted, err := parseStatements(*policy.PolicyDocument)
	if err != nil {
		t.Fatal(err)
	}
	return &principal{name: function, granted: split(granted),
		put: func(ctx context.Context, statements []statement) error {
			text, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": statements})
			if err != nil {
				return err
			}
			_, err = client.PutRolePolicy(ctx,
				&iam.PutRolePolicyInput{RoleName: &role, PolicyName: &name, PolicyDocument: aws.String(string(text))})
			return err
		}}
}

// roleName returns the name of a function's role.
func (f *fixture) roleName(ctx context.Context, function string) (string, error) {
	name := f.Functions[function]
	out, err := lambda.NewFromConfig(f.AWS).GetFunctionConfiguration(ctx,
		&lambda.GetFunctionConfigurationInput{FunctionName: &name})
	if err != nil {
		return "", err
	}
	role := aws.ToString(out.Role)
	return role[strings.LastIndex(role, "/")+1:], nil
}

// wrong returns the error of a path that did not have the expected result.
func wrong(what string, got any) error { return fmt.Errorf("%s: %+v", what, got) }
