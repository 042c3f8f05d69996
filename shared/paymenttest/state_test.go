package paymenttest_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"payhook.example/shared/paymenttest"
)

func TestCopiesOfAStateAgree(t *testing.T) {
	state := paymenttest.NewState(paymenttest.Options{})
	var copies [2]*paymenttest.Server
	for i := range copies {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var read paymenttest.State // as it is stored
			text, err := json.Marshal(state)
			if err := errors.Join(err, json.Unmarshal(text, &read)); err != nil {
				t.Error(err)
			}
			read.Handler().ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		copies[i] = &paymenttest.Server{URL: server.URL}
	}
	token := func(i int) (int, string) {
		r := tokenRequest(t, copies[i])
		r.SetBasicAuth(state.ClientID, state.ClientSecret)
		answer := do(t, r)
		var fields struct {
			AccessToken string `json:"access_token"`
		}
		json.Unmarshal([]byte(answer.body), &fields)
		return answer.status, fields.AccessToken
	}
	_, first := token(0)
	if status := call(t, copies[1], first, "application/json"); status != http.StatusOK {
		t.Errorf("the token of another copy is answered %d", status)
	}
	if _, second := token(0); second == first {
		t.Error("two tokens are the same")
	}
	state.TokenKey = []byte("another")
	if status := call(t, copies[1], first, "application/json"); status != http.StatusUnauthorized {
		t.Errorf("a revoked token is answered %d", status)
	}
	for fault, want := range map[paymenttest.Fault]int{paymenttest.Down: 503, "": 200} {
		if err := state.Misbehave(paymenttest.Token, fault); err != nil {
			t.Fatal(err)
		}
		if status, _ := token(1); status != want {
			t.Errorf("with the fault %q, the token endpoint answers %d, want %d", fault, status, want)
		}
	}
}
