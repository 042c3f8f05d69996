package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

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

// RunToken runs the token function.
func (s *Scenario) RunToken(ctx context.Context, event string) (run TokenRun, err error) {
	return run, s.Invoke(ctx, "token", event, &run)
}

// TokenReader returns a reader that has read nothing yet.
func (s *Scenario) TokenReader() *token.Reader {
	return token.NewReader(secretsmanager.NewFromConfig(s.AWS), s.TokenSecret)
}

// FirstToken returns the check that stores a token.
func (s *Scenario) FirstToken() *Check {
	const expected = "a valid token is in the secret"
	return check("the token function runs", expected, func(ctx context.Context) string {
		// The schedule may have stored one already.
		run := Must(s.RunToken(ctx, AsScheduled))
		if run.Outcome != token.Refreshed && run.Outcome != token.Fresh {
			Require(errors.New(string(run.Outcome) + ": " + run.Cause))
		}
		Must(s.TokenReader().TokenContext(ctx))
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
	checks := []*Check{
		check(fmt.Sprintf("a token lives %d s, and a client goes on calling", int(shortLife.Seconds())),
			"replaced before it expires, 0 calls fail", s.replaceToken),
		check("the token endpoint is down", "the refresh failed, 0 calls fail", func(ctx context.Context) string {
			fault(ctx, paymenttest.Token, paymenttest.Down)
			defer fault(ctx, paymenttest.Token, "")
			var run TokenRun
			calls := s.newCaller().during(ctx, func() { run = Must(s.RunToken(ctx, RefreshNow)) })
			return fmt.Sprintf("the refresh %s, %s", run.Outcome, calls)
		}),
		check("the token endpoint is back", "refreshed", func(ctx context.Context) string {
			return string(Must(s.RunToken(ctx, RefreshNow)).Outcome)
		}),
	}
	if _, static := signature.StaticKeyID(s.Setting("keyIdCarrier")); static || !UsesSignature(s.Settings) {
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
	caller := s.newCaller()
	old := Must(caller.reader.TokenContext(ctx))
	return "replaced before it expires, " + caller.during(ctx, func() {
		// The token function runs again and again, as by its schedule every minute, until a client
		// has another token.
		Require(Poll(ctx, time.Until(old.Expiry), 100*time.Millisecond, func() (bool, error) {
			Must(s.RunToken(ctx, AsScheduled))
			now, err := caller.reader.TokenContext(ctx)
			return err == nil && now.AccessToken != old.AccessToken, err
		}))
	})
}

// caller calls the protected API with the stored token, as a client does.
type caller struct {
	reader *token.Reader
	client *http.Client
	url    string
}

// newCaller returns a caller that has not read the token yet.
func (s *Scenario) newCaller() *caller {
	base, reader := Must(url.Parse(s.PaymentService)), s.TokenReader()
	return &caller{reader, &http.Client{Transport: token.NewTransport(reader, base, s.Client.Transport),
		Timeout: 10 * time.Second}, s.PaymentService + paymenttest.ProtectedPath + "payments"}
}

// call makes one call, and returns an error unless it is answered 200.
func (c *caller) call(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return err
	}
	resp, err := c.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("a call was answered %d", resp.StatusCode)
	}
	return nil
}

// during makes one call after another while do runs. It returns how many failed, and after "; "
// how many there were, and the error of the last that failed.
func (c *caller) during(ctx context.Context, do func()) string {
	ended := make(chan struct{})
	calls, failed, problem := 0, 0, ""
	var calling sync.WaitGroup
	calling.Go(func() {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			calls++
			if err := c.call(ctx); err != nil {
				failed++
				problem = ": " + err.Error()
			}
			select {
			case <-ticker.C:
			case <-ended:
				return
			}
		}
	})
	func() {
		defer calling.Wait()
		defer close(ended)
		do()
	}()
	return fmt.Sprintf("%d calls fail; of %d%s", failed, calls, problem)
}
