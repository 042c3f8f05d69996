package main

import (
	"strings"
	"testing"

	"payhook.example/shared/awstest"
	"payhook.example/shared/settings"
)

func TestItAnswersInvocations(t *testing.T) {
	answer := awstest.Main(t, main, "webhook",
		[]string{settings.LedgerTableEnv, settings.KeysTableEnv, settings.ClaimBucketEnv, settings.ParkingBucketEnv,
			settings.EventBusNameEnv},
		`{"version":"2.0","requestContext":{"http":{"method":"GET"}}}`, 2)
	if !strings.HasPrefix(answer, `response {"statusCode":405,`) {
		t.Errorf("got %s", answer)
	}
}
