package send

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"uuid"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/payment"
)

const invokeLong = `Invokes the function webhook, redrive or token with an event from a file, and prints
what it answers. The events in events/ are samples. --aws is required for a stack in AWS;
then account, region and stack are written to standard error before the call.

With --local, an event of a function URL is signed now by the simulated payment service.
In AWS it stays as it is in the file, and is answered 401. With authentication=mtls or
both, the answer is 401, because the event has no client certificate: use payhook local
send.

Status 1: the function failed. An HTTP status such as 401 is an answer, not a failure.

With --json, the answer as the function returned it.`

const invokeExample = `  payhook invoke webhook events/webhook/one-event.json --local
  payhook invoke redrive events/redrive/scheduled.json --local
  payhook invoke token events/token/refresh.json --aws --stack Payhook`

type invocation struct {
	p     *cli.Program
	fresh bool
	aws   bool
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
			if !o.aws {
				if err := p.Choose(cmd.Context(), t); err != nil {
					return cli.Unreachable(err)
				}
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
	if !d.Local {
		fmt.Fprintf(o.p.Err, "invoking %s of %s\n", function, d.Name)
	}
	if sample, ok := parseSample(event); ok && d.Local {
		if event, err = o.signed(ctx, d, sample); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
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

// signed returns the event of a sample with a proof that is valid now.
func (o *invocation) signed(ctx context.Context, d *deployment.Deployment, event sample) ([]byte, error) {
	service, conf, err := simulated(ctx, d)
	if err != nil {
		return nil, err
	}
	w := event.webhook("https://localhost/")
	w.Carriers = conf.carriers()
	if o.fresh {
		w.Payload = freshIDs(w.Payload)
	}
	signed, err := service.Sign(ctx, w)
	if err != nil {
		return nil, err
	}
	// As Lambda does it: names in lower case, repeated headers joined by commas.
	for name, values := range signed.Header {
		event.Headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	_, event.RawQueryString, _ = strings.Cut(signed.URL, "?")
	event.Body = string(signed.Body)
	if event.IsBase64Encoded {
		event.Body = base64.StdEncoding.EncodeToString(signed.Body)
	}
	return json.Marshal(event.APIGatewayV2HTTPRequest)
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
	var answer events.LambdaFunctionURLResponse
	if o.p.JSON || json.Unmarshal(result.Payload, &answer) != nil || answer.StatusCode == 0 {
		fmt.Fprintf(out, "%s\n", result.Payload)
		return nil
	}
	fmt.Fprintln(out, answer.StatusCode, http.StatusText(answer.StatusCode))
	for _, name := range slices.Sorted(maps.Keys(answer.Headers)) {
		fmt.Fprintf(out, "%s: %s\n", name, answer.Headers[name])
	}
	fmt.Fprintf(out, "\n%s\n", answer.Body)
	return nil
}
