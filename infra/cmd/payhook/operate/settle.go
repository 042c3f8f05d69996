package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
)

func (p *program) settleCommand() *cobra.Command {
	var chosen []string
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
		Args: func(_ *cobra.Command, args []string) (err error) {
			if chosen, err = namesOf(args); err == nil && strings.TrimSpace(reason) == "" {
				err = errors.New("--reason is missing: say why no replay is needed")
			}
			return err
		},
		RunE: p.on(func(ctx context.Context, s *stack, _ []string) error {
			return p.parkedSettle(ctx, s, chosen, reason, yes)
		}),
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

func (p *program) parkedSettle(ctx context.Context, d *stack, list []string, reason string, yes bool) error {
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
		return result.Settled, cmp.Or(p.print(result, result.write), err)
	})
}

func (s settled) write(t cli.Fields) {
	if s.Settled {
		fmt.Fprintf(t, "settled       %s\n", cli.Plain(s.Name))
	} else {
		fmt.Fprintf(t, "not settled   %s  %s\n", cli.Plain(s.Name), cli.Plain(s.Cause))
	}
}
