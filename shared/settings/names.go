package settings

// The environment variables that the deployment sets beside those of settings ([Setting.Env]): names of resources,
// also of existing ones that a setting names, and what is known at the deployment.
const (
	StackEnv         = "PAYHOOK_STACK" // the name of the deployment
	LedgerTableEnv   = "PAYHOOK_LEDGER_TABLE"
	KeysTableEnv     = "PAYHOOK_KEYS_TABLE"
	ClaimBucketEnv   = "PAYHOOK_CLAIM_BUCKET"
	ParkingBucketEnv = "PAYHOOK_PARKING_BUCKET"
	EventBusNameEnv  = "PAYHOOK_EVENT_BUS_NAME"

	TokenSecretEnv       = "PAYHOOK_TOKEN_SECRET"       // the access token; a name or an ARN
	TokenParameterEnv    = "PAYHOOK_TOKEN_PARAMETER"    // the access token, in place of a secret; a name
	TokenKeyEnv          = "PAYHOOK_TOKEN_KEY"          // the customer managed key of that parameter; an ARN
	CredentialsSecretEnv = "PAYHOOK_CREDENTIALS_SECRET" // the client id and secret; a name or an ARN

	APIIDEnv          = "PAYHOOK_API_ID"                 // of the HTTP API, with client certificates
	EvidenceBucketEnv = "PAYHOOK_EVIDENCE_BUCKET"        // with the setting evidence
	CaptureUntilEnv   = "PAYHOOK_CAPTURE_REJECTED_UNTIL" // with captureRejected; a time in RFC 3339
	LocalEnv          = "PAYHOOK_LOCAL"                  // in a local run; "" in the cloud
)

// The files in the packages of functions: the truststore, and the CAs of serviceCA.
const (
	TruststoreFile = "truststore.pem"
	ServiceCAFile  = "service-ca.pem"
)

// Methods returns the HTTP methods of webhooks. The interface does not specify the one that the
// service uses (section 4.3).
func Methods() []string { return []string{"POST", "PUT", "PATCH"} }

// The keys of the two DynamoDB tables, which the deployment creates and the
// functions use. Packages ledger and keys document the other attributes.
const (
	LedgerKey   = "eventId"   // partition key, a string
	LedgerTTL   = "expiresAt" // Unix seconds
	LedgerIndex = "open"      // global secondary index of the items that are pending or parked
	LedgerShard = "shard"     // its partition key, a string: the state, a slash and a number
	LedgerDue   = "due"       // its sort key, a number: Unix milliseconds
	LedgerEvent = "event"     // bytes: the event or its claim check

	KeysKey = "keyId"     // partition key, a string
	KeysTTL = "expiresAt" // Unix seconds
)

// The other attributes that the index of the ledger has.
const (
	LedgerRecordedAt = "recordedAt" // Unix milliseconds
	LedgerSize       = "size"       // bytes of the event
	LedgerClaimed    = "claimed"    // the event is a claim check
	LedgerCause      = "cause"      // a code that says why the event is parked
)

// LedgerProjection returns all of these.
func LedgerProjection() []string {
	return []string{LedgerRecordedAt, LedgerSize, LedgerClaimed, LedgerCause}
}

// WhatToDo separates the cause from the first action in the description of an alarm.
const WhatToDo = " What to do: "

// TokenSecretDescription is the description of the secret with the access token. A secret that a change of tokenStore
// leaves is found by it.
func TokenSecretDescription(deployment string) string {
	return "The access token of " + deployment + ", refreshed by Payhook"
}

// The outputs of the stack that programs read.
const (
	WebhookURLOutput        = "WebhookUrl"
	EventBusNameOutput      = "EventBusName"
	LedgerTableOutput       = "LedgerTable"
	KeysTableOutput         = "KeysTable"
	ClaimBucketOutput       = "ClaimBucket"
	ParkingBucketOutput     = "ParkingBucket"
	EvidenceBucketOutput    = "EvidenceBucket"
	WebhookFunctionOutput   = "WebhookFunction"
	RedriveFunctionOutput   = "RedriveFunction"
	TokenFunctionOutput     = "TokenFunction"
	WebhookLogsOutput       = "WebhookLogs"
	RedriveLogsOutput       = "RedriveLogs"
	TokenLogsOutput         = "TokenLogs"
	TokenSecretOutput       = "TokenSecret"
	TokenParameterOutput    = "TokenParameter"
	CredentialsSecretOutput = "CredentialsSecret"
	DeploymentOutput        = "Deployment"
	VersionOutput           = "Version"
)
