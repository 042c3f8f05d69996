package simulation

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// site identifies a call in the runs of one history: the n-th call of this kind
// by this instance about these events. It stays the same if faults elsewhere are
// left out.
type site struct {
	op       op
	instance int
	ids      string
	n        int
}

// recorder is a decider that records the faults of another, or applies only some of
// them.
type recorder struct {
	decider
	seen    map[site]int // n is zero in these
	faults  map[site]fault
	order   []site
	keep    map[site]bool
	replays bool
}

func (r *recorder) fault(w *world, c *call) fault {
	// The decider is called in every run, so that the rest of the history gets the
	// same random numbers.
	f := r.decider.fault(w, c)
	s := site{op: c.op, instance: c.instance.n, ids: strings.Join(slices.Sorted(slices.Values(c.ids)), " ")}
	r.seen[s]++
	s.n = r.seen[s]
	if r.replays {
		if r.keep[s] {
			return r.faults[s]
		}
		return fault{}
	}
	if f.kind != none {
		r.faults[s] = f
		r.order = append(r.order, s)
	}
	return f
}

// reduce returns a minimal set of faults with which the history of a seed fails, and
// that history. Without any one of these faults, it does not fail. It returns nil if
// the history does not fail.
func reduce(t *testing.T, seed uint64, fails func(*world, counts) bool) (*world, []fault) {
	t.Helper()
	var recorded *recorder
	w, c := play(t, func() (*world, counts) {
		return historyWith(seed, func(d decider) decider {
			recorded = &recorder{decider: d, seen: map[site]int{}, faults: map[site]fault{}}
			return recorded
		})
	})
	if !fails(w, c) {
		return nil, nil
	}
	kept := recorded.order
	// try plays the history with some of the faults.
	try := func(sites []site) bool {
		keep := map[site]bool{}
		for _, s := range sites {
			keep[s] = true
		}
		again, counted := play(t, func() (*world, counts) {
			return historyWith(seed, func(d decider) decider {
				return &recorder{decider: d, seen: map[site]int{}, faults: recorded.faults, keep: keep, replays: true}
			})
		})
		if !fails(again, counted) {
			return false
		}
		w, kept = again, sites
		return true
	}
	// Leave out halves, then quarters and so on, then single faults.
	for size := max(1, len(kept)/2); ; {
		reduced := false
		for from := 0; from < len(kept); {
			to := min(from+size, len(kept))
			if try(slices.Concat(kept[:from:from], kept[to:])) {
				reduced = true
			} else {
				from = to
			}
		}
		switch {
		case size > 1:
			size = (size + 1) / 2
		case !reduced:
			var faults []fault
			for _, s := range kept {
				faults = append(faults, recorded.faults[s])
			}
			return w, faults
		}
	}
}

// report describes a failed history. One of a seed has a minimal set of faults.
func (w *world) report(t *testing.T) string {
	t.Helper()
	seed := w.seed
	if seed == 0 {
		return w.name + "\n" + w.String()
	}
	w, faults := reduce(t, seed, func(w *world, _ counts) bool { return len(w.facts.violations) > 0 })
	if w == nil {
		return fmt.Sprintf("seed %d failed once and does not fail again", seed)
	}
	return fmt.Sprintf("seed %d fails; replay it with\n\tgo test ./shared/simulation -run TestRandomHistories -v "+
		"-seed=%d\n"+
		"It fails with %d of its faults, and without any one of them it does not:\n%s", seed, seed, len(faults), w)
}

// A duplicate after a crash needs few faults: the crash between publishing and marking,
// and those that make the instance the publisher.
func TestAFailedHistoryIsReduced(t *testing.T) {
	prepare(t)
	duplicated := func(_ *world, c counts) bool { return c.Died > 0 }
	reduced := 0
	for seed := uint64(1); seed < 400 && reduced < 3; seed++ {
		before, c := play(t, func() (*world, counts) { return history(seed) })
		if !duplicated(before, c) || before.facts.Faults < 6 {
			continue
		}
		w, faults := reduce(t, seed, duplicated)
		if w == nil {
			t.Fatalf("seed %d: the same seed gives another history", seed)
		}
		reduced++
		if len(faults) > 4 || len(faults) >= before.facts.Faults {
			t.Errorf("seed %d is reduced from %d faults to %d: %v", seed, before.facts.Faults, len(faults), faults)
		}
	}
	if reduced == 0 {
		t.Error("no history was reduced")
	}
}
