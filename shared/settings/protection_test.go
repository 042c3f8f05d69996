package settings_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

func TestTags(t *testing.T) {
	many := func(n int) string {
		pairs := make([]string, n)
		for i := range pairs {
			pairs[i] = fmt.Sprintf("t%d=%d", i, i)
		}
		return strings.Join(pairs, ",")
	}
	for text, want := range map[string]map[string]string{
		"":                              {},
		"team=payments":                 {"team": "payments"},
		"a=1, b=2":                      {"a": "1", "b": "2"},
		"url=https://x/y?=1":            nil, // tags cannot contain a question mark
		"path=a/b:c@d+e_f.g-h i=j":      {"path": "a/b:c@d+e_f.g-h i=j"},
		"empty=":                        {"empty": ""},
		"Kostenstelle=Zürich":           {"Kostenstelle": "Zürich"},
		"team":                          nil,
		"=x":                            nil,
		"a=1,":                          nil,
		"a=1,a=2":                       nil,
		"aws:team=x":                    nil,
		"AWS:team=x":                    nil,
		strings.Repeat("a", 129):        nil,
		many(51):                        nil,
		"a=" + strings.Repeat("x", 257): nil,
	} {
		d, err := deployment(map[string]string{"tags": text})
		if (err == nil) != (want != nil) {
			t.Errorf("%q: %v", text, err)
		}
		if err == nil && !maps.Equal(d.Tags, want) {
			t.Errorf("%q: %v, want %v", text, d.Tags, want)
		}
	}
	if d, err := deployment(map[string]string{"tags": many(50)}); err != nil || len(d.Tags) != 50 {
		t.Errorf("50 tags: %v, %v", d.Tags, err)
	}
}

func TestPermissionsBoundaryIsANameOrAnARN(t *testing.T) {
	for text, ok := range map[string]bool{
		"": true, "payments-boundary": true, "teams/payments": true, "arn:aws:iam::123456789012:policy/payments": true,
		"arn:aws-cn:iam::123456789012:policy/teams/payments": true, "arn:aws:iam::aws:policy/PowerUserAccess": true,
		"a b": false, "arn:aws:iam::123456789012:role/payments": false, "arn:aws:s3:::payments": false,
		"payments/": false,
	} {
		if d, err := deployment(map[string]string{"permissionsBoundary": text}); (err == nil) != ok ||
			ok && d.PermissionsBoundary != text {
			t.Errorf("%q: %q, %v", text, d.PermissionsBoundary, err)
		}
	}
}

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
		{a, b + ";" + a, "", "furtherEncryptionKeys: must not have " + a + " again"},
		{"aws", a + ";" + a, "", "furtherEncryptionKeys: must not have " + a + " again"},
		{a, other, "", "furtherEncryptionKeys: must name keys of one Region, that of the stack; " + other + " is not in eu"},
		{"aws", a + ";" + other, "", "furtherEncryptionKeys: must name keys of one Region"},
	} {
		conf := map[string]string{"encryption": c.encryption, "furtherEncryptionKeys": c.further, "ledgerTable": c.ledger}
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
