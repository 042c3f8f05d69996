package names

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
	CredentialsSecretOutput   = "CredentialsSecret"
	AlarmTopicOutput          = "AlarmTopic"
	DashboardOutput           = "Dashboard"
	SubscriptionDetailsOutput = "SubscriptionDetails"
	DomainTargetOutput        = "DomainTarget"
	EncryptionKeyOutput       = "EncryptionKey"
	BusFailuresOutput         = "BusFailures"
	DeploymentOutput          = "Deployment"
)
