package token_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"payhook.example/shared/token"
)

// grants is how a token endpoint answers a client that already has a token.
type grants string

const (
	// newToken issues a token with the full lifetime at each call.
	newToken grants = "a new token"
	// sameToken returns the current token with its remaining lifetime at each call.
	sameToken grants = "the same token until its end"
	// early is like sameToken, but issues the next token before the current one expires.
	early grants = "the same token until shortly before its end"
	// shorter issues a token with half the lifetime or more at each call.
	shorter grants = "a new token with a shorter life"
)

// earlyPart of its lifetime is left of a token when early grants the next one.
const earlyPart = 8 // one eighth

// promise is the statement of events/README.md about a lifetime and an endpoint. It is
// computed from the rules in words, and not by the code under test.
type promise struct {
	refreshAt time.Duration // the remaining life at which the token is refreshed
	available time.Duration // the remaining life at which the endpoint has a newer token and is asked for it
	lateness  time.Duration // of a run that is allowed for
	runs      time.Duration // how many runs can replace the token in time
	outage    time.Duration // the longest outage that no caller notices
	// gap is how long callers can have no token each time the endpoint returns a token
	// until it has expired.
	gap time.Duration
}

const (
	percent = 66
	minute  = time.Minute
	// answerTime is the longest time that an answer of the endpoint takes here.
	answerTime = 3 * time.Second
	// maxMargin is the time before its expiry in which a Reader returns no token.
	maxMargin = 5 * time.Second
)

func promised(lifetime time.Duration, g grants) promise {
	p := promise{refreshAt: min(lifetime*percent/100, max(4*minute, lifetime-16*minute)), lateness: 2 * time.Second}
	if p.refreshAt >= 4*minute {
		p.lateness = 30 * time.Second
	}
	p.available = p.refreshAt
	switch g {
	case sameToken:
		p.available = 0
	case early:
		// The endpoint is asked when half of the remaining life has passed, and in
		// every run of the last 4 minutes.
		p.available = min(p.refreshAt, max(lifetime/earlyPart/2, min(lifetime/earlyPart, 4*minute)))
	}
	// The runs that start and end between that time and the margin of the Readers,
	// with clocks that differ by as much as the margin.
	p.runs = max(0, (p.available-p.lateness-answerTime-2*maxMargin)/minute)
	// A shorter outage can hit all of these runs but one.
	p.outage = max(0, (p.runs-1)*minute-p.lateness)
	p.gap = 28*time.Second + p.lateness
	return p
}

// held reports whether callers are promised to have a token at any time.
func held(lifetime time.Duration) bool { return lifetime >= 2*minute }

// lasting reports whether the quota is promised never to be reached.
func lasting(lifetime time.Duration) bool { return lifetime >= 20*minute }

// world is a service, a refresher and readers in virtual time. Everything that
// varies is drawn from one seed: how long each answer takes, when the endpoint is
// down and how it fails then, how late each run starts, when Lambda replaces the
// sandbox, and how much the clocks of refresher and readers differ from the
// service's.
//
// Assumptions: no two of those clocks differ by more than 5 s or a tenth of the
// lifetime, whichever is less; a run starts every minute, at most promise.lateness
// late; an answer takes at most 3 s.
type world struct {
	*rig
	promise
	t         *testing.T
	random    *rand.Rand
	lifetime  time.Duration // the longest that the endpoint grants
	grants    grants
	start     time.Time
	readers   []*token.Reader
	outages   []outage
	refresh   func() time.Time // the refresher's clock
	sandboxes int

	current  string               // the last token that was issued
	issuedAt map[string]time.Time // by the service's clock
	expiry   map[string]time.Time // by the service's clock

	lastHanded time.Time
	returned   int           // tokens returned by the readers
	refused    int           // times a reader had no token
	longest    time.Duration // the longest time without a token around an expiry
	writes     []time.Time
	rejected   time.Time // when the quota was reached first
	calls      int       // of the endpoint while it was up
	failure    string
}

type outage struct{ from, to time.Time }

func newWorld(t *testing.T, seed uint64, lifetime time.Duration, g grants) *world {
	shortest := lifetime
	if g == shorter {
		shortest = lifetime / 2
	}
	w := &world{
		rig: newRig(t), promise: promised(shortest, g), t: t, random: rand.New(rand.NewPCG(seed, uint64(lifetime))),
		lifetime: lifetime, grants: g, issuedAt: map[string]time.Time{}, expiry: map[string]time.Time{},
	}
	w.start = w.Now()
	// Half of the bound in either direction: then no two differ by more.
	bound := min(maxMargin, shortest/10)
	skewed := func() func() time.Time {
		d := time.Duration(w.random.Int64N(int64(bound))) - bound/2
		return func() time.Time { return w.Now().Add(d) }
	}
	w.refresh = skewed()
	w.endpoint.then(w.answer)
	w.newSandbox()
	for range 2 {
		w.readers = append(w.readers,
			token.NewReader(w.directSecrets(), tokenSecret, token.ReaderOptions{Now: skewed()}))
	}
	return w
}

// newSandbox replaces the refresher by one without memory.
func (w *world) newSandbox() {
	w.sandboxes++
	e := token.NewEndpoint(parse(w.t, w.endpoint.URL), "manager-1",
		token.EndpointOptions{Now: w.refresh, Transport: direct{w.endpoint.Config.Handler}})
	w.refresher = token.NewRefresher(w.directSecrets(), tokenSecret, credentialsSecret, e, token.RefresherOptions{
		RefreshPercent: percent,
		Now:            w.refresh,
		Sleep: func(_ context.Context, d time.Duration) error {
			w.pass(d)
			return nil
		},
		Random: w.random.Float64,
	})
}

// directSecrets returns the SDK's client, without a network in between.
func (w *world) directSecrets() *secretsmanager.Client {
	return secretsmanager.New(w.secrets.SDK().Options(), func(o *secretsmanager.Options) {
		o.HTTPClient = &http.Client{Transport: direct{w.secrets.Config.Handler}}
	})
}

// direct is a transport that calls the server's handler: days of virtual time
// are too many requests for a network.
type direct struct{ handler http.Handler }

func (d direct) RoundTrip(request *http.Request) (response *http.Response, err error) {
	defer func() {
		if recover() != nil { // the handler hangs up
			err = io.ErrUnexpectedEOF
		}
	}()
	recorder := httptest.NewRecorder()
	d.handler.ServeHTTP(recorder, request)
	return recorder.Result(), nil
}

func (w *world) upTo(d time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(d) + 1))
}

// breakDown plans outages until the end: each is too long for the promise, or
// not, with the same probability. Two outages have more than the time of a
// refresh between them.
func (w *world) breakDown(end time.Time) {
	for at := w.start.Add(w.upTo(w.lifetime)); ; {
		at = at.Add(w.refreshAt + 2*minute + w.upTo(2*w.lifetime))
		d := w.upTo(w.outage)
		if w.random.IntN(2) == 0 {
			d = w.outage + w.upTo(w.lifetime+10*minute)
		}
		if at.After(end) {
			return
		}
		w.outages = append(w.outages, outage{at, at.Add(d)})
		at = at.Add(d)
	}
}

// down returns the longest outage of which a part was in the last d.
func (w *world) down(d time.Duration) (longest time.Duration) {
	now := w.Now()
	for _, o := range w.outages {
		if !o.from.After(now) && o.to.After(now.Add(-d)) {
			longest = max(longest, o.to.Sub(o.from))
		}
	}
	return longest
}

// answer is the token endpoint.
func (w *world) answer(out http.ResponseWriter, request *http.Request) {
	w.pass(w.upTo(answerTime / 2))
	defer func() { w.pass(w.upTo(answerTime / 2)) }()
	if w.down(0) > 0 {
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
		return
	}
	w.calls++
	now := w.Now()
	left := w.expiry[w.current].Sub(now)
	switch {
	case w.grants == sameToken && left >= time.Second, w.grants == early && left >= w.lifetime/earlyPart:
	default:
		left = w.lifetime
		if w.grants == shorter {
			left -= w.upTo(w.lifetime / 2)
		}
		w.current = fmt.Sprint("t-", len(w.expiry))
		w.issuedAt[w.current], w.expiry[w.current] = now, now.Add(left)
	}
	returns(w.current, left)(out, request)
}

// pass lets time pass in small, uneven steps. After each, everybody wants a token.
func (w *world) pass(d time.Duration) {
	for end := w.Now().Add(d); w.Now().Before(end); {
		step := time.Second
		switch left := w.expiry[w.current].Sub(w.Now()); {
		case left > 40*time.Second:
			step += min(w.upTo(minute), left-40*time.Second)
		case left < -minute:
			step += w.upTo(minute)
		}
		w.Advance(min(end.Sub(w.Now()), step))
		for _, reader := range w.readers {
			w.read(reader)
		}
	}
}

func (w *world) read(reader *token.Reader) {
	got, err := reader.Token()
	now := w.Now()
	if err == nil {
		w.returned++
		w.lastHanded = now
		if left := w.expiry[got.AccessToken].Sub(now); left <= 0 {
			w.fail("%s was returned %s after its expiry", got.AccessToken, -left)
		}
		return
	}
	w.refused++
	if !errors.Is(err, token.ErrExpired) && !errors.Is(err, token.ErrNone) {
		w.fail("%v", err)
	}
	without := now.Sub(w.lastHanded)
	switch {
	case !held(w.lifetime) || w.grants == shorter && !held(w.lifetime/2):
	case now.Sub(w.start) < 2*minute: // before the first token
	case w.runs == 0 && w.down(3*minute) == 0:
		// There is no newer token, or only shortly before this one expires.
		if w.longest = max(w.longest, without); w.longest > w.gap {
			w.fail("%v for %s", err, w.longest)
		}
	case w.runs > 0 && w.down(w.refreshAt+2*minute) <= w.outage:
		w.fail("%v, though no outage in the last %s was longer than %s", err, w.refreshAt+2*minute, w.outage)
	}
}

func (w *world) fail(format string, args ...any) {
	if w.failure == "" {
		w.failure = fmt.Sprintf("%s after the start: ", w.Now().Sub(w.start)) + fmt.Sprintf(format, args...)
	}
}

// run runs the refresher on its schedule for d.
func (w *world) run(d time.Duration) {
	nextSandbox := w.start.Add(w.upTo(6 * time.Hour))
	for i := range int(d / minute) {
		due := w.start.Add(time.Duration(i) * minute).Add(w.upTo(w.lateness))
		w.pass(due.Sub(w.Now()))
		if w.Now().After(nextSandbox) {
			w.newSandbox()
			nextSandbox = w.Now().Add(w.upTo(6 * time.Hour))
		}
		ctx, cancel := context.WithDeadline(w.t.Context(), w.Now().Add(55*time.Second))
		report, err := w.refresher.Run(ctx)
		cancel()
		if report.Outcome == token.Refreshed {
			w.writes = append(w.writes, w.Now())
		}
		if full, ok := errors.AsType[*token.SecretError](err); ok && full.Code == "LimitExceededException" &&
			w.rejected.IsZero() {
			w.rejected = w.Now()
		}
		if w.failure != "" {
			w.t.Fatalf("%s of %s: %s", w.grants, w.lifetime, w.failure)
		}
	}
}

// busiestDay returns the most writes in any 24 hours, less the seconds by which
// the time of an answer varies.
func (w *world) busiestDay() (most int) {
	first := 0
	for i, at := range w.writes {
		for at.Sub(w.writes[first]) >= 24*time.Hour-answerTime {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

func TestOverDaysCallersHaveATokenAndTheSecretTakesEveryOne(t *testing.T) {
	worlds := []struct {
		lifetime time.Duration
		grants   []grants
	}{
		{90 * time.Second, []grants{newToken, sameToken}},
		{2 * minute, []grants{newToken, sameToken, early}},
		{5 * minute, []grants{newToken, sameToken, early, shorter}},
		{10 * minute, []grants{newToken, sameToken, early, shorter}},
		{19 * minute, []grants{newToken, sameToken, early, shorter}},
		{20 * minute, []grants{newToken, sameToken}},
		{40 * minute, []grants{shorter}},
		{time.Hour, []grants{newToken, early}},
		{24 * time.Hour, []grants{newToken, sameToken, shorter}},
	}
	for i, each := range worlds {
		lifetime := each.lifetime
		for j, g := range each.grants {
			t.Run(fmt.Sprintf("%s of %s", g, lifetime), func(t *testing.T) {
				t.Parallel()
				shortest := lifetime
				if g == shorter {
					shortest /= 2
				}
				w := newWorld(t, uint64(10*i+j), lifetime, g)
				d := 2 * 24 * time.Hour
				if testing.Short() {
					d /= 2
				}
				if !lasting(shortest) {
					d = 90 * minute // until the secret is full; see the next test
				}
				if (i+j)%2 == 0 {
					w.breakDown(w.start.Add(d))
				}
				w.run(d)

				t.Logf("%d writes, at most %d a day; %d calls while up, at most %d allowed; %d returned, %d "+
					"refused, %d outages, a gap of at most %s",
					len(w.writes), w.busiestDay(), w.calls, w.mostCalls(), w.returned, w.refused, len(w.outages),
					w.longest)
				if !w.rejected.IsZero() {
					t.Errorf("the quota was reached after %s", w.rejected.Sub(w.start))
				}
				if n := w.busiestDay(); n > 90 {
					t.Errorf("%d versions in a day, want at most 90", n)
				}
				if most := w.mostCalls(); w.calls > most {
					t.Errorf("%d calls of the endpoint, want at most %d", w.calls, most)
				}
				if w.returned == 0 || len(w.outages) > 10 && w.refused < 10 {
					t.Error("the world is not what it should be")
				}
			})
		}
	}
}

// The numbers in events/README.md of runs that may fail.
func TestTheRunsThatTheDocumentPromises(t *testing.T) {
	for lifetime, want := range map[time.Duration]time.Duration{5 * minute: 3, 6 * minute: 3, 7 * minute: 3,
		20 * minute: 3, time.Hour: 38} {
		if got := promised(lifetime, newToken).runs; got != want {
			t.Errorf("%s: %d runs, want %d", lifetime, got, want)
		}
	}
}

// mostCalls returns how many calls of the endpoint are necessary at most.
func (w *world) mostCalls() int {
	tokens := len(w.expiry)
	each := 1
	if w.grants == sameToken || w.grants == early {
		// Each time half of the remaining life has passed, then in each run of the
		// last 4 minutes, then until the token has expired.
		each += int(math.Ceil(math.Log2(max(1, float64(w.refreshAt)/float64(4*minute))))) + 5 + 5
	}
	return each*tokens + w.sandboxes
}

// The table in events/README.md states how long tokens of a short lifetime work. Runs start
// exactly every minute, and the endpoint is always up.
func TestHowLongTokensOfAShortLifetimeAreKept(t *testing.T) {
	document, err := os.ReadFile("../../events/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		lifetime time.Duration
		tooOften bool
		full     time.Duration // when the secret has 100 versions and takes no more; 0: never
		row      string        // of the document
	}{
		{2 * minute, true, 1*time.Hour + 39*minute, "| 2 min | 1 h 39 min |"},
		{5 * minute, true, 3*time.Hour + 18*minute, "| 5 min | 3 h 18 min |"},
		{10 * minute, true, 9*time.Hour + 54*minute, "| 10 min | 9 h 54 min |"},
		{15 * minute, true, 18*time.Hour + 9*minute, "| 15 min | 18 h 9 min |"},
		{18 * minute, true, 23*time.Hour + 6*minute, "| 18 min | 23 h 6 min |"},
		{19 * minute, true, 0, "| 19 min | never, with up to 96 versions a day |"},
		{20*minute - 15*time.Second, false, 0, ""}, // a token of 20 minutes, answered late
		{20 * minute, false, 0, "| 20 min and more | never, with up to 90 versions a day |"},
	} {
		t.Run(test.lifetime.String(), func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(string(document), test.row) {
				t.Errorf("events/README.md has no row %q", test.row)
			}
			w := newWorld(t, 1, test.lifetime, newToken)
			w.readers = nil
			var first, every time.Duration // the first write, and the time between two
			var full, without, back time.Duration
			runs := 0
			for ; runs < 26*60; runs++ {
				w.pass(w.start.Add(time.Duration(runs) * minute).Sub(w.Now()))
				began := w.Now().Sub(w.start)
				report, err := w.refresher.Run(t.Context())
				switch n := len(w.writes); {
				case report.Outcome == token.Refreshed:
					w.writes = append(w.writes, w.Now())
					switch n + 1 {
					case 1:
						first = began
					case 2:
						every = began - first
					case 100:
						full = began
					case 101:
						back = began
					}
					if n < 100 && (report.WritesTooOften != test.tooOften || report.FullAfter != test.full) {
						t.Fatalf("write %d: %+v, want %+v", n+1, report, test)
					}
				case err != nil:
					const text = "token: the secret with the token: PutSecretValue: LimitExceededException: the " +
						"secret has 100 versions of the last 24 hours and accepts no more until one is older"
					if err.Error() != text || !report.WritesTooOften || n < 100 {
						t.Fatalf("after %d writes: %+v, %v", n, report, err)
					}
				}
				if report.Remaining == 0 && without == 0 {
					without = began
				}
			}
			t.Logf("a write every %s, full after %s, no token from %s to %s; %d calls of the endpoint", every, full,
				without, back, w.calls)
			if test.full == 0 {
				if without != 0 || w.secrets.Versions(tokenSecret) > 100 {
					t.Errorf("no token after %s", without)
				}
				return
			}
			if full != test.full {
				t.Errorf("the secret was full after %s, want %s", full, test.full)
			}
			// The last token is used to its end; the first version makes room.
			if without < full+test.lifetime || without > full+test.lifetime+minute {
				t.Errorf("no token from %s", without)
			}
			if back < 24*time.Hour || back > 24*time.Hour+minute {
				t.Errorf("the next token was stored after %s, want as soon as the first version is a day old", back)
			}
			if most := runs/int(every/minute) + 1; w.calls > most {
				t.Errorf("%d calls of the endpoint, want no more than before the secret was full: %d", w.calls, most)
			}
		})
	}
}
