package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
)

const settleUsage = `Usage: operator parked settle NAME... --reason TEXT [--yes]

Notes that what is parked needs no replay, by the redrive function: it is not listed
as open any more. It stays parked, and nothing is published. The note says who
settled it, when, and the reason. To settle twice changes nothing.

It asks before it settles more than one.

Exit status 1: at least one was not settled.

  --reason TEXT  why, for whoever looks at it later
  --yes          do not ask; needed where nobody is at a terminal
  --json         one document a line: name, settled, cause
`

func settleFlags(_ *program, o *options, f *flag.FlagSet) {
	f.StringVar(&o.because, "reason", "", "")
	f.BoolVar(&o.yes, "yes", false, "")
}

// settled is what became of one thing to settle.
type settled struct {
	Name    string `json:"name"`
	Settled bool   `json:"settled"`
	Cause   string `json:"cause,omitempty"`
}

func (p *program) parkedSettle(ctx context.Context, o *options, names []string) error {
	switch {
	case len(names) == 0:
		return usageError("names are missing: parked list has them")
	case strings.TrimSpace(o.because) == "":
		return usageError("--reason is missing: say why no replay is needed")
	}
	names, err := namesOf(names)
	if err != nil {
		return err
	}
	d, err := p.connect(ctx, o.target)
	if err != nil {
		return err
	}
	function, err := d.output(redriveOutput)
	if err != nil {
		return err
	}
	if len(names) > 1 && !o.yes {
		if err := p.confirm(ctx, fmt.Sprintf("Settle %d in %s?", len(names), d.name)); err != nil {
			return err
		}
	}
	by, person := d.caller(ctx), false
	for batch := range slices.Chunk(names, batchSize) {
		report, failure, err := invoke(ctx, d.lambda, function, request{Settle: batch, Reason: o.because, By: by})
		if err != nil {
			return err
		}
		for _, name := range batch {
			result := settled{Name: name, Cause: failure}
			if i := slices.IndexFunc(report.Settled, func(s settled) bool { return s.Name == name }); i >= 0 {
				result.Cause = report.Settled[i].Cause
				result.Settled = result.Cause == ""
			} else if failure == "" {
				result.Cause = olderFunction
			}
			person = person || !result.Settled
			if err := p.printSettled(result, o); err != nil {
				return err
			}
		}
	}
	if person {
		return errPerson
	}
	return nil
}

func (p *program) printSettled(s settled, o *options) error {
	if o.json {
		return printJSON(p.out, s)
	}
	if s.Settled {
		_, err := fmt.Fprintf(p.out, "settled       %s\n", plain(s.Name))
		return err
	}
	_, err := fmt.Fprintf(p.out, "not settled   %s  %s\n", plain(s.Name), plain(s.Cause))
	return err
}
