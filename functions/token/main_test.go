package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"payhook.example/functions/token/tokenhandler"
	"payhook.example/shared/awstest"
	"payhook.example/shared/settings"
	"payhook.example/shared/token"
)

func TestItAnswersInvocations(t *testing.T) {
	answer := awstest.Main(t, main, "token",
		[]string{settings.TokenSecretEnv, settings.CredentialsSecretEnv}, `{}`, 1)
	const want = `response {"outcome":"failed","remainingSeconds":0,` +
		`"cause":"the secret with the token: Secrets Manager GetSecretValue: AccessDeniedException"}`
	if answer != want {
		t.Errorf("got %s, want %s", answer, want)
	}
}

func TestItDoesNotStartWithoutSettings(t *testing.T) {
	_, err := newFunction(func(name string) string { return map[string]string{"AWS_REGION": "eu-central-1"}[name] })
	if err == nil || !strings.Contains(err.Error(), settings.CredentialsSecretEnv) {
		t.Errorf("%v", err)
	}
}

func TestATokenIsStoredThoughAStoreFailsForThreeSeconds(t *testing.T) {
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"access_token":"a","token_type":"Bearer","expires_in":3600}`)
	}))
	defer endpoint.Close()
	for store, operations := range map[string][]string{
		settings.TokenSecretEnv:    {"GetSecretValue", "PutSecretValue"},
		settings.TokenParameterEnv: {"GetParameter", "PutParameter"},
	} {
		for _, operation := range operations {
			values := awstest.NewValues(t)
			values.Create("token", "")
			values.Create("credentials", `{"client_id":"c","client_secret":"s"}`)
			server := awstest.NewOutage(t, 3*time.Second,
				func(r *http.Request) bool { return strings.HasSuffix(r.Header.Get(awstest.TargetHeader), operation) },
				func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
				values.Config.Handler.ServeHTTP)
			env := map[string]string{store: "token", settings.CredentialsSecretEnv: "credentials",
				"PAYHOOK_CREDENTIAL_ENCODING": "literal", "PAYHOOK_TOKEN_MANAGER_ID": "manager",
				"PAYHOOK_AUTH_URL": endpoint.URL, "AWS_ENDPOINT_URL": server.URL, "AWS_REGION": "eu-central-1",
				"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
			synctest.Test(t, func(t *testing.T) {
				h, err := newFunction(func(name string) string { return env[name] })
				if err != nil {
					t.Fatal(err)
				}
				if r, err := h.Handle(t.Context(), tokenhandler.Event{Refresh: true}); r.Outcome != token.Refreshed {
					t.Errorf("%s, %s: %+v, %v", store, operation, r, err)
				}
			})
			if server.Failed.Load() == 0 {
				t.Errorf("%s, %s: no call failed", store, operation)
			}
		}
	}
}
