package settings_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"payhook.example/shared/settings"
)

// problemsOf returns the problems of one setting.
func problemsOf(key string, change map[string]string) (lines []string) {
	_, err := deployment(change)
	for _, line := range problems(err) {
		if strings.HasPrefix(line, key+": ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func TestSettingsHaveLimits(t *testing.T) {
	for _, test := range []struct {
		key                       string
		below, least, most, above string
		with                      map[string]string // settings that the extremes need
	}{
		{"successStatus", "199", "200", "299", "300", nil},
		{"maxPayloadBytes", "0", "1", "6291456", "6291457", nil},
		{"keyExponents", "1", "3", "2147483647", "2147483649", nil},
		{"keyFreshness", "59s", "1m", "720h", "720h1s", map[string]string{"keyMaxAge": "90d"}},
		{"keyMaxAge", "59s", "1m", "90d", "2160h1s", map[string]string{"keyFreshness": "1m"}},
		{"keyUnknownGrace", "999ms", "1s", "24h", "24h1s", nil},
		{"unknownKeyTtl", "999ms", "1s", "1h", "1h1s", nil},
		{"keyMissBudget", "0", "1", "1000000", "1000001", nil},
		{"webhookTimeout", "3s", "4s", "15m", "901s", nil},
		{"claimCheckBytes", "1023", "1024", "408576", "408577", nil},
		{"deduplicationWindow", "59s", "1m", "3650d", "87600h1s", map[string]string{"timestampTolerance": "1s"}},
		{"timestampTolerance", "999ms", "1s", "24h", "24h1s", nil},
		{"claimRetention", "14d", "15d", "36500d", "36501d", map[string]string{"archiveRetention": "off"}},
		{"archiveRetention", "0d", "1d", "36500d", "36501d", map[string]string{"claimRetention": "never"}},
		{"parkedRetention", "14d", "15d", "36500d", "36501d", nil},
		{"webhookConcurrency", "0", "1", "100000", "100001", nil},
		{"throttleRate", "0", "1", "10000", "10001", nil},
		{"alarmRefused", "0", "1", "1000000", "1000001", nil},
		{"captureRejected", "59s", "1m", "168h", "168h1s", nil},
		{"logRetentionDays", "0", "1", "3653", "3654", nil},
		// Names have as many characters as AWS allows.
		{"eventBusName", "a/b", "b", strings.Repeat("b", 256), strings.Repeat("b", 257), nil},
		{"eventSource", "a b", "s", strings.Repeat("s", 256), strings.Repeat("s", 257), nil},
		{"stackName", "1", "A", strings.Repeat("A", 100), strings.Repeat("A", 101), nil},
	} {
		for value, valid := range map[string]bool{
			test.below: false, test.least: true, test.most: true, test.above: false, "\n": false,
		} {
			change := maps.Clone(test.with)
			if change == nil {
				change = map[string]string{}
			}
			change[test.key] = value
			if got := problemsOf(test.key, change); valid != (len(got) == 0) {
				t.Errorf("%s=%q: %q", test.key, value, got)
			}
		}
	}
}

func TestTextsHaveForms(t *testing.T) {
	for key, c := range map[string]struct{ valid, invalid []string }{
		"archiveRetention": {[]string{"off", "48h"}, []string{"", "0", "never", "36h", "-1d"}},
		"claimRetention":   {[]string{"never", "48000h"}, []string{"", "0", "361h", "-20d", "forever"}},
		"keyExponents":     {[]string{"3;5", "3; 65537"}, []string{"3;", "4", "3;4", "3,5", "-3", "x", "1;3", ""}},
		"alarmSilence":     {[]string{"off", "6h", "7d"}, []string{"", "30m", "90m", "169h"}},
		"httpMethod":       {[]string{"POST", "PUT", "PATCH"}, []string{"", "post", "BREW", "GET", "DELETE"}},
		"keyFreshness":     {nil, []string{"", "x", "99999999999999999999"}},
		"keyMissBudget":    {nil, []string{"", "x", "99999999999999999999"}},
		"webhookTimeout":   {[]string{"12000ms"}, []string{"12500ms", "12s1ns"}},
		"logRetentionDays": {[]string{"365", "400", "545"}, []string{"", "2", "364", "10000"}},
		"scopes":           {[]string{"", " ! #[]~ "}, []string{`a"`, `a\`, "é", "a\x7f"}},
		"captureRejected":  {[]string{"off"}, []string{"", "never"}},
		"eventSource":      {[]string{"aws/x"}, []string{"aws.payments", ""}},
		"eventBusName":     {[]string{"default-payments"}, []string{"default", ""}},
		"domainName": {nil, []string{"a", "a.B", "a..b", "-a.b", "a-.b", "a.b:443", strings.Repeat("a", 64) +
			".b"}},
		"allowedSources": {[]string{"", "0.0.0.0/0", "::/0", "192.0.2.1/32; 198.51.100.0/24;2001:db8::/32"},
			[]string{",", "192.0.2.0/24,198.51.100.0/24", "192.0.2.1/24", "2001:db8::1/32",
				"192.0.2.0/33", "192.0.2.0", "192.0.2/24", "::ffff:192.0.2.0/120", "fe80::%eth0/64", "x",
				"192.0.2.0/24;192.0.2.0/24", "192.0.2.0/24;192.0.2.128/25", "2001:db8:1::/48;2001:db8::/32",
				"0.0.0.0/0;192.0.2.0/24", "2001:db8::/32;0.0.0.0/0", "0.0.0.0/0;2001:db8::/32", "0.0.0.0/0;::/0"}},
		"alarmEmail": {[]string{"", "payments+alarms@mail.payments.example"}, []string{"ops", "ops@localhost",
			"a@b.example, c@d.example", "<a@b.example>", "Ops <a@b.example>", " a@b.example"}},
		"authUrl": {[]string{"https://api.example:8443/a/b", "http://127.0.0.1:8080", "http://localhost:1",
			"http://[::1]:80/x", "https://10.0.0.1", "http://127.9.9.9"},
			[]string{"http://api.example", "http://127.0.0.1.example", "ftp://api.example", "https://", "https://:8443",
				"https://[::1", "https:api.example", "ftp://127.0.0.1", "api.example", "http://10.0.0.1",
				"http://[fd00::1]", "http://0.0.0.0", "https://user:pass@api.example", "https://api.example?a=b",
				"https://api.example/?", "https://api.example#x", ""}},
	} {
		for _, text := range slices.Concat(c.valid, c.invalid) {
			got := problemsOf(key, map[string]string{key: text})
			if valid := slices.Contains(c.valid, text); valid && len(got) > 0 || !valid && len(got) != 1 {
				t.Errorf("%s=%q: %q", key, text, got)
			}
		}
	}
}

func TestTextsBecomeValues(t *testing.T) {
	for key, c := range map[string]struct {
		value func(settings.Deployment) any
		texts map[string]any
	}{
		"archiveRetention": {func(d settings.Deployment) any { return d.ArchiveRetention },
			map[string]any{"off": 0, "30d": 30, "48h": 2}},
		"claimRetention": {func(d settings.Deployment) any { return d.ClaimRetention },
			map[string]any{"never": 0, "365d": 365, "48000h": 2000}},
		"parkedRetention": {func(d settings.Deployment) any { return d.ParkedRetention },
			map[string]any{"never": 0, "15d": 15}},
		"captureRejected": {func(d settings.Deployment) any { return d.CaptureRejected },
			map[string]any{"off": time.Duration(0), "48h": 48 * time.Hour}},
		"webhookConcurrency": {func(d settings.Deployment) any { return d.Concurrency },
			map[string]any{"": 0, "7": 7}},
		"throttleRate": {func(d settings.Deployment) any { return d.Endpoint.ThrottleBurst },
			map[string]any{"100": 200, "2500": 5000, "2501": 5000}},
		"deployment": {func(d settings.Deployment) any { return d.Canary },
			map[string]any{"all-at-once": false, "canary": true}},
		"protectBus": {func(d settings.Deployment) any { return d.ProtectBus },
			map[string]any{"true": true, "false": false}},
		"tracing": {func(d settings.Deployment) any { return d.Tracing },
			map[string]any{"true": true, "false": false}},
		"baseUrl": {func(d settings.Deployment) any { return d.Webhook.BaseURL.String() },
			map[string]any{"https://a.example/b%2Fc/": "https://a.example/b/c"}},
		"keyExponents": {func(d settings.Deployment) any { return len(d.Webhook.KeyExponents) },
			map[string]any{"3; 65537": 2}},
	} {
		for text, want := range c.texts {
			d, err := deployment(map[string]string{key: text})
			if err != nil || c.value(d) != want {
				t.Errorf("%s=%q: %v, want %v, %v", key, text, c.value(d), want, err)
			}
		}
	}
}

// A variable without a value must not remove a restriction.
func TestNoElementOfAListIsEmpty(t *testing.T) {
	for _, s := range settings.All() {
		if s.Separator != ";" {
			continue
		}
		one, _, _ := strings.Cut(s.Example, ";")
		for text, want := range map[string]string{" ": "element 1", ";" + one: "element 1", one + "; ": "element 2"} {
			got := problemsOf(s.Key, map[string]string{s.Key: text, "authentication": "both"})
			if len(got) != 1 || !strings.HasPrefix(got[0], s.Key+": "+want+" is empty") {
				t.Errorf("%s=%q: %q", s.Key, text, got)
			}
		}
	}
}

// A problem names what is allowed, and an example.
func TestProblemsNameWhatIsAllowed(t *testing.T) {
	for key, want := range map[string]string{
		"successStatus":       "must be a whole number from 200 to 299 (example: 202)",
		"keyFreshness":        "must be a duration from 1m0s to 720h0m0s (",
		"captureRejected":     "must be a duration from 1m0s to 168h0m0s, or off (",
		"claimRetention":      "must be whole days from 15d to 36500d, or never (",
		"tracing":             "must be false or true (",
		"deduplicationWindow": "must be a duration from 1m0s to 87600h0m0s (",
		"authentication":      "must be signature or mtls or both (",
		"credentialEncoding":  "must be literal or form (",
		"keysAuth":            "must be none or bearer (",
		"deployment":          "must be all-at-once or canary (",
		"alarmSilence=90m":    "must be whole hours, or off (",
		"webhookTimeout=4.5s": "must be whole seconds (",
		"logRetentionDays": "must be one of 1 3 5 7 14 30 60 90 120 150 180 365 400 545 731 1096 1827 2192 2557 2922 " +
			"3288 3653 (",
	} {
		key, value, ok := strings.Cut(key, "=")
		if !ok {
			value = "1x"
		}
		got := problemsOf(key, map[string]string{key: value})
		if len(got) != 1 || !strings.HasPrefix(got[0], key+": "+want) {
			t.Errorf("%q, want %s", got, want)
		}
	}
}

func TestParseDurationReadsDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0d": 0, "30d": 720 * time.Hour, "65535d": 65535 * 24 * time.Hour, "36h": 36 * time.Hour,
	} {
		if got, err := settings.ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "-1d", "1.5d", "65536d", "1h1d", "1"} {
		if got, err := settings.ParseDuration(text); err == nil {
			t.Errorf("%q: %s", text, got)
		}
	}
}
