package token_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
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
			puts := r.store.calls["Save"]
			if n := 7 * 24 * int(time.Hour/lifetime); len(puts) < n || len(puts) > 7*24*60 {
				t.Errorf("%d writes", len(puts))
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

// The key of the parameter is another one now, or no more.
func TestAParameterThatCannotBeReadIsWrittenAgain(t *testing.T) {
	// unreadable makes reads fail while denied is true. A text that is saved in place of the one there can be read.
	unreadable := func(r *rig, denied *bool) {
		r.store.before = func(call string) error {
			if *denied && call == "Load" {
				return &token.StoreError{Store: "the token", Err: errors.New("InvalidKeyId"), Replaceable: true}
			}
			return nil
		}
	}
	for _, always := range []bool{false, true} {
		bubble(t, fmt.Sprint(always), func(t *testing.T) {
			r := newParameterRig(t, returns("t-1", time.Hour), returns("t-2", time.Hour))
			r.run(t, token.Refreshed)
			time.Sleep(time.Minute)
			denied := true
			unreadable(r, &denied)
			report, err := r.refresher.Run(t.Context(), always)
			if report.Outcome != token.Refreshed || err != nil ||
				fmt.Sprint(report.Unreadable) != "token: the token: InvalidKeyId" {
				t.Errorf("%+v, %v", report, err)
			}
			denied = false
			expectToken(t, r.reader(), "t-2")
			if report := r.run(t, token.Fresh); report.Unreadable != nil {
				t.Errorf("%+v", report)
			}
		})
	}
	bubble(t, "it cannot be written at first", func(t *testing.T) {
		r, readable, denied := newParameterRig(t, returns("t-1", time.Hour)), true, true
		unreadable(r, &readable)
		fails := r.store.before
		r.store.before = func(call string) error {
			if call == "Save" && denied {
				return r.store.denied()
			}
			return fails(call)
		}
		r.run(t, token.Failed)
		denied = false
		if report := r.run(t, token.Refreshed); report.Calls != 0 {
			t.Errorf("%+v", report)
		}
	})
	bubble(t, "it stays so", func(t *testing.T) {
		r, denied := newParameterRig(t, returns("t-1", time.Hour)), true
		unreadable(r, &denied)
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
