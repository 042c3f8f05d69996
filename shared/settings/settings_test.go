package settings_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

// required are the settings that have no default.
var required = map[string]string{
	"baseUrl": "https://api.example/base/", "authUrl": "https://auth.example", "tokenManagerId": "manager-1",
}

func deployment(change map[string]string) (settings.Deployment, error) {
	context := maps.Clone(required)
	maps.Copy(context, change)
	local := context[settings.LocalKey] == "true"
	delete(context, settings.LocalKey)
	name := context["stackName"]
	if name == "" {
		name = settings.StackName.Default
	}
	return settings.ParseDeployment(settings.Given{Texts: context, Local: local, Deployment: name})
}

func TestDefaultsAreValid(t *testing.T) {
	d, err := deployment(nil)
	if err != nil {
		t.Fatal(err)
	}
	w := d.Webhook
	if w.BaseURL.String() != "https://api.example/base" || w.MaxPayloadBytes != 6<<20 || w.Window == nil ||
		w.Window.Tolerance != 5*time.Minute || w.KeyMaxAge != 24*time.Hour {
		t.Errorf("got %+v", w)
	}
}

// environment returns the environment that a deployment with these settings
// gives its functions.
func environment(t *testing.T, change map[string]string) map[string]string {
	t.Helper()
	d, err := deployment(change)
	if err != nil {
		t.Fatal(err)
	}
	return environmentOf(d)
}

func environmentOf(d settings.Deployment) map[string]string {
	env := map[string]string{
		names.LedgerTableEnv: "ledger", names.KeysTableEnv: "keys",
		names.ClaimBucketEnv: "claims", names.ParkingBucketEnv: "parking",
	}
	for _, s := range append(settings.WebhookSettings(), settings.RedriveSettings()...) {
		env[s.Env()] = d.Value(s)
	}
	return env
}

// The functions must accept what the deployment accepts, with the same result.
func TestFunctionsParseSettingsAsTheDeploymentDoes(t *testing.T) {
	d, err := deployment(map[string]string{"timestampTolerance": "off", "deduplicationWindow": "7d",
		"keyExponents": "3;65537"})
	if err != nil {
		t.Fatal(err)
	}
	env := environmentOf(d)
	getenv := func(name string) string { return env[name] }
	w, err := settings.ParseWebhook(getenv)
	if err != nil {
		t.Fatal(err)
	}
	if w.Window != nil || w.DeduplicationWindow != 7*24*time.Hour || !slices.Equal(w.KeyExponents, []int{3, 65537}) ||
		w.LedgerTable != "ledger" ||
		w.ClaimBucket != "claims" || w.ParkingBucket != "parking" {
		t.Errorf("got %+v", w)
	}
	r, err := settings.ParseRedrive(getenv)
	if err != nil || r.Publishing != w.Publishing {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestParseDeploymentReportsEveryInvalidSetting(t *testing.T) {
	wrong := map[string]string{
		"baseUrl": "http://api.example", "authUrl": "", "tokenManagerId": " ", "authentication": "tls",
		"signatureHeader": "a b", "timestampCarrier": "cookie:x", "keyIdCarrier": "static:x", "timestampFormat": "iso",
		"timestampTolerance": "-1s",
		"httpMethod":         "post", "successStatus": "301", "maxPayloadBytes": "7000000",
		"keyExponents": "4", "keyFreshness": "1", "keyMaxAge": "x", "unknownKeyTtl": "0s", "keyMissBudget": "0",
		"deduplicationWindow": "1.5d", "eventSource": "aws.payments", "eventBusName": "a/b",
		"claimCheckBytes": "1", "claimRetention": "36h", "parkedRetention": "14d",
		"archiveRetention":   "36h",
		"webhookTimeout":     "1500ms",
		"webhookConcurrency": "0",
		"logRetentionDays":   "2", "alarmEmail": "Ops <ops@payments.example>", "alarmRefused": "0",
		"stackName": "1", "deployment": "blue-green", "ledgerTable": "a/b", "claimBucket": "Claims",
		"parkingBucket": "p",
		"protectBus":    "no", "encryption": "kms", "tracing": "Active",
		"baseURL":                 "a key that does not exist",
		"payhook:redriveAttempts": "1", "payhook:redriveGrace": "1s", "payhook:redriveTimeout": "5s",
		// without local=true
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

func TestParseProofReadsNoOtherSetting(t *testing.T) {
	texts := map[string]string{settings.BaseURL.Key: "https://api.payments.example"}
	want, err := settings.ParseProof(texts)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range settings.All() {
		if !slices.Contains(settings.ProofSettings(), s) {
			texts[s.Key] = "invalid"
		}
	}
	if got, err := settings.ParseProof(texts); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// Each setting is valid by itself.
func TestRejectsContradictorySettings(t *testing.T) {
	for name, test := range map[string]struct {
		settings map[string]string
		want     []string // parts of the error; none for valid combinations
	}{
		// Accepted 5 minutes early, repeated 5 minutes late.
		"forgotten before it is too old": {map[string]string{"deduplicationWindow": "10m30s"},
			[]string{"deduplicationWindow: must be at least 10m31s", "timestampTolerance", "webhookTimeout"}},
		"forgotten when it is too old": {map[string]string{"deduplicationWindow": "10m31s"}, nil},
		"a long tolerance": {map[string]string{"timestampTolerance": "24h", "deduplicationWindow": "1d"},
			[]string{"deduplicationWindow: must be at least 48h0m31s", "timestampTolerance"}},
		"a long timeout": {map[string]string{"webhookTimeout": "2m", "deduplicationWindow": "11m"},
			[]string{"deduplicationWindow: must be at least 12m1s", "webhookTimeout"}},
		"no tolerance": {map[string]string{"timestampTolerance": "off", "deduplicationWindow": "1m"},
			nil},
		"references outlive events": {map[string]string{"claimRetention": "34d", "archiveRetention": "20d"},
			[]string{"claimRetention: must be at least 35d", "archiveRetention"}},
		"references live as long": {map[string]string{"claimRetention": "34d", "archiveRetention": "19d"}, nil},
		"a day and an hour of attempts": {map[string]string{settings.LocalKey: "true",
			"payhook:redriveAttempts": "25", "claimRetention": "45d"},
			[]string{"claimRetention: must be at least 46d"}},
		"a day of attempts": {map[string]string{settings.LocalKey: "true",
			"payhook:redriveAttempts": "24", "claimRetention": "45d"}, nil},
		"events are kept without end": {map[string]string{"claimRetention": "never",
			"archiveRetention": "36500d"}, nil},
		"a key is older than it can be": {map[string]string{"keyFreshness": "2h", "keyMaxAge": "1h"},
			[]string{"keyMaxAge: must not be shorter than keyFreshness"}},
		"nothing to explain": {map[string]string{"captureRejected": "1h", "authentication": "mtls"},
			[]string{"captureRejected: must be off, as authentication is mtls"}},
		"a lock of nothing": {map[string]string{"evidenceLock": "governance"},
			[]string{"evidenceLock: has no effect without evidence"}},
		"a lock of evidence": {map[string]string{"evidenceLock": "governance", "evidence": "7y"}, nil},
		"one header for two things": {map[string]string{"timestampCarrier": "header:X-Proof",
			"keyIdCarrier": "header:x-proof"},
			[]string{"keyIdCarrier: must differ from timestampCarrier"}},
		"the signature's header again": {map[string]string{"timestampCarrier": "header:x-svc-signature"},
			[]string{"timestampCarrier: must differ from signatureHeader"}},
		"one parameter for two things": {map[string]string{"timestampCarrier": "query:p", "keyIdCarrier": "query:p"},
			[]string{"keyIdCarrier: must differ from timestampCarrier"}},
		"a header and a parameter": {map[string]string{"timestampCarrier": "query:p",
			"keyIdCarrier": "header:p"}, nil},
		"two parameters": {map[string]string{"timestampCarrier": "query:p", "keyIdCarrier": "query:P"},
			nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := deployment(test.settings)
			if (err == nil) != (test.want == nil) {
				t.Fatal(err)
			}
			for _, text := range test.want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q is not in: %v", text, err)
				}
			}
		})
	}
}

func TestReportsNoContradictionWithAnInvalidSetting(t *testing.T) {
	for _, invalid := range []map[string]string{
		{"webhookTimeout": "x", "deduplicationWindow": "1m"},
		{settings.LocalKey: "true", "payhook:redriveAttempts": "9000"},
		{"timestampCarrier": "cookie:x", "keyIdCarrier": "cookie:x"},
		{"timestampTolerance": "48h", "deduplicationWindow": "1m"},
	} {
		_, err := deployment(invalid)
		text := fmt.Sprint(err)
		for _, contradiction := range []string{"must differ", "must be at least", "must be less", "must be shorter"} {
			if err == nil || strings.Contains(text, contradiction) {
				t.Errorf("%v: %v", invalid, err)
			}
		}
	}
}

// A function must start with the environment of an older template.
func TestFunctionsAcceptContradictorySettings(t *testing.T) {
	env := environment(t, nil)
	env[settings.DeduplicationWindow.Env()] = "1m"
	if _, err := settings.ParseWebhook(func(name string) string { return env[name] }); err != nil {
		t.Error(err)
	}
}

func TestMaxEntryBytesDependsOnTheRegion(t *testing.T) {
	for _, test := range []struct {
		region string
		want   int
	}{
		{"eu-central-1", 1048576}, {"us-gov-west-1", 1048576}, {"", 1048576}, {"cn-north-1", 262144},
		{"cn-northwest-1", 262144},
	} {
		env := environment(t, nil)
		env["AWS_REGION"] = test.region
		getenv := func(name string) string { return env[name] }
		w, err := settings.ParseWebhook(getenv)
		r, redriveErr := settings.ParseRedrive(getenv)
		if err != nil || redriveErr != nil || w.MaxEntryBytes != test.want || r.MaxEntryBytes != test.want {
			t.Errorf("%v: %d and %d, %v, %v", test, w.MaxEntryBytes, r.MaxEntryBytes, err, redriveErr)
		}
	}
}

// parsers are how the functions read their environments.
var parsers = map[string]struct {
	settings  []*settings.Setting
	resources []string
	parse     func(getenv func(string) string) (any, error)
}{
	"webhook": {
		settings.WebhookSettings(),
		[]string{names.LedgerTableEnv, names.KeysTableEnv, names.ClaimBucketEnv, names.ParkingBucketEnv},
		func(getenv func(string) string) (any, error) { return settings.ParseWebhook(getenv) },
	},
	"redrive": {
		settings.RedriveSettings(),
		[]string{names.LedgerTableEnv, names.ClaimBucketEnv, names.ParkingBucketEnv},
		func(getenv func(string) string) (any, error) { return settings.ParseRedrive(getenv) },
	},
	"token": {
		settings.TokenSettings(),
		[]string{names.TokenSecretEnv, names.CredentialsSecretEnv},
		func(getenv func(string) string) (any, error) { return settings.ParseToken(getenv) },
	},
}

func TestOnlyResourcesAndRequiredSettingsHaveNoDefault(t *testing.T) {
	for function, p := range parsers {
		needed := slices.Clone(p.resources)
		for _, s := range p.settings {
			if s.Required || s == settings.EventBusName {
				needed = append(needed, s.Env())
			}
		}
		_, err := p.parse(func(string) string { return "" })
		if err == nil {
			t.Fatalf("%s starts with an empty environment", function)
		}
		for _, name := range needed {
			if !strings.Contains(err.Error(), name+": is required") {
				t.Errorf("%s: %s is not reported", function, name)
			}
		}
		if n := strings.Count(err.Error(), "PAYHOOK_"); n != len(needed) {
			t.Errorf("%s: %d problems, want %d:\n%v", function, n, len(needed), err)
		}
	}
}

// Lambda updates code and configuration in two calls: new code can run with the
// environment of a template that does not define its newest setting.
func TestMissingVariableMeansTheDefault(t *testing.T) {
	for function, p := range parsers {
		full := map[string]string{"PAYHOOK_A_SETTING_OF_A_LATER_VERSION": "x"}
		for _, name := range p.resources {
			full[name] = "x"
		}
		for _, s := range p.settings {
			full[s.Env()] = s.Default
			if s.Required || s == settings.EventBusName {
				full[s.Env()] = s.Example
			}
		}
		want, err := p.parse(func(name string) string { return full[name] })
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range p.settings {
			if s.Required || s == settings.EventBusName {
				continue
			}
			got, err := p.parse(func(name string) string {
				if name == s.Env() {
					return ""
				}
				return full[name]
			})
			if err != nil {
				t.Errorf("%s without %s: %v", function, s.Env(), err)
			} else if diff := cmp.Diff(want, got, cmp.AllowUnexported(signature.Carrier{})); diff != "" {
				t.Errorf("%s without %s (-with +without)\n%s", function, s.Env(), diff)
			}
		}
	}
}

// The names of existing resources can be unknown until the deployment. Combinations are checked.
func TestFormOfUncheckedTextsIsNotChecked(t *testing.T) {
	given := settings.Given{Texts: map[string]string{"eventBusName": "default", "encryption": "${Token[1]}",
		"hostedZoneId": "${Token[2]}"}, Unchecked: map[string]bool{"eventBusName": true, "encryption": true,
		"hostedZoneId": true}}
	maps.Copy(given.Texts, required)
	d, err := settings.ParseDeployment(given)
	if got := problems(err); len(got) != 1 || !strings.HasPrefix(got[0], "hostedZoneId: needs domainName") ||
		d.Webhook.EventBusName != "default" || d.Encryption != "${Token[1]}" {
		t.Errorf("%+v, %q", d, got)
	}
}

// problemsIn returns the problems of settings in a Region of the account 111122223333.
func problemsIn(region, bus string, texts map[string]string, local bool) []string {
	given := settings.Given{Deployment: "Payhook", Texts: maps.Clone(required), Account: "111122223333",
		Region: region, BusARN: bus, Local: local}
	maps.Copy(given.Texts, texts)
	_, err := settings.ParseDeployment(given)
	return problems(err)
}

func TestRegionsHaveWhatTheStackNeeds(t *testing.T) {
	domain := map[string]string{"domainName": "hook.bank.example", "hostedZoneId": "Z1ABC", "archiveRetention": "off"}
	const missing = "ap-south-2 ap-southeast-4 ap-southeast-5 ap-southeast-6 ap-southeast-7 ca-west-1 cn-north-1 " +
		"cn-northwest-1 eu-central-2 il-central-1 me-central-1 mx-central-1 us-gov-east-1 us-gov-west-1 ap-east-2"
	for _, region := range strings.Fields(missing) {
		got := problemsIn(region, "", nil, false)
		want := []string{"domainName: is required in " + region, "archiveRetention: must be off in ap-east-2"}
		if region != "ap-east-2" {
			want = want[:1]
		}
		if !slices.EqualFunc(got, want, strings.HasPrefix) {
			t.Errorf("%s: %q", region, got)
		}
		if got := slices.Concat(problemsIn(region, "", domain, false), problemsIn(region, "", nil, true)); got != nil {
			t.Errorf("%s, with a domain name or on an emulator: %q", region, got)
		}
	}
	for _, region := range []string{"eu-central-1", "ap-southeast-3", "us-east-1", "${Token[AWS.Region.4]}"} {
		if got := problemsIn(region, "", nil, false); got != nil {
			t.Errorf("%s: %q", region, got)
		}
	}
}

func TestResourcesMustBeWhereTheStackIs(t *testing.T) {
	const here, key = "arn:aws:kms:us-east-1:111122223333:", "key/11111111-2222-3333-4444-555555555555"
	const elsewhere, otherAccount = "arn:aws:kms:eu-west-1:111122223333:", "arn:aws:kms:us-east-1:444455556666:"
	for name, c := range map[string]struct {
		bus   string
		texts map[string]string
		want  []string
	}{
		"here":            {here, map[string]string{"encryption": here + key}, nil},
		"known later":     {"arn:${Token[P]}:events:${Token[R]}:${Token[A]}:event-bus/b", nil, nil},
		"a bus":           {"arn:aws:events:eu-west-1:1:event-bus/b", nil, []string{"eventBusName", "eventBusName"}},
		"half of its ARN": {"arn:aws:events:${Token[R]}:1:event-bus/b", nil, []string{"eventBusName"}},
		"certificates": {"", map[string]string{"domainName": "hook.bank.example", "certificateArn": certificate,
			"ownershipCertificateArn": certificate}, []string{"certificateArn", "ownershipCertificateArn"}},
		"a key": {"", map[string]string{"encryption": otherAccount + key},
			[]string{"encryption: must be in the account 111122223333 of the stack"}},
		"further keys": {"", map[string]string{"furtherEncryptionKeys": otherAccount + key + ";" + elsewhere + key},
			[]string{"furtherEncryptionKeys: must name keys of one"}},
	} {
		if got := problemsIn("us-east-1", c.bus, c.texts, false); !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestDefaultBusNameDiffersPerStack(t *testing.T) {
	for _, c := range []struct {
		settings map[string]string
		want     string
	}{
		{nil, "payhook"},
		{map[string]string{"stackName": "PayhookStaging"}, "payhookstaging"},
		{map[string]string{"stackName": "PayhookStaging", "eventBusName": "payments"}, "payments"},
	} {
		d, err := deployment(c.settings)
		if err != nil || d.Webhook.EventBusName != c.want || d.Value(settings.EventBusName) != c.want {
			t.Errorf("%v: the bus is %s, the functions get %s, %v", c.settings, d.Webhook.EventBusName,
				d.Value(settings.EventBusName), err)
		}
	}
}

func TestSettingsHaveKeysAndExamples(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range settings.All() {
		if seen[s.Key] || s.Example == "" || s.Required && s.Default != "" {
			t.Errorf("%s: %+v", s.Key, s)
		}
		seen[s.Key] = true
	}
	if got := settings.UnknownKeyTTL.Env(); got != "PAYHOOK_UNKNOWN_KEY_TTL" {
		t.Errorf("got %s", got)
	}
}

func TestTheEndOfTheCaptureIsATime(t *testing.T) {
	env := environment(t, nil)
	env[names.CaptureUntilEnv] = "tomorrow"
	_, err := settings.ParseWebhook(func(name string) string { return env[name] })
	if err == nil || !strings.Contains(err.Error(), names.CaptureUntilEnv+": must be a time of RFC 3339") {
		t.Error(err)
	}
}
