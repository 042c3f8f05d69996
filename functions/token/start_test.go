package main

import (
	"testing"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
	"payhook.example/shared/settings/settingstest"
)

func TestItStartsWithoutSettingsThatHaveDefaults(t *testing.T) {
	settingstest.Starts(t, settings.TokenSettings(),
		[]string{names.TokenSecretEnv, names.CredentialsSecretEnv},
		func(getenv func(string) string) error {
			_, err := newFunction(getenv)
			return err
		})
}
