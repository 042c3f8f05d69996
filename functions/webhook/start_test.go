package main

import (
	"strings"
	"testing"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
)

// A new version may start with the environment of the previous template, which
// lacks any of its settings.
func TestItStartsWithoutAnySettingThatHasADefault(t *testing.T) {
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

func TestItDoesNotStartWithAWrongSetting(t *testing.T) {
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv(names.LedgerTableEnv, "")
	if _, err := wire(t.Context()); err == nil || !strings.Contains(err.Error(), names.LedgerTableEnv) {
		t.Errorf("without a ledger: %v", err)
	}
}
