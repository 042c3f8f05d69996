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

// schedule runs the refresher every minute for three lifetimes, every second run with a delay, and calls each every
// second.
func (s *service) schedule(t *testing.T, r *rig, delay time.Duration, each func()) {
	start := time.Now()
	r.run(t, token.Refreshed)
	var runs sync.WaitGroup
	runs.Go(func() {
		for n := time.Duration(1); n < 3*s.lifetime/time.Minute; n++ {
			time.Sleep(time.Until(start.Add(n*time.Minute + n%2*delay)))
			ctx, cancel := context.WithTimeout(t.Context(), 55*time.Second)
			_, _ = r.refresher.Run(ctx, false)
			cancel()
		}
	})
	for ; time.Since(start) < 3*s.lifetime; time.Sleep(time.Second) {
		each()
	}
	runs.Wait()
}

// withoutToken returns the longest time for which a caller had no token, with an outage in the second of three
// lifetimes.
func (s *service) withoutToken(t *testing.T, limited bool, begin, outage time.Duration) (longest time.Duration) {
	r := newRig(t, s.ServeHTTP)
	r.store.limited = limited
	last, reader := time.Now(), r.reader()
	s.from = last.Add(s.lifetime + begin)
	s.to = s.from.Add(outage)
	s.schedule(t, r, 0, func() {
		if got, err := reader.Token(); err != nil {
			longest = max(longest, time.Since(last))
		} else if last = time.Now(); !got.Expiry.After(last) {
			t.Errorf("%s is returned after its expiry", got.AccessToken)
		}
	})
	return longest
}

// parallelBubble runs a subtest in a bubble, at the same time as others.
func parallelBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	})
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
		name := fmt.Sprint(test.limited, " ", test.lifetime)
		// A run counts that ends before the last 5 s of the token. All of them but one may fail.
		runs := (test.refreshAt - 8*time.Second) / time.Minute
		for part := range time.Duration(12) {
			begin := part*test.lifetime/12 + 7*time.Second
			parallelBubble(t, fmt.Sprint(name, " ", begin), func(t *testing.T) {
				s := &service{lifetime: test.lifetime, takes: 3 * time.Second}
				if without := s.withoutToken(t, test.limited, begin, (runs-1)*time.Minute); without > 0 {
					t.Errorf("no token for %s", without)
				}
			})
		}
		parallelBubble(t, name+" a longer outage", func(t *testing.T) {
			s := &service{lifetime: test.lifetime, takes: 3 * time.Second}
			if without := s.withoutToken(t, test.limited, 0, test.lifetime+time.Minute); without == 0 {
				t.Error("callers have a token, although no run can replace it")
			}
		})
		parallelBubble(t, name+" the same token until its end", func(t *testing.T) {
			s := &service{lifetime: test.lifetime, takes: 3 * time.Second, repeats: true}
			if without := s.withoutToken(t, test.limited, 0, 0); without == 0 || without > time.Minute {
				t.Errorf("no token for %s", without)
			}
		})
	}
}

// Runs start up to 50 s late, and an answer takes 3 s. A failure is reported while callers still have a token.
func TestATokenIsLateOnlyIfRefreshesFail(t *testing.T) {
	for _, lifetime := range []time.Duration{3 * time.Minute, 5 * time.Minute, 10 * time.Minute, 21 * time.Minute,
		time.Hour} {
		for _, fails := range []bool{false, true} {
			parallelBubble(t, fmt.Sprint(lifetime, " ", fails), func(t *testing.T) {
				s := &service{lifetime: lifetime, takes: 3 * time.Second}
				if fails {
					s.from, s.to = time.Now().Add(10*time.Second), time.Now().Add(24*time.Hour)
				}
				r, late := newRig(t, s.ServeHTTP), 0
				s.schedule(t, r, 50*time.Second, func() {
					b, err := r.reader().Bearer(t.Context()) // another Reader would return what it holds
					if err != nil && !fails {
						t.Error(err)
					}
					if err == nil && b.Late(time.Now()) {
						late++
					}
				})
				if want := fails && lifetime > 3*time.Minute; (late > 0) != want {
					t.Errorf("it is late for %d s", late)
				}
			})
		}
	}
}
