package keys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"uuid"
)

var (
	sender   = netip.MustParseAddr("192.0.2.10")
	stranger = netip.MustParseAddr("198.51.100.20")
	start    = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
)

// spellings are texts of one key id.
var spellings = []string{id, strings.ToUpper(id), itemID, strings.ToUpper(itemID)}

// fleet is a payment service, a shared table and a clock. Each of its caches represents one function process.
type fleet struct {
	t       *testing.T
	db      table
	opts    Options // of the caches
	server  *httptest.Server
	fetches atomic.Int32
	now     time.Time
	service string          // what it answers: see ServeHTTP
	known   []string        // the spellings of the id that the service knows
	asked   func(id string) // is called first; nil: nothing is
}

func newFleet(t *testing.T, change ...func(*Options)) *fleet {
	f := &fleet{t: t, now: start, service: "key", known: spellings[:1]}
	f.opts.Now = func() time.Time { return f.now }
	for _, c := range change {
		c(&f.opts)
	}
	f.server = httptest.NewServer(f)
	t.Cleanup(f.server.Close)
	return f
}

// ServeHTTP answers with the key that the service has, or with a status and a page.
func (f *fleet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.fetches.Add(1)
	id := path.Base(r.URL.Path)
	if f.asked != nil {
		f.asked(id)
	}
	key, contentType, status := string(text(f.t, members(generated(0).N, 65537))), "application/json", http.StatusOK
	switch f.service {
	case "key":
	case "key-as-html":
		contentType = "text/html"
	case "key2":
		key = string(text(f.t, members(generated(1).N, 65537)))
	case "rejected":
		key = strings.Replace(key, "RS256", "RS512", 1)
	case "slow-404": // Lambda freezes the process during the call
		f.pass(10 * time.Minute)
		status = http.StatusNotFound
	case "late-404": // meanwhile, the service returns the key to another process
		f.pass(time.Second)
		f.service = "key"
		if _, err := f.lookup(f.cache(), spellings[0], netip.Addr{}); err != nil {
			f.t.Error(err)
		}
		status = http.StatusNotFound
	default:
		key, contentType = "<html>", "text/html"
		status, _ = strconv.Atoi(f.service)
	}
	if status == http.StatusOK && !slices.Contains(f.known, id) {
		status = http.StatusNotFound
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, key)
}

func budgetOf(calls int) func(*Options) { return func(o *Options) { o.MissBudget = calls } }

func (f *fleet) cache() *Cache {
	return New(origin(f.t, f.server.Client(), f.server.URL), &f.db, f.opts)
}

func (f *fleet) pass(d time.Duration) { f.now = f.now.Add(d) }

// lookup looks a key up, and waits until it is in the table.
func (f *fleet) lookup(c *Cache, id string, from netip.Addr) (Found, error) {
	found, err := c.Lookup(f.t.Context(), id, from)
	found.Wait()
	return found, err
}

func (f *fleet) refetch(c *Cache, id string, failed Found, from netip.Addr) (Found, error) {
	found, err := c.Refetch(f.t.Context(), id, failed, from)
	found.Wait()
	return found, err
}

// flood looks up n invented ids from an address and returns the number of calls of the service.
func (f *fleet) flood(c *Cache, from netip.Addr, n int) int32 {
	f.t.Helper()
	before := f.fetches.Load()
	for range n {
		if _, err := f.lookup(c, uuid.New().String(), from); !errors.Is(err, ErrUnknown) &&
			!errors.Is(err, ErrOutOfBudget) {
			f.t.Fatal(err)
		}
	}
	return f.fetches.Load() - before
}

// play plays a history of one key. Each line is one step:
//
//	AFTER SERVICE TABLE PROCESS RESULT
//
// AFTER is the time that passes before, SERVICE what the service answers from then on (see ServeHTTP), and TABLE which
// calls of the table fail in this step: "down" for all, "..x" for the third one. A dot stands for none and no change.
// PROCESS is a function process that looks the key up, "new" for another one each time: by the spelling with the number
// after a slash, or with a plus sign again after it has found the key. The RESULT is the key or the error, where it was
// found, and the number of calls of the service; then what is reported besides.
//
// Other lines are "drop", which deletes the record, and "stored" with what it must be.
func (f *fleet) play(history string) {
	f.t.Helper()
	processes, last := map[string]*Cache{}, map[string]Found{}
	for line := range strings.Lines(history) {
		line, _, _ = strings.Cut(line, "//")
		words := strings.Fields(line)
		var got string
		switch {
		case len(words) == 0:
			continue
		case words[0] == "drop":
			_ = f.db.Delete(f.t.Context(), itemID)
			continue
		case words[0] == "stored":
			got = "stored " + f.stored()
		default:
			after, err := time.ParseDuration(words[0])
			if err != nil {
				f.t.Fatal(err)
			}
			f.pass(after)
			if words[1] != "." {
				f.service = words[1]
			}
			f.db.fail(words[2])
			process, again := strings.CutSuffix(words[3], "+")
			process, spelling, _ := strings.Cut(process, "/")
			number, _ := strconv.Atoi(spelling)
			if processes[process] == nil || process == "new" {
				processes[process] = f.cache()
			}
			before := f.fetches.Load()
			var found Found
			if again {
				found, err = f.refetch(processes[process], spellings[number], last[process], netip.Addr{})
			} else {
				found, err = f.lookup(processes[process], spellings[number], netip.Addr{})
				last[process] = found
			}
			f.db.fail("")
			got = strings.Join(append(words[:4:4], result(found, err, f.fetches.Load()-before)), " ")
		}
		if want := strings.Join(words, " "); got != want {
			f.t.Errorf("%s\n%s", got, want)
		}
	}
}

// result describes the result of a lookup.
func result(found Found, err error, fetches int32) string {
	key := "none"
	switch {
	case slices.Equal(violations(err), []Violation{WrongAlgorithm}):
		key = "rejected"
	case errors.Is(err, ErrUnknown):
		key = "unknown"
	case errors.Is(err, ErrUnavailable):
		key = "unavailable"
	case err != nil:
		key = err.Error()
	case found.Key == nil:
	case generated(0).PublicKey.Equal(found.Key):
		key = "key"
	case generated(1).PublicKey.Equal(found.Key):
		key = "key2"
	}
	if err != nil && found.Key != nil {
		key += "-with-a-key"
	}
	text := fmt.Sprintf("%s %s %d", key, cmp.Or(found.Source, "-"), fetches)
	if found.Withdrawn {
		text += " withdrawn"
	}
	if found.TableFailed {
		text += " table-failed"
	}
	return strings.TrimSpace(text + " " + found.UnexpectedType)
}

// stored describes the record of the key.
func (f *fleet) stored() string {
	r, err := f.db.Memory.Get(f.t.Context(), itemID)
	if r == nil || err != nil {
		return fmt.Sprint("nothing ", err)
	}
	text := "a key"
	if key, err := r.Key(); key == nil {
		text = fmt.Sprint(err)
	}
	if !r.UnknownSince.IsZero() {
		text += fmt.Sprint(" since ", r.UnknownSince.Sub(start))
	}
	return text + fmt.Sprint(" until ", r.ExpiresAt.Sub(start))
}

// table is a store in memory that counts the calls of each method, and whose calls fail or wait.
type table struct {
	Memory
	wait func(context.Context) error // nil: no call waits

	mu      sync.Mutex
	failing string // see fail
	calls   map[string]int
	expires map[string]time.Time // of counters and sources, by name
}

// fail sets which of the next calls fail: all for "down", otherwise those with an x.
func (t *table) fail(calls string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failing = calls
}

// count returns the number of calls of a method, or of all.
func (t *table) count(method string) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, calls := range t.calls {
		if name == method || method == "" {
			n += calls
		}
	}
	return n
}

func call[T any](ctx context.Context, t *table, method string, do func() (T, error)) (result T, err error) {
	t.mu.Lock()
	put(&t.calls, method, t.calls[method]+1)
	fails := t.failing == "down" || strings.HasPrefix(t.failing, "x")
	if t.failing != "down" {
		t.failing = t.failing[min(1, len(t.failing)):]
	}
	t.mu.Unlock()
	if fails {
		return result, errors.New("the table is broken")
	}
	if t.wait != nil {
		if err := t.wait(ctx); err != nil {
			return result, err
		}
	}
	return do()
}

func (t *table) Get(ctx context.Context, id string) (*Record, error) {
	return call(ctx, t, "Get", func() (*Record, error) { return t.Memory.Get(ctx, id) })
}

func (t *table) Put(ctx context.Context, r Record) error {
	_, err := call(ctx, t, "Put", func() (any, error) { return nil, t.Memory.Put(ctx, r) })
	return err
}

func (t *table) Remove(ctx context.Context, r Record, oldest time.Time) (*Record, error) {
	return call(ctx, t, "Remove", func() (*Record, error) { return t.Memory.Remove(ctx, r, oldest) })
}

func (t *table) ReportUnknown(ctx context.Context, id string, asked, since time.Time) (*Record, error) {
	return call(ctx, t, "ReportUnknown",
		func() (*Record, error) { return t.Memory.ReportUnknown(ctx, id, asked, since) })
}

func (t *table) Take(ctx context.Context, name string, limit int, expires time.Time) (bool, error) {
	return call(ctx, t, "Take", func() (bool, error) {
		put(&t.expires, name, expires)
		return t.Memory.Take(ctx, name, limit, expires)
	})
}

func (t *table) RecordSource(ctx context.Context, name string, now, oldest, expires time.Time) (time.Time, error) {
	return call(ctx, t, "RecordSource", func() (time.Time, error) {
		put(&t.expires, name, expires)
		return t.Memory.RecordSource(ctx, name, now, oldest, expires)
	})
}

func (t *table) Source(ctx context.Context, name string) (time.Time, error) {
	return call(ctx, t, "Source", func() (time.Time, error) { return t.Memory.Source(ctx, name) })
}
