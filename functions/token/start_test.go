package main

import (
	"testing"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
	"payhook.example/shared/settings/settingstest"
)

func TestItAnswersInvocations(t *testing.T) {
	answer := settingstest.Main(t, main, settings.TokenSettings(),
		[]string{names.TokenSecretEnv, names.CredentialsSecretEnv}, `{}`, 1)
	const want = `response {"outcome":"failed","remainingSeconds":0,` +
		`"cause":"token: the secret with the token: GetSecretValue: AccessDeniedException"}`
	if answer != want {
		t.Errorf("got %s, want %s", answer, want)
	}
}
