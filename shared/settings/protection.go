package settings

import (
	"slices"
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
	Tracing = &Setting{Key: "tracing", Default: "false", Example: "true",
		Description: "whether Lambda sends traces of the functions to X-Ray"}
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
	Tracing               bool
}

func (r *reader) protection() Protection {
	p := Protection{
		ProtectBus: r.boolean(ProtectBus),
		Encryption: r.text(Encryption),
		Tracing:    r.boolean(Tracing),
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
)

func (r *reader) concurrency(s *Setting) int {
	if r.text(s) == "" {
		return 0
	}
	return r.integer(s, 1, 100000)
}
