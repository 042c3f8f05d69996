package settings_test

import (
	"crypto/x509"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
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
	"webhook": {settings.LedgerTableEnv, settings.EventBusNameEnv, settings.KeysTableEnv, settings.ClaimBucketEnv,
		settings.ParkingBucketEnv},
	"redrive": {settings.LedgerTableEnv, settings.EventBusNameEnv, settings.ClaimBucketEnv, settings.ParkingBucketEnv},
	"token":   {settings.TokenSecretEnv, settings.CredentialsSecretEnv},
}

// environment returns the environment of a function with what it requires, its resources, and changes.
func environment(function string, change map[string]string) func(string) string {
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
	return func(name string) string { return env[name] }
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
		_, err := settings.ParseFunction(function, func(string) string { return "" })
		for _, name := range needed {
			if !strings.Contains(fmt.Sprint(err), name+": is required") {
				t.Errorf("%s: %s is not reported", function, name)
			}
		}
		if n := strings.Count(fmt.Sprint(err), "PAYHOOK_"); n != len(needed) {
			t.Errorf("%s: %d problems, want %d:\n%v", function, n, len(needed), err)
		}
		without, err := settings.ParseFunction(function, environment(function, nil))
		with, withErr := settings.ParseFunction(function, environment(function, defaults))
		if err != nil || withErr != nil {
			t.Fatal(err, withErr)
		}
		if diff := cmp.Diff(with, without, cmp.AllowUnexported(signature.Location{})); diff != "" {
			t.Errorf("%s (-with +without)\n%s", function, diff)
		}
	}
}

func TestFunctionsKnowWhatTheirSettingsSay(t *testing.T) {
	env := environment("webhook", map[string]string{"PAYHOOK_BASE_URL": "https://a.example/b%2Fc/",
		"PAYHOOK_SIGNATURE_HEADER": "X-Signature", "PAYHOOK_TIMESTAMP_LOCATION": "query:at",
		"PAYHOOK_ALLOWED_SOURCES": "192.0.2.0/24; ::/0",
		"PAYHOOK_KEYS_AUTH":       "bearer", settings.TokenSecretEnv: "secret", settings.EvidenceBucketEnv: "records",
		settings.CaptureUntilEnv: "2026-01-31T12:00:00Z", "AWS_REGION": "cn-north-1"})
	f, err := settings.ParseFunction("webhook", env)
	if err != nil {
		t.Fatal(err)
	}
	at, _ := signature.ParseLocation("query:at")
	id, _ := signature.ParseKeyIDLocation("header:X-SVC-Key-Id")
	want := settings.Function{Settings: f.Settings, TokenService: f.TokenService, Proof: f.Proof,
		KeyService:     &url.URL{Scheme: "https", Host: "a.example", Path: "/b/c"},
		Scheme:         signature.Scheme{SignatureHeader: "X-Signature", Timestamp: at, KeyID: id},
		Window:         &signature.Window{Tolerance: 5 * time.Minute},
		Networks:       []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("::/0")},
		KeysTable:      "the-" + settings.KeysTableEnv,
		TokenSecret:    "secret",
		EvidenceBucket: "records",
		CaptureUntil:   time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC),
		MaxEntryBytes:  256 << 10,
		RedriveGrace:   30 * time.Second}
	if diff := cmp.Diff(want, f, cmp.AllowUnexported(signature.Location{}), cmp.Comparer(func(a, b netip.Prefix) bool {
		return a == b
	})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if f.LedgerTable != "the-"+settings.LedgerTableEnv || f.EventBusName != "the-"+settings.EventBusNameEnv ||
		f.ClaimBucket != "the-"+settings.ClaimBucketEnv || f.ParkingBucket != "the-"+settings.ParkingBucketEnv ||
		f.Proof["timestampLocation"] != "query:at" ||
		f.Proof["timestampTolerance"] != "5m" || len(f.Proof) != len(settings.ReadBy("proof")) {
		t.Errorf("%+v", f)
	}
	for region, want := range map[string]int{"eu-central-1": 1 << 20, "cn-northwest-1": 256 << 10, "": 1 << 20} {
		f, err := settings.ParseFunction("redrive", environment("redrive", map[string]string{"AWS_REGION": region}))
		if err != nil || f.MaxEntryBytes != want {
			t.Errorf("%s: %d, %v", region, f.MaxEntryBytes, err)
		}
	}
	token, err := settings.ParseFunction("token", environment("token",
		map[string]string{"PAYHOOK_AUTH_URL": "http://127.0.0.1:1/"}))
	if err != nil || token.TokenService.String() != "http://127.0.0.1:1" || token.CredentialsSecret !=
		"the-"+settings.CredentialsSecretEnv || token.TokenSecret != "the-"+settings.TokenSecretEnv {
		t.Errorf("%+v, %v", token, err)
	}
}

// A function must start with the environment of an older template, so it accepts combinations
// that a deployment rejects.
func TestEnvironmentsAreChecked(t *testing.T) {
	for _, c := range []struct {
		function string
		change   map[string]string
		want     []string
	}{
		{"webhook", map[string]string{"PAYHOOK_DEDUPLICATION_WINDOW": "1m", "PAYHOOK_TIMESTAMP_TOLERANCE": "off"}, nil},
		{"webhook", map[string]string{"PAYHOOK_DEDUPLICATION_WINDOW": "1s", "PAYHOOK_KEYS_AUTH": "basic",
			settings.CaptureUntilEnv: "tomorrow"}, []string{"PAYHOOK_KEYS_AUTH=basic: must be none or bearer",
			"PAYHOOK_DEDUPLICATION_WINDOW=1s: must be", settings.CaptureUntilEnv + ": must be a time of RFC 3339"}},
		{"webhook", map[string]string{"PAYHOOK_KEYS_AUTH": "bearer"},
			[]string{settings.TokenSecretEnv + ": is required"}},
		{"token", map[string]string{settings.TokenSecretEnv: "", settings.CredentialsSecretEnv: "",
			"PAYHOOK_AUTH_URL": "http://auth.example", "PAYHOOK_TOKEN_MANAGER_ID": "", "PAYHOOK_SCOPES": `a "b"`},
			[]string{"PAYHOOK_AUTH_URL=http://auth.example: must be an https URL; http", "PAYHOOK_TOKEN_MANAGER_ID: is required",
				`PAYHOOK_SCOPES="a \"b\"": must be visible ASCII`, settings.TokenSecretEnv + ": is required",
				settings.CredentialsSecretEnv + ": is required"}},
	} {
		_, err := settings.ParseFunction(c.function, environment(c.function, c.change))
		var got []string
		if err != nil {
			got = strings.Split(err.Error(), "\n")
		}
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s %v: %q, want %q", c.function, c.change, got, c.want)
		}
	}
	f, err := settings.ParseFunction("webhook", environment("webhook", map[string]string{"PAYHOOK_TIMESTAMP_TOLERANCE": "off"}))
	if err != nil || f.Window != nil || f.MTLS != nil {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestParseProofReadsNoOtherSetting(t *testing.T) {
	texts := map[string]string{"baseUrl": "https://api.payments.example"}
	want, err := settings.ParseProof(texts)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range settings.All() {
		if !slices.Contains(settings.ReadBy("proof"), s) {
			texts[s.Key] = "invalid"
		}
	}
	got, err := settings.ParseProof(texts)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(signature.Location{})); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	texts["keyIdLocation"] = "header:x-svc-signature"
	if _, err := settings.ParseProof(texts); !strings.HasPrefix(fmt.Sprint(err), "keyIdLocation=header:x-svc-signature: must differ") {
		t.Error(err)
	}
}

func TestFunctionReadsTheServiceCAOfItsPackage(t *testing.T) {
	folder, ca := t.TempDir(), paymenttest.NewCA("Service CA")
	for name := range functions {
		env := environment(name, map[string]string{"LAMBDA_TASK_ROOT": folder})
		file := filepath.Join(folder, settings.ServiceCAFile)
		if f, err := settings.ParseFunction(name, env); err != nil || f.ServiceCAs != nil {
			t.Errorf("%s without the file: %v, %v", name, f.ServiceCAs, err)
		}
		if err := os.WriteFile(file, ca.PEM(), 0o600); err != nil {
			t.Fatal(err)
		}
		want, err := x509.SystemCertPool()
		if err != nil {
			t.Fatal(err)
		}
		want.AddCert(ca.Certificate)
		if f, err := settings.ParseFunction(name, env); err != nil || !f.ServiceCAs.Equal(want) {
			t.Errorf("%s: %v, and other CAs", name, err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := settings.ParseFunction(name, env); err == nil || !strings.Contains(err.Error(), "service-ca.pem: ") {
			t.Errorf("%s: an empty file: %v", name, err)
		}
		_ = os.Remove(file)
	}
}

func TestFunctionReadsTheTruststoreOfItsPackage(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder, beside := t.TempDir(), filepath.Dir(program)
	for _, c := range []struct{ name, taskRoot, folder, content, want, without string }{
		{"in the package", folder, folder, string(ca.PEM()), "", ""},
		{"next to the program, outside Lambda", "", beside, string(ca.PEM()), "", ""},
		{"no file", folder, t.TempDir(), "", "PAYHOOK_TRUSTSTORE: truststore.pem can't be read", ""},
		{"no certificate", folder, folder, "", "PAYHOOK_TRUSTSTORE: clientcert: ", ""},
		{"no domain", folder, folder, string(ca.PEM()), "PAYHOOK_DOMAIN_NAME: ", "PAYHOOK_DOMAIN_NAME"},
		{"no API", folder, folder, string(ca.PEM()), "PAYHOOK_API_ID: ", "PAYHOOK_API_ID"},
	} {
		t.Run(c.name, func(t *testing.T) {
			other := strings.Repeat("ab", 32)
			change := map[string]string{"PAYHOOK_AUTHENTICATION": "mtls", "PAYHOOK_DOMAIN_NAME": "hook.bank.example",
				"PAYHOOK_API_ID": "a1b2c3", "LAMBDA_TASK_ROOT": c.taskRoot, "PAYHOOK_REVOKED_KEYS": other,
				settings.KeysTableEnv:      "", // it needs none
				"PAYHOOK_CLIENT_CERT_PINS": pin, "PAYHOOK_CLIENT_CERT_SUBJECTS": `CN=a\;b;O=d\\;e.example`}
			delete(change, c.without)
			file := filepath.Join(c.folder, settings.TruststoreFile)
			if err := os.WriteFile(file, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(file)
			f, err := settings.ParseFunction("webhook", environment("webhook", change))
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %s", err, c.want)
				}
				return
			}
			if err != nil || !f.UsesMTLS() || f.UsesSignature() || len(f.MTLS.Truststore.Certificates()) != 1 {
				t.Fatalf("%+v, %v", f.MTLS, err)
			}
			accepted, _ := clientcert.ParsePin(pin)
			want := clientcert.Policy{Pins: []clientcert.Pin{accepted}, Revoked: clientcert.Revocations{other},
				Subjects: []string{`CN=a\;b`, `O=d\\`, "e.example"}}
			if diff := cmp.Diff(want, f.MTLS.Policy); diff != "" || f.MTLS.DomainName != "hook.bank.example" ||
				f.MTLS.APIID != "a1b2c3" {
				t.Errorf("%+v (-want +got)\n%s", f.MTLS, diff)
			}
		})
	}
}
