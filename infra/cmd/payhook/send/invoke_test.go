package send

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/names"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

// request is an event of a function URL, as the webhook function reads it.
type request struct {
	RawQueryString        string
	Headers               map[string]string
	QueryStringParameters map[string]string
	Body                  string
	IsBase64Encoded       bool
}

func simulated(t *testing.T, opts paymenttest.Options) (*paymenttest.Server, deployment.Deployment) {
	t.Helper()
	opts.Control = true
	service := paymenttest.NewServer(opts)
	t.Cleanup(service.Close)
	return service, deployment.Deployment{PaymentService: service.URL, Simulated: true}
}

func event(t *testing.T, payload []byte, encoded bool) []byte {
	t.Helper()
	body := string(payload)
	if encoded {
		body = base64.StdEncoding.EncodeToString(payload)
	}
	text, err := json.Marshal(map[string]any{
		"version": "2.0", "rawQueryString": "tenant=7", "body": body, "isBase64Encoded": encoded,
		"headers": map[string]string{"content-type": "text/json", "x-other": "stays"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

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
	var calls []string
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls = append(calls, r.URL.Path); r.URL.Path == "/" {
			describeStack(w, "https://hook.example/")
			return
		}
		if !strings.Contains(stderr.String(), "stack Payhook (account 123456789012, eu-central-1") {
			t.Errorf("it is invoked before this is written: %q", &stderr)
		}
		fmt.Fprint(w, `{"outcome":"fresh"}`)
	}))
	defer service.Close()
	file := filepath.Join(t.TempDir(), "event.json")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": service.URL, "AWS_REGION": "eu-central-1",
		"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_PROFILE": "", "NO_PROXY": "127.0.0.1"} {
		t.Setenv(name, value)
	}
	for _, test := range []struct {
		args   []string
		status int
		calls  int
	}{{nil, cli.StatusUsage, 0}, {[]string{"--aws"}, 0, 2}} {
		p := &cli.Program{Out: &out, Err: &stderr}
		cmd := InvokeCommand(p, &deployment.Target{})
		if status := p.Run(t.Context(), cmd, append(test.args, "token", file)); status != test.status ||
			len(calls) != test.calls {
			t.Errorf("%v: status %d, calls %q\n%s", test.args, status, calls, &stderr)
		}
	}
}

func TestFunctionURLEventIsSigned(t *testing.T) {
	inQuery := paymenttest.DefaultScheme()
	inQuery.Timestamp, _ = signature.ParseCarrier("query:ts")
	for name, scheme := range map[string]signature.Scheme{"headers": paymenttest.DefaultScheme(), "query": inQuery} {
		for _, encoded := range []bool{false, true} {
			service, local := simulated(t, paymenttest.Options{Scheme: scheme})
			payload := paymenttest.Delivery(paymenttest.Event())
			o := invocation{at: local}
			signed, err := o.signed(t.Context(), event(t, payload, encoded))
			if err != nil {
				t.Fatal(err)
			}
			var r request
			if err := json.Unmarshal(signed, &r); err != nil {
				t.Fatal(err)
			}
			proof, err := scheme.Extract(r.Headers, r.RawQueryString)
			if err != nil {
				t.Fatalf("%s: %v in %s", name, err, signed)
			}
			got := []byte(r.Body)
			if encoded {
				if got, err = base64.StdEncoding.DecodeString(r.Body); err != nil {
					t.Fatal(err)
				}
			}
			if err := signature.Verify(&service.Key().Private.PublicKey, got, proof); err != nil ||
				!bytes.Equal(got, payload) {
				t.Errorf("%s, base64 %t: %v", name, encoded, err)
			}
			if r.Headers["content-type"] != "text/json" || r.Headers["x-other"] != "stays" ||
				r.QueryStringParameters["tenant"] != "7" || r.IsBase64Encoded != encoded {
				t.Errorf("%s, base64 %t: what was there is not there any more: %s", name, encoded, signed)
			}
		}
	}
}

func TestOtherEventIsNotChanged(t *testing.T) {
	o := invocation{}
	for _, text := range []string{"{}", `{"refresh": true}`} {
		if got, err := o.signed(t.Context(), []byte(text)); err != nil || string(got) != text {
			t.Errorf("%s became %s, %v", text, got, err)
		}
	}
}

func TestEventHasTheCertificateOfTheLocalRun(t *testing.T) {
	identity := paymenttest.NewIdentity()
	file := filepath.Join(t.TempDir(), "client.pem")
	if err := os.WriteFile(file, paymenttest.EncodeCertificate(identity.Certificate().Leaf), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, authentication := range []string{"", settings.BySignature, settings.ByMTLS, settings.ByBoth} {
		service, local := simulated(t, paymenttest.Options{})
		local.ClientCert, local.APIID = file, "a1b2c3d4e5"
		local.Settings = map[string]string{settings.DomainName.Key: "hook.bank.example"}
		if authentication != "" {
			local.Settings[settings.Authentication.Key] = authentication
		}
		o := invocation{at: local}
		text, err := o.signed(t.Context(), event(t, paymenttest.Delivery(paymenttest.Event()), false))
		if err != nil {
			t.Fatal(err)
		}
		var got events.APIGatewayV2HTTPRequest
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		certificate, from := got.RequestContext.Authentication.ClientCert.ClientCertPem,
			got.RequestContext.DomainName+" "+got.RequestContext.APIID
		wantCertificate, wantFrom := "", " "
		if authentication == settings.ByMTLS || authentication == settings.ByBoth {
			wantCertificate, wantFrom = string(paymenttest.EncodeCertificate(identity.Certificate().Leaf)),
				"hook.bank.example a1b2c3d4e5"
		}
		if certificate != wantCertificate || from != wantFrom {
			t.Errorf("authentication=%s: from %s with the certificate %q", authentication, from, certificate)
		}
		proof, err := paymenttest.DefaultScheme().Extract(got.Headers, got.RawQueryString)
		signed := err == nil && signature.Verify(&service.Key().Private.PublicKey, []byte(got.Body), proof) == nil
		if signed != (authentication != settings.ByMTLS) {
			t.Errorf("authentication=%s: signed: %t", authentication, signed)
		}
	}

	service, local := simulated(t, paymenttest.Options{})
	local.Settings = map[string]string{settings.Authentication.Key: settings.ByBoth}
	o := invocation{at: local}
	_, err := o.signed(t.Context(), event(t, paymenttest.Delivery(paymenttest.Event()), false))
	if err == nil || !strings.Contains(err.Error(), "client certificate") {
		t.Errorf("with the truststore of somebody else at %s: %v", service.URL, err)
	}
}

func TestFreshIDsChangeNothingElse(t *testing.T) {
	before := paymenttest.Delivery(paymenttest.Events(2)...)
	after := freshIDs(before)
	old, errOld := payment.DecodeDelivery(before)
	fresh, errFresh := payment.DecodeDelivery(after)
	if errOld != nil || errFresh != nil {
		t.Fatal(errOld, errFresh)
	}
	if old.DeliveryID == fresh.DeliveryID || old.Events[0].EventID == fresh.Events[0].EventID ||
		fresh.Events[0].EventID == fresh.Events[1].EventID {
		t.Errorf("the ids are not new: %s", after)
	}
	restored := strings.NewReplacer(fresh.DeliveryID, old.DeliveryID, fresh.Events[0].EventID, old.Events[0].EventID,
		fresh.Events[1].EventID, old.Events[1].EventID).Replace(string(after))
	if restored != string(before) {
		t.Errorf("more than the ids changed:\n%s\n%s", before, after)
	}
}

func TestAnswerOfTheFunctionIsShown(t *testing.T) {
	failed := "Unhandled"
	for name, test := range map[string]struct {
		result lambda.InvokeOutput
		want   string
		fails  bool
	}{
		"HTTP": {lambda.InvokeOutput{Payload: []byte(`{"statusCode":409,` +
			`"headers":{"Content-Type":"application/problem+json"},"body":"{}"}`)}, "409 Conflict", false},
		"base64": {lambda.InvokeOutput{Payload: []byte(`{"statusCode":200,"body":"aGVsbG8=","isBase64Encoded":true}`)},
			"hello", false},
		"other":  {lambda.InvokeOutput{Payload: []byte(`{"found":0}`)}, `{"found":0}`, false},
		"failed": {lambda.InvokeOutput{FunctionError: &failed, Payload: []byte(`{"errorMessage":"why"}`)}, "", true},
	} {
		var out bytes.Buffer
		o := invocation{p: &cli.Program{Out: &out}}
		err := o.show(&test.result)
		if (err != nil) != test.fails || !strings.Contains(out.String(), test.want) {
			t.Errorf("%s: %q, %v", name, &out, err)
		}
	}
}
