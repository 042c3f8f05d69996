package send

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/signature"
)

// describeStack answers DescribeStacks with the outputs of a stack.
func describeStack(w http.ResponseWriter, webhookURL string) {
	var outputs strings.Builder
	for _, name := range []string{names.EventBusNameOutput, names.LedgerTableOutput, names.KeysTableOutput,
		names.ClaimBucketOutput, names.ParkingBucketOutput, names.TokenSecretOutput, names.CredentialsSecretOutput,
		names.WebhookFunctionOutput, names.RedriveFunctionOutput, names.TokenFunctionOutput,
		names.WebhookLogsOutput, names.RedriveLogsOutput, names.TokenLogsOutput} {
		fmt.Fprintf(&outputs, `<member><OutputKey>%s</OutputKey><OutputValue>%s:live</OutputValue></member>`, name,
			strings.ToLower(strings.TrimSuffix(name, "Function")))
	}
	fmt.Fprintf(w, `<DescribeStacksResponse><DescribeStacksResult><Stacks><member>
		<StackId>arn:aws:cloudformation:eu-central-1:123456789012:stack/Payhook/1</StackId><Outputs>%s<member>
		<OutputKey>%s</OutputKey><OutputValue>%s</OutputValue></member></Outputs></member></Stacks>
		</DescribeStacksResult></DescribeStacksResponse>`, &outputs, names.WebhookURLOutput, webhookURL)
}

// Nothing is invoked in AWS unless the caller asked for it, and saw where.
func TestAWSIsInvokedOnlyWithTheFlag(t *testing.T) {
	var out, stderr bytes.Buffer
	var answer string
	calls, failed := 0, false
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls++; r.URL.Path == "/" {
			describeStack(w, "https://hook.example/")
			return
		}
		if !strings.Contains(stderr.String(), "stack Payhook (account 123456789012, eu-central-1") {
			t.Errorf("it is invoked before this is written: %q", &stderr)
		}
		if failed {
			w.Header().Set("X-Amz-Function-Error", "Unhandled")
		}
		fmt.Fprint(w, answer)
	}))
	defer service.Close()
	file := writeFile(t, []byte("{}"))
	t.Chdir(t.TempDir()) // where nothing is up
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": service.URL, "AWS_REGION": "eu-central-1",
		"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_PROFILE": "", "NO_PROXY": "127.0.0.1"} {
		t.Setenv(name, value)
	}
	for _, test := range []struct {
		flag, answer string
		failed       bool
		status       int
		calls        int
		out          string
	}{
		{"", "", false, cli.StatusUsage, 0, ""},
		{"--aws", `{"found":0}`, false, 0, 2, `{"found":0}`},
		{"--aws", `{"statusCode":409,"headers":{"Content-Type":"application/problem+json"},"body":"{}"}`, false, 0, 2,
			"409 Conflict\nContent-Type: "},
		{"--aws", `{"errorMessage":"why"}`, true, cli.StatusFailed, 2, ""},
	} {
		out.Reset()
		stderr.Reset()
		calls, answer, failed = 0, test.answer, test.failed
		p := &cli.Program{Out: &out, Err: &stderr}
		root := p.Root("")
		root.AddCommand(InvokeCommand(p, &deployment.Target{}))
		status := p.Run(t.Context(), root, append([]string{"invoke", "token", file}, strings.Fields(test.flag)...))
		if status != test.status || calls != test.calls || !strings.HasPrefix(out.String(), test.out) {
			t.Errorf("%+v: status %d, %d calls, %s\n%s", test, status, calls, &out, &stderr)
		}
	}
}

// writeFile writes a file in a folder of its own, and returns its path.
func writeFile(t *testing.T, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// What is not the proof stays as it is in the file.
func TestEventIsSignedForTheDeployment(t *testing.T) {
	inQuery := paymenttest.DefaultScheme()
	inQuery.Timestamp, _ = signature.ParseLocation("query:ts")
	t.Chdir(t.TempDir())
	for _, test := range []struct {
		scheme  signature.Scheme
		conf    string
		encoded bool
	}{{paymenttest.DefaultScheme(), "keysAuth=none", false}, {inQuery, "timestampLocation=query:ts", true}} {
		service := paymenttest.NewServer(paymenttest.Options{Control: true})
		t.Cleanup(service.Close)
		isUp(t, deployment.Deployment{Simulated: true, PaymentService: service.URL}, test.conf)
		d, err := deployment.Connect(t.Context(), deployment.Target{Local: true})
		if err != nil {
			t.Fatal(err)
		}
		payload := paymenttest.Delivery(paymenttest.Event())
		body := string(payload)
		if test.encoded {
			body = base64.StdEncoding.EncodeToString(payload)
		}
		before, ok := parseSample(fmt.Appendf(nil, `{"version":"2.0","rawQueryString":"tenant=7","body":%q,
			"isBase64Encoded":%t,"headers":{"content-type":"text/json","x-other":"stays"},
			"requestContext":{"domainName":"id.on.aws","http":{"method":"PUT"}}}`, body, test.encoded))
		if !ok || before.webhook(paymenttest.Webhook{}).Method != "PUT" {
			t.Fatal("the sample is not read")
		}
		text, err := signed(t.Context(), d, before)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := parseSample(text)
		proof, err := test.scheme.Extract(got.Headers, got.RawQueryString)
		if err == nil {
			err = signature.Verify(&service.Key().Private.PublicKey, got.payload, proof)
		}
		if err != nil || !ok || !bytes.Equal(got.payload, payload) {
			t.Errorf("%+v: %v", test, err)
		}
		if got.Headers["content-type"] != "text/json" || got.Headers["x-other"] != "stays" ||
			!strings.Contains(got.RawQueryString, "tenant=7") || got.RequestContext.DomainName != "id.on.aws" ||
			got.IsBase64Encoded != test.encoded {
			t.Errorf("what was there is not there any more: %s", text)
		}
	}
	for _, text := range []string{"{}", `{"refresh": true}`, string(paymenttest.Delivery(paymenttest.Event()))} {
		if _, ok := parseSample([]byte(text)); ok {
			t.Errorf("%s is taken for a webhook", text)
		}
	}
}
