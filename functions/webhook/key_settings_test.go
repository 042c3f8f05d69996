package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/aws/aws-lambda-go/events"

	"payhook.example/shared/awstest"
	"payhook.example/shared/intake"
	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/telemetry"
)

// keyService is the key endpoint in a bubble of package testing/synctest, without a
// network.
type keyServiceInMemory struct {
	answer func(r *http.Request, id string) (*http.Response, error)
	asked  int
}

func (s *keyServiceInMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked++
	return s.answer(r, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
}

func answered(r *http.Request, status int, contentType, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {contentType}},
		Body: io.NopCloser(strings.NewReader(body)), Request: r}
}

// knows makes the service publish the signing key, with replacements in it.
func (s *keyServiceInMemory) knows(replace ...string) {
	s.answer = func(r *http.Request, id string) (*http.Response, error) {
		if id != signingKey().ID {
			return answered(r, http.StatusNotFound, "application/json", `{}`), nil
		}
		return answered(r, http.StatusOK, "application/json",
			strings.NewReplacer(replace...).Replace(string(signingKey().JWK()))), nil
	}
}

func (s *keyServiceInMemory) fails(status int) {
	s.answer = func(r *http.Request, _ string) (*http.Response, error) {
		return answered(r, status, "text/html", "<html></html>"), nil
	}
}

// bubble is the function, set up as in main, in a bubble.
type bubble struct {
	t       *testing.T
	handler *handler
	service *keyServiceInMemory
	log     *bytes.Buffer
}

const knownSource, strangersSource = "192.0.2.10", "198.51.100.20"

// inBubble runs a test of the function with these settings.
func inBubble(t *testing.T, change map[*settings.Setting]string, test func(b *bubble)) {
	t.Helper()
	signingKey()
	env := map[string]string{}
	for s, value := range change {
		env[s.Env()] = value
	}
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{t: t, service: &keyServiceInMemory{}, log: &bytes.Buffer{}}
		b.service.knows()
		db := awstest.NewDynamoDB()
		db.CreateLedger("ledger")
		db.CreateTable("keys", names.KeysKey)
		b.handler = newHandler(conf(t, "https://service.example", env),
			clients{db, &awstest.EventBridge{}, awstest.NewS3(), &http.Client{Transport: b.service}},
			telemetry.New(b.log, "webhook"))
		test(b)
	})
}

// request is an authentic webhook that names a key.
func (b *bubble) request(keyID, from string) events.APIGatewayV2HTTPRequest {
	b.t.Helper()
	key := signingKey()
	key.ID = keyID
	signed, err := paymenttest.Sender{Key: key}.Sign(b.t.Context(),
		paymenttest.Webhook{URL: "https://hook.example/", Payload: paymenttest.Delivery(paymenttest.Event())})
	if err != nil {
		b.t.Fatal(err)
	}
	r := urlRequest(b.t, signed)
	r.RequestContext.HTTP.SourceIP = from
	return r
}

// expect handles a webhook and checks the result. fetches is the number of calls of the
// key endpoint.
func (b *bubble) expect(r events.APIGatewayV2HTTPRequest, status int, outcome intake.Outcome,
	fetches int) map[string]any {
	b.t.Helper()
	b.log.Reset()
	before := b.service.asked
	response := invoke(b.t.Context(), b.t, b.handler, r)
	var line map[string]any
	if err := json.Unmarshal(b.log.Bytes(), &line); err != nil {
		b.t.Fatal(err)
	}
	if response.StatusCode != status || line["outcome"] != string(outcome) {
		b.t.Errorf("answered %d, %v; want %d, %s", response.StatusCode, line["outcome"], status, outcome)
	}
	if n := b.service.asked - before; n != fetches {
		b.t.Errorf("the key endpoint was called %d times, want %d", n, fetches)
	}
	// The Retry-After of the answer.
	want := map[intake.Outcome]string{intake.KeyUnavailable: "5", intake.KeyOutOfBudget: "60"}[outcome]
	if got := response.Headers["Retry-After"]; got != want {
		b.t.Errorf("%s: Retry-After is %q, want %q", outcome, got, want)
	}
	return line
}

// send handles an authentic webhook.
func (b *bubble) send(status int, outcome intake.Outcome, fetches int) map[string]any {
	b.t.Helper()
	return b.expect(b.request(signingKey().ID, knownSource), status, outcome, fetches)
}

// invent handles a webhook with an invented key id.
func (b *bubble) invent(from string, status int, outcome intake.Outcome, fetches int) {
	b.t.Helper()
	b.expect(b.request(uuid.New().String(), from), status, outcome, fetches)
}

// keyEffects has for every setting of keys a test that the function's set-up passes it
// on.
var keyEffects = map[*settings.Setting]func(t *testing.T){
	settings.KeysAuth: TestTheTokenIsSentToTheKeyEndpoint,
	settings.KeyExponents: func(t *testing.T) {
		for value, want := range map[string]intake.Outcome{"65537": intake.KeyRefused,
			"3,65537": intake.SignatureMismatch} {
			inBubble(t, map[*settings.Setting]string{settings.KeyExponents: value}, func(b *bubble) {
				b.service.knows(`"AQAB"`, `"Aw"`) // the exponent 3
				b.send(http.StatusUnauthorized, want, 1)
			})
		}
	},
	settings.KeyFreshness: func(t *testing.T) {
		for value, fetches := range map[string]int{"15m": 1, "16m": 0} {
			inBubble(t, map[*settings.Setting]string{settings.KeyFreshness: value}, func(b *bubble) {
				b.send(http.StatusOK, intake.Accepted, 1)
				time.Sleep(15*time.Minute - time.Second)
				b.send(http.StatusOK, intake.Accepted, 0)
				time.Sleep(time.Second)
				b.send(http.StatusOK, intake.Accepted, fetches)
			})
		}
	},
	settings.KeyMaxAge: func(t *testing.T) {
		inBubble(t, map[*settings.Setting]string{settings.KeyMaxAge: "2h"}, func(b *bubble) {
			b.send(http.StatusOK, intake.Accepted, 1)
			b.service.fails(http.StatusBadGateway)
			time.Sleep(2*time.Hour - time.Second)
			if line := b.send(http.StatusOK, intake.Accepted, 1); line[names.KeyStaleMetric] != 1.0 {
				t.Errorf("%s is %v", names.KeyStaleMetric, line[names.KeyStaleMetric])
			}
			time.Sleep(time.Second)
			b.send(http.StatusServiceUnavailable, intake.KeyUnavailable, 1)
		})
	},
	settings.KeyUnknownGrace: func(t *testing.T) {
		inBubble(t, map[*settings.Setting]string{settings.KeyUnknownGrace: "20m"}, func(b *bubble) {
			withdrawn := func(line map[string]any) {
				t.Helper()
				if line[names.KeyWithdrawnMetric] != 1.0 || line["level"] != "WARN" {
					t.Errorf("%s is %v, the level %v", names.KeyWithdrawnMetric, line[names.KeyWithdrawnMetric],
						line["level"])
				}
			}
			b.send(http.StatusOK, intake.Accepted, 1)
			b.service.fails(http.StatusNotFound)
			time.Sleep(time.Hour)
			withdrawn(b.send(http.StatusOK, intake.Accepted, 1))
			time.Sleep(20*time.Minute - time.Second)
			withdrawn(b.send(http.StatusOK, intake.Accepted, 1))
			time.Sleep(10 * time.Second)
			withdrawn(b.send(http.StatusUnauthorized, intake.KeyUnknown, 1))
			withdrawn(b.send(http.StatusUnauthorized, intake.KeyUnknown, 0))
		})
	},
	settings.UnknownKeyTTL: func(t *testing.T) {
		inBubble(t, map[*settings.Setting]string{settings.UnknownKeyTTL: "10m"}, func(b *bubble) {
			b.service.fails(http.StatusNotFound)
			b.send(http.StatusUnauthorized, intake.KeyUnknown, 1)
			b.service.knows()
			time.Sleep(10*time.Minute - time.Second)
			b.send(http.StatusUnauthorized, intake.KeyUnknown, 0)
			time.Sleep(time.Second)
			b.send(http.StatusOK, intake.Accepted, 1)
		})
	},
	settings.KeyMissBudget: func(t *testing.T) {
		inBubble(t, map[*settings.Setting]string{settings.KeyMissBudget: "3"}, func(b *bubble) {
			for range 3 {
				b.invent(strangersSource, http.StatusUnauthorized, intake.KeyUnknown, 1)
			}
			b.invent(strangersSource, http.StatusServiceUnavailable, intake.KeyOutOfBudget, 0)
			time.Sleep(time.Minute)
			b.invent(strangersSource, http.StatusUnauthorized, intake.KeyUnknown, 1)
		})
	},
	settings.KeyMissReserve: func(t *testing.T) {
		inBubble(t, map[*settings.Setting]string{settings.KeyMissBudget: "1", settings.KeyMissReserve: "2"},
			func(b *bubble) {
				b.send(http.StatusOK, intake.Accepted, 1)
				b.invent(strangersSource, http.StatusServiceUnavailable, intake.KeyOutOfBudget, 0)
				for range 2 {
					b.invent(knownSource, http.StatusUnauthorized, intake.KeyUnknown, 1)
				}
				b.invent(knownSource, http.StatusServiceUnavailable, intake.KeyOutOfBudget, 0)
			})
	},
	settings.KeyTimeout: func(t *testing.T) {
		inBubble(t, map[*settings.Setting]string{settings.KeyTimeout: "7s"}, func(b *bubble) {
			b.service.answer = func(r *http.Request, _ string) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			start := time.Now()
			b.send(http.StatusServiceUnavailable, intake.KeyUnavailable, 1)
			if took := time.Since(start); took != 7*time.Second {
				t.Errorf("the lookup took %v", took)
			}
		})
	},
}

// Any client can set an address in a header.
func TestASourceAddressIsNotReadFromHeaders(t *testing.T) {
	inBubble(t, map[*settings.Setting]string{settings.KeyMissBudget: "1"}, func(b *bubble) {
		b.send(http.StatusOK, intake.Accepted, 1)
		for _, from := range []string{strangersSource, "", "not an address", knownSource + ", " + strangersSource} {
			r := b.request(uuid.New().String(), from)
			for _, header := range []string{"x-forwarded-for", "forwarded", "x-real-ip", "via", "cf-connecting-ip",
				"true-client-ip"} {
				r.Headers[header] = knownSource
			}
			b.expect(r, http.StatusServiceUnavailable, intake.KeyOutOfBudget, 0)
		}
		b.invent(knownSource, http.StatusUnauthorized, intake.KeyUnknown, 1)
	})
}

// A malformed signature must not use the lookups that a valid key needs.
func TestAMalformedSignatureUsesNoBudget(t *testing.T) {
	inBubble(t, map[*settings.Setting]string{settings.KeyMissBudget: "1"}, func(b *bubble) {
		for range 5 {
			r := b.request(uuid.New().String(), strangersSource)
			r.Headers["x-svc-signature"] = "AAAA"
			b.expect(r, http.StatusUnauthorized, intake.SignatureMalformed, 0)
		}
		b.send(http.StatusOK, intake.Accepted, 1)
	})
}
