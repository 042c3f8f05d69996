package token_test

import (
	"context"
	"fmt"
	"net/http"
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

// withoutToken runs the refresher every minute for three lifetimes, with an outage in the
// second, and returns the longest time for which a caller had no token.
func (s *service) withoutToken(t *testing.T, begin, outage time.Duration) (longest time.Duration) {
	r := newRig(t, s.ServeHTTP)
	start := time.Now()
	s.from, s.to = start.Add(s.lifetime+begin), start.Add(s.lifetime+begin+outage)
	r.run(t, token.Refreshed)
	end, reader := start.Add(3*s.lifetime), r.reader()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for at := start.Add(time.Minute); at.Before(end); at = at.Add(time.Minute) {
			time.Sleep(time.Until(at))
			ctx, cancel := context.WithDeadline(t.Context(), at.Add(55*time.Second))
			_, _ = r.refresher.Run(ctx, false)
			cancel()
		}
	}()
	for last := time.Now(); time.Now().Before(end); time.Sleep(time.Second) {
		if got, err := reader.Token(); err != nil {
			longest = max(longest, time.Since(last))
		} else if last = time.Now(); !got.Expiry.After(last) {
			t.Errorf("%s is returned after its expiry", got.AccessToken)
		}
	}
	<-done
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
	for lifetime, refreshAt := range map[time.Duration]time.Duration{
		2 * time.Minute: 79 * time.Second, 5 * time.Minute: 198 * time.Second, 10 * time.Minute: 4 * time.Minute,
		19 * time.Minute: 4 * time.Minute, 40 * time.Minute: 24 * time.Minute, time.Hour: 39*time.Minute +
			36*time.Second,
	} {
		// A run counts that ends before the last 5 s of the token. All of them but one may fail.
		runs := (refreshAt - 8*time.Second) / time.Minute
		for part := range time.Duration(12) {
			begin := part*lifetime/12 + 7*time.Second
			parallelBubble(t, fmt.Sprint(lifetime, " ", begin), func(t *testing.T) {
				s := &service{lifetime: lifetime, takes: 3 * time.Second}
				if without := s.withoutToken(t, begin, (runs-1)*time.Minute); without > 0 {
					t.Errorf("no token for %s", without)
				}
			})
		}
		parallelBubble(t, fmt.Sprint(lifetime, " a longer outage"), func(t *testing.T) {
			s := &service{lifetime: lifetime, takes: 3 * time.Second}
			if without := s.withoutToken(t, 0, lifetime+time.Minute); without == 0 {
				t.Error("callers have a token, although no run can replace it")
			}
		})
		parallelBubble(t, fmt.Sprint(lifetime, " the same token until its end"), func(t *testing.T) {
			s := &service{lifetime: lifetime, takes: 3 * time.Second, repeats: true}
			if without := s.withoutToken(t, 0, 0); without == 0 || without > time.Minute {
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
				r := newRig(t, s.ServeHTTP)
				r.run(t, token.Refreshed)
				start, late := time.Now(), 0
				if fails {
					s.from, s.to = start, start.Add(24*time.Hour)
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					for run := range time.Duration(3 * lifetime / time.Minute) {
						time.Sleep(time.Until(start.Add(run*time.Minute + run%2*50*time.Second)))
						ctx, cancel := context.WithTimeout(t.Context(), 55*time.Second)
						_, _ = r.refresher.Run(ctx, false)
						cancel()
					}
				}()
				for time.Since(start) < 3*lifetime-time.Minute {
					time.Sleep(time.Second)
					b, err := r.reader().Bearer(t.Context()) // another Reader would return what it holds
					if err != nil && !fails {
						t.Error(err)
					}
					if err == nil && b.Late(time.Now()) {
						late++
					}
				}
				<-done
				if want := fails && lifetime > 3*time.Minute; (late > 0) != want {
					t.Errorf("it is late for %d s", late)
				}
			})
		}
	}
}
