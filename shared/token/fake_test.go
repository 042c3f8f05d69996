package token_test

import (
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

	sdk "github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"payhook.example/shared/aws/parameterstore"
	"payhook.example/shared/aws/secretsmanager"
	"payhook.example/shared/awstest"
	"payhook.example/shared/token"
)

// The names of the two secrets, and the canaries that must not appear in any output.
const (
	tokenSecret       = "payhook/token"
	tokenParameter    = "/payhook/Bank/token"
	credentialsSecret = "payhook/credentials"

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

// rig is a refresher with its secrets and endpoint, in a bubble.
type rig struct {
	secrets   *awstest.SecretsManager
	parameter *awstest.ParameterStore // keeps the token; nil: a secret does
	down      bool                    // Secrets Manager does not answer
	endpoint  *endpoint
	refresher *token.Refresher
}

func newRig(tb testing.TB, answers ...http.HandlerFunc) *rig {
	r := &rig{secrets: awstest.NewSecretsManager(tb), endpoint: &endpoint{answers: answers}}
	r.secrets.Close() // only its handler is used
	r.secrets.Create(tokenSecret)
	r.fill(clientID, clientSecret)
	r.refresher = r.another(tb)
	return r
}

// sdk returns the client of the secrets.
func (r *rig) sdk() *secretsmanager.Client {
	return sdk.New(r.secrets.SDK().Options(), func(o *sdk.Options) {
		o.HTTPClient = &http.Client{Transport: direct{http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if r.down {
				hangsUp(w, q)
			}
			r.secrets.Config.Handler.ServeHTTP(w, q)
		})}}
	})
}

// another returns another refresher of the same secrets and parameter.
func (r *rig) another(tb testing.TB) *token.Refresher {
	return token.NewRefresher(r.store(), secretsmanager.NewCredentials(r.sdk(), credentialsSecret),
		newEndpoint(tb, r.endpoint))
}

// newParameterRig returns a rig whose token is kept in a parameter, encrypted with the key "key".
func newParameterRig(tb testing.TB, answers ...http.HandlerFunc) *rig {
	r := newRig(tb, answers...)
	r.parameter = awstest.NewParameterStore(tb, tokenParameter)
	r.parameter.Close()
	r.refresher = r.another(tb)
	return r
}

func (r *rig) store() token.Store {
	if r.parameter == nil {
		return secretsmanager.NewStore(r.sdk(), tokenSecret)
	}
	return parameterstore.NewStore(ssm.New(r.parameter.SDK().Options(), func(o *ssm.Options) {
		o.HTTPClient = &http.Client{Transport: direct{r.parameter.Config.Handler}}
	}), tokenParameter, "key")
}

// newEndpoint returns an endpoint that a handler answers.
func newEndpoint(tb testing.TB, answer http.Handler) *token.Endpoint {
	return token.Direct(token.NewEndpoint(parse(tb, "https://auth.example"), "manager-1", token.EndpointOptions{}),
		direct{answer})
}

func (r *rig) fill(id, secret string) {
	r.secrets.Put(credentialsSecret, fmt.Sprintf(`{"client_id":%q,"client_secret":%q}`, id, secret))
}

func (r *rig) reader() *token.Reader { return token.NewReader(r.store()) }

// run runs the refresher and expects an outcome.
func (r *rig) run(tb testing.TB, want token.Outcome) token.Report {
	tb.Helper()
	report, err := r.refresher.Run(tb.Context(), false)
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

// put stores a token that was issued now.
func (r *rig) put(access string, lifetime time.Duration) {
	r.secrets.Put(tokenSecret, value(access, time.Now(), time.Now().Add(lifetime)))
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
