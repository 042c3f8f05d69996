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

func TestHistoriesOfAKey(t *testing.T) {
	for name, history := range map[string]string{
		"one fetch for all functions": `
			0  key . a   key origin 1
			0  .   . a   key memory 0
			0  .   . b   key table 0
			0  .   . b   key memory 0
			1h .   . b   key origin 1 // no copy is fresh any more
			0  .   . a   key table 0`,
		"used for a day while the service is down": `
			0   key . a   key origin 1
			2h  503 . a   key stale 1
			0   .   . a   key stale 0 // within the pause
			10s .   . a   key stale 1
			0   .   . new key stale 1 // from the table
			21h59m49.999s . . a key stale 1
			1ms .   . a   unavailable origin 1
			0   .   . new unavailable origin 1
			0   key . a   key origin 1`,
		"unknown for a minute": `
			0 404 . a   unknown origin 1
			0 .   . a   unknown memory 0
			0 .   . new unknown table 0
			stored <nil> until 1m0s
			59.999s key . a unknown memory 0
			1ms .   . a   key origin 1`,
		"another content type": `
			0   200        . a unavailable origin 1 text/html
			0  key-as-html . a key origin 1 text/html
			1h  200        . a key stale 1 text/html`,
		"rotated under its id": `
			0  key  . a  key origin 1
			0  .    . b  key table 0
			0  .    . c  key table 0
			0  key2 . a+ none - 0 // younger than a minute
			1m .    . a+ key2 origin 1
			0  .    . b+ key2 table 0
			0  .    . a  key2 memory 0
			0  .    . a+ none - 0
			1m .    . c+ key2 origin 1 // the record in the table is a minute old
			0  .    . a+ none table 0 // another function has just fetched it
			1m .    . a+ none origin 1 // the same key
			1m 503  . a  key2 memory 0
			0  .    . a+ none stale 1
			0  .    . a+ none - 0 // forged signatures cause no further call
			0  .    . a  key2 memory 0`,

		"one 404 removes nothing": `
			0   key . a   key origin 1
			1h  404 . a   key stale 1 withdrawn
			0   key . a   key stale 0 withdrawn // within the pause
			10s .   . a   key origin 1
			0   .   . new key table 0
			stored a key until 25h0m10s // the good answer has cleared the report
			20h 404 . new key stale 1 withdrawn // the first one again
			5m  503 . new key stale 1 withdrawn // which changes nothing
			0   key . new key origin 1`,
		"one 404 after a forged signature": `
			0   key . a  key origin 1
			1m  404 . a+ none stale 1 withdrawn
			0   .   . a  key stale 0 withdrawn
			0   .   . b  key stale 0 withdrawn // from the table
			10s key . a  key origin 1`,
		"repeated 404 without the table": `
			0   key down a key origin 1 table-failed
			1h  410 down a key stale 1 withdrawn table-failed
			4m59.999s . down a key stale 1 withdrawn table-failed
			10s .   down a unknown origin 1 withdrawn table-failed
			0   .   down a unknown memory 0 withdrawn`,
		"all functions share the grace": `
			0   key . a    key origin 1
			0   .   . b    key table 0
			0   .   . idle key table 0
			1h  410 . a    key stale 1 withdrawn
			0   .   . b    key stale 0 withdrawn // the other function has just called
			0   .   . new  key stale 0 withdrawn
			10s .   . b    key stale 1 withdrawn
			0   .   . a    key stale 0 withdrawn
			4m50s . . new  unknown origin 1 withdrawn
			0   .   . a    unknown table 0 withdrawn
			2m  503 . idle unavailable origin 1 // neither is a copy that was not used in between
			10h 410 . new  unknown origin 1 withdrawn
			stored <nil> since 1h0m0s until 25h0m0s // while a copy can exist`,
		"the grace starts at the answer": `
			0   key . a   key origin 1
			1h  slow-404 . a key stale 1 withdrawn
			10s 404 . new key stale 1 withdrawn`,
		"a late 404 after another function has the key": `
			0  key . a   key origin 1
			1h 410 . a   key stale 1 withdrawn
			6m late-404 . a key table 2
			0  .   . a   key memory 0
			0  .   . new key table 0`,
		"a removal that a function cannot read": `
			0  key . idle key origin 1
			1h 410 . new  key stale 1 withdrawn
			5m .   . new  unknown origin 1 withdrawn
			0  .   x new  unknown origin 1 table-failed
			2m 503 . idle unavailable origin 1`,
		"a copy that is newer than its removal": `
			0  key .   a key origin 1
			1h 410 .   a key stale 1 withdrawn
			5m .   .   a unknown origin 1 withdrawn
			1m key ..x a key origin 1 table-failed // the write
			1h 503 .   a key stale 1`,
		"a report of an older key": `
			0  key  .  a key origin 1
			1h 410  .  a key stale 1 withdrawn
			1m key2 .x a key2 origin 1 table-failed // the write
			1h 410  .  a key2 stale 1 withdrawn
			5m .    .  a unknown origin 1 withdrawn`,
		"a copy that is newer than the table": `
			0  key  .  a key origin 1
			1h key2 .x a key2 origin 1 table-failed // the write
			1h 503  .  a key2 stale 1`,
		"a key that the table never had": `
			0  key down a   key origin 1 table-failed
			1h 404 .    new unknown origin 1 // which says nothing about a copy
			0  .   .    a   key stale 1 withdrawn`,
		"a key that the table no longer has": `
			0  key .    a   key origin 1
			1h 410 down a   key stale 1 withdrawn table-failed
			drop
			5m .   .    a   unknown origin 1 withdrawn
			0  .   .    new unknown table 0 withdrawn`,
		"dropped": `
			0  key . a   key origin 1
			drop
			0  .   . a   key memory 0
			0  .   . new key origin 1`,
		"a key that a function cannot read": `
			0 key . new key origin 1
			0 404 x new key stale 1 withdrawn table-failed`,
		"a report that a function cannot read": `
			0  key . a key origin 1
			0  .   . b key table 0
			1h 410 . a key stale 1 withdrawn
			5m .   x b unknown origin 1 withdrawn table-failed
			stored <nil> since 1h0m0s until 25h0m0s`,
		// One call more than there are does not fail.
		"each call of the table fails": `
			0   key x    new key origin 1 table-failed
			0   .   .x   new key origin 1 table-failed
			0   .   ..x  a   key origin 1 table-failed
			0   .   ...x new key origin 1
			0   .   .x   new key table 0
			1h  .   x    a   key origin 1 table-failed
			1h  .   .x   a   key origin 1 table-failed
			1h  .   ..x  a   key origin 1
			1m  .   x    a+  none origin 1 table-failed
			1m  .   .x   a+  none origin 1 table-failed
			1m  .   ..x  a+  none origin 1 table-failed
			1m  .   ...x a+  none origin 1
			1h  503 x    a   key stale 1 table-failed
			10s .   .x   a   key stale 1
			10s 404 .x   a   key stale 1 withdrawn table-failed
			10s .   ..x  a   key stale 1 withdrawn
			5m  .   ..x  a   unknown origin 1 withdrawn table-failed
			drop
			0   .   x    new unknown origin 1 table-failed
			drop
			0   .   .x   new unknown origin 1 table-failed
			drop
			0   .   ..x  new unknown origin 1 table-failed
			drop
			0   .   ...x new unknown origin 1`,
		"a report without the table": `
			0  key .    a   key origin 1
			1h 410 down a   key stale 1 withdrawn table-failed
			1m .   .    a   key stale 1 withdrawn
			4m .   .    new unknown origin 1 withdrawn`,

		"rejected by the policy": `
			0  key . a   key origin 1
			0  .   . b   key table 0
			1h rejected . a rejected origin 1 withdrawn
			0  .   . a   rejected memory 0 withdrawn
			0  .   . b   rejected table 0 withdrawn
			0  .   . new rejected table 0 withdrawn
			stored keys: key rejected: alg is not RS256 since 1h0m0s until 25h0m0s
			1m .   . b   rejected origin 1 withdrawn // it is asked for again, and stays withdrawn
			1m 410 . a   unknown origin 1 withdrawn
			stored <nil> since 1h0m0s until 25h0m0s
			1m key . b   key origin 1
			0  .   . new key table 0`,
		// Anyone can make a function call the service, with a forged signature that names the id of a real key.
		"an answer that is not the JWK": `
			0   key  . a   key origin 1
			0   .    . b   key table 0
			1m   200 . a+  none stale 1 text/html
			0   .    . a   key memory 0
			1h  .    . a   key stale 1 text/html
			0   .    . b   key stale 1 text/html
			0   .    . new key stale 1 text/html
			24h .    . a   unavailable origin 1 text/html
			0   .    . a   unavailable origin 1 text/html // it is not cached as unknown
			0   key  . a   key origin 1`,

		// The service knows one spelling only. Anyone can send others.
		"other spellings": `
			0   key . a/1  unknown origin 1
			0   .   . a/2  unknown origin 1
			0   .   . b/3  unknown origin 1
			0   .   . b/3  unknown memory 0
			0   .   . c/3  unknown table 0
			0   .   . a    key origin 1
			0   .   . b/3  unknown memory 0 // for a minute
			1m  .   . a/1+ none origin 1
			1h  .   . b/2  key origin 1
			5m  .   . new/1 key table 0
			25h .   . a/1  unknown origin 1 // nothing is cached any more
			0   .   . new  key origin 1
			0   .   . a    key table 0`,
		"other spellings without the table": `
			0  key . new   key origin 1
			1h .   x new/1 key stale 1 table-failed
			5m .   x new/1 key stale 1 table-failed
			5m .   x new/1 key stale 1 table-failed
			stored a key until 24h0m0s`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newFleet(t).play(history)
		})
	}
}
