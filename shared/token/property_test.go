package token_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
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
	lateness  time.Duration // of a run that is allowed for
	runs      time.Duration // how many runs can replace the token in time
	outage    time.Duration // the longest outage that no caller notices
	// gap is how long callers can have no token each time the endpoint returns a token
	// until it has expired.
	gap time.Duration
}

const (
	minute = time.Minute
	// answerTime is the longest time that an answer of the endpoint takes here.
	answerTime = 3 * time.Second
	// maxMargin is the time before its expiry in which a Reader returns no token.
	maxMargin = 5 * time.Second
)

func promised(lifetime time.Duration, g grants) promise {
	p := promise{refreshAt: min(lifetime*66/100, max(4*minute, lifetime-16*minute)), lateness: 2 * time.Second}
	if p.refreshAt >= 4*minute {
		p.lateness = 30 * time.Second
	}
	// The remaining life at which the endpoint has a newer token and is asked for it.
	available := p.refreshAt
	switch g {
	case sameToken:
		available = 0
	case early:
		// The endpoint is asked when half of the remaining life has passed, and in
		// every run of the last 4 minutes.
		available = min(p.refreshAt, max(lifetime/earlyPart/2, min(lifetime/earlyPart, 4*minute)))
	}
	// The runs that start and end between that time and the margin of the Readers,
	// with clocks that differ by as much as the margin.
	p.runs = max(0, (available-p.lateness-answerTime-2*maxMargin)/minute)
	// A shorter outage can hit all of these runs but one.
	p.outage = max(0, (p.runs-1)*minute-p.lateness)
	p.gap = 28*time.Second + p.lateness
	return p
}

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
	t        *testing.T
	random   *rand.Rand
	lifetime time.Duration // the longest that the endpoint grants
	shortest time.Duration // the shortest that it grants
	grants   grants
	start    time.Time
	readers  []*token.Reader
	outages  []outage
	ahead    time.Duration // the refresher's clock

	mu         sync.Mutex           // of the following
	current    string               // the last token that was issued
	expiry     map[string]time.Time // by the service's clock
	lastHanded time.Time
	returned   int // tokens returned by the readers
	failure    string
}

type outage struct{ from, to time.Time }

func newWorld(t *testing.T, seed uint64, lifetime time.Duration, g grants) *world {
	shortest := lifetime
	if g == shorter {
		shortest = lifetime / 2
	}
	w := &world{rig: newRig(t), promise: promised(shortest, g), t: t,
		random: rand.New(rand.NewPCG(seed, uint64(lifetime))), lifetime: lifetime, shortest: shortest, grants: g,
		expiry: map[string]time.Time{}}
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
	w.refresher = token.NewRefresher(skewed{w.sdk(), w.ahead}, tokenSecret, credentialsSecret,
		newEndpoint(w.t, w.endpoint))
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
		w.expiry[w.current] = now.Add(left)
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
	if !errors.Is(err, token.ErrExpired) && !errors.Is(err, token.ErrNone) {
		w.fail("%v", err)
	}
	without := now.Sub(w.lastHanded)
	switch {
	case w.shortest < 2*minute: // callers are not promised to have a token at any time
	case now.Sub(w.start) < 2*minute: // before the first token
	case w.runs == 0 && w.down(3*minute) == 0:
		// There is no newer token, or only shortly before this one expires.
		if without > w.gap {
			w.fail("%v for %s", err, without)
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
		_, _ = w.refresher.Run(ctx, false)
		cancel()
		w.mu.Lock()
		failure := w.failure
		w.mu.Unlock()
		if failure != "" {
			w.t.Fatalf("%s of %s: %s", w.grants, w.lifetime, failure)
		}
	}
}

// parallelBubble runs a subtest in a bubble, at the same time as others.
func parallelBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	})
}

func TestCallersHaveATokenAtAllTimes(t *testing.T) {
	for i, each := range []struct {
		lifetime time.Duration
		grants   grants
		hours    time.Duration
	}{
		{90 * time.Second, newToken, 1}, {2 * minute, newToken, 1}, {2 * minute, sameToken, 1}, {5 * minute, newToken, 1},
		{5 * minute, early, 2}, {10 * minute, shorter, 2}, {10 * minute, early, 2}, {19 * minute, sameToken, 3},
		{19 * minute, newToken, 4}, {40 * minute, shorter, 6}, {time.Hour, newToken, 12}, {time.Hour, early, 12},
		{24 * time.Hour, newToken, 26}, {24 * time.Hour, sameToken, 26},
	} {
		parallelBubble(t, fmt.Sprintf("%s of %s", each.grants, each.lifetime), func(t *testing.T) {
			w := newWorld(t, uint64(i), each.lifetime, each.grants)
			w.breakDown(w.start.Add(each.hours * time.Hour))
			if w.run(each.hours * time.Hour); w.returned == 0 {
				t.Error("no token was returned")
			}
		})
	}
}

// A secret accepts no version after the hundredth of a day, and the reports predict when
// this happens. Runs start exactly every minute, and the endpoint is always up.
func TestTheSecretIsFullWhenTheReportSaysSo(t *testing.T) {
	for lifetime, want := range map[time.Duration]struct {
		tooOften bool
		full     time.Duration // 0: never
	}{
		10 * minute: {true, 9*time.Hour + 54*minute},
		19 * minute: {true, 0},
		20 * minute: {false, 0},
	} {
		parallelBubble(t, lifetime.String(), func(t *testing.T) {
			w := newWorld(t, 1, lifetime, newToken)
			writes, calls := 0, 0
			var full, without, back time.Duration // since the start
			for run := range 25 * 60 {
				began := time.Duration(run) * minute
				time.Sleep(time.Until(w.start.Add(began)))
				report, err := w.refresher.Run(t.Context(), false)
				calls += report.Calls
				switch {
				case report.Outcome == token.Refreshed:
					if writes++; writes == 100 {
						full = began
					} else if writes == 101 {
						back = began
					}
					if writes < 100 && (report.WritesTooOften != want.tooOften || report.FullAfter != want.full) {
						t.Fatalf("write %d: %+v", writes, report)
					}
				case err != nil && (!strings.HasSuffix(err.Error(), "LimitExceededException: the secret has 100 "+
					"versions of the last 24 hours and accepts no more until one is older") || !report.WritesTooOften ||
					writes < 100):
					t.Fatalf("after %d writes: %+v, %v", writes, report, err)
				case report.Remaining == 0 && without == 0:
					without = began
				}
			}
			// The last token is used to its end; the first version makes room. A full secret
			// causes no more calls than before.
			switch {
			case want.full == 0 && without != 0:
				t.Errorf("no token after %s", without)
			case want.full != 0 && (full != want.full || without < full+lifetime || without > full+lifetime+minute ||
				back < 24*time.Hour || back > 24*time.Hour+minute || calls > 26*60*99/int(full/minute)+1):
				t.Errorf("full after %s, no token from %s to %s, %d calls", full, without, back, calls)
			}
		})
	}
}
