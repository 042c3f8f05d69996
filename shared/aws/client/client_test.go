package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"payhook.example/shared/aws/client"
	"payhook.example/shared/settings"
)

// environment returns that of a function whose calls are answered at url.
func environment(url string) func(name string) string {
	env := map[string]string{"AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "AKID",
		"AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "session", "AWS_ENDPOINT_URL": url}
	return func(name string) string { return env[name] }
}

func config(t *testing.T, url string) aws.Config {
	t.Helper()
	cfg, err := client.Config(environment(url), client.NewConnections(1))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestACallIsSignedWithTheCredentialsOfTheFunction(t *testing.T) {
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_, _ = w.Write([]byte(`{}`))
	}))
	defer server.Close()
	db := dynamodb.NewFromConfig(config(t, server.URL))
	if _, err := db.ListTables(t.Context(), &dynamodb.ListTablesInput{}); err != nil {
		t.Fatal(err)
	}
	if a := got.Get("Authorization"); !strings.Contains(a, "Credential=AKID/") ||
		!strings.Contains(a, "/eu-central-1/dynamodb/") {
		t.Errorf("Authorization is %q", a)
	}
	if token := got.Get("X-Amz-Security-Token"); token != "session" {
		t.Errorf("the session token is %q", token)
	}
}

// sdkBody is the body of a request as that of the SDK: it has a WriteTo method.
type sdkBody struct {
	io.Reader
	writes atomic.Int64
	closed chan struct{}
}

func (b *sdkBody) WriteTo(io.Writer) (int64, error) {
	b.writes.Add(1)
	return 0, errors.New("the body is closed")
}

func (b *sdkBody) Close() error {
	close(b.closed)
	return nil
}

// With its WriteTo method, the end of a body is noticed too late: a fast answer is cut off, or its connection lost.
func TestABodyIsSentWithoutItsWriteToMethod(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	defer server.Close()
	body := &sdkBody{Reader: strings.NewReader("abc"), closed: make(chan struct{})}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = 3
	response, err := client.NewConnections(1).Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	<-body.closed
	if string(got) != "abc" || err != nil || body.writes.Load() != 0 {
		t.Errorf("%q, %v; WriteTo was called %d times", got, err, body.writes.Load())
	}
}

func TestAnErrorHasNoMessageOfAWS(t *testing.T) {
	const arn = "User: arn:aws:sts::123456789012:role is not authorized"
	of := func(err error) error {
		return &smithy.OperationError{ServiceID: "DynamoDB", OperationName: "PutItem", Err: err}
	}
	denied := of(&smithy.GenericAPIError{Code: "AccessDeniedException", Message: arn})
	for name, test := range map[string]struct {
		err     error
		reasons []string
		want    string
	}{
		"answered":    {denied, nil, "AccessDeniedException"},
		"reasons":     {denied, []string{"A", "B"}, "AccessDeniedException (A, B)"},
		"out of time": {of(fmt.Errorf("%s: %w", arn, context.DeadlineExceeded)), nil, "out of time"},
		"canceled":    {of(fmt.Errorf("%s: %w", arn, context.Canceled)), nil, "canceled"},
		"not sent": {of(errors.New(arn)), nil,
			"no request was sent: AWS credentials or the region are missing"},
		"no server":          {of(&smithyhttp.RequestSendError{Err: errors.New(arn)}), nil, "no answer"},
		"half an answer":     {of(&smithyhttp.ResponseError{Err: errors.New(arn)}), nil, "no answer"},
		"outside of the SDK": {errors.New(arn), nil, "no answer"},
	} {
		got := client.ErrorOf("DynamoDB PutItem", test.err, test.reasons...)
		if got.Error() != "DynamoDB PutItem: "+test.want || !errors.Is(got, test.err) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	if err := client.ErrorOf("DynamoDB PutItem", nil); err != nil {
		t.Errorf("no error: %v", err)
	}
}

// The functions do not link package config of the SDK, which reads AWS_USE_FIPS_ENDPOINT. The SDK rejects FIPS
// endpoints together with AWS_ENDPOINT_URL.
func TestFIPSEndpointsAreUsedUnlessTheyAreReplaced(t *testing.T) {
	for _, c := range []struct{ fips, url, region, want string }{
		{"true", "", "us-east-1", "dynamodb-fips.us-east-1.amazonaws.com s3-fips.us-east-1.amazonaws.com " +
			"secretsmanager-fips.us-east-1.amazonaws.com ssm-fips.us-east-1.amazonaws.com " +
			"events-fips.us-east-1.amazonaws.com"},
		{"true", "", "us-gov-west-1", "dynamodb.us-gov-west-1.amazonaws.com s3-fips.us-gov-west-1.amazonaws.com " +
			"secretsmanager-fips.us-gov-west-1.amazonaws.com ssm.us-gov-west-1.amazonaws.com " +
			"events.us-gov-west-1.amazonaws.com"},
		{"false", "", "us-east-1", "dynamodb.us-east-1.amazonaws.com s3.us-east-1.amazonaws.com " +
			"secretsmanager.us-east-1.amazonaws.com ssm.us-east-1.amazonaws.com events.us-east-1.amazonaws.com"},
		{"true", "http://aws.example", "eu-central-1", strings.TrimSpace(strings.Repeat("aws.example ", 5))},
	} {
		env := map[string]string{settings.ByKey("fips").Env(): c.fips, "AWS_ENDPOINT_URL": c.url,
			"AWS_REGION": c.region, "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
		cfg, err := client.Config(func(name string) string { return env[name] }, client.NewConnections(1))
		if err != nil {
			t.Fatal(err)
		}
		var hosts []string
		cfg.HTTPClient = &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			hosts = append(hosts, r.URL.Host)
			return answer(r, http.StatusBadRequest, "{}")
		})}
		_, _ = dynamodb.NewFromConfig(cfg).ListTables(t.Context(), &dynamodb.ListTablesInput{})
		_, _ = s3.NewFromConfig(cfg).ListBuckets(t.Context(), &s3.ListBucketsInput{})
		_, _ = secretsmanager.NewFromConfig(cfg).ListSecrets(t.Context(), &secretsmanager.ListSecretsInput{})
		_, _ = ssm.NewFromConfig(cfg).DescribeParameters(t.Context(), &ssm.DescribeParametersInput{})
		_, _ = eventbridge.NewFromConfig(cfg).ListRules(t.Context(), &eventbridge.ListRulesInput{})
		if got := strings.Join(hosts, " "); got != c.want {
			t.Errorf("fips %s, endpoint %q: %s, want %s", c.fips, c.url, got, c.want)
		}
	}
}
