package settings

// The environment variables that name the resources of the stack. The deployment
// sets them, both for resources that the stack creates and for existing resources
// that a setting names. [payhook.example/shared/settings.Setting.Env] returns the
// names of the variables that carry settings.
const (
	LedgerTableEnv   = "PAYHOOK_LEDGER_TABLE"
	KeysTableEnv     = "PAYHOOK_KEYS_TABLE"
	ClaimBucketEnv   = "PAYHOOK_CLAIM_BUCKET"
	ParkingBucketEnv = "PAYHOOK_PARKING_BUCKET"
	EventBusNameEnv  = "PAYHOOK_EVENT_BUS_NAME"

	TokenSecretEnv       = "PAYHOOK_TOKEN_SECRET"       // the access token; a name or an ARN
	TokenParameterEnv    = "PAYHOOK_TOKEN_PARAMETER"    // the access token, in place of a secret; a name
	TokenKeyEnv          = "PAYHOOK_TOKEN_KEY"          // the customer managed key of that parameter; an ARN
	CredentialsSecretEnv = "PAYHOOK_CREDENTIALS_SECRET" // the client id and secret; a name or an ARN
)

// CaptureUntilEnv is the environment variable with the time in RFC 3339 until which the
// webhook function stores rejected requests. It is absent unless captureRejected is set.
const CaptureUntilEnv = "PAYHOOK_CAPTURE_REJECTED_UNTIL"

// EvidenceBucketEnv is the environment variable with the name of the bucket that takes a record of
// each accepted delivery. It is absent unless evidence is set.
const EvidenceBucketEnv = "PAYHOOK_EVIDENCE_BUCKET"

// RedriveGraceEnv is the environment variable with the redrive grace of a local run. It is absent in others.
const RedriveGraceEnv = "PAYHOOK_REDRIVE_GRACE"

// APIIDEnv is the environment variable with the id of the HTTP API. The
// deployment sets it.
const APIIDEnv = "PAYHOOK_API_ID"

// TruststoreFile is the name of the truststore in the function's package.
const TruststoreFile = "truststore.pem"

// ServiceCAFile is the name of the file with the CAs of serviceCA in the function's package.
const ServiceCAFile = "service-ca.pem"

// CertificateFoldersEnv is the environment variable of crypto/x509 with the folders of CA certificates that
// Go reads in addition to a bundle of them. NoCertificateFolders is a folder that does not exist.
const (
	CertificateFoldersEnv = "SSL_CERT_DIR"
	NoCertificateFolders  = "/nonexistent"
)

// Methods returns the HTTP methods of webhooks. The interface does not specify the one that the
// service uses (section 4.3).
func Methods() []string { return []string{"POST", "PUT", "PATCH"} }
