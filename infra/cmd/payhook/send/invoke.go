package send

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
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

// InvokeCommand returns the command invoke, which invokes a deployed function with a sample
// event. It signs an event of a function URL, so that its timestamp is never too old.
func InvokeCommand(p *cli.Program, t *deployment.Target) *cobra.Command {
	var inAWS bool
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
			if !inAWS {
				if err := p.Choose(cmd.Context(), t); err != nil {
					return cli.Unreachable(err)
				}
			}
			if inAWS == t.Local {
				return cli.Usage("either --local, for the local run that make up starts, or --aws, for a stack in AWS")
			}
			return invoke(cmd.Context(), p, *t, args[0], args[1])
		},
	}
	cmd.Flags().BoolVar(&inAWS, "aws", false, "invoke the function of a stack in AWS")
	return cmd
}

func invoke(ctx context.Context, p *cli.Program, t deployment.Target, function, file string) error {
	event, err := os.ReadFile(file)
	if err != nil {
		return cli.Usage("%w", err)
	}
	d, err := deployment.Connect(ctx, t)
	if err != nil {
		return cli.Unreachable(err)
	}
	name := d.Functions[function]
	if name == "" {
		return cli.Usage("the stack has no function %s: it has tokenStore=none", function)
	}
	if !d.Local {
		fmt.Fprintf(p.Err, "invoking %s of %s\n", function, d.Name)
	}
	if sample, ok := parseSample(event); ok && d.Local {
		if event, err = signed(ctx, d, sample); err != nil {
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
	if result.FunctionError != nil {
		return fmt.Errorf("the function failed: %s: %s", *result.FunctionError, result.Payload)
	}
	var answer events.LambdaFunctionURLResponse
	if p.JSON || json.Unmarshal(result.Payload, &answer) != nil || answer.StatusCode == 0 {
		fmt.Fprintf(p.Out, "%s\n", result.Payload)
		return nil
	}
	fmt.Fprintln(p.Out, answer.StatusCode, http.StatusText(answer.StatusCode))
	for _, name := range slices.Sorted(maps.Keys(answer.Headers)) {
		fmt.Fprintf(p.Out, "%s: %s\n", name, answer.Headers[name])
	}
	fmt.Fprintf(p.Out, "\n%s\n", answer.Body)
	return nil
}

// signed returns the event of a sample with a proof that is valid now.
func signed(ctx context.Context, d *deployment.Deployment, event sample) ([]byte, error) {
	service, deployed, err := simulated(ctx, d)
	if err != nil {
		return nil, err
	}
	deployed.URL = "https://localhost/"
	signed, err := service.Sign(ctx, event.webhook(deployed))
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
