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
	broken := false
	s3 := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/bucket/state.json" {
			t.Errorf("S3 was asked for %s %s", r.Method, r.URL.Path)
		}
		if broken {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		json.NewEncoder(w).Encode(state)
	}))
	t.Cleanup(s3.Close)
	environment := map[string]string{"STATE_BUCKET": "bucket", "AWS_REGION": "us-east-1",
		"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_ENDPOINT_URL": s3.URL}
	f, err := newFunction(func(name string) string { return environment[name] })
	if err != nil {
		t.Fatal(err)
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
	call(get, http.StatusNotFound, "")
	state.Publish(key)
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
	broken = true
	call(get, http.StatusServiceUnavailable, "")
}
