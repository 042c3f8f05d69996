package paymenttest_test

import (
	"cmp"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
	"uuid"

	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/signature"
)

// noRedirects shows redirects instead of following them.
var noRedirects = &http.Client{CheckRedirect: func(*http.Request,
	[]*http.Request) error {
	return http.ErrUseLastResponse
}}

// testKey is the key of tests that need no other one. Generating keys takes long.
var testKey = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(2048) })

func start(t *testing.T, opts paymenttest.Options) *paymenttest.Server {
	t.Helper()
	service := paymenttest.NewServer(opts)
	t.Cleanup(service.Close)
	return service
}

type reply struct {
	status int
	header http.Header
	body   string
}

func do(t *testing.T, r *http.Request) reply {
	t.Helper()
	resp, err := noRedirects.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}
}

func get(t *testing.T, address string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, r)
}

// publicKey parses a JWK without checks.
func publicKey(t *testing.T, jwk string) (string, *rsa.PublicKey) {
	t.Helper()
	var members struct{ N, E, Use, Alg, Kty, Kid string }
	if err := json.Unmarshal([]byte(jwk), &members); err != nil {
		t.Fatalf("%v in %q", err, jwk)
	}
	if members.Use != "sig" || members.Alg != "RS256" || members.Kty != "RSA" {
		t.Errorf("JWK = %s, want use sig, alg RS256, kty RSA", jwk)
	}
	n, errN := base64.RawURLEncoding.DecodeString(members.N)
	e, errE := base64.RawURLEncoding.DecodeString(members.E)
	if err := errors.Join(errN, errE); err != nil {
		t.Fatal(err)
	}
	return members.Kid, &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}
}

// receiver records webhooks and answers 202.
func receiver(t *testing.T) (string, <-chan paymenttest.Request) {
	received := make(chan paymenttest.Request, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received <- paymenttest.Request{Method: r.Method, Query: r.URL.RawQuery, Header: r.Header, Body: body}
		w.WriteHeader(http.StatusAccepted)
		io.WriteString(w, "taken")
	}))
	t.Cleanup(server.Close)
	return server.URL, received
}

// verify verifies a webhook as a client does.
func verify(scheme signature.Scheme, key *rsa.PublicKey, keyID string, r paymenttest.Request) error {
	headers := map[string]string{}
	for name, values := range r.Header {
		headers[name] = strings.Join(values, ",")
	}
	proof, err := scheme.Extract(headers, r.Query)
	if err != nil {
		return err
	}
	if err := (&signature.Window{Tolerance: 5 * time.Minute}).Check(proof.Timestamp, time.Now()); err != nil {
		return err
	}
	if proof.KeyID != keyID {
		return errUnknownKey
	}
	return signature.Verify(key, r.Body, proof)
}

var errUnknownKey = errors.New("unknown key")

func TestWebhooksVerifyWithThePublishedKey(t *testing.T) {
	queryTimestamp, _ := signature.ParseCarrier("query:ts")
	queryKeyID, _ := signature.ParseKeyIDCarrier("query:kid")
	acme := signature.Scheme{SignatureHeader: "X-Acme-Signature", Timestamp: queryTimestamp, KeyID: queryKeyID}
	for name, opts := range map[string]paymenttest.Options{
		"headers": {},
		"query":   {Scheme: acme, TimestampFormat: signature.FormatSeconds},
	} {
		t.Run(name, func(t *testing.T) {
			service := start(t, opts)
			hook, received := receiver(t)
			payload := paymenttest.Delivery(paymenttest.Events(3)...)
			w := paymenttest.Webhook{URL: hook, Payload: payload}
			scheme := cmp.Or(opts.Scheme, paymenttest.DefaultScheme())
			answer, err := service.Send(t.Context(), w)
			if err != nil {
				t.Fatal(err)
			}
			if answer.Status != http.StatusAccepted || string(answer.Body) != "taken" {
				t.Errorf("answer = %d %q, want 202 taken", answer.Status, answer.Body)
			}
			keyID := service.Key().ID
			jwk := get(t, service.URL+"/v1/keys/"+keyID)
			kid, key := publicKey(t, jwk.body)
			if kid != keyID || jwk.header.Get("Content-Type") != "application/json" {
				t.Errorf("kid = %q of type %q, want %q and application/json", kid, jwk.header.Get("Content-Type"),
					keyID)
			}
			r := <-received
			if err := verify(scheme, key, keyID, r); err != nil {
				t.Errorf("the webhook does not verify: %v", err)
			}
			if string(r.Body) != string(payload) || r.Method != http.MethodPost {
				t.Errorf("received %s of %d bytes, want POST of %d", r.Method, len(r.Body), len(payload))
			}
		})
	}
}

func TestEveryFlawMakesAWebhookInvalid(t *testing.T) {
	service := start(t, paymenttest.Options{Key: testKey()})
	hook, received := receiver(t)
	scheme := paymenttest.DefaultScheme()
	key := service.Key()
	want := map[paymenttest.Flaw]error{
		paymenttest.SignatureChanged:   signature.ErrMismatch,
		paymenttest.PayloadChanged:     signature.ErrMismatch,
		paymenttest.TimestampChanged:   signature.ErrMismatch,
		paymenttest.KeyIDChanged:       errUnknownKey,
		paymenttest.WrongKey:           signature.ErrMismatch,
		paymenttest.UnknownKey:         errUnknownKey,
		paymenttest.SignatureMissing:   signature.ErrMissing,
		paymenttest.SignatureMalformed: signature.ErrMalformed,
		paymenttest.SignatureRepeated:  signature.ErrRepeated,
		paymenttest.TimestampMissing:   signature.ErrMissing,
		paymenttest.TimestampMalformed: signature.ErrMalformed,
		paymenttest.TimestampRepeated:  signature.ErrRepeated,
		paymenttest.KeyIDMissing:       signature.ErrMissing,
		paymenttest.KeyIDMalformed:     errUnknownKey,
		paymenttest.KeyIDRepeated:      signature.ErrRepeated,
	}
	for _, flaw := range paymenttest.Flaws() {
		_, err := service.Send(t.Context(),
			paymenttest.Webhook{URL: hook, Payload: paymenttest.Delivery(paymenttest.Event()), Flaw: flaw})
		if err != nil {
			t.Errorf("%s: %v", flaw, err)
			continue
		}
		if err := verify(scheme, &key.Private.PublicKey, key.ID, <-received); !errors.Is(err, want[flaw]) ||
			err == nil {
			t.Errorf("%s: got %v, want %v", flaw, err, want[flaw])
		}
	}
	for _, age := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		_, err := service.Send(t.Context(),
			paymenttest.Webhook{URL: hook, Payload: paymenttest.Delivery(paymenttest.Event()), Age: age})
		if err != nil {
			t.Fatal(err)
		}
		if err := verify(scheme, &key.Private.PublicKey, key.ID, <-received); !errors.Is(err,
			signature.ErrOutsideWindow) {
			t.Errorf("age %s: got %v, want outside the window", age, err)
		}
	}
	if _, err := service.Send(t.Context(), paymenttest.Webhook{URL: hook, Flaw: "no-such-flaw"}); err == nil {
		t.Error("a flaw that does not exist was sent")
	}
}

func TestFlawOfAStaticKeyIDIsAnError(t *testing.T) {
	scheme := paymenttest.DefaultScheme()
	scheme.KeyID, _ = signature.ParseKeyIDCarrier("static:" + uuid.New().String())
	sender := paymenttest.Sender{Key: testKey(), Scheme: scheme}
	for _, flaw := range []paymenttest.Flaw{paymenttest.KeyIDMissing, paymenttest.KeyIDRepeated,
		paymenttest.KeyIDMalformed, paymenttest.KeyIDChanged} {
		if _, err := sender.Request(t.Context(),
			paymenttest.Webhook{URL: "http://127.0.0.1/", Flaw: flaw}); err == nil {
			t.Errorf("%s: no error", flaw)
		}
	}
}

func TestInvalidCarriersAreAnError(t *testing.T) {
	sender := paymenttest.Sender{Key: testKey()}
	for c, want := range map[paymenttest.Carriers]string{
		{SignatureHeader: "X Y"}:                     "signature header X Y: header: must be followed by the name",
		{Timestamp: "json:sentAt"}:                   "timestamp carrier json:sentAt: must be header:NAME or query",
		{KeyID: "static:5"}:                          "key id carrier static:5: static: must be followed by a UUID",
		{Timestamp: "body", TimestampFormat: "soon"}: "timestamp format soon",
	} {
		_, err := sender.Request(t.Context(), paymenttest.Webhook{URL: "http://127.0.0.1/", Carriers: c})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", c, err, want)
		}
	}
}

// A service that does not send the id of its key has a key with the id that its clients
// know, also after a rotation.
func TestTheKeyHasTheStaticID(t *testing.T) {
	scheme := paymenttest.DefaultScheme()
	id := uuid.New().String()
	scheme.KeyID, _ = signature.ParseKeyIDCarrier("static:" + id)
	service := start(t, paymenttest.Options{Scheme: scheme})
	hook, received := receiver(t)
	for range 2 {
		if _, err := service.Send(t.Context(), paymenttest.Webhook{URL: hook, Payload: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
		_, key := publicKey(t, get(t, service.URL+"/v1/keys/"+id).body)
		if err := verify(scheme, key, id, <-received); err != nil {
			t.Error(err)
		}
		service.Rotate()
	}
}

func TestDeliveryKeepsTheDigitsOfAmounts(t *testing.T) {
	event := paymenttest.Event()
	event.EventData.Amount = "1234567890.10"
	event.EventTimestamp = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	payload := paymenttest.Delivery(event, paymenttest.Event())
	delivery, err := payment.DecodeDelivery(payload)
	if err != nil {
		t.Fatal(err)
	}
	if len(delivery.Events) != 2 || delivery.Events[0].EventID != event.EventID {
		t.Errorf("decoded %d events, want 2", len(delivery.Events))
	}
	for _, want := range []string{
		`"amount":1234567890.10,`, `"eventTimestamp":"2026-01-31T12:00:00.000Z"`, `"railReferenceId":{}`,
		`"returns":{"hasReturnDetails":false}`, `"cancelations":{"hasCancelationDetails":false}`,
		`"cases":{"hasLinkedCases":false}`,
	} {
		if !strings.Contains(string(payload), want) {
			t.Errorf("the payload lacks %s: %s", want, payload)
		}
	}
	raw := `{"anything": "as it is" }`
	if got := string(paymenttest.RawDelivery("an id", []byte(raw))); got != `{"deliveryId":"an id","events":[`+raw+
		`]}` {
		t.Errorf("RawDelivery = %s", got)
	}
}

func TestKeysRotate(t *testing.T) {
	service := start(t, paymenttest.Options{Key: testKey()})
	first := service.Key()
	second := service.Rotate()
	if first.ID == second.ID || service.Key().ID != second.ID {
		t.Errorf("Rotate: %s, then %s", first.ID, second.ID)
	}
	if r := get(t, service.URL+"/v1/keys/"+first.ID); r.status != http.StatusOK {
		t.Errorf("the old key is answered %d, want 200", r.status)
	}
	service.Publish(second.ID, nil)
	if r := get(t, service.URL+"/v1/keys/"+second.ID); r.status != http.StatusNotFound {
		t.Errorf("a withdrawn key is answered %d, want 404", r.status)
	}
	service.Publish(second.ID, []byte("[]"))
	if r := get(t, service.URL+"/v1/keys/"+second.ID); r.body != "[]" {
		t.Errorf("a replaced key is answered %q, want []", r.body)
	}
}

func TestFaultsReplaceTheAnswer(t *testing.T) {
	service := start(t, paymenttest.Options{Key: testKey()})
	keyURL := service.URL + "/v1/keys/" + service.Key().ID
	right := get(t, keyURL)
	for text, want := range map[string]reply{
		"down":       {status: 503, body: `{"error":"unavailable"}`},
		"status:418": {status: 418, body: `{}`},
		"status":     {status: 500, body: `{}`},
		"garbage":    {status: 200, body: `{"kty":"RSA","access_token":`},
		"slow:1ms":   right,
		"":           right,
	} {
		if err := service.Misbehave(paymenttest.Keys, paymenttest.Fault(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if r := get(t, keyURL); r.status != want.status || r.body != want.body {
			t.Errorf("%s: answered %d %.200q", text, r.status, r.body)
		}
	}
	if n := service.Count(paymenttest.Keys, 503, 418); n != 2 {
		t.Errorf("Count of 503 and 418 = %d, want 2", n)
	}
}

func TestHangUpCutsTheConnection(t *testing.T) {
	service := start(t, paymenttest.Options{Key: testKey()})
	if err := service.Misbehave(paymenttest.Keys, paymenttest.HangUp); err != nil {
		t.Fatal(err)
	}
	// A new connection, since Go tries again on one that was in use.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if resp, err := client.Get(service.URL + "/v1/keys/" + service.Key().ID); err == nil {
		resp.Body.Close()
		t.Errorf("answered %d, want no answer", resp.StatusCode)
	}
	if n := service.Count(paymenttest.Keys, 0); n != 1 {
		t.Errorf("%d cut connections, want 1", n)
	}
}

func TestMisbehaveRejectsUnknownFaults(t *testing.T) {
	state := paymenttest.NewState(paymenttest.Options{})
	for e, faults := range map[paymenttest.Endpoint][]paymenttest.Fault{
		paymenttest.Keys: {"nonsense", "slow:long", "status:ok", "status:99", "status:600"}, "elsewhere": {"down"},
	} {
		for _, f := range faults {
			if err := state.Misbehave(e, f); err == nil {
				t.Errorf("%s took %q", e, f)
			}
		}
	}
}

func TestCloseEndsSlowAnswers(t *testing.T) {
	service := paymenttest.NewServer(paymenttest.Options{Key: testKey()})
	if err := service.Misbehave(paymenttest.Keys, "slow:10h"); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		resp, err := http.Get(service.URL + "/v1/keys/" + service.Key().ID)
		if err == nil {
			resp.Body.Close()
		}
		failed <- err
	}()
	service.Close()
	if err := <-failed; err == nil {
		t.Error("a closed service answered")
	}
}

func tokenRequest(t *testing.T, service *paymenttest.Server) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		service.URL+"/as/token.oauth2?access_token_manager_id=manager-1",
		strings.NewReader("grant_type=client_credentials"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth(service.Client())
	return r
}

type token struct {
	AccessToken string          `json:"access_token"`
	TokenType   string          `json:"token_type"`
	ExpiresIn   json.RawMessage `json:"expires_in"`
}

func fetchToken(t *testing.T, service *paymenttest.Server) token {
	t.Helper()
	r := do(t, tokenRequest(t, service))
	var got token
	if err := json.Unmarshal([]byte(r.body), &got); err != nil || r.status != http.StatusOK {
		t.Fatalf("token: %d %q: %v", r.status, r.body, err)
	}
	return got
}

func call(t *testing.T, service *paymenttest.Server, token, contentType string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, service.URL+paymenttest.ProtectedPath+"payments",
		nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", contentType)
	return do(t, r).status
}

func TestAPIAcceptsATokenUntilItExpires(t *testing.T) {
	service := start(t, paymenttest.Options{Key: testKey()})
	got := fetchToken(t, service)
	if got.TokenType != "Bearer" || string(got.ExpiresIn) != "3600" {
		t.Errorf("token = %+v, want Bearer for 3600 s", got)
	}
	if status := call(t, service, got.AccessToken, "application/json"); status != http.StatusOK {
		t.Errorf("a live token is answered %d, want 200", status)
	}
	if status := call(t, service, got.AccessToken, "text/plain"); status != http.StatusUnsupportedMediaType {
		t.Errorf("text/plain is answered %d, want 415", status)
	}
	for name, forged := range map[string]string{
		"another expiry": strings.Replace(got.AccessToken, "token-1", "token-2", 1),
		"no signature":   strings.Split(got.AccessToken, ".")[0],
		"empty":          "",
		"not a token":    "token-9999999999999-x.",
	} {
		if status := call(t, service, forged, "application/json"); status != http.StatusUnauthorized {
			t.Errorf("a forged token, %s: answered %d, want 401", name, status)
		}
	}
	service.SetTokenLifetime(0)
	if status := call(t, service, fetchToken(t, service).AccessToken, "application/json"); status !=
		http.StatusUnauthorized {
		t.Errorf("an expired token is answered %d, want 401", status)
	}
	service.SetTokenLifetime(24 * time.Hour)
	got = fetchToken(t, service)
	if string(got.ExpiresIn) != "86400" {
		t.Errorf("expires_in = %s, want 86400", got.ExpiresIn)
	}
	service.RevokeTokens()
	if status := call(t, service, got.AccessToken, "application/json"); status != http.StatusUnauthorized {
		t.Errorf("a revoked token is answered %d, want 401", status)
	}
}

func TestTokenEndpointChecksTheRequest(t *testing.T) {
	service := start(t, paymenttest.Options{Key: testKey(), ClientID: "client", ClientSecret: "s3cret+%41"})
	form := func(values url.Values) func(*http.Request) {
		return func(r *http.Request) {
			body := values.Encode()
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		}
	}
	tests := map[string]struct {
		change func(*http.Request)
		status int
		code   string
	}{
		"GET":        {func(r *http.Request) { r.Method = http.MethodGet }, 405, ""},
		"no manager": {func(r *http.Request) { r.URL.RawQuery = "" }, 400, "invalid_request"},
		"other manager": {func(r *http.Request) { r.URL.RawQuery = "access_token_manager_id=other" }, 400,
			"invalid_request"},
		"two managers": {func(r *http.Request) { r.URL.RawQuery += "&access_token_manager_id=manager-1" }, 400,
			"invalid_request"},
		"JSON": {func(r *http.Request) { r.Header.Set("Content-Type", "application/json") }, 400,
			"invalid_request"},
		"no credentials": {func(r *http.Request) { r.Header.Del("Authorization") }, 401, "invalid_client"},
		"wrong secret":   {func(r *http.Request) { r.SetBasicAuth("client", "guess") }, 401, "invalid_client"},
		"no grant":       {form(nil), 400, "invalid_request"},
		"other grant":    {form(url.Values{"grant_type": {"password"}}), 400, "unsupported_grant_type"},
		"two grants": {form(url.Values{"grant_type": {"client_credentials", "client_credentials"}}), 400,
			"invalid_request"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := tokenRequest(t, service)
			test.change(r)
			got := do(t, r)
			if got.status != test.status || !strings.Contains(got.body, test.code) {
				t.Errorf("answered %d %s, want %d %s", got.status, got.body, test.status, test.code)
			}
		})
	}
}

func TestKeyLookupCanRequireAToken(t *testing.T) {
	service := start(t, paymenttest.Options{Key: testKey(), KeysBearer: true})
	keyURL := service.URL + "/v1/keys/" + service.Key().ID
	if r := get(t, keyURL); r.status != http.StatusUnauthorized {
		t.Errorf("without a token: %d, want 401", r.status)
	}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, keyURL, nil)
	r.Header.Set("Authorization", "Bearer "+fetchToken(t, service).AccessToken)
	if got := do(t, r); got.status != http.StatusOK {
		t.Errorf("with a token: %d, want 200", got.status)
	}
}

func TestControlAPIIsOptional(t *testing.T) {
	without := start(t, paymenttest.Options{Key: testKey()})
	if r := get(t, without.URL+"/simulator/rotate"); r.status != http.StatusNotFound {
		t.Errorf("without Control: %d, want 404", r.status)
	}
}

func TestWebPagesAreAnswered403(t *testing.T) {
	service := start(t, paymenttest.Options{Key: testKey(), Control: true})
	for name, change := range map[string]func(*http.Request){
		"":                         func(*http.Request) {},
		"by name":                  func(r *http.Request) { r.Host = "LOCALHOST:1" },
		"an origin":                func(r *http.Request) { r.Header.Set("Origin", "null") },
		"a site":                   func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") },
		"another host":             func(r *http.Request) { r.Host = "attacker.test" },
		"a longer name":            func(r *http.Request) { r.Host = "127.0.0.1.attacker.test" },
		"a name that ends so":      func(r *http.Request) { r.Host = "attacker.localhost" },
		"a dot at the end":         func(r *http.Request) { r.Host = "localhost." },
		"every address":            func(r *http.Request) { r.Host = "0.0.0.0" },
		"the address of version 6": func(r *http.Request) { r.Host = "[::1]:1" },
	} {
		for _, path := range []string{"/v1/keys/" + testKey().ID, "/simulator/rotate"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, service.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			change(r)
			if got := do(t, r); (got.status == http.StatusForbidden) == (name == "" || name == "by name") {
				t.Errorf("%s, %s: answered %d", path, name, got.status)
			}
		}
	}
}
