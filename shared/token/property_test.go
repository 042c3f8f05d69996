package token_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"payhook/shared/token"
)

// world is a service, refreshers and readers over a few lifetimes of a token,
// in which everything that varies is drawn from one seed: the lifetime, how
// long each answer takes, when the endpoint is up, how it fails while it is
// not, when the runs start, and how far the clocks of refresher and readers lie
// from the service's.
//
// What is assumed: no two of those clocks differ by more than maxSkew, which is
// 5 s or a tenth of the lifetime, whichever is less; runs start once a minute,
// none of them later than 2 s after its time; an answer takes at most 3 s.
type world struct {
	*rig
	t        *testing.T
	random   *rand.Rand
	lifetime time.Duration
	share    time.Duration // of the lifetime that is kept for tries
	readers  []*token.Reader

	mu      sync.Mutex           // the endpoint's goroutine and the test's take turns
	expiry  map[string]time.Time // of each token, by the service's clock
	outages [][2]time.Time
	handed  int // out, by the readers
	refused int // by the readers, rightly
	failure string
}

// skewed returns a clock that is off by d.
func skewed(c *clock, d time.Duration) func() time.Time {
	return func() time.Time { return c.Now().Add(d) }
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{rig: newRig(t), t: t, random: rand.New(rand.NewPCG(seed, 0)), expiry: map[string]time.Time{}}
	lifetimes := []time.Duration{2 * time.Minute, 5 * time.Minute, 17 * time.Minute, 40 * time.Minute}
	w.lifetime = lifetimes[w.random.IntN(len(lifetimes))]
	w.share = w.lifetime * 66 / 100

	// Half of the bound either way: then no two differ by more than the bound.
	maxSkew := min(5*time.Second, w.lifetime/10)
	skew := func() time.Duration { return time.Duration(w.random.Int64N(int64(maxSkew))) - maxSkew/2 }

	w.endpoint.then(w.answer)
	refresherClock := skewed(w.clock, skew())
	w.refresher = token.NewRefresher(w.secrets.SDK(), tokenSecret, credentialsSecret,
		token.NewEndpoint(parse(t, w.endpoint.URL), "manager-1", token.EndpointOptions{Now: refresherClock}),
		token.RefresherOptions{
			Now: refresherClock,
			Sleep: func(_ context.Context, d time.Duration) error {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.pass(d)
				return nil
			},
			Random: func() float64 {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.random.Float64()
			},
		})
	for range 3 {
		w.readers = append(w.readers, token.NewReader(w.secrets.SDK(), tokenSecret, token.ReaderOptions{Now: skewed(w.clock, skew())}))
	}

	// Outages of up to a lifetime, with up to two lifetimes between them.
	for at := w.Now().Add(w.upTo(2 * w.lifetime)); at.Before(w.Now().Add(8 * w.lifetime)); {
		end := at.Add(w.upTo(w.lifetime))
		w.outages = append(w.outages, [2]time.Time{at, end})
		at = end.Add(w.upTo(2 * w.lifetime))
	}
	return w
}

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.random.Int64N(int64(d))) }

// upFor reports whether the endpoint was up all of d until now.
func (w *world) upFor(d time.Duration) bool {
	now := w.Now()
	for _, o := range w.outages {
		if o[0].Before(now) && o[1].After(now.Add(-d)) {
			return false
		}
	}
	return true
}

// answer is the token endpoint.
func (w *world) answer(out http.ResponseWriter, request *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass(w.upTo(1500 * time.Millisecond))
	defer func() { w.pass(w.upTo(1500 * time.Millisecond)) }()
	if w.upFor(0) {
		access := fmt.Sprint("t-", len(w.expiry))
		w.expiry[access] = w.Now().Add(w.lifetime)
		gives(access, w.lifetime)(out, request)
		return
	}
	switch w.random.IntN(5) {
	case 0:
		answers(http.StatusUnauthorized, `{"error":"invalid_client"}`)(out, request)
	case 1:
		answers(http.StatusTooManyRequests, "", "Retry-After", fmt.Sprint(w.random.IntN(90)))(out, request)
	case 2:
		answers(http.StatusServiceUnavailable, "")(out, request)
	case 3:
		answers(http.StatusOK, `{"access_token":"t","token_type":"Bearer","expires_in":0}`)(out, request)
	case 4:
		hangsUp(out, request)
	}
}

// pass lets time go by in small, uneven steps, with everybody wanting a token
// after each.
func (w *world) pass(d time.Duration) {
	for end := w.Now().Add(d); w.Now().Before(end); {
		w.Advance(min(end.Sub(w.Now()), time.Second+w.upTo(w.lifetime/50)))
		for _, reader := range w.readers {
			w.read(reader)
		}
	}
}

func (w *world) read(reader *token.Reader) {
	got, err := reader.Token()
	if err == nil {
		w.handed++
		if left := w.expiry[got.AccessToken].Sub(w.Now()); left <= 0 {
			w.fail("%s was handed out %s after its expiry", got.AccessToken, -left)
		}
		return
	}
	w.refused++
	if !errors.Is(err, token.ErrExpired) && !errors.Is(err, token.ErrNone) {
		w.fail("%v", err)
	}
	if w.started() && w.upFor(w.share) {
		w.fail("%v, though the endpoint has been up for %s", err, w.share)
	}
}

// started reports whether the share of a lifetime has gone by since the
// deployment.
func (w *world) started() bool { return w.Now().Sub(newClock().Now()) >= w.share }

func (w *world) fail(format string, args ...any) {
	if w.failure == "" {
		w.failure = fmt.Sprintf("%s after the start: ", w.Now().Sub(newClock().Now())) + fmt.Sprintf(format, args...)
	}
}

func TestOverRandomSchedulesReadersFailOnlyIfTheEndpointWasDownTooLong(t *testing.T) {
	worlds := 16
	if testing.Short() {
		worlds = 8
	}
	handed, refused, writes := 0, 0, 0
	for seed := range uint64(worlds) {
		w := newWorld(t, seed)
		start := w.Now()
		for minute := range int(8 * w.lifetime / time.Minute) {
			w.mu.Lock()
			due := start.Add(time.Duration(minute) * time.Minute).Add(w.upTo(2 * time.Second))
			w.pass(due.Sub(w.Now()))
			w.mu.Unlock()
			ctx, cancel := context.WithDeadline(t.Context(), w.Now().Add(55*time.Second))
			_, _ = w.refresher.Run(ctx)
			cancel()
			w.mu.Lock()
			failure := w.failure
			w.mu.Unlock()
			if failure != "" {
				t.Fatalf("seed %d, lifetime %s: %s", seed, w.lifetime, failure)
			}
		}
		handed, refused, writes = handed+w.handed, refused+w.refused, writes+len(w.secrets.Values(tokenSecret))
	}
	t.Logf("%d tokens were stored, %d handed out, and %d refused because of an outage", writes, handed, refused)
	if handed == 0 || refused == 0 {
		t.Error("the worlds were not what they should be")
	}
}
