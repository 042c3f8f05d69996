package main

import (
	"testing"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
	"payhook.example/shared/settings/settingstest"
)

func TestItStartsWithoutSettingsThatHaveDefaults(t *testing.T) {
	settingstest.Starts(t, settings.WebhookSettings(),
		[]string{names.LedgerTableEnv, names.KeysTableEnv, names.ClaimBucketEnv, names.ParkingBucketEnv},
		func(getenv func(string) string) error {
			_, _, err := newFunction(getenv)
			return err
		})
}
