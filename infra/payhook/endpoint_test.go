package payhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

const someCertificate = "arn:aws:acm:eu-central-1:111122223333:certificate/11111111-2222-3333-4444-555555555555"

// onDomain are the settings of an endpoint on a domain name in a hosted zone.
var onDomain = map[string]any{"domainName": "hook.bank.example", "hostedZoneId": "Z0123456789ABC"}

// truststores holds two truststores in files that TestMain removes.
var truststores = sync.OnceValue(func() (files [2]string) {
	folder, err := os.MkdirTemp("", "truststores")
	if err != nil {
		panic(err)
	}
	for i := range files {
		files[i] = filepath.Join(folder, fmt.Sprint(i, ".pem"))
		if err := os.WriteFile(files[i], paymenttest.NewCA(fmt.Sprint("Operator CA ", i)).PEM(), 0o600); err != nil {
			panic(err)
		}
	}
	return files
})

// with returns the settings of onDomain with changes.
func with(changes map[string]any) map[string]any {
	conf := maps.Clone(onDomain)
	maps.Copy(conf, changes)
	return conf
}

// mtls returns the settings of an endpoint that requires client certificates.
func mtls(authentication string) map[string]any {
	return with(map[string]any{"authentication": authentication, "truststore": truststores()[0]})
}

// domains are the settings of each mechanism on a domain name.
func domains() map[string]map[string]any {
	return map[string]map[string]any{
		settings.BySignature: onDomain,
		settings.ByMTLS:      mtls(settings.ByMTLS),
		settings.ByBoth:      mtls(settings.ByBoth),
	}
}

func TestDomainIsTheOnlyEndpoint(t *testing.T) {
	for name, conf := range domains() {
		tm := payhook(t, conf)
		for path, r := range tm.Resources {
			if r.Type == "AWS::Lambda::Url" {
				t.Errorf("%s: %s is a function URL", name, path)
			}
		}
		if strings.Contains(tm.text, "InvokeFunctionUrl") || strings.Contains(tm.text, "InvokedViaFunctionUrl") {
			t.Errorf("%s: a permission is for a function URL", name)
		}
		apis := tm.all(t, "AWS::ApiGatewayV2::Api")
		api := tm.get(t, "Endpoint/Api", "AWS::ApiGatewayV2::Api").Properties
		if len(apis) != 1 || api["DisableExecuteApiEndpoint"] != true || api["ProtocolType"] != "HTTP" {
			t.Errorf("%s: %d APIs, %v", name, len(apis), api)
		}
		if len(tm.all(t, "AWS::ApiGatewayV2::Stage")) != 1 || len(tm.all(t, "AWS::ApiGatewayV2::ApiMapping")) != 1 ||
			len(tm.all(t, "AWS::ApiGatewayV2::Integration")) != 1 ||
			len(tm.all(t, "AWS::ApiGatewayV2::DomainName")) != 1 {
			t.Errorf("%s: more than one stage, mapping, integration or domain name", name)
		}
		routes := tm.all(t, "AWS::ApiGatewayV2::Route")
		if len(routes) != 1 {
			t.Fatalf("%s: %d routes", name, len(routes))
		}
		route := tm.get(t, "Endpoint/Route", "AWS::ApiGatewayV2::Route").Properties
		if route["RouteKey"] != "POST /" || tm.render(route["ApiId"]) != "Endpoint/Api" ||
			tm.render(route["Target"]) != "integrations/Endpoint/Integration" {
			t.Errorf("%s: %v", name, route)
		}
	}
}

func TestAPIInvokesTheAliasWithPayloadFormat2(t *testing.T) {
	for name, conf := range domains() {
		tm := payhook(t, conf)
		got := tm.get(t, "Endpoint/Integration", "AWS::ApiGatewayV2::Integration").Properties
		if tm.render(got["ApiId"]) != "Endpoint/Api" || tm.render(got["IntegrationUri"]) != "Webhook/Alias" ||
			got["IntegrationType"] != "AWS_PROXY" ||
			got["PayloadFormatVersion"] != "2.0" || got["TimeoutInMillis"] != 30000.0 {
			t.Errorf("%s: %v", name, got)
		}
		mapping := tm.get(t, "Endpoint/Mapping", "AWS::ApiGatewayV2::ApiMapping").Properties
		if tm.render(mapping["ApiId"]) != "Endpoint/Api" || tm.render(mapping["DomainName"]) != "Endpoint/Domain" ||
			tm.render(mapping["Stage"]) != "Endpoint/Stage" || mapping["ApiMappingKey"] != nil {
			t.Errorf("%s: %v", name, mapping)
		}
	}
}

func TestOnlyThisAPIAndRouteCanInvokeTheFunction(t *testing.T) {
	all := domains()
	all["PUT"] = with(map[string]any{"httpMethod": "PUT"})
	for name, conf := range all {
		tm := payhook(t, conf)
		permissions := tm.all(t, "AWS::Lambda::Permission")
		if len(permissions) != 1 {
			t.Fatalf("%s: %d permissions", name, len(permissions))
		}
		method := "POST"
		if name == "PUT" {
			method = "PUT"
		}
		for path, p := range permissions {
			got := map[string]string{}
			for property, value := range p.Properties {
				got[property] = tm.render(value)
			}
			want := map[string]string{
				"Action": "lambda:InvokeFunction", "FunctionName": "Webhook/Alias",
				"Principal": "apigateway.amazonaws.com",
				"SourceArn": "arn:AWS::Partition:execute-api:AWS::Region:AWS::AccountId:Endpoint/Api/$default/" +
					method + "/",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s (-want +got)\n%s", name, path, diff)
			}
		}
	}
}

func TestDomainNameRequiresTLS12AndClientCertificates(t *testing.T) {
	const ownership = "arn:aws:acm:eu-central-1:111122223333:certificate/66666666-7777-8888-9999-000000000000"
	all := domains()
	all["imported"] = mtls(settings.ByMTLS)
	all["imported"]["certificateArn"], all["imported"]["ownershipCertificateArn"] = someCertificate, ownership
	for name, conf := range all {
		tm := payhook(t, conf)
		domain := tm.get(t, "Endpoint/Domain", "AWS::ApiGatewayV2::DomainName").Properties
		want := map[string]any{"CertificateArn": "Endpoint/Certificate", "EndpointType": "REGIONAL",
			"IpAddressType": "dualstack", "SecurityPolicy": "TLS_1_2"}
		if name == "imported" {
			want["CertificateArn"], want["OwnershipVerificationCertificateArn"] = someCertificate, ownership
		}
		got := maps.Clone(at(domain, "DomainNameConfigurations", 0).(map[string]any))
		got["CertificateArn"] = tm.render(got["CertificateArn"])
		if diff := cmp.Diff(want, got); diff != "" || domain["DomainName"] != "hook.bank.example" {
			t.Errorf("%s: %v (-want +got)\n%s", name, domain["DomainName"], diff)
		}
		uri := tm.render(at(domain, "MutualTlsAuthentication", "TruststoreUri"))
		switch {
		case name == settings.BySignature && domain["MutualTlsAuthentication"] != nil:
			t.Errorf("%s: clients need a certificate: %v", name, domain)
		case name != settings.BySignature && (!strings.HasPrefix(uri, "s3://") || !strings.HasSuffix(uri, ".pem")):
			t.Errorf("%s: the truststore is %s", name, uri)
		}
	}
}

// API Gateway does not read an object again whose content changes.
func TestNewTruststoreIsANewObject(t *testing.T) {
	uri := func(file string) string {
		tm := payhook(t, with(map[string]any{"authentication": "mtls", "truststore": file}))
		return tm.render(at(tm.get(t, "Endpoint/Domain", "AWS::ApiGatewayV2::DomainName").Properties,
			"MutualTlsAuthentication", "TruststoreUri"))
	}
	files := truststores()
	if first, second := uri(files[0]), uri(files[1]); first == second {
		t.Errorf("both are %s", first)
	}
	elsewhere := filepath.Join(t.TempDir(), "ca.pem")
	writeFile(t, elsewhere, string(readFile(t, files[0])))
	if first, second := uri(files[0]), uri(elsewhere); first != second {
		t.Errorf("one content has two names: %s and %s", first, second)
	}
}

func TestAPIIsThrottled(t *testing.T) {
	for _, c := range []struct {
		changes     map[string]any
		rate, burst float64
	}{{nil, 100, 200}, {map[string]any{"throttleRate": 7}, 7, 14}, {map[string]any{"throttleRate": 10000}, 10000,
		5000}} {
		stage := payhook(t, with(c.changes)).get(t, "Endpoint/Stage", "AWS::ApiGatewayV2::Stage").Properties
		limits := stage["DefaultRouteSettings"]
		if at(limits, "ThrottlingRateLimit") != c.rate || at(limits, "ThrottlingBurstLimit") != c.burst ||
			stage["RouteSettings"] != nil {
			t.Errorf("%v: %v", c.changes, stage)
		}
		if stage["StageName"] != "$default" || stage["AutoDeploy"] != true {
			t.Errorf("got %v", stage)
		}
	}
}

func TestAccessLogContainsNoSecretsAndExpires(t *testing.T) {
	// The query can contain the timestamp or the key id; headers contain the signature.
	allowed := []string{
		"$context.requestTime", "$context.requestId", "$context.apiId", "$context.routeKey",
		"$context.identity.sourceIp", "$context.status",
		"$context.error.responseType", "$context.responseLatency",
		"$context.integration.requestId", "$context.integration.status", "$context.integration.integrationStatus",
	}
	ofCertificates := []string{"$context.identity.clientCert.serialNumber",
		"$context.identity.clientCert.validity.notAfter"}
	for name, conf := range domains() {
		conf = maps.Clone(conf)
		conf["logRetentionDays"] = 365
		tm := payhook(t, conf)
		log := at(tm.get(t, "Endpoint/Stage", "AWS::ApiGatewayV2::Stage").Properties, "AccessLogSettings")
		if got := tm.render(at(log, "DestinationArn")); got != "Endpoint/AccessLog.Arn" {
			t.Errorf("%s: it goes to %s", name, got)
		}
		var line map[string]string
		if err := json.Unmarshal([]byte(at(log, "Format").(string)), &line); err != nil {
			t.Fatalf("%s: no JSON: %v", name, err)
		}
		want := slices.Clone(allowed)
		if name != settings.BySignature {
			want = append(want, ofCertificates...)
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, slices.Sorted(maps.Values(line))); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
		group := tm.get(t, "Endpoint/AccessLog", "AWS::Logs::LogGroup")
		if group.Properties["RetentionInDays"] != 365.0 || group.DeletionPolicy != "RetainExceptOnCreate" {
			t.Errorf("%s: %v, on deletion %s", name, group.Properties, group.DeletionPolicy)
		}
	}
}

func TestRequestsThatDoNotReachTheFunctionRaiseAnAlarm(t *testing.T) {
	tm := payhook(t, onDomain)
	filter := tm.get(t, "Endpoint/NotInvoked", "AWS::Logs::MetricFilter").Properties
	transformation := at(filter, "MetricTransformations", 0)
	if tm.render(filter["LogGroupName"]) != "Endpoint/AccessLog" || at(transformation, "MetricValue") != "1" {
		t.Errorf("got %v", filter)
	}
	var line map[string]string
	if err := json.Unmarshal([]byte(at(tm.get(t, "Endpoint/Stage", "AWS::ApiGatewayV2::Stage").Properties,
		"AccessLogSettings", "Format").(string)), &line); err != nil {
		t.Fatal(err)
	}
	// The filter and the dimension must refer to fields of the line.
	if filter["FilterPattern"] != `{ $.lambdaStatus != "200" && $.status != "404" && $.status != "403" }` ||
		line["lambdaStatus"] != "$context.integration.integrationStatus" ||
		line["status"] != "$context.status" || at(transformation, "Dimensions", 0, "Value") != "$.apiId" ||
		line["apiId"] != "$context.apiId" {
		t.Errorf("got %v of %v", filter, line)
	}
	alarm := tm.alarmNamed(t, "rejected-by-api")
	for property, want := range map[string]any{
		"Namespace": at(transformation, "MetricNamespace"), "MetricName": at(transformation, "MetricName"),
		"Statistic": "Sum", "Threshold": 1.0, "TreatMissingData": "notBreaching", "Period": 300.0,
	} {
		if alarm[property] != want {
			t.Errorf("%s is %v, want %v", property, alarm[property], want)
		}
	}
	if at(alarm, "Dimensions", 0, "Name") != at(transformation, "Dimensions", 0, "Key") ||
		tm.render(at(alarm, "Dimensions", 0, "Value")) != "Endpoint/Api" {
		t.Errorf("it watches %v", alarm["Dimensions"])
	}
	if tm.Resources["Alarms/rejected-by-aws"] != nil || payhook(t, nil).Resources["Alarms/rejected-by-api"] != nil {
		t.Error("an alarm watches the other kind of endpoint")
	}
}

// Other senders have no certificate, so the first one does not raise an alarm.
func TestRejectedCertificatesRaiseAnAlarm(t *testing.T) {
	for name, conf := range domains() {
		conf = maps.Clone(conf)
		conf["alarmRefused"] = 42
		tm := payhook(t, conf)
		if name == settings.BySignature {
			if tm.Resources["Alarms/certificate-forbidden"] != nil ||
				tm.Resources["Endpoint/CertificateForbidden"] != nil {
				t.Error("no certificate is required")
			}
			continue
		}
		filter := tm.get(t, "Endpoint/CertificateForbidden", "AWS::Logs::MetricFilter").Properties
		alarm := tm.alarmNamed(t, "certificate-forbidden")
		if filter["FilterPattern"] != `{ $.lambdaStatus != "200" && $.status = "403" }` ||
			tm.render(filter["LogGroupName"]) != "Endpoint/AccessLog" ||
			alarm["MetricName"] != at(filter, "MetricTransformations", 0, "MetricName") || alarm["Threshold"] != 42.0 ||
			alarm["Period"] != 900.0 ||
			tm.render(at(alarm, "Dimensions", 0, "Value")) != "Endpoint/Api" {
			t.Errorf("%s: %v, %v", name, filter, alarm)
		}
	}
}

// A missing run writes no data, so missing data must be treated as breaching.
func TestCertificateExpiryRaisesAnAlarmThirtyDaysBefore(t *testing.T) {
	for name, conf := range domains() {
		tm := payhook(t, conf)
		if name == settings.BySignature {
			if tm.Resources["Alarms/trust-expires"] != nil {
				t.Error("there are no certificates to expire")
			}
			continue
		}
		alarm := tm.alarmNamed(t, "trust-expires")
		for property, want := range map[string]any{
			"Namespace": names.MetricNamespace, "MetricName": names.TrustDaysLeftMetric.Name, "Statistic": "Minimum",
			"ComparisonOperator": "LessThanThreshold", "Threshold": 30.0, "TreatMissingData": "breaching",
		} {
			if alarm[property] != want {
				t.Errorf("%s: %s is %v, want %v", name, property, alarm[property], want)
			}
		}
	}
}

func TestRecordsOfTheDomainName(t *testing.T) {
	tm := payhook(t, onDomain)
	for _, kind := range []string{"A", "AAAA"} {
		record := tm.get(t, "Endpoint/Record"+kind, "AWS::Route53::RecordSet").Properties
		if record["HostedZoneId"] != "Z0123456789ABC" || record["Name"] != "hook.bank.example." ||
			record["Type"] != kind ||
			tm.render(at(record, "AliasTarget", "DNSName")) != "Endpoint/Domain.RegionalDomainName" ||
			tm.render(at(record, "AliasTarget", "HostedZoneId")) != "Endpoint/Domain.RegionalHostedZoneId" {
			t.Errorf("got %v", record)
		}
	}
	certificate := tm.get(t, "Endpoint/Certificate", "AWS::CertificateManager::Certificate").Properties
	validation := map[string]any{"DomainName": "hook.bank.example", "HostedZoneId": "Z0123456789ABC"}
	if certificate["DomainName"] != "hook.bank.example" || certificate["ValidationMethod"] != "DNS" ||
		!cmp.Equal(at(certificate, "DomainValidationOptions", 0), any(validation)) {
		t.Errorf("got %v", certificate)
	}
	if _, ok := tm.Outputs["DomainTarget"]; ok {
		t.Error("it asks for a record that it makes itself")
	}

	tm = payhook(t, map[string]any{"domainName": "hook.bank.example", "certificateArn": someCertificate})
	if got := tm.render(tm.Outputs["DomainTarget"].Value); got != "Endpoint/Domain.RegionalDomainName" {
		t.Errorf("the record's value is %s", got)
	}
	for path, r := range tm.Resources {
		if r.Type == "AWS::Route53::RecordSet" || r.Type == "AWS::CertificateManager::Certificate" {
			t.Errorf("%s: there is no zone for it", path)
		}
	}
}

func TestURLIsThatOfTheDomainName(t *testing.T) {
	for name, conf := range domains() {
		tm := payhook(t, conf)
		if got := tm.render(tm.Outputs["WebhookUrl"].Value); got != "https://hook.bank.example/" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestFunctionKnowsItsAPIIfItVerifiesCertificates(t *testing.T) {
	for name, conf := range domains() {
		tm := payhook(t, conf)
		variables := at(tm.get(t, functions["webhook"], "AWS::Lambda::Function").Properties, "Environment", "Variables")
		id := at(variables, names.APIIDEnv)
		if name == settings.BySignature {
			if id != nil {
				t.Errorf("got %v", id)
			}
			continue
		}
		if tm.render(id) != "Endpoint/Api" || at(variables, settings.DomainName.Env()) != "hook.bank.example" ||
			at(variables, settings.Authentication.Env()) != name {
			t.Errorf("%s: %v", name, variables)
		}
	}
}

// The alias must not move to a function that requires certificates before API Gateway
// requests them from clients.
func TestDomainNameIsUpdatedBeforeTheFunction(t *testing.T) {
	for name, conf := range domains() {
		tm := payhook(t, conf)
		var after []string
		for _, id := range tm.get(t, "Webhook/Alias", "AWS::Lambda::Alias").DependsOn {
			after = append(after, tm.names[id])
		}
		if !slices.Contains(after, "Endpoint/Domain") {
			t.Errorf("%s: the alias is updated after %q", name, after)
		}
	}
}

// The function's permissions do not depend on who invokes it.
// With client certificates, the redrive function also reads the one that was
// accepted last.
func TestPermissionsDoNotDependOnTheEndpoint(t *testing.T) {
	first := payhook(t, nil)
	for name, conf := range domains() {
		got := payhook(t, conf)
		for _, part := range []string{"Webhook", "Redrive", "Token"} {
			want := first.grants(t, part+"/Role")
			if mechanism := conf["authentication"]; part == "Redrive" && (mechanism == "mtls" || mechanism == "both") {
				want["Keys.Arn"] = []string{"dynamodb:GetItem"}
			}
			if diff := cmp.Diff(want, got.grants(t, part+"/Role")); diff != "" {
				t.Errorf("%s: %s (-function URL +domain name)\n%s", name, part, diff)
			}
		}
	}
}

func TestAccessLogIsEncryptedWithTheKey(t *testing.T) {
	tm := payhook(t, with(map[string]any{"encryption": "cmk"}))
	if got := tm.render(tm.get(t, "Endpoint/AccessLog",
		"AWS::Logs::LogGroup").Properties["KmsKeyId"]); got != "Encryption/Key.Arn" {
		t.Errorf("it is encrypted with %s", got)
	}
}

func TestTheSubscriptionDetailsNamesTheMechanism(t *testing.T) {
	imported := mtls(settings.ByBoth)
	imported["certificateArn"] = someCertificate
	for name, c := range map[string]struct {
		settings map[string]any
		has      []string
		lacks    []string
	}{
		"function URL": {nil, []string{"mechanism: signature verification\n", "Amazon Trust Services"},
			[]string{"certificate of the CA", "mTLS"}},
		"signature": {onDomain, []string{"mechanism: signature verification\n", "https://hook.bank.example/",
			"Amazon Trust Services"}, []string{"mTLS"}},
		"mtls": {mtls(settings.ByMTLS),
			[]string{"mechanism: mTLS\n", "https://hook.bank.example/", "Amazon Trust Services", "SHA-256", "contact",
				"intermediate"}, []string{"signature verification"}},
		"both": {imported, []string{"mechanism: both", "mTLS", "signature verification", someCertificate,
			"SHA-256", "contact"}, []string{"Amazon Trust Services"}},
	} {
		tm := payhook(t, c.settings)
		sheet := tm.render(tm.Outputs["SubscriptionDetails"].Value)
		for _, text := range c.has {
			if !strings.Contains(sheet, text) {
				t.Errorf("%s: no %q in\n%s", name, text, sheet)
			}
		}
		for _, text := range c.lacks {
			if strings.Contains(sheet, text) {
				t.Errorf("%s: %q in\n%s", name, text, sheet)
			}
		}
	}
}

// Replacing the domain name or the API would interrupt the endpoint.
func TestSwitchingTheMechanismReplacesNothing(t *testing.T) {
	before := payhook(t, onDomain)
	for _, mechanism := range []string{settings.ByMTLS, settings.ByBoth} {
		after := payhook(t, mtls(mechanism))
		var got []string
		for name := range before.Resources {
			if after.Resources[name] == nil {
				got = append(got, "-"+name)
			} else if !cmp.Equal(before.Resources[name].Properties, after.Resources[name].Properties) {
				got = append(got, name)
			}
		}
		for name := range after.Resources {
			if before.Resources[name] == nil {
				got = append(got, "+"+name)
			}
		}
		slices.Sort(got)
		// A function has a new version and policy, and its alias moves to it. Redrive may read the
		// client certificate that was accepted last.
		want := []string{
			"+Alarms/certificate-forbidden", "+Alarms/trust-expires", "+Endpoint/CertificateForbidden",
			"Endpoint/Domain", "Endpoint/Stage", "Monitoring/Dashboard",
			"Redrive/Alias", "Redrive/Function", "Redrive/Role/DefaultPolicy", "Webhook/Alias", "Webhook/Function",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", mechanism, diff)
		}
		for id, name := range before.names {
			kind := before.Resources[name].Type
			if kind != "AWS::Lambda::Version" && kind != "AWS::IAM::Policy" && after.names[id] != name {
				t.Errorf("%s: %s %s is replaced", mechanism, kind, name)
			}
		}
	}
}
