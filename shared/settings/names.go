package settings

import (
	"time"
)

// The environment variables that the deployment sets beside those of settings ([Setting.Env]): names of resources,
// also of existing ones that a setting names, and what is known at the deployment.
const (
	StackEnv            = "PAYHOOK_STACK" // the full name of the stack
	LedgerTableEnv      = "PAYHOOK_LEDGER_TABLE"
	KeysTableEnv        = "PAYHOOK_KEYS_TABLE"
	LargeEventBucketEnv = "PAYHOOK_LARGE_EVENT_BUCKET"
	ParkingBucketEnv    = "PAYHOOK_PARKING_BUCKET"
	EventBusNameEnv     = "PAYHOOK_EVENT_BUS_NAME"

	TokenSecretEnv       = "PAYHOOK_TOKEN_SECRET"       // the access token; a name or an ARN
	TokenParameterEnv    = "PAYHOOK_TOKEN_PARAMETER"    // the access token, in place of a secret; a name
	TokenKeyEnv          = "PAYHOOK_TOKEN_KEY"          // the customer managed key of that parameter; an ARN
	CredentialsSecretEnv = "PAYHOOK_CREDENTIALS_SECRET" // the client id and secret; a name or an ARN

	APIIDEnv              = "PAYHOOK_API_ID"               // of the HTTP API, with client certificates
	EvidenceBucketEnv     = "PAYHOOK_EVIDENCE_BUCKET"      // with the setting evidence
	StoreRejectedUntilEnv = "PAYHOOK_STORE_REJECTED_UNTIL" // with storeRejected; a time in RFC 3339
	LocalEnv              = "PAYHOOK_LOCAL"                // in a local run; "" in the cloud
)

// The files in the packages of functions: the truststore, and the CAs of serviceCA.
const (
	TruststoreFile = "truststore.pem"
	ServiceCAFile  = "service-ca.pem"
)

// Methods returns the HTTP methods of webhooks. The interface does not specify the one that the
// service uses (section 4.3).
func Methods() []string { return []string{"POST", "PUT", "PATCH"} }

// MonitorMethods returns the HTTP methods with which a monitor asks whether the webhook address can be reached. They
// are answered 204 and have no effect.
func MonitorMethods() []string { return []string{"GET", "HEAD"} }

// The keys of the two DynamoDB tables, which the deployment creates and the
// functions use. Packages ledger and keys document the other attributes.
const (
	LedgerKey       = "eventId"   // partition key, a string
	LedgerTTL       = "expiresAt" // Unix seconds
	LedgerIndex     = "open"      // global secondary index of the items that are pending or parked
	LedgerShard     = "shard"     // its partition key, a string: the state, a slash and a number
	LedgerIndexTime = "order"     // its sort key: Unix milliseconds, the end of the lease or when it was parked
	LedgerEvent     = "event"     // bytes: the event or its claim check

	KeysKey = "keyId"     // partition key, a string
	KeysTTL = "expiresAt" // Unix seconds
)

// The other attributes that the index of the ledger has.
const (
	LedgerRecordedAt = "recordedAt" // Unix milliseconds
	LedgerSize       = "size"       // bytes of the event
	LedgerLarge      = "large"      // the event is a claim check
	LedgerCause      = "cause"      // a code that says why the event is parked
)

// LedgerProjection returns all of these.
func LedgerProjection() []string {
	return []string{LedgerRecordedAt, LedgerSize, LedgerLarge, LedgerCause}
}

// WhatToDo separates the cause from the first action in the description of an alarm.
const WhatToDo = " What to do: "

// The outputs of the stack that programs read.
const (
	WebhookURLOutput        = "WebhookUrl"
	EventBusNameOutput      = "EventBusName"
	LedgerTableOutput       = "LedgerTable"
	KeysTableOutput         = "KeysTable"
	LargeEventBucketOutput  = "LargeEventBucket"
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
	FullNameOutput          = "FullName"
	VersionOutput           = "Version"
)

// SafePayloadBytes is the size up to which a payload always reaches the function, provided that it is JSON in UTF-8 and
// that Lambda writes it as RFC 8259 requires. Lambda escapes a text body, which turns one byte into two at most
// (quotation marks, backslashes, line breaks, tabs; JSON allows no other control character). It encodes other bodies in
// base64, four bytes for three, which needs less space. A larger payload can fit.
//
// The JSON of a synchronous invocation must be smaller than 6 MB of 1,048,576 bytes each (AWS, "Lambda quotas", and the
// message of a RequestTooLargeException). 64 KB are reserved for headers, cookies, query and request context.
const SafePayloadBytes = (6<<20 - 1 - 64<<10) / 2

// EventSource is the source of every event. The rules of consumers match it.
const EventSource = "payhook"

// KeyTimeout is the timeout of one fetch of a key. It leaves time to record the events.
const KeyTimeout = 3 * time.Second

// WebhookMemory is the memory of the webhook function in MiB. Lambda allocates CPU in proportion.
const WebhookMemory = 512

// LargeEventBytes is the size of the largest event that is sent whole: every target of a rule can take it with
// the envelope of EventBridge. SNS, Step Functions and, in the Regions of China, all targets take 256 KB.
const LargeEventBytes = 200_000

// TokenTimeout is the timeout of one run of the token function: shorter than the minute between two runs.
const TokenTimeout = 55 * time.Second

// RedriveAttempts is how often an event is tried before it is parked.
const RedriveAttempts = 20

// RedriveTimeout is the timeout of one run of the redrive function, which the schedule starts every minute. A local
// run is faster.
const (
	RedriveTimeout      = 55 * time.Second
	LocalRedriveTimeout = 5 * time.Second
)

// RedriveGrace is how long redrive waits after the deadline of the function that processes an event: more than the
// clocks of two functions can differ. In a local run, they have one clock.
const (
	RedriveGrace      = 30 * time.Second
	LocalRedriveGrace = time.Second
)
