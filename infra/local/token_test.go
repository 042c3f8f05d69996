package local

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/token"
)

// withToken returns what is deployed, with a token of the usual lifetime in the
// secret, and leaves the simulated service as it was.
func withToken(t *testing.T) *fixture {
	t.Helper()
	f := deployed(t)
	id, secret := f.service.Client()
	t.Cleanup(func() {
		f.service.SetClient(id, secret)
		f.service.SetTokenLifetime(paymenttest.DefaultTokenLifetime)
		f.service.SetKeysBearer(false)
		if err := f.service.Misbehave(paymenttest.Token, paymenttest.Fault{}); err != nil {
			t.Error(err)
		}
	})
	f.refresh(t, refreshNow).want(t, token.Refreshed)
	return f
}

func (f *fixture) refresh(t *testing.T, event string) tokenRun {
	t.Helper()
	run, err := f.runToken(t.Context(), event)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func (r tokenRun) want(t *testing.T, outcome token.Outcome) {
	t.Helper()
	if r.Outcome != outcome {
		t.Fatalf("the token function says %s %s, want %s", r.Outcome, r.Cause, outcome)
	}
}

// newSecret returns the id of a secret of its own that has no value, as the
// secrets are after the first deployment.
func (f *fixture) newSecret(t *testing.T) string {
	t.Helper()
	client := secretsmanager.NewFromConfig(f.AWS)
	out, err := client.CreateSecret(t.Context(),
		&secretsmanager.CreateSecretInput{Name: aws.String("test-" + uuid.New().String())})
	if err != nil {
		t.Fatal(err)
	}
	return *out.ARN
}

func (f *fixture) putCredentials(t *testing.T, secretID, id, secret string) {
	t.Helper()
	value, err := json.Marshal(map[string]string{"client_id": id, "client_secret": secret})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := secretsmanager.NewFromConfig(f.AWS).PutSecretValue(t.Context(), &secretsmanager.PutSecretValueInput{
		SecretId: &secretID, SecretString: aws.String(string(value)),
	}); err != nil {
		t.Fatal(err)
	}
}

// withEnvironment deploys a version of a function with other variables until the
// test ends.
func (f *fixture) withEnvironment(t *testing.T, function string, variables map[string]string) {
	t.Helper()
	client := lambda.NewFromConfig(f.AWS)
	name, alias, _ := strings.Cut(f.Functions[function], ":")
	before, err := client.GetFunction(t.Context(), &lambda.GetFunctionInput{FunctionName: &name, Qualifier: &alias})
	if err != nil {
		t.Fatal(err)
	}
	environment := before.Configuration.Environment.Variables
	set := func(environment map[string]string) {
		t.Helper()
		// A cleanup runs when the test's own context has ended.
		ctx := t.Context()
		if ctx.Err() != nil {
			ctx = context.WithoutCancel(ctx)
		}
		_, err := client.UpdateFunctionConfiguration(ctx, &lambda.UpdateFunctionConfigurationInput{
			FunctionName: &name, Environment: &lambdatypes.Environment{Variables: environment},
		})
		if err == nil {
			err = lambda.NewFunctionUpdatedV2Waiter(client, func(o *lambda.FunctionUpdatedV2WaiterOptions) {
				o.MinDelay, o.MaxDelay = 50*time.Millisecond, 50*time.Millisecond
			}).Wait(ctx, &lambda.GetFunctionInput{FunctionName: &name}, waitTimeout)
		}
		if err != nil {
			t.Fatal(err)
		}
		version, err := client.PublishVersion(ctx, &lambda.PublishVersionInput{FunctionName: &name})
		if err == nil {
			_, err = client.UpdateAlias(ctx,
				&lambda.UpdateAliasInput{FunctionName: &name, Name: &alias, FunctionVersion: version.Version})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	changed := maps.Clone(environment)
	maps.Copy(changed, variables)
	t.Cleanup(func() { set(environment) })
	set(changed)
}

func TestTheFirstTokenIsFetchedWhenTheCredentialsExist(t *testing.T) {
	f := withToken(t)
	tokens, credentials := f.newSecret(t), f.newSecret(t)
	f.allow(t, "token", []string{"secretsmanager:GetSecretValue", "secretsmanager:PutSecretValue"}, tokens, credentials)
	f.withEnvironment(t, "token",
		map[string]string{names.TokenSecretEnv: tokens, names.CredentialsSecretEnv: credentials})
	reader := token.NewReader(secretsmanager.NewFromConfig(f.AWS), tokens, token.ReaderOptions{})

	calls := f.service.Count(paymenttest.Token)
	run := f.refresh(t, asScheduled)
	run.want(t, token.Failed)
	if !strings.Contains(run.Cause, "credentials") || f.service.Count(paymenttest.Token) != calls {
		t.Errorf("without credentials it says %q, and called the endpoint %d times", run.Cause,
			f.service.Count(paymenttest.Token)-calls)
	}
	// The emulator's secrets without a value have an empty one.
	if _, err := reader.Token(); !errors.Is(err, token.ErrNone) && !errors.Is(err, token.ErrUnreadable) {
		t.Errorf("before the first token: %v, want %v", err, token.ErrNone)
	}

	id, secret := f.service.Client()
	f.putCredentials(t, credentials, id, secret)
	f.refresh(t, asScheduled).want(t, token.Refreshed)
	f.refresh(t, asScheduled).want(t, token.Fresh)
	reader = token.NewReader(secretsmanager.NewFromConfig(f.AWS), tokens, token.ReaderOptions{})
	if _, err := reader.Token(); err != nil {
		t.Error(err)
	}
}

func TestTheTokenHasTheExpectedResults(t *testing.T) {
	f := withToken(t)
	f.wantRight(t, append([]*check{f.firstToken()}, f.tokenChecks()...))
}

func (f *fixture) wantRight(t *testing.T, checks []*check) {
	t.Helper()
	if err := runChecks(t.Context(), checks); err != nil {
		t.Fatal(err)
	}
	allRight(t, section{checks: checks})
}

func TestAnOutageShorterThanTheTokenLifetimeAffectsNoConsumer(t *testing.T) {
	f := withToken(t)
	f.service.SetTokenLifetime(8 * time.Second)
	f.refresh(t, refreshNow).want(t, token.Refreshed)
	f.service.SetTokenLifetime(paymenttest.DefaultTokenLifetime)
	calls, err := f.newCaller()
	if err != nil {
		t.Fatal(err)
	}
	old, err := calls.reader.TokenContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n, failed, err := calls.during(t.Context(), func() error {
		if err := f.service.Misbehave(paymenttest.Token,
			paymenttest.Fault{Name: paymenttest.Down, Times: 2}); err != nil {
			return err
		}
		// One run outlives the outage by trying again.
		if err := f.awaitReplaced(t.Context(), old); err != nil {
			return err
		}
		return waitUntil(t.Context(), old.Expiry.Add(100*time.Millisecond))
	})
	if err != nil || failed > 0 || n == 0 {
		t.Errorf("%d of %d calls failed: %v", failed, n, err)
	}
}

func TestChangedCredentialsAreUsedAtTheNextRefresh(t *testing.T) {
	f := withToken(t)
	id, secret := f.service.Client()
	const changed = "changed-secret-5c1d"
	f.service.SetClient("changed-client", changed)
	calls, err := f.newCaller()
	if err != nil {
		t.Fatal(err)
	}

	run := f.refresh(t, refreshNow)
	run.want(t, token.Failed)
	if !strings.Contains(run.Cause, "401") || strings.Contains(run.Cause, secret) {
		t.Errorf("the old credentials lead to %q", run.Cause)
	}
	if status, err := calls.call(t.Context()); status != http.StatusOK {
		t.Errorf("a call with the token that is still there: %d, %v", status, err)
	}

	f.putCredentials(t, f.CredentialsSecret, "changed-client", changed)
	defer f.putCredentials(t, f.CredentialsSecret, id, secret)
	f.refresh(t, refreshNow).want(t, token.Refreshed)
	if calls, err = f.newCaller(); err != nil {
		t.Fatal(err)
	}
	if status, err := calls.call(t.Context()); status != http.StatusOK {
		t.Errorf("a call with the new token: %d, %v", status, err)
	}
}

func TestKeysAreFetchedWithTheTokenExactlyIfThatIsSet(t *testing.T) {
	f := withToken(t)
	// fetched returns the request for the key that signs from now on, and what
	// its first delivery is answered.
	fetched := func(t *testing.T) (paymenttest.Request, answer) {
		t.Helper()
		key := f.service.Rotate()
		a := f.send(t, paymenttest.Delivery(paymenttest.Event()))
		requests := f.service.Requests(paymenttest.Keys)
		if len(requests) == 0 || !strings.HasSuffix(requests[len(requests)-1].Path, key.ID) {
			t.Fatal("the new key was not asked for")
		}
		return requests[len(requests)-1], a
	}

	request, a := fetched(t)
	a.want(t, http.StatusOK, 1, 0)
	if request.Header.Get("Authorization") != "" {
		t.Error("with none, the token was sent")
	}
	f.service.SetKeysBearer(true)
	_, a = fetched(t)
	a.want(t, http.StatusServiceUnavailable, 0, 0)

	f.allow(t, "webhook", []string{"secretsmanager:GetSecretValue"}, f.TokenSecret)
	f.withEnvironment(t, "webhook",
		map[string]string{settings.KeysAuth.Env(): "bearer", names.TokenSecretEnv: f.TokenSecret})
	request, a = fetched(t)
	a.want(t, http.StatusOK, 1, 0)
	if !strings.HasPrefix(request.Header.Get("Authorization"), "Bearer ") || request.Status != http.StatusOK {
		t.Errorf("with bearer, the key was fetched without the token, or answered %d", request.Status)
	}
}
