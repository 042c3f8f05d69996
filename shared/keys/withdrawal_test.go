package keys

import (
	"context"
	"crypto/rsa"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"
)

// gateway404 makes the service answer like a gateway without a route to it.
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

// expectWithdrawn is expect for a result that must be Withdrawn.
func (f *fleet) expectWithdrawn(c *Cache, want error, source Source, fetches int32) {
	f.t.Helper()
	if found := f.expect(c, want, source, fetches); !found.Withdrawn {
		f.t.Error("Withdrawn is false")
	}
}

func (f *fleet) expectInUse(c *Cache, source Source, fetches int32) {
	f.t.Helper()
	if found := f.expect(c, nil, source, fetches); found.Withdrawn {
		f.t.Error("Withdrawn is true")
	}
}

func (f *fleet) stored() Record {
	r, _ := f.db.Memory.Get(f.t.Context(), itemID)
	return *r
}

func TestOne404RemovesNoKey(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	f.expectInUse(c, Service, 1)
	f.pass(time.Hour)
	f.gateway404()
	f.expectWithdrawn(c, nil, Stale, 1)
	f.serve(0)
	f.expectWithdrawn(c, nil, Stale, 0) // within the pause
	f.pass(10 * time.Second)
	f.expectInUse(c, Service, 1)
	f.expectInUse(f.cache(), SharedTable, 0)

	// The good answer cleared the report, so a 404 a day later is the first one again.
	if r := f.stored(); !r.UnknownSince.IsZero() || !r.UnknownAt.IsZero() {
		t.Errorf("the table still contains the report: %+v", r)
	}
	f.pass(20 * time.Hour)
	f.gateway404()
	f.expectWithdrawn(c, nil, Stale, 1)
}

func TestOne404AfterAForgedSignatureRemovesNoKey(t *testing.T) {
	f := newFleet(t)
	c, other := f.cache(), f.cache()
	found := f.expect(c, nil, Service, 1)
	f.pass(time.Minute)
	f.gateway404()
	again, err := f.refetch(c, id, found, netip.Addr{})
	if err != nil || again.Key != nil || !again.Withdrawn {
		t.Fatalf("%+v, %v", again, err)
	}
	f.expectWithdrawn(c, nil, Stale, 0)
	f.expectWithdrawn(other, nil, Stale, 0) // from the table
	f.serve(0)
	f.pass(10 * time.Second)
	f.expectInUse(c, Service, 1)
}

func TestRepeated404RemovesTheKey(t *testing.T) {
	for name, table := range map[string]bool{"with the table": true, "with the table broken": false} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			f.broken.Store(!table)
			c := f.cache()
			f.expectInUse(c, Service, 1)
			f.gone()
			f.pass(time.Hour)
			f.expectWithdrawn(c, nil, Stale, 1)
			f.pass(5*time.Minute - time.Millisecond)
			f.expectWithdrawn(c, nil, Stale, 1)
			f.pass(10 * time.Second)
			f.expectWithdrawn(c, ErrUnknown, Service, 1)
			f.expectWithdrawn(c, ErrUnknown, InMemory, 0)
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

func TestGraceIsSharedByAllFunctions(t *testing.T) {
	f := newFleet(t)
	one, other, idle := f.cache(), f.cache(), f.cache()
	f.expectInUse(one, Service, 1)
	f.expectInUse(other, SharedTable, 0)
	f.expectInUse(idle, SharedTable, 0)
	f.gone()
	f.pass(time.Hour)
	f.expectWithdrawn(one, nil, Stale, 1)
	f.expectWithdrawn(other, nil, Stale, 0) // the other function has just called
	f.expectWithdrawn(f.cache(), nil, Stale, 0)
	f.pass(10 * time.Second)
	f.expectWithdrawn(other, nil, Stale, 1)
	f.expectWithdrawn(one, nil, Stale, 0)

	// One function got the first answer, a new one gets the second.
	f.pass(5*time.Minute - 10*time.Second)
	f.expectWithdrawn(f.cache(), ErrUnknown, Service, 1)
	f.expectWithdrawn(one, ErrUnknown, SharedTable, 0)

	// A copy that was not used in between is not used any more either.
	f.down()
	f.pass(2 * time.Minute)
	f.expect(idle, ErrUnavailable, Service, 1)
}

// A function that cannot read that a key was removed does not make others use their copies.
func TestARemovalOutlivesAFunctionThatCannotReadIt(t *testing.T) {
	f := newFleet(t)
	idle := f.cache()
	f.expectInUse(idle, Service, 1)
	f.gone()
	f.pass(time.Hour)
	f.expectWithdrawn(f.cache(), nil, Stale, 1)
	f.pass(5 * time.Minute)
	f.expectWithdrawn(f.cache(), ErrUnknown, Service, 1)
	f.failNext(true) // the read
	f.expect(f.cache(), ErrUnknown, Service, 1)
	f.down()
	f.pass(2 * time.Minute)
	f.expect(idle, ErrUnavailable, Service, 1)
}

// The service returned the key again, and the write failed.
func TestACopyIsUsedIfItIsNewerThanItsRemoval(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	f.expectInUse(c, Service, 1)
	f.gone()
	f.pass(time.Hour)
	f.expectWithdrawn(c, nil, Stale, 1)
	f.pass(5 * time.Minute)
	f.expectWithdrawn(c, ErrUnknown, Service, 1)
	f.serve(0)
	f.pass(time.Minute)
	f.failNext(false, false, true) // the write
	f.expectInUse(c, Service, 1)
	f.down()
	f.pass(time.Hour)
	f.expectInUse(c, Stale, 1)
}

// The service returned another key after the report, and the write failed.
func TestAReportOfAnOlderKeyIsNotForTheCopy(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	f.expectInUse(c, Service, 1)
	f.gone()
	f.pass(time.Hour)
	f.expectWithdrawn(c, nil, Stale, 1)
	f.serve(1)
	f.pass(time.Minute)
	f.failNext(false, true) // the write
	f.expectInUse(c, Service, 1)
	f.gone()
	f.pass(time.Hour)
	if found := f.expect(c, nil, Stale, 1); !generated(1).PublicKey.Equal(found.Key) || !found.Withdrawn {
		t.Errorf("%+v", found)
	}
	f.pass(5 * time.Minute)
	f.expectWithdrawn(c, ErrUnknown, Service, 1)
}

func TestCallsDuringTheGraceUseNoBudget(t *testing.T) {
	f := newFleet(t)
	fleet := []*Cache{f.cache(), f.cache(), f.cache(), f.cache()}
	f.expectInUse(fleet[0], Service, 1)
	f.gone()
	f.pass(time.Hour)
	for range 60 { // the budget of this minute
		if _, err := f.lookup(fleet[1], uuid.New().String(), netip.Addr{}); !errors.Is(err, ErrUnknown) {
			t.Fatal(err)
		}
	}
	before := f.fetches.Load()
	for range 60 {
		for _, c := range fleet {
			if _, err := f.lookup(c, id, netip.Addr{}); err != nil {
				t.Fatal(err)
			}
		}
		f.pass(time.Second)
	}
	if n := f.fetches.Load() - before; n != 6 {
		t.Errorf("%d calls of the service in a minute, want 6", n)
	}
}

// A function that did not read the key from the table must not remove it for the others.
func TestFunctionWithoutTheKeyDoesNotRemoveIt(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	f.expectInUse(c, Service, 1)
	f.gateway404()
	f.pass(time.Minute)
	found, err := (&lookup{Cache: c, id: itemID, sentAs: id, asked: f.now}).notKnown(t.Context())
	if err != nil || found.Source != Stale || !found.Withdrawn || !generated(0).PublicKey.Equal(found.Key) {
		t.Errorf("%+v, %v", found, err)
	}
	if r := f.stored(); r.JWK == "" || !r.UnknownSince.Equal(f.now) {
		t.Errorf("stored %+v", r)
	}
}

// The read of the table fails, and the table works again at the time of the answer.
func TestFunctionReadsTheTableAgainAfterAFailure(t *testing.T) {
	f := newFleet(t)
	f.expectInUse(f.cache(), Service, 1)
	f.gateway404()
	f.failNext(true) // the read
	found := f.expect(f.cache(), nil, Stale, 1)
	if !found.Withdrawn || !found.TableFailed || !generated(0).PublicKey.Equal(found.Key) {
		t.Errorf("%+v", found)
	}
}

// A slow "unknown" answer must not replace a later answer to another function.
func TestLateUnknownAnswerChangesNothing(t *testing.T) {
	f := newFleet(t)
	c, other := f.cache(), f.cache()
	f.expectInUse(c, Service, 1)
	f.gone()
	f.pass(time.Hour)
	f.expectWithdrawn(c, nil, Stale, 1)
	cached := c.keys[itemID]
	f.pass(6 * time.Minute)
	asked := f.now // c sends its request, and the answer is late
	f.serve(0)
	f.pass(time.Second)
	f.expectInUse(other, Service, 1)
	found, err := (&lookup{Cache: c, id: itemID, sentAs: id, asked: asked, cached: cached}).notKnown(t.Context())
	if err != nil || found.Withdrawn || found.Key == nil || found.Source != SharedTable {
		t.Errorf("%+v, %v", found, err)
	}
	f.expectInUse(c, InMemory, 0)
	f.expectInUse(f.cache(), SharedTable, 0)
}

// slowOrigin answers "unknown" after some time, as if Lambda had frozen the process during the call.
type slowOrigin struct {
	f     *fleet
	takes time.Duration
}

func (o slowOrigin) Fetch(context.Context, string) (*rsa.PublicKey, string, error) {
	o.f.pass(o.takes)
	return nil, "", ErrUnknown
}

func TestGraceStartsAtTheAnswer(t *testing.T) {
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

// The function that removes the key has the only copy, and no report is in the table.
func TestARemovedKeyThatTheTableDoesNotHaveIsWithdrawn(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	f.expectInUse(c, Service, 1)
	f.gone()
	f.pass(time.Hour)
	f.broken.Store(true)
	f.expectWithdrawn(c, nil, Stale, 1)
	f.broken.Store(false)
	if err := f.db.Delete(t.Context(), itemID); err != nil {
		t.Fatal(err)
	}
	f.pass(5 * time.Minute)
	f.expectWithdrawn(c, ErrUnknown, Service, 1)
	f.expectWithdrawn(f.cache(), ErrUnknown, SharedTable, 0)
}

// expectRejected looks id up, and checks that its key is rejected for the same reason wherever that is found.
func (f *fleet) expectRejected(c *Cache, withdrawn bool, source Source, fetches int32) {
	f.t.Helper()
	before := f.fetches.Load()
	found, err := f.lookup(c, id, netip.Addr{})
	if got := violations(err); !slices.Equal(got, []Violation{WrongAlgorithm}) || found.Key != nil ||
		found.Withdrawn != withdrawn || found.Source != source || f.fetches.Load()-before != fetches {
		f.t.Errorf("%+v, %v, %d fetches", found, err, f.fetches.Load()-before)
	}
}

func (f *fleet) reject() {
	f.answerJSON(strings.Replace(string(text(f.t, members(generated(0).N, 65537))), "RS256", "RS512", 1))
}

func TestRejectedKeyIsWithdrawnAtOnce(t *testing.T) {
	f := newFleet(t)
	c, other := f.cache(), f.cache()
	f.expectInUse(c, Service, 1)
	f.expectInUse(other, SharedTable, 0)
	f.reject()
	f.pass(time.Hour)
	f.expectRejected(c, true, Service, 1)
	f.expectRejected(c, true, InMemory, 0)
	f.expectRejected(other, true, SharedTable, 0)
	f.expectRejected(f.cache(), true, SharedTable, 0)
	r := f.stored()
	if _, err := r.Key(); violations(err) == nil {
		t.Error(err)
	}
	// It is asked for again, and stays withdrawn. Then the service has it no more, and then a good one.
	f.pass(time.Minute)
	f.expectRejected(other, true, Service, 1)
	f.gone()
	f.pass(time.Minute)
	f.expectWithdrawn(c, ErrUnknown, Service, 1)
	if r := f.stored(); r.Rejected != nil || !r.UnknownSince.Equal(f.now.Add(-2*time.Minute)) {
		t.Errorf("stored %+v", r)
	}
	f.serve(0)
	f.pass(time.Minute)
	f.expectInUse(other, Service, 1)
	f.expectInUse(f.cache(), SharedTable, 0)
}

// A webhook comes every 15 minutes, and each has a new process.
func TestAKeyThatTheServiceWithdrewIsSoonRejectedByNewProcesses(t *testing.T) {
	const every = 15 * time.Minute
	for offset := range every / time.Minute { // from the fetch to the withdrawal, and to the next webhook
		f := newFleet(t)
		f.expectInUse(f.cache(), Service, 1)
		f.pass(offset * time.Minute)
		f.gone()
		withdrawn := f.now
		for {
			f.pass(every)
			_, err := f.lookup(f.cache(), id, netip.Addr{})
			if took := f.now.Sub(withdrawn); took > time.Hour+30*time.Minute {
				t.Fatalf("%s later: %v", took, err)
			}
			if errors.Is(err, ErrUnknown) {
				break
			}
		}
	}
}

func TestA404BetweenGoodAnswersRemovesNoKey(t *testing.T) {
	f := newFleet(t)
	f.expectInUse(f.cache(), Service, 1)
	f.pass(time.Hour)
	for range 3 { // each 404 is the first one
		f.gateway404()
		f.expectWithdrawn(f.cache(), nil, Stale, 1)
		f.pass(15 * time.Minute)
		f.down() // changes nothing
		f.expectWithdrawn(f.cache(), nil, Stale, 1)
		f.serve(0)
		f.expectInUse(f.cache(), Service, 1)
		f.pass(time.Hour)
	}
}

// Anyone can make a function call the service, with a forged signature that names the id of a real key.
func TestAnAnswerThatIsNotTheJWKRemovesNoKey(t *testing.T) {
	for name, body := range notJWKs(t) {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			c, other := f.cache(), f.cache()
			found := f.expect(c, nil, Service, 1)
			f.expectInUse(other, SharedTable, 0)
			f.answerJSON(body)
			f.pass(time.Minute)
			if again, err := f.refetch(c, id, found, netip.Addr{}); err != nil || again.Key != nil ||
				again.Withdrawn {
				t.Errorf("after a forged signature: %+v, %v", again, err)
			}
			f.expectInUse(c, InMemory, 0)
			f.pass(time.Hour)
			f.expectInUse(c, Stale, 1)
			f.expectInUse(other, Stale, 1)
			f.expectInUse(f.cache(), Stale, 1)
			f.pass(24 * time.Hour)
			f.expect(c, ErrUnavailable, Service, 1)
			f.expect(c, ErrUnavailable, Service, 1) // it is not cached as unknown
			f.serve(0)
			f.expectInUse(c, Service, 1)
		})
	}
}

func TestRemovedKeyIsWithdrawnWhileACopyCanExist(t *testing.T) {
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
	if r.JWK != "" || !r.UnknownSince.Equal(fetched.Add(time.Hour)) ||
		!r.ExpiresAt.Equal(fetched.Add(25*time.Hour)) {
		t.Errorf("stored %+v", r)
	}
}

// A function without a copy of the key records that the id is unknown. This does not apply to the copy of another
// function whose write failed.
func TestFunctionKeepsAKeyThatTheTableNeverHad(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	f.broken.Store(true)
	f.expect(c, nil, Service, 1)
	f.broken.Store(false)
	f.gateway404()
	f.pass(time.Hour)
	f.expect(f.cache(), ErrUnknown, Service, 1)
	f.expectWithdrawn(c, nil, Stale, 1)
}

// A key that must not be used and was never in use is looked up again after as long as one that the service does not
// know, also without the table.
func TestRejectedKeyIsNotFetchedAgainAtOnce(t *testing.T) {
	for _, broken := range []bool{false, true} {
		f := newFleet(t)
		f.broken.Store(broken)
		f.reject()
		c := f.cache()
		f.expectRejected(c, false, Service, 1)
		if !broken {
			f.expectRejected(f.cache(), false, SharedTable, 0)
			if expires := f.stored().ExpiresAt; !expires.Equal(f.now.Add(time.Minute)) {
				t.Errorf("stored until %s", expires)
			}
		}
		f.pass(59 * time.Second)
		f.expectRejected(c, false, InMemory, 0)
		f.pass(time.Second)
		f.expectRejected(c, false, Service, 1)
	}
}

// The table has a key that is too old to be used, though a record of an unknown id would not be.
func TestAnOldKeyOfTheTableIsNoUnknownID(t *testing.T) {
	f := newFleet(t)
	short := func(o *Options) { o.Freshness, o.MaxAge, o.UnknownTTL = time.Minute, time.Minute, time.Hour }
	f.expect(f.cache(short), nil, Service, 1)
	f.pass(2 * time.Minute)
	f.expect(f.cache(short), nil, Service, 1)
}

// Between two looks into memory, another caller has fetched the key.
func TestMemoryIsReadAgainBeforeTheTable(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	f.expect(c, nil, Service, 1)
	before := f.tableCalls()
	found, err := (&lookup{Cache: c, id: itemID, sentAs: id}).find(t.Context())
	if err != nil || found.Source != InMemory || f.tableCalls() != before {
		t.Errorf("%+v, %v after %d calls of the table", found, err, f.tableCalls()-before)
	}
}

func TestReportWithoutTheTableCounts(t *testing.T) {
	f := newFleet(t)
	c := f.cache()
	f.expectInUse(c, Service, 1)
	f.gone()
	f.pass(time.Hour)
	f.broken.Store(true)
	if found := f.expect(c, nil, Stale, 1); !found.Withdrawn || !found.TableFailed {
		t.Errorf("%+v", found)
	}
	f.broken.Store(false)
	f.pass(time.Minute)
	f.expectWithdrawn(c, nil, Stale, 1)
	f.pass(4 * time.Minute)
	f.expectWithdrawn(f.cache(), ErrUnknown, Service, 1)
}
