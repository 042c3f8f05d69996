package token_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
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
	ahead     time.Duration // the refresher's clock
	sandboxes int

	mu       sync.Mutex           // of the following
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
	time.Sleep(500 * time.Microsecond) // the secret has milliseconds
	w.start = time.Now()
	// Half of the bound in either direction: then no two differ by more.
	bound := min(maxMargin, shortest/10)
	skew := func() time.Duration { return time.Duration(w.random.Int64N(int64(bound))) - bound/2 }
	w.ahead = skew()
	w.endpoint.then(w.answer)
	w.newSandbox()
	for range 2 {
		w.readers = append(w.readers, token.NewReader(skewed{w.sdk(), skew()}, tokenSecret))
	}
	return w
}

// newSandbox replaces the refresher by one without memory.
func (w *world) newSandbox() {
	w.sandboxes++
	e := token.NewEndpoint(parse(w.t, "https://auth.payments.example"), "manager-1", token.EndpointOptions{})
	w.refresher = token.NewRefresher(skewed{w.sdk(), w.ahead}, tokenSecret, credentialsSecret,
		token.Direct(e, direct{w.endpoint}))
}

// skewed is the Secrets Manager for a program whose clock is ahead of the service's: the
// program sees the times of a token earlier by that, and stores them later.
type skewed struct {
	token.Store
	ahead time.Duration
}

func (s skewed) GetSecretValue(ctx context.Context, in *secretsmanager.GetSecretValueInput,
	opts ...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error) {
	out, err := s.Store.GetSecretValue(ctx, in, opts...)
	if err == nil && *in.SecretId == tokenSecret {
		out.SecretString = shifted(out.SecretString, -s.ahead)
	}
	return out, err
}

func (s skewed) PutSecretValue(ctx context.Context, in *secretsmanager.PutSecretValueInput,
	opts ...func(*secretsmanager.Options)) (*secretsmanager.PutSecretValueOutput, error) {
	in.SecretString = shifted(in.SecretString, s.ahead)
	return s.Store.PutSecretValue(ctx, in, opts...)
}

func shifted(text *string, d time.Duration) *string {
	var v struct {
		AccessToken string    `json:"access_token"`
		IssuedAt    time.Time `json:"issued_at"`
		ExpiresAt   time.Time `json:"expires_at"`
	}
	if err := json.Unmarshal([]byte(*text), &v); err != nil {
		panic(err)
	}
	return aws.String(value(v.AccessToken, v.IssuedAt.Add(d), v.ExpiresAt.Add(d)))
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
	now := time.Now()
	for _, o := range w.outages {
		if !o.from.After(now) && o.to.After(now.Add(-d)) {
			longest = max(longest, o.to.Sub(o.from))
		}
	}
	return longest
}

// answer is the token endpoint.
func (w *world) answer(out http.ResponseWriter, request *http.Request) {
	time.Sleep(w.upTo(answerTime / 2))
	defer func() { time.Sleep(w.upTo(answerTime / 2)) }()
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
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
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

// call makes all readers ask for a token in small, uneven steps until ctx ends.
func (w *world) call(ctx context.Context, random *rand.Rand) {
	upToAMinute := func() time.Duration { return time.Duration(random.Int64N(int64(minute))) }
	for ctx.Err() == nil {
		w.mu.Lock()
		left := time.Until(w.expiry[w.current])
		w.mu.Unlock()
		step := time.Second
		switch {
		case left > 40*time.Second:
			step += min(upToAMinute(), left-40*time.Second)
		case left < -minute:
			step += upToAMinute()
		}
		time.Sleep(step)
		for _, reader := range w.readers {
			w.read(reader)
		}
	}
}

func (w *world) read(reader *token.Reader) {
	got, err := reader.Token()
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
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
		w.failure = fmt.Sprintf("%s after the start: ", time.Since(w.start)) + fmt.Sprintf(format, args...)
	}
}

// run runs the refresher on its schedule for d.
func (w *world) run(d time.Duration) {
	ctx, stop := context.WithCancel(w.t.Context())
	var callers sync.WaitGroup
	random := rand.New(rand.NewPCG(w.random.Uint64(), 0)) // of the callers, which run at the same time
	callers.Go(func() { w.call(ctx, random) })
	defer callers.Wait()
	defer stop()
	nextSandbox := w.start.Add(w.upTo(6 * time.Hour))
	for i := range int(d / minute) {
		due := w.start.Add(time.Duration(i) * minute).Add(w.upTo(w.lateness))
		time.Sleep(time.Until(due))
		if time.Now().After(nextSandbox) {
			w.newSandbox()
			nextSandbox = time.Now().Add(w.upTo(6 * time.Hour))
		}
		ctx, cancel := context.WithDeadline(w.t.Context(), time.Now().Add(55*time.Second))
		report, err := w.refresher.Run(ctx)
		cancel()
		if report.Outcome == token.Refreshed {
			w.writes = append(w.writes, time.Now())
		}
		if full, ok := errors.AsType[*token.SecretError](err); ok && full.Code == "LimitExceededException" &&
			w.rejected.IsZero() {
			w.rejected = time.Now()
		}
		w.mu.Lock()
		failure := w.failure
		w.mu.Unlock()
		if failure != "" {
			w.t.Fatalf("%s of %s: %s", w.grants, w.lifetime, failure)
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

// parallelBubble runs a subtest in a bubble, at the same time as others.
func parallelBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	})
}

func TestOverDaysCallersHaveATokenAndEachIsStored(t *testing.T) {
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
			parallelBubble(t, fmt.Sprintf("%s of %s", g, lifetime), func(t *testing.T) {
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
		parallelBubble(t, test.lifetime.String(), func(t *testing.T) {
			if !strings.Contains(string(document), test.row) {
				t.Errorf("events/README.md has no row %q", test.row)
			}
			w := newWorld(t, 1, test.lifetime, newToken)
			full, without, back := w.fill(test.tooOften, test.full)
			if test.full == 0 {
				if without != 0 {
					t.Errorf("no token after %s", without)
				}
				return
			}
			// The last token is used to its end; the first version makes room.
			if full != test.full || without < full+test.lifetime || without > full+test.lifetime+minute ||
				back < 24*time.Hour || back > 24*time.Hour+minute {
				t.Errorf("full after %s, no token from %s to %s", full, without, back)
			}
			// A full secret causes no more calls than before.
			if most := 26*60*99/int(full/minute) + 1; w.calls > most {
				t.Errorf("%d calls of the endpoint, want at most %d", w.calls, most)
			}
		})
	}
}

// fill runs the refresher for more than a day, and checks the reports. It returns when
// the secret was full, when no token was left, and when one was stored again.
func (w *world) fill(tooOften bool, fullAfter time.Duration) (full, without, back time.Duration) {
	writes := 0
	for run := range 26 * 60 {
		began := time.Duration(run) * minute
		time.Sleep(time.Until(w.start.Add(began)))
		report, err := w.refresher.Run(w.t.Context())
		switch {
		case report.Outcome == token.Refreshed:
			if writes++; writes == 100 {
				full = began
			} else if writes == 101 {
				back = began
			}
			if writes < 100 && (report.WritesTooOften != tooOften || report.FullAfter != fullAfter) {
				w.t.Fatalf("write %d: %+v", writes, report)
			}
		case err != nil && (!strings.HasSuffix(err.Error(), "LimitExceededException: the secret has 100 versions of "+
			"the last 24 hours and accepts no more until one is older") || !report.WritesTooOften || writes < 100):
			w.t.Fatalf("after %d writes: %+v, %v", writes, report, err)
		case report.Remaining == 0 && without == 0:
			without = began
		}
	}
	return full, without, back
}
