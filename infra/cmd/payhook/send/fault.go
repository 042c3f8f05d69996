package send

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/paymenttest"
)

const faultLong = `Makes an endpoint of the simulated payment service fail from now on, or work again with
none. Without arguments, it shows the faults.

An endpoint is keys, token or api. A fault is
  down     503
  hang-up  the connection is cut without an answer
  slow     the correct answer after 10s, or after DURATION with slow:DURATION
  status   500, or NUMBER with status:NUMBER, and an empty object
  garbage  200 with a body that is not JSON

With --json, one document: the fault by the endpoint.`

const faultExample = `  payhook local fault keys down
  payhook local send --rotate --expect 503    the new key cannot be fetched
  payhook local fault keys none
  payhook local fault token slow:20s`

// NoFault ends a fault.
const NoFault = "none"

// FaultCommand returns the command fault, which makes the simulated service fail.
func FaultCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use: "fault [ENDPOINT FAULT]", Short: "Make the simulated payment service fail", Long: faultLong,
		Example: faultExample,
		Args: func(_ *cobra.Command, args []string) error {
			if n := len(args); n != 0 && n != 2 {
				return cli.Usage("payhook local fault takes an endpoint and a fault, or nothing")
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			words := [][]string{words([]paymenttest.Endpoint{paymenttest.Keys, paymenttest.Token, paymenttest.API}),
				append(words(paymenttest.Faults()), NoFault), nil}
			return words[min(len(args), 2)], cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.NoTargetFlags(cmd, "local"); err != nil {
				return err
			}
			d, err := deployment.Running(cmd.Context())
			if err != nil {
				return cli.Unreachable(err)
			}
			if !d.Simulated {
				return cli.Usage("this local run uses the payment service %s, which is not simulated", d.PaymentService)
			}
			command := paymenttest.Command{}
			if len(args) == 2 {
				fault := paymenttest.Fault(args[1])
				if fault == NoFault {
					fault = ""
				}
				command.Faults = map[paymenttest.Endpoint]paymenttest.Fault{paymenttest.Endpoint(args[0]): fault}
			}
			service, err := paymenttest.Remote{URL: d.PaymentService}.Do(cmd.Context(), command)
			if err != nil {
				return cli.Usage("%w; payhook local fault --help lists endpoints and faults", err)
			}
			faults := service.Faults
			if p.JSON {
				return p.PrintJSON(faults)
			}
			if len(faults) == 0 {
				fmt.Fprintln(p.Out, "no endpoint fails")
			}
			for _, endpoint := range slices.Sorted(maps.Keys(faults)) {
				fmt.Fprintf(p.Out, "%s  %s\n", endpoint, faults[endpoint])
			}
			return nil
		},
	}
}
