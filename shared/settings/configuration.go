package settings

import (
	"net/netip"
	"net/url"
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/signature"
)

// Webhook is the configuration of the webhook function.
type Webhook struct {
	KeysTable string

	AllowedSources []netip.Prefix // none: every source address

	Authentication string // BySignature, ByMTLS or ByBoth
	MTLS           *MTLS  // nil: no client certificate is required

	BaseURL         *url.URL
	Scheme          signature.Scheme
	Window          *signature.Window // nil: the check is disabled
	HTTPMethod      string
	SuccessStatus   int
	MaxPayloadBytes int
	// CaptureUntil is the time until which rejected webhooks are stored; zero: none are.
	CaptureUntil time.Time
	Proof        map[string]string // the texts of ProofSettings by their keys

	KeyExponents    []int
	KeyFreshness    time.Duration
	KeyMaxAge       time.Duration
	KeyUnknownGrace time.Duration
	UnknownKeyTTL   time.Duration
	KeyMissBudget   int
	KeysBearer      bool   // fetching a key needs the access token
	TokenSecret     string // name or ARN of the secret of the token; "" unless KeysBearer

	Tracing bool // events continue the trace of the invocation; only in the function

	// EvidenceBucket takes a record of each accepted delivery; "" for none. Only in the function.
	EvidenceBucket string

	Publishing
	Timeout time.Duration // only in a deployment
}

// UsesSignature reports whether a webhook needs a signature.
func (w Webhook) UsesSignature() bool { return w.Authentication != ByMTLS }

// UsesMTLS reports whether a webhook needs a client certificate.
func (w Webhook) UsesMTLS() bool { return w.Authentication != BySignature }

// Publishing is the configuration of both functions that publish.
type Publishing struct {
	LedgerTable         string
	ClaimBucket         string
	ParkingBucket       string
	ClaimCheckBytes     int
	EventBusName        string
	EventSource         string
	MaxEntryBytes       int
	DeduplicationWindow time.Duration
	RedriveGrace        time.Duration
}

// MTLS is the configuration of client certificates, for a function.
type MTLS struct {
	DomainName string // only for the webhook function
	APIID      string // only for the webhook function
	Truststore *clientcert.Truststore
	Policy     clientcert.Policy
}

// Redrive is the configuration of the redrive function.
type Redrive struct {
	Authentication string
	Trust          *MTLS  // nil: no client certificate is required
	KeysTable      string // "" unless Trust
	KeyExponents   []int  // allowed for the key of a parked delivery
	Attempts       int    // how often an event is tried before it is parked
	Publishing
}

// Token is the configuration of the token function.
type Token struct {
	TokenSecret       string // name or ARN
	CredentialsSecret string // name or ARN

	AuthURL        *url.URL
	TokenManagerID string
	Scopes         []string // none: the parameter is not sent
	FormEncoded    bool     // client id and secret are form-encoded for HTTP Basic
}

// Deployment is the configuration of the constructs. [Deployment.Value] returns the
// texts of the settings for the functions' environments.
type Deployment struct {
	Webhook        Webhook
	Token          Token
	Endpoint       Endpoint
	RedriveTimeout time.Duration
	// RedriveAttempts is how often an event is tried before it is parked.
	RedriveAttempts int
	// CaptureRejected is how long after the deployment rejected webhooks are stored; 0:
	// none are.
	CaptureRejected time.Duration
	Concurrency     int    // 0: not reserved
	LogRetention    int    // days
	AlarmEmail      string // "": no subscription
	// AlarmRefused is the number of webhooks answered 4xx within 15 minutes
	// that raises an alarm.
	AlarmRefused int
	// AlarmSilence is the time without an accepted webhook that raises an alarm; 0: none does.
	AlarmSilence time.Duration
	// StackName is the name of the deployment: that of the stack, if the deployment is alone in
	// it.
	StackName string
	Canary    bool // CodeDeploy shifts the webhook function's alias

	// LedgerTable, ClaimBucket and ParkingBucket name existing resources; "" if the
	// stack creates the resource.
	LedgerTable, ClaimBucket, ParkingBucket string

	ClaimRetention, ParkedRetention int // days; 0: no expiry
	ArchiveRetention                int // days; 0: no archive

	EvidenceRetention  int  // days; 0: no evidence is kept
	EvidenceCompliance bool // nobody can delete evidence before its retention ends

	ProtectBus bool
	Encryption string // EncryptionAWS, EncryptionCMK, or the ARN of a key
	// FurtherEncryptionKeys are the ARNs of other keys that the functions can use.
	FurtherEncryptionKeys []string
	Tracing               bool

	Local bool

	window signature.Window // Tolerance 0: the check is disabled
	policy clientcert.Policy
	values map[string]string
}

// Value returns the text of a setting, which is its default if it is not set.
func (d Deployment) Value(s *Setting) string { return d.values[s.Key] }

// Endpoint is the configuration of the endpoint, for the deployment.
type Endpoint struct {
	DomainName              string // "": a function URL
	CertificateARN          string // "": one is requested
	OwnershipCertificateARN string
	HostedZoneID            string
	ThrottleRate            int // requests a second
	ThrottleBurst           int // requests
	Truststore              []byte
}

// SafePayloadBytes is the size up to which a payload always reaches the function,
// provided that it is JSON in UTF-8 and that Lambda writes it as RFC 8259
// requires. Lambda escapes a text body, which turns one byte into two at most
// (quotation marks, backslashes, line breaks, tabs; JSON allows no other control
// character). It encodes other bodies in base64, four bytes for three, which needs
// less space. A larger payload can fit.
//
// The JSON of a synchronous invocation must be smaller than 6 MB of 1,048,576 bytes each
// (AWS, "Lambda quotas", and the message of a RequestTooLargeException). 64 KB are reserved
// for headers, cookies, query and request context.
const SafePayloadBytes = (6<<20 - 1 - 64<<10) / 2

// KeyTimeout is the timeout of one fetch of a key. It leaves time to record the events.
const KeyTimeout = 3 * time.Second

// WebhookMemory is the memory of the webhook function in MiB. Lambda allocates CPU in
// proportion.
const WebhookMemory = 512

// MaxLedgerEventBytes is the size of the largest event that fits into an item of the
// ledger. An item has at most 400 KB of 1,024 bytes each, including attribute names
// (AWS, "Constraints in Amazon DynamoDB"). The other attributes have less than 1 KB.
const MaxLedgerEventBytes = 400<<10 - 1<<10

// TokenTimeout is the timeout of one run of the token function: shorter than the minute
// between two runs.
const TokenTimeout = 55 * time.Second

// TokenInterval is the time between two scheduled runs of the token function.
//
// A refresh leaves at least three runs before the token expires, from a lifetime
// of 5 minutes on and with a refresh when 66 % of the lifetime is left: 66 % of 300 s are
// 198 s, and 198/60 = 3.3. From 6 minutes on, it leaves at least 4 minutes.
//
// Each new token creates a version of the secret, and a secret can have 100 versions
// from the last 24 hours (AWS, "AWS Secrets Manager quotas" in the Secrets Manager
// User Guide). Tokens are therefore stored at most every 16 minutes (24 h / 90) if
// this leaves 4 minutes before expiry, which is so for a lifetime of 20 minutes or
// more. Package token describes shorter lifetimes.
const TokenInterval = time.Minute
