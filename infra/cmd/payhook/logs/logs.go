// Package logs has the command that shows the logs of the functions.
//
// It guarantees that each line is shown once and none is left out, even if the computer
// sleeps or AWS cannot be reached for a time, as long as a line reaches CloudWatch Logs at
// most two minutes after a line with a later time, and is still kept there.
package logs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
)

const long = `Shows what the functions have logged: all of them, or the one that is named. --follow
goes on until Ctrl-C. It reads each second (every two in AWS) from where it was, so that
nothing is left out after the computer slept.

At a terminal, members of a line that are zero are left out, and so are the lines that
Lambda writes for each invocation (START, END, REPORT), unless with --all.

With --json, or if the output is not a terminal, JSON lines with everything: time,
function, and line (what the function wrote), or text if that is not JSON.
--json=false prevents it.

--not-accepted lists the webhooks that were not answered 2xx, to send to the service: the
times of the first and last request, how many there were, status, outcome and cause.
Those with the same deliveryId are one line. It is left out if the webhook function
accepted that deliveryId later, or if a replay did. Unless a webhook was authentic,
anybody can have written its deliveryId. Without one, each request is a line.

Webhooks that AWS answered before the function ran have no line in the log: those that
API Gateway or Lambda throttled (429), those that are too large for Lambda (413), and
with client certificates those that API Gateway rejected (403). Alarms count them, and
only the service knows which they are. Lines older than logRetentionDays are deleted.

Status 1: --not-accepted found at least one.`

const example = `  payhook logs --local
  payhook logs webhook --follow
  payhook logs redrive --since 24h --all
  payhook logs --not-accepted --since 24h`

var functions = []string{"webhook", "redrive", "token"}

type options struct {
	*cli.Program
	functions   []string
	since       time.Duration
	follow, all bool
	notAccepted bool
	json        bool
}

// Command returns the command.
func Command(p *cli.Program, t *deployment.Target) *cobra.Command {
	o := options{Program: p}
	cmd := &cobra.Command{
		Use: "logs [webhook|redrive|token]", Short: "Show what the functions log", Long: long, Example: example,
		ValidArgs: functions, Args: cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.functions = args; len(args) == 0 {
				o.functions = functions
			}
			if o.since < 0 {
				return cli.Usage("--since must not be negative")
			}
			if o.notAccepted && (o.follow || o.all || len(args) > 0) {
				return cli.Usage("--not-accepted takes no function, --follow or --all")
			}
			o.json = p.JSONLines(cmd)
			return cli.Unreachable(o.run(cmd.Context(), t))
		},
	}
	f := cmd.Flags()
	cli.DurationVar(f, &o.since, "since", 10*time.Minute, "how far back to begin")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with what comes, until Ctrl-C")
	f.BoolVar(&o.notAccepted, "not-accepted", false, "list the webhooks that were not accepted")
	f.BoolVar(&o.all, "all", false, "at a terminal: also what Lambda writes for each invocation")
	return cmd
}

func (o *options) run(ctx context.Context, t *deployment.Target) error {
	d, err := o.Connect(ctx, t)
	if err != nil {
		return err
	}
	if o.notAccepted {
		return o.showNotAccepted(ctx, d)
	}
	client := cloudwatchlogs.NewFromConfig(d.AWS)
	var tails []*tail
	for _, function := range o.functions {
		if d.Logs[function] == "" && len(o.functions) == 1 {
			return cli.Usage("the stack has no function %s: it has tokenStore=none", function)
		} else if d.Logs[function] == "" {
			continue
		}
		tails = append(tails, newTail(client, function, d.Logs[function], o.Now().Add(-o.since)))
	}
	if o.follow {
		every := 2 * time.Second
		if d.Local {
			every = time.Second
		}
		return follow(ctx, every, func(text string) { fmt.Fprintln(o.Err, text) }, o.show, tails...)
	}
	entries, err := read(ctx, tails...)
	if err != nil {
		return err
	}
	if len(o.visible(entries)) == 0 {
		fmt.Fprintf(o.Err, "nothing was logged in the last %s; --since goes further back\n", cli.Readable(o.since))
	}
	return o.show(entries)
}

// visible returns the entries that are shown.
func (o *options) visible(entries []entry) []entry {
	if o.json || o.all {
		return entries
	}
	return slices.DeleteFunc(slices.Clone(entries), entry.routine)
}

func (o *options) show(entries []entry) error {
	for _, e := range o.visible(entries) {
		var err error
		if o.json {
			err = o.PrintJSON(e.json())
		} else {
			_, err = fmt.Fprintln(o.Out, e.text())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
