package token_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/token"
)

func TestFirstRunStoresATokenAndLaterRunsOnlyRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
			time.Sleep(1500 * time.Millisecond) // this is not part of the token's life
			returns("t-1", time.Hour)(w, request)
		})
		time.Sleep(1234567 * time.Nanosecond)
		issued := time.Now().UTC().Truncate(time.Millisecond)
		report := r.run(t, token.Refreshed)
		if report.Remaining != time.Hour-1500*time.Millisecond || report.Lifetime != time.Hour || !report.Known ||
			report.Calls != 1 {
			t.Errorf("%+v", report)
		}
		var got map[string]string
		if err := json.Unmarshal([]byte(r.store.text()), &got); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			"access_token": "t-1", "token_type": "Bearer", "issued_at": issued.Format(time.RFC3339Nano),
			"expires_at": issued.Add(time.Hour).Format(time.RFC3339Nano), "endpoint_sha256": digest(),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the secret (-want +got):\n%s", diff)
		}

		reads := r.store.loads()
		if report = r.run(t, token.Fresh); report.Calls != 0 {
			t.Errorf("%+v", report)
		}
		if n := r.store.loads() - reads; n != 1 || r.store.saves() != 1 || r.credentials.loads() != 1 {
			t.Errorf("a run without a refresh made %d reads, want 1", n)
		}
	})
}

func TestTokenIsReplacedWhenItIsDue(t *testing.T) {
	for lifetime, age := range map[time.Duration]time.Duration{
		// The percentage decides.
		5 * time.Second:                1700 * time.Millisecond,
		5 * time.Minute:                102 * time.Second,
		time.Hour:                      20*time.Minute + 24*time.Second,
		24 * time.Hour:                 8*time.Hour + 576*time.Second,
		47*time.Minute + 4*time.Second: 15*time.Minute + 60160*time.Millisecond,
		// The quota of versions decides: at most one every 16 minutes.
		20 * time.Minute: 16 * time.Minute,
		30 * time.Minute: 16 * time.Minute,
		// Three runs count more than the number of versions.
		19 * time.Minute: 15 * time.Minute,
		10 * time.Minute: 6 * time.Minute,
	} {
		bubble(t, lifetime.String(), func(t *testing.T) {
			r := newRig(t, returns("t-2", lifetime))
			r.put("t-1", lifetime)
			time.Sleep(age)
			r.run(t, token.Fresh)
			time.Sleep(time.Millisecond)
			r.run(t, token.Refreshed)
		})
	}
}

func TestOnlyAnInvalidSecretIsReplaced(t *testing.T) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of a bubble
	good := value("t-1", now, now.Add(13*time.Hour))
	replaced := func(old, by string) string { return strings.Replace(good, old, by, 1) }
	tests := map[string]string{
		"an empty text":          "",
		"what the CDK generates": `x7"(K~w;Ym2`,
		"another object":         `{"password":"x"}`,
		"an array":               `[` + good + `]`,
		"something behind it":    good + "x",
		"a name twice":           replaced(`{`, `{"token_type":"Bearer",`),
		"no access_token":        replaced(`"access_token"`, `"access"`),
		"an illegal token":       replaced(`t-1`, `t 1`),
		"an empty token":         replaced(`t-1`, ``),
		"a token too long":       replaced(`t-1`, strings.Repeat("a", 32<<10+1)),
		"another type":           replaced(`Bearer`, `mac`),
		"no expiry":              replaced(`expires_at`, `expires`),
		"no RFC 3339":            replaced(`T13:`, ` 13:`),
		"a comma in the expiry":  replaced(`T13:00:00Z`, `T13:00:00,5Z`),
		"one digit for the hour": replaced(`T13:`, `T3:`),
		"an expiry in numbers":   `{"access_token":"t-1","token_type":"Bearer","issued_at":1,"expires_at":4102444800}`,
		"no life":                value("t-1", now, now),
		"a life of centuries":    value("t-1", now, now.AddDate(300, 0, 0)),
		"more than 366 days":     value("t-1", now, now.Add(366*24*time.Hour+time.Millisecond)),
		"an issue in the future": value("t-1", now.Add(time.Hour), now.Add(3*time.Hour)),
		"an expired one":         value("t-1", now.Add(-2*time.Hour), now.Add(-time.Hour)),
		"kept: 366 days":         value("t-1", now, now.Add(366*24*time.Hour)),
		"kept: a valid one":      good,
	}
	for name, text := range tests {
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, returns("t-2", time.Hour))
			r.store.put(text)
			if !strings.HasPrefix(name, "kept: ") {
				r.run(t, token.Refreshed)
			}
			r.run(t, token.Fresh)
		})
	}
}

// A failure never changes the stored token. The pauses have full jitter, so only their
// maximum is known.
func TestRetriesOnlyTemporaryErrors(t *testing.T) {
	good := returns("t-2", time.Hour)
	list := func(answers ...http.HandlerFunc) []http.HandlerFunc { return answers }
	tests := map[string]struct {
		answers  []http.HandlerFunc
		outcome  token.Outcome
		calls    int
		min, max time.Duration // of all pauses
	}{
		"hanging up": {list(hangsUp, good), token.Refreshed, 2, 0, 500 * time.Millisecond},
		"a token, and hanging up": {list(func(w http.ResponseWriter, q *http.Request) {
			returns("t-1", time.Hour)(w, q)
			hangsUp(w, q)
		}, good), token.Refreshed, 2, 0, 500 * time.Millisecond},
		"500, 502, 503": {list(answers(500, ""), answers(502, ""), answers(503, ""), good), token.Refreshed, 4, 0,
			3500 * time.Millisecond},
		"500 each time": {list(answers(500, "")), token.Failed, 5, 0, 7500 * time.Millisecond},
		"429 each time": {list(answers(429, "")), token.Failed, 5, 0, 7500 * time.Millisecond},
		"429 with seconds": {list(answers(429, "", "Retry-After", "7"), good), token.Refreshed, 2, 7 * time.Second,
			7 * time.Second},
		"429 with a date": {list(answers(429, "", "Retry-After", "Sat, 01 Jan 2000 00:45:09 GMT"), good),
			token.Refreshed, 2, 9 * time.Second, 9 * time.Second},
		"429 with a past date": {list(answers(429, "", "Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT"), good),
			token.Refreshed, 2, 0, 500 * time.Millisecond},
		"429 with nonsense": {list(answers(429, "", "Retry-After", "-5"), good), token.Refreshed, 2, 0,
			500 * time.Millisecond},
		"429 with too much": {list(answers(429, "", "Retry-After", "51"), good), token.Failed, 1, 0, 0},
		"503 with seconds": {list(answers(503, "", "Retry-After", "3"), good), token.Refreshed, 2, 3 * time.Second,
			3 * time.Second},
		"400":       {list(answers(400, `{"error":"invalid_client"}`), good), token.Failed, 1, 0, 0},
		"401":       {list(answers(401, "", "Retry-After", "1"), good), token.Failed, 1, 0, 0},
		"404":       {list(answers(404, ""), good), token.Failed, 1, 0, 0},
		"307":       {list(answers(307, "", "Location", "/"), good), token.Failed, 1, 0, 0},
		"no token":  {list(answers(200, `{}`), good), token.Failed, 1, 0, 0},
		"no expiry": {list(answers(200, `{"access_token":"t-2","token_type":"Bearer"}`)), token.Failed, 1, 0, 0},
	}
	for name, test := range tests {
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, test.answers...)
			r.put("t-1", time.Hour)
			stored := r.store.text()
			time.Sleep(45 * time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), 55*time.Second)
			defer cancel()
			start := time.Now()
			report, err := r.refresher.Run(ctx, false)
			if report.Outcome != test.outcome || report.Calls != test.calls || len(r.endpoint.calls()) != test.calls {
				t.Errorf("%+v, %v after %d calls", report, err, len(r.endpoint.calls()))
			}
			if slept := time.Since(start); slept < test.min || slept > test.max {
				t.Errorf("slept %s, want %s to %s", slept, test.min, test.max)
			}
			if test.outcome == token.Failed {
				if diff := cmp.Diff(stored, r.store.text()); diff != "" || report.Remaining <= 0 {
					t.Errorf("%+v; the secret was written (-want +got):\n%s", report, diff)
				}
				expectToken(t, r.reader(), "t-1")
			}
		})
	}
}

func TestRunLeavesTimeToStoreTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
			time.Sleep(8 * time.Second)
			answers(500, "", "Retry-After", "1")(w, request)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 32*time.Second)
		defer cancel()
		start := time.Now()
		// The calls start at 0 s, 9 s and 18 s. A fourth would start at 27 s, in the last 5 s.
		if report, _ := r.refresher.Run(ctx, false); report.Outcome != token.Failed || report.Calls != 3 ||
			time.Since(start) != 26*time.Second {
			t.Errorf("%+v after %s, want a failure after 3 calls", report, time.Since(start))
		}
	})
}

func TestReportsInvalidCredentials(t *testing.T) {
	const wrong = "is not a JSON object with two strings that are not empty"
	control := func(name string) string {
		return "has a " + name + " with a control character, such as a line break at its end"
	}
	for text, problem := range map[string]string{ // by the value of the secret
		"-":                        "has no value yet",
		" \n":                      "has no value yet",
		`x7"(K~w;Ym2`:              wrong,
		`["` + clientSecret + `"]`: wrong,
		`{}`:                       wrong,
		`{"client_id":"","client_secret":"` + clientSecret + `"}`:               wrong,
		`{"client_id":7,"client_secret":"` + clientSecret + `"}`:                wrong,
		`{"client_id":"client-1"}`:                                              wrong,
		`{"client_id":"client-1","client_secret":null}`:                         wrong,
		`{"client_id":"client-1","client_secret":"a","client_secret":""}`:       wrong,
		`{"client_id":"client-1","client_secret":"` + clientSecret + `\n"}`:     control("client_secret"),
		`{"client_id":"client-1","client_secret":"` + clientSecret + `\u007f"}`: control("client_secret"),
		`{"client_id":"client\n","client_secret":"` + clientSecret + `"}`:       control("client_id"),
		`{"client_id":"client:1","client_secret":"` + clientSecret + `"}`: "has a client_id with a colon, which HTTP " +
			"Basic does not allow without form-encoding",
	} {
		bubble(t, text, func(t *testing.T) {
			r := newRig(t, returns("t-1", time.Hour))
			r.credentials.put(strings.TrimPrefix(text, "-"))
			_, err := r.refresher.Run(t.Context(), false)
			missing, ok := errors.AsType[*token.CredentialsError](err)
			if !ok || missing.Problem != problem || len(r.endpoint.calls()) > 0 {
				t.Fatalf("%v, want a CredentialsError that it %s", err, problem)
			}
			expectNoCanary(t, err.Error())

			r.fill("client-2", clientSecret)
			r.run(t, token.Refreshed)
			if user, _, _ := r.endpoint.calls()[0].BasicAuth(); user != "client-2" {
				t.Errorf("it uses the credentials of %s", user)
			}
		})
	}
}

func TestCredentialsOfAFileAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, returns("t-1", time.Hour))
		r.credentials.put("\uFEFF" + `{"client_id":"client-1","client_secret":"s"}`) // with a byte order mark
		r.run(t, token.Refreshed)
	})
}

func TestStoredTokenIsNotWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, returns("t-1", time.Hour))
		r.run(t, token.Refreshed)
		time.Sleep(30 * time.Minute)
		r.endpoint.then(returns("t-1", 30*time.Minute-time.Second)) // "remaining lifetime" (section 2.1)
		if report := r.run(t, token.Unchanged); report.Remaining != 30*time.Minute ||
			r.store.saves() != 1 {
			t.Errorf("%+v after %d writes, want 1", report, r.store.saves())
		}

		// With another expiry it is written.
		time.Sleep(15 * time.Minute)
		r.endpoint.then(returns("t-1", time.Hour))
		r.run(t, token.Refreshed)
		time.Sleep(30 * time.Minute)
		r.endpoint.then(returns("t-1", time.Minute))
		r.run(t, token.Refreshed)
	})
}

func TestRunWaitsForTheExpiryOfARepeatedToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		born, n := time.Now(), 1
		r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
			left := time.Until(born.Add(time.Hour))
			if left <= 0 {
				born, n, left = time.Now(), n+1, time.Hour
			}
			returns(fmt.Sprint("t-", n), left)(w, request)
		})
		r.run(t, token.Refreshed)
		ctx, cancel := context.WithDeadline(t.Context(), born.Add(time.Hour+15*time.Second))
		defer cancel()
		for _, test := range []struct {
			wait    time.Duration
			outcome token.Outcome
			slept   time.Duration
		}{{58 * time.Minute, token.Unchanged, 0}, {80 * time.Second, token.Refreshed, 41 * time.Second}} {
			time.Sleep(test.wait)
			start := time.Now()
			if report, err := r.refresher.Run(ctx, false); report.Outcome != test.outcome || err != nil ||
				time.Since(start) != test.slept {
				t.Fatalf("Run = %+v, %v after %s", report, err, time.Since(start))
			}
		}
	})
}

func TestConcurrentRefreshersKeepTheLaterToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		second := r.another(t)
		r.endpoint.then(func(w http.ResponseWriter, request *http.Request) {
			// While the first waits for its answer, a second one runs to its end.
			r.endpoint.then(returns("t-later", 2*time.Hour))
			if report, err := second.Run(request.Context(), false); report.Outcome != token.Refreshed {
				t.Errorf("the second: %+v, %v", report, err)
			}
			returns("t-earlier", time.Hour)(w, request)
		})
		report := r.run(t, token.Superseded)
		if report.Remaining != 2*time.Hour || r.store.saves() != 1 {
			t.Errorf("%+v after %d writes", report, r.store.saves())
		}
		expectToken(t, r.reader(), "t-later")
	})
}

func TestRefresherIsSafeForConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, returns("t-1", time.Hour))
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				if report, err := r.refresher.Run(t.Context(), false); err != nil {
					t.Errorf("Run = %+v, %v", report, err)
				}
			})
		}
		group.Wait()
		expectToken(t, r.reader(), "t-1")
	})
}

func TestReportsFailuresOfTheStores(t *testing.T) {
	for name, test := range map[string]struct {
		of    func(*rig) *source
		call  string
		known bool
	}{
		"no token is read":        {func(r *rig) *source { return &r.store }, "Load", false},
		"no credentials are read": {func(r *rig) *source { return &r.credentials }, "Load", true},
		"no token is written":     {func(r *rig) *source { return &r.store }, "Save", true},
	} {
		bubble(t, name, func(t *testing.T) {
			r, denied := newRig(t, returns("t-1", 10*time.Minute)), true
			s := test.of(r)
			s.denies(test.call, &denied)
			report, err := r.refresher.Run(t.Context(), false)
			if err == nil || err.Error() != "token: "+s.name+": AccessDeniedException" || report.Known != test.known ||
				report.Outcome != token.Failed || report.WritesTooOften != (test.call == "Save") {
				t.Errorf("%+v, %v", report, err)
			}
			expectNoCanary(t, fmt.Sprintf("%v %+v", err, err))
		})
	}
}

func TestUnsavedTokenIsStoredByALaterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, returns("t-2", time.Hour))
		r.put("t-1", time.Hour)
		time.Sleep(50 * time.Minute)
		denied := true
		r.store.denies("Save", &denied)
		for range 5 {
			if report := r.run(t, token.Failed); report.Remaining == 0 || report.WritesTooOften {
				t.Errorf("%+v, want the life of the stored token", report)
			}
			time.Sleep(time.Minute)
		}
		if n := len(r.endpoint.calls()); n != 1 {
			t.Errorf("%d calls of the endpoint in 5 runs, want 1", n)
		}
		if report, err := r.refresher.Run(t.Context(), true); err == nil || report.Calls != 1 {
			t.Errorf("a manual refresh: %+v, %v", report, err)
		}
		denied = false
		if report := r.run(t, token.Refreshed); report.Calls != 0 || report.Remaining != time.Hour {
			t.Errorf("%+v, want the token of the last call", report)
		}
		expectToken(t, r.reader(), "t-2")
	})
}

func TestAManualRefreshThatCouldNotBeStoredIsStoredByTheNextRun(t *testing.T) {
	for name, lifetime := range map[string]time.Duration{"a later one": 2 * time.Hour,
		"an earlier one": 50 * time.Minute} {
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, returns("t-2", lifetime))
			r.put("t-1", time.Hour)
			denied := true
			r.store.denies("Save", &denied)
			if report, err := r.refresher.Run(t.Context(), true); report.Outcome != token.Failed {
				t.Errorf("%+v, %v", report, err)
			}
			r.run(t, token.Failed)
			denied = false
			if report := r.run(t, token.Refreshed); report.Calls != 0 {
				t.Errorf("%+v, want the token of the manual refresh", report)
			}
			r.run(t, token.Fresh)
		})
	}
	bubble(t, "one that is due by then", func(t *testing.T) {
		r := newRig(t, returns("t-2", time.Minute), returns("t-3", time.Hour))
		r.put("t-1", time.Hour)
		time.Sleep(21 * time.Minute)
		denied := true
		r.store.denies("Save", &denied)
		if report, err := r.refresher.Run(t.Context(), true); report.Outcome != token.Failed {
			t.Errorf("%+v, %v", report, err)
		}
		time.Sleep(time.Minute)
		denied = false
		if report := r.run(t, token.Refreshed); report.Calls != 1 {
			t.Errorf("%+v, want a call", report)
		}
	})
}

// at returns a refresher of the same stores for another endpoint.
func (r *rig) at(t *testing.T, authURL, manager string, scopes ...string) *token.Refresher {
	e := token.NewEndpoint(parse(t, authURL), manager, token.EndpointOptions{Scopes: scopes})
	return token.NewRefresher(&r.store, &r.credentials, token.Direct(e, direct{r.endpoint}))
}

func TestTheTokenOfAnotherEndpointIsReplaced(t *testing.T) {
	const url, manager = "https://auth.example", "manager-1"
	for name, change := range map[string]func(*testing.T, *rig) *token.Refresher{
		"another URL":     func(t *testing.T, r *rig) *token.Refresher { return r.at(t, url+"/eu", manager) },
		"another manager": func(t *testing.T, r *rig) *token.Refresher { return r.at(t, url, "manager-2") },
		"another scope":   func(t *testing.T, r *rig) *token.Refresher { return r.at(t, url, manager, "payments") },
		"a token of a person": func(t *testing.T, r *rig) *token.Refresher {
			r.store.put(strings.Replace(value("t-1", time.Now(), time.Now().Add(24*time.Hour)),
				"endpoint_sha256", "x", 1))
			return r.at(t, url, manager)
		},
	} {
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, answers(400, ""), returns("t-2", time.Hour))
			r.put("t-1", 24*time.Hour)
			r.refresher = change(t, r)
			stored := r.store.text()
			if report := r.run(t, token.Failed); report.Remaining != 24*time.Hour {
				t.Errorf("%+v", report)
			}
			if diff := cmp.Diff(stored, r.store.text()); diff != "" {
				t.Errorf("a failure changes what is stored (-want +got):\n%s", diff)
			}
			r.run(t, token.Refreshed)
			expectToken(t, r.reader(), "t-2")
			r.run(t, token.Fresh)
		})
	}
	bubble(t, "the same token", func(t *testing.T) {
		r := newRig(t, returns("t-1", 24*time.Hour))
		r.put("t-1", 24*time.Hour)
		r.refresher = r.at(t, url, "manager-2")
		r.run(t, token.Refreshed)
		r.run(t, token.Fresh)
	})
	bubble(t, "it is stored meanwhile", func(t *testing.T) {
		r := newRig(t)
		r.endpoint.then(func(w http.ResponseWriter, q *http.Request) {
			r.put("t-1", 24*time.Hour) // by a function that has the old settings
			returns("t-2", time.Hour)(w, q)
		})
		r.refresher = r.at(t, url, "manager-2")
		r.run(t, token.Refreshed)
		expectToken(t, r.reader(), "t-2")
	})
	bubble(t, "after it was repeated", func(t *testing.T) {
		r := newRig(t, returns("t-1", 30*time.Minute))
		r.put("t-1", time.Hour)
		stored := r.store.text()
		time.Sleep(30 * time.Minute)
		r.run(t, token.Unchanged)
		r.store.put(strings.Replace(stored, digest(), strings.Repeat("0", 64), 1))
		r.run(t, token.Refreshed)
	})
}

func TestUnsavedTokenIsDiscardedWhenUseless(t *testing.T) {
	for name, test := range map[string]struct {
		lifetime time.Duration // of the unsaved token
		then     func(r *rig)
		want     token.Outcome
		calls    int
	}{
		"it is due itself":       {time.Hour, func(*rig) { time.Sleep(21 * time.Minute) }, token.Refreshed, 1},
		"a newer one was stored": {40 * time.Minute, func(r *rig) { r.put("t-3", 2*time.Hour) }, token.Fresh, 0},
	} {
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, returns("t-2", test.lifetime))
			r.put("t-1", time.Hour)
			time.Sleep(30 * time.Minute)
			denied := true
			r.store.denies("Save", &denied)
			r.run(t, token.Failed)
			denied = false
			r.endpoint.then(returns("t-4", time.Hour))
			test.then(r)
			if report := r.run(t, test.want); report.Calls != test.calls {
				t.Errorf("%+v", report)
			}
		})
	}
	bubble(t, "it was stored before", func(t *testing.T) {
		r := newRig(t, returns("t-2", time.Hour))
		denied := true
		r.store.denies("Save", &denied)
		r.run(t, token.Failed)
		denied = false
		r.run(t, token.Refreshed)
		// A person puts a token with a shorter life in its place.
		r.put("t-3", time.Minute)
		time.Sleep(50 * time.Second)
		r.endpoint.then(returns("t-4", time.Hour))
		if report := r.run(t, token.Refreshed); report.Calls == 0 {
			t.Errorf("%+v, want a call of the endpoint", report)
		}
	})
}

func TestEndpointIsCalledLessOftenWhileItRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expiry := time.Now().Add(24 * time.Hour)
		r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
			returns("t-1", time.Until(expiry))(w, request)
		})
		r.run(t, token.Refreshed)
		var asked []time.Duration // the remaining life at each call
		for calls := len(r.endpoint.calls()); time.Until(expiry) > time.Minute; {
			time.Sleep(time.Minute)
			report, err := r.refresher.Run(t.Context(), false)
			if err != nil || report.Shortfall != 0 || report.Outcome == token.Refreshed {
				t.Fatalf("%+v, %v", report, err)
			}
			if n := len(r.endpoint.calls()); n != calls {
				calls = n
				asked = append(asked, report.Remaining/time.Minute)
			}
		}
		if diff := cmp.Diff([]time.Duration{950, 475, 237, 118, 59, 29, 14, 7, 4, 3, 2, 1}, asked); diff != "" {
			t.Errorf("calls, by remaining minutes (-want +got):\n%s", diff)
		}
	})
}

func TestATokenThatExpiresEarlierDoesNotReplaceTheStoredOne(t *testing.T) {
	for name, test := range map[string]struct {
		always bool
		stored string
		issued time.Duration // of the stored token, from now on
		want   token.Outcome
	}{
		"not forced":         {false, "t-1", -21 * time.Minute, token.Unchanged},
		"forced":             {true, "t-1", -21 * time.Minute, token.Refreshed},
		"the same token":     {false, "t-2", -21 * time.Minute, token.Refreshed},
		"an expiry in doubt": {false, "t-1", 6 * time.Minute, token.Refreshed},
	} {
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, returns("t-2", 3*time.Second))
			now := time.Now()
			r.store.put(value(test.stored, now.Add(test.issued), now.Add(test.issued+time.Hour)))
			writes := 0
			if test.want == token.Refreshed {
				writes = 1
			}
			report, err := r.refresher.Run(t.Context(), test.always)
			if err != nil || report.Outcome != test.want || r.store.saves() != writes ||
				(report.Remaining == 39*time.Minute) != (writes == 0) {
				t.Errorf("%+v, %v", report, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, returns("t-2", 3*time.Second))
		r.put("t-1", time.Hour)
		time.Sleep(21 * time.Minute)
		for i, calls := range []int{1, 0} {
			if report := r.run(t, token.Unchanged); report.Calls != calls {
				t.Errorf("run %d: %+v", i, report)
			}
		}
		// Shortly before the expiry, a run waits for it.
		time.Sleep(39*time.Minute - 10*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 55*time.Second)
		defer cancel()
		if report, err := r.refresher.Run(ctx, false); err != nil || report.Outcome != token.Refreshed {
			t.Errorf("%+v, %v", report, err)
		}
	})
}

// An alarm watches the shortfall. A lifetime that needs too many versions of the secret is reported.
func TestShortfall(t *testing.T) {
	for name, test := range map[string]struct {
		lifetime, age time.Duration // zero: no token is stored
		answer        http.HandlerFunc
		outcome       token.Outcome
		shortfall     time.Duration
	}{
		"nothing is due": {time.Hour, time.Minute, hangsUp, token.Fresh, 0},
		// It is due when 66 % of its lifetime is left.
		"due for three runs": {time.Hour, 23*time.Minute + 24*time.Second, answers(400, ""), token.Failed, 0},
		"due for longer": {time.Hour, 23*time.Minute + 25*time.Second, answers(400, ""), token.Failed,
			time.Second},
		"a failure with time for three runs": {5 * time.Minute, 115 * time.Second, answers(400, ""), token.Failed, 0},
		"a failure with less": {5 * time.Minute, 116 * time.Second, answers(400, ""), token.Failed,
			time.Second},
		"a short-lived token that is not due": {2 * time.Minute, 40 * time.Second, hangsUp, token.Fresh, 0},
		"a failure with such a token": {2 * time.Minute, 42 * time.Second, answers(400, ""), token.Failed,
			1200 * time.Millisecond},
		"an expired token": {time.Hour, time.Hour, answers(400, ""), token.Failed, 2196 * time.Second},
		"a new token":      {time.Hour, time.Hour, returns("t-2", time.Hour), token.Refreshed, 0},
		"a new token that ends before the next run": {time.Hour, time.Hour, returns("t-2", 30*time.Second),
			token.Refreshed, 33 * time.Second},
		"no newer token according to the endpoint": {time.Hour, 58 * time.Minute, returns("t-1", 2*time.Minute),
			token.Unchanged, 0},
		"no token yet":                 {0, 0, answers(400, ""), token.Failed, time.Minute},
		"a short life":                 {0, 0, returns("t-1", 19*time.Minute+44*time.Second), token.Refreshed, 0},
		"of 20 minutes, answered late": {0, 0, returns("t-1", 19*time.Minute+45*time.Second), token.Refreshed, 0},
	} {
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, test.answer)
			if test.lifetime > 0 {
				r.put("t-1", test.lifetime)
			}
			time.Sleep(test.age)
			tooOften := name == "a short life" || name == "a new token that ends before the next run"
			if report := r.run(t, test.outcome); report.Shortfall != test.shortfall ||
				report.WritesTooOften != tooOften {
				t.Errorf("%+v, want a shortfall of %s", report, test.shortfall)
			}
		})
	}
}

func TestOnlyTheSameTokenDelaysACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, returns("t-1", 30*time.Minute))
		r.put("t-1", time.Hour)
		time.Sleep(30 * time.Minute)
		for i, want := range []int{1, 0} {
			if report := r.run(t, token.Unchanged); report.Calls != want {
				t.Errorf("run %d: %+v", i, report)
			}
		}
		r.refresher = r.another(t) // without memory
		if report := r.run(t, token.Unchanged); report.Calls != 1 {
			t.Errorf("%+v, want a call", report)
		}
		r.store.put(value("t-0", time.Now().Add(-time.Hour), time.Now().Add(10*time.Minute)))
		if report := r.run(t, token.Refreshed); report.Calls != 1 {
			t.Errorf("%+v, want a call", report)
		}
	})
}
