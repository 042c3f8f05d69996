package main

import (
	"testing"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
	"payhook.example/shared/settings/settingstest"
)

func TestItAnswersInvocations(t *testing.T) {
	answer := settingstest.Main(t, main, settings.RedriveSettings(),
		[]string{names.LedgerTableEnv, names.ClaimBucketEnv, names.ParkingBucketEnv},
		`{"settle":["x"]}`, 0)
	const want = `error {"errorMessage":"redrive: settle needs a reason","errorType":"errorString"}`
	if answer != want {
		t.Errorf("got %s, want %s", answer, want)
	}
}
