package settings_test

import (
	"maps"
	"slices"
	"strconv"
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
		{"alarmUnauthenticated", "0", "1", "1000000", "1000001", nil},
		{"captureRejected", "59s", "1m", "168h", "168h1s", nil},
		{"logRetentionDays", "0", "1", "3653", "3654", nil},
	} {
		for value, valid := range map[string]bool{
			test.below: false, test.least: true, test.most: true, test.above: false, "x": false, "": false,
			"99999999999999999999": false,
		} {
			if value == "" && strings.HasSuffix(test.key, "Concurrency") {
				continue // none is reserved
			}
			change := map[string]string{}
			maps.Copy(change, test.with)
			change[test.key] = value
			want := 1
			if valid {
				want = 0
			}
			if got := problemsOf(test.key, change); len(got) < want || valid && len(got) > 0 {
				t.Errorf("%s=%q: %q", test.key, value, got)
			}
		}
	}
}

// A problem names what is allowed, and an example.
func TestProblemsNameWhatIsAllowed(t *testing.T) {
	for key, want := range map[string]string{
		"successStatus":       "must be a whole number from 200 to 299",
		"keyFreshness":        "must be a duration from 1m0s to 720h0m0s",
		"captureRejected":     "must be a duration from 1m0s to 168h0m0s, or off",
		"claimRetention":      "must be whole days from 15d to 36500d, or never",
		"tracing":             "must be false or true",
		"deduplicationWindow": "must be a duration from 1m0s to 87600h0m0s",
		"logRetentionDays": "must be one of 1 3 5 7 14 30 60 90 120 150 180 365 400 545 731 1096 1827 2192 2557 2922 " +
			"3288 3653",
	} {
		got := problemsOf(key, map[string]string{key: "1x"})
		if len(got) != 1 || !strings.HasPrefix(got[0], key+": "+want+" (") {
			t.Errorf("%q, want %s", got, want)
		}
	}
	got := problemsOf("deduplicationWindow", map[string]string{"deduplicationWindow": "1m"})
	const sum = "which is twice timestampTolerance plus webhookTimeout and a second"
	if len(got) != 1 || !strings.Contains(got[0], sum) {
		t.Errorf("%q", got)
	}
}

// Each wrong part of a list is one problem of the list.
func TestAListIsReportedOnce(t *testing.T) {
	for key, value := range map[string]string{"keyExponents": "2,4,x", "scopes": "é ü"} {
		if got := problemsOf(key, map[string]string{key: value}); len(got) != 1 {
			t.Errorf("%q", got)
		}
	}
}

func TestCapturingHasAnEffectWithSignaturesAlone(t *testing.T) {
	for value, want := range map[string]time.Duration{settings.Off: 0, "48h": 48 * time.Hour} {
		if d, err := deployment(map[string]string{"captureRejected": value}); err != nil || d.CaptureRejected != want {
			t.Errorf("%s: %s, %v", value, d.CaptureRejected, err)
		}
	}
	for authentication, problems := range map[string]int{"signature": 0, "mtls": 1, "both": 0} {
		for value, count := range map[string]int{settings.Off: 0, "48h": problems} {
			if got := problemsOf("captureRejected", map[string]string{"captureRejected": value,
				"authentication": authentication}); len(got) != count {
				t.Errorf("%s, %s: %q", authentication, value, got)
			}
		}
	}
}

func TestSwitchesAreTrueOrFalse(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false} {
		d, err := deployment(map[string]string{"protectBus": value, "tracing": value})
		if err != nil || d.Tracing != want || d.ProtectBus != want {
			t.Errorf("%s: %+v, %v", value, d, err)
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

func TestChoicesAreNamedInTheirOrder(t *testing.T) {
	for key, want := range map[string]string{
		"authentication": "signature or mtls or both", "credentialEncoding": "literal or form",
		"keysAuth":   "none or bearer",
		"deployment": "all-at-once or canary",
	} {
		if got := problemsOf(key, map[string]string{key: "other"}); len(got) != 1 ||
			!strings.HasPrefix(got[0], key+": must be "+want+" (") {
			t.Errorf("%q", got)
		}
	}
}

func TestKeyExponentsAreAList(t *testing.T) {
	for text, valid := range map[string]bool{
		"3": true, "3,5": true, "3, 65537": true, "3,": false, "4": false, "3,4": false, "-3": false, "x": false,
		"1,3": false, "2": false,
	} {
		if got := problemsOf("keyExponents", map[string]string{"keyExponents": text}); len(got) != map[bool]int{true: 0,
			false: 1}[valid] {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestCanaryIsAChoice(t *testing.T) {
	for value, want := range map[string]bool{settings.AllAtOnce: false, settings.Canary: true} {
		if d, err := deployment(map[string]string{"deployment": value}); err != nil || d.Canary != want {
			t.Errorf("%s: %t, %v", value, d.Canary, err)
		}
	}
}

// AWS, PutRetentionPolicy in the CloudWatch Logs API reference: the number of days.
func TestLogsAreKeptForTheDaysThatCloudWatchKnows(t *testing.T) {
	known := []int{1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922,
		3288, 3653}
	for days := range 4000 {
		got := problemsOf("logRetentionDays", map[string]string{"logRetentionDays": strconv.Itoa(days)})
		if valid := slices.Contains(known, days); valid != (len(got) == 0) {
			t.Errorf("%d days: %q", days, got)
		}
	}
}

func TestNoConcurrencyIsReservedByDefault(t *testing.T) {
	d, err := deployment(nil)
	if err != nil || d.Concurrency != 0 {
		t.Errorf("%d, %v", d.Concurrency, err)
	}
}
