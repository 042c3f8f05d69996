// Package settings defines the settings of Payhook: the context keys of the CDK
// app, the environment variables of the functions, defaults and limits.
//
// The CDK app and the functions parse a setting with the same code. So the functions
// accept what the deployment accepted, and synthesis rejects every invalid value. All
// invalid and missing settings are reported in one error.
package settings

import (
	"errors"
	"fmt"
	"net/http"
	"net/mail"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"payhook.example/shared/names"
	"payhook.example/shared/signature"
)

// Setting is one option of a deployment.
type Setting struct {
	Key         string // CDK context key
	Default     string // "" for none
	Example     string
	Section     string // the section of the interface that leaves this open
	Description string
	// Required settings have no default and must be given.
	Required bool
}

// Env returns the name of the environment variable that carries the setting to
// a function: PAYHOOK_BASE_URL for baseUrl.
func (s *Setting) Env() string {
	name := []byte("PAYHOOK_")
	for _, c := range []byte(s.Key) {
		if 'A' <= c && c <= 'Z' {
			name = append(name, '_')
		}
		name = append(name, c)
	}
	return strings.ToUpper(string(name))
}

// needed reports whether a function needs the setting's variable. EventBusName has
// no default in a function, because the function could publish on the bus of another
// stack.
func (s *Setting) needed() bool { return s.Required || s == EventBusName }

// The settings, in the order in which infra/README.md lists them.
var (
	BaseURL = &Setting{Key: "baseUrl", Required: true, Example: "https://api.payments.example",
		Description: "the base URL of the service's APIs; keys are fetched from {baseUrl}/v1/keys/{keyId}"}
	AuthURL = &Setting{Key: "authUrl", Required: true, Example: "https://auth.payments.example",
		Description: "the base URL of the token endpoint {authUrl}/as/token.oauth2"}
	TokenManagerID = &Setting{Key: "tokenManagerId", Required: true, Example: "manager-1",
		Description: "access_token_manager_id, assigned by the service's operator"}

	SignatureHeader = &Setting{Key: "signatureHeader", Default: "X-SVC-Signature", Example: "X-SVC-Signature",
		Section:     "4.3",
		Description: "the header of the signature; SVC represents a brand"}
	TimestampCarrier = &Setting{Key: "timestampCarrier", Default: "header:X-SVC-Timestamp",
		Example: "header:X-SVC-Timestamp", Section: "4.3",
		Description: "the carrier of the signed timestamp: header:NAME or query:NAME"}
	KeyIDCarrier = &Setting{Key: "keyIdCarrier", Default: "header:X-SVC-Key-Id", Example: "header:X-SVC-Key-Id",
		Section: "4.3",
		Description: "the carrier of the key id: header:NAME, query:NAME, or static:UUID for a service that does not " +
			"send it"}
	TimestampFormat = &Setting{Key: "timestampFormat", Default: "auto", Example: "unix-seconds", Section: "4.3",
		Description: "the format of the timestamp: rfc3339, unix-seconds, unix-milliseconds, or auto for any of them"}
	TimestampTolerance = &Setting{Key: "timestampTolerance", Default: "5m", Example: "2m", Section: "5.4",
		Description: "the accepted difference between the timestamp and the current time, in both directions; off " +
			"disables the check"}
	HTTPMethod = &Setting{Key: "httpMethod", Default: http.MethodPost, Example: "PUT", Section: "4.3",
		Description: "the method of a webhook; others are answered 405"}
	SuccessStatus = &Setting{Key: "successStatus", Default: "200", Example: "202", Section: "7",
		Description: "the status of the answer to an accepted webhook, 200 to 299"}
	MaxPayloadBytes = &Setting{Key: "maxPayloadBytes", Default: "6291456", Example: "1048576", Section: "8",
		Description: "the largest payload that the function accepts, in bytes; AWS answers 413 to a request that " +
			"does not fit into an invocation of Lambda, and 3112959 bytes of JSON always fit"}

	CaptureRejected = &Setting{Key: "captureRejected", Default: Off, Example: "1h",
		Description: "how long after the deployment rejected webhooks are stored, at most 50 an hour, so that " +
			"payhook explain --last can name the reason; at most 7d, or off"}

	KeyExponents = &Setting{Key: "keyExponents", Default: "65537", Example: "3,65537", Section: "2.6",
		Description: "the RSA public exponents that a key can have"}
	KeyFreshness = &Setting{Key: "keyFreshness", Default: "1h", Example: "15m", Section: "5.4",
		Description: "how long a key is used before it is fetched again"}
	KeyMaxAge = &Setting{Key: "keyMaxAge", Default: "24h", Example: "4h", Section: "5.4",
		Description: "the maximum age of a key, also if it cannot be fetched again"}
	KeyUnknownGrace = &Setting{Key: "keyUnknownGrace", Default: "5m", Example: "15m", Section: "7",
		Description: "how long the service must report a cached key as unknown before the key is removed; until then " +
			"the key is used"}
	UnknownKeyTTL = &Setting{Key: "unknownKeyTtl", Default: "1m", Example: "5m", Section: "4.2",
		Description: "how long a key id that the service does not know is cached as unknown"}
	KeyMissBudget = &Setting{Key: "keyMissBudget", Default: "60", Example: "600", Section: "8",
		Description: "the maximum number of requests per minute for keys that are not cached, over all functions " +
			"together; when it is used up, as many again for source addresses that have sent an authentic webhook " +
			"within a week"}

	DeduplicationWindow = &Setting{Key: "deduplicationWindow", Default: "30d", Example: "7d", Section: "6",
		Description: "how long an eventId is remembered"}
	EventSource = &Setting{Key: "eventSource", Default: "payhook", Example: "payments.example",
		Description: "the source of every event on the bus"}
	EventBusName = &Setting{Key: "eventBusName", Example: "payments",
		Description: "the name of the event bus; by default the name of the stack in lower case. Another name for a " +
			"stack that exists replaces the bus"}
	ClaimCheckBytes = &Setting{Key: "claimCheckBytes", Default: "200000", Example: "100000",
		Description: "the largest event on the bus, in bytes; a larger one is stored in S3 and the bus carries a " +
			"reference; at most 408576, and less than the limit of every target"}
	ClaimRetention = &Setting{Key: "claimRetention", Default: "365d", Example: "3653d",
		Description: "how long a large event is kept in S3, in whole days, or never to keep it without end; after " +
			"that time its reference cannot be resolved; an expired event can be restored for 30 days"}
	ParkedRetention = &Setting{Key: "parkedRetention", Default: "never", Example: "3653d",
		Description: "how long parked deliveries and events are kept in S3, in whole days, or never to keep them " +
			"without end; they were accepted but not published, so a person should decide about them; expired or " +
			"deleted ones can be restored for 30 days"}
	ArchiveRetention = &Setting{Key: "archiveRetention", Default: "30d", Example: "90d",
		Description: "how long an archive of EventBridge keeps each published event, in whole days, so that payhook " +
			"replay can deliver it again; off for no archive"}
	RedriveAttempts = &Setting{Key: "redriveAttempts", Default: "20", Example: "50",
		Description: "how often redrive tries to publish an event, with pauses that grow from a minute to an hour, " +
			"before it is parked"}

	WebhookTimeout = &Setting{Key: "webhookTimeout", Default: "30s", Example: "10s",
		Description: "the timeout of the webhook function, in whole seconds"}
	RedriveTimeout = &Setting{Key: "redriveTimeout", Default: "55s", Example: "5m",
		Description: "the timeout of the redrive function, in whole seconds"}
	RedriveGrace = &Setting{Key: "redriveGrace", Default: "30s", Example: "1m",
		Description: "how long redrive waits after the deadline of the function that processes an event; " +
			"more than the clocks of two functions can differ"}
	WebhookConcurrency = &Setting{Key: "webhookConcurrency", Example: "100",
		Description: "reserved concurrency of the webhook function; none if it is not set"}
	LogRetentionDays = &Setting{Key: "logRetentionDays", Default: "90", Example: "365",
		Description: "the retention of logs in days, one of the values of CloudWatch Logs"}
	AlarmEmail = &Setting{Key: "alarmEmail", Example: "payments-oncall@example.com",
		Description: "an e-mail address that is notified of every alarm, after its owner has confirmed the " +
			"subscription; add other subscribers to the topic in the output AlarmTopic"}
	AlarmUnauthenticated = &Setting{Key: "alarmUnauthenticated", Default: "10", Example: "100",
		Description: "the number of webhooks answered 401 within 15 minutes that raises an alarm: more than other " +
			"senders cause, and no more than the service sends in that time"}
	StackName = &Setting{Key: "stackName", Default: "Payhook", Example: "PayhookStaging",
		Description: "the name of the CloudFormation stack; one for each environment in an account and region"}
	DeploymentStrategy = &Setting{Key: "deployment", Default: AllAtOnce, Example: Canary,
		Description: "how a new version of the webhook function is deployed: all-at-once, or canary for a tenth of " +
			"the webhooks during 5 minutes, with rollback if an alarm is raised"}
	LedgerTable = &Setting{Key: "ledgerTable", Example: "Payhook-Ledger1A2B3C4D-EXAMPLE",
		Description: "the name of a ledger table that exists in this account and region, such as that of a deleted " +
			"stack; a new one is created if it is not set"}
	ClaimBucket = &Setting{Key: "claimBucket", Example: "payhook-claims1a2b3c4d-example",
		Description: "the name of a bucket for large events that exists in this account and region; a new one is " +
			"created if it is not set"}
	ParkingBucket = &Setting{Key: "parkingBucket", Example: "payhook-parking1a2b3c4d-example",
		Description: "the name of a bucket for parked deliveries that exists in this account and region; a new one " +
			"is created if it is not set"}
	Local = &Setting{Key: "local", Default: "false", Example: "true",
		Description: "true for an emulator on this machine: built for its architecture, without deletion protection"}
)

// invocationBytes is the limit of the JSON of a synchronous invocation, which must
// be smaller (AWS, "Lambda quotas"): 6 MB of 1,048,576 bytes each, as in the message
// of a RequestTooLargeException. A function URL puts the payload into this JSON.
const invocationBytes = 6 << 20

// envelopeBytes is reserved for the rest of the JSON of an invocation: headers,
// cookies, query and request context.
const envelopeBytes = 64 << 10

// SafePayloadBytes is the size up to which a payload always reaches the function,
// provided that it is JSON in UTF-8 and that Lambda writes it as RFC 8259
// requires. Lambda escapes a text body, which turns one byte into two at most
// (quotation marks, backslashes, line breaks, tabs; JSON allows no other control
// character). It encodes other bodies in base64, four bytes for three, which needs
// less space. A larger payload can fit.
const SafePayloadBytes = (invocationBytes - 1 - envelopeBytes) / 2

// All returns every setting, in the order in which infra/README.md lists them.
func All() []*Setting {
	return []*Setting{
		BaseURL, AuthURL, TokenManagerID, Authentication,
		DomainName, CertificateARN, OwnershipCertificateARN, HostedZoneID, ThrottleRate,
		Truststore, ClientCertPins, ClientCertSubjects, RevokedSerials,
		SignatureHeader, TimestampCarrier, KeyIDCarrier, TimestampFormat, TimestampTolerance,
		HTTPMethod, SuccessStatus, MaxPayloadBytes, CaptureRejected,
		KeyExponents, KeyFreshness, KeyMaxAge, KeyUnknownGrace, UnknownKeyTTL, KeyMissBudget, KeysAuth,
		Scopes, CredentialEncoding,
		DeduplicationWindow, EventSource, EventBusName, ClaimCheckBytes, ClaimRetention,
		ParkedRetention, ArchiveRetention,
		WebhookTimeout, WebhookConcurrency,
		LogRetentionDays, AlarmEmail, AlarmUnauthenticated, StackName, DeploymentStrategy,
		LedgerTable, ClaimBucket, ParkingBucket,
		ProtectBus, Encryption, FurtherEncryptionKeys, Tracing,
	}
}

// LocalSettings returns the settings of a local run, which make it faster. They are not for
// users: a stack without local=true rejects them.
func LocalSettings() []*Setting { return []*Setting{RedriveTimeout, RedriveGrace, RedriveAttempts} }

// The values of the setting deployment.
const (
	AllAtOnce = "all-at-once"
	Canary    = "canary"
)

// Webhook is the configuration of the webhook function.
type Webhook struct {
	KeysTable string

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

	Publishing
	Timeout time.Duration // of the function in the template; in its environment it is the default
}

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

// Redrive is the configuration of the redrive function.
type Redrive struct {
	Authentication string
	Trust          *MTLS  // nil: no client certificate is required
	KeysTable      string // "" unless Trust
	KeyExponents   []int  // allowed for the key of a parked delivery
	Attempts       int    // how often an event is tried before it is parked
	Publishing
}

// WebhookSettings returns the settings that the webhook function reads from its
// environment.
func WebhookSettings() []*Setting {
	return append(append([]*Setting{
		BaseURL, SignatureHeader, TimestampCarrier, KeyIDCarrier, TimestampFormat, TimestampTolerance,
		HTTPMethod, SuccessStatus, MaxPayloadBytes,
		KeyExponents, KeyFreshness, KeyMaxAge, KeyUnknownGrace, UnknownKeyTTL, KeyMissBudget, KeysAuth,
		DomainName,
	}, trustSettings()...), publishingSettings()...)
}

// RedriveSettings returns the settings that the redrive function reads from its
// environment.
func RedriveSettings() []*Setting {
	return append(append([]*Setting{RedriveAttempts, KeyExponents}, trustSettings()...),
		publishingSettings()...)
}

func publishingSettings() []*Setting {
	return []*Setting{EventBusName, EventSource, ClaimCheckBytes, DeduplicationWindow, RedriveGrace}
}

// ParseWebhook parses the environment of the webhook function.
func ParseWebhook(getenv func(string) string) (w Webhook, err error) {
	r := fromEnvironment(getenv)
	w = r.webhook()
	w.KeysTable = r.resource(names.KeysTableEnv)
	if w.UsesMTLS() {
		w.MTLS = r.mtls(packageFolder(getenv))
	}
	if w.KeysBearer {
		w.TokenSecret = r.resource(names.TokenSecretEnv)
	}
	if text := getenv(names.CaptureUntilEnv); text != "" {
		if w.CaptureUntil, err = time.Parse(time.RFC3339, text); err != nil {
			r.problems = append(r.problems, fmt.Errorf("%s: must be a time of RFC 3339", names.CaptureUntilEnv))
		}
	}
	w.Proof = map[string]string{}
	for _, s := range ProofSettings() {
		w.Proof[s.Key] = r.text(s)
	}
	return w, r.err()
}

// ParseRedrive parses the environment of the redrive function.
func ParseRedrive(getenv func(string) string) (Redrive, error) {
	r := fromEnvironment(getenv)
	s := Redrive{
		KeyExponents: r.exponents(),
		Attempts:     r.integer(RedriveAttempts, 1, 1000),
		Publishing:   r.publishing(),
	}
	if s.Authentication = r.authentication(); s.Authentication == ByMTLS || s.Authentication == ByBoth {
		s.Trust = r.trust(packageFolder(getenv))
		s.KeysTable = r.resource(names.KeysTableEnv)
	}
	return s, r.err()
}

// Deployment is the configuration of the CDK app. [Deployment.Value] returns the
// texts of the settings for the functions' environments.
type Deployment struct {
	Webhook        Webhook
	Endpoint       Endpoint
	RedriveTimeout time.Duration
	// RedriveAttempts is how often an event is tried before it is parked.
	RedriveAttempts int
	// CaptureRejected is how long after the deployment rejected webhooks are stored; 0:
	// none are.
	CaptureRejected time.Duration
	Token           Token
	Concurrency     int    // 0: not reserved
	LogRetention    int    // days
	AlarmEmail      string // "": no subscription
	// AlarmUnauthenticated is the number of webhooks answered 401 within 15 minutes
	// that raises an alarm.
	AlarmUnauthenticated int
	StackName            string
	Canary               bool // CodeDeploy shifts the webhook function's alias

	// LedgerTable, ClaimBucket and ParkingBucket name existing resources; "" if the
	// stack creates the resource.
	LedgerTable, ClaimBucket, ParkingBucket string

	ClaimRetention, ParkedRetention int // days; 0: no expiry
	ArchiveRetention                int // days; 0: no archive

	Protection

	Local bool

	values map[string]string
}

// Value returns the text of a setting, which is its default if it is not set.
func (d Deployment) Value(s *Setting) string { return d.values[s.Key] }

// textOf returns a function that returns the text of a setting in the CDK context, or
// its default.
func textOf(context func(key string) (string, bool)) func(*Setting) string {
	return func(s *Setting) string {
		if v, ok := context(s.Key); ok {
			return v
		}
		if s == EventBusName {
			stack, ok := context(StackName.Key)
			if !ok {
				stack = StackName.Default
			}
			return DefaultBusName(stack)
		}
		return s.Default
	}
}

// ProofSettings returns the settings that decide whether the signature of a webhook
// verifies.
func ProofSettings() []*Setting {
	return []*Setting{
		BaseURL, Authentication, SignatureHeader, TimestampCarrier, KeyIDCarrier, TimestampFormat, TimestampTolerance,
		HTTPMethod, MaxPayloadBytes, KeyExponents, KeysAuth,
	}
}

// ParseProof parses those settings of the CDK context that decide whether the
// signature of a webhook verifies. Others that are missing or invalid are no error.
func ParseProof(context func(key string) (string, bool)) (Webhook, error) {
	text := textOf(func(key string) (string, bool) {
		if !slices.ContainsFunc(ProofSettings(), func(s *Setting) bool { return s.Key == key }) {
			return "", false
		}
		return context(key)
	})
	r := &reader{name: func(s *Setting) string { return s.Key }, text: text}
	w := r.webhook()
	r.carriersDiffer(w)
	return w, r.err()
}

// ParseDeployment parses the CDK context. context returns the text of a key and
// whether the key is set. given lists the keys that are set, so that misspelled keys
// are found.
func ParseDeployment(context func(key string) (string, bool), given []string) (Deployment, error) {
	values := map[string]string{}
	r := &reader{
		name: func(s *Setting) string { return s.Key },
		text: textOf(context),
	}
	known := slices.Concat(All(), []*Setting{Local})
	if r.text(Local) == "true" {
		known = slices.Concat(known, LocalSettings())
	}
	r.text = func(s *Setting) string {
		if !slices.Contains(known, s) {
			return s.Default
		}
		return textOf(context)(s)
	}
	for _, s := range slices.Concat(All(), LocalSettings()) {
		values[s.Key] = r.text(s)
	}
	d := Deployment{
		Token:                r.token(),
		Webhook:              r.webhook(),
		RedriveTimeout:       r.wholeSeconds(RedriveTimeout, 5*time.Second, 15*time.Minute),
		RedriveAttempts:      r.integer(RedriveAttempts, 1, 1000),
		CaptureRejected:      r.capture(),
		LogRetention:         r.oneOf(LogRetentionDays, logRetentionDays),
		ClaimRetention:       r.retention(ClaimRetention),
		ParkedRetention:      r.retention(ParkedRetention),
		ArchiveRetention:     r.archive(),
		AlarmEmail:           r.email(AlarmEmail),
		AlarmUnauthenticated: r.integer(AlarmUnauthenticated, 1, 1000000),
		StackName: r.matching(StackName, stackName,
			"letters, digits and hyphens, starting with a letter, at most 100"),
		Canary:        r.choice(DeploymentStrategy, AllAtOnce, Canary) == Canary,
		LedgerTable:   r.optional(LedgerTable, tableName, "the name of a DynamoDB table"),
		ClaimBucket:   r.optional(ClaimBucket, bucketName, "the name of an S3 bucket"),
		ParkingBucket: r.optional(ParkingBucket, bucketName, "the name of an S3 bucket"),
		Local:         r.boolean(Local),
		Concurrency:   r.concurrency(WebhookConcurrency),
		Protection:    r.protection(),
		values:        values,
	}
	d.Endpoint = r.endpoint(d.Webhook, time.Now())
	r.contradictions(d)
	r.environmentSize()
	for _, key := range given {
		if !slices.ContainsFunc(known, func(s *Setting) bool { return s.Key == key }) {
			r.problems = append(r.problems, fmt.Errorf("%s: no such setting", key))
		}
	}
	return d, r.err()
}

var (
	// CloudFormation accepts 128 characters (AWS, "CreateStack" in the CloudFormation
	// API reference); the display name of a topic has at most 100.
	stackName = lazily(`^[A-Za-z][A-Za-z0-9-]{0,99}$`)
	// AWS, "CreateTable" in the DynamoDB API reference.
	tableName = lazily(`^[A-Za-z0-9_.-]{3,255}$`)
	// AWS, "General purpose bucket naming rules" in the S3 User Guide.
	bucketName = lazily(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	// A name has no slash (AWS, "CreateEventBus" in the EventBridge API reference).
	busName = upTo(256, only(lower+upper+digits+"._-"))
	source  = upTo(256, only(lower+upper+digits+"._/-"))
	method  = upTo(20, only(upper))
	// AWS, PutRetentionPolicy.
	logRetentionDays = []int{1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557,
		2922, 3288, 3653}
)

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
)

// pattern reports whether a text matches.
type pattern func(text string) bool

// lazily returns the pattern of a regular expression that is compiled at its first
// use: a function starts without those that only the deployment uses.
func lazily(expression string) pattern {
	compiled := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
	return func(text string) bool { return compiled().MatchString(text) }
}

// only returns the pattern of texts that are not empty and consist of these characters.
// A function that starts compiles no regular expression.
func only(characters string) pattern {
	return func(text string) bool { return text != "" && strings.Trim(text, characters) == "" }
}

// upTo returns a pattern for texts of at most n bytes. A repetition such as {1,256}
// would be compiled to as many instructions, while a function starts.
func upTo(n int, p pattern) pattern {
	return func(text string) bool { return len(text) <= n && p(text) }
}

// DefaultBusName returns the name of the bus of a stack without the setting
// eventBusName. It differs for two stacks of one account and region.
func DefaultBusName(stackName string) string { return strings.ToLower(stackName) }

// reader reads settings from one source and collects their problems.
type reader struct {
	name     func(*Setting) string
	text     func(*Setting) string
	getenv   func(string) string
	problems []error
	invalid  []*Setting // the settings with a problem
}

// fromEnvironment returns a reader of a function's environment. A missing variable
// means the default of its setting, so a function starts with the environment of a
// template that does not define the setting yet. Variables without a default are
// required: the names of resources, including the bus, and the required settings.
func fromEnvironment(getenv func(string) string) *reader {
	return &reader{
		name: (*Setting).Env,
		text: func(s *Setting) string {
			if v := getenv(s.Env()); v != "" {
				return v
			}
			return s.Default
		},
		getenv: getenv,
	}
}

func (r *reader) err() error { return errors.Join(r.problems...) }

// valid reports whether none of the settings has a problem.
func (r *reader) valid(conf ...*Setting) bool {
	return !slices.ContainsFunc(conf, func(s *Setting) bool { return slices.Contains(r.invalid, s) })
}

func (r *reader) wrong(s *Setting, problem string) {
	r.invalid = append(r.invalid, s)
	if r.text(s) == "" && s.needed() {
		problem = "is required"
	}
	r.problems = append(r.problems,
		fmt.Errorf("%s: %s (%s; example: %s)", r.name(s), problem, s.Description, s.Example))
}

func (r *reader) resource(env string) string {
	v := r.getenv(env)
	if v == "" {
		r.problems = append(r.problems, fmt.Errorf("%s: is required", env))
	}
	return v
}

func (r *reader) webhook() Webhook {
	w := Webhook{
		Authentication: r.authentication(),
		BaseURL:        r.url(BaseURL),
		Scheme: signature.Scheme{
			SignatureHeader: r.text(SignatureHeader),
			Timestamp:       read(r, TimestampCarrier, signature.ParseCarrier),
			KeyID:           read(r, KeyIDCarrier, signature.ParseKeyIDCarrier),
		},
		Window:          r.window(),
		HTTPMethod:      r.matching(HTTPMethod, method, "an HTTP method in upper case"),
		SuccessStatus:   r.integer(SuccessStatus, 200, 299),
		MaxPayloadBytes: r.integer(MaxPayloadBytes, 1, 6<<20),
		KeyExponents:    r.exponents(),
		KeyFreshness:    r.duration(KeyFreshness, time.Minute, 30*24*time.Hour),
		KeyMaxAge:       r.duration(KeyMaxAge, time.Minute, 90*24*time.Hour),
		KeyUnknownGrace: r.duration(KeyUnknownGrace, time.Second, 24*time.Hour),
		UnknownKeyTTL:   r.duration(UnknownKeyTTL, time.Second, time.Hour),
		KeyMissBudget:   r.integer(KeyMissBudget, 1, 1000000),
		KeysBearer:      r.keysBearer(),
		Publishing:      r.publishing(),
		Timeout:         r.wholeSeconds(WebhookTimeout, KeyTimeout+time.Second, 15*time.Minute),
	}
	if !httpguts.ValidHeaderFieldName(w.Scheme.SignatureHeader) {
		r.wrong(SignatureHeader, "must be the name of a header")
	}
	if w.KeyMaxAge < w.KeyFreshness {
		r.wrong(KeyMaxAge, "must not be shorter than "+r.name(KeyFreshness))
	}
	return w
}

func (r *reader) publishing() Publishing {
	p := Publishing{
		EventBusName:        r.matching(EventBusName, busName, "at most 256 letters, digits, '.', '_' and '-'"),
		EventSource:         r.matching(EventSource, source, "at most 256 letters, digits, '.', '_', '/' and '-'"),
		MaxEntryBytes:       r.entryBytes(),
		ClaimCheckBytes:     r.integer(ClaimCheckBytes, 1024, MaxLedgerEventBytes),
		DeduplicationWindow: r.duration(DeduplicationWindow, time.Minute, 10*365*24*time.Hour),
		RedriveGrace:        r.duration(RedriveGrace, time.Second, time.Hour),
	}
	if r.getenv != nil { // the deployment does not know the table and the buckets that it creates
		p.LedgerTable = r.resource(names.LedgerTableEnv)
		p.ClaimBucket, p.ParkingBucket = r.resource(names.ClaimBucketEnv), r.resource(names.ParkingBucketEnv)
	}
	if strings.HasPrefix(p.EventSource, "aws.") {
		r.wrong(EventSource, "must not start with aws., which is reserved")
	}
	return p
}

// KeyTimeout is the timeout of one fetch of a key. It leaves time to record the events.
const KeyTimeout = 3 * time.Second

// WebhookMemory is the memory of the webhook function in MiB. Lambda allocates CPU in
// proportion.
const WebhookMemory = 512

// The limits of PutEvents: the total size of a request must be less (AWS,
// "PutEvents" in the EventBridge API reference, and in the reference for China).
const (
	maxEntryBytes      = 1 << 20
	maxEntryBytesChina = 256 << 10
)

// entryBytes returns the limit of the Region. Lambda sets AWS_REGION (AWS, "Working with
// Lambda environment variables"). A template does not know its Region, so the function
// decides.
func (r *reader) entryBytes() int {
	if r.getenv != nil && strings.HasPrefix(r.getenv("AWS_REGION"), "cn-") {
		return maxEntryBytesChina
	}
	return maxEntryBytes
}

func read[T any](r *reader, s *Setting, parse func(string) (T, error)) T {
	v, err := parse(r.text(s))
	if err != nil {
		r.wrong(s, err.Error())
	}
	return v
}

func (r *reader) some(s *Setting) string {
	v := r.text(s)
	if strings.TrimSpace(v) == "" {
		r.wrong(s, "must not be empty")
	}
	return v
}

func (r *reader) matching(s *Setting, matches pattern, of string) string {
	v := r.text(s)
	if !matches(v) {
		r.wrong(s, "must be "+of)
	}
	return v
}

// optional reads a text that may be empty.
func (r *reader) optional(s *Setting, matches pattern, of string) string {
	if r.text(s) == "" {
		return ""
	}
	return r.matching(s, matches, of)
}

func (r *reader) integer(s *Setting, least, most int) int {
	n, err := strconv.Atoi(r.text(s))
	if err != nil || n < least || n > most {
		r.wrong(s, fmt.Sprintf("must be a whole number from %d to %d", least, most))
	}
	return n
}

func (r *reader) oneOf(s *Setting, allowed []int) int {
	n, err := strconv.Atoi(r.text(s))
	if err != nil || !slices.Contains(allowed, n) {
		r.wrong(s, fmt.Sprintf("must be one of %s", strings.Trim(fmt.Sprint(allowed), "[]")))
	}
	return n
}

// Never is the value of claimRetention and parkedRetention that disables expiry.
const Never = "never"

// minRetention and maxRetention are in days. A consumer's queue retains a reference
// for up to 14 days (AWS, "Amazon SQS message quotas"), and the event must exist for
// longer.
const minRetention, maxRetention = 15, 36500

// retention reads whole days; 0 means no expiry.
func (r *reader) retention(s *Setting) int { return r.days(s, Never, minRetention) }

// archive reads archiveRetention; 0 means no archive.
func (r *reader) archive() int { return r.days(ArchiveRetention, Off, 1) }

// days reads whole days, at least least and at most maxRetention, or none, which is 0.
func (r *reader) days(s *Setting, none string, least int) int {
	v := r.text(s)
	if v == none {
		return 0
	}
	d, err := ParseDuration(v)
	days := int(d / (24 * time.Hour))
	if err != nil || d%(24*time.Hour) != 0 || days < least || days > maxRetention {
		r.wrong(s, fmt.Sprintf("must be %s, or whole days from %dd to %dd", none, least, maxRetention))
	}
	return days
}

// email reads a plain address: no name, no brackets, a domain with a dot.
func (r *reader) email(s *Setting) string {
	v := r.text(s)
	if v == "" {
		return ""
	}
	address, err := mail.ParseAddress(v)
	if err != nil || address.Address != v || !strings.Contains(v[strings.LastIndex(v, "@"):], ".") {
		r.wrong(s, "must be an e-mail address")
	}
	return v
}

func (r *reader) boolean(s *Setting) bool {
	v := r.text(s)
	if v != "true" && v != "false" {
		r.wrong(s, "must be true or false")
	}
	return v == "true"
}

func (r *reader) duration(s *Setting, least, most time.Duration) time.Duration {
	d, err := ParseDuration(r.text(s))
	if err != nil || d < least || d > most {
		r.wrong(s, fmt.Sprintf("must be a duration from %s to %s", least, most))
	}
	return d
}

func (r *reader) wholeSeconds(s *Setting, least, most time.Duration) time.Duration {
	d := r.duration(s, least, most)
	if d%time.Second != 0 {
		r.wrong(s, "must be whole seconds")
	}
	return d
}

// ParseDuration parses a duration as [time.ParseDuration] does, and also whole days: 30d.
func ParseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

// Off is the value of timestampTolerance that disables the check, of captureRejected that
// disables the capture, and of archiveRetention for no archive.
const Off = "off"

func (r *reader) window() *signature.Window {
	format := read(r, TimestampFormat, signature.ParseFormat)
	if r.text(TimestampTolerance) == Off {
		return nil
	}
	return &signature.Window{Format: format, Tolerance: r.duration(TimestampTolerance, time.Second, 24*time.Hour)}
}

// maxCapture is the longest value of captureRejected.
const maxCapture = 7 * 24 * time.Hour

// capture reads captureRejected; 0 means off.
func (r *reader) capture() time.Duration {
	if r.text(CaptureRejected) == Off {
		return 0
	}
	return r.duration(CaptureRejected, time.Minute, maxCapture)
}

func (r *reader) exponents() []int {
	var exponents []int
	for text := range strings.SplitSeq(r.text(KeyExponents), ",") {
		e, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
		if err != nil || e < 3 || e%2 == 0 {
			r.wrong(KeyExponents, "must be odd numbers from 3 to 2147483647, joined by commas")
			return nil
		}
		exponents = append(exponents, int(e))
	}
	return exponents
}

// url reads an https URL, or an http URL of a loopback address, without query,
// fragment or user. It removes a trailing slash.
func (r *reader) url(s *Setting) *url.URL {
	u, err := url.Parse(r.text(s))
	switch {
	case err != nil || u.Hostname() == "":
		r.wrong(s, "must be an https URL")
	case u.Scheme != "https" && !(u.Scheme == "http" && isLoopback(u.Hostname())):
		r.wrong(s, "must be an https URL; http is for loopback addresses only")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		r.wrong(s, "must have no user, query or fragment")
	default:
		u.Path = strings.TrimRight(u.Path, "/")
		u.RawPath = ""
		return u
	}
	return &url.URL{}
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, _ := netip.ParseAddr(host) // the zero Addr is no loopback address
	return ip.IsLoopback()
}

// MaxLedgerEventBytes is the size of the largest event that fits into an item of the
// ledger. An item has at most 400 KB of 1,024 bytes each, including attribute names
// (AWS, "Constraints in Amazon DynamoDB"). The other attributes have less than 1 KB.
const MaxLedgerEventBytes = 400<<10 - 1<<10
