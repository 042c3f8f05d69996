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
