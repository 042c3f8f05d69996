package operate

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
)

func (p *program) settleCommand() *cobra.Command {
	var reason string
	var yes bool
	cmd := &cobra.Command{
		Use:   "settle NAME...",
		Short: "Record that something parked needs no replay",
		Long: `Records, with the redrive function, that what is parked needs no replay: it is no
longer listed as open. It stays parked, and nothing is published. The record says who
settled it, when, and the reason. To settle twice changes nothing.

It asks before it settles more than one.

Status 1: at least one was not settled.

With --json, one document a line: name, settled, cause.`,
		Example: "  payhook parked settle NAME --reason 'sent again by the service, delivery ...'",
		RunE:    run(func(ctx context.Context, args []string) error { return p.parkedSettle(ctx, args, reason, yes) }),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why no replay is needed (required)")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask; required without a terminal")
	return cmd
}

// settled is what became of one thing to settle.
type settled struct {
	Name    string `json:"name"`
	Settled bool   `json:"settled"`
	Cause   string `json:"cause,omitempty"`
}

func (p *program) parkedSettle(ctx context.Context, list []string, reason string, yes bool) error {
	switch {
	case len(list) == 0:
		return cli.Usage("names are missing: payhook parked list has them")
	case strings.TrimSpace(reason) == "":
		return cli.Usage("--reason is missing: say why no replay is needed")
	}
	list, err := namesOf(list)
	if err != nil {
		return err
	}
	d, err := p.connect(ctx, *p.target)
	if err != nil {
		return err
	}
	if len(list) > 1 && !yes {
		if err := p.Confirm(ctx, fmt.Sprintf("Settle %d in %s?", len(list), d.Name)); err != nil {
			return err
		}
	}
	by := d.caller(ctx)
	return p.decide(ctx, list, "settled", func(ctx context.Context, name string) (bool, error) {
		a, err := d.redrive(ctx, request{Settle: []string{name}, Reason: reason, By: by})
		result := settled{Name: name}
		if len(a.Settled) == 1 {
			result = a.Settled[0]
		}
		if err != nil {
			result.Cause = err.Error()
		}
		result.Settled = err == nil && result.Cause == ""
		return result.Settled, cmp.Or(p.printSettled(result), err)
	})
}

func (p *program) printSettled(s settled) error {
	if p.JSON {
		return p.PrintJSON(s)
	}
	if s.Settled {
		_, err := fmt.Fprintf(p.Out, "settled       %s\n", cli.Plain(s.Name))
		return err
	}
	_, err := fmt.Fprintf(p.Out, "not settled   %s  %s\n", cli.Plain(s.Name), cli.Plain(s.Cause))
	return err
}
