package payhook

import (
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awscertificatemanager"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsroute53"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"

	"payhook.example/shared/settings"
)

// Props are the settings of a deployment. The zero value of a field is its default. The
// first three fields are required. [New] reports all problems together.
//
// Strings and the elements of lists must be literals, no tokens of the CDK: they are checked
// when the template is written. No element of a list is blank.
type Props struct {
	// BaseURL is the base URL of the APIs; keys are at {BaseURL}/v1/keys/{keyId}.
	BaseURL string `context:"baseUrl"`
	// AuthURL is the base URL of the token endpoint {AuthURL}/as/token.oauth2.
	AuthURL string `context:"authUrl"`
	// TokenManagerID is the access_token_manager_id, assigned by the operator.
	TokenManagerID string `context:"tokenManagerId"`

	// Bus is an existing bus for the events, in place of EventBusName, in the account and Region of the
	// stack. Its policy is changed only if ProtectBus is true. Nil: a bus is created.
	Bus awsevents.IEventBus
	// AlarmTopic is an existing topic that every alarm notifies. Nil: a topic is created.
	AlarmTopic awssns.ITopic

	// Authentication is "signature", "mtls" (a client certificate) or "both"; the last two need
	// DomainName and Truststore. Default: signature.
	Authentication Authentication `context:"authentication"`
	// DomainName is the domain name of the webhook URL, served by API Gateway; none: a function URL is
	// used.
	DomainName string `context:"domainName"`
	// Certificate is the server certificate of DomainName in ACM; none: one is requested in HostedZone.
	Certificate awscertificatemanager.ICertificate `context:"certificateArn"`
	// OwnershipCertificate is a public ACM certificate of DomainName, for client certificates with a
	// server certificate that was imported or issued by a private CA.
	OwnershipCertificate awscertificatemanager.ICertificate `context:"ownershipCertificateArn"`
	// HostedZone is the public zone for the records of DomainName; none: you create them.
	HostedZone awsroute53.IHostedZone `context:"hostedZoneId"`
	// ThrottleRate is how many requests a second API Gateway forwards on average, and up to twice as
	// many at once. Default: 100.
	ThrottleRate int `context:"throttleRate"`
	// AllowedSources are the networks (CIDR, IPv4 or IPv6) that webhooks can come from; others are answered
	// 403. It is no authentication: everybody behind such an address passes, and addresses of senders
	// change; none: every address.
	AllowedSources []string `context:"allowedSources"`
	// Truststore is the path of a PEM file with the operator's CAs, up to the roots.
	Truststore string `context:"truststore"`
	// ClientCertPins are the keys that client certificates can have: SHA-256 of the subject public key
	// info in hexadecimal; none: every key.
	ClientCertPins []string `context:"clientCertPins"`
	// ClientCertSubjects are the DNS names, or the subjects exactly as `payhook certificates` shows
	// them, that client certificates can have; with ClientCertPins, both must match; none: every subject.
	ClientCertSubjects []string `context:"clientCertSubjects"`
	// RevokedKeys are the keys that no certificate of a chain can have, in the form of ClientCertPins.
	// No revocation list is read.
	RevokedKeys []string `context:"revokedKeys"`

	// SignatureHeader is the header of the signature; SVC stands for a brand. Default: X-SVC-Signature.
	SignatureHeader string `context:"signatureHeader"`
	// TimestampCarrier is the carrier of the timestamp: header:NAME or query:NAME. Default:
	// header:X-SVC-Timestamp.
	TimestampCarrier string `context:"timestampCarrier"`
	// KeyIDCarrier is the carrier of the key id: header:NAME, query:NAME, or static:UUID for a service
	// that does not send it. Default: header:X-SVC-Key-Id.
	KeyIDCarrier string `context:"keyIdCarrier"`
	// TimestampFormat is "rfc3339", "unix-seconds", "unix-milliseconds", or "auto" for any of them.
	// Default: auto.
	TimestampFormat TimestampFormat `context:"timestampFormat"`
	// TimestampTolerance is the accepted age of a webhook, in both directions; with Off, only the ledger
	// detects repeated ones. Default: 5m.
	TimestampTolerance time.Duration `context:"timestampTolerance"`
	// HTTPMethod is the method of a webhook: POST, PUT or PATCH; others are answered 405. Default: POST.
	HTTPMethod string `context:"httpMethod"`
	// SuccessStatus is the status of the answer to an accepted webhook, 200 to 299. Default: 200.
	SuccessStatus int `context:"successStatus"`
	// MaxPayloadBytes is the size of the largest accepted payload; 3112959 bytes of JSON always fit into
	// an invocation. Default: 6291456.
	MaxPayloadBytes int `context:"maxPayloadBytes"`
	// CaptureRejected is how long after a deployment rejected webhooks are stored, at most 50 an hour:
	// 1m to 7d, or Off. Default: off.
	CaptureRejected time.Duration `context:"captureRejected"`

	// KeyExponents are the RSA exponents that a key can have. Default: 65537.
	KeyExponents []int `context:"keyExponents"`
	// KeyFreshness is how long a key is used before it is fetched again. Default: 1h.
	KeyFreshness time.Duration `context:"keyFreshness"`
	// KeyMaxAge is the maximum age of a key, also if it cannot be fetched again. Default: 24h.
	KeyMaxAge time.Duration `context:"keyMaxAge"`
	// KeyUnknownGrace is how long the service must report a cached key as unknown before it is removed.
	// Default: 5m.
	KeyUnknownGrace time.Duration `context:"keyUnknownGrace"`
	// UnknownKeyTTL is how long a key id is cached as unknown. Default: 1m.
	UnknownKeyTTL time.Duration `context:"unknownKeyTtl"`
	// KeyMissBudget is the number of lookups a minute for keys that are not cached; then as many again
	// for senders of authentic webhooks of the last week; others are answered 503. Default: 60.
	KeyMissBudget int `context:"keyMissBudget"`
	// KeysAuth is whether fetching a key needs the access token: "none" or "bearer". Default: none.
	KeysAuth KeysAuth `context:"keysAuth"`
	// Scopes are the scopes to ask a token for; none: the parameter is not sent.
	Scopes []string `context:"scopes"`
	// CredentialEncoding is how client id and secret are encoded in HTTP Basic: "literal" (RFC 7617) or
	// "form" (RFC 6749, section 2.3.1). Default: literal.
	CredentialEncoding CredentialEncoding `context:"credentialEncoding"`

	// DeduplicationWindow is how long an eventId is remembered. Default: 30d.
	DeduplicationWindow time.Duration `context:"deduplicationWindow"`
	// EventSource is the source of every event. Default: payhook.
	EventSource string `context:"eventSource"`
	// EventBusName is the name of the bus that is created; none: that of the deployment, in lower case.
	// Another name replaces the bus.
	EventBusName string `context:"eventBusName"`
	// ClaimCheckBytes is the size of the largest event that is sent whole, up to 408576 and less than
	// the limit of every target. Default: 200000.
	ClaimCheckBytes int `context:"claimCheckBytes"`
	// ClaimRetention is how long larger events are kept in S3: whole days, or Never to delete them.
	// Default: 365d.
	ClaimRetention time.Duration `context:"claimRetention"`
	// ParkedRetention is how long what is parked is kept in S3: whole days, or Never to delete it.
	// Default: never.
	ParkedRetention time.Duration `context:"parkedRetention"`
	// ArchiveRetention is how long an archive keeps each published event: whole days, or Off. Default:
	// 30d.
	ArchiveRetention time.Duration `context:"archiveRetention"`

	// Evidence is how long a record of each accepted delivery, with its signature, is locked and kept in
	// S3: whole days, or Off. Default: off.
	Evidence time.Duration `context:"evidence"`
	// EvidenceLock is who can delete such records earlier: "governance" (who has the permission) or
	// "compliance" (nobody). Default: governance.
	EvidenceLock EvidenceLock `context:"evidenceLock"`

	// WebhookTimeout is the timeout of the webhook function, in whole seconds. Default: 30s.
	WebhookTimeout time.Duration `context:"webhookTimeout"`
	// WebhookConcurrency is the reserved concurrency of the webhook function; none: nothing is reserved.
	WebhookConcurrency int `context:"webhookConcurrency"`
	// LogRetention is how long logs are kept, in days that CloudWatch Logs accepts. Default: 90.
	LogRetention awslogs.RetentionDays `context:"logRetentionDays"`
	// AlarmEmail is an address that every alarm notifies, after its owner has confirmed it.
	AlarmEmail string `context:"alarmEmail"`
	// AlarmRefused is the number of 4xx answers within 15 minutes that raises an alarm: more
	// than other senders cause. Default: 10.
	AlarmRefused int `context:"alarmRefused"`
	// AlarmSilence is how long no webhook must be accepted before an alarm is raised: whole hours up to
	// 7d, longer than the longest pause of the service, or Off. Default: off.
	AlarmSilence time.Duration `context:"alarmSilence"`
	// Deployment is "all-at-once", or "canary" for a tenth of the webhooks during 5 minutes, with
	// rollback if an alarm is raised. Default: all-at-once.
	Deployment DeploymentStrategy `context:"deployment"`

	// LedgerTable is the name of an existing ledger; none: one is created.
	LedgerTable string `context:"ledgerTable"`
	// ClaimBucket is the name of an existing bucket for large events; none: one is created.
	ClaimBucket string `context:"claimBucket"`
	// ParkingBucket is the name of an existing bucket for what is parked; none: one is created.
	ParkingBucket string `context:"parkingBucket"`
	// ProtectBus is whether a policy of the bus denies PutEvents to others than the two functions that
	// publish; nil is false for a bus of Bus. Default: true.
	ProtectBus *bool `context:"protectBus"`
	// Encryption is whose keys encrypt what is stored: "aws", or "cmk" for a key that is created; in the
	// context also the ARN of a key. Default: aws.
	Encryption Encryption `context:"encryption"`
	// EncryptionKey is an existing key, not an alias, in the account and Region of the stack, in place of
	// Encryption.
	EncryptionKey awskms.IKey
	// FurtherEncryptionKeys are the ARNs of other keys that the functions can use, such as those of
	// LedgerTable, ClaimBucket and ParkingBucket; "aws" if these have none.
	FurtherEncryptionKeys []string `context:"furtherEncryptionKeys"`
	// Tracing is whether Lambda sends traces to X-Ray, and events that the webhook function publishes
	// carry its trace to consumers. Default: false.
	Tracing bool `context:"tracing"`

	context map[string]string // of PropsFromContext: the texts of all context keys that are not the CDK's
}

// Durations with a meaning, for the fields that name them.
const (
	Off   time.Duration = -1
	Never time.Duration = -2
)

// Authentication is a way in which webhooks are authenticated.
type Authentication string

// The ways in which webhooks are authenticated.
const (
	BySignature Authentication = settings.BySignature
	ByMTLS      Authentication = settings.ByMTLS
	ByBoth      Authentication = settings.ByBoth
)

// TimestampFormat is a format of the signed timestamp.
type TimestampFormat string

// The formats of timestamps.
const (
	AutoFormat       TimestampFormat = "auto"
	RFC3339          TimestampFormat = "rfc3339"
	UnixSeconds      TimestampFormat = "unix-seconds"
	UnixMilliseconds TimestampFormat = "unix-milliseconds"
)

// KeysAuth is what fetching a key needs.
type KeysAuth string

// What fetching a key needs.
const (
	NoToken     KeysAuth = "none"
	BearerToken KeysAuth = "bearer"
)

// CredentialEncoding is an encoding of client id and secret.
type CredentialEncoding string

// The encodings of client id and secret.
const (
	LiteralCredentials CredentialEncoding = "literal"
	FormCredentials    CredentialEncoding = "form"
)

// EvidenceLock is who can delete evidence before its retention ends.
type EvidenceLock string

// The locks of evidence.
const (
	Governance EvidenceLock = settings.Governance
	Compliance EvidenceLock = settings.Compliance
)

// DeploymentStrategy is a way in which a new version of the webhook function is deployed.
type DeploymentStrategy string

// The ways of deployment.
const (
	AllAtOnce DeploymentStrategy = settings.AllAtOnce
	Canary    DeploymentStrategy = settings.Canary
)

// Encryption is whose keys encrypt what is stored.
type Encryption string

// The keys that are not given as EncryptionKey.
const (
	EncryptionAWS Encryption = settings.EncryptionAWS
	EncryptionCMK Encryption = settings.EncryptionCMK
)
