package deployment

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/smithy-go"
)

func TestRolePolicyIsSetWithSignedRequests(t *testing.T) {
	const document = `{"Statement":[]}`
	for name, test := range map[string]struct {
		region, host, signedFor string
	}{
		"aws":        {"eu-central-1", "iam.amazonaws.com", "us-east-1/iam"},
		"aws-cn":     {"cn-northwest-1", "iam.cn-north-1.amazonaws.com.cn", "cn-north-1/iam"},
		"aws-us-gov": {"us-gov-east-1", "iam.us-gov.amazonaws.com", "us-gov-west-1/iam"},
	} {
		t.Run(name, func(t *testing.T) {
			var form string
			cfg := aws.Config{Region: test.region,
				Credentials: credentials.NewStaticCredentialsProvider("id", "secret", "session"),
				HTTPClient: doer(func(r *http.Request) (*http.Response, error) {
					if r.URL.Host != test.host ||
						!strings.Contains(r.Header.Get("Authorization"), test.signedFor+"/aws4_request") ||
						r.Header.Get("X-Amz-Security-Token") != "session" {
						t.Errorf("%s, %q", r.URL.Host, r.Header)
					}
					r.ParseForm()
					form = r.Form.Get("Action") + " " + r.Form.Get("RoleName") + " " + r.Form.Get("PolicyName") + " " +
						r.Form.Get("PolicyDocument")
					w := httptest.NewRecorder()
					return w.Result(), nil
				})}
			err := SetRolePolicy(t.Context(), cfg, "r", "p", document)
			if err != nil || form != "PutRolePolicy r p "+document {
				t.Errorf("%s, %v", form, err)
			}
			if err := SetRolePolicy(t.Context(), cfg, "r", "p", ""); err != nil || form != "DeleteRolePolicy r p " {
				t.Errorf("%s, %v", form, err)
			}
			if found, err := HasRolePolicy(t.Context(), cfg, "r", "p"); !found || err != nil ||
				form != "GetRolePolicy r p " {
				t.Errorf("%s, %t, %v", form, found, err)
			}
		})
	}
}

type doer func(*http.Request) (*http.Response, error)

func (d doer) Do(r *http.Request) (*http.Response, error) { return d(r) }

func TestCallRetriesAsTheSDKDoes(t *testing.T) {
	for name, test := range map[string]struct {
		status   int
		code     string // of the error
		document string
		requests int
		failed   string
	}{
		"throttled":         {http.StatusBadRequest, "Throttling", "{}", 3, "Throttling"},
		"broken":            {http.StatusInternalServerError, "ServiceFailure", "{}", 3, "ServiceFailure"},
		"denied":            {http.StatusForbidden, "AccessDenied", "{}", 1, "AccessDenied"},
		"nothing to add to": {http.StatusNotFound, "NoSuchEntity", "{}", 1, "NoSuchEntity"},
		"nothing to remove": {http.StatusNotFound, "NoSuchEntity", "", 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests++
				w.WriteHeader(test.status)
				fmt.Fprintf(w, "<ErrorResponse><Error><Code>%s</Code><Message>m</Message></Error></ErrorResponse>",
					test.code)
			}))
			defer server.Close()
			err := SetRolePolicy(t.Context(), EmulatorConfig(server.URL, "us-east-1"), "r", "p", test.document)
			code := ""
			if api, ok := errors.AsType[smithy.APIError](err); ok {
				code = api.ErrorCode()
			}
			if code != test.failed || (err == nil) != (test.failed == "") || requests != test.requests {
				t.Errorf("%v after %d requests", err, requests)
			}
		})
	}
}
