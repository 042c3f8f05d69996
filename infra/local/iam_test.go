package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

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
	// PutRule and CreateQueue need them if they set tags (AWS, "PutRule" in the
	// EventBridge API Reference, "CreateQueue" in the SQS API Reference).
	"events:TagResource": "the emulator sets tags with the permission to create",
	"sqs:TagQueue":       "the emulator sets tags with the permission to create",
}

// The roles of the schedules are not here: the emulator's scheduler neither
// assumes them nor checks what they allow. The tests of infra compare them with what
// their schedules start and where these report failures.

// TestEveryPermissionIsNeededAndNoneIsMissing runs every path of every function,
// of payhook, of a consumer and of a client, each with the
// permissions that the stack grants or the documents name. Then it takes away
// one permission at a time, and a path must fail for it.
func TestEveryPermissionIsNeededAndNoneIsMissing(t *testing.T) {
	f := deployed(t).deploySecond(t, "PayhookIam", map[string]string{
		settings.KeysAuth.Key: "bearer", settings.RedriveAttempts.Key: "2", settings.CaptureRefused.Key: "1h",
	})
	// The webhook function needs a token to look up its first key.
	f.refresh(t, refreshNow).want(t, token.Refreshed)
	for _, p := range f.principals(t) {
		t.Run(p.name, func(t *testing.T) {
			p.check(t, f)
		})
	}
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
		if p.remembers {
			p.paths[needed].recover(t, f.proxy)
		}
	}
}

// recover waits until a path that failed works again.
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

// principal is a role or a user, with what it is allowed to do and the paths that
// need that.
type principal struct {
	name    string
	paths   []path
	granted []statement // each with one action on one resource
	// remembers says that it is a function, whose process remembers for a moment what it was
	// denied. The other programs are started anew for each path.
	remembers bool
	// put replaces all that it is allowed to do.
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

// policyOf returns a policy with these statements.
func policyOf(statements ...statement) *string {
	text, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": statements})
	if err != nil {
		panic(err) // they are texts
	}
	return aws.String(string(text))
}

// statementsOf reads the statements of a policy.
func statementsOf(policy string) ([]statement, error) {
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

// principals returns the roles of all functions, and a user for each policy that
// is documented for programs outside the stack.
func (f *fixture) principals(t *testing.T) []*principal {
	t.Helper()
	operate := f.user(t, "operate", "infra/cmd/payhook/operate/policy.json")
	listen := f.user(t, "listen", "infra/cmd/payhook/listen/policy.json")
	logs := f.user(t, "logs", "infra/cmd/payhook/logs/policy.json")
	status := f.user(t, "status", "infra/cmd/payhook/status/policy.json")
	consumer := f.user(t, "consumer", "events/consumer/policy.json")
	client := f.user(t, "client", "events/client/policy.json")
	all := []*principal{
		f.role(t, "webhook"), f.role(t, "redrive"), f.role(t, "token"),
		operate.principal, listen.principal, logs.principal, status.principal, consumer.principal, client.principal,
	}
	for i, paths := range [][]path{
		f.webhookPaths(), f.redrivePaths(), f.tokenPaths(),
		f.operatePaths(t, operate.credentials), f.listenPaths(t, listen.credentials),
		f.logsPaths(t, logs.credentials), f.statusPaths(t, status.credentials),
		f.consumerPaths(consumer.credentials), f.clientPaths(client.credentials),
	} {
		all[i].paths = paths
	}
	return all
}

// role returns a function's role.
func (f *fixture) role(t *testing.T, function string) *principal {
	t.Helper()
	client := iam.NewFromConfig(f.AWS)
	role, err := f.roleOf(t.Context(), function)
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
	granted, err := statementsOf(*policy.PolicyDocument)
	if err != nil {
		t.Fatal(err)
	}
	return &principal{name: function, granted: split(granted), remembers: true,
		put: func(ctx context.Context, statements []statement) error {
			_, err := client.PutRolePolicy(ctx,
				&iam.PutRolePolicyInput{RoleName: &role, PolicyName: &name, PolicyDocument: policyOf(statements...)})
			return err
		}}
}

// user is an IAM user.
type user struct {
	*principal
	credentials aws.CredentialsProvider
}

// user makes a user with a policy that is documented.
func (f *fixture) user(t *testing.T, name, file string) user {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(f.opts.top, file))
	if err != nil {
		t.Fatal(err)
	}
	values := maps.Clone(f.outputs)
	values["Region"], values["Account"], values["Stack"] = f.Region, account, f.Stack
	policy := string(text)
	for key, value := range values {
		policy = strings.ReplaceAll(policy, "<"+key+">", value)
	}
	if strings.Contains(policy, "<") {
		t.Fatalf("%s names what the stack does not have:\n%s", file, policy)
	}
	granted, err := statementsOf(policy)
	if err != nil {
		t.Fatal(err)
	}
	ctx, client := t.Context(), iam.NewFromConfig(f.AWS)
	id := name + "-" + uuid.New().String()
	if _, err := client.CreateUser(ctx, &iam.CreateUserInput{UserName: &id}); err != nil {
		t.Fatal(err)
	}
	made, err := client.CreateAccessKey(ctx, &iam.CreateAccessKeyInput{UserName: &id})
	if err != nil {
		t.Fatal(err)
	}
	p := &principal{name: name, granted: split(granted), put: func(ctx context.Context, statements []statement) error {
		if len(statements) == 0 { // no policy can be empty
			_, err := client.DeleteUserPolicy(ctx, &iam.DeleteUserPolicyInput{UserName: &id, PolicyName: &id})
			return err
		}
		_, err := client.PutUserPolicy(ctx,
			&iam.PutUserPolicyInput{UserName: &id, PolicyName: &id, PolicyDocument: policyOf(statements...)})
		return err
	}}
	if err := p.put(ctx, p.granted); err != nil {
		t.Fatal(err)
	}
	return user{p, credentials.NewStaticCredentialsProvider(*made.AccessKey.AccessKeyId,
		*made.AccessKey.SecretAccessKey, "")}
}

// roleOf returns the name of a function's role.
func (f *fixture) roleOf(ctx context.Context, function string) (string, error) {
	name := f.Functions[function]
	out, err := lambda.NewFromConfig(f.AWS).GetFunctionConfiguration(ctx,
		&lambda.GetFunctionConfigurationInput{FunctionName: &name})
	if err != nil {
		return "", err
	}
	role := aws.ToString(out.Role)
	return role[strings.LastIndex(role, "/")+1:], nil
}

// allow lets a function do more than the stack lets it do, until the test ends.
func (f *fixture) allow(t *testing.T, function string, actions []string, resources ...string) {
	t.Helper()
	client := iam.NewFromConfig(f.AWS)
	role, err := f.roleOf(t.Context(), function)
	if err != nil {
		t.Fatal(err)
	}
	policy := "test-" + uuid.New().String()
	if _, err := client.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{
		RoleName: &role, PolicyName: &policy,
		PolicyDocument: policyOf(statement{Effect: "Allow", Action: actions, Resource: resources}),
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if _, err := client.DeleteRolePolicy(ctx,
			&iam.DeleteRolePolicyInput{RoleName: &role, PolicyName: &policy}); err != nil {
			t.Error(err)
		}
	})
}

// deploySecond deploys a second stack of Payhook into the emulator, with a simulated
// payment service and a bus of its own. Settings go before those of f.
func (f *fixture) deploySecond(t *testing.T, name string, conf map[string]string) *fixture {
	t.Helper()
	all := maps.Clone(f.opts.settings)
	maps.Copy(all, conf)
	all[settings.StackName.Key], all[settings.EventBusName.Key] = name, strings.ToLower(name)
	s := &stack{emulator: f.emulator, opts: options{
		top: f.opts.top, state: filepath.Join(f.opts.state, name), settings: all, progress: f.opts.progress,
	}}
	s.AWS, s.Endpoint, s.Region = f.AWS, f.Endpoint, f.Region
	if err := os.MkdirAll(s.opts.state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.startService(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.service.Close() })
	assembly := filepath.Join(s.opts.state, "payhook.out")
	args := append([]string{"synth", "--quiet", "--output", assembly}, s.context()...)
	if err := s.cdk(t.Context(), "synth", "", s.opts.top, args...); err != nil {
		t.Fatal(err)
	}
	outputs, err := s.deployStack(t.Context(), "deploy", assembly, "Payhook")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.readOutputs(t.Context(), outputs); err != nil {
		t.Fatal(err)
	}
	if err := s.fillCredentials(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &fixture{stack: s, proxy: f.proxy, arrivals: f.arrivals, outputs: outputs}
}

// as returns the configuration of a client with these credentials, whose calls
// the proxy sees.
func (f *fixture) as(who aws.CredentialsProvider) aws.Config {
	cfg := f.AWS.Copy()
	cfg.Credentials = who
	cfg.BaseEndpoint = &f.proxy.URL
	return cfg
}

// wrong returns the error of a path that did not have the expected result.
func wrong(what string, got any) error { return fmt.Errorf("%s: %+v", what, got) }
