package main

import (
	"crypto/x509"
	"net/url"
	"strings"
	"testing"

	"payhook.example/shared/awstest"
	"payhook.example/shared/settings"
)

func TestItAnswersInvocations(t *testing.T) {
	answer := awstest.Main(t, main, "webhook",
		[]string{settings.LedgerTableEnv, settings.KeysTableEnv, settings.LargeEventBucketEnv,
			settings.ParkingBucketEnv, settings.EventBusNameEnv},
		`{"version":"2.0","requestContext":{"http":{"method":"DELETE"}}}`, 2)
	if !strings.HasPrefix(answer, `response {"statusCode":405,`) {
		t.Errorf("got %s", answer)
	}
}

// Without signatures the key endpoint is not called. With a token or a private CA it has connections of its own.
func TestTheConnectionToTheKeyEndpointIsOpenedAheadIfItCanBeUsed(t *testing.T) {
	base := &url.URL{Scheme: "https", Host: "api.payments.example"}
	for _, c := range []struct {
		authentication, auth string
		cas                  *x509.CertPool
		want                 int
	}{
		{settings.BySignature, "none", nil, 1}, {settings.ByBoth, "none", nil, 1}, {settings.ByMTLS, "none", nil, 0},
		{settings.BySignature, settings.BearerToken, nil, 0}, {settings.ByBoth, "none", x509.NewCertPool(), 0},
	} {
		var conf settings.Config
		conf.Authentication, conf.KeyEndpointAuth = c.authentication, c.auth
		conf.ServiceCAs, conf.KeyEndpoint = c.cas, base
		if got := ahead(conf); len(got) != c.want || c.want > 0 && got[0] != base {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
