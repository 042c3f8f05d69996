package settings_test

import (
	"maps"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
)

// tokenEnvironment returns the environment of the token function with only the
// required settings, and with changes.
func tokenEnvironment(changes map[string]string) func(string) string {
	environment := map[string]string{
		names.TokenSecretEnv:       "payhook/token",
		names.CredentialsSecretEnv: "payhook/credentials",
	}
	for _, s := range settings.TokenSettings() {
		environment[s.Env()] = s.Default
		if s.Required {
			environment[s.Env()] = s.Example
		}
	}
	maps.Copy(environment, changes)
	return func(name string) string { return environment[name] }
}

func TestParseToken(t *testing.T) {
	base := settings.Token{
		TokenSecret:       "payhook/token",
		CredentialsSecret: "payhook/credentials",
		AuthURL:           &url.URL{Scheme: "https", Host: "auth.payments.example"},
		TokenManagerID:    "manager-1",
	}
	tests := map[string]struct {
		changes map[string]string
		want    func(*settings.Token)
	}{
		"defaults": {nil, func(*settings.Token) {}},
		"scopes": {map[string]string{"PAYHOOK_SCOPES": " payments.read  payments.write "},
			func(s *settings.Token) { s.Scopes = []string{"payments.read", "payments.write"} }},
		"encoding": {map[string]string{"PAYHOOK_CREDENTIAL_ENCODING": "form"},
			func(s *settings.Token) { s.FormEncoded = true }},
		"a loopback": {map[string]string{"PAYHOOK_AUTH_URL": "http://127.0.0.1:8080/"},
			func(s *settings.Token) { s.AuthURL = &url.URL{Scheme: "http", Host: "127.0.0.1:8080"} }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := base
			test.want(&want)
			got, err := settings.ParseToken(tokenEnvironment(test.changes))
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestParseTokenReportsEveryInvalidSetting(t *testing.T) {
	_, err := settings.ParseToken(tokenEnvironment(map[string]string{
		names.TokenSecretEnv:          "",
		names.CredentialsSecretEnv:    "",
		"PAYHOOK_AUTH_URL":            "http://auth.payments.example",
		"PAYHOOK_TOKEN_MANAGER_ID":    "",
		"PAYHOOK_SCOPES":              `a "b"`,
		"PAYHOOK_CREDENTIAL_ENCODING": "plain",
	}))
	if err == nil {
		t.Fatal("no error")
	}
	for _, name := range []string{
		names.TokenSecretEnv, names.CredentialsSecretEnv, "PAYHOOK_AUTH_URL", "PAYHOOK_TOKEN_MANAGER_ID",
		"PAYHOOK_SCOPES",
		"PAYHOOK_CREDENTIAL_ENCODING",
	} {
		if n := strings.Count(err.Error(), name+": "); n != 1 {
			t.Errorf("%s is named %d times in:\n%v", name, n, err)
		}
	}
}

func TestWebhookNeedsTheTokenSecretOnlyForBearer(t *testing.T) {
	for _, test := range []struct {
		keysAuth, secret string
		bearer, ok       bool
	}{
		{"none", "", false, true},
		{"bearer", "payhook/token", true, true},
		{"bearer", "", true, false},
		{"basic", "", false, false},
	} {
		env := environment(t, nil)
		env[names.TokenSecretEnv], env["PAYHOOK_KEYS_AUTH"] = test.secret, test.keysAuth
		got, err := settings.ParseWebhook(func(name string) string { return env[name] })
		if (err == nil) != test.ok || got.KeysBearer != test.bearer || test.ok && got.TokenSecret != test.secret {
			t.Errorf("%+v: %t, %q, %v", test, got.KeysBearer, got.TokenSecret, err)
		}
	}
}
