package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"payhook.example/infra/acceptance/service/names"
	"payhook.example/shared/paymenttest"
)

// deploy returns the function, whose state is that object in S3; none if it is empty.
func deploy(t *testing.T, state *string) *function {
	t.Helper()
	s3 := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/bucket/"+names.StateObject {
			t.Errorf("S3 was asked for %s %s", r.Method, r.URL.Path)
		}
		if *state == "" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Write([]byte(*state))
	}))
	t.Cleanup(s3.Close)
	environment := map[string]string{names.StateBucketEnv: "bucket", "AWS_REGION": "us-east-1",
		"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_ENDPOINT_URL": s3.URL}
	f, err := newFunction(func(name string) string { return environment[name] })
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func get(path string) events.LambdaFunctionURLRequest {
	in := events.LambdaFunctionURLRequest{RawPath: path, Headers: map[string]string{}}
	in.RequestContext.HTTP.Method = http.MethodGet
	return in
}

func encode(t *testing.T, state paymenttest.State) string {
	t.Helper()
	text, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestFunctionServesItsState(t *testing.T) {
	state, key := paymenttest.NewState(paymenttest.Options{}), paymenttest.NewKey(2048)
	text := encode(t, state)
	f := deploy(t, &text)
	path := "/v1/keys/" + key.ID
	if out, err := f.handle(t.Context(), get(path)); err != nil || out.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown key is answered %d, %v", out.StatusCode, err)
	}
	state.Publish(key)
	text = encode(t, state)
	out, err := f.handle(t.Context(), get(path))
	if err != nil || out.StatusCode != http.StatusOK || out.Body != string(key.JWK()) ||
		out.Headers["Content-Type"] != "application/json" {
		t.Errorf("a published key is answered %+v, %v", out, err)
	}

	post := get("/as/token.oauth2")
	post.RequestContext.HTTP.Method, post.RawQueryString = http.MethodPost, "access_token_manager_id=manager-1"
	post.Body, post.IsBase64Encoded = "Z3JhbnRfdHlwZT1jbGllbnRfY3JlZGVudGlhbHM=", true
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.SetBasicAuth(state.ClientID, state.ClientSecret)
	// A function URL passes on names of headers in lower case.
	post.Headers["authorization"] = r.Header.Get("Authorization")
	post.Headers["content-type"] = "application/x-www-form-urlencoded"
	if out, err := f.handle(t.Context(), post); err != nil || !strings.Contains(out.Body, `"token_type":"Bearer"`) {
		t.Errorf("a token request is answered %+v, %v", out, err)
	}
	text = ""
	if out, err := f.handle(t.Context(), get(path)); err != nil || out.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without its state, the function answers %d, %v", out.StatusCode, err)
	}
}

func TestFunctionNeedsItsBucket(t *testing.T) {
	if _, err := newFunction(func(string) string { return "" }); err == nil ||
		!strings.Contains(err.Error(), names.StateBucketEnv) {
		t.Errorf("the error is %v", err)
	}
}
