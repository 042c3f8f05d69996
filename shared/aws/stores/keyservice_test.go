package stores_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"payhook.example/shared/aws/stores"
	"payhook.example/shared/awstest"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// Only the clients of the key endpoint trust its CA.
func TestTheKeyEndpointCanHaveAPrivateCA(t *testing.T) {
	ca, now := paymenttest.NewCA("Service CA"), time.Now()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Authorization"))
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Server()}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	secrets := awstest.NewValues(t)
	secrets.Create("token", fmt.Sprintf(`{"access_token":"t","token_type":"Bearer","issued_at":%q,"expires_at":%q}`,
		now.Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339)))
	own, untrusted := x509.NewCertPool(), new(tls.CertificateVerificationError)
	own.AddCert(ca.Certificate)
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	clients, err := stores.NewClients(func(name string) string {
		return map[string]string{"AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL": secrets.URL,
			"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	for auth, want := range map[string]string{"none": "", "bearer": "Bearer t"} {
		for _, cas := range []*x509.CertPool{nil, own} {
			s := settings.Config{KeyEndpoint: base, TokenSecret: "token", ServiceCAs: cas,
				KeyEndpointAuth: auth}
			response, err := clients.KeyEndpoint(s).Get(server.URL)
			if cas == nil {
				if !errors.As(err, &untrusted) {
					t.Errorf("%s: %v without the CA", auth, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if string(text) != want {
				t.Errorf("%s: sent %q", auth, text)
			}
			without := settings.Config{KeyEndpoint: base, KeyEndpointAuth: "none"}
			if _, err := clients.KeyEndpoint(without).Get(server.URL); !errors.As(err, &untrusted) {
				t.Errorf("%s: the connections of the other clients: %v", auth, err)
			}
		}
	}
}

// Such a function ends when it starts, and not at the first webhook.
func TestAFunctionWithoutSettingsHasNoClients(t *testing.T) {
	for _, function := range []string{"webhook", "redrive"} {
		_, _, err := stores.Load(function, func(name string) string {
			return map[string]string{"AWS_REGION": "eu-central-1"}[name]
		})
		if err == nil || !strings.Contains(err.Error(), "settings:\n") ||
			!strings.Contains(err.Error(), settings.LedgerTableEnv) {
			t.Errorf("%s: %v", function, err)
		}
	}
}
