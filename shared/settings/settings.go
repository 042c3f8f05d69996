// Package settings defines the settings of Payhook: the fields of payhook.Props, the keys of the CDK context and of
// files, the environment variables of the functions, defaults and limits. It also has the other names that the
// CDK app and the functions share: those of metrics, outputs and attributes of the tables.
//
// Each setting is declared once, as a field with tags:
//
//	group    the title of this field and of those that follow
//	key      the key in files, and in the CDK context
//	default  its text if it is not set; none: the setting can be without a value
//	limits   the least, the most, and the word for Off or Never; a duration is whole units of the least
//	of       the texts that it can have
//	form     the form of the text, or of each element of a list (see forms.go)
//	required whether it must be set
//	by       the programs that read it: webhook, redrive and token for the functions, and verification
//	         for what decides whether the signature of a webhook verifies, which webhook and
//	         redrive read as well
//
// The CDK app and the functions parse it with the same code. So the functions accept what the app accepted, and
// synthesis rejects every invalid value. All invalid and missing settings are reported in one error. What must be true
// of several settings together is in rules.go.
package settings

import (
	"strings"
	"time"
)

// Settings are the settings of a stack. The zero value of a field is its default. [Settings.Parse] returns them with
// these defaults, and with what its methods return: the name of the stack and its certificates.
//
// The comment of a field and its tags are its row in infra/README.md. § is a section of the
// interface that leaves the point open.
type Settings struct {
	// BaseURL is the base URL of the APIs, before /v1/keys/{keyId}.
	BaseURL string `group:"Required" key:"baseUrl" required:"true" form:"url" by:"verify"`
	// AuthURL is the base URL of the token endpoint, before /as/token.oauth2; not with TokenStore none.
	AuthURL string `key:"authUrl" required:"true" form:"url" by:"token"`
	// TokenManagerID is the access_token_manager_id; not with TokenStore none.
	TokenManagerID string `key:"tokenManagerId" required:"true" form:"text" by:"token"`

	// SignatureHeader is the header of the signature (§4.3).
	SignatureHeader string `group:"Interface" key:"signatureHeader" default:"X-SVC-Signature" form:"header" by:"verify"`
	// TimestampLocation is where the timestamp is (§4.3): header:NAME or query:NAME.
	TimestampLocation string `key:"timestampLocation" default:"header:X-SVC-Timestamp" form:"location" by:"verify"`
	// KeyIDLocation is the same for the key id (§4.3), or static:UUID if it is not sent.
	KeyIDLocation string `key:"keyIdLocation" default:"header:X-SVC-Key-Id" form:"key id" by:"verify"`
	// SuccessStatus is the status of the answer to an accepted webhook (§7), 200 to 299.
	SuccessStatus int `key:"successStatus" default:"200" form:"status" by:"webhook"`
	// KeyEndpointAuth is bearer if fetching a key needs the access token (§4.2), otherwise none.
	KeyEndpointAuth string `key:"keyEndpointAuth" default:"none" of:"none bearer" by:"verify"`
	// Scopes are the scopes of a token, separated by spaces (§5.1).
	Scopes string `key:"scopes" form:"scopes" by:"token"`
	// CredentialEncoding is how HTTP Basic has the credentials (§4.1): literal (RFC 7617) or form (RFC 6749).
	CredentialEncoding string `key:"credentialEncoding" default:"literal" of:"literal form" by:"token"`

	// TokenStore is where the token is kept (§8): secret; parameter, for lifetimes under 20 minutes; or none.
	TokenStore string `key:"tokenStore" default:"secret" of:"secret parameter none"`

	// DomainName is the domain name of the webhook URL, served by API Gateway; none: a function URL.
	DomainName string `group:"Security" key:"domainName" form:"domain" by:"webhook"`
	// Authentication is signature, mtls (a client certificate) or both (§5.2); the last two need DomainName and
	// Truststore.
	Authentication string `key:"authentication" default:"signature" of:"signature mtls both" by:"verify"`
	// CertificateARN is the ACM certificate of DomainName; none: one is requested in HostedZoneID.
	CertificateARN string `key:"certificateArn" form:"certificate"`
	// HostedZoneID is the zone for the records of DomainName; none: you create them.
	HostedZoneID string `key:"hostedZoneId" form:"zone"`
	// Truststore is a PEM file with the CAs of client certificates, up to the roots (§5.3).
	Truststore string `key:"truststore"`
	// ClientCertPins are the accepted keys of client certificates (§5.3): SHA-256 of the subject public key info, in
	// hexadecimal.
	ClientCertPins []string `key:"clientCertPins" form:"pin" by:"webhook redrive"`
	// ClientCertSubjects are their accepted DNS names (§5.3), or subjects as the lines of webhooks show them; with
	// ClientCertPins, both must match.
	ClientCertSubjects []string `key:"clientCertSubjects" form:"subject" by:"webhook redrive"`
	// RevokedKeys are rejected: a signing key (§5.4) by its id or JWK thumbprint, that of a client certificate or CA
	// (§5.3) as in ClientCertPins. No revocation list is read.
	RevokedKeys []string `key:"revokedKeys" form:"revocation" by:"webhook redrive"`
	// ServiceCA is a PEM file with private CAs of BaseURL and AuthURL, trusted only there. A machine that runs `payhook
	// explain` must trust them too.
	ServiceCA string `key:"serviceCA"`
	// AllowedNetworks are the networks (CIDR) that webhooks can come from, which is no authentication.
	AllowedNetworks []string `key:"allowedNetworks" form:"network" by:"webhook redrive"`
	// SubnetIDs are subnets for the functions.
	SubnetIDs []string `key:"subnetIds" form:"subnet"`
	// SecurityGroupIDs are the security groups of the functions in SubnetIDs.
	SecurityGroupIDs []string `key:"securityGroupIds" form:"security group"`
	// TimestampTolerance is how old or early a webhook may be (§5.4); off: only the ledger detects repeated ones.
	TimestampTolerance time.Duration `key:"timestampTolerance" default:"5m" limits:"1s 24h off" by:"verify"`
	// KeyMaxAge is how long a key is used that cannot be fetched again (§5.4).
	KeyMaxAge time.Duration `key:"keyMaxAge" default:"24h" limits:"1h 90d" by:"webhook redrive"`
	// Encryption is whose keys encrypt: aws, cmk (a key is created), or the ARN of a key, no alias.
	Encryption string `key:"encryption" default:"aws" form:"encryption"`
	// UseFIPS is whether the functions use Go's FIPS 140-3 module and AWS's FIPS endpoints, in Regions that have them.
	UseFIPS *bool `key:"fips" default:"false"`
	// ProtectBus is whether the bus denies PutEvents to all but the functions; false by default for Props.Bus.
	ProtectBus *bool `key:"protectBus" default:"true"`

	// ParkedRetention is how long S3 keeps what is parked.
	ParkedRetention time.Duration `group:"Retention" key:"parkedRetention" default:"never" limits:"15d 36500d never"`
	// DeduplicationWindow is how long an eventId is remembered (§6).
	DeduplicationWindow time.Duration `key:"deduplicationWindow" default:"30d" limits:"60s 3650d" by:"webhook redrive"`
	// LargeEventRetention is how long S3 keeps events of more than 200000 bytes.
	LargeEventRetention time.Duration `key:"largeEventRetention" default:"365d" limits:"15d 36500d never" by:"redrive"`
	// ArchiveRetention is how long an archive keeps each published event.
	ArchiveRetention time.Duration `key:"archiveRetention" default:"30d" limits:"1d 36500d off"`
	// Evidence is how long S3 locks a proof of each accepted delivery, such as 7y, or 7y compliance.
	Evidence string `key:"evidence" default:"off" form:"evidence" by:"webhook redrive"`
	// LogRetentionDays is how long logs are kept, as CloudWatch Logs accepts it.
	LogRetentionDays int `key:"logRetentionDays" default:"90" form:"log days"`

	// AlarmEmail is an address for every alarm, after its owner has confirmed it.
	AlarmEmail string `group:"Alarms and limits" key:"alarmEmail" form:"email"`
	// AlarmSilence is the time without an accepted webhook that raises an alarm, longer than the service's pauses.
	AlarmSilence time.Duration `key:"alarmSilence" default:"off" limits:"1h 7d off"`
	// WebhookTimeout is the timeout of the webhook function.
	WebhookTimeout time.Duration `key:"webhookTimeout" default:"30s" limits:"4s 15m"`
	// WebhookConcurrency is the reserved concurrency of the webhook function.
	WebhookConcurrency int `key:"webhookConcurrency" form:"concurrency"`

	// StoreRejected is how long after a deployment rejected webhooks are stored.
	StoreRejected time.Duration `group:"Rarely needed" key:"storeRejected" default:"off" limits:"1m 7d off"`
	// EventBusName is the name of the bus that is created; none: the stack's name. A change replaces the bus.
	EventBusName string `key:"eventBusName" form:"bus"`
	// LedgerTable is an existing ledger.
	LedgerTable string `key:"ledgerTable" form:"table"`
	// LargeEventBucket is an existing bucket for large events.
	LargeEventBucket string `key:"largeEventBucket" form:"bucket"`
	// ParkingBucket is an existing bucket for what is parked.
	ParkingBucket string `key:"parkingBucket" form:"bucket"`
	// stackName is the name of the app's stack, another one for each environment in an account and Region.
	stackName string `key:"stackName" default:"Payhook" form:"stack"`

	given map[string]text   // by the keys, what was added
	local bool              // after Parse
	files map[string][]byte // after Parse: the certificates of Truststore and ServiceCA
}

// Off and Never are the values of durations that mean "switched off" and "without end", where the limits have that
// word.
const (
	Off   time.Duration = -1
	Never time.Duration = -2
)

// Values of settings.
const (
	BySignature = "signature" // authentication (§5.2)
	ByMTLS      = "mtls"
	ByBoth      = "both"

	BearerToken = "bearer" // keyEndpointAuth

	InParameter = "parameter" // tokenStore
	NoToken     = "none"

	FormEncoded = "form" // credentialEncoding

	EncryptionAWS = "aws" // encryption: keys of AWS
	EncryptionCMK = "cmk" // a customer managed key that the stack creates
)

// EvidenceLock returns for how many days a record is locked, 0 if none is stored, and whether in compliance mode. The
// days are those of the bucket's lock and of its rule that deletes records, and are in the names of records.
func (s Settings) EvidenceLock() (days int, compliance bool) {
	text, mode, _ := strings.Cut(s.Evidence, " ")
	retention, _ := ParseDuration(text)
	return int(retention / day), mode == "compliance"
}

// UsesToken reports whether an access token is kept.
func (s Settings) UsesToken() bool { return s.TokenStore != NoToken }

// UsesSignature reports whether a webhook needs a signature.
func (s Settings) UsesSignature() bool { return s.Authentication != ByMTLS }

// UsesMTLS reports whether a webhook needs a client certificate.
func (s Settings) UsesMTLS() bool { return s.Authentication != BySignature }

// Local reports whether the stack is for an emulator on this machine.
func (s Settings) Local() bool { return s.local }

// Files returns the certificates that the functions have as files in their packages, in PEM by the names of the files:
// [TruststoreFile] only if UsesMTLS, and [ServiceCAFile] only with ServiceCA.
func (s Settings) Files() map[string][]byte { return s.files }

// LocalKey is the context key of a local run, whose value is then true: a stack on an
// emulator on this machine, built for its architecture and without deletion protection.
const LocalKey = "payhook:local"

// LocalAccount is the account of the emulator of a local run. AWS has no such account.
const LocalAccount = "000000000000"
