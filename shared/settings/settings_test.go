package settings_test

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

const (
	certificate = "arn:aws:acm:eu-central-1:111122223333:certificate/11111111-2222-3333-4444-555555555555"
	pin         = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// unexported ignores the origins of settings.
var unexported = cmpopts.IgnoreUnexported(settings.Settings{})

// required are the settings that must be set.
var required = []string{"baseUrl=https://api.example/base/", "authUrl=https://auth.example", "tokenManagerId=manager-1"}

// parse parses the settings of KEY=VALUE, of which a later one replaces an earlier one, beside the required ones.
func parse(stack settings.Stack, pairs ...string) (settings.Settings, error) {
	texts := map[string]string{}
	for _, pair := range slices.Concat(required, pairs) {
		key, value, _ := strings.Cut(pair, "=")
		texts[key] = value
	}
	var s settings.Settings
	s.Add(texts, "")
	return s.Parse(stack)
}

func valid(t *testing.T, pairs ...string) settings.Settings {
	t.Helper()
	s, err := parse(settings.Stack{}, pairs...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// lines returns the problems of an error.
func lines(_ settings.Settings, err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

func problems(pairs ...string) []string { return lines(parse(settings.Stack{}, pairs...)) }

// truststore writes a truststore, and returns the setting for it.
func truststore(t *testing.T, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return "truststore=" + path
}

// areAbout reports whether problems are about these, in their order: each has the name of a setting, and what its
// problem begins with.
func areAbout(problems, want []string) bool {
	return slices.EqualFunc(problems, want, func(problem, want string) bool {
		name, text, _ := strings.Cut(want, ": ")
		return strings.HasPrefix(problem, name) && strings.Contains(problem, ": "+text)
	})
}

// The extremes of the tags, which the table in infra/README.md shows, are valid, and nothing beyond.
func TestSettingsHaveLimits(t *testing.T) {
	for _, s := range settings.All() {
		_, limits, ok := strings.Cut(strings.Split(s.Limits(), ",")[0], "from ")
		if !ok {
			continue
		}
		least, most, _ := strings.Cut(limits, " to ")
		n, _ := settings.ParseDuration(least)
		m, _ := settings.ParseDuration(most)
		values := map[string]bool{least: true, most: true, "\n": false, (n - 1).String(): false,
			(m + 1).String(): false}
		for value, want := range values {
			got := lines(parse(settings.Stack{Local: true}, s.Key+"="+value))
			if valid := !slices.ContainsFunc(got, func(p string) bool {
				return strings.HasPrefix(p, s.Key+"=") && strings.Contains(p, s.Limits())
			}); valid != want {
				t.Errorf("%s=%q: %q", s.Key, value, got)
			}
		}
	}
}

func TestTextsHaveForms(t *testing.T) {
	for key, c := range map[string]struct{ valid, invalid []string }{
		"archiveRetention":    {[]string{"off", "48h"}, []string{"", "0", "never", "36h", "-1d", "1.5d", "65536d"}},
		"largeEventRetention": {[]string{"never", "48000h"}, []string{"", "0", "361h", "-20d", "forever", "off"}},
		"alarmSilence":        {[]string{"off", "6h", "7d"}, []string{"", "30m", "90m"}},
		"keyEndpointAuth":     {[]string{"none", "bearer"}, []string{"", "None", "basic"}},
		"timestampTolerance":  {[]string{"90s"}, []string{"", "x", "99999999999999999999", "d", "1h1d"}},
		"protectBus":          {[]string{"true", "false"}, []string{"", "no", "1x", "TRUE"}},
		"tokenManagerId":      {nil, []string{" ", ""}},
		"signatureHeader":     {nil, []string{"a b"}},
		"timestampLocation":   {nil, []string{"cookie:x"}},
		"keyIdLocation":       {[]string{"static:5f0c1b7e-3d43-4f26-9c0d-2f1f6a5b7c8d"}, []string{"static:x"}},
		"webhookTimeout":      {[]string{"12000ms"}, []string{"12500ms", "12s1ns"}},
		"logRetentionDays":    {[]string{"1", "400", "3653"}, []string{"", "0", "2", "364", "10000"}},
		"stackName":           {[]string{"A", strings.Repeat("A", 100)}, []string{"1", strings.Repeat("A", 101)}},
		"scopes":              {[]string{"", " ! #[]~ "}, []string{`a"`, `a\`, "é", "a\x7f", "a\tb"}},
		"storeRejected":       {[]string{"off"}, []string{"", "never"}},
		"evidence": {[]string{"off", "7y", "1d governance", "36500d compliance"}, []string{"", "36h", "0d", "36501d",
			"7y Compliance", "7y ", "compliance", "off compliance"}},
		"eventBusName": {[]string{"default-payments", strings.Repeat("b", 256)},
			[]string{"default", "a/b", strings.Repeat("b", 257)}},
		"ledgerTable":   {[]string{"a.b_c-D"}, []string{"a/b", "ab"}},
		"parkingBucket": {[]string{"abc"}, []string{"p", "Parking"}},
		"encryption": {[]string{"cmk", "arn:aws:kms:eu-central-1:123456789012:key/mrk-b"},
			[]string{"kms", "arn:aws:kms:eu-central-1:123456789012:alias/a"}},
		"domainName": {nil, []string{"a", "a.B", "a..b", "-a.b", "a-.b", "a.b:443", strings.Repeat("a", 64) + ".b"}},
		"allowedNetworks": {[]string{"", "0.0.0.0/0", "::/0", "192.0.2.1/32; 198.51.100.0/24;2001:db8::/32"},
			[]string{",", "192.0.2.0/24,198.51.100.0/24", "192.0.2.1/24", "2001:db8::1/32", " ", "192.0.2.0/24;",
				"192.0.2.0/33", "192.0.2.0", "192.0.2/24", "::ffff:192.0.2.0/120", "fe80::%eth0/64", "x",
				"192.0.2.0/24;192.0.2.0/24", "192.0.2.0/24;192.0.2.128/25", "2001:db8:1::/48;2001:db8::/32",
				"0.0.0.0/0;192.0.2.0/24", "2001:db8::/32;0.0.0.0/0", "0.0.0.0/0;2001:db8::/32", "0.0.0.0/0;::/0"}},
		"subnetIds": {[]string{"subnet-01234567;subnet-0123456789abcdef0"}, []string{"subnet-0123456",
			"subnet-0123456G", "subnet-0123456789", "sg-01234567", "subnet-01234567;", "subnet-01234567,x"}},
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
			got := problems(key + "=" + text)
			got = slices.DeleteFunc(got, func(p string) bool { return !strings.HasPrefix(p, key) })
			if valid := slices.Contains(c.valid, text); valid && len(got) > 0 || !valid && len(got) != 1 {
				t.Errorf("%s=%q: %q", key, text, got)
			}
		}
	}
}

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
	const subnets, groups = "subnetIds=subnet-0123456789abcdef0 ", "securityGroupIds=sg-0123456789abcdef0 "
	for _, c := range []struct{ settings, want string }{
		{"", ""},
		{"baseUrl= authUrl= tokenManagerId=",
			"baseUrl: is required (example: https://|authUrl: is required|tokenManagerId: is required"},

		// A problem names what is allowed.
		{"successStatus=1x", "successStatus: must be a status from 200 to 299"},
		{"keyMaxAge=1x", "keyMaxAge=1x: must be whole hours from 1h to 90d (example: 24h)"},
		{"protectBus=1x", "protectBus: must be false or true"},

		// Without a token, nothing is needed for it.
		{"tokenStore=none authUrl= tokenManagerId=", ""},
		{"tokenStore=none authUrl= baseUrl=", "baseUrl: is required"},
		{"tokenStore=none authUrl=x", "authUrl: must be"},
		{"tokenStore=none keyEndpointAuth=bearer",
			"keyEndpointAuth=bearer: must be none, as no access token is kept with tokenStore=none"},
		{"tokenStore=none scopes=a credentialEncoding=literal",
			"scopes=a: has no effect with tokenStore=none|credentialEncoding: has no effect with tokenStore=none"},
		{"tokenStore=parameter scopes=a credentialEncoding=form", ""},
		{"tokenStore=ssm authUrl=", "authUrl: is required|tokenStore: must be secret or parameter or none"},

		{"logRetentionDays=1x", "logRetentionDays: must be one of 1 3 5 7 14 30 60 90 120 150 180 365 400 545 731 " +
			"1096 1827 2192 2557 2922 3288 3653"},

		// A webhook is accepted 5 minutes early, and repeated 5 minutes late.
		{"deduplicationWindow=10m30s", "deduplicationWindow: must be at least 10m31s, which is twice " +
			"timestampTolerance=5m (default) plus webhookTimeout=30s (default) and a second"},
		{"deduplicationWindow=10m31s", ""},
		{"webhookTimeout=2m deduplicationWindow=11m", "deduplicationWindow: must be at least 12m1s"},
		{"timestampTolerance=off deduplicationWindow=1m", ""},
		{"webhookTimeout=x deduplicationWindow=1m", "webhookTimeout: must be"},

		// Large events outlive references to them.
		{"largeEventRetention=34d archiveRetention=20d",
			"largeEventRetention: must be at least 35 days: redrive can publish a " +
				"reference until its last attempt, the archive delivers it again with archiveRetention=20d, and"},
		{"largeEventRetention=34d archiveRetention=19d", ""},
		{"largeEventRetention=15d archiveRetention=off", ""},

		// Parts of the proof have different places.
		{"timestampLocation=header:X-Proof keyIdLocation=header:x-proof",
			"keyIdLocation: must differ from timestampLocation=header:X-Proof"},
		{"timestampLocation=header:x-svc-signature", "timestampLocation: must differ from signatureHeader"},
		{"timestampLocation=query:p keyIdLocation=query:P", ""},
		{"timestampLocation=cookie:x keyIdLocation=cookie:x", "timestampLocation: must be|keyIdLocation: must be"},

		// The endpoint.
		{"domainName=hook.bank.example hostedZoneId=Z0123456789ABC", ""},
		{"domainName=hook.bank.example", "certificateArn: or hostedZoneId is required with domainName=hook."},
		{"domainName=localhost webhookTimeout=31s", "domainName: must be a domain name"},
		{"certificateArn=" + certificate + " hostedZoneId=Z1ABC",
			"certificateArn: has no effect without domainName|hostedZoneId: has no effect"},
		{mtls + "webhookTimeout=31s", "webhookTimeout: must be at most 30s with domainName"},

		// The network.
		{subnets + groups, ""},
		{subnets, "securityGroupIds: is required with subnetIds"},
		{groups, "subnetIds: is required with securityGroupIds"},
		{"subnetIds=subnet-x " + groups, "subnetIds: must be ids of subnets"},

		// Lambda takes 4 KB of environment variables.
		{mtls + "clientCertPins=" + pin + strings.Repeat(";"+pin, 44),
			"clientCertPins: is too long: with its 2924 bytes, the environment variables of the webhook " +
				"function have about 4"},
		{"scopes=" + strings.Repeat("a", 4000), "scopes: is too long: with its 4000 bytes, the environment variables " +
			"of the token function have about 48"},

		// Authentication.
		{mtls, ""},
		{mtls + "authentication=both hostedZoneId=Z1ABC", ""},
		{mtls + `clientCertSubjects=CN=a\;b,O=c\\;*.d.example revokedKeys=` + strings.ToUpper(pin) +
			" clientCertPins=" + pin + ";" + pin, ""},
		{mtls + "clientCertSubjects=d.example;cn=a",
			"clientCertSubjects: must be a DNS name, or a subject exactly as the line of a webhook shows it"},
		{mtls + "revokedKeys=12@CN=a clientCertPins=" + pin[1:],
			"clientCertPins: must be the SHA-256|revokedKeys: must be a key id (UUID), the thumbprint of a JWK"},
		{"revokedKeys=" + pin + ";5F0C1B7E-3d43-4f26-9c0d-2f1f6a5b7c8d;5f0c1b7e3d434f269c0d2f1f6a5b7c8d;" +
			"NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs", ""},
		{"revokedKeys=" + pin + ";5f0c1b7e-3d43-4f26-9c0d-2f1f6a5b7c8", "revokedKeys: must be a key id"},
		{mtls + "clientCertSubjects=; clientCertPins=;" + pin + " revokedKeys=" + pin + ";",
			"clientCertPins: element 1 is empty|clientCertSubjects: element 1 is empty|" +
				"revokedKeys: element 2 is empty"},
		{"authentication=tls", "authentication: must be signature or mtls or both"},
		{mtls + "domainName= certificateArn=", "domainName: is required with authentication=mtls"},
		{mtls + "authentication=both truststore=", "truststore: is required with authentication=both"},
		{mtls + "authentication=signature", "truststore: has no effect with authentication=signature"},
		{"clientCertSubjects=CN=a clientCertPins=" + pin, "clientCertPins: has no effect|" +
			"clientCertSubjects: has no effect"},
		{mtls + "storeRejected=1h", "storeRejected: must be off: with authentication=mtls"},
		{"storeRejected=1h deduplicationWindow=3d",
			"deduplicationWindow: must be longer than 72h with storeRejected=1h"},
		{"storeRejected=1h deduplicationWindow=73h", ""},
		{mtls + "truststore=/nowhere", "truststore: open /nowhere"},
		{service(ca.PEM()), ""},
		{"serviceCA=/nowhere", "serviceCA: open /nowhere"},
		{service([]byte("no CA")), "serviceCA: there is no certificate in PEM"},
		{mtls + "tokenStore=none " + service(ca.PEM()), "serviceCA: has no effect"},
		{service(append(ca.PEM(), expired...)),
			"serviceCA: certificate 2 (CN=Operator CA,O=Payment Service) has expired"},
		{mtls + truststore(t, append(ca.PEM(), client...)), "truststore: "},
		{mtls + clients, "truststore: certificate 1 "},
	} {
		got := problems(strings.Fields(c.settings)...)
		want := strings.FieldsFunc(c.want, func(r rune) bool { return r == '|' })
		if !areAbout(got, want) {
			t.Errorf("%q:\n%q, want\n%q", c.settings, got, c.want)
		}
	}
	// Only certificates are deployed.
	withText := []byte("\uFEFF# The CA\n" + string(ca.PEM()) + "text")
	d := valid(t, strings.Fields(mtls+truststore(t, withText)+" "+service(withText))...)
	for name, text := range d.Files() {
		if len(d.Files()) != 2 || !bytes.Equal(text, ca.PEM()) {
			t.Errorf("%s is %q", name, text)
		}
	}
}

// others returns a text for each setting that is valid by itself and not its default.
func others() map[string]string {
	texts := map[string]string{"logRetentionDays": "365", "truststore": "ca.pem", "serviceCA": "ca.pem",
		"protectBus": "false", "fips": "true", "tokenStore": "parameter", "webhookConcurrency": "7"}
	for _, s := range settings.All() {
		if texts[s.Key] == "" {
			texts[s.Key] = s.Example
		}
	}
	maps.Copy(texts, map[string]string{"keyEndpointAuth": "bearer", "credentialEncoding": "form",
		"authentication": "both", "successStatus": "201", "timestampTolerance": "off", "keyMaxAge": "25h",
		"deduplicationWindow": "40d", "largeEventRetention": "never", "archiveRetention": "off",
		"webhookTimeout": "12s"})
	return texts
}

// A field of Props means what the text in a file means, and a function what the CDK app means.
func TestEverySettingHasOneMeaning(t *testing.T) {
	const add = "a new setting: add to others, in this file, a valid text that is not its default"
	texts := others()
	var added settings.Settings
	added.Add(texts, "")
	fromTexts, _ := added.Parse(settings.Stack{})
	fromFields, _ := fromTexts.Parse(settings.Stack{})
	if diff := cmp.Diff(fromTexts, fromFields, unexported); diff != "" {
		t.Errorf("a kind of field that setting.go does not parse or write (-texts +fields)\n%s", diff)
	}
	env := map[string]string{}
	for _, s := range settings.All() {
		switch got := fromTexts.Text(s); {
		case s.Key == "stackName": // no field
		case texts[s.Key] == "" || texts[s.Key] == s.Default:
			t.Errorf("%s: %q: %s", s.Key, texts[s.Key], add)
		case got != texts[s.Key]:
			t.Errorf("%s: %q became %q: parse and Text in setting.go must agree, or the text in others is invalid",
				s.Key, texts[s.Key], got)
		}
		env[s.Env()] = fromTexts.Text(s)
	}
	for function := range functions {
		f, _ := settings.ParseConfig(function, func(name string) string { return env[name] })
		for _, s := range settings.ReadBy(function) {
			if got := f.Text(s); got != texts[s.Key] {
				t.Errorf("%s: %s is %q, want %q: the function must read what the tag \"by\" says", function, s.Key, got,
					texts[s.Key])
			}
		}
	}
}

// A problem names the setting as the user has written it, with its value and where that is from. Those of fields are
// in Go. Each element of a list is one value.
func TestProblemsShowValuesAndOrigins(t *testing.T) {
	var file settings.Settings
	file.Add(map[string]string{"baseUrl": "https://a.example", "authUrl": "no where",
		"evidence": "7y  compliance", "alarmSilence": "90m", "scopes": strings.Repeat("\x07é", 100),
		"eventBusNam": "b"}, "infra/settings.json")
	both := file
	both.Add(map[string]string{"authUrl": "https://b.example", "timestampTolerance": "24h",
		"deduplicationWindow": "1d", "baseUrl": "x"}, "-c")
	for name, c := range map[string]struct {
		given settings.Settings
		want  string
	}{
		"a file": {file, `authUrl="no where" (infra/settings.json): must be an https URL (example: https://
tokenManagerId: is required (example: manager-1)
scopes="\aé\aé\aé\aé\aé\aé\aé\aé\aé\aé\aé\aé\aé\aé\aé\aé\aé\aé\aé\a… (infra/settings.json): must be visible
evidence="7y  compliance" (infra/settings.json): must be off, or whole days from 1d to 36500d, which governance (the
alarmSilence=90m (infra/settings.json): must be whole hours from 1h to 7d, or off (example: 1h)
eventBusNam=b (infra/settings.json): no such setting; did you mean eventBusName?`},
		"the command line": {both, `baseUrl=x (-c): must be an https URL (example:
tokenManagerId: is required
scopes=
evidence=
alarmSilence=90m (infra/settings.json): must
deduplicationWindow=1d (-c): must be at least 48h0m31s, which is twice timestampTolerance=24h (-c) plus web
eventBusNam=`},
	} {
		got := lines(c.given.Parse(settings.Stack{}))
		if want := strings.Split(c.want, "\n"); !slices.EqualFunc(got, want, strings.HasPrefix) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), c.want)
		}
	}

	complete := settings.Settings{BaseURL: "https://a.example", AuthURL: "https://b.example", TokenManagerID: "c"}
	for name, c := range map[string]struct {
		change func(s *settings.Settings)
		want   string
	}{
		"words": {func(s *settings.Settings) {
			s.ArchiveRetention, s.LargeEventRetention, s.TimestampTolerance = settings.Off, settings.Never, settings.Off
		}, ""},
		"values": {func(s *settings.Settings) {
			s.KeyEndpointAuth, s.SuccessStatus, s.AllowedNetworks = "basic", 99, []string{"192.0.2.1", "::/0"}
		}, `SuccessStatus=99: must be a status from 200 to 299
KeyEndpointAuth="basic": must be none or bearer
AllowedNetworks=[]string{"192.0.2.1", "::/0"}: must be networks of IPv4 or IPv6 in CIDR notation without host bits (e`},
		"durations": {func(s *settings.Settings) {
			s.KeyMaxAge, s.WebhookTimeout, s.AlarmSilence = settings.Off, 12500*time.Millisecond, 90*time.Minute
		}, `KeyMaxAge=payhook.Off: must be whole hours from 1*time.Hour to 2160*time.Hour (example: 24*time.Hour)
AlarmSilence=90*time.Minute: must be whole hours from 1*time.Hour to 168*time.Hour, or payhook.Off (example: 1*time.H
WebhookTimeout=time.Duration(12500000000): must be whole seconds from 4*time.Second to 15*time.Minute`},
		"relations": {func(s *settings.Settings) {
			s.DeduplicationWindow, s.Scopes, s.TokenStore = time.Minute, "a", "none"
		}, `Scopes="a": has no effect with TokenStore="none"
DeduplicationWindow=1*time.Minute: must be at least 10m31s, which is twice TimestampTolerance=5*time.Minute (`},
		"tokens": {func(s *settings.Settings) {
			s.Scopes, s.HostedZoneID = "a ${Token[Ref.2]}", "${Token[Ref.3]}"
			s.SubnetIDs, s.SecurityGroupIDs = []string{"#{Token[S.4]}"}, []string{"${Token[G.5]}", "sg-01234567"}
		}, `Scopes="a ${Token[Ref.2]}": must be a literal
HostedZoneID="${Token[Ref.3]}": has no effect without DomainName`},
		"elements": {func(s *settings.Settings) {
			s.AllowedNetworks, s.ClientCertSubjects = []string{"192.0.2.0/24", " "}, []string{"CN=a;CN=b"}
		}, `ClientCertSubjects=[]string{"CN=a", "CN=b"}: element 1, "CN=a;CN=b", must be exactly one value
AllowedNetworks=[]string{"192.0.2.0/24", ""}: element 2, " ", must be exactly one value
ClientCertSubjects=[]string{"CN=a", "CN=b"}: has no effect with`},
		"a token beside another text": {func(s *settings.Settings) {
			s.SubnetIDs, s.SecurityGroupIDs = []string{"${Token[S.4]}", "subnet-x"}, []string{"${Token[G.5]}"}
		}, `SubnetIDs=[]string{"${Token[S.4]}", "subnet-x"}: must be ids of subnets`},
	} {
		fields := complete
		c.change(&fields)
		got := lines(fields.Parse(settings.Stack{}))
		want := strings.FieldsFunc(c.want, func(r rune) bool { return r == '\n' })
		if !slices.EqualFunc(got, want, strings.HasPrefix) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), c.want)
		}
	}
}

func TestEvidenceIsLockedInAMode(t *testing.T) {
	for text, want := range map[string]string{"off": "0 false", "1d": "1 false", "2d governance": "2 false",
		"7y": "2562 false", "1y compliance": "366 true"} {
		days, compliance := settings.Settings{Evidence: text}.EvidenceLock()
		if got := fmt.Sprint(days, compliance); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// problemsIn returns the problems of settings in a Region of the account 111122223333.
func problemsIn(region string, pairs ...string) []string {
	return lines(parse(settings.Stack{Account: "111122223333", Region: region}, pairs...))
}

func TestRegionsHaveWhatTheStackNeeds(t *testing.T) {
	const missing = "ap-south-2 ap-southeast-4 ap-southeast-5 ap-southeast-6 ap-southeast-7 ca-west-1 cn-north-1 " +
		"cn-northwest-1 eu-central-2 il-central-1 me-central-1 mx-central-1 us-gov-east-1 us-gov-west-1 ap-east-2"
	for region := range strings.FieldsSeq(missing) {
		want := []string{"domainName: is required in " + region, "archiveRetention: must be off in ap-east-2"}
		if region != "ap-east-2" {
			want = want[:1]
		}
		if got := problemsIn(region); !areAbout(got, want) {
			t.Errorf("%s: %q", region, got)
		}
		got := problemsIn(region, "domainName=hook.bank.example", "hostedZoneId=Z1ABC", "archiveRetention=off")
		if got = append(got, lines(parse(settings.Stack{Region: region, Local: true}))...); got != nil {
			t.Errorf("%s, with a domain name or on an emulator: %q", region, got)
		}
	}
	for _, region := range []string{"eu-central-1", "ap-southeast-3", "us-east-1"} {
		if got := problemsIn(region); got != nil {
			t.Errorf("%s: %q", region, got)
		}
	}
}

func TestResourcesMustBeWhereTheStackIs(t *testing.T) {
	const here, otherAccount = "arn:aws:kms:us-east-1:111122223333:key/a", "arn:aws:kms:us-east-1:444455556666:key/a"
	for text, want := range map[string][]string{
		"encryption=" + here: nil,
		"domainName=hook.bank.example certificateArn=" + certificate: {
			"certificateArn: must be in the Region us-east-1 of the stack, not in eu-central-1"},
		"encryption=" + otherAccount: {"encryption: must be in the account 111122223333 of the stack"},
	} {
		if got := problemsIn("us-east-1", strings.Fields(text)...); !areAbout(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestUnknownKeysAreCorrected(t *testing.T) {
	for key, meant := range map[string]string{"baseURL": "baseUrl", "base-url": "baseUrl", "aseUrl": "baseUrl",
		"eventbusname": "eventBusName", "archiveRetentoin": "archiveRetention", "evidenc": "evidence",
		"keyMaxFage": "keyMaxAge", "pins": "", "webhook_memory": "", "x": "", "tr": "",
		"scopXX": "scopes", "scoXXX": "", "baseUrlaseUrl": ""} {
		want := []string{key + "=x: no such setting"}
		if meant != "" {
			want[0] += "; did you mean " + meant + "?"
		}
		if got := problems(key + "=x"); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := settings.ByKey("hostedZoneId").Env() + settings.ByKey("allowedNetworks").Env(); got !=
		"PAYHOOK_HOSTED_ZONE_IDPAYHOOK_ALLOWED_NETWORKS" {
		t.Error(got)
	}
}

func TestDefaultBusNameDiffersPerStack(t *testing.T) {
	for _, c := range [][]string{{"Payhook"}, {"payhook", "stackName=payhook"},
		{"PayhookStaging", "stackName=PayhookStaging"},
		{"payments", "stackName=PayhookStaging", "eventBusName=payments"}} {
		if d := valid(t, c[1:]...); d.EventBusName != c[0] {
			t.Errorf("%q: the bus is %s", c, d.EventBusName)
		}
	}
}

func TestValuesOfFilesNeedNoQuotes(t *testing.T) {
	for text, want := range map[string]string{
		`{"webhookConcurrency": 6000000, "protectBus": true, "a": null, "b": "", "scopes": "c", "clientCertSubjects":
			["CN=a\\;b,O=c", "d"]}`: `map[clientCertSubjects:CN=a\;b,O=c;d protectBus:true scopes:c ` +
			"webhookConcurrency:6000000]",
		"\uFEFF{\"scopes\": \"c\"}":           "map[scopes:c]",
		`{`:                                   "unexpected EOF",
		`[]`:                                  "unmarshal JSON array",
		`{"scopes": "a", "scopes": "b"}`:      `duplicate object member name "scopes"`,
		`{"scopes": "a", "sc\u006fpes": "a"}`: `duplicate object member name "scopes"`,
		`{"a": {"b": [{"c": 1, "c": 1}]}}`:    `duplicate object member name "c"`,
		`{"allowedNetworks": ["a;b"]}`:        `allowedNetworks: element 1, "a;b", must be exactly one value`,
		`{"allowedNetworks": [1]}`:            "allowedNetworks: must be a list of texts",
		`{"evidence": {}}`:                    "evidence: must be a text, a number, true, false or a list of texts",
	} {
		file := filepath.Join(t.TempDir(), "settings.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := settings.ReadFile(file)
		if shown := fmt.Sprint(got); err != nil && (!strings.HasPrefix(err.Error(), file) ||
			!strings.Contains(err.Error(), want)) || err == nil && shown != want {
			t.Errorf("%s: %s, %v", text, shown, err)
		}
	}
	if got, err := settings.ReadFile(filepath.Join(t.TempDir(), "none.json")); len(got) != 0 || err != nil {
		t.Errorf("no file: %v, %v", got, err)
	}
}

func TestPairsHaveValuesWithSpaces(t *testing.T) {
	const subjects = "clientCertSubjects="
	for text, want := range map[string]string{
		"":                                   "map[]",
		" successStatus=204  scopes=a b\tc ": "map[scopes:a b c successStatus:204]",
		"evidence=7d compliance scopes=":     "map[evidence:7d compliance scopes:]",
		"scopes= successStatus=204":          "map[scopes: successStatus:204]",
		subjects + "CN=a b,O=c":              "map[clientCertSubjects:CN=a b,O=c]",
		subjects + "CN=a b,O=c;CN=d,O=e f scopes=g": "map[clientCertSubjects:CN=a b,O=c;CN=d,O=e f scopes:g]",
		subjects + "'CN=a b, O=c' scopes=g":         "map[clientCertSubjects:CN=a b, O=c scopes:g]",
		"scopes=g " + subjects + `"CN=O'Neil, O=c"`: "map[clientCertSubjects:CN=O'Neil, O=c scopes:g]",
		subjects + "CN=O'Neil 'x'":                  "map[clientCertSubjects:CN=O'Neil 'x']",
		subjects + "'CN=O'Neil, O=c'":               "map[clientCertSubjects:CN=O'Neil, O=c]",
		`scopes="" evidence=''`:                     "map[evidence: scopes:]",
		`scopes='a`:                                 "KEY='VALUE'",
		`scopes='a'b`:                               "KEY='VALUE'",
		"x y=z":                                     "must be KEY=VALUE",
		subjects + "CN=a, O=c":                      "O: no such setting",
		"scopes=a base-url=b":                       "base-url: no such setting; did you mean baseUrl?",
		"scopes=a stackName=b":                      "stackName cannot be set here",
	} {
		got := map[string]string{}
		err := settings.ParsePairs(got, text, settings.AllExcept("stackName"))
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && fmt.Sprint(got) != want {
			t.Errorf("%q: %v, %v, want %s", text, got, err, want)
		}
	}
}

// A function with fips calls names that exist only in some Regions. The emulator is in none.
func TestFIPSNeedsARegionWithTheEndpoints(t *testing.T) {
	for region, want := range map[string]string{"us-east-1": "", "us-west-1": "",
		"eu-central-1": "must be false in eu-central-1: ", "ca-central-1": "must be false in ca-central-1: ",
		"us-iso-east-1": "must be false in us-iso-east-1: ",
		"":              "must be false in a Region that is not known at synthesis: ",
	} {
		for _, local := range []bool{false, true} {
			for _, fips := range []bool{false, true} {
				var about []string
				if fips && !local && want != "" {
					about = []string{"fips=true: " + want}
				}
				got := lines(parse(settings.Stack{Region: region, Local: local}, fmt.Sprintf("fips=%t", fips)))
				if !areAbout(got, about) {
					t.Errorf("%q, local %t, fips %t: %q, want %q", region, local, fips, got, about)
				}
			}
		}
	}
	for _, region := range []string{"us-gov-east-1", "us-gov-west-1"} {
		if got := problemsIn(region, "fips=true", "domainName=pay.bank.example", "hostedZoneId=Z1"); got != nil {
			t.Errorf("%s: %q", region, got)
		}
	}
}
