package main

import (
	"testing"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
	"payhook.example/shared/settings/settingstest"
)

func TestItStartsWithoutSettingsThatHaveDefaults(t *testing.T) {
	settingstest.Starts(t, settings.RedriveSettings(),
		[]string{names.LedgerTableEnv, names.ClaimBucketEnv, names.ParkingBucketEnv},
		func(getenv func(string) string) error {
			_, err := newFunction(getenv)
			return err
		})
}

func TestItAnswersInvocations(t *testing.T) {
	answer := settingstest.Main(t, main, settings.RedriveSettings(),
		[]string{names.LedgerTableEnv, names.ClaimBucketEnv, names.ParkingBucketEnv},
		`{"settle":["x"]}`, 0)
	const want = `error {"errorMessage":"redrive: settle needs a reason","errorType":"errorString"}`
	if answer != want {
		t.Errorf("got %s, want %s", answer, want)
	}
}
