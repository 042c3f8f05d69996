package settings_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// A function that runs without a package has the configuration of the deployed one.
func TestAFunctionHasTheSameConfigurationWithAndWithoutAPackage(t *testing.T) {
	folder, ca := t.TempDir(), paymenttest.NewCA("Operator CA")
	pem := paymenttest.EncodeCertificate(ca.Certificate)
	for _, file := range []string{settings.ServiceCAFile, settings.TruststoreFile} {
		if err := os.WriteFile(filepath.Join(folder, file), pem, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	resources := settings.Resources{LedgerTable: "ledger", KeysTable: "keys", ClaimBucket: "claims",
		ParkingBucket: "parking", EvidenceBucket: "evidence", EventBus: "bus", Token: "token", Credentials: "pair",
		API: "api"}
	for _, change := range []map[string]string{
		{},
		{"keysAuth": "bearer", "captureRejected": "1h", "tokenStore": "parameter", "evidence": "1d"},
		{"authentication": "both", "domainName": "hooks.bank.example", "hostedZoneId": "Z1", "captureRejected": "1h",
			"truststore": filepath.Join(folder, settings.TruststoreFile)},
		{"authentication": "mtls", "domainName": "hooks.bank.example", "hostedZoneId": "Z1",
			"truststore": filepath.Join(folder, settings.TruststoreFile)},
	} {
		texts := map[string]string{"baseUrl": "https://a.example", "authUrl": "https://b.example",
			"tokenManagerId": "m",
			"serviceCA":      filepath.Join(folder, settings.ServiceCAFile)}
		maps.Copy(texts, change)
		d, err := settings.ParseDeployment(settings.Given{Deployment: "Payhook", Values: settings.Texts(texts, "")})
		if err != nil {
			t.Fatal(err)
		}
		for function := range functions {
			env := d.Environment(function, resources)
			env["LAMBDA_TASK_ROOT"] = folder
			want, err := settings.ParseFunction(function, func(name string) string { return env[name] })
			if err != nil || env[settings.KeysTableEnv] != want.KeysTable {
				t.Errorf("%s %v: %v, or the table is not used", function, change, err)
			}
			got, err := d.Function(function, resources)
			if err != nil || !got.ServiceCAs.Equal(want.ServiceCAs) || got.ServiceCAs.Equal(nil) ||
				got.CaptureUntil.Sub(want.CaptureUntil).Abs() > time.Minute ||
				got.MTLS != nil && !bytes.Equal(got.MTLS.Truststore.PEM(), want.MTLS.Truststore.PEM()) {
				t.Errorf("%s %v: %v", function, change, err)
			}
			for _, f := range []*settings.Function{&got, &want} {
				f.ServiceCAs, f.CaptureUntil = nil, time.Time{}
				if f.MTLS != nil {
					f.MTLS.Truststore = nil
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s %v: without a package\n%+v, with one\n%+v", function, change, got, want)
			}
		}
	}
}
