package token

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
)

// Refresher replaces the stored token in time. It is safe for concurrent use,
// and any number of them may share a secret.
type Refresher struct {
	secrets           Store
	tokenSecret       string
	credentialsSecret string
	endpoint          *Endpoint
	share             float64
	interval          time.Duration
	now               func() time.Time
	sleep             func(context.Context, time.Duration) error
	random            func() float64
}

// RefresherOptions are what a [Refresher] can be told beyond its
// collaborators.
type RefresherOptions struct {
	// RefreshPercent of a token's lifetime is kept for tries: with less life
	// left, it is replaced. Zero: 66.
	RefreshPercent int
	// Interval between two runs. Zero: a minute.
	Interval time.Duration

	Now    func() time.Time                           // nil: time.Now
	Sleep  func(context.Context, time.Duration) error // nil: the real one, which ends with the context
	Random func() float64                             // from 0 up to 1, for jitter; nil: math/rand/v2
}

// NewRefresher returns a Refresher that keeps the token in one secret and reads
// the client credentials from another; both are names or ARNs.
func NewRefresher(secrets Store, tokenSecret, credentialsSecret string, endpoint *Endpoint, o RefresherOptions) *Refresher {
	if o.RefreshPercent == 0 {
		o.RefreshPercent = 66
	}
	if o.Interval == 0 {
		o.Interval = time.Minute
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	return &Refresher{
		secrets:           secrets,
		tokenSecret:       tokenSecret,
		credentialsSecret: credentialsSecret,
		endpoint:          endpoint,
		share:             float64(o.RefreshPercent) / 100,
		interval:          o.Interval,
		now:               o.Now,
		sleep:             o.Sleep,
		random:            o.Random,
	}
}

// Outcome is what a run came to.
type Outcome string

// The outcomes of a run.
const (
	Fresh      Outcome = "fresh"      // the stored token has enough life left
	Refreshed  Outcome = "refreshed"  // a new token was stored
	Unchanged  Outcome = "unchanged"  // the endpoint gave the stored token again, and nothing was written
	Superseded Outcome = "superseded" // another refresher was quicker, and nothing was written
	Failed     Outcome = "failed"     // the error says why; what is stored was not touched
)

// Report is what a run found and did.
type Report struct {
	Outcome Outcome
	// Known is false if the secret with the token could not be read; Remaining
	// and Lifetime are zero then.
	Known bool
	// Remaining life of the token that is stored after the run; zero if it has
	// expired, or there is none that can be read.
	Remaining time.Duration
	Lifetime  time.Duration // of that token, in all
	Calls     int           // of the token endpoint
	// WritesTooOften: the stored token is new, and so short-lived that writes
	// come more often than once in 10 minutes. AWS advises against that (AWS,
	// PutSecretValue): versions pile up until the secret takes no more.
	WritesTooOften bool
}

// writeInterval is the time that should lie between two writes (AWS,
// PutSecretValue).
const writeInterval = 10 * time.Minute

// Run looks at the stored token and replaces it if its remaining life has
// fallen under its share, or if it can't be read or is from the future.
//
// It writes once, and only a token that the secret does not hold. Client
// credentials are read when they are needed and not kept, so that a change is
// picked up at the next refresh. A call of the endpoint that can do better is
// tried again, up to 5 calls in all, with exponential backoff and full jitter,
// or after Retry-After; none starts or goes on in the last 5 seconds before
// the deadline of ctx, in which the token is stored.
//
// If the endpoint hands out the stored token until that has run out, and it
// runs out before the next run, Run waits for that and asks again, as far as
// the deadline allows.
//
// The error is not nil exactly if the outcome is [Failed]; it is then an
// [*EndpointError], a [*CredentialsError] or a [*SecretError].
func (r *Refresher) Run(ctx context.Context) (Report, error) { return r.run(ctx, false) }

// Refresh is [Refresher.Run] without looking whether it is time: a way to see
// at once whether changed client credentials work.
func (r *Refresher) Refresh(ctx context.Context) (Report, error) { return r.run(ctx, true) }

func (r *Refresher) run(ctx context.Context, always bool) (Report, error) {
	stored, err := r.stored(ctx)
	if err != nil {
		return Report{Outcome: Failed}, err
	}
	if !always && !r.due(stored) {
		return r.report(Fresh, stored, 0), nil
	}
	c, err := credentials(ctx, r.secrets, r.credentialsSecret)
	if err != nil {
		return r.report(Failed, stored, 0), err
	}
	fresh, calls, err := r.replacement(ctx, c, stored)
	if err != nil {
		return r.report(Failed, stored, calls), err
	}
	if fresh.same(stored) {
		return r.report(Unchanged, stored, calls), nil
	}
	// Looking once more keeps two refreshers from overwriting the later token
	// with the earlier one, but for the time that this look takes; and then
	// both are valid still. A look that fails is no reason to lose a token.
	if now, err := r.stored(ctx); err == nil && !now.AccessToken.Equal(stored.AccessToken) && !now.ExpiresAt.Before(fresh.ExpiresAt) {
		return r.report(Superseded, now, calls), nil
	}
	if err := r.store(ctx, fresh); err != nil {
		return r.report(Failed, stored, calls), err
	}
	report := r.report(Refreshed, fresh, calls)
	report.WritesTooOften = (1-r.share)*float64(fresh.Lifetime()) < float64(writeInterval)
	return report, nil
}

// stored returns the token in the secret; the zero Bearer, which has expired,
// if there is none that can be read.
func (r *Refresher) stored(ctx context.Context) (Bearer, error) {
	b, err := bearer(ctx, r.secrets, r.tokenSecret)
	if errors.Is(err, ErrNone) || errors.Is(err, ErrUnreadable) {
		return Bearer{}, nil
	}
	return b, err
}

// maxAhead is how far in the future a token may have been issued: more than
// any two clocks differ. One further ahead was written by a clock, or a hand,
// that its expiry can't be believed either.
const maxAhead = 5 * time.Minute

func (r *Refresher) due(b Bearer) bool {
	now := r.now()
	return float64(b.ExpiresAt.Sub(now)) < r.share*float64(b.Lifetime()) || b.IssuedAt.After(now.Add(maxAhead))
}

func (r *Refresher) report(o Outcome, b Bearer, calls int) Report {
	return Report{
		Outcome:   o,
		Known:     true,
		Remaining: max(0, b.ExpiresAt.Sub(r.now())),
		Lifetime:  b.Lifetime(),
		Calls:     calls,
	}
}

// store writes the one new version of a run. The SDK puts a ClientRequestToken
// of its own on it and keeps it while it tries again, so that a write whose
// answer got lost is not written twice.
func (r *Refresher) store(ctx context.Context, b Bearer) error {
	text, err := b.text()
	if err != nil {
		return err
	}
	if _, err := r.secrets.PutSecretValue(ctx, &secretsmanager.PutSecretValueInput{SecretId: &r.tokenSecret, SecretString: &text}); err != nil {
		return secretError(tokenSecret, "PutSecretValue", err)
	}
	return nil
}

const (
	maxCalls    = 5
	baseBackoff = 500 * time.Millisecond
	maxBackoff  = 8 * time.Second
	// storeMargin is kept free before the deadline, to store a token and to say
	// how it went.
	storeMargin = 5 * time.Second
)

// replacement returns a token that is not the stored one, or the stored one if
// the endpoint gives no other.
func (r *Refresher) replacement(ctx context.Context, c Credentials, stored Bearer) (fresh Bearer, calls int, err error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-storeMargin))
		defer cancel()
	}
	for {
		fresh, err = r.fetch(ctx, c, &calls)
		if err != nil || !fresh.same(stored) {
			return fresh, calls, err
		}
		// A second more, since what the endpoint counts in may be seconds.
		left := stored.ExpiresAt.Sub(r.now()) + time.Second
		if left > r.interval || calls >= maxCalls || !r.allows(ctx, left) {
			return fresh, calls, nil
		}
		if r.sleep(ctx, max(left, baseBackoff)) != nil {
			return fresh, calls, nil
		}
	}
}

// fetch calls the endpoint until it gives a token, or trying again can't help
// or would take too long. It counts its calls.
func (r *Refresher) fetch(ctx context.Context, c Credentials, calls *int) (Bearer, error) {
	for backoff := baseBackoff; ; backoff = min(2*backoff, maxBackoff) {
		*calls++
		b, err := r.endpoint.Fetch(ctx, c)
		failure, ok := errors.AsType[*EndpointError](err)
		if err == nil || !ok || !failure.retry || *calls >= maxCalls || ctx.Err() != nil {
			return b, err
		}
		wait := max(failure.retryAfter, time.Duration(r.random()*float64(backoff)))
		if !r.allows(ctx, wait) || r.sleep(ctx, wait) != nil {
			return Bearer{}, err
		}
	}
}

// allows reports whether the deadline of ctx leaves more time than d.
func (r *Refresher) allows(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || r.now().Add(d).Before(deadline)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
