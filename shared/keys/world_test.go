package keys

import (
	"cmp"
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"uuid"
)

var (
	sender   = netip.MustParseAddr("192.0.2.10")
	stranger = netip.MustParseAddr("198.51.100.20")
)

// spellings are texts of one key id.
var spellings = []string{id, strings.ToUpper(id), itemID, strings.ToUpper(itemID)}

// world is a payment service, a shared table and a fake clock. Each of its caches is that of one execution environment.
type world struct {
	*testing.T
	table
	opts Options // of the caches
	all  []*Cache

	mu     sync.Mutex
	takes  time.Duration             // a request
	keys   map[string]*rsa.PublicKey // by the ids in the spellings that the service knows
	answer func(id string) string    // a status, a header after a space, or a body; "" for that of keys; nil: always
	asked  map[string]int            // requests by id
	calls  atomic.Int32              // requests
	others atomic.Int32              // of those, the ones sent while another one was under way for the same spelling
	now    map[string]int
}

// run runs a test in a fake clock with caches that share a table whose calls take 10 ms.
func run(t *testing.T, caches int, test func(w *world), change ...func(*Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, takes: 300 * time.Millisecond, asked: map[string]int{}, now: map[string]int{},
			keys: map[string]*rsa.PublicKey{id: &generated(0).PublicKey}}
		w.table.takes, w.counts, w.expires = 10*time.Millisecond, map[string]int{}, map[string]time.Time{}
		for _, c := range change {
			c(&w.opts)
		}
		for range caches {
			w.all = append(w.all, w.cache())
		}
		test(w)
	})
}

// cache returns another cache.
func (w *world) cache() *Cache {
	service := &url.URL{Scheme: "https", Host: "service"}
	return New(NewEndpoint(&http.Client{Transport: w}, service, 3*time.Second), &w.table, w.opts)
}

// RoundTrip answers as the service.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	id := path.Base(r.URL.Path)
	w.calls.Add(1)
	w.mu.Lock()
	w.asked[id]++
	if w.now[id]++; w.now[id] > 1 {
		w.others.Add(1)
	}
	takes := w.takes
	w.mu.Unlock()
	sleep(r.Context(), takes)
	said := ""
	if answer := w.answer; answer != nil {
		said = answer(id)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now[id]--
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	status, header := http.StatusOK, http.Header{"Content-Type": {"application/json"}}
	switch key := w.keys[id]; {
	case strings.HasPrefix(said, "<"):
		header.Set("Content-Type", "text/html")
	case strings.HasPrefix(said, "{"):
	case said != "":
		var after string
		if _, err := fmt.Sscanf(said, "%d %s", &status, &after); err == nil {
			header.Set("Retry-After", after)
		}
	case key == nil:
		status = http.StatusNotFound
	default:
		said = string(FormatJWK(id, key))
	}
	body := io.NopCloser(strings.NewReader(said))
	return &http.Response{StatusCode: status, Header: header, Request: r, Body: body}, nil
}

// say sets what the service answers; "" for its keys.
func (w *world) say(answer string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = func(string) string { return answer }
}

// publish sets the key of an id.
func (w *world) publish(id string, key *rsa.PrivateKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys[id] = &key.PublicKey
}

// lookup looks a key up as a webhook does that key signed; nil for any.
func (w *world) lookup(c *Cache, id string, key *rsa.PrivateKey, from netip.Addr) (Found, error) {
	found, err := c.Lookup(w.Context(), id, from)
	for err == nil && key != nil && !found.Key.Equal(&key.PublicKey) {
		found.Save(w.Context())
		again, failed := c.Refetch(w.Context(), id, found, from)
		again.Save(w.Context())
		if failed == nil && again.Key == nil {
			failed = errMismatch
		}
		found, err = again, failed
	}
	found.Save(w.Context())
	return found, err
}

var errMismatch = errors.New("the signature does not verify")

// rate sends webhooks with an id to free caches, so many a second, and returns the errors of those that are rejected.
func (w *world) rate(perSecond int, lasts time.Duration, id func(n int) string, key *rsa.PrivateKey, from netip.Addr) (
	rejected []error) {
	free := make(chan *Cache, len(w.all))
	for _, c := range w.all {
		free <- c
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for n := range int(lasts.Seconds() * float64(perSecond)) {
		time.Sleep(time.Second / time.Duration(perSecond))
		c := <-free
		wg.Go(func() {
			if _, err := w.lookup(c, id(n), key, from); err != nil {
				mu.Lock()
				rejected = append(rejected, err)
				mu.Unlock()
			}
			free <- c
		})
	}
	wg.Wait()
	return rejected
}

func budgetOf(calls int) func(*Options) { return func(o *Options) { o.MissBudget = calls } }

func always(id string) func(int) string { return func(int) string { return id } }

func invented(int) string { return uuid.New().String() }

// table is a store in memory that counts the calls of each method, and whose calls take time or fail.
type table struct {
	Memory
	takes time.Duration
	twice bool // each write is repeated, as the SDK does if the answer is lost
	stuck bool // no write takes effect, and nothing is read

	mu      sync.Mutex
	failing string // all calls fail for "down", otherwise those of the next calls with an x
	counts  map[string]int
	expires map[string]time.Time // of counters and senders, by name
}

// fail sets which of the next calls fail.
func (t *table) fail(calls string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failing = calls
}

// count returns the number of calls of a method, or of all.
func (t *table) count(method string) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, calls := range t.counts {
		if name == method || method == "" {
			n += calls
		}
	}
	return n
}

func sleep(ctx context.Context, d time.Duration) {
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
}

var errBroken = errors.New("the table is broken")

func call[T any](ctx context.Context, t *table, method string, do func() T) (result T, err error) {
	t.mu.Lock()
	t.counts[method]++
	fails := t.failing == "down" || strings.HasPrefix(t.failing, "x")
	if t.failing != "down" {
		t.failing = t.failing[min(1, len(t.failing)):]
	}
	t.mu.Unlock()
	sleep(ctx, t.takes)
	if fails || ctx.Err() != nil {
		return result, cmp.Or(ctx.Err(), errBroken)
	}
	return do(), nil
}

func (t *table) Get(ctx context.Context, id string) (*Record, error) {
	return call(ctx, t, "Get", func() *Record { r, _ := t.Memory.Get(ctx, id); return r })
}

func (t *table) Put(ctx context.Context, r Record, version string) (stored bool, instead *Record, err error) {
	instead, err = call(ctx, t, "Put", func() *Record {
		if t.stuck {
			return nil
		}
		if t.twice {
			_, _, _ = t.Memory.Put(ctx, r, version)
		}
		stored, instead, _ = t.Memory.Put(ctx, r, version)
		return instead
	})
	return stored, instead, err
}

func (t *table) Take(ctx context.Context, name string, limit int, expires time.Time) (bool, error) {
	return call(ctx, t, "Take", func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.expires[name] = expires
		left, _ := t.Memory.Take(ctx, name, limit, expires)
		return left
	})
}

func (t *table) RecordSender(ctx context.Context, name string, now, oldest, expires time.Time) (time.Time, error) {
	return call(ctx, t, "RecordSender", func() time.Time {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.expires[name] = expires
		at, _ := t.Memory.RecordSender(ctx, name, now, oldest, expires)
		return at
	})
}

func (t *table) Sender(ctx context.Context, name string) (time.Time, error) {
	return call(ctx, t, "Sender", func() time.Time { at, _ := t.Memory.Sender(ctx, name); return at })
}
