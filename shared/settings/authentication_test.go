package settings_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

const (
	certificate = "arn:aws:acm:eu-central-1:111122223333:certificate/11111111-2222-3333-4444-555555555555"
	pin         = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// truststoreFile writes a truststore and returns its path.
func truststoreFile(t *testing.T, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// problems returns the lines of an error.
func problems(err error) []string {
	if err == nil {
		return nil
	}
	return slices.Collect(strings.Lines(err.Error()))
}

func TestAuthenticationAndEndpoint(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	truststore := truststoreFile(t, ca.PEM())
	mtls := map[string]string{"authentication": "mtls", "domainName": "hook.bank.example",
		"certificateArn": certificate, "truststore": truststore}
	for name, c := range map[string]struct {
		base   map[string]string
		change map[string]string
		want   []string // the reported settings, each with a part of the message
	}{
		"a function URL": {nil, nil, nil},
		"signature on a domain": {nil,
			map[string]string{"domainName": "hook.bank.example", "hostedZoneId": "Z0123456789ABC"}, nil},
		"signature on a domain, own record": {nil,
			map[string]string{"domainName": "hook.bank.example", "certificateArn": certificate}, nil},
		"mtls": {mtls, nil, nil},
		"both": {mtls, map[string]string{"authentication": "both"}, nil},
		"pins, subjects and revoked keys": {mtls,
			map[string]string{"clientCertPins": pin + "; " + pin, "clientCertSubjects": `CN=a\;b,O=c\\;*.d.example`,
				"revokedKeys": pin + ";" + strings.ToUpper(pin)}, nil},
		"a subject in another form": {mtls, map[string]string{"clientCertSubjects": "d.example;C = DE, CN = a"},
			[]string{"clientCertSubjects: must be a DNS name, or a subject exactly as `payhook certificates` shows it"}},
		"every setting of the endpoint": {mtls,
			map[string]string{"ownershipCertificateArn": certificate, "hostedZoneId": "Z1ABC",
				"throttleRate": "10000"}, nil},
		"another mechanism": {nil, map[string]string{"authentication": "tls"},
			[]string{"authentication: must be signature or mtls or both"}},
		"another mechanism, with a truststore": {mtls, map[string]string{"authentication": "TLS"},
			[]string{"authentication: must be"}},
		"mtls without a domain": {mtls, map[string]string{"domainName": "", "certificateArn": ""},
			[]string{"domainName: is required, as authentication is mtls"}},
		"both without a truststore": {mtls, map[string]string{"authentication": "both", "truststore": ""},
			[]string{"truststore: is required, as authentication is both"}},
		"a domain without a certificate": {mtls, map[string]string{"certificateArn": ""},
			[]string{"certificateArn: or hostedZoneId is required with domainName"}},
		"a certificate without a domain": {nil, map[string]string{"certificateArn": certificate},
			[]string{"certificateArn: needs domainName"}},
		"an ownership certificate alone": {nil, map[string]string{"ownershipCertificateArn": certificate},
			[]string{"ownershipCertificateArn: needs domainName"}},
		"a hosted zone without a domain": {nil, map[string]string{"hostedZoneId": "Z1ABC"},
			[]string{"hostedZoneId: needs domainName"}},
		"signature with a truststore": {mtls, map[string]string{"authentication": "signature"},
			[]string{"truststore: has no effect, as authentication is signature"}},
		"signature with pins": {nil, map[string]string{"clientCertPins": pin},
			[]string{"clientCertPins: has no effect"}},
		"signature with subjects": {nil, map[string]string{"clientCertSubjects": "CN=a"},
			[]string{"clientCertSubjects: has no effect"}},
		"signature with revoked keys": {nil, map[string]string{"revokedKeys": pin},
			[]string{"revokedKeys: has no effect"}},
		"longer than API Gateway waits": {mtls, map[string]string{"webhookTimeout": "31s"},
			[]string{"webhookTimeout: must be at most 30s with domainName"}},
		"as long as API Gateway waits": {mtls, map[string]string{"webhookTimeout": "30s"}, nil},
		"a domain in upper case": {mtls, map[string]string{"domainName": "Hook.bank.example"},
			[]string{"domainName: must be a domain name in lower case"}},
		"a domain without a dot": {mtls, map[string]string{"domainName": "localhost"},
			[]string{"domainName: must be"}},
		"a domain with a port": {mtls, map[string]string{"domainName": "hook.bank.example:443"},
			[]string{"domainName: must be"}},
		"not an ARN": {mtls,
			map[string]string{"certificateArn": "1234", "ownershipCertificateArn": "arn:aws:iam::1:x"},
			[]string{"certificateArn: must be the ARN", "ownershipCertificateArn: must be the ARN"}},
		"not a hosted zone": {mtls, map[string]string{"hostedZoneId": "/hostedzone/Z1"},
			[]string{"hostedZoneId: must be the id"}},
		"not a rate": {mtls, map[string]string{"throttleRate": "0"}, []string{"throttleRate: must be"}},
		"not a pin": {mtls, map[string]string{"clientCertPins": pin[1:]},
			[]string{"clientCertPins: must be a SHA-256"}},
		"not a revoked key": {mtls, map[string]string{"revokedKeys": "12@CN=a"},
			[]string{"revokedKeys: must be a SHA-256"}},
		"no such file": {mtls, map[string]string{"truststore": truststore + "x"},
			[]string{"truststore: can't be read"}},
		"a private key": {mtls,
			map[string]string{"truststore": truststoreFile(t,
				[]byte("-----BEGIN EC PRIVATE KEY-----\n-----END EC PRIVATE KEY-----\n"))}, []string{"private key"}},
		"a client's certificate": {mtls,
			map[string]string{"truststore": truststoreFile(t,
				append(ca.PEM(), paymenttest.EncodeCertificate(ca.Client(nil).Leaf)...))},
			[]string{"certificate 2 (CN=webhooks.payments.example,O=Payment Service) is not the certificate of a CA"}},
		"two clients' certificates": {mtls,
			map[string]string{"truststore": truststoreFile(t,
				bytes.Repeat(paymenttest.EncodeCertificate(ca.Client(nil).Leaf), 2))},
			[]string{"is not the certificate of a CA; certificate 2 (CN="}},
	} {
		t.Run(name, func(t *testing.T) {
			conf := maps.Clone(c.base)
			if conf == nil {
				conf = map[string]string{}
			}
			maps.Copy(conf, c.change)
			d, err := deployment(conf)
			got := problems(err)
			if len(got) != len(c.want) {
				t.Fatalf("%d problems, want %d: %q", len(got), len(c.want), got)
			}
			for i, text := range c.want {
				if !strings.Contains(got[i], text) {
					t.Errorf("%q is not in %q", text, got[i])
				}
			}
			if uses := conf["authentication"] == "mtls" ||
				conf["authentication"] == "both"; c.want == nil &&
				uses != (string(d.Endpoint.Truststore) == string(ca.PEM())) {
				t.Errorf("the truststore is %q", d.Endpoint.Truststore)
			}
		})
	}
}

// Lambda measures an environment of at most 4 KB as JSON; 1 KB is reserved for resources.
func TestRejectsListsTooLargeForTheEnvironment(t *testing.T) {
	truststore := truststoreFile(t, paymenttest.NewCA("Operator CA").PEM())
	sized := func(subject string) []string {
		_, err := deployment(map[string]string{
			"authentication": "mtls", "domainName": "hook.bank.example", "certificateArn": certificate,
			"truststore": truststore, "clientCertPins": pin, "clientCertSubjects": subject,
		})
		return problems(err)
	}
	const length = 4000
	got := sized(strings.Repeat("x", length))
	var size, more int
	if _, err := fmt.Sscanf(strings.Join(got, ""), "clientCertSubjects: must be shorter: it has %d bytes, and the "+
		"environment of a function would have %d more than Lambda allows", &size, &more); err != nil ||
		size != length+len(`"PAYHOOK_CLIENT_CERT_SUBJECTS":"",`) {
		t.Fatalf("%q: %v", got, err)
	}
	if got := sized(strings.Repeat("x", length-more)); len(got) > 0 {
		t.Errorf("an environment of 4096 bytes: %q", got)
	}
	if got := sized(strings.Repeat("x", length-more+1)); len(got) != 1 {
		t.Errorf("an environment of 4097 bytes: %q", got)
	}
	if got := problemsOf("scopes", map[string]string{"scopes": strings.Repeat("x", length)}); len(got) != 1 {
		t.Errorf("the token function: %q", got)
	}
	// Backslashes take two bytes in JSON.
	if got := sized("CN=" + strings.Repeat(`\\`, (length-more)/4+1)); len(got) != 1 {
		t.Errorf("backslashes: %q", got)
	}
}

func TestFunctionReadsTheTruststoreOfItsPackage(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder, beside := t.TempDir(), filepath.Dir(program)
	for _, c := range []struct {
		name, taskRoot, folder, content, want string
		without                               string // a variable
	}{
		{"in the package", folder, folder, string(ca.PEM()), "", ""},
		{"next to the program, outside Lambda", "", beside, string(ca.PEM()), "", ""},
		{"no file", folder, t.TempDir(), "", "PAYHOOK_TRUSTSTORE: truststore.pem can't be read", ""},
		{"no certificate", folder, folder, "", "PAYHOOK_TRUSTSTORE: clientcert: ", ""},
		{"no domain", folder, folder, string(ca.PEM()), "PAYHOOK_DOMAIN_NAME: ", "PAYHOOK_DOMAIN_NAME"},
		{"no API", folder, folder, string(ca.PEM()), "PAYHOOK_API_ID: ", "PAYHOOK_API_ID"},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := environment(t, nil)
			maps.Copy(env, map[string]string{
				"PAYHOOK_AUTHENTICATION": "mtls", "PAYHOOK_DOMAIN_NAME": "hook.bank.example",
				"PAYHOOK_API_ID":   "a1b2c3",
				"LAMBDA_TASK_ROOT": c.taskRoot, "PAYHOOK_REVOKED_KEYS": pin,
				"PAYHOOK_CLIENT_CERT_PINS": pin, "PAYHOOK_CLIENT_CERT_SUBJECTS": `CN=a\;b;O=d\\;e.example`,
			})
			delete(env, c.without)
			file := filepath.Join(c.folder, names.TruststoreFile)
			if err := os.WriteFile(file, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(file)
			w, err := settings.ParseWebhook(func(name string) string { return env[name] })
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %s", err, c.want)
				}
				return
			}
			if err != nil || !w.UsesMTLS() || w.UsesSignature() || len(w.MTLS.Truststore.Certificates()) != 1 {
				t.Fatalf("%+v, %v", w.MTLS, err)
			}
			want := &settings.MTLS{DomainName: "hook.bank.example", APIID: "a1b2c3", Truststore: w.MTLS.Truststore,
				Policy: clientcert.Policy{Pins: w.MTLS.Policy.Pins, RevokedKeys: w.MTLS.Policy.Pins,
					Subjects: []string{`CN=a\;b`, `O=d\\`, "e.example"}}}
			if len(want.Policy.Pins) != 1 || !reflect.DeepEqual(w.MTLS, want) {
				t.Errorf("got %+v, want %+v", w.MTLS, want)
			}
		})
	}
}
