package settings

import (
	"fmt"
	"slices"
	"strings"
)

// The settings that protect the deployment, and those that adapt it to an account.
var (
	ProtectBus = &Setting{Key: "protectBus", Default: "true", Example: "false",
		Description: "whether a policy of the bus denies PutEvents to everyone but the webhook and the redrive " +
			"function; false lets any principal of the account with events:PutEvents publish"}
	Encryption = &Setting{Key: "encryption", Default: EncryptionAWS, Example: EncryptionCMK,
		Description: "the keys that encrypt the stored data: aws for keys of AWS, cmk for a key that the stack " +
			"creates, or the ARN of a key"}
	FurtherEncryptionKeys = &Setting{Key: "furtherEncryptionKeys",
		Example: "arn:aws:kms:eu-central-1:111122223333:key/11111111-2222-3333-4444-555555555555",
		Description: "the ARNs of further KMS keys that the functions can use, joined by semicolons: the keys of " +
			"ledgerTable, claimBucket and parkingBucket, and those before and after a change of encryption; aws says " +
			"that there is none"}
	AccessLogs = &Setting{Key: "accessLogs", Default: "true", Example: "false",
		Description: "whether S3 writes the requests to the buckets into a bucket of access logs, which are kept for " +
			"logRetentionDays"}
	Tracing = &Setting{Key: "tracing", Default: "false", Example: "true",
		Description: "whether Lambda sends traces of the functions to X-Ray"}
	RedriveConcurrency = &Setting{Key: "redriveConcurrency", Example: "2",
		Description: "reserved concurrency of the redrive function, which other functions cannot use up; none when " +
			"left out"}
	TokenConcurrency = &Setting{Key: "tokenConcurrency", Example: "2",
		Description: "reserved concurrency of the token function, which other functions cannot use up; none when " +
			"left out"}
	Tags = &Setting{Key: "tags", Example: "team=payments,cost-center=42",
		Description: "tags of the stack, which CloudFormation gives to every resource that can have tags: " +
			"NAME=VALUE, joined by commas"}
	PermissionsBoundary = &Setting{Key: "permissionsBoundary", Example: "payments-boundary",
		Description: "the name or the ARN of a managed policy that becomes the permissions boundary of every role of " +
			"the stack"}
	BootstrapQualifier = &Setting{Key: "bootstrapQualifier", Example: "payments",
		Description: "the qualifier of the CDK bootstrap stack to deploy with, where it is not the CDK's default"}
)

// The values of encryption and furtherEncryptionKeys other than the ARN of a key.
const (
	EncryptionAWS = "aws" // keys of AWS
	EncryptionCMK = "cmk" // a customer managed key that the stack creates
)

// Protection is the configuration of the deployment's protection and of the account
// that it is for.
type Protection struct {
	ProtectBus bool
	Encryption string // EncryptionAWS, EncryptionCMK, or the ARN of a key
	// FurtherEncryptionKeys are the ARNs of other keys that the functions can use.
	FurtherEncryptionKeys []string
	AccessLogs            bool
	Tracing               bool

	RedriveConcurrency, TokenConcurrency int // 0: not reserved

	Tags                map[string]string
	PermissionsBoundary string // name or ARN of a managed policy; "": none
	BootstrapQualifier  string // "": the CDK's default
}

func (r *reader) protection() Protection {
	p := Protection{
		ProtectBus:          r.boolean(ProtectBus),
		Encryption:          r.text(Encryption),
		AccessLogs:          r.boolean(AccessLogs),
		Tracing:             r.boolean(Tracing),
		RedriveConcurrency:  r.concurrency(RedriveConcurrency),
		TokenConcurrency:    r.concurrency(TokenConcurrency),
		Tags:                r.tags(),
		PermissionsBoundary: r.unlessEmpty(PermissionsBoundary, boundary, "the name or the ARN of a managed policy"),
		BootstrapQualifier:  r.unlessEmpty(BootstrapQualifier, qualifier, "1 to 10 letters, digits and hyphens"),
	}
	if p.Encryption != EncryptionAWS && p.Encryption != EncryptionCMK && !keyARN(p.Encryption) {
		r.wrong(Encryption, "must be aws, cmk, or the ARN of a key (not of an alias)")
	}
	if text := r.text(FurtherEncryptionKeys); text != EncryptionAWS {
		p.FurtherEncryptionKeys = list(text)
	}
	for i, key := range p.FurtherEncryptionKeys {
		switch {
		case !keyARN(key):
			r.wrong(FurtherEncryptionKeys, "must be the ARNs of keys (not of aliases), joined by semicolons, or aws")
			return p
		case key == p.Encryption || slices.Contains(p.FurtherEncryptionKeys[:i], key):
			r.wrong(FurtherEncryptionKeys, "must not have "+key+" again")
			return p
		}
	}
	return p
}

var (
	// AWS, "Key identifiers (KeyId)" in the KMS Developer Guide. Aliases are not
	// accepted, because an alias can be moved to another key, and permissions name keys.
	keyARN = lazily(`^arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]+$`)
	// AWS, "CreatePolicy" in the IAM API reference: a name has up to 128 letters,
	// digits and +=,.@_-. A path can precede it, here without colons.
	boundary = lazily(`^(arn:aws[a-z-]*:iam::(aws|\d{12}):policy/)?([\x21-\x39\x3B-\x7E]+/)?[A-Za-z0-9+=,.@_-]{1,128}$`)
	// AWS CDK Developer Guide, "Customize CDK bootstrapping": at most 10 characters.
	qualifier = lazily(`^[A-Za-z0-9-]{1,10}$`)
	// AWS, "Tag" in the CloudFormation API reference, and the characters that all services allow.
	tagName  = lazily(`^[\pL\pN ._:/+@-]{1,128}$`)
	tagValue = lazily(`^[\pL\pN ._:/=+@-]{0,256}$`)
)

// maxTags is the maximum number of tags of a stack (AWS, "Tag" in the CloudFormation
// API reference).
const maxTags = 50

func (r *reader) concurrency(s *Setting) int {
	if r.text(s) == "" {
		return 0
	}
	return r.integer(s, 1, 100000)
}

func (r *reader) unlessEmpty(s *Setting, matches pattern, of string) string {
	if r.text(s) == "" {
		return ""
	}
	return r.matching(s, matches, of)
}

func (r *reader) tags() map[string]string {
	text := r.text(Tags)
	if text == "" {
		return nil
	}
	tags := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		switch _, twice := tags[name]; {
		case !ok || !tagName(name) || !tagValue(value):
			r.wrong(Tags, "must be NAME=VALUE, joined by commas, in characters that tags allow")
			return nil
		case strings.HasPrefix(strings.ToLower(name), "aws:"):
			r.wrong(Tags, "must not have a name that starts with aws:, which is reserved")
			return nil
		case twice:
			r.wrong(Tags, fmt.Sprintf("must not have %s twice", name))
			return nil
		}
		tags[name] = value
	}
	if len(tags) > maxTags {
		r.wrong(Tags, fmt.Sprintf("must be at most %d tags", maxTags))
		return nil
	}
	return tags
}
