package main

import (
	"strings"
	"testing"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
)

// startEnvironment sets what has no default.
func startEnvironment(t *testing.T) {
	t.Helper()
	t.Setenv("AWS_REGION", "us-east-1")
	for name, value := range map[string]string{
		names.LedgerTableEnv:   "x",
		names.KeysTableEnv:     "x",
		names.ClaimBucketEnv:   "x",
		names.ParkingBucketEnv: "x",
	} {
		t.Setenv(name, value)
	}
	for _, s := range settings.WebhookSettings() {
		t.Setenv(s.Env(), "")
		if s.Required || s == settings.EventBusName {
			t.Setenv(s.Env(), s.Example)
		}
	}
}

// A new version may start with the environment of the previous template, which
// lacks any of its settings.
func TestItStartsWithoutAnySettingThatHasADefault(t *testing.T) {
	startEnvironment(t)
	if _, err := wire(t.Context()); err != nil {
		t.Errorf("with the resource names alone: %v", err)
	}
	for _, s := range settings.WebhookSettings() {
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

func TestItDoesNotStartWithAWrongEnvironment(t *testing.T) {
	for name, value := range map[string]string{names.LedgerTableEnv: "", "AWS_MAX_ATTEMPTS": "many"} {
		t.Run(name, func(t *testing.T) {
			startEnvironment(t)
			t.Setenv(name, value)
			if _, err := wire(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("got %v", err)
			}
		})
	}
}
