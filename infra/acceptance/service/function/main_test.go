package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"payhook.example/shared/paymenttest"
)

func TestFunctionServesItsState(t *testing.T) {
	state, key := paymenttest.NewState(paymenttest.Options{}), paymenttest.NewKey(2048)
	var f *function
	restart := func() {
		t.Helper()
		text, err := json.Marshal(state)
		if err != nil || strings.Contains(string(text), key.Private.D.String()) {
			t.Fatalf("%v, or the private key is in the state", err)
		}
		if f, err = newFunction(string(text)); err != nil {
			t.Fatal(err)
		}
	}
	call := func(in events.LambdaFunctionURLRequest, wantStatus int, wantBody string) {
		t.Helper()
		if out, err := f.handle(t.Context(), in); err != nil || out.StatusCode != wantStatus ||
			!strings.Contains(out.Body, wantBody) {
			t.Errorf("answered %+v, %v; want %d", out, err, wantStatus)
		}
	}
	get := events.LambdaFunctionURLRequest{RawPath: "/v1/keys/" + key.ID, Headers: map[string]string{}}
	get.RequestContext.HTTP.Method = http.MethodGet
	restart()
	call(get, http.StatusNotFound, "")
	state.Publish(key)
	restart()
	call(get, http.StatusOK, string(key.JWK()))

	post := events.LambdaFunctionURLRequest{RawPath: "/as/token.oauth2",
		RawQueryString: "access_token_manager_id=manager-1",
		Body:           "Z3JhbnRfdHlwZT1jbGllbnRfY3JlZGVudGlhbHM=", IsBase64Encoded: true}
	post.RequestContext.HTTP.Method = http.MethodPost
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.SetBasicAuth(state.ClientID, state.ClientSecret)
	// A function URL passes on names of headers in lower case.
	post.Headers = map[string]string{"authorization": r.Header.Get("Authorization"),
		"content-type": "application/x-www-form-urlencoded"}
	call(post, http.StatusOK, `"token_type":"Bearer"`)
	if _, err := newFunction("{"); err == nil {
		t.Error("a broken state is served")
	}
}
