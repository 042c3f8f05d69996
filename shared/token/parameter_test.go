package token_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"payhook.example/shared/token"
)

// The schedule runs for a week. Every 2 seconds, a caller has a token, and a run that starts late or fails does not
// change that if the lifetime allows it.
func TestAParameterHasATokenOfAnyLifetimeForAWeek(t *testing.T) {
	for lifetime, fails := range map[time.Duration]int{3 * time.Minute: 1, 10 * time.Minute: 4} {
		parallelBubble(t, lifetime.String(), func(t *testing.T) {
			s := &service{lifetime: lifetime, takes: 3 * time.Second}
			r := newParameterRig(t, s.ServeHTTP)
			start, reader, done := time.Now(), r.reader(), make(chan struct{})
			end := start.Add(7 * 24 * time.Hour)
			r.run(t, token.Refreshed)
			go func() {
				defer close(done)
				for at := start.Add(time.Minute); at.Before(end); at = at.Add(time.Minute) {
					time.Sleep(time.Until(at))
					if at.Sub(start)%time.Hour == 0 { // and then an outage
						s.from, s.to = at.Add(-time.Second), at.Add(time.Duration(fails)*time.Minute-10*time.Second)
					}
					ctx, cancel := context.WithTimeout(t.Context(), 55*time.Second)
					if report, _ := r.refresher.Run(ctx, false); report.WritesTooOften || !report.Known {
						t.Errorf("%+v", report)
					}
					cancel()
				}
			}()
			for ; time.Now().Before(end); time.Sleep(2 * time.Second) {
				got, err := reader.Token()
				if err != nil || !got.Expiry.After(time.Now()) {
					t.Fatalf("%s after the start: %+v, %v", time.Since(start), got, err)
				}
			}
			<-done
			versions, puts := r.parameter.Versions()
			if n := 7 * 24 * int(time.Hour/lifetime); len(versions) != 100 || len(puts) < n || len(puts) > 7*24*60 {
				t.Errorf("%d versions of %d", len(versions), len(puts))
			}
			for i, at := range puts[1:] {
				if at.Sub(puts[i]) < 30*time.Second {
					t.Fatalf("two writes within %s", at.Sub(puts[i]))
				}
			}
		})
	}
}

// A parameter is refreshed when less than 66 % of the lifetime or 4 minutes are left, after half a minute at least.
func TestWhenATokenInAParameterIsDue(t *testing.T) {
	for lifetime, age := range map[time.Duration]time.Duration{time.Hour: 1224 * time.Second, 15 * time.Minute: 306 *
		time.Second, 5 * time.Minute: time.Minute, 3 * time.Minute: 30 * time.Second, time.Minute: 21 * time.Second} {
		bubble(t, lifetime.String(), func(t *testing.T) {
			r := newParameterRig(t, returns("t-1", lifetime), returns("t-2", lifetime))
			r.run(t, token.Refreshed)
			time.Sleep(age - time.Second)
			r.run(t, token.Fresh)
			time.Sleep(2 * time.Second)
			r.run(t, token.Refreshed)
		})
	}
}

func TestATokenInAParameterIsEncryptedAndReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newParameterRig(t, returns("t-1", time.Hour), returns(strings.Repeat("x", 7000), time.Hour),
			returns("t-3", time.Hour))
		if _, err := r.reader().Token(); !errors.Is(err, token.ErrNone) {
			t.Errorf("before the first run: %v", err)
		}
		for range 3 { // the second one does not fit in a standard parameter
			r.run(t, token.Refreshed)
			time.Sleep(30 * time.Minute)
		}
		versions, _ := r.parameter.Versions()
		if got, err := r.reader().Token(); err != nil || got.AccessToken != "t-3" || len(versions) != 3 ||
			versions[2].KeyID != "key" {
			t.Errorf("%v, %v of %d versions", got, err, len(versions))
		}
	})
}

// A token that cannot be stored is kept in memory and stored by the next run. Another refresher's token that expires
// later is not replaced. No error has a secret or an ARN.
func TestReportsFailuresOfParameterStore(t *testing.T) {
	for name, test := range map[string]struct {
		operation, code, access, want string
	}{
		"no read": {"GetParameter", "ValidationException", "t", "Parameter Store GetParameter: ValidationException"},
		"no write": {"PutParameter", "AccessDeniedException", "t",
			"Parameter Store PutParameter: AccessDeniedException"},
		"a label": {"PutParameter", "ParameterMaxVersionLimitExceeded", "t",
			"Parameter Store PutParameter: ParameterMaxVersionLimitExceeded: the oldest of 100 versions has a label"},
		"too long": {"", "", strings.Repeat("x", 8<<10), "PutParameter: the token is too long: a parameter takes 8 KB"},
	} {
		bubble(t, name, func(t *testing.T) {
			r := newParameterRig(t, returns(test.access, time.Hour))
			failing := true
			r.parameter.Before = func(operation string) string {
				if failing && operation == test.operation {
					return test.code
				}
				return ""
			}
			report, err := r.refresher.Run(t.Context(), false)
			if _, ok := errors.AsType[*token.StoreError](err); !ok || report.Outcome != token.Failed ||
				!strings.HasPrefix(err.Error(), "token: the parameter with the token: "+test.want) ||
				strings.Contains(fmt.Sprintf("%v %+v", err, report), "arn:") {
				t.Errorf("%+v, %v", report, err)
			}
			if failing = false; test.operation != "PutParameter" {
				return
			}
			time.Sleep(time.Minute)
			if report := r.run(t, token.Refreshed); report.Calls != 0 || len(r.endpoint.calls()) != 1 {
				t.Errorf("%d calls", len(r.endpoint.calls()))
			}
		})
	}
	bubble(t, "superseded", func(t *testing.T) {
		r := newParameterRig(t)
		r.endpoint.answers = []http.HandlerFunc{func(w http.ResponseWriter, q *http.Request) {
			r.endpoint.answers = []http.HandlerFunc{returns("t-2", 2*time.Hour)}
			_, _ = r.another(t).Run(t.Context(), false)
			returns("t-1", time.Hour)(w, q)
		}, nil}
		r.run(t, token.Superseded)
		if got, err := r.reader().Token(); err != nil || got.AccessToken != "t-2" {
			t.Errorf("%v, %v", got, err)
		}
	})
}

// The key of the parameter is another one now, or no more.
func TestAParameterThatCannotBeReadIsWrittenAgain(t *testing.T) {
	for _, code := range []string{"AccessDeniedException", "InvalidKeyId"} {
		for _, always := range []bool{false, true} {
			bubble(t, fmt.Sprint(code, always), func(t *testing.T) {
				r := newParameterRig(t, returns("t-1", time.Hour), returns("t-2", time.Hour))
				r.run(t, token.Refreshed)
				time.Sleep(time.Minute)
				denied := true
				r.parameter.Before = func(operation string) string {
					if operation == "PutParameter" {
						denied = false
					} else if denied {
						return code
					}
					return ""
				}
				report, err := r.refresher.Run(t.Context(), always)
				if report.Outcome != token.Refreshed || err != nil || fmt.Sprint(report.Unreadable) !=
					"token: the parameter with the token: Parameter Store GetParameter: "+code {
					t.Errorf("%+v, %v", report, err)
				}
				expectToken(t, r.reader(), "t-2")
				if report := r.run(t, token.Fresh); report.Unreadable != nil {
					t.Errorf("%+v", report)
				}
			})
		}
	}
	bubble(t, "it cannot be written at first", func(t *testing.T) {
		r := newParameterRig(t, returns("t-1", time.Hour))
		denied := true
		r.parameter.Before = func(operation string) string {
			if operation == "GetParameter" || denied {
				return "AccessDeniedException"
			}
			return ""
		}
		r.run(t, token.Failed)
		denied = false
		if report := r.run(t, token.Refreshed); report.Calls != 0 {
			t.Errorf("%+v", report)
		}
	})
	bubble(t, "it stays so", func(t *testing.T) {
		r := newParameterRig(t, returns("t-1", time.Hour))
		denied := true
		r.parameter.Before = func(operation string) string {
			if denied && operation == "GetParameter" {
				return "AccessDeniedException"
			}
			return ""
		}
		r.run(t, token.Refreshed)
		for range 20 {
			time.Sleep(time.Minute)
			if report := r.run(t, token.Failed); report.Calls != 0 || report.Known {
				t.Errorf("%+v, want no call", report)
			}
		}
		if report, err := r.refresher.Run(t.Context(), true); err != nil || report.Calls != 1 {
			t.Errorf("a manual refresh: %+v, %v", report, err)
		}
		time.Sleep(21 * time.Minute) // the token is due
		r.run(t, token.Refreshed)
		denied = false
		r.run(t, token.Fresh)
		denied = true
		r.run(t, token.Refreshed)
	})
}
