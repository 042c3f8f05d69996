package send

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/infra/local/endpoint"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

const invokeLong = `Invokes the function webhook, redrive or token with an event from a file, and prints
what it answers. The events in events/ are samples. Without --local, --aws is required.
Then account, region and stack are written to standard error before the call.

An event of a function URL is signed now: with --local by the simulated payment
service, otherwise with --key and --key-id, where the payment service publishes the
public key. In AWS, a stack with authentication=mtls or both answers 401, because the
event has no client certificate.

Status 1: the function failed. An HTTP status such as 401 is an answer, not a failure.

With --json, the answer as the function returned it.`

const invokeExample = `  payhook invoke webhook events/webhook/one-event.json --local
  payhook invoke redrive events/redrive/scheduled.json --local
  payhook invoke token events/token/refresh.json --aws --stack Payhook
  payhook invoke webhook events/webhook/one-event.json --aws --key key.pem --key-id UUID`

type invocation struct {
	p     *cli.Program
	fresh bool
	aws   bool
	sign  signing
	at    deployment.Deployment // of the function
}

// InvokeCommand returns the command invoke, which invokes a deployed function with a sample
// event. It signs an event of a function URL, so that its timestamp is never too old.
func InvokeCommand(p *cli.Program, t *deployment.Target) *cobra.Command {
	o := &invocation{p: p}
	functions := []string{"webhook", "redrive", "token"}
	cmd := &cobra.Command{
		Use: "invoke FUNCTION FILE", Short: "Invoke a function with a sample " +
			"event", Long: invokeLong, Example: invokeExample,
		Args: cli.Args("FUNCTION", "FILE"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion,
			cobra.ShellCompDirective) {
			if len(args) == 0 {
				return functions, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.OneOf(args[0], functions...); err != nil {
				return cli.Usage("function %q: %w", args[0], err)
			}
			if o.aws == t.Local {
				return cli.Usage("either --local, for the local run that make up starts, or --aws, for a stack in AWS")
			}
			return o.run(cmd.Context(), *t, args[0], args[1])
		},
	}
	cmd.Flags().BoolVar(&o.aws, "aws", false, "invoke the function of a stack in AWS")
	cmd.Flags().BoolVar(&o.fresh, "fresh", false,
		"replace deliveryId and eventId by new ones, so that the events are not duplicates")
	o.sign.register(cmd)
	return cmd
}

func (o *invocation) run(ctx context.Context, t deployment.Target, function, file string) error {
	event, err := os.ReadFile(file)
	if err != nil {
		return cli.Usage("%w", err)
	}
	d, err := deployment.Connect(ctx, t)
	if err != nil {
		return cli.Unreachable(err)
	}
	name := d.Functions[function]
	o.at = *d
	if !d.Local {
		fmt.Fprintf(o.p.Err, "invoking %s of %s\n", function, d.Name)
	}
	if event, err = o.signed(ctx, event); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	client := lambda.NewFromConfig(d.AWS, func(l *lambda.Options) {
		l.Retryer = aws.NopRetryer{} // the function may have run although there was no answer
	})
	result, err := client.Invoke(ctx, &lambda.InvokeInput{FunctionName: &name, Payload: event})
	if err != nil {
		return cli.Unreachable(err)
	}
	return o.show(result)
}

// signed fills the proof into an event of a function URL (payload format 2.0), and
// leaves any other as it is.
func (o *invocation) signed(ctx context.Context, event []byte) ([]byte, error) {
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
	unsigned := paymenttest.Webhook{
		URL: "https://localhost/?" + text(request["rawQueryString"]), Payload: payload,
		Age: o.sign.age, Flaw: paymenttest.Flaw(o.sign.corrupt), Carriers: o.sign.carriers,
	}
	signed, err := o.proof(ctx, unsigned)
	if err != nil {
		return nil, err
	}
	put(request, signed, encoded)
	if err := o.present(request); err != nil {
		return nil, err
	}
	return json.Marshal(request)
}

// proof signs a webhook, unless webhooks need only a client certificate.
func (o *invocation) proof(ctx context.Context, w paymenttest.Webhook) (paymenttest.Signed, error) {
	onlyCertificate := o.at.Setting(settings.Authentication) == settings.ByMTLS
	if onlyCertificate && (w.Flaw != "" || w.Age != 0) {
		return paymenttest.Signed{}, cli.Usage("with authentication=mtls, nothing is signed: --corrupt and --age " +
			"have no effect")
	}
	from, err := o.sign.service(&o.at)
	if err != nil {
		return paymenttest.Signed{}, err
	}
	if onlyCertificate {
		return paymenttest.Signed{URL: w.URL, Header: http.Header{"Content-Type": {"application/json"}},
			Body: w.Payload}, nil
	}
	return from.Sign(ctx, w)
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
		return append(
			field[:len(field)-payment.UUIDLength-1:len(field)-payment.UUIDLength-1],
			uuid.New().String()+`"`...)
	})
}

// show prints what the function answered. Its error says that the function
// failed.
func (o *invocation) show(result *lambda.InvokeOutput) error {
	out := o.p.Out
	if result.FunctionError != nil {
		return fmt.Errorf("the function failed: %s: %s", *result.FunctionError, result.Payload)
	}
	var answer struct {
		StatusCode      int
		Headers         map[string]string
		Body            string
		IsBase64Encoded bool
	}
	if o.p.JSON || json.Unmarshal(result.Payload, &answer) != nil || answer.StatusCode == 0 {
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

// present makes an event one of the HTTP API of the local run, with the client
// certificate of the simulated service, if webhooks need one there. Otherwise it
// leaves the event as it is.
func (o *invocation) present(request map[string]any) error {
	if o.at.Setting(settings.Authentication) == settings.BySignature {
		return nil
	}
	if o.at.ClientCert == "" {
		return errors.New("the event needs a client certificate of a CA in the truststore, and the simulated service " +
			"has none: send the webhook to the URL in .local/up.json with a certificate of yours")
	}
	text, err := os.ReadFile(o.at.ClientCert)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return fmt.Errorf("%s holds no certificate", o.at.ClientCert)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Errorf("%s: %w", o.at.ClientCert, err)
	}
	origin, _ := request["requestContext"].(map[string]any)
	if origin == nil {
		origin = map[string]any{}
	}
	domain := o.at.Setting(settings.DomainName)
	origin["domainName"], origin["apiId"] = domain, o.at.APIID
	origin["domainPrefix"], _, _ = strings.Cut(domain, ".")
	origin["authentication"] = map[string]any{"clientCert": endpoint.Describe(certificate)}
	request["requestContext"] = origin
	return nil
}
