package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
	"payhook.example/shared/telemetry"
	"payhook.example/shared/token"
	"payhook.example/shared/token/secretstest"
)

// deployed is the function with its own set-up, Secrets Manager, and a token
// endpoint that issues tokens of an hour.
type deployed struct {
	*handler
	secrets *secretstest.Server
	silent  bool // the endpoint does not answer

	mu       sync.Mutex
	received []*http.Request
}

// requests returns the requests that the token endpoint received.
func (d *deployed) requests() []*http.Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.received
}

func (d *deployed) serve(w http.ResponseWriter, request *http.Request) {
	_ = request.ParseForm()
	d.mu.Lock()
	d.received = append(d.received, request)
	n := len(d.received)
	d.mu.Unlock()
	if d.silent {
		<-request.Context().Done()
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"access_token":"t-%d","token_type":"Bearer","expires_in":3600}`, n)
}

// environment returns the environment of the deployed function, with one setting
// changed.
func environment(authURL string, s *settings.Setting, value string) map[string]string {
	env := map[string]string{names.TokenSecretEnv: tokenSecret, names.CredentialsSecretEnv: credentialsSecret}
	for _, s := range settings.TokenSettings() {
		env[s.Env()] = s.Default
	}
	env[settings.AuthURL.Env()] = authURL
	env[settings.TokenManagerID.Env()] = "manager-1"
	if s != nil {
		env[s.Env()] = value
	}
	return env
}

func deploy(t *testing.T, s *settings.Setting, value string) *deployed {
	t.Helper()
	d := &deployed{secrets: secretstest.New(t)}
	d.secrets.Create(tokenSecret)
	d.secrets.Put(credentialsSecret, `{"client_id":"client 1","client_secret":"a/b c"}`)
	endpoint := httptest.NewServer(http.HandlerFunc(d.serve))
	t.Cleanup(endpoint.Close)
	authURL := endpoint.URL
	if s == settings.AuthURL {
		authURL, s = authURL+value, nil
	}
	env := environment(authURL, s, value)
	conf, err := settings.ParseToken(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	d.handler = newHandler(conf, d.secrets.SDK(), telemetry.New(io.Discard, "token"),
		token.RefresherOptions{Sleep: func(context.Context, time.Duration) error { return nil }})
	return d
}

// store stores a token with a remaining life, of a lifetime of 10 hours.
func (d *deployed) store(left time.Duration) {
	now := time.Now()
	d.secrets.Put(tokenSecret, fmt.Sprintf(
		`{"access_token":"t-0","token_type":"Bearer","issued_at":%q,"expires_at":%q}`,
		now.Add(left-10*time.Hour).Format(time.RFC3339), now.Add(left).Format(time.RFC3339)))
}

func (d *deployed) run(t *testing.T, want token.Outcome) {
	t.Helper()
	r, err := d.Handle(t.Context(), event{})
	if err != nil || r.Outcome != want {
		t.Fatalf("%+v, %v, want %s", r, err, want)
	}
}

// request returns the one request of a run that stores the first token.
func (d *deployed) request(t *testing.T) *http.Request {
	t.Helper()
	d.run(t, token.Refreshed)
	if len(d.requests()) != 1 {
		t.Fatalf("%d requests, want 1", len(d.requests()))
	}
	return d.requests()[0]
}

// effects has a test for each setting of what its values change.
var effects = map[*settings.Setting]func(*testing.T){
	settings.AuthURL: func(t *testing.T) {
		for value, want := range map[string]string{"": "/as/token.oauth2", "/eu": "/eu/as/token.oauth2"} {
			if got := deploy(t, settings.AuthURL, value).request(t).URL.Path; got != want {
				t.Errorf("authUrl with path %q: the path is %s, want %s", value, got, want)
			}
		}
	},
	settings.TokenManagerID: func(t *testing.T) {
		for _, value := range []string{"manager-1", "manager-2"} {
			if got := deploy(t, settings.TokenManagerID,
				value).request(t).URL.RawQuery; got != "access_token_manager_id="+value {
				t.Errorf("tokenManagerId=%s: the query is %s", value, got)
			}
		}
	},
	settings.Scopes: func(t *testing.T) {
		for value, want := range map[string]url.Values{
			"":    {"grant_type": {"client_credentials"}},
			"a b": {"grant_type": {"client_credentials"}, "scope": {"a b"}},
		} {
			if diff := cmp.Diff(want, deploy(t, settings.Scopes, value).request(t).PostForm); diff != "" {
				t.Errorf("scopes=%q: the form (-want +got):\n%s", value, diff)
			}
		}
	},
	settings.CredentialEncoding: func(t *testing.T) {
		for value, want := range map[string][2]string{
			"literal": {"client 1", "a/b c"},
			"form":    {"client+1", "a%2Fb+c"},
		} {
			user, password, _ := deploy(t, settings.CredentialEncoding, value).request(t).BasicAuth()
			if got := [2]string{user, password}; got != want {
				t.Errorf("credentialEncoding=%s: user and password are %q, want %q", value, got, want)
			}
		}
	},
	settings.TokenRefreshPercent: func(t *testing.T) {
		for value, want := range map[string]token.Outcome{"66": token.Refreshed, "50": token.Fresh} {
			d := deploy(t, settings.TokenRefreshPercent, value)
			d.store(6 * time.Hour)
			d.run(t, want)
		}
	},
	// Within 20 s, of which 5 s are kept for storing the token, there is time for
	// all 5 calls of 100 ms, and for one call of 10 s and a part of another.
	settings.TokenEndpointTimeout: func(t *testing.T) {
		d := deploy(t, settings.TokenEndpointTimeout, "100ms")
		d.silent = true
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		r, err := d.Handle(ctx, event{})
		if err != nil || r.Cause != "token: endpoint: no answer: timed out" || len(d.requests()) != 5 {
			t.Errorf("%+v, %v after %d requests, want 5", r, err, len(d.requests()))
		}
	},
	// Lambda ends a run at tokenTimeout. The function only checks other settings against it.
	settings.TokenTimeout: func(t *testing.T) {
		for value, valid := range map[string]bool{"11s": true, "10s": false} {
			env := environment("https://auth.payments.example", settings.TokenTimeout, value)
			conf, err := settings.ParseToken(func(name string) string { return env[name] })
			if (err == nil) != valid || valid && conf.Timeout != 11*time.Second {
				t.Errorf("tokenTimeout=%s with tokenEndpointTimeout=10s: %s, %v", value, conf.Timeout, err)
			}
		}
	},
}

func TestEverySettingHasItsEffect(t *testing.T) {
	for _, s := range settings.TokenSettings() {
		effect := effects[s]
		if effect == nil {
			t.Errorf("no test covers the effect of %s", s.Key)
			continue
		}
		t.Run(s.Key, effect)
	}
}

// The environment alone determines the client of the SDK and the settings.
func TestTheFunctionIsSetUpFromItsEnvironment(t *testing.T) {
	d := deploy(t, nil, "")
	endpoint := httptest.NewServer(http.HandlerFunc(d.serve))
	t.Cleanup(endpoint.Close)
	env := environment(endpoint.URL, settings.Scopes, "payments.read")
	maps.Copy(env, map[string]string{
		"AWS_ENDPOINT_URL": d.secrets.URL, "AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "id",
		"AWS_SECRET_ACCESS_KEY": "secret",
	})
	h, err := newFunction(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	if r, err := h.Handle(t.Context(), event{}); err != nil || r.Outcome != token.Refreshed {
		t.Fatalf("%+v, %v", r, err)
	}
	if len(d.requests()) != 1 || d.requests()[0].PostForm.Get("scope") != "payments.read" ||
		len(d.secrets.Values(tokenSecret)) != 1 {
		t.Errorf("%d requests, %d values", len(d.requests()), len(d.secrets.Values(tokenSecret)))
	}
}
