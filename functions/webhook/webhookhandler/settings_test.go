package webhookhandler

import (
	"crypto/tls"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"payhook.example/functions/internal/functiontest"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// answered tests that a webhook with a change has this status with a value of a setting.
// With the default value it has another.
func answered(key, value string, status int,
	change func(r *events.APIGatewayV2HTTPRequest)) func(*testing.T) {
	return func(t *testing.T) {
		e := newEndpoint(t, map[string]string{settings.ByKey(key).Env(): value})
		r := e.request(t, paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event()), Age: 4 * time.Minute})
		if change != nil {
			change(&r)
		}
		if got := e.handle(t, r).StatusCode; got != status {
			t.Errorf("answered %d, want %d", got, status)
		}
	}
}

var operator = sync.OnceValues(func() (*paymenttest.CA, tls.Certificate) {
	ca := paymenttest.NewCA("Operator CA")
	return ca, ca.Client(nil)
})

// unaccepted tests that a webhook with a client certificate, which is accepted with the
// default, is rejected with a value of a setting.
func unaccepted(key, value string) func(*testing.T) {
	return func(t *testing.T) {
		ca, client := operator()
		env := withAPI(t, settings.ByMTLS, ca)
		r := throughAPI(unsigned(paymenttest.Delivery(paymenttest.Event())), client)
		before := newEndpoint(t, env).handle(t, r).StatusCode
		env[settings.ByKey(key).Env()] = value
		if got := newEndpoint(t, env).handle(t, r).StatusCode; before != 200 || got != 401 {
			t.Errorf("answered %d with the default, and %d", before, got)
		}
	}
}

// move moves a header.
func move(from, to string) func(r *events.APIGatewayV2HTTPRequest) {
	return func(r *events.APIGatewayV2HTTPRequest) {
		if name, ok := strings.CutPrefix(to, "?"); ok {
			r.RawQueryString = name + "=" + r.Headers[from]
		} else {
			r.Headers[to] = r.Headers[from]
		}
		delete(r.Headers, from)
	}
}

// effects has for every setting a test that the function's set-up passes it on.
var effects = map[string]func(t *testing.T){
	"signatureHeader": answered("signatureHeader", "X-Other", 200, move("x-svc-signature", "x-other")),
	"timestampLocation": answered("timestampLocation", "query:at", 200,
		move("x-svc-timestamp", "?at")),
	"keyIdLocation":      answered("keyIdLocation", "query:key", 200, move("x-svc-key-id", "?key")),
	"timestampTolerance": answered("timestampTolerance", "3m", 401, nil),
	"successStatus":      answered("successStatus", "202", 202, nil),

	"allowedNetworks":    answered("allowedNetworks", "192.0.2.0/24", 403, nil), // the sender is unknown
	"domainName":         unaccepted("domainName", "other.bank.example"),
	"clientCertPins":     unaccepted("clientCertPins", strings.Repeat("ab", 32)),
	"clientCertSubjects": unaccepted("clientCertSubjects", "CN=other"),
	"revokedKeys": func(t *testing.T) {
		_, client := operator()
		unaccepted("revokedKeys", clientcert.PinOf(client.Leaf))(t)
		answered("revokedKeys", strings.ToUpper(functiontest.SigningKey().ID), 401, nil)(t)
	},
	"authentication": func(t *testing.T) {
		TestAWebhookByMTLSNeedsOnlyACertificateAndWritesTheDaysThatItsChainLasts(t)
		TestUnacceptedCertificatesHaveTheSameAnswer(t)
	},

	"baseUrl":         keyIsFetched,
	"keyEndpointAuth": func(*testing.T) {}, // of the client that the function is given; package stores tests it
	"keyMaxAge": func(t *testing.T) {
		e := newEndpoint(t, map[string]string{"PAYHOOK_KEY_MAX_AGE": "2h"})
		e.send(t, paymenttest.Event())
		stored, err := e.keys.Records(t.Context())
		if err != nil || len(stored) != 1 ||
			stored[0].ExpiresAt.Sub(stored[0].FetchedAt).Round(time.Minute) != 2*time.Hour {
			t.Errorf("%+v, %v", stored, err)
		}
	},

	"evidence": func(t *testing.T) {
		e := newEndpoint(t, map[string]string{"PAYHOOK_EVIDENCE": "7y compliance",
			settings.EvidenceBucketEnv: "records"})
		e.send(t, paymenttest.Event())
		if got := e.Evidence.Keys(); len(got) != 1 || !strings.HasPrefix(got[0], "accepted/2562/20") {
			t.Errorf("%q", got)
		}
	},

	// Package intake tests what a pipeline does with its settings.
	"deduplicationWindow": func(t *testing.T) {
		e := newEndpoint(t, map[string]string{"PAYHOOK_DEDUPLICATION_WINDOW": "48h"})
		e.send(t, paymenttest.Event())
		for _, item := range e.Ledger.Items() {
			if got := time.Until(item.ExpiresAt).Round(time.Hour); got != 48*time.Hour {
				t.Errorf("an eventId is remembered for %s", got)
			}
		}
	},
}

// keyEndpointFunc is the key endpoint, without a network.
type keyEndpointFunc func(r *http.Request) (*http.Response, error)

func (f keyEndpointFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func keyIsFetched(t *testing.T) {
	signed := newEndpoint(t, nil).signed(t, paymenttest.Event())
	synctest.Test(t, func(t *testing.T) {
		e := start(t, "https://other.example/base", &http.Client{Transport: keyEndpointFunc(
			func(r *http.Request) (*http.Response, error) {
				if got := r.URL.String(); got != "https://other.example/base/v1/keys/"+functiontest.SigningKey().ID {
					t.Errorf("asked for %s", got)
				}
				<-r.Context().Done()
				return nil, r.Context().Err()
			})}, map[string]string{"PAYHOOK_TIMESTAMP_TOLERANCE": "off"})
		start := time.Now()
		if r := e.handle(t, signed); r.StatusCode != 503 || time.Since(start) != 3*time.Second {
			t.Errorf("answered %d after %v", r.StatusCode, time.Since(start))
		}
	})
}

func TestEverySettingHasItsEffect(t *testing.T) { functiontest.RunEffects(t, "webhook", effects) }
