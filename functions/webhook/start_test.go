package main

import (
	"strings"
	"testing"

	"payhook.example/shared/awstest"
	"payhook.example/shared/names"
	"payhook.example/shared/settings"
)

func TestItAnswersInvocations(t *testing.T) {
	answer := awstest.Main(t, main, settings.ReadBy("webhook"),
		[]string{names.LedgerTableEnv, names.KeysTableEnv, names.ClaimBucketEnv, names.ParkingBucketEnv,
			names.EventBusNameEnv},
		`{"version":"2.0","requestContext":{"http":{"method":"GET"}}}`, 2)
	if !strings.HasPrefix(answer, `response {"statusCode":405,`) {
		t.Errorf("got %s", answer)
	}
}
