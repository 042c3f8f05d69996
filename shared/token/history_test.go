package token_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"payhook.example/shared/token"
)

// step is what happens before a run of the refresher, in the order of the members, and what the run does.
type step struct {
	put    string // a person stores this token, with a life of one hour
	do     func(*rig)
	fails  map[string]error // calls of the store from now on; nil: as before
	answer http.HandlerFunc // of the endpoint from now on; nil: as before
	wait   time.Duration
	always bool

	stored     string        // the token that the run stores; "": none
	want       token.Outcome // "": Refreshed
	calls      int           // of the endpoint
	next       time.Duration // until Report.NextCall; zero: it is zero
	last       string        // Report.LastFailure; "": nil
	unreadable bool          // Report.Unreadable
}

// play runs the refresher for each step.
func play(t *testing.T, r *rig, steps []step) {
	for i, step := range steps {
		if step.put != "" {
			r.put(step.put, time.Hour)
		}
		if step.do != nil {
			step.do(r)
		}
		if step.fails != nil {
			r.store.fails = step.fails
		}
		if step.answer != nil {
			r.endpoint.then(step.answer)
		}
		time.Sleep(step.wait)
		if step.stored != "" {
			step.want = cmp.Or(step.want, token.Refreshed)
		}
		start, before := time.Now(), r.store.text()
		report, err := r.refresher.Run(t.Context(), step.always)
		var stored struct {
			Access  string    `json:"access_token"`
			Expires time.Time `json:"expires_at"`
		}
		_ = json.Unmarshal([]byte(r.store.text()), &stored)
		if report.Outcome != step.want || report.Calls != step.calls || time.Since(start) != 0 ||
			report.NextCall.IsZero() != (step.next == 0) || step.next > 0 && time.Until(report.NextCall) != step.next ||
			(step.last == "") != (report.LastFailure == nil) ||
			!strings.Contains(fmt.Sprint(report.LastFailure), step.last) ||
			(err != nil) != (step.want == token.Failed) || (report.Unreadable != nil) != step.unreadable ||
			report.Known && report.Remaining != max(0, time.Until(stored.Expires)) {
			t.Fatalf("step %d: %+v, %v after %s, want %+v", i, report, err, time.Since(start), step)
		}
		if (step.stored == "") != (r.store.text() == before) || step.stored != "" && step.stored != stored.Access {
			t.Fatalf("step %d: stored is %s, want %q", i, stored.Access, step.stored)
		}
	}
}

// at returns what replaces the refresher by one of another endpoint.
func at(t *testing.T, authURL, manager string, scopes ...string) func(*rig) {
	e := token.NewEndpoint(parse(t, authURL), manager, token.EndpointOptions{Scopes: scopes})
	return func(r *rig) {
		r.refresher = token.NewRefresher(&r.store, &r.credentials, token.Direct(e, direct{r.endpoint}))
	}
}

// storedWith returns what stores a token that is issued and expires so much later.
func storedWith(access string, issued, expires time.Duration) func(*rig) {
	return func(r *rig) { r.store.put(value(access, time.Now().Add(issued), time.Now().Add(expires))) }
}

// meanwhile returns what makes the endpoint give an answer before which another refresher stores a token.
func meanwhile(access string, lifetime time.Duration, answer http.HandlerFunc) func(*rig) {
	return func(r *rig) {
		r.endpoint.then(func(w http.ResponseWriter, q *http.Request) {
			r.put(access, lifetime)
			answer(w, q)
		})
	}
}

// credentials returns what stores other client credentials.
func credentials(id, secret string) func(*rig) {
	return func(r *rig) { r.credentials.put(fmt.Sprintf(`{"client_id":%q,"client_secret":%q}`, id, secret)) }
}

func TestHistoriesOfTheStoredToken(t *testing.T) {
	const url, manager = "https://auth.example", "manager-1"
	save, load, none := map[string]error{"Save": denied}, map[string]error{"Load": unreadable}, map[string]error{}
	both := map[string]error{"Save": denied, "Load": unreadable}
	const second, minute, hour = time.Second, time.Minute, time.Hour
	histories := map[string][]step{
		"the endpoint returns the token again": {
			{answer: returns("t-1", hour), calls: 1, stored: "t-1"},
			// "remaining lifetime" (section 2.1)
			{wait: 30 * minute, answer: returns("t-1", 30*minute-second), want: token.Unchanged, calls: 1},
			{want: token.Unchanged},
			// A refresher without memory.
			{do: at(t, url, manager), want: token.Unchanged, calls: 1},
			// With another expiry it is written.
			{wait: 15 * minute, answer: returns("t-1", hour), calls: 1, stored: "t-1"},
			{wait: 30 * minute, answer: returns("t-1", minute), calls: 1, stored: "t-1"},
		},
		"a token that could not be stored is stored later": {
			{put: "t-1", fails: save, answer: returns("t-2", hour), wait: 50 * minute, want: token.Failed, calls: 1},
			{wait: minute, want: token.Failed},
			{wait: minute, want: token.Failed},
			{always: true, want: token.Failed, calls: 1},
			{fails: none, stored: "t-2"},
			{want: token.Fresh},
		},
		"but not if it is due by then": {
			{put: "t-1", fails: save, answer: returns("t-2", minute), wait: 21 * minute, always: true,
				want: token.Failed, calls: 1},
			{fails: none, answer: returns("t-3", hour), wait: minute, calls: 1, stored: "t-3"},
		},
		"nor if a newer one was stored": {
			{put: "t-1", fails: save, answer: returns("t-2", 40*minute), wait: 30 * minute,
				want: token.Failed, calls: 1},
			{put: "t-3", fails: none, want: token.Fresh},
		},
		"nor if it was stored before": {
			{fails: save, answer: returns("t-2", hour), want: token.Failed, calls: 1},
			{fails: none, stored: "t-2"},
			{put: "t-3", answer: returns("t-4", hour), wait: 21 * minute, calls: 1, stored: "t-4"},
		},
		"the token of another endpoint is replaced by the same one": {
			{put: "t-1", do: at(t, url, "manager-2"), answer: returns("t-1", hour), calls: 1, stored: "t-1"},
			{want: token.Fresh},
		},
		"it is replaced though it is stored meanwhile": {
			{do: func(r *rig) {
				at(t, url, "manager-2")(r)
				meanwhile("t-1", 24*hour, returns("t-2", hour))(r) // by a function that has the old settings
			}, calls: 1, stored: "t-2"},
		},
		"a later token that another refresher stores meanwhile is kept": {
			{do: meanwhile("t-2", 2*hour, returns("t-1", hour)), want: token.Superseded, calls: 1, stored: "t-2"},
			{want: token.Fresh},
		},
		"an earlier one is replaced": {
			{do: meanwhile("t-2", 30*minute, returns("t-1", hour)), calls: 1, stored: "t-1"},
		},
		"it is replaced after it was repeated": {
			{put: "t-1", wait: 30 * minute, answer: returns("t-1", 30*minute), want: token.Unchanged, calls: 1},
			{do: func(r *rig) {
				r.store.put(strings.Replace(r.store.text(), digest(), strings.Repeat("0", 64), 1))
			}, calls: 1, stored: "t-1"},
		},
		"every run calls in the last 4 minutes": {
			{put: "t-1", wait: 55 * minute, answer: returns("t-1", 5*minute), want: token.Unchanged, calls: 1},
			{wait: 59 * second, want: token.Unchanged},
			{wait: second, answer: returns("t-1", 4*minute), want: token.Unchanged, calls: 1},
			{wait: minute, answer: returns("t-1", 3*minute), want: token.Unchanged, calls: 1},
		},
		"a token that expires earlier is not stored, until the expiry": {
			{put: "t-1", wait: 21 * minute, answer: returns("t-2", 3*second), want: token.Unchanged, calls: 1},
			{want: token.Unchanged},
			{wait: 39*minute - 10*second, want: token.Unchanged, calls: 1},
			{wait: minute, calls: 1, stored: "t-2"},
		},
		"it is stored by a manual refresh": {
			{put: "t-1", wait: 21 * minute, answer: returns("t-2", 3*second), always: true, calls: 1, stored: "t-2"},
		},
		"it is stored if the issue of the other is in the future": {
			{do: storedWith("t-1", 6*minute, 66*minute), answer: returns("t-2", 3*second), calls: 1, stored: "t-2"},
		},
		// The key of a parameter is another one now, or no more.
		"a text that cannot be read is replaced": {
			{answer: returns("t-1", hour), calls: 1, stored: "t-1"},
			{fails: load, answer: returns("t-2", hour), calls: 1, stored: "t-2", unreadable: true},
			{fails: none, want: token.Fresh},
			{fails: load, answer: returns("t-3", hour), always: true, calls: 1, stored: "t-3", unreadable: true},
		},
		"it is replaced when it can be written": {
			{fails: both, answer: returns("t-1", hour), want: token.Failed, calls: 1, unreadable: true},
			{fails: load, stored: "t-1", unreadable: true},
		},
		"it is replaced once, until the token is due": {
			{fails: load, answer: returns("t-1", hour), calls: 1, stored: "t-1", unreadable: true},
			{wait: minute, want: token.Failed},
			{wait: minute, want: token.Failed},
			{always: true, calls: 1, stored: "t-1", unreadable: true},
			{wait: 21 * minute, calls: 1, stored: "t-1", unreadable: true},
			{fails: none, want: token.Fresh},
			{fails: load, wait: minute, calls: 1, stored: "t-1", unreadable: true},
		},
	}
	const code, invalid = "answered 401 invalid_client", "has a client_id with a colon"
	refuses := answers(401, `{"error":"invalid_client"}`)
	limits := answers(429, "", "Retry-After", "3600")
	pauses := step{put: "t-1", wait: 30 * minute, answer: refuses, want: token.Failed, calls: 1, next: minute}
	maps.Copy(histories, map[string][]step{
		"a pause ends when the token has 4 minutes left": {
			{put: "t-1", wait: 50 * minute, answer: limits, want: token.Failed, calls: 1, next: 6 * minute},
			{wait: 5 * minute, want: token.Failed, next: minute},
			// This pause begins later.
			{wait: minute, want: token.Failed, calls: 1, next: hour},
			{wait: 4 * minute, want: token.Failed, next: 56 * minute},
			{wait: 55 * minute, want: token.Failed, next: minute},
			// So does one without a token.
			{wait: minute, want: token.Failed, calls: 1, next: hour},
			{wait: hour - second, want: token.Failed, next: second},
			{wait: second, answer: returns("t-2", hour), calls: 1, stored: "t-2"},
		},
		"a pause ends 4 minutes before the expiry of a token that is stored meanwhile": {
			{do: storedWith("t-1", -50*minute, 5*minute), answer: limits, want: token.Failed, calls: 1, next: minute},
			{do: storedWith("t-2", -50*minute, 10*minute), want: token.Failed, next: 6 * minute},
		},
		"a pause ends with other credentials, and begins anew": {
			pauses,
			{wait: minute, want: token.Failed, calls: 1, next: 2 * minute},
			{do: credentials("client-2", "s"), want: token.Failed, calls: 1, next: minute},
			{do: credentials("client-2", "s"), want: token.Failed, next: minute},
			// They are reported instead of the endpoint, and do not end it.
			{do: credentials("client:3", "s"), want: token.Failed, next: minute},
			{do: credentials("client-2", "s"), want: token.Failed, next: minute},
			{do: credentials("client-2", "t"), answer: returns("t-2", hour), calls: 1, stored: "t-2"},
		},
		"a pause ends with a refresh by a person": {
			pauses,
			{always: true, want: token.Failed, calls: 1, next: minute},
			{wait: second, always: true, answer: answers(503, ""), want: token.Failed, calls: 1},
			{answer: returns("t-2", hour), calls: 1, stored: "t-2"},
			{wait: 30 * minute, answer: refuses, want: token.Failed, calls: 1, next: minute},
		},
		"an outage does not end a pause that doubles": {
			pauses,
			{wait: minute, answer: hangsUp, want: token.Failed, calls: 1},
			{wait: minute, answer: refuses, want: token.Failed, calls: 1, next: 2 * minute},
		},
		"a failure is reported until the next success": {
			{put: "t-1", answer: refuses, always: true, want: token.Failed, calls: 1, next: minute},
			{want: token.Fresh, last: code, next: minute},
			{wait: minute, want: token.Fresh, last: code},
			{do: credentials("client:1", "s"), always: true, want: token.Failed},
			{wait: minute, want: token.Fresh, last: invalid},
			{do: credentials("client-1", "s"), answer: returns("t-2", hour), always: true, calls: 1, stored: "t-2"},
			{want: token.Fresh},
		},
		"a failure is not reported of a token that is stored later": {
			{put: "t-1", answer: refuses, always: true, want: token.Failed, calls: 1, next: minute},
			{put: "t-2", wait: minute, want: token.Fresh},
		},
	})
	for name, change := range map[string]func(*rig){
		"another URL":     at(t, url+"/eu", manager),
		"another manager": at(t, url, "manager-2"),
		"another scope":   at(t, url, manager, "payments"),
		"a person": func(r *rig) {
			r.store.put(strings.Replace(r.store.text(), "endpoint_sha256", "x", 1))
		},
	} {
		histories["the token of "+name+" is replaced"] = []step{
			{put: "t-1", do: change, answer: answers(500, ""), want: token.Failed, calls: 1},
			{answer: returns("t-2", 50*minute), calls: 1, stored: "t-2"},
			{want: token.Fresh},
		}
	}
	for name, steps := range histories {
		bubble(t, name, func(t *testing.T) { play(t, newRig(t, hangsUp), steps) })
	}
}

// service is a token endpoint with an outage.
type service struct {
	lifetime time.Duration
	takes    time.Duration // an answer
	repeats  bool          // it returns the same token until its expiry
	from, to time.Time
	issued   int
	expires  time.Time
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	time.Sleep(s.takes)
	now := time.Now()
	if now.After(s.from) && now.Before(s.to) {
		answers(http.StatusServiceUnavailable, "")(w, r)
		return
	}
	if !s.repeats || s.expires.Sub(now) < time.Second {
		s.issued++
		s.expires = now.Add(s.lifetime)
	}
	returns(fmt.Sprint("t-", s.issued), s.expires.Sub(now))(w, r)
}

// withoutToken returns the longest time for which a caller had no token, with an outage in the second of three
// lifetimes. The refresher runs every minute, every second time late.
func (s *service) withoutToken(t *testing.T, limited bool, late, begin, outage time.Duration) (longest time.Duration) {
	r := newRig(t, s.ServeHTTP)
	r.store.limited = limited
	start, reader := time.Now(), r.reader()
	s.from = start.Add(s.lifetime + begin)
	s.to = s.from.Add(outage)
	r.run(t, token.Refreshed)
	var runs sync.WaitGroup
	runs.Go(func() {
		for n := time.Duration(1); n < 3*s.lifetime/time.Minute; n++ {
			time.Sleep(time.Until(start.Add(n*time.Minute + n%2*late)))
			ctx, cancel := context.WithTimeout(t.Context(), 55*time.Second)
			_, _ = r.refresher.Run(ctx, false)
			cancel()
		}
	})
	for last := start; time.Since(start) < 3*s.lifetime; time.Sleep(time.Second) {
		if got, err := reader.Token(); err != nil {
			longest = max(longest, time.Since(last))
		} else if last = time.Now(); !got.Expiry.After(last) {
			t.Errorf("%s is returned after its expiry", got.AccessToken)
		}
	}
	runs.Wait()
	return longest
}

// events/README.md states which outages callers do not notice, whenever they begin.
func TestCallersHaveATokenAtAllTimes(t *testing.T) {
	for _, test := range []struct {
		limited   bool
		lifetime  time.Duration
		refreshAt time.Duration // the remaining life
	}{
		{true, 2 * time.Minute, 79 * time.Second},
		{true, 5 * time.Minute, 198 * time.Second},
		{true, 10 * time.Minute, 4 * time.Minute},
		{true, 19 * time.Minute, 4 * time.Minute},
		{true, 40 * time.Minute, 24 * time.Minute},
		{true, time.Hour, 2376 * time.Second},
		{false, 3 * time.Minute, 150 * time.Second},
		{false, 10 * time.Minute, 396 * time.Second},
	} {
		// A run counts that ends before the last 5 s of the token. All of them but one may fail.
		outage := ((test.refreshAt-8*time.Second)/time.Minute - 1) * time.Minute
		check := func(name string, repeats bool, late, begin, outage, least, most time.Duration) {
			t.Run(fmt.Sprint(test.limited, " ", test.lifetime, " ", name), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := &service{lifetime: test.lifetime, takes: 3 * time.Second, repeats: repeats}
					without := s.withoutToken(t, test.limited, late, begin, outage)
					if without < least || without > most {
						t.Errorf("no token for %s", without)
					}
				})
			})
		}
		for part := range time.Duration(12) {
			begin := part*test.lifetime/12 + 7*time.Second
			check(begin.String(), false, 0, begin, outage, 0, 0)
		}
		if test.lifetime > 2*time.Minute {
			check("late runs", false, 50*time.Second, 0, 0, 0, 0)
		}
		check("a longer outage", false, 0, 0, test.lifetime+time.Minute, time.Second, time.Hour)
		check("the same token until its end", true, 0, 0, 0, time.Second, time.Minute)
	}
}
