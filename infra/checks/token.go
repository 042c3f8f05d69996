package checks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"payhook.example/shared/paymenttest"
	"payhook.example/shared/signature"
	"payhook.example/shared/token"
)

// TokenRun is the answer of the token function.
type TokenRun struct {
	Outcome          token.Outcome
	RemainingSeconds int
	Cause            string
}

// The events of the token function.
const (
	AsScheduled = `{}`
	RefreshNow  = `{"refresh":true}`
)

// StoreCredentials stores the client credentials, as a person does after the first deployment with tokens.
func (s *Scenario) StoreCredentials(ctx context.Context, id, secret string) error {
	if !s.KeepsToken() {
		return nil
	}
	value, err := json.Marshal(map[string]string{"client_id": id, "client_secret": secret})
	if err == nil {
		_, err = secretsmanager.NewFromConfig(s.AWS).PutSecretValue(ctx, &secretsmanager.PutSecretValueInput{
			SecretId: &s.CredentialsSecret, SecretString: aws.String(string(value))})
	}
	return err
}

// RunToken runs the token function.
func (s *Scenario) RunToken(ctx context.Context, event string) (run TokenRun, err error) {
	return run, s.Invoke(ctx, "token", event, &run)
}

// FirstToken returns the check that stores a token.
func (s *Scenario) FirstToken() *Check {
	const expected = "a valid token is stored"
	if !s.KeepsToken() {
		return check("the token function", "there is none", func(context.Context) string {
			return "there is none" + s.Functions["token"]
		})
	}
	return check("the token function runs", expected, func(ctx context.Context) string {
		// The schedule may have stored one already.
		run := Must(s.RunToken(ctx, AsScheduled))
		if run.Outcome != token.Refreshed && run.Outcome != token.Fresh {
			Require(errors.New(string(run.Outcome) + ": " + run.Cause))
		}
		Must(s.Token().TokenContext(ctx))
		return fmt.Sprintf("%s; for %d s", expected, run.RemainingSeconds)
	})
}

// shortLife is the shortest lifetime of tokens that the simulated service supports.
const shortLife = 5 * time.Second

// serviceChecks returns the checks that change how the payment service answers. They restore it.
func (s *Scenario) serviceChecks() []*Check {
	fault := func(ctx context.Context, e paymenttest.Endpoint, f paymenttest.Fault) {
		Require(s.Change(context.WithoutCancel(ctx),
			func(state *paymenttest.State) error { return state.Misbehave(e, f) }))
	}
	checks := []*Check{s.replacementCheck(),
		check("the token endpoint is down", "failed, calls answered 200", func(ctx context.Context) string {
			fault(ctx, paymenttest.Token, paymenttest.Down)
			defer fault(ctx, paymenttest.Token, "")
			run := Must(s.RunToken(ctx, RefreshNow))
			return fmt.Sprintf("%s, calls answered %d", run.Outcome, s.callAPI(ctx, s.Token()))
		}),
		check("the token endpoint is back", "refreshed", func(ctx context.Context) string {
			return string(Must(s.RunToken(ctx, RefreshNow)).Outcome)
		}),
	}
	if !s.KeepsToken() {
		checks = nil
	}
	if _, static := signature.StaticKeyID(s.Setting("keyIdLocation")); static || !UsesSignature(s.Settings) {
		return checks
	}
	return append(checks, check("the keys are down, a webhook is signed with a new one, and they are back",
		fmt.Sprintf("503, then %d", s.successStatus()), func(ctx context.Context) string {
			fault(ctx, paymenttest.Keys, paymenttest.Down)
			defer fault(ctx, paymenttest.Keys, "")
			Require(s.NewKey(ctx))
			payload := paymenttest.Delivery(paymenttest.Event())
			down := s.post(ctx, payload).Status
			fault(ctx, paymenttest.Keys, "")
			var back int
			s.poll(ctx, func() bool { // the function remembers for a moment that it failed
				back = s.post(ctx, payload).Status
				return back != http.StatusServiceUnavailable
			})
			return fmt.Sprintf("%d, then %d", down, back)
		}))
}

func (s *Scenario) replacementCheck() *Check {
	return check(fmt.Sprintf("a token lives %d s, and a client calls meanwhile", int(shortLife.Seconds())),
		"replaced before it expires, calls answered 200", s.replaceToken)
}

// replaceToken makes calls while a short-lived token is replaced.
func (s *Scenario) replaceToken(ctx context.Context) string {
	live := func(d time.Duration) error {
		return s.Change(context.WithoutCancel(ctx), func(state *paymenttest.State) error {
			state.TokenSeconds = int(d.Seconds())
			return nil
		})
	}
	Require(live(shortLife))
	_, err := s.RunToken(ctx, RefreshNow)
	Require(errors.Join(err, live(paymenttest.DefaultTokenLifetime)))
	reader := s.Token()
	old := Must(reader.TokenContext(ctx))
	// The token function runs again and again, as by its schedule every minute, until a client
	// has another token.
	status := http.StatusOK
	Require(Poll(ctx, time.Until(old.Expiry), 100*time.Millisecond, func() (bool, error) {
		Must(s.RunToken(ctx, AsScheduled))
		status = s.callAPI(ctx, reader)
		now, err := reader.TokenContext(ctx)
		return status != http.StatusOK || err == nil && now.AccessToken != old.AccessToken, err
	}))
	return fmt.Sprintf("replaced before it expires, calls answered %d", status)
}

// callAPI calls the protected API with the stored token, as a client does, and returns the status.
func (s *Scenario) callAPI(ctx context.Context, reader *token.Reader) int {
	client := &http.Client{Transport: token.NewTransport(reader, Must(url.Parse(s.PaymentService)), s.Client.Transport),
		Timeout: 10 * time.Second}
	answer := Must(client.Do(Must(http.NewRequestWithContext(ctx, http.MethodGet,
		s.PaymentService+paymenttest.ProtectedPath+"payments", nil))))
	defer answer.Body.Close()
	io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}
