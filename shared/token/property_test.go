package token_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"payhook.example/shared/token"
)

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
