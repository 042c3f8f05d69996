package settings

// WhatToDo separates the cause from the first action in the description of an alarm.
const WhatToDo = " What to do: "

// TokenSecretDescription is the description of the secret with the access token. A secret that a change of tokenStore
// leaves is found by it.
func TokenSecretDescription(deployment string) string {
	return "The access token of " + deployment + ", refreshed by Payhook"
}

// The outputs of the stack. Package infra describes each output where it creates it.
const (
	WebhookURLOutput          = "WebhookUrl"
	EventBusNameOutput        = "EventBusName"
	EventBusARNOutput         = "EventBusArn"
	ArchiveOutput             = "EventArchive"
	LedgerTableOutput         = "LedgerTable"
	KeysTableOutput           = "KeysTable"
	ClaimBucketOutput         = "ClaimBucket"
	ParkingBucketOutput       = "ParkingBucket"
	EvidenceBucketOutput      = "EvidenceBucket"
	WebhookFunctionOutput     = "WebhookFunction"
	RedriveFunctionOutput     = "RedriveFunction"
	TokenFunctionOutput       = "TokenFunction"
	WebhookLogsOutput         = "WebhookLogs"
	RedriveLogsOutput         = "RedriveLogs"
	TokenLogsOutput           = "TokenLogs"
	TokenSecretOutput         = "TokenSecret"
	TokenParameterOutput      = "TokenParameter"
	CredentialsSecretOutput   = "CredentialsSecret"
	AlarmTopicOutput          = "AlarmTopic"
	DashboardOutput           = "Dashboard"
	SubscriptionDetailsOutput = "SubscriptionDetails"
	DomainTargetOutput        = "DomainTarget"
	EncryptionKeyOutput       = "EncryptionKey"
	BusFailuresOutput         = "BusFailures"
	DeploymentOutput          = "Deployment"
	VersionOutput             = "Version"
)
