package paymenttest_test

import (
	"crypto/rsa"
	"encoding/json"
	"errors"
	"io"
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
var noRedirects = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
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

func TestEveryFlawMakesAWebhookInvalid(t *testing.T) {
	service := start(t, paymenttest.Options{Key: testKey()})
	hook, received := receiver(t)
	scheme := paymenttest.DefaultScheme()
	key := service.Key()
	want := map[paymenttest.Flaw]error{
		paymenttest.SignatureChanged:  signature.ErrMismatch,
		paymenttest.PayloadChanged:    signature.ErrMismatch,
		paymenttest.TimestampChanged:  signature.ErrMismatch,
		paymenttest.KeyIDChanged:      errUnknownKey,
		paymenttest.WrongKey:          signature.ErrMismatch,
		paymenttest.UnknownKey:        errUnknownKey,
		paymenttest.SignatureMissing:  signature.ErrMissing,
		paymenttest.SignatureRepeated: signature.ErrRepeated,
		paymenttest.TimestampRepeated: signature.ErrRepeated,
		paymenttest.KeyIDRepeated:     signature.ErrRepeated,
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
		t.Error("sent")
	}
	static := paymenttest.DefaultScheme()
	static.KeyID, _ = signature.ParseKeyIDLocation("static:" + uuid.New().String())
	for _, flaw := range []paymenttest.Flaw{paymenttest.KeyIDChanged, paymenttest.KeyIDRepeated} {
		_, err := paymenttest.Sender{Key: testKey(), Scheme: static}.Sign(t.Context(), paymenttest.Webhook{Flaw: flaw})
		if err == nil {
			t.Errorf("%s was signed", flaw)
		}
	}
}

// misbehave sets the fault of key lookup.
func misbehave(t *testing.T, service *paymenttest.Server, f paymenttest.Fault) {
	t.Helper()
	faults := map[paymenttest.Endpoint]paymenttest.Fault{paymenttest.Keys: f}
	if _, err := service.Do(t.Context(), paymenttest.Command{Faults: faults}); err != nil {
		t.Fatal(err)
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
		misbehave(t, service, paymenttest.Fault(text))
		if r := get(t, keyURL); r.status != want.status || r.body != want.body {
			t.Errorf("%s: answered %d %.200q", text, r.status, r.body)
		}
	}
	for text, e := range map[paymenttest.Fault]paymenttest.Endpoint{"nonsense": paymenttest.Keys,
		"slow:long": paymenttest.Keys, "status:ok": paymenttest.Keys, "status:99": paymenttest.Keys,
		"status:600": paymenttest.Keys, "down": "elsewhere"} {
		if err := paymenttest.NewState(paymenttest.Options{}).Misbehave(e, text); err == nil {
			t.Errorf("%s took %q", e, text)
		}
	}
	misbehave(t, service, paymenttest.HangUp)
	// A new connection, since Go tries again on one that was in use.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if resp, err := client.Get(keyURL); err == nil {
		resp.Body.Close()
		t.Errorf("answered %d, want no answer", resp.StatusCode)
	}
	statuses := map[int]int{}
	for _, r := range service.Requests(paymenttest.Keys) {
		statuses[r.Status]++
	}
	if statuses[503] != 1 || statuses[418] != 1 || statuses[0] != 1 {
		t.Errorf("recorded %v", statuses)
	}
}

func TestCloseEndsSlowAnswers(t *testing.T) {
	service := paymenttest.NewServer(paymenttest.Options{Key: testKey()})
	misbehave(t, service, "slow:10h")
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

// Two copies of a state, as the processes of a function, agree on keys and tokens.
func TestAPIAcceptsATokenUntilItExpires(t *testing.T) {
	service := start(t, paymenttest.Options{Key: testKey(), KeysBearer: true})
	var state paymenttest.State
	share := func(change func(*paymenttest.State)) {
		if err := service.Change(t.Context(), func(s *paymenttest.State) error {
			change(s)
			text, err := json.Marshal(s)
			return errors.Join(err, json.Unmarshal(text, &state))
		}); err != nil {
			t.Fatal(err)
		}
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		state.Handler().ServeHTTP(w, r)
	}))
	defer other.Close()
	call := func(token, path, contentType string) int {
		r := httptest.NewRequest(http.MethodGet, other.URL+path, nil)
		r.RequestURI = ""
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", contentType)
		return do(t, r).status
	}
	fetch := func() string {
		var token struct {
			AccessToken string `json:"access_token"`
			TokenType   string `json:"token_type"`
			ExpiresIn   int    `json:"expires_in"`
		}
		r := do(t, tokenRequest(t, service))
		if err := json.Unmarshal([]byte(r.body), &token); err != nil || r.status != http.StatusOK ||
			token.TokenType != "Bearer" || token.ExpiresIn != state.TokenSeconds {
			t.Fatalf("token: %d %q: %v", r.status, r.body, err)
		}
		return token.AccessToken
	}
	share(func(*paymenttest.State) {})
	good, again := fetch(), fetch()
	const jsonType = "application/json"
	key := "/v1/keys/" + service.Key().ID
	for _, test := range []struct {
		token, path, contentType string
		status                   int
	}{
		{good, paymenttest.ProtectedPath, jsonType, 200},
		{good, key, "", 200},
		{again, key, "", 200},
		{good, paymenttest.ProtectedPath, "text/plain", 415},
		{strings.Replace(good, "token-1", "token-2", 1), paymenttest.ProtectedPath, jsonType, 401},
		{strings.Split(good, ".")[0], paymenttest.ProtectedPath, jsonType, 401},
		{"", paymenttest.ProtectedPath, jsonType, 401},
		{"token-9999999999999-x.", paymenttest.ProtectedPath, jsonType, 401},
		{"", key, "", 401},
	} {
		if status := call(test.token, test.path, test.contentType); status != test.status {
			t.Errorf("%+v: answered %d", test, status)
		}
	}
	share(func(s *paymenttest.State) { s.TokenSeconds = 0 })
	if status := call(fetch(), key, ""); status != 401 || good == again {
		t.Errorf("an expired token is answered %d, or two tokens are the same", status)
	}
	service.RevokeTokens()
	share(func(*paymenttest.State) {})
	if status := call(good, key, ""); status != 401 {
		t.Errorf("a revoked token is answered %d", status)
	}
}

func TestTokenEndpointChecksTheRequest(t *testing.T) {
	service := start(t, paymenttest.Options{Key: testKey()})
	id, _ := service.Client()
	literal := func(s *paymenttest.State) error { s.ClientSecret = "s3cret+%41"; return nil }
	if err := service.Change(t.Context(), literal); err != nil {
		t.Fatal(err)
	}
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
		"valid":      {func(*http.Request) {}, 200, ""},
		"GET":        {func(r *http.Request) { r.Method = http.MethodGet }, 405, ""},
		"no manager": {func(r *http.Request) { r.URL.RawQuery = "" }, 400, "invalid_request"},
		"other manager": {func(r *http.Request) { r.URL.RawQuery = "access_token_manager_id=other" }, 400,
			"invalid_request"},
		"two managers": {func(r *http.Request) { r.URL.RawQuery += "&access_token_manager_id=manager-1" }, 400,
			"invalid_request"},
		"JSON": {func(r *http.Request) { r.Header.Set("Content-Type", "application/json") }, 400,
			"invalid_request"},
		"no credentials": {func(r *http.Request) { r.Header.Del("Authorization") }, 401, "invalid_client"},
		"wrong secret":   {func(r *http.Request) { r.SetBasicAuth(id, "guess") }, 401, "invalid_client"},
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

func TestControlEndpointDoesWhatACommandNames(t *testing.T) {
	service := start(t, paymenttest.Options{Key: testKey()})
	remote := paymenttest.Remote{URL: service.URL}
	hook, received := receiver(t)
	do := func(text string) (report paymenttest.Report) {
		t.Helper()
		resp, err := http.Post(service.URL+paymenttest.ControlPath, "application/x-www-form-urlencoded", // as of curl -d
			strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			err = json.NewDecoder(resp.Body).Decode(&report)
		}
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	for _, text := range []string{`{"send":{}}`, `{"send":{"url":"` + hook + `","kind":"duplicate"}}`,
		`{"faults":{"keys":"nonsense"}}`, `{"rotateCertificate":true}`, `{"keys":"down"}`, ``} {
		if report := do(text); report.KeyID != "" {
			t.Errorf("%s was done", text)
		}
	}
	service.SetWebhookURL(hook)
	sent := func(order string) (events []payment.Event) {
		t.Helper()
		if report := do(`{"send":` + order + `}`); report.Status != 202 || report.Body != "taken" {
			t.Fatalf("%s: %+v", order, report)
		}
		r := <-received
		delivery, err := payment.DecodeDelivery(r.Body)
		for i := 0; err == nil && i < len(delivery.Events); i++ {
			var e payment.Event
			e, err = payment.DecodeEvent(delivery.Events[i].Bytes)
			events = append(events, e)
		}
		if err == nil {
			key := service.Key()
			err = verify(paymenttest.DefaultScheme(), &key.Private.PublicKey, key.ID, r)
		}
		if err != nil {
			t.Fatalf("%s: %v", order, err)
		}
		return events
	}
	first := sent(`{"events":2,"amount":7.10,"currency":"EUR"}`)
	if len(first) != 2 || first[1].EventData.Amount != "7.10" || first[1].EventData.PaymentCurrency != "EUR" {
		t.Errorf("sent %+v", first)
	}
	if do(`{"send":{"kind":"wrong-key"}}`); len((<-received).Body) == 0 {
		t.Error("sent nothing")
	}
	if again := sent(`{"kind":"duplicate"}`); len(again) != 2 || again[1].EventID != first[1].EventID {
		t.Errorf("sent %+v after %+v", again, first)
	}
	if other := sent(`{"kind":"conflict"}`); len(other) != 1 || other[0].EventID != first[0].EventID ||
		other[0].EventData.Amount != "17.10" {
		t.Errorf("sent %+v after %+v", other, first)
	}
	before := service.Key().ID
	rotated, err := remote.Do(t.Context(), paymenttest.Command{Rotate: true, Withdraw: before,
		Faults: map[paymenttest.Endpoint]paymenttest.Fault{paymenttest.Token: "status:418"}})
	if err != nil || rotated.KeyID == before || rotated.KeyID != service.Key().ID || len(rotated.Faults) != 1 ||
		rotated.Faults[paymenttest.Token] != "status:418" {
		t.Errorf("%+v, %v", rotated, err)
	}
	if r := get(t, service.URL+"/v1/keys/"+before); r.status != http.StatusNotFound {
		t.Errorf("the withdrawn key is answered %d", r.status)
	}
	if report := do(`{"faults":{"token":""}}`); len(report.Faults) != 0 {
		t.Errorf("%+v", report)
	}
	if _, err := remote.Do(t.Context(), paymenttest.Command{Withdraw: "x", Send: &paymenttest.Order{
		Webhook: paymenttest.Webhook{URL: hook, Age: time.Hour}}}); err != nil {
		t.Error(err)
	}
	key := service.Key()
	if err := verify(paymenttest.DefaultScheme(), &key.Private.PublicKey, key.ID, <-received); !errors.Is(err,
		signature.ErrOutsideWindow) {
		t.Errorf("an old webhook: %v", err)
	}
}

func TestAFunctionHasNoControlEndpoint(t *testing.T) {
	w := httptest.NewRecorder()
	paymenttest.NewState(paymenttest.Options{}).Handler().ServeHTTP(w,
		httptest.NewRequest(http.MethodPost, paymenttest.ControlPath, strings.NewReader("{}")))
	if w.Code != http.StatusNotFound {
		t.Errorf("answered %d", w.Code)
	}
}

func TestWebPagesOfOtherOriginsAreAnswered403(t *testing.T) {
	service := start(t, paymenttest.Options{Key: testKey()})
	for name, change := range map[string]func(*http.Request){
		"":                         func(*http.Request) {},
		"by name":                  func(r *http.Request) { r.Host = "LOCALHOST:1" },
		"its own page":             func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") },
		"an origin":                func(r *http.Request) { r.Header.Set("Origin", "null") },
		"another port":             func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:1") },
		"a site":                   func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"another host":             func(r *http.Request) { r.Host = "attacker.test" },
		"a longer name":            func(r *http.Request) { r.Host = "127.0.0.1.attacker.test" },
		"a name that ends so":      func(r *http.Request) { r.Host = "attacker.localhost" },
		"a dot at the end":         func(r *http.Request) { r.Host = "localhost." },
		"every address":            func(r *http.Request) { r.Host = "0.0.0.0" },
		"the address of version 6": func(r *http.Request) { r.Host = "[::1]:1" },
	} {
		for path, method := range map[string]string{"/v1/keys/" + testKey().ID: http.MethodGet,
			paymenttest.ControlPath: http.MethodPost} {
			r, err := http.NewRequestWithContext(t.Context(), method, service.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			change(r)
			allowed := name == "" || name == "by name" || name == "its own page"
			if got := do(t, r); (got.status == http.StatusForbidden) == allowed {
				t.Errorf("%s, %s: answered %d", path, name, got.status)
			}
		}
	}
}
