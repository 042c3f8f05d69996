package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/telemetry"
	"payhook.example/shared/token"
	"payhook.example/shared/token/secretstest"
)

const (
	tokenSecret       = "payhook/token"
	credentialsSecret = "payhook/credentials"
	canary            = "canary-client-secret-51c0"
	slowTimeout       = "100ms" // of a call, shorter than the endpoint takes
)

// rig is the function with its services.
type rig struct {
	handler *handler
	secrets *secretstest.Server
	out     *bytes.Buffer // what it writes to standard output
}

func newRig(t *testing.T, authURL, timeout string) *rig {
	environment := map[string]string{
		names.TokenSecretEnv:                tokenSecret,
		names.CredentialsSecretEnv:          credentialsSecret,
		settings.AuthURL.Env():              authURL,
		settings.TokenManagerID.Env():       "manager-1",
		settings.TokenTimeout.Env():         "55s",
		settings.TokenEndpointTimeout.Env(): timeout,
	}
	conf, err := settings.ParseToken(func(name string) string {
		if v, ok := environment[name]; ok {
			return v
		}
		for _, s := range settings.TokenSettings() {
			if s.Env() == name {
				return s.Default
			}
		}
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{secrets: secretstest.New(t), out: &bytes.Buffer{}}
	r.secrets.Create(tokenSecret)
	r.secrets.Create(credentialsSecret)
	r.handler = newHandler(conf, r.secrets.SDK(), telemetry.New(r.out, "token-function"),
		token.RefresherOptions{Sleep: func(context.Context, time.Duration) error { return nil }})
	return r
}

// invoke invokes the function once and returns its report and its log line.
func (r *rig) invoke(t *testing.T, e event) (report, map[string]any) {
	t.Helper()
	r.out.Reset()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, err := r.handler.Handle(ctx, e)
	if err != nil {
		t.Fatalf("the invocation fails: %v", err)
	}
	if lines := strings.Count(r.out.String(), "\n"); lines != 1 {
		t.Fatalf("%d lines, want 1:\n%s", lines, r.out)
	}
	var line map[string]any
	if err := json.Unmarshal(r.out.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, r.out)
	}
	return got, line
}

// metrics returns the metrics of a line as CloudWatch extracts them.
func metrics(t *testing.T, line map[string]any) map[string]float64 {
	t.Helper()
	values := map[string]float64{}
	for _, d := range line["_aws"].(map[string]any)["CloudWatchMetrics"].([]any) {
		for _, m := range d.(map[string]any)["Metrics"].([]any) {
			name := m.(map[string]any)["Name"].(string)
			values[name] = line[name].(float64)
			if seconds := m.(map[string]any)["Unit"] == "Seconds"; seconds != strings.HasSuffix(name, "Seconds") {
				t.Errorf("%s has the unit %v", name, m.(map[string]any)["Unit"])
			}
		}
	}
	return values
}

func expect(t *testing.T, line map[string]any, want map[string]any) {
	t.Helper()
	got := map[string]any{}
	for name := range want {
		got[name] = line[name]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the line (-want +got):\n%s", diff)
	}
}

func TestARunWritesOneLine(t *testing.T) {
	service := paymenttest.NewServer(paymenttest.Options{TokenLifetime: time.Hour})
	defer service.Close()
	r := newRig(t, service.URL, "10s")

	t.Run("the credentials are missing", func(t *testing.T) {
		got, line := r.invoke(t, event{})
		const cause = `token: the secret with the client credentials has no value yet; ` +
			`store {"client_id": "...", "client_secret": "..."} in it`
		if diff := cmp.Diff(report{token.Failed, 0, cause}, got); diff != "" {
			t.Errorf("the report (-want +got):\n%s", diff)
		}
		expect(t, line, map[string]any{"level": "ERROR", "msg": "token", "outcome": "failed", "cause": cause,
			"calls": 0.0})
		if diff := cmp.Diff(map[string]float64{
			"TokenRemainingSeconds": 0, "TokenShortfallSeconds": 60,
			"TokenRefreshed": 0, "TokenFailed": 1, "TokenCredentialsMissing": 1, "TokenWritesTooOften": 0,
		}, metrics(t, line)); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
	})

	id, secret := service.Client()
	r.secrets.Put(credentialsSecret, fmt.Sprintf(`{"client_id":%q,"client_secret":%q}`, id, secret))
	for _, step := range []struct {
		name      string
		event     event
		outcome   token.Outcome
		refreshed float64
	}{
		{"a new token is stored", event{}, token.Refreshed, 1},
		{"the token has life enough", event{}, token.Fresh, 0},
		{"a person asks for a new one", event{Refresh: true}, token.Refreshed, 1},
	} {
		t.Run(step.name, func(t *testing.T) {
			got, line := r.invoke(t, step.event)
			if got.Outcome != step.outcome || got.Cause != "" || got.RemainingSeconds < 3500 ||
				got.RemainingSeconds > 3600 {
				t.Errorf("%+v", got)
			}
			expect(t, line, map[string]any{"level": nil, "outcome": string(step.outcome), "lifetimeSeconds": 3600.0,
				"calls": step.refreshed})
			values := metrics(t, line)
			if left := values["TokenRemainingSeconds"]; left < 3500 || left > 3600 ||
				values["TokenShortfallSeconds"] != 0 {
				t.Errorf("%v", values)
			}
			if values["TokenRefreshed"] != step.refreshed || values["TokenFailed"] != 0 ||
				values["TokenWritesTooOften"] != 0 {
				t.Errorf("%v", values)
			}
		})
	}

	t.Run("tokens live too short", func(t *testing.T) {
		service.SetTokenLifetime(5 * time.Minute)
		_, line := r.invoke(t, event{Refresh: true})
		expect(t, line, map[string]any{"level": "WARN", "outcome": "refreshed",
			"warning": "the lifetime of the tokens is too short (5m0s): at this pace the secret has 100 versions " +
				"after 3h18m0s, and AWS accepts no more until one is 24 hours old; ask the service's operator for " +
				"tokens of at least 20 minutes"})
		if metrics(t, line)["TokenWritesTooOften"] != 1 {
			t.Errorf("%v", line)
		}
	})

	t.Run("the secret is full", func(t *testing.T) {
		r.secrets.Before = func(c secretstest.Call) (int, string) {
			if c.Operation == "PutSecretValue" {
				return http.StatusBadRequest, "LimitExceededException"
			}
			return 0, ""
		}
		defer func() { r.secrets.Before = nil }()
		got, line := r.invoke(t, event{Refresh: true})
		if got.Outcome != token.Failed || got.RemainingSeconds < 200 {
			t.Errorf("%+v, want the remaining life of the stored token", got)
		}
		expect(t, line, map[string]any{"level": "ERROR", "outcome": "failed",
			"cause": "token: the secret with the token: PutSecretValue: LimitExceededException: the secret has 100 " +
				"versions of the last 24 hours and accepts no more until one is older",
			"warning": "the lifetime of the tokens is too short (5m0s): the secret has more than 90 versions a day, " +
				"and AWS takes 100; ask the service's operator for tokens of at least 20 minutes"})
		if values := metrics(t, line); values["TokenWritesTooOften"] != 1 || values["TokenFailed"] != 1 {
			t.Errorf("%v", values)
		}
	})

	t.Run("the endpoint refuses", func(t *testing.T) {
		if err := service.Misbehave(paymenttest.Token, paymenttest.Fault{Name: paymenttest.InvalidClient}); err != nil {
			t.Fatal(err)
		}
		got, line := r.invoke(t, event{Refresh: true})
		if got.Outcome != token.Failed || got.RemainingSeconds < 200 {
			t.Errorf("%+v, want the remaining life of the stored token", got)
		}
		expect(t, line, map[string]any{"level": "ERROR", "outcome": "failed", "status": 400.0,
			"oauthError": "invalid_client",
			"cause":      "token: endpoint answered 400 invalid_client"})
		values := metrics(t, line)
		if values["TokenFailed"] != 1 || values["TokenCredentialsMissing"] != 0 ||
			values["TokenRemainingSeconds"] < 200 {
			t.Errorf("%v", values)
		}
	})

	t.Run("the secret can't be read", func(t *testing.T) {
		r.secrets.Before = func(secretstest.Call) (int, string) {
			return http.StatusBadRequest,
				"AccessDeniedException"
		}
		_, line := r.invoke(t, event{})
		expect(t, line, map[string]any{"outcome": "failed",
			"cause": "token: the secret with the token: GetSecretValue: AccessDeniedException"})
		if _, known := metrics(t, line)["TokenRemainingSeconds"]; known || metrics(t, line)["TokenFailed"] != 1 {
			t.Errorf("the line has a remaining life: %v", line)
		}
	})
}

// The log and the report contain no secret, even if the texts of the endpoint and of
// Secrets Manager do.
func TestNoSecretIsLoggedOrReturned(t *testing.T) {
	service := paymenttest.NewServer(paymenttest.Options{ClientID: "client-1", ClientSecret: canary})
	defer service.Close()
	leaky := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("WWW-Authenticate", request.Header.Get("Authorization"))
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"error":%q,"error_description":%q,"access_token":%q}`, canary,
			request.Header.Get("Authorization"), canary)
	}))
	defer leaky.Close()

	faults := map[string]paymenttest.Fault{"none": {}}
	for _, name := range paymenttest.Faults(paymenttest.Token) {
		fault := paymenttest.Fault{Name: name}
		if name == paymenttest.AccessToken {
			fault.Value = fmt.Sprintf("%q", canary+"\n")
		}
		faults[string(name)] = fault
	}
	codes := []string{"", "AccessDeniedException", "DecryptionFailure", "InternalServiceError"}
	written := 0
	try := func(t *testing.T, authURL, timeout, credentials string) {
		for _, code := range codes {
			for _, operation := range []string{"GetSecretValue", "PutSecretValue"} {
				r := newRig(t, authURL, timeout)
				r.secrets.Put(credentialsSecret, credentials)
				r.secrets.Put(tokenSecret, `{"access_token":"`+canary+`","issued_at":7}`)
				r.secrets.Before = func(c secretstest.Call) (int, string) {
					if code != "" && c.Operation == operation {
						return http.StatusBadRequest, code
					}
					return 0, ""
				}
				got, line := r.invoke(t, event{})
				if timeout == slowTimeout && code == "" && line["calls"] != 5.0 {
					t.Fatalf("%v calls within 20 s, want 5 of %s each", line["calls"], slowTimeout)
				}
				returned, err := json.Marshal(got)
				if err != nil {
					t.Fatal(err)
				}
				secrets := []string{canary, "arn:aws", "Basic "}
				for _, value := range r.secrets.Values(tokenSecret) {
					var stored struct {
						AccessToken string `json:"access_token"`
					}
					if err := json.Unmarshal([]byte(value), &stored); err == nil {
						secrets = append(secrets, stored.AccessToken)
						written++
					}
				}
				for _, text := range []string{r.out.String(), string(returned),
					fmt.Sprintf("%+v %#v", got, r.handler)} {
					for _, s := range secrets {
						if strings.Contains(text, s) {
							t.Errorf("%q is in: %s", s, text)
						}
					}
				}
			}
		}
	}
	good := fmt.Sprintf(`{"client_id":"client-1","client_secret":%q}`, canary)
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		t.Run(name, func(t *testing.T) {
			if err := service.Misbehave(paymenttest.Token, faults[name]); err != nil {
				t.Fatal(err)
			}
			timeout := "10s"
			if faults[name].Name == paymenttest.Slow {
				timeout = slowTimeout
			}
			try(t, service.URL, timeout, good)
		})
	}
	t.Run("quoting everything", func(t *testing.T) { try(t, leaky.URL, "10s", good) })
	t.Run("credentials that are not JSON", func(t *testing.T) { try(t, service.URL, "10s", canary) })
	t.Run("credentials with a line break", func(t *testing.T) {
		try(t, service.URL, "10s", fmt.Sprintf(`{"client_id":"client-1","client_secret":%q}`, canary+"\n"))
	})
	if written == 0 {
		t.Error("no run stored a token")
	}
}

func TestTheSampleEventsAreDecoded(t *testing.T) {
	for file, want := range map[string]event{"scheduled.json": {}, "refresh.json": {Refresh: true}} {
		text, err := os.ReadFile(filepath.Join("..", "..", "events", "token", file))
		if err != nil {
			t.Fatal(err)
		}
		var got event
		if err := json.Unmarshal(text, &got); err != nil || got != want {
			t.Errorf("%s: %+v, %v", file, got, err)
		}
	}
}

// A secret that will be full says when; one that just holds too many versions does not.
func TestTheWarningSaysWhenTheSecretIsFull(t *testing.T) {
	for after, want := range map[time.Duration]string{
		0:         "(10m0s): the secret has more than 90 versions a day, and AWS takes 100; ask",
		time.Hour: "(10m0s): at this pace the secret has 100 versions after 1h0m0s, and AWS accepts no more until",
	} {
		if got := warning(token.Report{Outcome: token.Refreshed, Lifetime: 10 * time.Minute,
			FullAfter: after}); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
