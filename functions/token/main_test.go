package main

import (
	"testing"

	"payhook.example/shared/awstest"
	"payhook.example/shared/settings"
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
