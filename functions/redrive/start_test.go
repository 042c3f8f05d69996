package main

import (
	"testing"

	"payhook.example/shared/awstest"
	"payhook.example/shared/settings"
)

func TestItAnswersInvocations(t *testing.T) {
	answer := awstest.Main(t, main, "redrive",
		[]string{settings.LedgerTableEnv, settings.EventBusNameEnv, settings.LargeEventBucketEnv,
			settings.ParkingBucketEnv},
		`{"dismiss":["x"]}`, 0)
	const want = `error {"errorMessage":"redrive: dismiss needs a reason","errorType":"wrapError"}`
	if answer != want {
		t.Errorf("got %s, want %s", answer, want)
	}
}
