package operate

import (
	"encoding/json"
	"strings"
	"testing"
)

const reportedCertificates = `{"certificates":{"authentication":"both","daysLeft":29.5,
	"cas":[{"subject":"CN=Operator CA","issuer":"CN=Operator CA","serialNumber":"a1",
		"fingerprint":"f1","notAfter":"2036-01-31T12:00:00Z"}],
	"pins":["e3b0"],"subjects":["CN=a"],"revoked":["0a@CN=b"],
	"last":{"subject":"CN=hooks","issuer":"CN=Operator CA","serialNumber":"b2","fingerprint":"f2",
		"pin":"e3b0","notAfter":"2026-03-02T00:00:00Z","acceptedAt":"2026-01-30T10:00:00Z"}}}`

func TestCertificatesAreShownWithDaysLeft(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		args   []string
		status int
		want   []string
	}{
		"fewer days than wanted": {reportedCertificates, nil, 1, []string{
			"authentication is both; 29.5 days are left", "CN=Operator CA", "2036-01-31T12:00:00Z", "serial a1",
			"SHA-256 f1", "pin", "e3b0", "subject", "CN=a",
			"revoked", "0a@CN=b", "last accepted", "CN=hooks", "until 2026-03-02T00:00:00Z, 30 days",
			"at 2026-01-30T10:00:00Z",
		}},
		"enough days": {reportedCertificates, []string{"--days", "29"}, 0, []string{"29.5 days are left"}},
		"none accepted": {`{"certificates":{"authentication":"mtls","daysLeft":100,"cas":[{"subject":"CN=c"}]}}`, nil,
			0, []string{"none yet"}},
		"by signature": {`{"certificates":{"authentication":"signature","daysLeft":0,"cas":null}}`, nil, 0,
			[]string{"no client certificate is required"}},
		"an older stack": {`{"found":0}`, nil, 3, nil},
		"no answer":      {`{"errorMessage":"x"}`, nil, 3, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.redrive = func(request) (string, error) { return c.answer, nil }
			out, errText, status := w.operate(append([]string{"certificates"}, c.args...)...)
			if status != c.status {
				t.Errorf("status %d, want %d: %s%s", status, c.status, out, errText)
			}
			for _, text := range c.want {
				if !strings.Contains(out, text) {
					t.Errorf("%q is not in\n%s", text, out)
				}
			}
		})
	}
	w := newWorld(t)
	w.redrive = func(request) (string, error) { return reportedCertificates, nil }
	out, _, status := w.operate("certificates", "--json")
	var got certificates
	if err := json.Unmarshal([]byte(out), &got); err != nil || status != 1 || got.Last == nil ||
		got.Last.Fingerprint != "f2" || got.CAs[0].Subject != "CN=Operator CA" {
		t.Errorf("status %d, %v: %s", status, err, out)
	}
}
