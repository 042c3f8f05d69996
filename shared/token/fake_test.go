package token_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"payhook.example/shared/token"
)

// The canaries must not appear in any output.
const (
	clientID     = "client-1"
	clientSecret = "canary-client-secret-6f1d"
	canaryToken  = "canary-access-token-9b3e"
)

// bubble runs a subtest in a bubble, which has its own clock.
func bubble(t *testing.T, name string, test func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// endpoint is a token endpoint with a list of answers. It repeats the last one.
type endpoint struct {
	mu       sync.Mutex
	answers  []http.HandlerFunc
	requests []*http.Request
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		panic(err)
	}
	e.mu.Lock()
	e.requests = append(e.requests, r)
	answer := e.answers[0]
	if len(e.answers) > 1 {
		e.answers = e.answers[1:]
	}
	e.mu.Unlock()
	answer(w, r)
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

// direct is a transport that calls a handler. A network would stop the clock of a bubble.
type direct struct{ http.Handler }

func (d direct) RoundTrip(request *http.Request) (response *http.Response, err error) {
	recorder := httptest.NewRecorder()
	defer func() {
		if recover() == nil {
			return
		}
		// The handler hangs up, before its answer or within.
		if err = io.ErrUnexpectedEOF; recorder.Body.Len() > 0 {
			response, err = recorder.Result(), nil
			response.Body = io.NopCloser(io.MultiReader(response.Body, iotest.ErrReader(io.ErrUnexpectedEOF)))
		}
	}()
	d.ServeHTTP(recorder, request)
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	return recorder.Result(), nil
}

func parse(tb testing.TB, text string) *url.URL {
	tb.Helper()
	u, err := url.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}
	return u
}

// source is a source in memory whose calls are counted and can fail.
type source struct {
	token.Memory
	limited bool             // like a secret; false: like a parameter
	fails   map[string]error // of the calls, by method
	takes   time.Duration    // a call

	mu    sync.Mutex
	calls map[string][]time.Time // of every method
}

func (s *source) begin(ctx context.Context, call string) error {
	s.mu.Lock()
	if s.calls == nil {
		s.calls = map[string][]time.Time{}
	}
	s.calls[call] = append(s.calls[call], time.Now())
	s.mu.Unlock()
	time.Sleep(s.takes)
	return cmp.Or(s.fails[call], ctx.Err())
}

func (s *source) Load(ctx context.Context) (string, error) {
	if err := s.begin(ctx, "Load"); err != nil {
		return "", err
	}
	return s.Memory.Load(ctx)
}

func (s *source) Save(ctx context.Context, text string) error {
	if err := s.begin(ctx, "Save"); err != nil {
		return err
	}
	return s.Memory.Save(ctx, text)
}

func (s *source) Limited() bool { return s.limited }

// put stores a text, like a person in the console; "" for none.
func (s *source) put(text string) { _ = s.Memory.Save(context.Background(), text) }

// text returns the stored text.
func (s *source) text() string {
	text, _ := s.Memory.Load(context.Background())
	return text
}

// loads returns the number of reads, and saves that of writes, also of those that failed.
func (s *source) loads() int { return len(s.calls["Load"]) }
func (s *source) saves() int { return len(s.calls["Save"]) }

// denied is the error of a call that is not permitted, and unreadable that of a text that can be replaced.
var (
	denied     error = &token.StoreError{Store: "the token", Err: errors.New("AccessDeniedException")}
	unreadable error = &token.StoreError{Store: "the token", Err: errors.New("InvalidKeyId"), Replaceable: true}
)

// rig is a refresher with its stores and endpoint, in a bubble.
type rig struct {
	store, credentials source
	endpoint           *endpoint
	refresher          *token.Refresher
}

// newRig returns a rig whose token is kept in a secret.
func newRig(tb testing.TB, answers ...http.HandlerFunc) *rig {
	r := &rig{endpoint: &endpoint{answers: answers}}
	r.store.limited = true
	r.credentials.put(fmt.Sprintf(`{"client_id":%q,"client_secret":%q}`, clientID, clientSecret))
	r.refresher = r.another(tb)
	return r
}

// another returns another refresher of the same stores.
func (r *rig) another(tb testing.TB) *token.Refresher {
	return token.NewRefresher(&r.store, &r.credentials, newEndpoint(tb, r.endpoint))
}

// newEndpoint returns an endpoint that a handler answers.
func newEndpoint(tb testing.TB, answer http.Handler) *token.Endpoint {
	return token.Direct(token.NewEndpoint(parse(tb, "https://auth.example"), "manager-1", token.EndpointOptions{}),
		direct{answer})
}

func (r *rig) reader() *token.Reader { return token.NewReader(&r.store) }

// run runs the refresher and expects an outcome.
func (r *rig) run(tb testing.TB, want token.Outcome) token.Report {
	tb.Helper()
	report, err := r.refresher.Run(tb.Context(), false)
	if report.Outcome != want || (err != nil) != (want == token.Failed) {
		tb.Fatalf("Run = %+v, %v, want outcome %s", report, err, want)
	}
	return report
}

// put stores a token that was issued now.
func (r *rig) put(access string, lifetime time.Duration) {
	r.store.put(value(access, time.Now(), time.Now().Add(lifetime)))
}

// value returns the stored text with a token of newEndpoint.
func value(access string, issued, expires time.Time) string {
	return fmt.Sprintf(`{"access_token":%q,"token_type":"Bearer","issued_at":%q,"expires_at":%q,"endpoint_sha256":%q}`,
		access, issued.UTC().Format(time.RFC3339Nano), expires.UTC().Format(time.RFC3339Nano), digest())
}

var digest = sync.OnceValue(func() string {
	return token.Digest(token.NewEndpoint(&url.URL{Scheme: "https", Host: "auth.example"}, "manager-1",
		token.EndpointOptions{}))
})
