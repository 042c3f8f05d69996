package token_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"payhook.example/shared/awstest"
	"payhook.example/shared/token"
)

// clock is a clock that only moves on request. It starts so far in the future that a
// context's deadline, which uses the real clock, never passes.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock {
	return &clock{now: time.Date(2099, 3, 1, 12, 0, 0, 0, time.UTC)}
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// The names of the two secrets, and the canaries that must not appear in any output.
const (
	tokenSecret       = "payhook/token"
	credentialsSecret = "payhook/credentials"

	clientID     = "client-1"
	clientSecret = "canary-client-secret-6f1d"
	canaryToken  = "canary-access-token-9b3e"
)

// endpoint is a token endpoint with a list of answers. It repeats the last one.
type endpoint struct {
	*httptest.Server
	mu       sync.Mutex
	answers  []http.HandlerFunc
	requests []*http.Request
}

func newEndpoint(tb testing.TB, answers ...http.HandlerFunc) *endpoint {
	e := &endpoint{answers: answers}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			tb.Errorf("the form does not parse: %v", err)
		}
		e.mu.Lock()
		e.requests = append(e.requests, r)
		answer := e.answers[0]
		if len(e.answers) > 1 {
			e.answers = e.answers[1:]
		}
		e.mu.Unlock()
		answer(w, r)
	}))
	tb.Cleanup(e.Close)
	return e
}

func (e *endpoint) calls() []*http.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.requests
}

// then replaces the remaining answers.
func (e *endpoint) then(answers ...http.HandlerFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answers = answers
}

func returns(access string, lifetime time.Duration) http.HandlerFunc {
	return answers(http.StatusOK,
		fmt.Sprintf(`{"access_token":%q,"token_type":"Bearer","expires_in":%d}`, access, lifetime/time.Second))
}

func answers(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json;charset=UTF-8")
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func hangsUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func parse(tb testing.TB, text string) *url.URL {
	tb.Helper()
	u, err := url.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}
	return u
}

// rig is a refresher with its secrets, endpoint and clock.
type rig struct {
	*clock
	secrets   *awstest.SecretsManager
	endpoint  *endpoint
	refresher *token.Refresher
	options   token.RefresherOptions // of the next refresher; the rig sets its clock
	slept     []time.Duration
}

func newRig(tb testing.TB, answers ...http.HandlerFunc) *rig {
	r := &rig{clock: newClock(), secrets: awstest.NewSecretsManager(tb), endpoint: newEndpoint(tb, answers...)}
	r.secrets.Now = r.Now
	r.secrets.Create(tokenSecret)
	r.fill(clientID, clientSecret)
	r.refresher = r.another(tb)
	return r
}

// another returns another refresher of the same secrets.
func (r *rig) another(tb testing.TB) *token.Refresher {
	e := token.NewEndpoint(parse(tb, r.endpoint.URL), "manager-1", token.EndpointOptions{Now: r.Now})
	o := r.options
	o.Now = r.Now
	o.Sleep = func(_ context.Context, d time.Duration) error {
		r.slept = append(r.slept, d)
		r.Advance(d)
		return nil
	}
	o.Random = func() float64 { return 1 }
	return token.NewRefresher(r.secrets.SDK(), tokenSecret, credentialsSecret, e, o)
}

func (r *rig) fill(id, secret string) {
	r.secrets.Put(credentialsSecret, fmt.Sprintf(`{"client_id":%q,"client_secret":%q}`, id, secret))
}

// reader returns a reader of the token, on the rig's clock.
func (r *rig) reader() *token.Reader {
	return token.NewReader(r.secrets.SDK(), tokenSecret, token.ReaderOptions{Now: r.Now})
}

// run runs the refresher and expects an outcome.
func (r *rig) run(tb testing.TB, want token.Outcome) token.Report {
	tb.Helper()
	report, err := r.refresher.Run(tb.Context())
	if report.Outcome != want || (err != nil) != (want == token.Failed) {
		tb.Fatalf("Run = %+v, %v, want outcome %s", report, err, want)
	}
	return report
}

// denyWrites makes Secrets Manager deny writes while denied is true.
func (r *rig) denyWrites(denied *bool) {
	r.secrets.Before = func(c awstest.SecretCall) (string, bool) {
		if *denied && c.Operation == "PutSecretValue" {
			return "AccessDeniedException", false
		}
		return "", false
	}
}

// store stores a token that was issued now.
func (r *rig) store(access string, lifetime time.Duration) {
	r.secrets.Put(tokenSecret, value(access, r.Now(), r.Now().Add(lifetime)))
}

func value(access string, issued, expires time.Time) string {
	return fmt.Sprintf(`{"access_token":%q,"token_type":"Bearer","issued_at":%q,"expires_at":%q}`,
		access, issued.Format(time.RFC3339Nano), expires.Format(time.RFC3339Nano))
}
