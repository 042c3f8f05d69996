package paymenttest_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"payhook.example/shared/paymenttest"
)

// sandboxes are two copies of a service without memory, which read the same state.
type sandboxes struct {
	state paymenttest.State
	err   error // of reading the state
	urls  [2]string
}

func startSandboxes(t *testing.T) *sandboxes {
	t.Helper()
	s := &sandboxes{state: paymenttest.NewState(paymenttest.Options{})}
	for i := range s.urls {
		server := httptest.NewServer(paymenttest.Stateless(func(context.Context) (paymenttest.State, error) {
			// As it is stored.
			text, err := json.Marshal(s.state)
			if err != nil {
				t.Error(err)
			}
			var read paymenttest.State
			if err := json.Unmarshal(text, &read); err != nil {
				t.Error(err)
			}
			return read, s.err
		}))
		t.Cleanup(server.Close)
		s.urls[i] = server.URL
	}
	return s
}

// tokenFrom requests a token of one of the copies.
func (s *sandboxes) tokenFrom(t *testing.T, i int, change func(*http.Request)) (status int, token string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		s.urls[i]+"/as/token.oauth2?access_token_manager_id=manager-1",
		strings.NewReader("grant_type=client_credentials"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth(s.state.ClientID, s.state.ClientSecret)
	if change != nil {
		change(r)
	}
	status, body := s.do(t, r)
	var answer struct {
		AccessToken string `json:"access_token"`
	}
	json.Unmarshal([]byte(body), &answer)
	return status, answer.AccessToken
}

// call calls the protected API of one of the copies.
func (s *sandboxes) call(t *testing.T, i int, token string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.urls[i]+paymenttest.ProtectedPath+"payments",
		nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	status, _ := s.do(t, r)
	return status
}

func (s *sandboxes) do(t *testing.T, r *http.Request) (int, string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestOneCopyAcceptsTheTokenOfAnother(t *testing.T) {
	s := startSandboxes(t)
	status, token := s.tokenFrom(t, 0, nil)
	if status != http.StatusOK {
		t.Fatalf("the token endpoint answered %d", status)
	}
	if status := s.call(t, 1, token); status != http.StatusOK {
		t.Errorf("the token of another copy is answered %d", status)
	}
	if _, another := s.tokenFrom(t, 0, nil); another == token {
		t.Error("two tokens are the same")
	}
	for name, forged := range map[string]string{
		"another expiry": strings.Replace(token, "token-1", "token-2", 1),
		"no signature":   strings.Split(token, ".")[0],
		"empty":          "",
		"not a token":    "token-9999999999999-x.",
	} {
		if status := s.call(t, 1, forged); status != http.StatusUnauthorized {
			t.Errorf("%s: answered %d", name, status)
		}
	}
	if status, _ := s.tokenFrom(t, 0, func(r *http.Request) { r.SetBasicAuth(s.state.ClientID, "x") }); status !=
		http.StatusUnauthorized {
		t.Errorf("another client secret is answered %d", status)
	}
	s.state.TokenKey = []byte("another")
	if status := s.call(t, 1, token); status != http.StatusUnauthorized {
		t.Errorf("a revoked token is answered %d", status)
	}
}

func TestATokenOfAStatelessServiceExpires(t *testing.T) {
	s := startSandboxes(t)
	s.state.TokenSeconds = 0 // it expires when it is issued
	if _, token := s.tokenFrom(t, 0, nil); s.call(t, 1, token) != http.StatusUnauthorized {
		t.Error("an expired token is accepted")
	}
}

func TestCopiesServeThePublishedKeys(t *testing.T) {
	s := startSandboxes(t)
	key := paymenttest.NewKey(2048)
	get := func(i int) int {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.urls[i]+"/v1/keys/"+key.ID, nil)
		status, body := s.do(t, r)
		if status == http.StatusOK && body != string(key.JWK()) {
			t.Errorf("the key is %s", body)
		}
		return status
	}
	if status := get(0); status != http.StatusNotFound {
		t.Errorf("an unknown key is answered %d", status)
	}
	s.state.Publish(key)
	if first, second := get(0), get(1); first != http.StatusOK || second != http.StatusOK {
		t.Errorf("a published key is answered %d and %d", first, second)
	}
	text, err := json.Marshal(s.state)
	if err != nil {
		t.Fatal(err)
	}
	if private := key.Private.D.String(); strings.Contains(string(text), private) ||
		strings.Contains(string(text), `"d":`) {
		t.Error("the state contains the private key")
	}
	s.err = errors.New("no state")
	if status := get(0); status != http.StatusServiceUnavailable {
		t.Errorf("without its state, the service answers %d", status)
	}
}

func TestFaultsOfAStatelessService(t *testing.T) {
	s := startSandboxes(t)
	if err := s.state.Misbehave(paymenttest.Token, paymenttest.Fault{Name: paymenttest.Down}); err != nil {
		t.Fatal(err)
	}
	for i := range s.urls {
		if status, _ := s.tokenFrom(t, i, nil); status != http.StatusServiceUnavailable {
			t.Errorf("copy %d: a token endpoint that is down answers %d", i, status)
		}
	}
	if err := s.state.Misbehave(paymenttest.Token, paymenttest.Fault{}); err != nil {
		t.Fatal(err)
	}
	if status, _ := s.tokenFrom(t, 0, nil); status != http.StatusOK {
		t.Errorf("without the fault, the token endpoint answers %d", status)
	}
	for _, f := range []paymenttest.Fault{{Name: paymenttest.Down, Times: 1},
		{Name: "x"}} {
		if err := s.state.Misbehave(paymenttest.Token, f); err == nil {
			t.Errorf("the fault %v is accepted", f)
		}
	}
}
