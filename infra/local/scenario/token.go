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
	smithytime "github.com/aws/smithy-go/time"
	"golang.org/x/oauth2"

	"payhook.example/shared/paymenttest"
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
	return &Check{Topic: ofToken, What: "the token function runs", Expected: "a valid token is in the secret",
		Do: func(ctx context.Context) (string, bool, error) {
			// The schedule may have stored one already.
			run, err := s.RunToken(ctx, AsScheduled)
			if err != nil {
				return "", false, err
			}
			if run.Outcome != token.Refreshed && run.Outcome != token.Fresh {
				return string(run.Outcome), false, errors.New(run.Cause)
			}
			if _, err := s.TokenReader().TokenContext(ctx); err != nil {
				return "", false, err
			}
			return fmt.Sprintf("valid for %d s", run.RemainingSeconds), true, nil
		}}
}

// shortLife is the shortest lifetime of tokens that the simulated service supports.
const shortLife = 5 * time.Second

// TokenChecks returns the checks of a stored token. They need a token of the simulated service,
// and restore the lifetime of its tokens.
func (s *Scenario) TokenChecks() []*Check {
	return about(ofToken,
		Exactly("a protected call with it", "200", func(ctx context.Context) (string, error) {
			calls, err := s.NewCaller()
			if err != nil {
				return "", err
			}
			status, err := calls.Call(ctx)
			return fmt.Sprint(status), err
		}),
		&Check{What: fmt.Sprintf("a token lives %d s, and a client goes on calling", int(shortLife.Seconds())),
			Expected: "replaced before it expires, 0 calls fail", Do: s.replaceToken},
		&Check{What: "the token endpoint is down", Expected: "the refresh fails, 0 calls fail", Do: s.outage},
		Exactly("the token endpoint is back", "refreshed", func(ctx context.Context) (string, error) {
			run, err := s.RunToken(ctx, RefreshNow)
			return string(run.Outcome), err
		}))
}

// replaceToken makes calls while a short-lived token is replaced.
func (s *Scenario) replaceToken(ctx context.Context) (string, bool, error) {
	if err := s.Service.SetTokenLifetime(ctx, shortLife); err != nil {
		return "", false, err
	}
	_, err := s.RunToken(ctx, RefreshNow)
	if err = errors.Join(err, s.Service.SetTokenLifetime(ctx, paymenttest.DefaultTokenLifetime)); err != nil {
		return "", false, err
	}
	calls, err := s.NewCaller()
	if err != nil {
		return "", false, err
	}
	old, err := calls.Reader.TokenContext(ctx)
	if err != nil {
		return "", false, err
	}
	left := time.Duration(0) // of the old one, when it was replaced
	n, failed, err := calls.During(ctx, func() error {
		if err := s.awaitReplaced(ctx, old); err != nil {
			return err
		}
		left = time.Until(old.Expiry)
		return calls.awaitOther(ctx, old)
	})
	return fmt.Sprintf("replaced %.1f s before, %d of %d calls failed", left.Seconds(), failed, n),
		left > 0 && failed == 0 && n > 0, err
}

// outage makes calls while the token endpoint is down.
func (s *Scenario) outage(ctx context.Context) (string, bool, error) {
	calls, err := s.NewCaller()
	if err != nil {
		return "", false, err
	}
	if err := s.Service.Misbehave(ctx, paymenttest.Token, paymenttest.Down); err != nil {
		return "", false, err
	}
	var run TokenRun
	n, failed, err := calls.During(ctx, func() (err error) {
		run, err = s.RunToken(ctx, RefreshNow)
		return err
	})
	err = errors.Join(err, s.Service.Misbehave(ctx, paymenttest.Token, ""))
	return fmt.Sprintf("the refresh %s, %d of %d calls failed", run.Outcome, failed, n),
		run.Outcome == token.Failed && run.RemainingSeconds > 0 && failed == 0 && n > 0, err
}

// awaitReplaced runs the token function again and again, as its schedule does every minute,
// until another token than old is stored. It fails if old expires before.
func (s *Scenario) awaitReplaced(ctx context.Context, old *oauth2.Token) error {
	for {
		run, err := s.RunToken(ctx, AsScheduled)
		if err != nil {
			return err
		}
		if now, err := s.TokenReader().TokenContext(ctx); err == nil && now.AccessToken != old.AccessToken {
			return nil
		}
		if time.Now().After(old.Expiry) {
			return fmt.Errorf("the token has expired, and the token function says %s %s", run.Outcome, run.Cause)
		}
		if err := smithytime.SleepWithContext(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// Caller calls the protected API with the stored token, as a client does.
type Caller struct {
	Reader *token.Reader
	client *http.Client
	url    string
}

// NewCaller returns a caller that has not read the token yet.
func (s *Scenario) NewCaller() (*Caller, error) {
	base, err := url.Parse(s.Service.BaseURL())
	if err != nil {
		return nil, err
	}
	reader := s.TokenReader()
	return &Caller{reader, &http.Client{Transport: token.NewTransport(reader, base, s.Client.Transport),
		Timeout: 10 * time.Second}, s.Service.BaseURL() + paymenttest.ProtectedPath + "payments"}, nil
}

// Call makes one call.
func (c *Caller) Call(ctx context.Context) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := c.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, nil
}

// During makes one call after another while do runs, and counts them. The error is that of do,
// or those of the calls that failed.
func (c *Caller) During(ctx context.Context, do func() error) (calls, failed int, err error) {
	ended := make(chan struct{})
	var problems error
	var calling sync.WaitGroup
	calling.Go(func() {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			status, err := c.Call(ctx)
			calls++
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("a call was answered %d", status)
			}
			if err != nil {
				failed++
				problems = errors.Join(problems, err)
			}
			select {
			case <-ticker.C:
			case <-ended:
				return
			}
		}
	})
	err = do()
	close(ended)
	calling.Wait()
	if err == nil {
		err = problems
	}
	return calls, failed, err
}

// awaitOther waits until the caller uses another token than old.
func (c *Caller) awaitOther(ctx context.Context, old *oauth2.Token) error {
	for {
		now, err := c.Reader.TokenContext(ctx)
		if err != nil || now.AccessToken != old.AccessToken {
			return err
		}
		if err := smithytime.SleepWithContext(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}
