package settings_test

import (
	"strings"
	"testing"
)

func TestEncryptionKeys(t *testing.T) {
	const (
		a     = "arn:aws:kms:eu-central-1:123456789012:key/a"
		b     = "arn:aws:kms:eu-central-1:123456789012:key/mrk-b"
		other = "arn:aws:kms:eu-west-1:123456789012:key/c"
		alias = "arn:aws:kms:eu-central-1:123456789012:alias/a"
	)
	for _, c := range []struct{ encryption, further, ledger, want string }{
		{"aws", "", "ledger", ""}, {a, "", "ledger", ""}, {"cmk", "", "", ""}, {"aws", a + "; " + b, "", ""},
		{"cmk", a, "ledger", ""}, {"cmk", "aws", "ledger", ""}, {b, a, "", ""},
		{"cmk", "", "ledger", "furtherEncryptionKeys: must name the keys of ledgerTable, parkingBucket, or be aws"},
		{alias, "", "", "encryption: must be aws, cmk, or the ARN of a key"},
		{"cmk", alias, "ledger", "furtherEncryptionKeys: must be the ARNs of keys (not of aliases)"},
		{"cmk", "cmk", "", "furtherEncryptionKeys: must be the ARNs of keys"},
		{a, other, "", "furtherEncryptionKeys: must name keys of one Region, that of the stack; " + other +
			" is not in eu"},
		{"aws", a + ";" + other, "", "furtherEncryptionKeys: must name keys of one Region"},
	} {
		conf := map[string]string{
			"encryption":            c.encryption,
			"furtherEncryptionKeys": c.further,
			"ledgerTable":           c.ledger,
		}
		if c.ledger != "" {
			conf["parkingBucket"] = "parking"
		}
		_, err := deployment(conf)
		if got := problems(err); c.want == "" && err != nil || c.want != "" &&
			(len(got) != 1 || !strings.HasPrefix(got[0], c.want)) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
