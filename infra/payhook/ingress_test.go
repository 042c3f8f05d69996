package payhook

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2/awscertificatemanager"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/paymenttest"
)

const someCertificate = "arn:aws:acm:eu-central-1:111122223333:certificate/11111111-2222-3333-4444-555555555555"

// onDomain are the settings of an ingress on a domain name in a hosted zone.
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

// mtls returns the settings of an ingress that requires client certificates.
func mtls(authentication string) map[string]any {
	return with(map[string]any{"authentication": authentication, "truststore": truststores()[0]})
}

// API Gateway needs a public certificate beside one that was imported.
func TestTheDomainNameHasAnOwnershipCertificate(t *testing.T) {
	app := newApp(t, required, mtls("mtls"))
	stack, props := newStack(t, app, "nowhere")
	props.OwnershipCertificate = awscertificatemanager.Certificate_FromCertificateArn(stack,
		jsii.String("Ownership"), jsii.String(someCertificate))
	create(stack, jsii.String("Default"), props, programs(""))
	if err := synthesize(app); err != nil {
		t.Fatal(err)
	}
	tm := readTemplate(t, filepath.Join(*app.Outdir(), *stack.TemplateFile()))
	if got := at(tm.get(t, "Ingress/Domain", "AWS::ApiGatewayV2::DomainName").Properties,
		"DomainNameConfigurations", 0, "OwnershipVerificationCertificateArn"); got != someCertificate {
		t.Errorf("it is %v", got)
	}
}

// API Gateway does not read an object again whose content changes.
func TestNewTruststoreIsANewObject(t *testing.T) {
	uri := func(file string) string {
		tm := payhook(t, mtls("both"), map[string]any{"truststore": file})
		return fmt.Sprint(at(tm.get(t, "Ingress/Domain", "AWS::ApiGatewayV2::DomainName").Properties,
			"MutualTlsAuthentication", "TruststoreUri"))
	}
	files := truststores()
	if first, second := uri(files[0]), uri(files[1]); first == second {
		t.Errorf("both are %s", first)
	}
	elsewhere := filepath.Join(t.TempDir(), "ca.pem")
	writeFile(t, elsewhere, "# The CA\n"+string(readFile(t, files[0]))+"Bag Attributes\n") // only certificates count
	if first, second := uri(files[0]), uri(elsewhere); first != second {
		t.Errorf("one content has two names: %s and %s", first, second)
	}
}
