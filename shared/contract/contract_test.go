package contract_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"payhook/shared/contract"
)

// required are the settings that have no default.
var required = map[string]string{
	"baseUrl": "https://api.example/base/", "authUrl": "https://auth.example", "tokenManagerId": "manager-1",
}

func deployment(change map[string]string) (contract.Deployment, error) {
	context := maps.Clone(required)
	maps.Copy(context, change)
	return contract.ParseDeployment(func(key string) (string, bool) {
		v, ok := context[key]
		return v, ok
	}, slices.Collect(maps.Keys(context)))
}

func TestTheDefaultsAreADeployment(t *testing.T) {
	d, err := deployment(nil)
	if err != nil {
		t.Fatal(err)
	}
	w := d.Webhook
	if w.BaseURL.String() != "https://api.example/base" || w.HTTPMethod != "POST" || w.SuccessStatus != 200 || w.MaxPayloadBytes != 6<<20 ||
		w.Window == nil || w.Window.Tolerance != 5*time.Minute || w.KeyFreshness != time.Hour || w.KeyMaxAge != 24*time.Hour ||
		w.UnknownKeyTTL != time.Minute || w.KeyMissBudget != 60 || w.DeduplicationWindow != 30*24*time.Hour ||
		w.Scheme.SignatureHeader != "X-SVC-Signature" || w.Scheme.Timestamp.String() != "header:X-SVC-Timestamp" || w.Scheme.KeyID.String() != "header:X-SVC-Key-Id" {
		t.Errorf("got %+v", w)
	}
}

// What the deployment accepts, the functions accept, and read alike.
func TestAFunctionReadsWhatTheDeploymentRead(t *testing.T) {
	d, err := deployment(map[string]string{"timestampTolerance": "off", "deduplicationWindow": "7d", "keyExponents": "3,65537"})
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		contract.LedgerTableEnv: "ledger", contract.KeysTableEnv: "keys",
		contract.ClaimBucketEnv: "claims", contract.ParkingBucketEnv: "parking",
	}
	for _, s := range append(contract.WebhookSettings(), contract.RedriveSettings()...) {
		env[s.Env()] = d.Value(s)
	}
	getenv := func(name string) string { return env[name] }
	w, err := contract.ParseWebhook(getenv)
	if err != nil {
		t.Fatal(err)
	}
	if w.Window != nil || w.DeduplicationWindow != 7*24*time.Hour || !slices.Equal(w.KeyExponents, []int{3, 65537}) || w.LedgerTable != "ledger" ||
		w.ClaimBucket != "claims" || w.ParkingBucket != "parking" {
		t.Errorf("got %+v", w)
	}
	r, err := contract.ParseRedrive(getenv)
	if err != nil || r.Publishing != w.Publishing || r.Timeout != 55*time.Second {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestEveryWrongSettingIsReportedAtOnce(t *testing.T) {
	wrong := map[string]string{
		"baseUrl": "http://api.example", "authUrl": "", "tokenManagerId": " ", "authentication": "mtls",
		"signatureHeader": "a b", "timestampCarrier": "cookie:x", "keyIdCarrier": "static:x", "timestampFormat": "iso", "timestampTolerance": "-1s",
		"httpMethod": "post", "successStatus": "301", "maxPayloadBytes": "7000000",
		"keyExponents": "4", "keyFreshness": "1", "keyMaxAge": "x", "unknownKeyTtl": "0s", "keyMissBudget": "0", "keyTimeout": "1h",
		"deduplicationWindow": "1.5d", "eventSource": "aws.payments", "eventBusName": "a/b", "maxEntryBytes": "10", "claimCheckBytes": "1", "redriveAttempts": "0", "claimRetention": "36h", "parkedRetention": "14d",
		"webhookTimeout": "1500ms", "redriveTimeout": "1h", "redriveGrace": "0s", "webhookMemory": "64", "webhookConcurrency": "0",
		"logRetentionDays": "2", "alarmEmail": "Ops <ops@payments.example>", "alarmUnauthenticated": "0", "stackName": "1", "local": "yes",
		"protectBus": "no", "accessLogs": "all", "tracing": "Active", "redriveConcurrency": "0", "tokenConcurrency": "x",
		"tags": "team", "permissionsBoundary": "a b", "bootstrapQualifier": "more than ten", "baseURL": "a key that does not exist",
	}
	_, err := deployment(wrong)
	if err == nil {
		t.Fatal("no error")
	}
	for key := range wrong {
		if !strings.Contains(err.Error(), key+": ") {
			t.Errorf("%s is not reported", key)
		}
	}
	if !strings.Contains(err.Error(), "example: ") {
		t.Error("no example is given")
	}
}

func TestURLs(t *testing.T) {
	for url, ok := range map[string]bool{
		"https://api.example": true, "https://api.example:8443/a/b": true, "http://127.0.0.1:8080": true, "http://localhost:1": true, "http://[::1]:80/x": true,
		"http://api.example": false, "http://127.0.0.1.example": false, "ftp://api.example": false, "https://": false, "api.example": false,
		"https://user:pass@api.example": false, "https://api.example?a=b": false, "https://api.example/?": false, "https://api.example#x": false, "": false,
	} {
		if _, err := deployment(map[string]string{"baseUrl": url}); (err == nil) != ok {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestAnAlarmGoesToAnAddressOrToNobody(t *testing.T) {
	for address, ok := range map[string]bool{
		"": true, "ops@payments.example": true, "payments+alarms@mail.payments.example": true,
		"ops": false, "ops@localhost": false, "ops@payments.example, cto@payments.example": false, "<ops@payments.example>": false, " ops@payments.example": false,
	} {
		d, err := deployment(map[string]string{"alarmEmail": address})
		if (err == nil) != ok || err == nil && d.AlarmEmail != address {
			t.Errorf("%q: %q, %v", address, d.AlarmEmail, err)
		}
	}
}

func TestAKeyIsNotUsedLongerThanItIsFresh(t *testing.T) {
	if _, err := deployment(map[string]string{"keyFreshness": "2h", "keyMaxAge": "1h"}); err == nil || !strings.Contains(err.Error(), "keyMaxAge: must not be shorter than keyFreshness") {
		t.Errorf("got %v", err)
	}
}

func TestAMissingEnvironmentIsReportedAtOnce(t *testing.T) {
	_, err := contract.ParseWebhook(func(string) string { return "" })
	for _, s := range contract.WebhookSettings() {
		if s.Default != "" && !strings.Contains(err.Error(), s.Env()+": ") {
			t.Errorf("%s is not reported", s.Env())
		}
	}
	for _, name := range []string{contract.LedgerTableEnv, contract.KeysTableEnv, contract.ClaimBucketEnv, contract.ParkingBucketEnv} {
		if !strings.Contains(err.Error(), name+": is required") {
			t.Errorf("%s is not reported", name)
		}
	}
	// Without its buckets, a function would start and refuse what it can't keep.
	_, err = contract.ParseRedrive(func(string) string { return "" })
	for _, name := range []string{contract.LedgerTableEnv, contract.ClaimBucketEnv, contract.ParkingBucketEnv} {
		if !strings.Contains(err.Error(), name+": is required") {
			t.Errorf("redrive: %s is not reported", name)
		}
	}
}

func TestObjectsAreKeptForWholeDaysOrWithoutEnd(t *testing.T) {
	for text, want := range map[string]int{"never": 0, "15d": 15, "365d": 365, "3653d": 3653, "48000h": 2000} {
		d, err := deployment(map[string]string{"claimRetention": text, "parkedRetention": text})
		if err != nil || d.ClaimRetention != want || d.ParkedRetention != want {
			t.Errorf("%s: %d and %d days, %v", text, d.ClaimRetention, d.ParkedRetention, err)
		}
	}
	// SQS keeps a reference for up to 14 days.
	for _, text := range []string{"", "0", "0d", "14d", "361h", "36501d", "-20d", "forever"} {
		if _, err := deployment(map[string]string{"claimRetention": text}); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	d, err := deployment(nil)
	if err != nil || d.ClaimRetention != 365 || d.ParkedRetention != 0 {
		t.Errorf("by default %d and %d days, %v", d.ClaimRetention, d.ParkedRetention, err)
	}
}

func TestEverySettingIsDocumented(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range contract.All() {
		if seen[s.Key] || s.Meaning == "" || s.Example == "" || s.Required && s.Default != "" {
			t.Errorf("%s: %+v", s.Key, s)
		}
		seen[s.Key] = true
	}
	if got := contract.UnknownKeyTTL.Env(); got != "PAYHOOK_UNKNOWN_KEY_TTL" {
		t.Errorf("got %s", got)
	}
}
