package paymenttest_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/signature"
	"payhook.example/shared/wire"
)

// testKey is the key of tests that need no other one. Generating keys takes long.
var testKey = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(2048) })

func start(t *testing.T, opts paymenttest.Options) *paymenttest.Server {
	t.Helper()
	opts.Key = testKey()
	service := paymenttest.NewServer(opts)
	t.Cleanup(service.Close)
	return service
}

// do sends a request, and returns the answer.
func do(t *testing.T, r *http.Request) (status int, body string) {
	t.Helper()
	r.RequestURI = ""
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// verify verifies a webhook as a client does.
func verify(key paymenttest.Key, w paymenttest.Signed) error {
	proof, err := paymenttest.DefaultScheme().Extract(w.Headers, w.Query)
	if err == nil {
		err = signature.CheckTime(proof.Timestamp, time.Now(), 5*time.Minute)
	}
	if err == nil && proof.KeyID != key.ID {
		err = errUnknownKey
	}
	if err != nil {
		return err
	}
	return signature.Verify(&key.Private.PublicKey, w.Payload, proof)
}

var errUnknownKey = errors.New("unknown key")

func TestEveryFlawMakesAWebhookInvalid(t *testing.T) {
	payload, sender := paymenttest.Delivery(paymenttest.Event()), paymenttest.Sender{Key: testKey()}
	check := func(w paymenttest.Webhook, want error) {
		t.Helper()
		w.Payload = payload
		signed, err := sender.Sign(t.Context(), w)
		if err == nil {
			err = verify(testKey(), signed)
		}
		if !errors.Is(err, want) {
			t.Errorf("%q of age %s: got %v, want %v", w.Flaw, w.Age, err, want)
		}
	}
	want := map[wire.Flaw]error{
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
		if want[flaw] == nil {
			t.Errorf("%s makes nothing invalid", flaw)
		}
		check(paymenttest.Webhook{Flaw: flaw}, want[flaw])
	}
	check(paymenttest.Webhook{}, nil)
	check(paymenttest.Webhook{Age: 10 * time.Minute}, signature.ErrOutsideWindow)
	check(paymenttest.Webhook{Age: -10 * time.Minute}, signature.ErrOutsideWindow)

	static := paymenttest.DefaultScheme()
	static.KeyID = signature.Location("static:" + uuid.New().String())
	for flaw, scheme := range map[wire.Flaw]signature.Scheme{"no-such-flaw": {},
		paymenttest.KeyIDChanged: static, paymenttest.KeyIDRepeated: static} {
		sender.Scheme = scheme
		if _, err := sender.Sign(t.Context(), paymenttest.Webhook{Flaw: flaw}); err == nil {
			t.Errorf("%s was signed", flaw)
		}
	}
}

func keyURL(service *paymenttest.Server) string { return service.URL + "/v1/keys/" + service.Key().ID }

func TestFaultsReplaceTheAnswer(t *testing.T) {
	service := start(t, paymenttest.Options{})
	// Go tries again on a connection that was in use.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	right := string(testKey().JWK())
	for fault, want := range map[wire.Fault]string{"down": `503 {"error":"unavailable"}`, "status": "500 {}",
		"garbage": `200 {"kty":"RSA","access_token":`, "": "200 " + right, "hang-up": "0 "} {
		service.Change(func(s *paymenttest.State) { s.Faults[paymenttest.Keys] = fault })
		got := "0 "
		if resp, err := client.Get(keyURL(service)); err == nil {
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			got = fmt.Sprint(resp.StatusCode, " ", string(body))
		}
		requests := service.Requests(paymenttest.Keys)
		recorded := strconv.Itoa(requests[len(requests)-1].Status)
		if got != want || !strings.HasPrefix(want, recorded+" ") {
			t.Errorf("%s: got %s, want %s, recorded %s", fault, got, want, recorded)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		state := paymenttest.NewState(paymenttest.State{})
		state.Faults[paymenttest.API] = paymenttest.Slow
		began, w := time.Now(), httptest.NewRecorder()
		state.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, paymenttest.ProtectedPath, nil))
		if took := time.Since(began); w.Code != http.StatusUnauthorized || took != 10*time.Second {
			t.Errorf("slow: %d after %s", w.Code, took)
		}
	})
}

func TestCloseEndsSlowAnswers(t *testing.T) {
	service := paymenttest.NewServer(paymenttest.Options{Key: testKey()})
	service.Change(func(s *paymenttest.State) { s.Faults[paymenttest.Keys] = paymenttest.Slow })
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { service.Close() }})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, keyURL(service), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(r); err == nil {
		resp.Body.Close()
		t.Error("a closed service answered")
	}
}

func tokenRequest(service *paymenttest.Server) *http.Request {
	r := httptest.NewRequest(http.MethodPost, service.URL+"/as/token.oauth2?access_token_manager_id=manager-1",
		strings.NewReader("grant_type=client_credentials"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth(service.Client())
	return r
}

// Two copies of a state, as the processes of a function, agree on keys and tokens.
func TestAPIAcceptsATokenUntilItExpires(t *testing.T) {
	service := start(t, paymenttest.Options{KeysBearer: true})
	var state paymenttest.State
	share := func(s *paymenttest.State) {
		text, err := json.Marshal(s)
		if err = errors.Join(err, json.Unmarshal(text, &state)); err != nil {
			t.Error(err)
		}
	}
	service.Change(share)
	key := "/v1/keys/" + service.Key().ID
	call := func(token, path, contentType string) int {
		r, w := httptest.NewRequest(http.MethodGet, path, nil), httptest.NewRecorder()
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", contentType)
		state.Handler().ServeHTTP(w, r)
		return w.Code
	}
	fetch := func() string {
		var token struct {
			AccessToken string `json:"access_token"`
			TokenType   string `json:"token_type"`
			ExpiresIn   int    `json:"expires_in"`
		}
		status, body := do(t, tokenRequest(service))
		if err := json.Unmarshal([]byte(body), &token); err != nil || status != http.StatusOK ||
			token.TokenType != "Bearer" || token.ExpiresIn != state.TokenSeconds {
			t.Fatalf("token: %d %q: %v", status, body, err)
		}
		return token.AccessToken
	}
	good, again := fetch(), fetch()
	const api, jsonType = paymenttest.ProtectedPath, "application/json"
	for _, test := range []struct {
		token, path, contentType string
		status                   int
	}{
		{good, api, jsonType, 200},
		{good, key, "", 200},
		{again, key, "", 200},
		{good, api, "text/plain", 415},
		{strings.Replace(good, "token-1", "token-2", 1), api, jsonType, 401},
		{strings.Split(good, ".")[0], api, jsonType, 401},
		{"", api, jsonType, 401},
		{"token-9999999999999-x.", api, jsonType, 401},
		{"", key, "", 401},
	} {
		if status := call(test.token, test.path, test.contentType); status != test.status {
			t.Errorf("%+v: answered %d", test, status)
		}
	}
	service.Change(func(s *paymenttest.State) { s.TokenSeconds = 0; share(s) })
	if status := call(fetch(), key, ""); status != 401 || good == again {
		t.Errorf("an expired token is answered %d, or two tokens are the same", status)
	}
	service.Change(func(s *paymenttest.State) { s.TokenKey = nil; share(s) })
	if call(good, key, "") != 401 {
		t.Error("a revoked token is accepted")
	}
}

func TestTokenEndpointChecksTheRequest(t *testing.T) {
	service := start(t, paymenttest.Options{})
	id, _ := service.Client()
	service.Change(func(s *paymenttest.State) { s.ClientSecret = "s3cret+%41" })
	form := func(body string) func(*http.Request) {
		return func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		}
	}
	query := func(text string) func(*http.Request) { return func(r *http.Request) { r.URL.RawQuery = text } }
	const manager = "access_token_manager_id=manager-1"
	for name, test := range map[string]struct {
		change func(*http.Request)
		want   string // in status and body
	}{
		"valid":          {func(*http.Request) {}, "200 {"},
		"GET":            {func(r *http.Request) { r.Method = http.MethodGet }, "405"},
		"no manager":     {query(""), "400 invalid_request"},
		"other manager":  {query("access_token_manager_id=other"), "400 invalid_request"},
		"two managers":   {query(manager + "&" + manager), "400 invalid_request"},
		"JSON":           {func(r *http.Request) { r.Header.Set("Content-Type", "text/json") }, "400 invalid_request"},
		"no credentials": {func(r *http.Request) { r.Header.Del("Authorization") }, "401 invalid_client"},
		"wrong secret":   {func(r *http.Request) { r.SetBasicAuth(id, "guess") }, "401 invalid_client"},
		"no grant":       {form(""), "400 invalid_request"},
		"other grant":    {form("grant_type=password"), "400 unsupported_grant_type"},
		"two grants":     {form("grant_type=client_credentials&grant_type=client_credentials"), "400 invalid_request"},
	} {
		r := tokenRequest(service)
		test.change(r)
		status, body := do(t, r)
		want, code, _ := strings.Cut(test.want, " ")
		if strconv.Itoa(status) != want || !strings.Contains(body, code) {
			t.Errorf("%s: answered %d %s, want %s", name, status, body, test.want)
		}
	}
}

func TestControlEndpointDoesWhatACommandNames(t *testing.T) {
	service := start(t, paymenttest.Options{})
	var got paymenttest.Signed
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = paymenttest.Signed{Headers: map[string]string{}, Query: r.URL.RawQuery}
		for name := range r.Header {
			got.Headers[strings.ToLower(name)] = r.Header.Get(name)
		}
		got.Payload, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		io.WriteString(w, "taken")
	}))
	t.Cleanup(hook.Close)
	control := func(text string) (status int, report wire.ControlReport) {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, service.URL+paymenttest.ControlPath, strings.NewReader(text))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded") // as of curl -d
		status, body := do(t, r)
		if err := json.Unmarshal([]byte(body), &report); status == http.StatusOK && err != nil {
			t.Error(err)
		}
		return status, report
	}
	for _, text := range []string{`{"send":{}}`, `{"send":{"url":"` + hook.URL + `","kind":"duplicate"}}`,
		`{"faults":{"keys":"nonsense"}}`, `{"faults":{"elsewhere":"down"}}`, `{"keys":"down"}`, ``} {
		if status, _ := control(text); status != http.StatusBadRequest {
			t.Errorf("%s: %d", text, status)
		}
	}
	service.SetWebhookURL(hook.URL)
	sent := func(order string) (events []payment.Event, invalid error) {
		t.Helper()
		if _, report := control(`{"send":` + order + `}`); report.Status != 202 || report.Body != "taken" {
			t.Fatalf("%s: %+v", order, report)
		}
		delivery, err := payment.DecodeDelivery(got.Payload)
		for i := 0; err == nil && i < len(delivery.Events); i++ {
			var e payment.Event
			e, err = payment.DecodeEvent(delivery.Events[i].Bytes)
			events = append(events, e)
		}
		if err != nil {
			t.Fatalf("%s: %v", order, err)
		}
		return events, verify(service.Key(), got)
	}
	first, err := sent(`{"events":2,"amount":7.10,"currency":"EUR"}`)
	if len(first) != 2 || first[1].EventData.Amount != "7.10" || first[1].EventData.PaymentCurrency != "EUR" ||
		err != nil {
		t.Errorf("sent %+v, %v", first, err)
	}
	if _, err := sent(`{"kind":"wrong-key"}`); err == nil {
		t.Error("it is valid")
	}
	again, err := sent(`{"kind":"duplicate"}`)
	if len(again) != 2 || again[1].EventID != first[1].EventID || err != nil {
		t.Errorf("sent %+v after %+v, %v", again, first, err)
	}
	if other, err := sent(`{"kind":"conflict"}`); len(other) != 1 || other[0].EventID != first[0].EventID ||
		other[0].EventData.Amount != "17.10" || err != nil {
		t.Errorf("sent %+v after %+v, %v", other, first, err)
	}
	_, rotated := control(`{"rotate":true,"withdraw":"` + testKey().ID + `","send":{"age":"1h"},` +
		`"faults":{"token":"down"}}`)
	if rotated.KeyID == testKey().ID || rotated.KeyID != service.Key().ID ||
		rotated.Faults[paymenttest.Token] != paymenttest.Down {
		t.Errorf("%+v", rotated)
	}
	if err := verify(service.Key(), got); !errors.Is(err, signature.ErrOutsideWindow) {
		t.Errorf("an old webhook: %v", err)
	}
	old := httptest.NewRequest(http.MethodGet, service.URL+"/v1/keys/"+testKey().ID, nil)
	if status, _ := do(t, old); status != http.StatusNotFound {
		t.Errorf("the withdrawn key is answered %d", status)
	}
	if _, report := control(`{"faults":{"token":""}}`); report.Faults[paymenttest.Token] != "" {
		t.Errorf("%+v", report)
	}
}

func TestAFunctionHasNoControlEndpoint(t *testing.T) {
	w := httptest.NewRecorder()
	paymenttest.NewState(paymenttest.State{}).Handler().ServeHTTP(w,
		httptest.NewRequest(http.MethodPost, paymenttest.ControlPath, strings.NewReader("{}")))
	if w.Code != http.StatusNotFound {
		t.Errorf("answered %d", w.Code)
	}
}

func TestWebPagesOfOtherOriginsAreAnswered403(t *testing.T) {
	service := start(t, paymenttest.Options{})
	for _, c := range []struct {
		host, header, value string
		allowed             bool
	}{
		{"", "", "", true},
		{"LOCALHOST:1", "", "", true},
		{"", "Sec-Fetch-Site", "same-origin", true},
		{"", "Sec-Fetch-Site", "same-site", false},
		{"", "Origin", "null", false},
		{"", "Origin", "http://127.0.0.1:1", false}, // another port
		{"attacker.test", "Sec-Fetch-Site", "same-origin", false},
		{"127.0.0.1.attacker.test", "", "", false},
		{"attacker.localhost", "", "", false},
		{"localhost.", "", "", false},
		{"0.0.0.0", "", "", false},
		{"[::1]:1", "", "", false},
	} {
		for url, method := range map[string]string{keyURL(service): http.MethodGet,
			service.URL + paymenttest.ControlPath: http.MethodPost} {
			r := httptest.NewRequest(method, url, nil)
			r.Host = cmp.Or(c.host, r.Host)
			if c.header != "" {
				r.Header.Set(c.header, c.value)
			}
			if status, _ := do(t, r); (status != http.StatusForbidden) != c.allowed {
				t.Errorf("%+v, %s: answered %d", c, url, status)
			}
		}
	}
}
