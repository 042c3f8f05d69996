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
	RedriveGraceEnv   = "PAYHOOK_REDRIVE_GRACE"          // in a local run
)

// The files in the packages of functions: the truststore, and the CAs of serviceCA.
const (
	TruststoreFile = "truststore.pem"
	ServiceCAFile  = "service-ca.pem"
)

// Methods returns the HTTP methods of webhooks. The interface does not specify the one that the
// service uses (section 4.3).
func Methods() []string { return []string{"POST", "PUT", "PATCH"} }
