package local

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
)

// unproven are the permissions that no path needs on the emulator: Lambda writes a function's log
// with the permissions of its role (AWS, "Sending Lambda function logs to CloudWatch Logs"), and
// the emulator writes it itself.
var unproven = []string{"logs:CreateLogStream", "logs:PutLogEvents"}

// Every path of every function works with the permissions that the stack grants. Without one of
// them, a path fails. The roles of the schedules are not here: the scheduler of the emulator does
// not use them. The tests of infra/payhook compare them with the calls of the schedules.
func (f *fixture) testPermissions(t *testing.T) {
	for function, paths := range map[string][]path{
		"webhook": f.webhookPaths(), "redrive": f.redrivePaths(),
		"token": {{"a token is refreshed on request", f.refresh}},
	} {
		t.Run(function, func(t *testing.T) {
			for _, p := range paths {
				if denied, err := p.try(t.Context(), f.proxy); err != nil {
					t.Fatalf("%s: %v; denied: %q", p.name, err, denied)
				}
			}
			f.role(t, function).removeEach(t, paths, f.proxy)
		})
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
		err = errors.Join(err, errors.New("AWS denied a call"))
	}
	return denied, err
}

// role is the role of a function with its only policy.
type role struct {
	client       *iam.Client
	name, policy string
	granted      []statement // each with one action on one resource
}

// statement is one statement of a policy.
type statement struct {
	Effect           string
	Action, Resource any
	Condition        any `json:",omitempty"`
}

// role returns the role of a function.
func (f *fixture) role(t *testing.T, function string) *role {
	t.Helper()
	name := f.Functions[function]
	out, err := lambda.NewFromConfig(f.AWS).GetFunctionConfiguration(t.Context(),
		&lambda.GetFunctionConfigurationInput{FunctionName: &name})
	if err != nil {
		t.Fatal(err)
	}
	arn := aws.ToString(out.Role)
	r := &role{client: iam.NewFromConfig(f.AWS), name: arn[strings.LastIndex(arn, "/")+1:]}
	listed, err := r.client.ListRolePolicies(t.Context(), &iam.ListRolePoliciesInput{RoleName: &r.name})
	if err != nil || len(listed.PolicyNames) != 1 {
		t.Fatalf("%s has the policies %+v, %v, want one", r.name, listed, err)
	}
	r.policy = listed.PolicyNames[0]
	policy, err := r.client.GetRolePolicy(t.Context(),
		&iam.GetRolePolicyInput{RoleName: &r.name, PolicyName: &r.policy})
	if err != nil {
		t.Fatal(err)
	}
	// IAM returns policies encoded as in a URL (AWS, "GetRolePolicy" in the IAM API reference).
	text := *policy.PolicyDocument
	if strings.HasPrefix(text, "%") {
		text, err = url.PathUnescape(text)
	}
	var document struct{ Statement []statement }
	if err := errors.Join(err, json.Unmarshal([]byte(text), &document)); err != nil {
		t.Fatal(err)
	}
	for _, s := range document.Statement {
		if s.Effect != "Allow" {
			r.granted = append(r.granted, s)
			continue
		}
		for _, action := range list(s.Action) {
			for _, resource := range list(s.Resource) {
				r.granted = append(r.granted, statement{s.Effect, action, resource, s.Condition})
			}
		}
	}
	return r
}

func list(value any) []any {
	if l, ok := value.([]any); ok {
		return l
	}
	return []any{value}
}

// put replaces all permissions.
func (r *role) put(ctx context.Context, t *testing.T, statements []statement) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": statements})
	if err == nil {
		_, err = r.client.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: &r.name, PolicyName: &r.policy,
			PolicyDocument: aws.String(string(text))})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// removeEach fails the test unless a path fails without each of the permissions, because its
// action is denied.
func (r *role) removeEach(t *testing.T, paths []path, p *proxy) {
	t.Cleanup(func() { r.put(context.WithoutCancel(t.Context()), t, r.granted) })
	for i, s := range r.granted {
		action, _ := s.Action.(string)
		if s.Effect != "Allow" || slices.Contains(unproven, action) {
			continue
		}
		r.put(t.Context(), t, slices.Delete(slices.Clone(r.granted), i, i+1))
		needed := slices.IndexFunc(paths, func(w path) bool {
			denied, err := w.try(t.Context(), p)
			if err != nil && !slices.Contains(denied, action) {
				t.Errorf("without %s on %v, %q fails for another reason: %v; denied: %q", action, s.Resource, w.name,
					err, denied)
			}
			return err != nil
		})
		r.put(t.Context(), t, r.granted)
		if needed < 0 {
			t.Errorf("no path needs %s on %v", action, s.Resource)
			continue
		}
		t.Logf("without %s on %v, this fails: %s", action, s.Resource, paths[needed].name)
		paths[needed].recover(t, p)
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
