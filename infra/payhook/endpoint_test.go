package payhook

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		for path, api := range tm.all(t, "AWS::ApiGatewayV2::Api") {
			if api.Properties["DisableExecuteApiEndpoint"] != true {
				t.Errorf("%s: %s has an address of its own", name, path)
			}
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
