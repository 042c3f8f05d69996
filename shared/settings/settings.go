// Package settings defines the settings of Payhook: the context keys of the CDK
// app, the environment variables of the functions, defaults and limits.
//
// Each setting is declared once. The CDK app and the functions parse it with the same
// code. So the functions accept what the deployment accepted, and synthesis rejects every
// invalid value. All invalid and missing settings are reported in one error.
//
// The fields of Props in the package infra/payhook describe the settings.
package settings

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/signature"
)

// Setting is one option of a deployment.
type Setting struct {
	Key     string // CDK context key
	Default string // "" for none
	Example string
	Section string // the section of the interface that leaves this open
	// Separator joins the parts of a list; "" for a setting that is no list.
	Separator string
	// Zero is the word for no value of a setting that has a default: off or never.
	Zero string
	// Required settings have no default and must be given.
	Required bool

	by    program // the programs that read it
	parse func(d *Deployment, text string) error
}

// program is a set of programs that read a setting.
type program uint8

const (
	webhook program = 1 << iota
	redrive
	token
	proof // the settings that decide whether the signature of a webhook verifies
	local // a deployment reads it only in a local run

	publisher = webhook | redrive
)

// Prefix is the prefix of the context keys that only a local run uses. They are not for users.
const Prefix = "payhook:"

// LocalKey is the context key of a local run, whose value is then true: a deployment on an
// emulator on this machine, built for its architecture and without deletion protection.
const LocalKey = Prefix + "local"

// Values of settings.
const (
	// Off disables the check of timestampTolerance, captureRejected, the archive, and evidence.
	Off = "off"
	// Never disables the expiry of claimRetention and parkedRetention.
	Never = "never"

	// The ways in which webhooks are authenticated (the interface, section 5.2).
	BySignature = "signature"
	ByMTLS      = "mtls"
	ByBoth      = "both"

	// Values of evidenceLock: who can delete evidence before its retention ends.
	Governance = "governance" // who has s3:BypassGovernanceRetention
	Compliance = "compliance" // nobody

	// Values of the setting deployment.
	AllAtOnce = "all-at-once"
	Canary    = "canary"

	// Values of encryption and furtherEncryptionKeys other than the ARN of a key.
	EncryptionAWS = "aws" // keys of AWS
	EncryptionCMK = "cmk" // a customer managed key that the stack creates
)

const day = 24 * time.Hour

var declared []*Setting

func declare(s Setting) *Setting {
	declared = append(declared, &s)
	return &s
}

// The settings, in the order in which infra/README.md lists them.
var (
	BaseURL = declare(Setting{Key: "baseUrl", Required: true, Example: "https://api.payments.example",
		by:    webhook | proof,
		parse: func(d *Deployment, v string) error { return parseURL(&d.Webhook.BaseURL, v) }})
	AuthURL = declare(Setting{Key: "authUrl", Required: true, Example: "https://auth.payments.example", by: token,
		parse: func(d *Deployment, v string) error { return parseURL(&d.Token.AuthURL, v) }})
	TokenManagerID = declare(Setting{Key: "tokenManagerId", Required: true, Example: "manager-1", by: token,
		parse: func(d *Deployment, v string) error { return nonBlank.parse(&d.Token.TokenManagerID, v) }})

	Authentication = declare(Setting{Key: "authentication", Default: BySignature, Example: ByBoth, Section: "5.2",
		by: publisher | proof,
		parse: func(d *Deployment, v string) error {
			return choose(&d.Webhook.Authentication, v, BySignature, ByMTLS, ByBoth)
		}})
	DomainName = declare(Setting{Key: "domainName", Example: "webhooks.bank.example", by: webhook,
		parse: func(d *Deployment, v string) error { return domainName.parse(&d.Endpoint.DomainName, v) }})
	CertificateARN = declare(Setting{Key: "certificateArn",
		Example: "arn:aws:acm:eu-central-1:111122223333:certificate/11111111-2222-3333-4444-555555555555",
		parse:   func(d *Deployment, v string) error { return certificateARN.parse(&d.Endpoint.CertificateARN, v) }})
	OwnershipCertificateARN = declare(Setting{Key: "ownershipCertificateArn",
		Example: "arn:aws:acm:eu-central-1:111122223333:certificate/66666666-7777-8888-9999-000000000000",
		parse: func(d *Deployment, v string) error {
			return certificateARN.parse(&d.Endpoint.OwnershipCertificateARN, v)
		}})
	HostedZoneID = declare(Setting{Key: "hostedZoneId", Example: "Z0123456789ABCDEFGHIJ",
		parse: func(d *Deployment, v string) error { return hostedZoneID.parse(&d.Endpoint.HostedZoneID, v) }})
	ThrottleRate = declare(Setting{Key: "throttleRate", Default: "100", Example: "1000",
		parse: func(d *Deployment, v string) error { return whole(&d.Endpoint.ThrottleRate, v, 1, 10000) }})
	AllowedSources = declare(Setting{Key: "allowedSources", Example: "192.0.2.0/24;2001:db8:1::/48", Separator: ";",
		by:    webhook,
		parse: func(d *Deployment, v string) error { return parseNetworks(&d.Webhook.AllowedSources, v) }})
	// Truststore is a file in a function's package, because an environment is too small
	// for it (AWS, "Lambda quotas": 4 KB in total).
	Truststore = declare(Setting{Key: "truststore", Example: "truststore.pem", Section: "5.3",
		parse: func(*Deployment, string) error { return nil }})
	ClientCertPins = declare(Setting{Key: "clientCertPins", Section: "5.3", Separator: ";", by: publisher,
		Example: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		parse:   func(d *Deployment, v string) error { return listOf(&d.policy.Pins, v, clientcert.ParsePin) }})
	ClientCertSubjects = declare(Setting{Key: "clientCertSubjects", Section: "5.3", Separator: ";", by: publisher,
		Example: "CN=webhooks.payments.example,O=Payments;webhooks.payments.example",
		parse:   func(d *Deployment, v string) error { return listOf(&d.policy.Subjects, v, clientcert.ParseSubject) }})
	RevokedKeys = declare(Setting{Key: "revokedKeys", Section: "5.3", Separator: ";", by: publisher,
		Example: "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
		parse:   func(d *Deployment, v string) error { return listOf(&d.policy.RevokedKeys, v, clientcert.ParsePin) }})

	SignatureHeader = declare(Setting{Key: "signatureHeader", Default: "X-SVC-Signature", Example: "X-Signature",
		Section: "4.3", by: webhook | proof,
		parse: func(d *Deployment, v string) error { return headerName.parse(&d.Webhook.Scheme.SignatureHeader, v) }})
	TimestampCarrier = declare(Setting{Key: "timestampCarrier", Default: "header:X-SVC-Timestamp",
		Example: "query:timestamp", Section: "4.3", by: webhook | proof,
		parse: func(d *Deployment, v string) error {
			return as(&d.Webhook.Scheme.Timestamp, v,
				signature.ParseCarrier)
		}})
	KeyIDCarrier = declare(Setting{Key: "keyIdCarrier", Default: "header:X-SVC-Key-Id",
		Example: "header:X-Key-Id", Section: "4.3", by: webhook | proof,
		parse: func(d *Deployment, v string) error {
			return as(&d.Webhook.Scheme.KeyID, v, signature.ParseKeyIDCarrier)
		}})
	TimestampFormat = declare(Setting{Key: "timestampFormat", Default: "auto", Example: "unix-seconds",
		Section: "4.3", by: webhook | proof,
		parse: func(d *Deployment, v string) error { return as(&d.window.Format, v, signature.ParseFormat) }})
	TimestampTolerance = declare(Setting{Key: "timestampTolerance", Default: "5m", Zero: Off, Example: "2m",
		Section: "5.4", by: webhook | proof,
		parse: func(d *Deployment, v string) error { return span(&d.window.Tolerance, v, time.Second, day) }})
	// HTTPMethod is one of the methods whose payload has a meaning (RFC 9110, section 9.3; RFC 5789). A function URL
	// and a route of an HTTP API can have each of them (AWS, "Invoking Lambda function URLs" in the Lambda Developer
	// Guide and "Create routes for HTTP APIs in API Gateway").
	HTTPMethod = declare(Setting{Key: "httpMethod", Default: http.MethodPost, Example: "PUT", Section: "4.3",
		by: webhook | proof,
		parse: func(d *Deployment, v string) error {
			return choose(&d.Webhook.HTTPMethod, v, http.MethodPost, http.MethodPut, http.MethodPatch)
		}})
	SuccessStatus = declare(Setting{Key: "successStatus", Default: "200", Example: "202", Section: "7", by: webhook,
		parse: func(d *Deployment, v string) error { return whole(&d.Webhook.SuccessStatus, v, 200, 299) }})
	MaxPayloadBytes = declare(Setting{Key: "maxPayloadBytes", Default: "6291456", Example: "1048576", Section: "8",
		by:    webhook | proof,
		parse: func(d *Deployment, v string) error { return whole(&d.Webhook.MaxPayloadBytes, v, 1, 6<<20) }})
	// CaptureRejected counts from the deployment, so that the functions get a time.
	CaptureRejected = declare(Setting{Key: "captureRejected", Default: Off, Zero: Off, Example: "1h",
		parse: func(d *Deployment, v string) error { return span(&d.CaptureRejected, v, time.Minute, 7*day) }})

	KeyExponents = declare(Setting{Key: "keyExponents", Default: "65537", Example: "3;65537", Section: "2.6",
		Separator: ";", by: publisher | proof,
		parse: func(d *Deployment, v string) error { return listOf(&d.Webhook.KeyExponents, v, parseExponent) }})
	KeyFreshness = declare(Setting{Key: "keyFreshness", Default: "1h", Example: "15m", Section: "5.4", by: webhook,
		parse: func(d *Deployment, v string) error { return span(&d.Webhook.KeyFreshness, v, time.Minute, 30*day) }})
	KeyMaxAge = declare(Setting{Key: "keyMaxAge", Default: "24h", Example: "4h", Section: "5.4", by: webhook,
		parse: func(d *Deployment, v string) error { return span(&d.Webhook.KeyMaxAge, v, time.Minute, 90*day) }})
	KeyUnknownGrace = declare(Setting{Key: "keyUnknownGrace", Default: "5m", Example: "15m", Section: "7", by: webhook,
		parse: func(d *Deployment, v string) error { return span(&d.Webhook.KeyUnknownGrace, v, time.Second, day) }})
	UnknownKeyTTL = declare(Setting{Key: "unknownKeyTtl", Default: "1m", Example: "5m", Section: "4.2", by: webhook,
		parse: func(d *Deployment, v string) error {
			return span(&d.Webhook.UnknownKeyTTL, v, time.Second,
				time.Hour)
		}})
	KeyMissBudget = declare(Setting{Key: "keyMissBudget", Default: "60", Example: "600", Section: "8", by: webhook,
		parse: func(d *Deployment, v string) error { return whole(&d.Webhook.KeyMissBudget, v, 1, 1000000) }})
	KeysAuth = declare(Setting{Key: "keysAuth", Default: "none", Example: "bearer", Section: "4.2", by: webhook | proof,
		parse: func(d *Deployment, v string) error { return either(&d.Webhook.KeysBearer, v, "none", "bearer") }})
	Scopes = declare(Setting{Key: "scopes", Example: "payments.read payments.write", Section: "5.1", Separator: " ",
		by:    token,
		parse: func(d *Deployment, v string) error { return parseScopes(&d.Token.Scopes, v) }})
	CredentialEncoding = declare(Setting{Key: "credentialEncoding", Default: "literal", Example: "form",
		Section: "4.1", by: token,
		parse: func(d *Deployment, v string) error { return either(&d.Token.FormEncoded, v, "literal", "form") }})

	DeduplicationWindow = declare(Setting{Key: "deduplicationWindow", Default: "30d", Example: "7d", Section: "6",
		by: publisher,
		parse: func(d *Deployment, v string) error {
			return span(&d.Webhook.DeduplicationWindow, v, time.Minute, 3650*day)
		}})
	EventSource = declare(Setting{Key: "eventSource", Default: "payhook", Example: "payments.example", by: publisher,
		parse: func(d *Deployment, v string) error {
			if strings.HasPrefix(v, "aws.") {
				return errors.New("must not start with aws., which is reserved")
			}
			return source.parse(&d.Webhook.EventSource, v)
		}})
	// EventBusName has no default in a function, because the function could publish on
	// the bus of another deployment. [DefaultBusName] is that of a deployment.
	EventBusName = declare(Setting{Key: "eventBusName", Example: "payments", by: publisher,
		parse: func(d *Deployment, v string) error { return busName.parse(&d.Webhook.EventBusName, v) }})
	ClaimCheckBytes = declare(Setting{Key: "claimCheckBytes", Default: "200000", Example: "100000", by: publisher,
		parse: func(d *Deployment, v string) error {
			return whole(&d.Webhook.ClaimCheckBytes, v, 1024, MaxLedgerEventBytes)
		}})
	ClaimRetention = declare(Setting{Key: "claimRetention", Default: "365d", Zero: Never, Example: "3653d",
		parse: func(d *Deployment, v string) error { return wholeDays(&d.ClaimRetention, v, minRetention) }})
	ParkedRetention = declare(Setting{Key: "parkedRetention", Default: Never, Zero: Never, Example: "3653d",
		parse: func(d *Deployment, v string) error { return wholeDays(&d.ParkedRetention, v, minRetention) }})
	ArchiveRetention = declare(Setting{Key: "archiveRetention", Default: "30d", Zero: Off, Example: "90d",
		parse: func(d *Deployment, v string) error { return wholeDays(&d.ArchiveRetention, v, 1) }})
	Evidence = declare(Setting{Key: "evidence", Default: Off, Zero: Off, Example: "7y",
		parse: func(d *Deployment, v string) error { return wholeDays(&d.EvidenceRetention, v, 1) }})
	EvidenceLock = declare(Setting{Key: "evidenceLock", Default: Governance, Example: Compliance,
		parse: func(d *Deployment, v string) error { return either(&d.EvidenceCompliance, v, Governance, Compliance) }})

	WebhookTimeout = declare(Setting{Key: "webhookTimeout", Default: "30s", Example: "10s",
		parse: func(d *Deployment, v string) error {
			return wholeSeconds(&d.Webhook.Timeout, v, KeyTimeout+time.Second)
		}})
	WebhookConcurrency = declare(Setting{Key: "webhookConcurrency", Example: "100",
		parse: func(d *Deployment, v string) error { return whole(&d.Concurrency, v, 1, 100000) }})
	LogRetentionDays = declare(Setting{Key: "logRetentionDays", Default: "90", Example: "365",
		parse: func(d *Deployment, v string) error { return logDays(&d.LogRetention, v) }})
	AlarmEmail = declare(Setting{Key: "alarmEmail", Example: "payments-oncall@example.com",
		parse: func(d *Deployment, v string) error { return email.parse(&d.AlarmEmail, v) }})
	AlarmRefused = declare(Setting{Key: "alarmRefused", Default: "10", Example: "100",
		parse: func(d *Deployment, v string) error { return whole(&d.AlarmRefused, v, 1, 1000000) }})
	AlarmSilence = declare(Setting{Key: "alarmSilence", Default: Off, Zero: Off, Example: "6h",
		parse: func(d *Deployment, v string) error { return wholeHours(&d.AlarmSilence, v, 7*day) }})
	StackName = declare(Setting{Key: "stackName", Default: "Payhook", Example: "PayhookStaging",
		parse: func(d *Deployment, v string) error { return stackName.parse(&d.StackName, v) }})
	DeploymentStrategy = declare(Setting{Key: "deployment", Default: AllAtOnce, Example: Canary,
		parse: func(d *Deployment, v string) error { return either(&d.Canary, v, AllAtOnce, Canary) }})
	LedgerTable = declare(Setting{Key: "ledgerTable", Example: "Payhook-Ledger1A2B3C4D-EXAMPLE",
		parse: func(d *Deployment, v string) error { return tableName.parse(&d.LedgerTable, v) }})
	ClaimBucket = declare(Setting{Key: "claimBucket", Example: "payhook-claims1a2b3c4d-example",
		parse: func(d *Deployment, v string) error { return bucketName.parse(&d.ClaimBucket, v) }})
	ParkingBucket = declare(Setting{Key: "parkingBucket", Example: "payhook-parking1a2b3c4d-example",
		parse: func(d *Deployment, v string) error { return bucketName.parse(&d.ParkingBucket, v) }})
	ProtectBus = declare(Setting{Key: "protectBus", Default: "true", Example: "false",
		parse: func(d *Deployment, v string) error { return either(&d.ProtectBus, v, "false", "true") }})
	Encryption = declare(Setting{Key: "encryption", Default: EncryptionAWS, Example: EncryptionCMK,
		parse: func(d *Deployment, v string) error { return encryption.parse(&d.Encryption, v) }})
	FurtherEncryptionKeys = declare(Setting{Key: "furtherEncryptionKeys", Zero: EncryptionAWS, Separator: ";",
		Example: "arn:aws:kms:eu-central-1:111122223333:key/11111111-2222-3333-4444-555555555555",
		parse:   func(d *Deployment, v string) error { return listOf(&d.FurtherEncryptionKeys, v, parseKeyARN) }})
	Tracing = declare(Setting{Key: "tracing", Default: "false", Example: "true", by: webhook,
		parse: func(d *Deployment, v string) error { return either(&d.Tracing, v, "false", "true") }})

	// RedriveTimeout, RedriveGrace and RedriveAttempts make a local run faster.
	RedriveTimeout = declare(Setting{Key: Prefix + "redriveTimeout", Default: "55s", Example: "5m", by: local,
		parse: func(d *Deployment, v string) error { return wholeSeconds(&d.RedriveTimeout, v, 5*time.Second) }})
	// RedriveGrace is how long redrive waits after the deadline of the function that
	// processes an event: more than the clocks of two functions can differ.
	RedriveGrace = declare(Setting{Key: Prefix + "redriveGrace", Default: "30s", Example: "1m", by: publisher | local,
		parse: func(d *Deployment, v string) error { return span(&d.Webhook.RedriveGrace, v, time.Second, time.Hour) }})
	RedriveAttempts = declare(Setting{Key: Prefix + "redriveAttempts", Default: "20", Example: "50",
		by:    redrive | local,
		parse: func(d *Deployment, v string) error { return whole(&d.RedriveAttempts, v, 1, 1000) }})
)

// Env returns the name of the environment variable that carries the setting to
// a function: PAYHOOK_BASE_URL for baseUrl.
func (s *Setting) Env() string {
	name := []byte("PAYHOOK_")
	for _, c := range []byte(strings.TrimPrefix(s.Key, Prefix)) {
		if 'A' <= c && c <= 'Z' {
			name = append(name, '_')
		}
		name = append(name, c)
	}
	return strings.ToUpper(string(name))
}

// Elements returns the parts of a list, of which none is blank.
func (s *Setting) Elements(text string) ([]string, error) {
	if s.Separator == " " {
		return strings.Fields(text), nil
	}
	return list(text)
}

// Accepts reports whether the form of a text is that of the setting.
func (s *Setting) Accepts(text string) bool { return s.parse(new(Deployment), text) == nil }

// ByKey returns the setting with a key, and nil if there is none.
func ByKey(key string) *Setting {
	i := slices.IndexFunc(declared, func(s *Setting) bool { return s.Key == key })
	if i < 0 {
		return nil
	}
	return declared[i]
}

// All returns the settings for users, in the order in which infra/README.md lists them.
func All() []*Setting {
	return slices.DeleteFunc(slices.Clone(declared), func(s *Setting) bool { return s.by&local != 0 })
}

// LocalSettings returns the settings that only a local run can change.
func LocalSettings() []*Setting { return readBy(local) }

// WebhookSettings returns the settings that the webhook function reads from its
// environment.
func WebhookSettings() []*Setting { return readBy(webhook) }

// RedriveSettings returns the settings that the redrive function reads from its
// environment.
func RedriveSettings() []*Setting { return readBy(redrive) }

// TokenSettings returns the settings that the token function reads from its
// environment.
func TokenSettings() []*Setting { return readBy(token) }

// ProofSettings returns the settings that decide whether the signature of a webhook
// verifies.
func ProofSettings() []*Setting { return readBy(proof) }

func readBy(p program) []*Setting {
	return slices.DeleteFunc(slices.Clone(declared), func(s *Setting) bool { return s.by&p == 0 })
}
