package keys

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	start    = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	defaults = Options{Freshness: time.Hour, MaxAge: 24 * time.Hour, UnknownGrace: 5 * time.Minute}
)

// inState returns a record in a state at start, two hours after its key was fetched if that is not fresh.
func inState(s State) Record {
	r := Record{ID: itemID, Version: "1", AskedAs: id, Answer: s, LeasedUntil: start.Add(-time.Second)}
	switch s {
	case None:
		return Record{ID: itemID}
	case Fresh, Stale, Withdrawn:
		r = r.after(reply{answer: Fresh, key: &generated(0).PublicKey, sentAs: id, asked: start.Add(-time.Minute)},
			&defaults)
		if s != Fresh {
			r.FetchedAt = start.Add(-2 * time.Hour)
		}
		if s == Withdrawn {
			r.UnknownSince, r.Answer = start.Add(-4*time.Minute), Unknown
		}
	case Removed:
		r.Answer, r.UnknownSince, r.FetchedAt = Unknown, start.Add(-time.Hour), start.Add(-55*time.Minute)
	case Unavailable:
		r.Failures = 1
	}
	return r
}

// The table is that of the package comment.
func TestAnAnswerChangesTheState(t *testing.T) {
	answers := []State{Fresh, Unknown, Refused, Unavailable}
	for line := range strings.Lines(`
		none        fresh 1m  unknown 10s    refused 10s  unavailable 0s
		fresh       fresh 1m  withdrawn 10s  refused 10s  fresh 10s
		stale       fresh 1m  withdrawn 10s  refused 10s  stale 10s
		withdrawn   fresh 1m  withdrawn 10s  refused 10s  withdrawn 10s
		removed     fresh 1m  removed 10s    refused 10s  unavailable 0s
		refused     fresh 1m  unknown 10s    refused 10s  unavailable 0s
		unknown     fresh 1m  unknown 10s    refused 10s  unavailable 0s
		unavailable fresh 1m  unknown 10s    refused 10s  unavailable 1s`) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		for n, answer := range answers {
			before := inState(State(strings.TrimPrefix(words[0], "none")))
			if got := before.State(start, time.Hour); got != State(strings.TrimPrefix(words[0], "none")) {
				t.Fatalf("%s: %s", words[0], got)
			}
			a := reply{answer: answer, key: &generated(1).PublicKey, sentAs: id, asked: start, at: start}
			after := before.after(a, &defaults)
			got := fmt.Sprint(after.State(start, time.Hour), " ", after.LeasedUntil.Sub(start))
			want := words[1+2*n] + " " + words[2+2*n]
			if got = strings.TrimSuffix(strings.Replace(got, "1m0s", "1m", 1), " "); got != want {
				t.Errorf("%s, %s: %s, want %s", words[0], answer, got, want)
			}
			// What a copy can be used for is remembered as removed for as long.
			hadKey := before.JWK != "" || !before.UnknownSince.IsZero()
			if removed := after.JWK == "" && hadKey; removed != (after.JWK == "" && !after.UnknownSince.IsZero()) ||
				removed && after.ExpiresAt.Before(after.UnknownSince.Add(defaults.MaxAge)) ||
				after.ExpiresAt.Before(start) {
				t.Errorf("%s, %s: %+v", words[0], answer, after)
			}
		}
	}
	short := Options{Freshness: time.Minute}
	a := reply{answer: Fresh, key: &generated(1).PublicKey, sentAs: id, asked: start, at: start}
	if after := inState(None).after(a, &short); after.LeasedUntil != start.Add(20*time.Second) {
		t.Errorf("a key that is fresh for a minute: asked for again at %s", after.LeasedUntil)
	}
}

// A failure is followed by a request at once, then after 1 s, 2 s and so on.
func TestPausesAfterFailures(t *testing.T) {
	play := func(r Record, retryAfter time.Duration, n int) (pauses []time.Duration) {
		at := start
		for range n {
			r = r.after(reply{answer: Unavailable, sentAs: id, asked: at, at: at.Add(time.Second),
				retryAfter: retryAfter}, &defaults)
			pauses = append(pauses, r.LeasedUntil.Sub(at.Add(time.Second)))
			at = r.LeasedUntil
		}
		return pauses
	}
	seconds := func(all ...int) (pauses []time.Duration) {
		for _, s := range all {
			pauses = append(pauses, time.Duration(s)*time.Second)
		}
		return pauses
	}
	again := inState(Unavailable)
	again.Failures, again.LeasedUntil = 9, start.Add(-time.Minute)
	damaged, negative := again, again
	damaged.Failures, damaged.LeasedUntil = math.MaxInt, start
	negative.Failures, negative.LeasedUntil = -9, start
	for name, c := range map[string]struct{ got, want []time.Duration }{
		"a damaged number":              {play(damaged, 0, 1), seconds(10)},
		"a negative number":             {play(negative, 0, 1), seconds(0)},
		"without a key":                 {play(inState(None), 0, 7), seconds(0, 1, 2, 4, 8, 10, 10)},
		"many":                          {play(inState(None), 0, 80)[78:], seconds(10, 10)},
		"that begin again after a time": {play(again, 0, 2), seconds(0, 1)},
		"with a key":                    {play(inState(Stale), 0, 2), seconds(10, 10)},
		"Retry-After":                   {play(inState(None), 7*time.Second, 2), seconds(7, 7)},
		"Retry-After with a key":        {play(inState(Stale), 7*time.Second, 1), seconds(10)},
		"a long Retry-After":            {play(inState(None), time.Hour, 1), seconds(60)},
		"a long Retry-After with a key": {play(inState(Fresh), time.Hour, 1), seconds(60)},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	other := inState(Unavailable).after(reply{answer: Unavailable, sentAs: itemID, asked: start, at: start}, &defaults)
	if !other.LeasedUntil.Equal(start) {
		t.Errorf("another spelling has the failures of the first one: %s", other.LeasedUntil)
	}
}

var histories = flag.Uint64("histories", 2_000, "how many random histories are played; 60000 take a minute")

// What webhooks get in random histories of one key is compared with what they may get by the answers of the service.
// Some caches stop before they have written an answer, and write it much later.
func TestRandomHistoriesKeepThePromises(t *testing.T) {
	run(t, 0, func(w *world) {
		w.takes, w.table.takes = 0, 0
		got := map[string]int{}
		for seed := range *histories {
			h := &history{world: w, Rand: rand.New(rand.NewPCG(seed, 28)), got: got}
			if h.play(); h.wrong != "" {
				w.Fatalf("history %d: %s\n%s", seed, h.wrong, strings.Join(h.said, "\n"))
			}
		}
		w.Log(got)
		if len(got) != 5 {
			w.Error("a case did not occur")
		}
	}, budgetOf(1000), func(o *Options) { o.MaxAge = 2 * time.Hour })
}

// history is a random history of a key.
type history struct {
	*world
	*rand.Rand
	mode    string           // what the service answers: "key0", "key1", "unknown", "refused", "unavailable"
	answers []said           // to requests in the spelling that the service knows
	late    []func()         // writes of caches that are frozen
	said    []string         // for people
	got     map[string]int   // how often each case occurred
	last    map[*Cache]Found // the last result of each cache, if it had a key
	wrong   string
}

type said struct {
	mode      string
	asked, at time.Time
}

func (h *history) play() {
	h.Memory, h.mode, h.keys[id] = Memory{}, "key0", &generated(0).PublicKey
	h.last = map[*Cache]Found{}
	h.world.answer = func(spelling string) string {
		asked := time.Now()
		time.Sleep(time.Duration(h.IntN(3)) * time.Second)
		if spelling != id {
			return "404"
		}
		h.answers = append(h.answers, said{h.mode, asked.Truncate(time.Millisecond), time.Now()})
		h.said = append(h.said, "  the service answers "+h.mode)
		return map[string]string{"unknown": "404", "unavailable": "503",
			"refused": `{"kty":"RSA","kid":"` + id + `","n":"AQAB","e":"AQAB"}`}[h.mode]
	}
	caches := make([]*Cache, 1+h.IntN(3))
	for n := range caches {
		caches[n] = h.cache()
	}
	for range 5 + h.IntN(15) {
		time.Sleep([]time.Duration{time.Second, 11 * time.Second, 3 * time.Minute, 40 * time.Minute}[h.IntN(4)])
		if h.IntN(2) == 0 {
			h.mode = []string{"key0", "key0", "key1", "unknown", "unknown", "refused", "unavailable"}[h.IntN(7)]
			h.keys[id] = &generated(map[string]int{"key1": 1}[h.mode]).PublicKey
		}
		if n := len(h.late); n > 0 && h.IntN(4) == 0 {
			h.said = append(h.said, "a frozen cache writes")
			h.late[n-1]()
			h.late = h.late[:n-1]
		}
		h.webhook(caches[h.IntN(len(caches))])
	}
}

// webhook looks a key up, and checks the result.
func (h *history) webhook(cache *Cache) {
	down, spelling := h.IntN(8) == 0, spellings[max(0, h.IntN(6)-4)]
	if down {
		h.table.fail("down")
	}
	begin := time.Now()
	found, err := cache.Lookup(h.Context(), spelling, sender)
	if h.IntN(6) == 0 {
		h.late = append(h.late, func() { found.Save(h.Context()) })
	} else {
		found.Save(h.Context())
	}
	h.table.fail("")
	h.said = append(h.said, fmt.Sprintf("%s cache %p, %s, table down: %t: %s, withdrawn: %t, %v", begin.Sub(start),
		cache, spelling, down, found.Source, found.Withdrawn, err))
	last := h.last[cache]
	h.last[cache] = found
	switch {
	case found.Key != nil:
		h.got["used"]++
		if found.FetchedAt.Before(last.FetchedAt) ||
			last.Withdrawn && last.FetchedAt.Equal(found.FetchedAt) && !found.Withdrawn {
			h.wrong = "a cache has forgotten what it knew"
			return
		}
		if age := begin.Sub(found.FetchedAt); age >= 2*time.Hour {
			h.wrong = fmt.Sprintf("a key is used that is %s old", age)
		}
		for _, a := range h.answers {
			if a.asked.Equal(found.FetchedAt) && (a.mode == "key0" || a.mode == "key1") &&
				found.Key.Equal(&generated(int(a.mode[3]-'0')).PublicKey) {
				return
			}
		}
		h.wrong = "a key is used that the service did not return"
	case found.Withdrawn && !h.mayRemove(last.FetchedAt):
		h.wrong = "a key was removed"
	case last.Key != nil && !found.Withdrawn && time.Since(last.FetchedAt) < 2*time.Hour:
		h.wrong = "a cache has lost a key"
	case found.Withdrawn:
		h.got["removed"]++
	case spelling != id:
		h.got["another spelling"]++
	case down || h.mode != "key0" && h.mode != "key1":
		h.got["not found"]++
	default: // the service has the key, and may not have been asked for it, or only when little time was left
		h.got["paused"]++
		if time.Since(begin) >= 3*time.Second {
			return
		}
		for _, a := range h.answers {
			if a.mode != "key0" && a.mode != "key1" && begin.Sub(a.at) < pause+time.Second {
				return
			}
		}
		h.wrong = "the key was not found"
	}
}

// mayRemove reports whether the service refused a key that was fetched then, or called it unknown twice in 5 minutes or
// more.
func (h *history) mayRemove(fetchedAt time.Time) bool {
	for n, last := range h.answers {
		if last.asked.Before(fetchedAt) {
			continue
		}
		for _, first := range h.answers[:n] {
			if first.mode == "unknown" && last.mode == "unknown" && last.asked.Sub(first.at) >= 5*time.Minute {
				return true
			}
		}
		if last.mode == "refused" {
			return true
		}
	}
	return false
}
