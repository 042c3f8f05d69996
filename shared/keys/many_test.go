package keys

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// The caches have no key, or the old one that the service had under the id.
func TestARotationRejectsNoWebhookOfAKnownSender(t *testing.T) {
	for _, c := range []struct {
		rate, caches int
		takes        time.Duration
	}{{500, 175, 300 * time.Millisecond}, {50, 150, 2500 * time.Millisecond}} {
		for _, sameID := range []bool{false, true} {
			run(t, c.caches, func(w *world) {
				w.takes = c.takes
				w.all[0].RecordSender(w.Context(), sender)
				key := generated(0)
				if sameID {
					for _, p := range w.all {
						_, _ = w.lookup(p, id, key, stranger)
					}
					time.Sleep(2 * time.Minute)
					key = generated(1)
					w.publish(id, key)
				}
				calls, leases := w.calls.Load(), w.count("Put")
				rejected := w.rate(c.rate, 4*time.Second, always(id), key, sender)
				calls, leases = w.calls.Load()-calls, w.count("Put")-leases
				if len(rejected) > 0 || calls != 1 || leases > 20 {
					w.Errorf("%+v: %d rejected, %v; %d requests, %d writes", c, len(rejected), rejected, calls, leases)
				}
			})
		}
	}
}

// No cache asks while another one does, and all ask once when the copies become stale.
func TestProcessesAskOnceAnHour(t *testing.T) {
	run(t, 100, func(w *world) {
		for _, p := range w.all {
			_, _ = w.lookup(p, id, nil, sender)
		}
		if n := w.calls.Load(); n != 1 {
			w.Errorf("%d requests at the start", n)
		}
		puts := w.count("Put")
		longest := 0
		for range 3 * 60 { // each cache has a webhook every minute
			time.Sleep(time.Minute)
			gets := w.count("Get")
			var all sync.WaitGroup
			for _, p := range w.all {
				all.Go(func() {
					if found, err := w.lookup(p, id, nil, sender); err != nil || found.Withdrawn {
						w.Error(found, err)
					}
				})
			}
			all.Wait()
			longest = max(longest, w.count("Get")-gets)
		}
		calls, puts := w.calls.Load(), w.count("Put")-puts
		if calls > 5 || w.others.Load() > 0 || puts > 150 || longest > 80 {
			w.Errorf("%d requests, %d at the same time, %d writes, %d reads in a minute", calls, w.others.Load(), puts,
				longest)
		}
	})
}

// The service must not have failed for a second time, after which it is asked again a second later.
func TestAFailureOfTheFirstRequestRejectsOneWebhook(t *testing.T) {
	run(t, 175, func(w *world) {
		w.all[0].RecordSender(w.Context(), sender)
		w.answer = func(string) string {
			if w.calls.Load() == 1 {
				return "502"
			}
			return ""
		}
		rejected := w.rate(500, 3*time.Second, always(id), generated(0), sender)
		if len(rejected) != 1 || w.calls.Load() != 2 {
			w.Errorf("%d rejected, %v; %d requests", len(rejected), rejected, w.calls.Load())
		}
	})
}

// Strangers have used up the budget, and go on.
func TestStrangersDoNotKeepANewKeyFromAKnownSender(t *testing.T) {
	const letters = "abcdefab-cdef-4bcd-8fab-cdefabcdefab"
	spelling := func(n int) string {
		text := []byte(letters)
		for i, bit := 0, n+1; bit > 0; i++ {
			if text[i] >= 'a' {
				text[i] -= byte(bit & 1 * ('a' - 'A'))
				bit >>= 1
			}
		}
		return string(text)
	}
	for name, c := range map[string]struct {
		rate int
		id   func(int) string
	}{
		"the same id":     {100, always(letters)},
		"other spellings": {125, spelling},
		"other ids":       {500, invented},
	} {
		for _, takes := range []time.Duration{10 * time.Millisecond, 300 * time.Millisecond} {
			run(t, 225, func(w *world) {
				all := w.all
				all[0].RecordSender(w.Context(), sender)
				w.takes, w.keys[letters] = takes, &generated(0).PublicKey
				if c.rate == 100 {
					time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
					w.all = all[:20]
					w.rate(400, time.Second, invented, nil, stranger)
					delete(w.asked, letters)
				}
				var strangers sync.WaitGroup
				w.all = all[:50]
				strangers.Go(func() {
					(&world{T: w.T, all: all[:50]}).rate(c.rate, 4*time.Second, c.id, nil, stranger)
				})
				time.Sleep(time.Second)
				w.all = all[50:]
				rejected := w.rate(500, 3*time.Second, always(letters), generated(0), sender)
				strangers.Wait()
				if len(rejected) > 0 || w.calls.Load() > 121 {
					w.Errorf("%s, %s: %d rejected, %v; %d requests", name, takes, len(rejected), rejected,
						w.calls.Load())
				}
			})
		}
	}
}

func TestForgedSignaturesCauseOneRequestAMinute(t *testing.T) {
	for answer, want := range map[string]int32{"": 11, "404": 55, "502": 55, "429 60": 11} {
		run(t, 5, func(w *world) {
			_, _ = w.lookup(w.all[0], id, nil, stranger)
			w.say(answer)
			w.rate(20, 10*time.Minute-time.Second, always(id), generated(1), stranger)
			if n := w.calls.Load(); n > want || n < want-6 {
				w.Errorf("%s: %d requests, want %d", answer, n, want)
			}
		})
	}
}

func TestCallersOfOneProcessMakeOneRequest(t *testing.T) {
	run(t, 1, func(w *world) {
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if found, err := w.lookup(w.all[0], id, generated(0), stranger); err != nil {
					w.Error(found, err)
				}
			})
		}
		all.Wait()
		if w.calls.Load() != 1 || w.count("Take") != 1 || w.count("Put") != 2 {
			w.Errorf("%d requests, %v", w.calls.Load(), w.counts)
		}
	})
}

// The caller whose context ends gives the question back. Another one asks at once, and does not get its error.
func TestALookupEndsWithItsContext(t *testing.T) {
	run(t, 2, func(w *world) {
		w.takes = 2 * time.Second
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		for _, p := range w.all {
			all.Go(func() {
				time.Sleep(500 * time.Millisecond)
				if _, err := w.lookup(p, id, generated(0), stranger); err != nil {
					w.Error(err)
				}
			})
		}
		begin := time.Now()
		_, err := w.all[0].Lookup(ctx, id, stranger)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrUnavailable) ||
			time.Since(begin) > time.Second+20*time.Millisecond {
			w.Errorf("%v after %s", err, time.Since(begin))
		}
		all.Wait()
		if n := w.calls.Load(); n != 2 {
			w.Errorf("%d requests", n)
		}
	})
}

// A cache that stopped while it asked delays the others until its lease ends. They read after pauses with jitter.
func TestWhoWaitsAsksWhenTheLeaseEnds(t *testing.T) {
	run(t, 2, func(w *world) {
		lease := Record{ID: itemID, Version: "dead", AskedAs: id, LeasedUntil: time.Now().Add(3 * time.Second)}
		_, _, _ = w.Memory.Put(w.Context(), lease, "")
		time.Sleep(time.Second)
		var limits []time.Duration
		w.all[0].opts.Random = func(limit time.Duration) time.Duration {
			limits = append(limits, limit)
			return limit / 2
		}
		begin := time.Now()
		found, err := w.lookup(w.all[0], id, generated(0), stranger)
		took := time.Since(begin)
		if err != nil || found.Source != Service || took < 2*time.Second || took > 3*time.Second ||
			fmt.Sprint(limits) != "[50ms 100ms 200ms 250ms 250ms 250ms]" {
			w.Errorf("%+v, %v after %s, jitter below %s", found, err, took, limits)
		}
	})
}

// The clock of the cache that stopped is 4 minutes ahead: its lease, or its answer, holds no longer than another one
// from when a cache has first seen it.
func TestAClockThatIsAheadDelaysNoOneForLong(t *testing.T) {
	for answer, longest := range map[State]time.Duration{None: 3 * time.Second, Unknown: time.Minute} {
		run(t, 1, func(w *world) {
			r := Record{ID: itemID, Version: "1", AskedAs: id, Answer: answer,
				LeasedUntil: time.Now().Add(4 * time.Minute)}
			_, _, _ = w.Memory.Put(w.Context(), r, "")
			for begin := time.Now(); ; time.Sleep(time.Second) {
				_, err := w.lookup(w.all[0], id, generated(0), stranger)
				took := time.Since(begin)
				if err == nil && took < longest || err != nil && took > longest+2*time.Second {
					w.Fatalf("%q: %v after %s", answer, err, took)
				}
				if err == nil {
					break
				}
			}
		})
	}
}

// A key that came while the cache was frozen for longer than keys are used is no key.
func TestAProcessThatIsFrozenForLongUsesNoOldKey(t *testing.T) {
	var frozen time.Duration
	run(t, 1, func(w *world) {
		w.answer = func(string) string { frozen = time.Hour; return "" }
		found, err := w.lookup(w.all[0], id, nil, sender)
		r, _ := w.Memory.Get(w.Context(), itemID)
		if got := result(found, err, 1); got != "unavailable endpoint 1" || r.Answer != Unavailable {
			w.Errorf("%s, %+v", got, r)
		}
	}, func(o *Options) {
		o.MaxAge = time.Hour
		o.Now = func() time.Time { return time.Now().Add(frozen) }
	})
}

// A cache that is frozen after its request finds that another one has leased the question, or has an answer.
func TestAKeyIsWrittenByWhoeverGotIt(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile Record
		mode      string // what the service answers
		want      State
	}{
		"a key over a lease":              {Record{AskedAs: spellings[1]}, "", Fresh},
		"a key over another answer":       {Record{AskedAs: spellings[1], Answer: Unknown}, "", Fresh},
		"a key over a later removal":      {Record{Answer: Unknown, UnknownSince: start}, "", Removed},
		"an answer over a lease":          {Record{AskedAs: spellings[1]}, "404", None},
		"an answer over another answer":   {Record{AskedAs: spellings[1], Answer: Refused}, "404", Refused},
		"an answer after a failed answer": {Record{AskedAs: id, Answer: Unavailable}, "404", Unavailable},
	} {
		run(t, 1, func(w *world) {
			w.takes = 2 * time.Second
			w.say(c.mode)
			var all sync.WaitGroup
			all.Go(func() { _, _ = w.lookup(w.all[0], id, nil, sender) })
			time.Sleep(time.Second)
			leased, _ := w.Memory.Get(w.Context(), itemID)
			c.meanwhile.ID, c.meanwhile.Version, c.meanwhile.LeasedUntil = itemID, "other", time.Now().Add(time.Hour)
			if !c.meanwhile.UnknownSince.IsZero() {
				c.meanwhile.FetchedAt = time.Now()
			}
			_, _, _ = w.Memory.Put(w.Context(), c.meanwhile, leased.Version)
			all.Wait()
			if r, _ := w.Memory.Get(w.Context(), itemID); r.State(time.Now(), time.Hour) != c.want {
				w.Errorf("%s: %+v", name, r)
			}
		})
	}
}
