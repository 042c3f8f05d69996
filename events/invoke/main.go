// Command invoke invokes a deployed function with a sample event, through the
// Lambda API: in the local run, or in the cloud with the usual AWS variables.
//
// An event of a function URL is signed at that moment, so that a sample never
// grows too old. In a local run with client certificates it becomes an event of the
// HTTP API, with the simulated service's certificate. It prints the answer, and fails
// if the function did.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"uuid"

	"payhook.example/events/internal/signer"
	"payhook.example/infra/local/up"
	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/rfc9562"
	"payhook.example/shared/settings"
)

const usage = `Usage: make invoke FUNCTION=NAME EVENT=FILE [NAME=VALUE ...]

Invokes a deployed function with an event from a file and prints what it answers.

  make invoke FUNCTION=webhook EVENT=events/webhook/one-event.json
  make invoke FUNCTION=redrive EVENT=events/redrive/scheduled.json

in what make run or make up has started. Where nothing is up, or with CLOUD=1, in
the cloud, with AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_REGION as usual:

  make invoke CLOUD=1 STACK=Payhook FUNCTION=webhook EVENT=events/webhook/one-event.json KEY=key.pem KEY_ID=uuid

where KEY is a private key whose public half the payment service publishes. In the
cloud, a stack with authentication=mtls or both answers 401: the event holds no
client certificate.

Flags:
`

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "invoke:", err)
		os.Exit(1)
	}
}

type options struct {
	function, event, stack string
	cloud, fresh           bool
	corrupt                string
	age                    time.Duration
	signer                 signer.Flags
	local                  up.File
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	f := flag.NewFlagSet("invoke", flag.ContinueOnError)
	f.Usage = func() {
		fmt.Fprint(f.Output(), usage)
		f.PrintDefaults()
	}
	f.StringVar(&o.function, "function", "", "webhook, redrive or token; in the cloud also the name of a function")
	f.StringVar(&o.event, "event", "", "file with the event")
	f.BoolVar(&o.cloud, "cloud", false, "in the cloud, although a local run is up")
	f.StringVar(&o.stack, "stack", "Payhook", "in the cloud: the stack that holds the function")
	f.BoolVar(&o.fresh, "fresh", false, "put new ids for deliveryId and eventId, so that the events are no duplicates")
	f.StringVar(&o.corrupt, "corrupt", "", "what is wrong with the proof, as of make send")
	f.DurationVar(&o.age, "age", 0, "how old the timestamp is, as in 10m")
	o.signer.Register(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	if o.function == "" || o.event == "" {
		f.Usage()
		return errors.New("function and event are needed")
	}
	if o.corrupt != "" && !slices.Contains(paymenttest.Flaws(), paymenttest.Flaw(o.corrupt)) {
		return fmt.Errorf("no flaw %q; make send CORRUPT=list lists them", o.corrupt)
	}
	event, err := os.ReadFile(o.event)
	if err != nil {
		return err
	}
	client, name, err := o.find(ctx)
	if err != nil {
		return err
	}
	if event, err = o.sign(ctx, event); err != nil {
		return fmt.Errorf("%s: %w", o.event, err)
	}
	result, err := client.Invoke(ctx, &lambda.InvokeInput{FunctionName: &name, Payload: event})
	if err != nil {
		return err
	}
	return show(out, result)
}

// find returns the Lambda in which the function is, and the function's name.
func (o *options) find(ctx context.Context) (*lambda.Client, string, error) {
	local, nothingUp := up.Read(".")
	if o.cloud || nothingUp != nil {
		cfg, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			return nil, "", err
		}
		if cfg.Region == "" {
			return nil, "", errors.Join(nothingUp, errors.New("in the cloud, AWS_REGION or AWS_PROFILE must say where"))
		}
		name, err := o.output(ctx, cfg)
		return lambda.NewFromConfig(cfg), name, err
	}
	o.local = local
	name, ok := local.Functions[o.function]
	if !ok {
		return nil, "", fmt.Errorf("no function %q: %s are", o.function, strings.Join(slices.Sorted(maps.Keys(local.Functions)), ", "))
	}
	return lambda.New(lambda.Options{
		Region:       local.Region,
		BaseEndpoint: aws.String(local.Endpoint),
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
		HTTPClient:   &http.Client{Transport: &http.Transport{}},
	}), name, nil
}

// output returns the name of the function from the stack's outputs; what is none
// of them is a name itself.
func (o *options) output(ctx context.Context, cfg aws.Config) (string, error) {
	outputs := map[string]string{"webhook": names.WebhookFunctionOutput, "redrive": names.RedriveFunctionOutput, "token": names.TokenFunctionOutput}
	key, ok := outputs[o.function]
	if !ok {
		return o.function, nil
	}
	found, err := cloudformation.NewFromConfig(cfg).DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &o.stack})
	if err != nil {
		return "", err
	}
	for _, stack := range found.Stacks {
		for _, output := range stack.Outputs {
			if aws.ToString(output.OutputKey) == key {
				return aws.ToString(output.OutputValue), nil
			}
		}
	}
	return "", fmt.Errorf("stack %s has no output %s", o.stack, key)
}

// sign fills the proof into an event of a function URL (payload format 2.0), and
// leaves any other as it is.
func (o *options) sign(ctx context.Context, event []byte) ([]byte, error) {
	var request map[string]any
	if err := json.Unmarshal(event, &request); err != nil {
		return nil, err
	}
	if request["version"] != "2.0" {
		return event, nil
	}
	payload, encoded := []byte(text(request["body"])), request["isBase64Encoded"] == true
	if encoded {
		var err error
		if payload, err = base64.StdEncoding.DecodeString(string(payload)); err != nil {
			return nil, err
		}
	}
	if o.fresh {
		payload = freshIDs(payload)
	}
	webhook := paymenttest.Webhook{
		URL: "https://localhost/?" + text(request["rawQueryString"]), Payload: payload,
		Age: o.age, Flaw: paymenttest.Flaw(o.corrupt),
	}
	signed, err := o.proof(ctx, webhook)
	if err != nil {
		return nil, err
	}
	put(request, signed, encoded)
	if err := o.present(request); err != nil {
		return nil, err
	}
	return json.Marshal(request)
}

func (o *options) proof(ctx context.Context, w paymenttest.Webhook) (paymenttest.Signed, error) {
	if o.authentication() == settings.ByMTLS {
		if w.Flaw != "" || w.Age != 0 {
			return paymenttest.Signed{}, errors.New("with authentication=mtls, nothing is signed: CORRUPT and AGE have no effect")
		}
		return paymenttest.Signed{URL: w.URL, Header: http.Header{"Content-Type": {"application/json"}}, Body: w.Payload}, nil
	}
	if o.signer.Given() {
		sender, err := o.signer.Sender()
		if err != nil {
			return paymenttest.Signed{}, err
		}
		return sender.Sign(ctx, w)
	}
	if !o.local.Simulated {
		return paymenttest.Signed{}, errors.New("a key to sign with is needed: KEY=file.pem KEY_ID=uuid")
	}
	return paymenttest.Remote{URL: o.local.PaymentService}.Sign(ctx, w)
}

// put writes a signed webhook into an event, as Lambda does: header names in
// lower case, repeated ones joined by commas.
func put(request map[string]any, signed paymenttest.Signed, encoded bool) {
	headers, _ := request["headers"].(map[string]any)
	if headers == nil {
		headers = map[string]any{}
	}
	for name, values := range signed.Header {
		if _, given := headers[strings.ToLower(name)]; given && name == "Content-Type" {
			continue
		}
		headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	request["headers"] = headers
	if at, err := url.Parse(signed.URL); err == nil && at.RawQuery != "" {
		request["rawQueryString"] = at.RawQuery
		query := map[string]any{}
		for name, values := range at.Query() {
			query[name] = strings.Join(values, ",")
		}
		request["queryStringParameters"] = query
	}
	request["body"] = string(signed.Body)
	if encoded {
		request["body"] = base64.StdEncoding.EncodeToString(signed.Body)
	}
}

func text(value any) string {
	s, _ := value.(string)
	return s
}

var idField = regexp.MustCompile(`"(?:deliveryId|eventId)"\s*:\s*"[0-9A-Fa-f-]{36}"`)

// freshIDs replaces every UUID that is a deliveryId or an eventId.
func freshIDs(payload []byte) []byte {
	return idField.ReplaceAllFunc(payload, func(field []byte) []byte {
		return append(field[:len(field)-rfc9562.Length-1:len(field)-rfc9562.Length-1], uuid.New().String()+`"`...)
	})
}

// show prints what the function answered. Its error says that the function
// failed.
func show(out io.Writer, result *lambda.InvokeOutput) error {
	if result.FunctionError != nil {
		return fmt.Errorf("the function failed: %s: %s", *result.FunctionError, result.Payload)
	}
	var answer struct {
		StatusCode      int
		Headers         map[string]string
		Body            string
		IsBase64Encoded bool
	}
	if json.Unmarshal(result.Payload, &answer) != nil || answer.StatusCode == 0 {
		fmt.Fprintf(out, "%s\n", result.Payload)
		return nil
	}
	body := answer.Body
	if answer.IsBase64Encoded {
		if decoded, err := base64.StdEncoding.DecodeString(body); err == nil {
			body = string(decoded)
		}
	}
	fmt.Fprintln(out, answer.StatusCode, http.StatusText(answer.StatusCode))
	for _, name := range slices.Sorted(maps.Keys(answer.Headers)) {
		fmt.Fprintf(out, "%s: %s\n", name, answer.Headers[name])
	}
	fmt.Fprintf(out, "\n%s\n", body)
	return nil
}
