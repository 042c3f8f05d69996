package main

import (
	"testing"

	"payhook.example/shared/contract"
)

// A new version may start with the environment of the previous template, which
// lacks any of its settings.
func TestItStartsWithoutAnySettingThatHasADefault(t *testing.T) {
	t.Setenv("AWS_REGION", "us-east-1")
	for name, value := range map[string]string{
		contract.TokenSecretEnv:       "x",
		contract.CredentialsSecretEnv: "x",
	} {
		t.Setenv(name, value)
	}
	for _, s := range contract.TokenSettings() {
		t.Setenv(s.Env(), "")
		if s.Required || s == contract.EventBusName {
			t.Setenv(s.Env(), s.Example)
		}
	}
	if _, err := wire(t.Context()); err != nil {
		t.Errorf("with the resource names alone: %v", err)
	}
	for _, s := range contract.TokenSettings() {
		if s.Default == "" {
			continue
		}
		t.Setenv(s.Env(), s.Default)
		if _, err := wire(t.Context()); err != nil {
			t.Errorf("with %s alone: %v", s.Env(), err)
		}
		t.Setenv(s.Env(), "")
	}
}
