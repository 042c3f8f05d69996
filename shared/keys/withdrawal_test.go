package keys

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"uuid"

	"payhook.example/shared/names"
)

// gateway404 is what a gateway in front of the service answers when it has lost
// its route.
func (f *fleet) gateway404() {
	f.answers(func(w http.ResponseWriter, _ string) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, "<html><h1>404 Not Found</h1></html>")
	})
}

func (f *fleet) gone() {
	f.answers(func(w http.ResponseWriter, _ string) { w.WriteHeader(http.StatusGone) })
}

// expectWithdrawn is expect, and the answer must say that the key is withdrawn.
func (f *fleet) expectWithdrawn(c *Cache, want error, source Source, fetches int32) {
	f.t.Helper()
	if found := f.expect(c, want, source, fetches); !found.Withdrawn {
		f.t.Error("the lookup does not say that the key is withdrawn")
	}
}

func (f *fleet) expectInUse(c *Cache, source Source, fetches int32) {
	f.t.Helper()
	if found := f.expect(c, nil, source, fetches); found.Withdrawn {
		f.t.Error("the lookup says that the key is withdrawn")
	}
}

func (f *fleet) stored() *record {
	f.t.Helper()
	r, err := NewTable(f.db, "keys").get(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

func TestOneWrong404RemovesNoKey(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	f.expectInUse(c, Service, 1)
	f.pass(time.Hour)
	f.gateway404()
	f.expectWithdrawn(c, nil, Stale, 1)
	f.serve(0)
	f.expectWithdrawn(c, nil, Stale, 0) // not asked again at once
	f.pass(10 * time.Second)
	f.expectInUse(c, Service, 1)
	f.expectInUse(f.cache(), SharedTable, 0)

	// The good answer cleared the report: a second 404 a day later is a first one.
	if r := f.stored(); !r.unknownSince.IsZero() || !r.unknownAt.IsZero() {
		t.Errorf("the table still holds the report: %+v", r)
	}
	f.pass(20 * time.Hour)
	f.gateway404()
	f.expectWithdrawn(c, nil, Stale, 1)
}

func TestOneWrong404CausedByAForgedSignatureRemovesNoKey(t *testing.T) {
	f := newFleet(t)
	c, other := f.cache(), f.cache()
	found := f.expect(c, nil, Service, 1)
	f.pass(time.Minute)
	f.gateway404()
	again, err := c.Refetch(t.Context(), id, found, netip.Addr{})
	if err != nil || again.Key != nil || !again.Withdrawn {
		t.Fatalf("%+v, %v", again, err)
	}
	f.expectWithdrawn(c, nil, Stale, 0)
	f.expectWithdrawn(other, nil, Stale, 0) // from the table
	f.serve(0)
	f.pass(10 * time.Second)
	f.expectInUse(c, Service, 1)
}

func TestAKeyThatTheServiceKeepsCallingUnknownIsRemoved(t *testing.T) {
	for name, table := range map[string]bool{"with the table": true, "with the table broken": false} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			f.db.broken.Store(!table)
			c := f.cache()
			f.expectInUse(c, Service, 1)
			f.gone()
			f.pass(time.Hour)
			f.expectWithdrawn(c, nil, Stale, 1)
			f.pass(5*time.Minute - time.Millisecond)
			f.expectWithdrawn(c, nil, Stale, 1)
			f.pass(10 * time.Second)
			f.expectWithdrawn(c, ErrUnknown, Service, 1)
			f.expectWithdrawn(c, ErrUnknown, Memory, 0)
			f.down()
			f.pass(time.Minute)
			if found := f.expect(c, ErrUnavailable, Service, 1); found.Key != nil {
				t.Error("the removed key is used again")
			}
			f.serve(0)
			f.expectInUse(c, Service, 1)
		})
	}
}

func TestTheGraceIsOneForAllFunctions(t *testing.T) {
	f := newFleet(t)
	one, other, idle := f.cache(), f.cache(), f.cache()
	f.expectInUse(one, Service, 1)
	f.expectInUse(other, SharedTable, 0)
	f.expectInUse(idle, SharedTable, 0)
	f.gone()
	f.pass(time.Hour)
	f.expectWithdrawn(one, nil, Stale, 1)
	f.expectWithdrawn(other, nil, Stale, 0) // one has just asked
	f.expectWithdrawn(f.cache(), nil, Stale, 0)
	f.pass(10 * time.Second)
	f.expectWithdrawn(other, nil, Stale, 1)
	f.expectWithdrawn(one, nil, Stale, 0)

	// The first answer was told to one, the second to another that just started.
	f.pass(5*time.Minute - 10*time.Second)
	f.expectWithdrawn(f.cache(), ErrUnknown, Service, 1)
	f.expectWithdrawn(one, ErrUnknown, SharedTable, 0)

	// A copy that nobody looked at meanwhile is not used either.
	f.down()
	f.pass(2 * time.Minute)
	f.expect(idle, ErrUnavailable, Service, 1)
}

func TestAnOldReportWithoutASecondRemovesNothing(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	f.expectInUse(c, Service, 1)
	f.gateway404()
	f.pass(time.Hour)
	f.expectWithdrawn(c, nil, Stale, 1)
	f.down()
	f.pass(10 * time.Hour)
	f.expectWithdrawn(c, nil, Stale, 1)
	f.expectWithdrawn(f.cache(), nil, Stale, 1)
	f.pass(13 * time.Hour) // its hard age
	f.expect(c, ErrUnavailable, Service, 1)
}

func TestTheGraceIsASetting(t *testing.T) {
	f := newFleet(t)
	c := f.cache(func(o *Options) { o.UnknownGrace = 20 * time.Second })
	f.expectInUse(c, Service, 1)
	f.gone()
	f.pass(time.Hour)
	f.expectWithdrawn(c, nil, Stale, 1)
	f.pass(19 * time.Second)
	f.expectWithdrawn(c, nil, Stale, 1)
	f.pass(10 * time.Second)
	f.expectWithdrawn(c, ErrUnknown, Service, 1)
}

func TestAKeyInItsGraceSpendsNoBudgetAndIsNotAskedForOften(t *testing.T) {
	f := newFleet(t)
	fleet := []*Cache{f.cache(), f.cache(), f.cache(), f.cache()}
	f.expectInUse(fleet[0], Service, 1)
	f.gone()
	f.pass(time.Hour)
	for range 60 { // the budget of this minute
		if _, err := fleet[1].Lookup(t.Context(), uuid.New().String(), netip.Addr{}); !errors.Is(err, ErrUnknown) {
			t.Fatal(err)
		}
	}
	before := f.fetches.Load()
	for range 60 {
		for _, c := range fleet {
			if _, err := c.Lookup(t.Context(), id, netip.Addr{}); err != nil {
				t.Fatal(err)
			}
		}
		f.pass(time.Second)
	}
	if n := f.fetches.Load() - before; n != 6 {
		t.Errorf("the service was asked %d times in a minute, want 6", n)
	}
}

// A function whose read of the table missed the key must not remove it for the
// others.
func TestAFunctionThatDoesNotSeeTheKeyRemovesItForNobody(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	f.expectInUse(c, Service, 1)
	f.gateway404()
	f.pass(time.Minute)
	found, err := c.notKnown(t.Context(), id, f.now, nil, nil, false)
	if err != nil || found.Source != Stale || !found.Withdrawn || !generated(0).PublicKey.Equal(found.Key) {
		t.Errorf("%+v, %v", found, err)
	}
	if r := f.stored(); r.jwk == nil || !r.unknownSince.Equal(f.now) {
		t.Errorf("stored %+v", r)
	}
}

// The read of the table failed, and by the time of the answer it works again.
func TestAFunctionThatCouldNotReadTheKeyAsksTheTableAgain(t *testing.T) {
	f := newFleet(t)
	f.expectInUse(f.cache(), Service, 1)
	f.gateway404()
	f.db.failNext(true) // the read
	found := f.expect(f.cache(), nil, Stale, 1)
	if !found.Withdrawn || !found.TableFailed || !generated(0).PublicKey.Equal(found.Key) {
		t.Errorf("%+v", found)
	}
}

// A slow "unknown" answer must not undo what another function was told later.
func TestALateUnknownAnswerChangesNothing(t *testing.T) {
	f := newFleet(t)
	c, other := f.cache(), f.cache()
	f.expectInUse(c, Service, 1)
	f.gone()
	f.pass(time.Hour)
	f.expectWithdrawn(c, nil, Stale, 1)
	cached := c.entry(id)
	f.pass(6 * time.Minute)
	asked := f.now // c asks, and its answer is late
	f.serve(0)
	f.pass(time.Second)
	f.expectInUse(other, Service, 1)
	found, err := c.notKnown(t.Context(), id, asked, cached, nil, false)
	if err != nil || found.Withdrawn || found.Key == nil {
		t.Errorf("%+v, %v", found, err)
	}
	f.expectInUse(c, Memory, 0)
	f.expectInUse(f.cache(), SharedTable, 0)
}

// slowOrigin answers "unknown" after some time, as for a process that Lambda
// froze meanwhile.
type slowOrigin struct {
	f     *fleet
	takes time.Duration
}

func (o slowOrigin) Fetch(context.Context, string) ([]byte, error) {
	o.f.pass(o.takes)
	return nil, ErrUnknown
}

func TestTheGraceBeginsWithTheAnswer(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	f.expectInUse(c, Service, 1)
	f.pass(time.Hour)
	c.origin = slowOrigin{f, 10 * time.Minute}
	f.expectWithdrawn(c, nil, Stale, 0)
	f.gateway404()
	f.pass(10 * time.Second)
	f.expectWithdrawn(f.cache(), nil, Stale, 1)
}

func TestAReportDuringABrokenTableCounts(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	f.expectInUse(c, Service, 1)
	f.gone()
	f.pass(time.Hour)
	f.db.broken.Store(true)
	if found := f.expect(c, nil, Stale, 1); !found.Withdrawn || !found.TableFailed {
		t.Errorf("%+v", found)
	}
	f.db.broken.Store(false)
	f.pass(time.Minute)
	f.expectWithdrawn(c, nil, Stale, 1)
	f.pass(4 * time.Minute)
	f.expectWithdrawn(f.cache(), ErrUnknown, Service, 1)
}

func TestAKeyThatThePolicyRefusesIsWithdrawnAtOnce(t *testing.T) {
	f := newFleet(t)
	c, other := f.cache(), f.cache()
	f.expectInUse(c, Service, 1)
	f.expectInUse(other, SharedTable, 0)
	f.answers(func(w http.ResponseWriter, _ string) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, strings.Replace(string(text(t, members(generated(0).N, 65537))), "RS256", "RS512", 1))
	})
	f.pass(time.Hour)
	found, err := c.Lookup(t.Context(), id, netip.Addr{})
	if violations(err) == nil || found.Key != nil || !found.Withdrawn {
		t.Errorf("%+v, %v", found, err)
	}
	f.expectWithdrawn(other, ErrUnknown, SharedTable, 0)
}

func TestAnIDThatWasNeverKnownIsNotWithdrawn(t *testing.T) {
	f := newFleet(t)
	f.gateway404()
	c := f.cache()
	for _, source := range []Source{Service, Memory} {
		if found, err := c.Lookup(t.Context(), id, netip.Addr{}); !errors.Is(err, ErrUnknown) || found.Withdrawn || found.Source != source {
			t.Errorf("%+v, %v", found, err)
		}
	}
	f.pass(time.Minute)
	if found, err := f.cache().Lookup(t.Context(), id, netip.Addr{}); !errors.Is(err, ErrUnknown) || found.Withdrawn {
		t.Errorf("%+v, %v", found, err)
	}
	if r := f.stored(); r.jwk != nil || !r.unknownSince.IsZero() || !r.expires.Equal(f.now.Add(time.Minute)) {
		t.Errorf("stored %+v", r)
	}
}

func TestARemovedKeyStaysMarkedForAsLongAsACopyCouldBeUsed(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	f.expectInUse(c, Service, 1)
	fetched := f.now
	f.gone()
	f.pass(time.Hour)
	f.expectWithdrawn(c, nil, Stale, 1)
	f.pass(5 * time.Minute)
	f.expectWithdrawn(c, ErrUnknown, Service, 1)
	f.pass(10 * time.Hour)
	f.expectWithdrawn(f.cache(), ErrUnknown, Service, 1)
	r := f.stored()
	if r.jwk != nil || !r.unknownSince.Equal(fetched.Add(time.Hour)) || !r.expires.Equal(fetched.Add(24*time.Hour)) {
		t.Errorf("stored %+v", r)
	}
	if _, ok := f.db.Items("keys")[id][names.KeysTTL]; !ok {
		t.Error("the item never expires")
	}
}

// A function that has no copy of the key stores that the id is unknown. That
// does not speak of the copy of another function, whose own write failed.
func TestAFunctionKeepsItsKeyIfTheTableNeverHadIt(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	f.db.broken.Store(true)
	f.expect(c, nil, Service, 1)
	f.db.broken.Store(false)
	f.gateway404()
	f.pass(time.Hour)
	f.expect(f.cache(), ErrUnknown, Service, 1)
	f.expectWithdrawn(c, nil, Stale, 1)
}

func TestALookupSaysThatItsKeyIsNotShared(t *testing.T) {
	f := newFleet(t)
	f.db.failNext(false, false, true) // the read and the budget work, the write fails
	if found := f.expect(f.cache(), nil, Service, 1); !found.TableFailed {
		t.Error("the lookup does not say that the table failed")
	}
}

// Unknown would be answered 401, and the key may be in the table.
func TestAnIDIsNotUnknownIfTheTableHoldsAKeyThatCannotBeRead(t *testing.T) {
	f := newFleet(t)
	f.expectInUse(f.cache(), Service, 1)
	f.gateway404()
	c := f.cache()
	f.db.failNext(true, false, true) // the read fails, the removal is refused, the report fails
	f.expect(c, ErrUnavailable, Service, 1)
}
