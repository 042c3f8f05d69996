package settings_test

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

// functions are the resources of each function.
var functions = map[string][]string{
	"webhook": {settings.LedgerTableEnv, settings.EventBusNameEnv, settings.KeysTableEnv, settings.LargeEventBucketEnv,
		settings.ParkingBucketEnv},
	"redrive": {settings.LedgerTableEnv, settings.EventBusNameEnv, settings.LargeEventBucketEnv,
		settings.ParkingBucketEnv},
	"token": {settings.TokenSecretEnv, settings.CredentialsSecretEnv},
}

// parseConfig parses the environment of a function with what it requires, its resources, and changes.
func parseConfig(function string, change map[string]string) (settings.Config, error) {
	env := map[string]string{}
	for _, name := range functions[function] {
		env[name] = "the-" + name
	}
	for _, s := range settings.ReadBy(function) {
		if s.Required {
			env[s.Env()] = s.Example
		}
	}
	maps.Copy(env, change)
	return settings.ParseConfig(function, func(name string) string { return env[name] })
}

// Lambda updates code and configuration in two calls: new code can run with the
// environment of a template that does not define its newest setting.
func TestOnlyResourcesAndRequiredSettingsHaveNoDefault(t *testing.T) {
	for function, resources := range functions {
		needed := slices.Clone(resources)
		defaults := map[string]string{"PAYHOOK_A_SETTING_OF_A_LATER_VERSION": "x"}
		for _, s := range settings.ReadBy(function) {
			if s.Required {
				needed = append(needed, s.Env())
			} else {
				defaults[s.Env()] = s.Default
			}
		}
		_, err := settings.ParseConfig(function, func(string) string { return "" })
		for _, name := range needed {
			if !strings.Contains(fmt.Sprint(err), name+": is required") {
				t.Errorf("%s: %s is not reported", function, name)
			}
		}
		if n := strings.Count(fmt.Sprint(err), "PAYHOOK_"); n != len(needed) {
			t.Errorf("%s: %d problems, want %d:\n%v", function, n, len(needed), err)
		}
		without, err := parseConfig(function, nil)
		with, withErr := parseConfig(function, defaults)
		if err != nil || withErr != nil {
			t.Fatal(err, withErr)
		}
		if diff := cmp.Diff(with, without, unexported); diff != "" {
			t.Errorf("%s (-with +without)\n%s", function, diff)
		}
	}
}

func TestFunctionsKnowWhatTheirSettingsSay(t *testing.T) {
	f, err := parseConfig("webhook", map[string]string{"PAYHOOK_BASE_URL": "https://a.example/b%2Fc/",
		"PAYHOOK_SIGNATURE_HEADER": "X-Signature", "PAYHOOK_TIMESTAMP_LOCATION": "query:at",
		"PAYHOOK_ALLOWED_NETWORKS": "192.0.2.0/24; ::/0", "PAYHOOK_KEY_ENDPOINT_AUTH": "bearer",
		settings.TokenSecretEnv: "secret", settings.EvidenceBucketEnv: "records",
		settings.StoreRejectedUntilEnv: "2026-01-31T12:00:00Z", "AWS_REGION": "cn-north-1"})
	if err != nil {
		t.Fatal(err)
	}
	want := settings.Config{Settings: f.Settings, TokenService: f.TokenService, Verification: f.Verification,
		KeyEndpoint: &url.URL{Scheme: "https", Host: "a.example", Path: "/b/c"},
		Scheme: signature.Scheme{SignatureHeader: "X-Signature", Timestamp: "query:at",
			KeyID: "header:X-SVC-Key-Id"},
		Networks:           []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("::/0")},
		KeysTable:          "the-" + settings.KeysTableEnv,
		TokenSecret:        "secret",
		EvidenceBucket:     "records",
		StoreRejectedUntil: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC),
		MaxEntryBytes:      256 << 10,
		RedriveGrace:       30 * time.Second}
	if diff := cmp.Diff(want, f, unexported, cmp.Comparer(func(a, b netip.Prefix) bool {
		return a == b
	})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if f.LedgerTable != "the-"+settings.LedgerTableEnv || f.EventBusName != "the-"+settings.EventBusNameEnv ||
		f.LargeEventBucket != "the-"+settings.LargeEventBucketEnv ||
		f.ParkingBucket != "the-"+settings.ParkingBucketEnv || f.Verification["timestampLocation"] != "query:at" ||
		f.Verification["timestampTolerance"] != "5m" || len(f.Verification) != len(settings.ReadBy("verify")) {
		t.Errorf("%+v", f)
	}
	f, err = parseConfig("token", map[string]string{"PAYHOOK_AUTH_URL": "http://127.0.0.1:1/"})
	if err != nil || f.TokenService.String() != "http://127.0.0.1:1" ||
		f.CredentialsSecret != "the-"+settings.CredentialsSecretEnv || f.TokenSecret != "the-"+settings.TokenSecretEnv {
		t.Errorf("%+v, %v", f, err)
	}
}

// A function must start with the environment of an older template, so it accepts combinations
// that a deployment rejects.
func TestEnvironmentsAreChecked(t *testing.T) {
	folder, file := t.TempDir(), filepath.Join(t.TempDir(), settings.ServiceCAFile)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mtls := func(change ...string) map[string]string {
		env := map[string]string{"PAYHOOK_AUTHENTICATION": "mtls", "PAYHOOK_DOMAIN_NAME": "hook.bank.example",
			settings.APIIDEnv: "a1b2c3", "LAMBDA_TASK_ROOT": folder, settings.KeysTableEnv: ""} // it needs none
		for _, name := range change {
			env[name] = ""
		}
		return env
	}
	for _, c := range []struct {
		function string
		change   map[string]string
		want     []string
	}{
		{"webhook", map[string]string{"PAYHOOK_DEDUPLICATION_WINDOW": "1m", "PAYHOOK_TIMESTAMP_TOLERANCE": "off"}, nil},
		{"webhook", map[string]string{"PAYHOOK_DEDUPLICATION_WINDOW": "1s", "PAYHOOK_KEY_ENDPOINT_AUTH": "basic",
			settings.StoreRejectedUntilEnv: "tomorrow"}, []string{
			"PAYHOOK_KEY_ENDPOINT_AUTH=basic: must be none or bearer",
			"PAYHOOK_DEDUPLICATION_WINDOW=1s: must be", settings.StoreRejectedUntilEnv + ": parsing time"}},
		{"webhook", map[string]string{"PAYHOOK_KEY_ENDPOINT_AUTH": "bearer"},
			[]string{settings.TokenSecretEnv + ": is required"}},
		{"token", map[string]string{settings.TokenSecretEnv: "", settings.CredentialsSecretEnv: "",
			"PAYHOOK_AUTH_URL": "http://auth.example", "PAYHOOK_TOKEN_MANAGER_ID": "", "PAYHOOK_SCOPES": `a "b"`},
			[]string{"PAYHOOK_AUTH_URL=http://auth.example: must be an https URL; http",
				"PAYHOOK_TOKEN_MANAGER_ID: is required", `PAYHOOK_SCOPES="a \"b\"": must be visible ASCII`,
				settings.CredentialsSecretEnv + ": is required", settings.TokenSecretEnv + ": is required"}},
		{"token", map[string]string{"LAMBDA_TASK_ROOT": filepath.Dir(file)}, []string{"service-ca.pem: clientcert: "}},
		{"webhook", mtls(settings.APIIDEnv, "PAYHOOK_DOMAIN_NAME"), []string{"PAYHOOK_TRUSTSTORE: " +
			"truststore.pem can't be read in the", "PAYHOOK_DOMAIN_NAME: is", settings.APIIDEnv + ": is"}},
	} {
		f, err := parseConfig(c.function, c.change)
		var got []string
		if err != nil {
			got = strings.Split(err.Error(), "\n")
		}
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) || err == nil && (f.TimestampTolerance > 0 ||
			f.MTLS != nil) {
			t.Errorf("%s %v: %q, want %q", c.function, c.change, got, c.want)
		}
	}
}

func TestParseVerificationReadsNoOtherSetting(t *testing.T) {
	texts := map[string]string{"baseUrl": "https://api.payments.example"}
	want, err := settings.ParseVerification(texts)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range settings.All() {
		if !slices.Contains(settings.ReadBy("verify"), s) {
			texts[s.Key] = "invalid"
		}
	}
	got, err := settings.ParseVerification(texts)
	if diff := cmp.Diff(want, got, unexported); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	texts["keyIdLocation"] = "header:x-svc-signature"
	_, err = settings.ParseVerification(texts)
	if !areAbout([]string{fmt.Sprint(err)}, []string{"keyIdLocation: must differ"}) {
		t.Error(err)
	}
}

// A function that runs without a package has the configuration of the deployed one.
func TestAFunctionHasTheSameConfigurationWithAndWithoutAPackage(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder, ca := t.TempDir(), paymenttest.NewCA("Operator CA").Certificate
	pem := paymenttest.EncodeCertificate(ca)
	trusted, err := x509.SystemCertPool() // the public CAs stay
	if err != nil {
		t.Fatal(err)
	}
	trusted.AddCert(ca)
	for _, file := range []string{settings.ServiceCAFile, settings.TruststoreFile} {
		outside := filepath.Join(filepath.Dir(program), file) // what is read outside Lambda
		if err := errors.Join(os.WriteFile(filepath.Join(folder, file), pem, 0o600),
			os.WriteFile(outside, []byte("no CA"), 0o600)); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(outside)
	}
	resources := settings.Resources{settings.LedgerTableEnv: "ledger", settings.KeysTableEnv: "keys",
		settings.LargeEventBucketEnv: "large-events", settings.ParkingBucketEnv: "parking",
		settings.EventBusNameEnv: "bus", settings.EvidenceBucketEnv: "evidence", settings.TokenSecretEnv: "token",
		settings.APIIDEnv: "api", settings.CredentialsSecretEnv: "pair"}
	required := "baseUrl=https://a.example authUrl=https://b.example tokenManagerId=m serviceCA=" +
		filepath.Join(folder, settings.ServiceCAFile) + " "
	mtls := "domainName=hooks.bank.example hostedZoneId=Z1 truststore=" +
		filepath.Join(folder, settings.TruststoreFile) + " authentication="
	for _, change := range []string{"", "keyEndpointAuth=bearer storeRejected=1h tokenStore=parameter evidence=1d",
		mtls + "both storeRejected=1h",
		mtls + `mtls clientCertSubjects=CN=a\;b;O=d\\;e.example clientCertPins=` + pin} {
		d := valid(t, strings.Fields(required+change)...)
		for function := range functions {
			env := d.Environment(function, resources)
			getenv := func(name string) string { return env[name] }
			if _, err := settings.ParseConfig(function, getenv); err == nil {
				t.Errorf("%s: the folder of the program is not read", function)
			}
			env["LAMBDA_TASK_ROOT"] = folder
			want, err := settings.ParseConfig(function, getenv)
			if err != nil || env[settings.KeysTableEnv] != want.KeysTable {
				t.Errorf("%s %s: %v, or the table is not used", function, change, err)
			}
			got, err := d.Config(function, resources)
			if err != nil || !got.ServiceCAs.Equal(want.ServiceCAs) || !got.ServiceCAs.Equal(trusted) ||
				got.StoreRejectedUntil.Sub(want.StoreRejectedUntil).Abs() > time.Minute ||
				got.MTLS != nil && !bytes.Equal(got.MTLS.Truststore.PEM(), want.MTLS.Truststore.PEM()) {
				t.Errorf("%s %s: %v", function, change, err)
			}
			if m := want.MTLS; m != nil && !want.UsesSignature() && !reflect.DeepEqual(m.Policy.Subjects,
				[]string{`CN=a\;b`, `O=d\\`, "e.example"}) {
				t.Errorf("%s: %+v", function, m.Policy)
			}
			for _, f := range []*settings.Config{&got, &want} {
				f.ServiceCAs, f.StoreRejectedUntil = nil, time.Time{}
				if f.MTLS != nil {
					f.MTLS.Truststore = clientcert.Truststore{}
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s %s: without a package\n%+v, with one\n%+v", function, change, got, want)
			}
		}
	}
}

func TestALocalRunDoesNotWaitForClocks(t *testing.T) {
	for local, want := range map[bool]string{true: "1s 5s", false: "30s 55s"} {
		d, _ := parse(settings.Stack{Local: local})
		f, err := d.Config("redrive", settings.Resources{settings.LedgerTableEnv: "l",
			settings.EventBusNameEnv: "b", settings.LargeEventBucketEnv: "c", settings.ParkingBucketEnv: "p"})
		if got := fmt.Sprint(f.RedriveGrace, " ", d.RedriveTimeout()); got != want || err != nil {
			t.Errorf("%t: %s, %v", local, got, err)
		}
	}
}
