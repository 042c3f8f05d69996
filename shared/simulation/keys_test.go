package simulation

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"payhook.example/shared/keys"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

// The times of histories about keys are short, so that a history of some minutes holds a rotation.
const (
	keyFreshness = 30 * time.Second
	keyMaxAge    = 4 * time.Minute
	keyGrace     = 90 * time.Second
	keyTTL       = 10 * time.Second
	keyBudget    = 5

	// longestFlap is the longest period of wrong 404s: the grace period of a key, minus the clock difference and the
	// duration of a call.
	longestFlap = keyGrace - 2*maxSkew - kindSlow - 2*time.Second
)

// keyEndpoint is the service's key endpoint over time.
type keyEndpoint struct {
	published map[string]published
	down      [][2]time.Duration // from and to
	flaps     []*flap

	acceptedOld, flapped, reserve, maintained int // how often each case occurred
}

// published is a key and the period in which the service publishes it.
type published struct {
	key      paymenttest.Key
	from, to time.Duration
}

// flap is a period in which a gateway answers 404 for a stored key.
type flap struct {
	id       string
	from     time.Duration // or later, when the key is stored
	lasts    time.Duration
	began    time.Duration
	happened bool
}

// options returns the options of a key cache: short times in a history about keys, otherwise the defaults.
// A history depends only on its seed, so nothing is random.
func (s *keyEndpoint) options(now func() time.Time) keys.Options {
	half := func(d time.Duration) time.Duration { return d / 2 }
	if s == nil {
		return keys.Options{Freshness: time.Hour, MaxAge: 24 * time.Hour, MissBudget: 60, Now: now, Random: half}
	}
	return keys.Options{Freshness: keyFreshness, MaxAge: keyMaxAge, UnknownGrace: keyGrace, MissBudget: keyBudget,
		Now: now, Random: half}
}

func (s *keyEndpoint) answer(w *world, r *http.Request, id string) *http.Response {
	at := time.Since(w.start)
	resp := &http.Response{StatusCode: http.StatusNotFound, Request: r,
		Header: http.Header{"Content-Type": {"text/html"}},
		Body:   io.NopCloser(bytes.NewReader([]byte("<html></html>")))}
	for _, d := range s.down {
		if d[0] <= at && at < d[1] {
			resp.StatusCode = http.StatusBadGateway
			if at.Milliseconds()%2 == 0 { // a gateway with its own page
				s.maintained++
				resp.StatusCode, resp.Header = http.StatusOK, http.Header{"Content-Type": {"application/problem+json"}}
				resp.Body = io.NopCloser(strings.NewReader(`{"status":503}`))
			}
			return resp
		}
	}
	for _, f := range s.flaps {
		if f.id != id || at < f.from {
			continue
		}
		if !f.happened && w.stored(id, f.lasts) {
			f.happened, f.began = true, at
		}
		if f.happened && at < f.began+f.lasts {
			s.flapped++
			return resp
		}
	}
	if p, ok := s.published[id]; ok && p.from <= at && at < p.to {
		resp.StatusCode, resp.Body = http.StatusOK, io.NopCloser(bytes.NewReader(p.key.JWK()))
		resp.Header.Set("Content-Type", "application/json")
	}
	return resp
}

// stored reports whether the table has a key that can be used for the given time.
func (w *world) stored(id string, lasts time.Duration) bool {
	canonical, _ := payment.KeyID(id)
	r, _ := w.keys.Get(context.Background(), canonical)
	return r != nil && r.JWK != "" && time.Since(r.FetchedAt)+lasts+2*maxSkew < keyMaxAge
}

// unauthentic checks a 401 answer to an authentic delivery.
func (f *facts) unauthentic(inv *invocation) {
	s := f.w.keyEndpoint
	if s == nil {
		f.violated("%s answers %s to an authentic delivery", inv.name, inv.result.Outcome)
		return
	}
	// An environment that could not read the table does not know the key, and caches that for some time.
	f.w.mu.Lock()
	blind := time.Since(inv.noTable) <= keyTTL+webhookTime
	f.w.mu.Unlock()
	if p := s.published[inv.sent.signer.ID]; time.Since(f.w.start) < p.to && !blind {
		f.violated("%s answers %s, and the service has published the key (%+v)", inv.name, inv.result.Outcome,
			inv.result.By.Key)
	}
}

// outOfBudget checks a 503 answer to an authentic delivery because the budget was used up.
func (f *facts) outOfBudget(inv *invocation) {
	w := f.w
	if w.keyEndpoint == nil {
		return // the histories without rotation have one key
	}
	now := time.Now().Add(inv.skew)
	for _, at := range []time.Time{now, now.Add(-time.Minute)} {
		if w.taken["reserve#"+strconv.FormatInt(at.Unix()/60, 10)] == keyBudget {
			return
		}
	}
	// An environment that does not know the sender reads the table again after a minute.
	if !inv.result.By.Key.TableFailed && !w.senderKnown.IsZero() &&
		time.Since(w.senderKnown) > time.Minute+webhookTime {
		f.violated("%s finds the budget used up for a known sender whose reserve is not used", inv.name)
	}
}

// accepted checks the key of a delivery that was accepted.
func (s *keyEndpoint) accepted(inv *invocation) {
	if s == nil {
		return
	}
	w := inv.w
	p := s.published[inv.sent.signer.ID]
	if over := time.Since(w.start) - p.to; over > 0 {
		s.acceptedOld++
		if over > keyMaxAge+webhookTime+2*maxSkew {
			w.facts.violated("%s accepts a delivery with a key that was withdrawn %v ago", inv.name, over)
		}
	}
	for name := range w.taken {
		if strings.HasPrefix(name, "reserve#") {
			s.reserve++
		}
	}
}

var rotation = sync.OnceValue(func() [2]*delivery {
	var sends [2]*delivery
	// The deliveries of all histories are created before the first history starts, because the maps of events are read
	// without a lock.
	e := newEvent(90_000, 0)
	for n, id := range []string{"7e000000-0000-4000-8000-00000000000a", "7e000000-0000-4000-8000-00000000000b"} {
		key := paymenttest.NewKey(2048)
		key.ID = id
		sends[n] = newDelivery("signed by the key of "+[]string{"old", "new"}[n], 90_000, e)
		sends[n].signer = &key
	}
	return sends
})

var unknownAddress = netip.MustParseAddr("198.51.100.20")

// rotationHistory plays a rotation of the service's key: the old key is published, then also the new one, which signs
// from then on, then the old one is withdrawn. Meanwhile the service has an outage, in which a gateway sometimes
// answers 200, a gateway answers 404 for each key for some time, other senders use invented key ids, and calls other
// than those of the table have faults.
func rotationHistory(seed uint64) (*world, counts) {
	r := &randomDecider{Rand: rand.New(rand.NewPCG(seed, 20261121)), seed: seed}
	r.rate = []float64{0, 0.05, 0.2}[r.IntN(3)]
	for _, k := range []kind{errorBefore, throttled, timeoutBefore, slow, crashBefore, crashAfter, freezeBriefly,
		freezeLong, redeliver} {
		if r.IntN(2) == 0 {
			r.enabled = append(r.enabled, k)
		}
	}
	if len(r.enabled) == 0 {
		r.rate = 0
	}
	minutes := func(from, to float64) time.Duration {
		return time.Duration((from + (to-from)*r.Float64()) * float64(time.Minute))
	}
	sends := rotation()
	joins := minutes(1, 3)
	leaves := joins + minutes(1, 3)
	s := &keyEndpoint{published: map[string]published{
		sends[0].signer.ID: {*sends[0].signer, 0, leaves},
		sends[1].signer.ID: {*sends[1].signer, joins, time.Hour},
	}}
	for _, d := range sends {
		if r.IntN(3) > 0 {
			s.flaps = append(s.flaps, &flap{id: d.signer.ID, from: minutes(0, 5),
				lasts: time.Duration(r.Float64() * float64(longestFlap))})
		}
	}
	if r.IntN(2) == 0 {
		from := minutes(0.5, 6)
		s.down = append(s.down, [2]time.Duration{from, from + minutes(0, []float64{1.5, 8}[r.IntN(2)])})
	}
	w := newWorld(setup{name: fmt.Sprintf("rotation %d fails; replay it with\n\tgo test ./shared/simulation -run "+
		"TestARotation -v -seed=%d", seed, seed), attempts: 1 + 2*r.IntN(2), keyCache: true, keyEndpoint: s},
		keyFaults{r})
	for range 1 + r.IntN(3) {
		w.newInstance("webhook", time.Duration(r.Int64N(int64(2*maxSkew)))-maxSkew)
	}
	for at := time.Duration(0); at < 8*time.Minute; at += minutes(0.02, 0.3) {
		d := sends[0]
		// Some senders continue with the old key.
		if at >= joins && (at < leaves || r.IntN(2) == 0) {
			d = sends[1]
		}
		w.after(at, func() { w.deliver(w.sign(d)) })
	}
	if r.IntN(3) > 0 {
		begin := minutes(0, 4)
		for n := range 60 {
			forged := *sends[0]
			forged.forgery, forged.from = unknownKeyID, unknownAddress
			forged.signer = &paymenttest.Key{ID: fmt.Sprintf("7e000000-0000-4000-9000-%012d", n)}
			forged.name = fmt.Sprintf("invented %d", n)
			w.after(begin+time.Duration(n)*2*time.Second, func() { w.deliver(w.sign(&forged)) })
		}
	}
	w.drain()
	return w, w.facts.check()
}

// keyFaults draws the faults of a history about keys. Calls of the table do not fail: without the table each
// environment decides alone, which the tests of package keys cover.
type keyFaults struct{ *randomDecider }

func (k keyFaults) fault(w *world, c *call) fault {
	f := k.randomDecider.fault(w, c)
	switch c.op {
	case readKey, writeKey, spendKey:
		switch f.kind {
		case crashBefore, crashAfter, freezeBriefly, freezeLong, none:
		default:
			return fault{}
		}
	}
	return f
}

func TestARotationOfKeysRejectsNoAuthenticDelivery(t *testing.T) {
	prepare(t)
	n := uint64(300)
	if short() {
		n = 20
	}
	var c pool
	var mu sync.Mutex
	var old, flapped, reserve, maintained int
	c.all(t, func(hand func(job)) {
		for i := range n {
			number := i + 1
			if *seed != 0 {
				number = *seed
			}
			hand(func(t *testing.T) (*world, counts) {
				w, counted := play(t, func() (*world, counts) { return rotationHistory(number) })
				mu.Lock()
				defer mu.Unlock()
				old += w.keyEndpoint.acceptedOld
				flapped += w.keyEndpoint.flapped
				maintained += w.keyEndpoint.maintained
				reserve += min(w.keyEndpoint.reserve, 1)
				return w, counted
			})
			if *seed != 0 {
				return
			}
		}
	})
	t.Logf("%v; %d wrong 404s, %d wrong 200s, %d accepted with a withdrawn key, %d histories used the reserve",
		c.total, flapped, maintained, old, reserve)
	if *seed == 0 && (flapped == 0 || maintained == 0 || old == 0 || reserve == 0) {
		t.Error("a case did not occur")
	}
}
