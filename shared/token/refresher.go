package token

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Refresher replaces the stored token before it expires. It is safe for concurrent use: its runs wait for each other.
// Any number of Refreshers may share a store.
type Refresher struct {
	store       Store
	credentials Source
	endpoint    *Endpoint

	mu      sync.Mutex // held during a run
	last    answer
	rewrote bool // the last run stored last.fresh in place of a text that could not be read
	failed  failure
}

// answer is the last token that the endpoint returned. It only reduces the calls of the endpoint.
type answer struct {
	fresh, stored Bearer // stored was stored at that time
	outcome       Outcome
}

// failure is why the last refresh failed, with the pause that follows. The zero value is none.
type failure struct {
	err         error
	stored      Bearer        // at that time
	credentials Secret        // the value with which the endpoint was called
	begin, end  time.Time     // of the pause
	step        time.Duration // the length of the pause without Retry-After
}

// next returns the failure after a call that began then.
func (f failure) next(err error, begin time.Time, stored Bearer, credentials Secret) failure {
	var wait time.Duration
	if e, ok := errors.AsType[*EndpointError](err); ok {
		if wait = time.Since(begin) + e.retryAfter; e.pauses {
			f.step = min(max(2*f.step, interval), maxStep)
			wait = max(wait, f.step)
		}
	}
	return failure{err: err, stored: stored, credentials: credentials, begin: begin, end: begin.Add(wait), step: f.step}
}

// until returns the end of the pause: 4 minutes before the stored token expires, if it begins earlier and ends later.
func (f failure) until(stored Bearer) time.Time {
	if soon := stored.ExpiresAt.Add(-reserve); f.begin.Before(soon) && soon.Before(f.end) {
		return soon
	}
	return f.end
}

const (
	// refreshPercent is the preferred time of a refresh: when less than this percentage of the lifetime is left. See
	// [Refresher.Run] for when the refresh is earlier or later.
	refreshPercent = 66
	// interval is the time between two scheduled runs. A refresh leaves at least three runs before the token expires,
	// from a lifetime of 5 minutes on: 66 % of 300 s are 198 s.
	interval = time.Minute
	// reserve is the time before expiry that is reserved for attempts, if the lifetime and refreshPercent allow it.
	// Three runs start in it. The fourth interval is for a late start (EventBridge Scheduler has a precision of 60
	// seconds; AWS, "Schedule types in EventBridge Scheduler"), the call and the margin of a Reader.
	reserve       = 4 * interval
	maxStep       = 15 * time.Minute // of failure.step, which doubles
	maxRetryAfter = time.Hour

	// Each write of a secret creates one of its 100 versions, and Secrets Manager does not remove one in its first 24
	// hours, even without a staging label (AWS, "AWS Secrets Manager quotas" in the user guide; "PutSecretValue" and
	// "UpdateSecretVersionStage" in the API reference). The only remedy is to write less often. writeInterval is the
	// time between two writes with 90 versions a day: 16 minutes. The other 10 are for manual refreshes.
	writeInterval = 24 * time.Hour / 90
	// shortLifetime is 20 minutes less a tolerance, because the endpoint reports the lifetime in whole seconds, after a
	// delay.
	shortLifetime = 20*time.Minute - 15*time.Second
)

// NewRefresher returns a Refresher that keeps the token in a store and loads the client credentials.
func NewRefresher(store Store, credentials Source, endpoint *Endpoint) *Refresher {
	return &Refresher{store: store, credentials: credentials, endpoint: endpoint}
}

// Outcome is the result of a run.
type Outcome string

// The outcomes of a run.
const (
	Fresh     Outcome = "fresh"     // the stored token has enough life left
	Refreshed Outcome = "refreshed" // a new token was stored
	// Unchanged means that the endpoint returned the stored token or one that expires earlier, in this run or (if
	// Report.Calls is 0) in an earlier one. Nothing was written.
	Unchanged  Outcome = "unchanged"
	Superseded Outcome = "superseded" // another refresher stored a newer token; nothing was written
	Failed     Outcome = "failed"     // the error is the reason; the stored token is unchanged
)

// Report describes a run.
type Report struct {
	Outcome Outcome
	Known   bool // false: the store could not be read; Remaining, Lifetime and Shortfall are zero then
	// Remaining is the remaining life of the token that is stored after the run; zero if it has expired or there is
	// none that can be read. Lifetime is the whole life, as the endpoint reported it.
	Remaining, Lifetime time.Duration
	// Shortfall is the time by which Remaining is less than callers need; zero if it is enough. Callers need the
	// remaining life at which the token is refreshed, but at most the time of three runs and the margin of a [Reader],
	// and at least the time of one run and that margin. A token that was due three runs ago is too old as well. After
	// [Unchanged], no newer token exists, and an unexpired one is enough.
	Shortfall      time.Duration
	Calls          int       // of the token endpoint: 1 or 0
	NextCall       time.Time // the end of a pause, in which no run calls the endpoint; zero if there is none
	LastFailure    error     // of the last refresh, if it failed and the run did not
	UnexpectedType string    // the Content-Type of the answer with the token, unless it is JSON
	Unreadable     error     // why the stored token could not be read, if it counted as none
	// WritesTooOften is true if the store is a secret and the run had a new token whose lifetime is less than 20
	// minutes, whether or not the token could be stored.
	WritesTooOften bool
}

// refreshAt returns the remaining life at which a token of that lifetime is refreshed, which is later if writes are
// limited.
func refreshAt(lifetime time.Duration, limited bool) time.Duration {
	at := lifetime / 100 * refreshPercent
	if limited {
		return min(at, max(reserve, lifetime-writeInterval))
	}
	return max(at, min(reserve, lifetime-interval/2))
}

// Run refreshes the stored token if it is due, cannot be read, or was issued in the future or by another endpoint:
// another URL, token manager or list of scopes. With always, it refreshes every token, which shows at once whether
// changed client credentials work.
//
// A token in a parameter is due when less than 66 % of its lifetime or less than 4 minutes are left, and it is half a
// minute old. So it is due in at least three runs before expiry, or in every run after its own if its lifetime is
// shorter. A token in a secret is due when less than 66 % of its lifetime is left and it is 16 minutes old or, with a
// lifetime under 20 minutes ([Report.WritesTooOften]), three runs before expiry whatever its age.
//
// Run calls the endpoint at most once, with the client credentials that are stored now. If the endpoint does not
// answer, or answers 5xx, the next run calls it again. After another answer without a token, runs fail without a call
// for a minute, and for twice as long each time, up to 15 minutes. Retry-After in any answer makes this pause longer,
// up to an hour. The pause ends when the stored token has 4 minutes left, unless it begins later, with other client
// credentials, and with always. It is in memory only.
//
// The endpoint can return the stored token again, with its remaining lifetime, or one that expires earlier. Run then
// keeps the stored one and does not call the endpoint again until half of the remaining lifetime has passed, or until
// the last 4 minutes before expiry, in which every run calls it. With always, only the same token is not stored.
//
// Run writes at most once. If a token cannot be stored, the Refresher keeps it in memory. The next runs try to store it
// without another call of the endpoint, until the token itself is due.
//
// A text that cannot be read, but can be replaced ([StoreError.Replaceable]), counts as none. If the token that
// replaced it cannot be read either, Run fails until that token is due.
//
// The error is not nil if and only if the outcome is [Failed]. It is an [*EndpointError], a [*CredentialsError] or
// a [*StoreError].
func (r *Refresher) Run(ctx context.Context, always bool) (Report, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stored, err := r.stored(ctx)
	if err != nil {
		e, ok := errors.AsType[*StoreError](err)
		inVain := r.rewrote && !always && !r.due(r.last.fresh)
		if !ok || !e.Replaceable || inVain {
			return Report{Outcome: Failed}, err
		}
	}
	report, failure := r.run(ctx, stored, always)
	report.Unreadable = err
	if end := r.failed.until(stored); time.Now().Before(end) {
		report.NextCall = end
	}
	if failure == nil && r.failed.stored.is(stored) {
		report.LastFailure = r.failed.err
	}
	r.rewrote = err != nil && report.Outcome == Refreshed
	return report, failure
}

// run is [Refresher.Run] with the stored token.
func (r *Refresher) run(ctx context.Context, stored Bearer, always bool) (Report, error) {
	var last answer // unless it was about another token
	if r.last.stored.is(stored) {
		last = r.last
	}
	switch {
	case always:
		r.failed = failure{}
	case last.outcome == Failed && !r.due(last.fresh):
		return r.save(ctx, stored, last.fresh, 0)
	case !r.due(stored):
		return reportOf(Fresh, stored, 0), nil
	case last.outcome == Unchanged &&
		time.Until(stored.ExpiresAt) > max(stored.ExpiresAt.Sub(last.fresh.IssuedAt)/2, reserve):
		return reportOf(Unchanged, stored, 0), nil
	}
	c, err := credentials(ctx, r.credentials, r.endpoint.formEncoded)
	if err != nil {
		if always {
			r.failed = failure{err: err, stored: stored}
		}
		return reportOf(Failed, stored, 0), err
	}
	if !c.value.Equal(r.failed.credentials) {
		r.failed = failure{}
	}
	begin := now()
	if begin.Before(r.failed.until(stored)) {
		return reportOf(Failed, stored, 0), r.failed.err
	}
	fresh, err := r.endpoint.Fetch(ctx, c)
	if err != nil {
		r.failed = r.failed.next(err, begin, stored, c.value)
		return reportOf(Failed, stored, 1), err
	}
	r.failed = failure{}
	report := reportOf(Unchanged, stored, 1)
	if fresh.useless(stored, always) {
		r.last = answer{fresh, stored, Unchanged}
	} else {
		report, err = r.save(ctx, stored, fresh, 1)
	}
	report.UnexpectedType = fresh.unexpectedType
	return report, err
}

// save stores a new token in place of the stored one.
func (r *Refresher) save(ctx context.Context, stored, fresh Bearer, calls int) (Report, error) {
	// Another read prevents two refreshers from replacing the later token with the earlier one, except during this
	// read; then both tokens are valid. If the read fails, the token is stored nevertheless.
	if now, err := r.stored(ctx); err == nil && now.endpoint == fresh.endpoint &&
		!now.AccessToken.Equal(stored.AccessToken) && !now.ExpiresAt.Before(fresh.ExpiresAt) {
		return reportOf(Superseded, now, calls), nil
	}
	err := r.store.Save(ctx, fresh.text())
	report := reportOf(Refreshed, fresh, calls)
	if err != nil {
		report = reportOf(Failed, stored, calls)
	}
	report.WritesTooOften = r.store.Limited() && fresh.WritesTooOften()
	r.last = answer{fresh, stored, report.Outcome}
	return report, err
}

// stored returns the token in the store, or the zero Bearer, which has expired, if there is none that can be parsed.
func (r *Refresher) stored(ctx context.Context) (Bearer, error) {
	b, err := bearer(ctx, r.store)
	if errors.Is(err, ErrNone) || errors.Is(err, ErrUnreadable) {
		return Bearer{}, nil
	}
	return b, err
}

func (r *Refresher) due(b Bearer) bool {
	return b.endpoint != r.endpoint.digest || b.ahead() ||
		time.Until(b.ExpiresAt) < refreshAt(b.Lifetime(), r.store.Limited())
}

// ShortLived is what [Report.WritesTooOften] and [Bearer.WritesTooOften] mean, and what to do.
const ShortLived = "the lifetime of the token is less than 20 minutes, too short for a secret, which takes 100 " +
	"versions a day: set tokenStore=parameter, or ask the service for tokens of at least 20 minutes"

// WritesTooOften reports whether the lifetime of the token is too short for a secret.
func (b Bearer) WritesTooOften() bool { return b.Lifetime() < shortLifetime }

func reportOf(o Outcome, b Bearer, calls int) Report {
	remaining := max(0, time.Until(b.ExpiresAt))
	report := Report{Outcome: o, Known: true, Remaining: remaining, Lifetime: b.Lifetime(), Calls: calls}
	if o != Unchanged || remaining == 0 {
		at, oneRun := refreshAt(b.Lifetime(), true), interval+b.margin()
		report.Shortfall = max(0, max(oneRun, min(at, oneRun+2*interval), at-3*interval)-remaining)
	}
	return report
}
