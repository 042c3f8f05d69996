package settings_test

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

const (
	certificate = "arn:aws:acm:eu-central-1:111122223333:certificate/11111111-2222-3333-4444-555555555555"
	pin         = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// required are the settings that must be set.
var required = []string{"baseUrl=https://api.example/base/", "authUrl=https://auth.example", "tokenManagerId=manager-1"}

// given returns the settings of KEY=VALUE, of which a later one replaces an earlier one, beside the
// required ones.
func given(pairs ...string) settings.Given {
	texts := map[string]string{}
	for _, pair := range slices.Concat(required, pairs) {
		key, value, _ := strings.Cut(pair, "=")
		texts[key] = value
	}
	local := texts[settings.LocalKey] == "true"
	delete(texts, settings.LocalKey)
	return settings.Given{Texts: texts, Local: local, Deployment: settings.StackName(texts)}
}

func deployment(t *testing.T, pairs ...string) settings.Deployment {
	t.Helper()
	d, err := settings.ParseDeployment(given(pairs...))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// problems returns the problems of a deployment.
func problems(g settings.Given) []string {
	_, err := settings.ParseDeployment(g)
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

// truststore writes a truststore, and returns the setting for it.
func truststore(t *testing.T, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return "truststore=" + path
}

// The extremes of the tags, which the table in infra/README.md shows, are valid, and nothing beyond.
func TestSettingsHaveLimits(t *testing.T) {
	for _, s := range slices.Concat(settings.All(), settings.LocalSettings()) {
		_, limits, ok := strings.Cut(strings.Split(s.Limits, ",")[0], "from ")
		if !ok {
			continue
		}
		least, most, _ := strings.Cut(limits, " to ")
		values := map[string]bool{least: true, most: true, "\n": false}
		if n, err := strconv.Atoi(least); err == nil {
			m, _ := strconv.Atoi(most)
			values[strconv.Itoa(n-1)], values[strconv.Itoa(m+1)] = false, false
		} else {
			n, _ := settings.ParseDuration(least)
			m, _ := settings.ParseDuration(most)
			values[(n-1).String()], values[(m+1).String()] = false, false
		}
		for value, want := range values {
			got := problems(given("payhook:local=true", s.Key+"="+value))
			if valid := !slices.ContainsFunc(got, func(p string) bool {
				return strings.HasPrefix(p, s.Key+": must be ") && strings.HasSuffix(p, s.Limits)
			}); valid != want {
				t.Errorf("%s=%q: %q", s.Key, value, got)
			}
		}
	}
}

func TestTextsHaveForms(t *testing.T) {
	for key, c := range map[string]struct{ valid, invalid []string }{
		"archiveRetention":   {[]string{"off", "48h", "1y"}, []string{"", "0", "never", "36h", "-1d", "1.5d", "65536d"}},
		"claimRetention":     {[]string{"never", "48000h"}, []string{"", "0", "361h", "-20d", "forever", "off"}},
		"alarmSilence":       {[]string{"off", "6h", "7d"}, []string{"", "30m", "90m"}},
		"keysAuth":           {[]string{"none", "bearer"}, []string{"", "None", "basic"}},
		"timestampTolerance": {[]string{"90s"}, []string{"", "x", "99999999999999999999", "d", "1h1d"}},
		"protectBus":         {[]string{"true", "false"}, []string{"", "no", "1x", "TRUE"}},
		"tokenManagerId":     {nil, []string{" ", ""}},
		"signatureHeader":    {nil, []string{"a b"}},
		"timestampLocation":  {nil, []string{"cookie:x"}},
		"keyIdLocation":      {[]string{"static:5f0c1b7e-3d43-4f26-9c0d-2f1f6a5b7c8d"}, []string{"static:x"}},
		"webhookTimeout":     {[]string{"12000ms"}, []string{"12500ms", "12s1ns"}},
		"logRetentionDays":   {[]string{"1", "400", "3653"}, []string{"", "0", "2", "364", "10000"}},
		"stackName":          {[]string{"A", strings.Repeat("A", 100)}, []string{"1", strings.Repeat("A", 101)}},
		"scopes":             {[]string{"", " ! #[]~ "}, []string{`a"`, `a\`, "é", "a\x7f", "a\tb"}},
		"captureRejected":    {[]string{"off"}, []string{"", "never"}},
		"eventBusName": {[]string{"default-payments", strings.Repeat("b", 256)},
			[]string{"default", "a/b", strings.Repeat("b", 257)}},
		"ledgerTable":   {[]string{"a.b_c-D"}, []string{"a/b", "ab"}},
		"parkingBucket": {[]string{"abc"}, []string{"p", "Parking"}},
		"encryption": {[]string{"cmk", "arn:aws:kms:eu-central-1:123456789012:key/mrk-b"},
			[]string{"kms", "arn:aws:kms:eu-central-1:123456789012:alias/a"}},
		"domainName": {nil, []string{"a", "a.B", "a..b", "-a.b", "a-.b", "a.b:443", strings.Repeat("a", 64) + ".b"}},
		"allowedSources": {[]string{"", "0.0.0.0/0", "::/0", "192.0.2.1/32; 198.51.100.0/24;2001:db8::/32"},
			[]string{",", "192.0.2.0/24,198.51.100.0/24", "192.0.2.1/24", "2001:db8::1/32", " ", "192.0.2.0/24;",
				"192.0.2.0/33", "192.0.2.0", "192.0.2/24", "::ffff:192.0.2.0/120", "fe80::%eth0/64", "x",
				"192.0.2.0/24;192.0.2.0/24", "192.0.2.0/24;192.0.2.128/25", "2001:db8:1::/48;2001:db8::/32",
				"0.0.0.0/0;192.0.2.0/24", "2001:db8::/32;0.0.0.0/0", "0.0.0.0/0;2001:db8::/32", "0.0.0.0/0;::/0"}},
		"subnetIds": {[]string{"subnet-01234567;subnet-0123456789abcdef0"}, []string{"subnet-0123456",
			"subnet-0123456G",
			"subnet-0123456789", "sg-01234567", "subnet-01234567;", "subnet-01234567,subnet-01234567"}},
		"securityGroupIds": {[]string{"sg-01234567;sg-0123456789abcdef0"}, []string{"subnet-01234567", "sg-1"}},
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
			got := problems(given(key + "=" + text))
			got = slices.DeleteFunc(got, func(p string) bool { return !strings.HasPrefix(p, key) })
			if valid := slices.Contains(c.valid, text); valid && len(got) > 0 || !valid && len(got) != 1 {
				t.Errorf("%s=%q: %q", key, text, got)
			}
		}
	}
}

// networks returns networks that do not overlap.
func networks(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("198.51.%d.0/24", i))
	}
	return strings.Join(all, ";")
}

func subnets(n int) string { return strings.Repeat(";subnet-0123456789abcdef0", n)[1:] }
func groups(n int) string  { return strings.Repeat(";sg-0123456789abcdef0", n)[1:] }

// Each row has settings and the beginning of each problem, separated by |, in their order.
func TestDeploymentsAreChecked(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	mtls := "authentication=mtls domainName=hook.bank.example certificateArn=" + certificate + " " +
		truststore(t, ca.PEM()) + " "
	client := paymenttest.EncodeCertificate(ca.Client(nil).Leaf)
	clients := truststore(t, bytes.Repeat(client, 2))
	service := func(text []byte) string { return strings.Replace(truststore(t, text), "truststore", "serviceCA", 1) }
	expired := paymenttest.EncodeCertificate(ca.SelfSigned(func(c *x509.Certificate) {
		c.NotAfter = time.Now().Add(-time.Hour)
	}))
	for _, c := range []struct{ settings, want string }{
		{"", ""},
		{"baseUrl= authUrl= tokenManagerId=",
			"baseUrl: is required (example: https://|authUrl: is required|tokenManagerId: is required"},
		{"payhook:redriveGrace=1s", "payhook:redriveGrace: no such setting"}, // not local

		// A problem names what is allowed.
		{"successStatus=1x", "successStatus: must be a whole number from 200 to 299"},
		{"keyMaxAge=1x", "keyMaxAge: must be a duration from 1h to 90d"},
		{"captureRejected=1x", "captureRejected: must be a duration from 1m to 7d, or off"},
		{"claimRetention=1x", "claimRetention: must be whole days from 15d to 36500d, or never"},
		{"webhookTimeout=4.5s", "webhookTimeout: must be whole seconds from 4s to 15m"},
		{"protectBus=1x", "protectBus: must be false or true"},

		// Without a token, nothing is needed for it.
		{"tokenStore=none authUrl= tokenManagerId=", ""},
		{"tokenStore=none authUrl= baseUrl=", "baseUrl: is required"},
		{"tokenStore=none authUrl=x", "authUrl: must be"},
		{"tokenStore=none keysAuth=bearer", "keysAuth: must be none, as tokenStore is none"},
		{"tokenStore=parameter keysAuth=bearer", ""},
		{"tokenStore=parameter authUrl= tokenManagerId=", "authUrl: is required|tokenManagerId: is required"},
		{"tokenStore=none scopes=a credentialEncoding=literal",
			"scopes: has no effect, as tokenStore is none|credentialEncoding: has no effect, as tokenStore is none"},
		{"tokenStore=parameter scopes=a credentialEncoding=form", ""},
		{"tokenStore=ssm authUrl=", "authUrl: is required|tokenStore: must be secret or parameter or none"},

		{"logRetentionDays=1x", "logRetentionDays: must be one of 1 3 5 7 14 30 60 90 120 150 180 365 400 545 731 " +
			"1096 1827 2192 2557 2922 3288 3653"},
		{"hostedZoneId=1x domainName=a.example",
			"hostedZoneId: must be the id of a hosted zone (example: Z0123456789ABCDEFGHIJ)"},

		// A webhook is accepted 5 minutes early, and repeated 5 minutes late.
		{"deduplicationWindow=10m30s", "deduplicationWindow: must be at least 10m31s, which is twice " +
			"timestampTolerance plus webhookTimeout and a second"},
		{"deduplicationWindow=10m31s", ""},
		{"timestampTolerance=24h deduplicationWindow=1d", "deduplicationWindow: must be at least 48h0m31s"},
		{"webhookTimeout=2m deduplicationWindow=11m", "deduplicationWindow: must be at least 12m1s"},
		{"timestampTolerance=off deduplicationWindow=1m", ""},
		{"timestampTolerance=48h deduplicationWindow=1m", "timestampTolerance: must be"},
		{"webhookTimeout=x deduplicationWindow=1m", "webhookTimeout: must be"},

		// Large events outlive references to them.
		{"claimRetention=34d archiveRetention=20d", "claimRetention: must be at least 35d: redrive can publish a " +
			"reference until its last attempt, the archive can deliver it again for as long as archiveRetention"},
		{"claimRetention=34d archiveRetention=19d", ""},
		{"claimRetention=15d archiveRetention=off", ""},
		{"claimRetention=never archiveRetention=36500d", ""},
		{"payhook:local=true payhook:redriveGrace=2h", "payhook:redriveGrace: must be"},

		{"evidenceLock=governance", "evidenceLock: has no effect without evidence"},
		{"evidenceLock=governance evidence=7y", ""},

		// Parts of the proof have different places.
		{"timestampLocation=header:X-Proof keyIdLocation=header:x-proof",
			"keyIdLocation: must differ from timestampLocation"},
		{"timestampLocation=header:x-svc-signature", "timestampLocation: must differ from signatureHeader"},
		{"timestampLocation=query:p keyIdLocation=query:p", "keyIdLocation: must differ from timestampLocation"},
		{"timestampLocation=query:p keyIdLocation=header:p", ""},
		{"timestampLocation=query:p keyIdLocation=query:P", ""},
		{"timestampLocation=cookie:x keyIdLocation=cookie:x", "timestampLocation: must be|keyIdLocation: must be"},

		// The endpoint.
		{"domainName=hook.bank.example hostedZoneId=Z0123456789ABC", ""},
		{"domainName=hook.bank.example certificateArn=" + certificate, ""},
		{"domainName=hook.bank.example", "certificateArn: or hostedZoneId is required with domainName"},
		{"domainName=localhost webhookTimeout=31s", "domainName: must be a domain name"},
		{"certificateArn=" + certificate + " ownershipCertificateArn=" + certificate + " hostedZoneId=Z1ABC",
			"certificateArn: needs domainName|ownershipCertificateArn: needs|hostedZoneId: needs"},
		{mtls + "webhookTimeout=31s", "webhookTimeout: must be at most 30s with domainName"},
		{mtls + "webhookTimeout=30s", ""},
		{mtls + "certificateArn=1234 ownershipCertificateArn=arn:aws:iam::1:x",
			"certificateArn: must be the ARN|ownershipCertificateArn: must be the ARN"},

		// The network.
		{"subnetIds=" + subnets(16) + " securityGroupIds=" + groups(5), ""},
		{"subnetIds=" + subnets(17) + " securityGroupIds=" + groups(6),
			"subnetIds: must be at most 16|securityGroupIds: must be at most 5"},
		{"subnetIds=" + subnets(1), "securityGroupIds: is required with subnetIds"},
		{"securityGroupIds=" + groups(1), "subnetIds: is required with securityGroupIds"},
		{"subnetIds=subnet-x securityGroupIds=" + groups(1), "subnetIds: must be ids of subnets"},

		// Lambda takes 4 KB of environment variables.
		{"allowedSources=" + networks(150), ""},
		{"allowedSources=" + networks(220),
			"allowedSources: is too long: with its 3409 bytes, the environment variables of the webhook " +
				"function have about 4"},
		{mtls + "clientCertPins=" + pin + strings.Repeat(";"+pin, 29), ""},
		{mtls + "clientCertPins=" + pin + strings.Repeat(";"+pin, 44),
			"clientCertPins: is too long: with its 2924 bytes, the environment variables of the webhook " +
				"function have about 4"},
		{"scopes=" + strings.Repeat("a", 4000), "scopes: is too long: with its 4000 bytes, the environment variables " +
			"of " +
			"the token function have about 48"},

		// Authentication.
		{mtls, ""},
		{mtls + "authentication=both hostedZoneId=Z1ABC ownershipCertificateArn=" + certificate, ""},
		{mtls + `clientCertSubjects=CN=a\;b,O=c\\;*.d.example revokedKeys=` + strings.ToUpper(pin) +
			" clientCertPins=" + pin + ";" + pin, ""},
		{mtls + "clientCertSubjects=d.example;cn=a",
			"clientCertSubjects: must be a DNS name, or a subject exactly as the line of a webhook shows it"},
		{mtls + "revokedKeys=12@CN=a clientCertPins=" + pin[1:],
			"clientCertPins: must be a SHA-256|revokedKeys: must be a key id (UUID), the thumbprint of a JWK"},
		{"revokedKeys=" + pin + ";5F0C1B7E-3d43-4f26-9c0d-2f1f6a5b7c8d;5f0c1b7e3d434f269c0d2f1f6a5b7c8d;" +
			"NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs", ""},
		{"revokedKeys=" + pin + ";5f0c1b7e-3d43-4f26-9c0d-2f1f6a5b7c8", "revokedKeys: must be a key id"},
		{mtls + "clientCertSubjects=; clientCertPins=;" + pin + " revokedKeys=" + pin + ";",
			"clientCertPins: element 1 is empty|clientCertSubjects: element 1 is empty|" +
				"revokedKeys: element 2 is empty"},
		{"authentication=tls", "authentication: must be signature or mtls or both"},
		{mtls + "authentication=TLS", "authentication: must be"},
		{mtls + "domainName= certificateArn=", "domainName: is required, as authentication is mtls"},
		{mtls + "authentication=both truststore=", "truststore: is required, as authentication is both"},
		{mtls + "authentication=signature", "truststore: has no effect, as authentication is signature"},
		{"clientCertSubjects=CN=a clientCertPins=" + pin, "clientCertPins: has no effect|" +
			"clientCertSubjects: has no effect"},
		{mtls + "captureRejected=1h", "captureRejected: must be off, as authentication is mtls"},
		{mtls + "captureRejected=1h authentication=both", ""},
		{"captureRejected=1h deduplicationWindow=3d", "deduplicationWindow: must be longer than 3d with"},
		{"captureRejected=1h deduplicationWindow=73h", ""},
		{"deduplicationWindow=3d", ""},
		{mtls + "truststore=/nowhere", "truststore: can't be read"},
		{service(ca.PEM()), ""},
		{"serviceCA=/nowhere", "serviceCA: can't be read"},
		{service([]byte("no CA")), "serviceCA: /"},
		{mtls + "tokenStore=none " + service(ca.PEM()), "serviceCA: has no effect"},
		{service(append(ca.PEM(), expired...)), "serviceCA: /"},
		{mtls + truststore(t, append(ca.PEM(), client...)), "truststore: /"},
		{mtls + clients, "truststore: /"},
	} {
		got := problems(given(strings.Fields(c.settings)...))
		want := strings.FieldsFunc(c.want, func(r rune) bool { return r == '|' })
		if !slices.EqualFunc(got, want, strings.HasPrefix) {
			t.Errorf("%q:\n%q, want\n%q", c.settings, got, c.want)
		}
	}
	if got := problems(given(service(append(ca.PEM(), expired...)))); !strings.HasSuffix(got[0],
		"ca.pem: certificate 2 (CN=Operator CA,O=Payment Service) has expired") {
		t.Errorf("got %v", got)
	}
	key, err := paymenttest.EncodePrivateKey(ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	for problem, text := range map[string]string{"ca.pem: certificate 2 is a ": string(key),
		"ca.pem: certificate 2 can't be read": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"} {
		if got := problems(given(service(append(ca.PEM(), text...))))[0]; !strings.Contains(got, problem) ||
			!strings.Contains(got, "(line ") || strings.Contains(got, strings.Split(string(key), "\n")[1]) {
			t.Errorf("got %s, want %s", got, problem)
		}
	}
	withText := service([]byte("\uFEFF# The CA\n" + string(ca.PEM()) + "text"))
	if d := deployment(t, withText); string(d.ServiceCAPEM) != string(ca.PEM()) {
		t.Errorf("the service's CA is %q", d.ServiceCAPEM)
	}
	// Only certificates are deployed.
	for _, file := range []string{"", truststore(t, []byte("# The CA\n"+string(ca.PEM())+"text"))} {
		if d := deployment(t, strings.Fields(mtls+file)...); string(d.TruststorePEM) != string(ca.PEM()) {
			t.Errorf("the truststore is %q", d.TruststorePEM)
		}
	}
	if got := problems(given(strings.Fields(mtls + clients)...)); !strings.Contains(got[0],
		"is not the certificate of a CA; certificate 2 (CN=webhooks.payments.example,O=Payment Service) is not the ") {
		t.Errorf("%q", got)
	}
}

// others returns a text for each setting that is valid by itself and not its default.
func others() map[string]string {
	texts := map[string]string{"logRetentionDays": "365", "truststore": "ca.pem", "serviceCA": "ca.pem",
		"protectBus": "false", "tokenStore": "parameter"}
	for _, s := range slices.Concat(settings.All(), settings.LocalSettings()) {
		switch limits := strings.Fields(strings.ReplaceAll(s.Limits, ",", "")); {
		case len(limits) > 0:
			texts[s.Key] = limits[slices.Index(limits, "from")+1]
		case s.Example != "":
			texts[s.Key] = s.Example
		}
	}
	maps.Copy(texts, map[string]string{"keysAuth": "bearer", "credentialEncoding": "form",
		"authentication": "both", "evidenceLock": "compliance", "successStatus": "201"})
	return texts
}

// A field of Props means what the text in the context means, and a function what the deployment means.
func TestEverySettingHasOneMeaning(t *testing.T) {
	texts := others()
	fromTexts, _ := settings.ParseDeployment(settings.Given{Texts: texts, Local: true})
	fromFields, _ := settings.ParseDeployment(settings.Given{Fields: fromTexts.Settings, Local: true})
	if diff := cmp.Diff(fromTexts.Settings, fromFields.Settings); diff != "" {
		t.Errorf("(-texts +fields)\n%s", diff)
	}
	env := map[string]string{}
	for _, s := range slices.Concat(settings.All(), settings.LocalSettings()) {
		if got := fromTexts.Text(s); got != texts[s.Key] && s.Key != "stackName" || got == s.Default {
			t.Errorf("%s: %q became %q, the default is %q", s.Key, texts[s.Key], got, s.Default)
		}
		env[s.Env()] = fromTexts.Text(s)
	}
	for function, parse := range map[string]func(func(string) string) (settings.Function, error){
		"webhook": settings.ParseWebhook, "redrive": settings.ParseRedrive, "token": settings.ParseToken,
	} {
		f, _ := parse(func(name string) string { return env[name] })
		d := settings.Deployment{Settings: f.Settings, Tuning: f.Tuning}
		for _, s := range settings.ReadBy(function) {
			if got := d.Text(s); got != texts[s.Key] {
				t.Errorf("%s: %s is %q, want %q", function, s.Key, got, texts[s.Key])
			}
		}
	}
}

// Each element of a list is one value, also of a field, and words of durations are values.
func TestFieldsAreChecked(t *testing.T) {
	d := deployment(t)
	for name, c := range map[string]struct {
		change func(s *settings.Settings)
		want   []string
	}{
		"words": {func(s *settings.Settings) {
			s.ArchiveRetention, s.ClaimRetention, s.TimestampTolerance = settings.Off, settings.Never, settings.Off
		}, nil},
		"a word without meaning": {func(s *settings.Settings) {
			s.KeyMaxAge, s.ClaimRetention = settings.Off, settings.Off
		},
			[]string{"KeyMaxAge: must be a duration", "ClaimRetention: must be whole days"}},
		"elements": {func(s *settings.Settings) {
			s.AllowedSources, s.ClientCertPins = []string{""}, []string{pin, " "}
			s.ClientCertSubjects = []string{"CN=a;CN=b"}
		}, []string{`ClientCertPins: element 2, " ", must be exactly one value`,
			`ClientCertSubjects: element 1, "CN=a;CN=b", must be`, `AllowedSources: element 1, "", must be`,
			"ClientCertPins: has no effect", "ClientCertSubjects: has no effect"}},
		"relations": {func(s *settings.Settings) { s.DeduplicationWindow = time.Minute },
			[]string{"DeduplicationWindow: must be at least 10m31s, which is twice TimestampTolerance plus " +
				"WebhookTimeout"}},
		"tokens": {func(s *settings.Settings) {
			s.Scopes, s.HostedZoneID = "a ${Token[Ref.2]}", "${Token[Ref.3]}"
			s.SubnetIDs, s.SecurityGroupIDs = []string{"#{Token[S.4]}"}, []string{"${Token[G.5]}", "sg-01234567"}
		}, []string{"Scopes: must be a literal", "HostedZoneID: needs DomainName"}},
		"a token beside another text": {func(s *settings.Settings) {
			s.SubnetIDs, s.SecurityGroupIDs = []string{"${Token[S.4]}", "subnet-x"}, []string{"${Token[G.5]}"}
		}, []string{"SubnetIDs: must be ids of subnets"}},
	} {
		fields := settings.Settings{BaseURL: d.BaseURL, AuthURL: d.AuthURL, TokenManagerID: d.TokenManagerID}
		c.change(&fields)
		got := problems(settings.Given{Fields: fields, FieldNames: true, Deployment: "Payhook"})
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	// A field replaces the context, and is named by what set it.
	got := problems(settings.Given{Texts: map[string]string{"successStatus": "100", "keysAuth": "x"},
		Fields: settings.Settings{SuccessStatus: 99, BaseURL: "x"}})
	want := []string{"BaseURL: must be", "authUrl: is required", "tokenManagerId: is required",
		"SuccessStatus: must be a whole number", "keysAuth: must be"}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The names of existing resources can be unknown until the deployment. Combinations are checked.
func TestFormOfUncheckedTextsIsNotChecked(t *testing.T) {
	g := given("eventBusName=default", "encryption=${Token[1]}", "hostedZoneId=${Token[2]}")
	g.Unchecked = map[string]bool{"eventBusName": true, "encryption": true}
	d, err := settings.ParseDeployment(g)
	got := fmt.Sprint(err)
	if !strings.HasPrefix(got, "hostedZoneId: needs domainName") || strings.Contains(got, "\n") ||
		d.EventBusName != "default" || d.Encryption != "${Token[1]}" {
		t.Errorf("%+v, %s", d, got)
	}
}

// problemsIn returns the problems of settings in a Region of the account 111122223333.
func problemsIn(region, bus string, pairs ...string) []string {
	g := given(pairs...)
	g.Account, g.Region, g.BusARN = "111122223333", region, bus
	return problems(g)
}

func TestRegionsHaveWhatTheStackNeeds(t *testing.T) {
	const missing = "ap-south-2 ap-southeast-4 ap-southeast-5 ap-southeast-6 ap-southeast-7 ca-west-1 cn-north-1 " +
		"cn-northwest-1 eu-central-2 il-central-1 me-central-1 mx-central-1 us-gov-east-1 us-gov-west-1 ap-east-2"
	for region := range strings.FieldsSeq(missing) {
		want := []string{"domainName: is required in " + region, "archiveRetention: must be off in ap-east-2"}
		if region != "ap-east-2" {
			want = want[:1]
		}
		if got := problemsIn(region, ""); !slices.EqualFunc(got, want, strings.HasPrefix) {
			t.Errorf("%s: %q", region, got)
		}
		got := problemsIn(region, "", "domainName=hook.bank.example", "hostedZoneId=Z1ABC", "archiveRetention=off")
		if got = append(got, problemsIn(region, "", "payhook:local=true")...); got != nil {
			t.Errorf("%s, with a domain name or on an emulator: %q", region, got)
		}
	}
	for _, region := range []string{"eu-central-1", "ap-southeast-3", "us-east-1"} {
		if got := problemsIn(region, ""); got != nil {
			t.Errorf("%s: %q", region, got)
		}
	}
}

func TestResourcesMustBeWhereTheStackIs(t *testing.T) {
	const here, otherAccount = "arn:aws:kms:us-east-1:111122223333:key/a", "arn:aws:kms:us-east-1:444455556666:key/a"
	for _, c := range []struct {
		bus            string
		settings, want []string
	}{
		{here, []string{"encryption=" + here}, nil},
		{"arn:${Token[P]}:events:${Token[R]}:${Token[A]}:event-bus/b", nil, nil},
		{"arn:aws:events:eu-west-1:1:event-bus/b", nil, []string{"eventBusName: must be in the Region us-east-1 of " +
			"the stack, not in eu-west-1", "eventBusName: must be in the account"}},
		{"arn:aws:events:${Token[R]}:1:event-bus/b", nil, []string{"eventBusName: must be in the account"}},
		{"", []string{"domainName=hook.bank.example", "certificateArn=" + certificate,
			"ownershipCertificateArn=" + certificate}, []string{"certificateArn", "ownershipCertificateArn"}},
		{"", []string{"encryption=" + otherAccount},
			[]string{"encryption: must be in the account 111122223333 of the stack"}},
	} {
		if got := problemsIn("us-east-1", c.bus, c.settings...); !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s %q: %q, want %q", c.bus, c.settings, got, c.want)
		}
	}
}

func TestUnknownKeysAreCorrected(t *testing.T) {
	for key, meant := range map[string]string{"baseURL": "baseUrl", "base-url": "baseUrl", "aseUrl": "baseUrl",
		"eventbusname": "eventBusName", "archiveRetentoin": "archiveRetention", "evidenc": "evidence",
		"evidencelock": "evidenceLock", "keyMaxFage": "keyMaxAge", "pins": "", "webhook_memory": "", "x": "", "tr": "",
		"scopXX": "scopes", "scoXXX": "", "baseUrlaseUrl": ""} {
		want := []string{key + ": no such setting"}
		if meant != "" {
			want[0] += "; did you mean " + meant + "?"
		}
		if got := problems(given(key + "=x")); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := settings.Named("hostedZoneId").Env() + settings.Named("allowedSources").Env() +
		settings.Named("payhook:redriveGrace").Env(); got !=
		"PAYHOOK_HOSTED_ZONE_IDPAYHOOK_ALLOWED_SOURCESPAYHOOK_REDRIVE_GRACE" {
		t.Error(got)
	}
}

func TestDefaultBusNameDiffersPerStack(t *testing.T) {
	for _, c := range [][]string{{"payhook"}, {"payhookstaging", "stackName=PayhookStaging"},
		{"payments", "stackName=PayhookStaging", "eventBusName=payments"}} {
		if d := deployment(t, c[1:]...); d.EventBusName != c[0] {
			t.Errorf("%q: the bus is %s", c, d.EventBusName)
		}
	}
	for name, want := range map[string]string{"Bank_Part": "bank_Part",
		strings.Repeat("A", 300): strings.Repeat("a", 256)} {
		if got := settings.DefaultBusName(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestSettingsOfTheContextNeedNoQuotes(t *testing.T) {
	folder := t.TempDir()
	for file, text := range map[string]string{
		"cdk.json": `{"app": "x", "context": {"webhookConcurrency": 6000000, "protectBus": true, "a": null, "scopes": "b",
			"tokenManagerId": [3], "@aws-cdk/core:x": true, "aws:cdk:x": "x", "acknowledged-issue-numbers": [34892],
			"cli-telemetry": false, "availability-zones:account=1:region=eu-central-1": ["a"]}}`,
		"wrong.json": `{`,
	} {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]map[string]string{
		"cdk.json":  {"webhookConcurrency": "6000000", "protectBus": "true", "scopes": "b", "tokenManagerId": "[3]"},
		"none.json": {},
	} {
		if got, err := settings.ReadContext(filepath.Join(folder, file)); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %v, %v", file, got, err)
		}
	}
	if _, err := settings.ReadContext(filepath.Join(folder, "wrong.json")); err == nil {
		t.Error("no error")
	}
	if got := settings.Text(nil); got != "" {
		t.Errorf("null is %q", got)
	}
}
