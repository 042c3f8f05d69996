// Package status has the command that shows on one screen whether Payhook is healthy.
//
// It guarantees that nothing counts as healthy that was not measured, that it writes
// nothing, and that it never shows the access token, of which it reads the expiry.
package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/spf13/cobra"

	"payhook.example/infra/build"
	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/token"
)

const long = `Shows on one screen whether Payhook is healthy: what is pending and parked, how long the
access token lives, what webhooks were answered in the last 15 minutes, whether redrive
runs, how long certificates are valid, and which alarms are raised.

An event is overdue if it was due for longer than 2 minutes: redrive does not run, or is
too slow. It is failing if redrive has tried twice or more, and damaged if attributes
cannot be decoded. If the ten oldest have one, or an event is overdue, they are listed.
Rejected webhooks that were captured are counted, and need no attention.

Each line is ok, attention, or not measured. Payhook is healthy if every line is ok, NOT
HEALTHY if one needs attention, and otherwise UNKNOWN: something was not measured. An
alarm that CloudWatch has no data for (INSUFFICIENT_DATA) is not measured.

The command reads the index of the ledger, the names in the parking bucket, the access
token (its expiry is shown, the token is not), metrics and alarms. Metrics are about a
minute late.

Below a line that is not ok stands the command or the step that comes next. If a store
or service cannot be read, its line is not measured and has the error.

With --code, the command builds the functions in the current folder, which is a clone of
Payhook or an app that uses it, and compares each program, bootstrap, byte for byte with
the one in the package that Lambda runs. The digest of that package, CodeSha256, depends
on how the CDK compresses it, so it only shows that the download is complete. If the
folder has another version than the stack, or was modified, the line says so.

Status 0: healthy. Status 1: something needs attention, or was not measured. Status 3:
the stack cannot be read.`

// Command returns the command.
func Command(p *cli.Program, t *deployment.Target) *cobra.Command {
	compare := false
	cmd := &cobra.Command{
		Use: "status", Short: "Show whether Payhook is healthy", Long: long,
		Example: "  payhook status\n  payhook status --local\n  payhook status --code",
		Args:    cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := p.Connect(cmd.Context(), t)
			if err != nil {
				return cli.Unreachable(err)
			}
			s := stack{d, dynamodb.NewLedgerReader(dynamodb.NewClient(d.AWS), d.LedgerTable),
				s3.NewLister(d.S3(), d.ParkingBucket), d.Token(),
				cloudwatch.NewFromConfig(d.AWS), cloudformation.NewFromConfig(d.AWS),
				func(command string) string { return p.Hint(t, command) },
				compare, lambda.NewFromConfig(d.AWS), build.Functions, nil}
			return s.status(cmd.Context(), p)
		},
	}
	cmd.Flags().BoolVar(&compare, "code", false, "compare the deployed programs with a build of the current folder")
	return cmd
}

// stack is a deployment with the clients of its services.
type stack struct {
	*deployment.Deployment

	ledger interface {
		ledger.Getter
		ledger.Querier
	}
	parking objects.Lister
	token   *token.Reader
	metrics interface {
		cloudwatch.GetMetricDataAPIClient
		cloudwatch.DescribeAlarmsAPIClient
	}
	stacks cloudformation.ListStackResourcesAPIClient
	hint   func(command string) string // for the same deployment

	compare   bool // the flag --code
	functions interface {
		GetFunction(context.Context, *lambda.GetFunctionInput, ...func(*lambda.Options)) (*lambda.GetFunctionOutput,
			error)
	}
	build func(arch string) (map[string][]byte, error)

	oldest []waiting // set by pending
}

// state is the result of a check.
type state string

const (
	ok          state = "ok"
	attention   state = "attention"
	notMeasured state = "not measured"
)

// check is one line.
type check struct {
	Name  string `json:"name"`
	State state  `json:"state"`
	Text  string `json:"text"`
	Next  string `json:"next,omitempty"` // a command or sentence, unless the state is ok
}

// part makes checks that read the same store or service. Its name is that of the line if it fails.
type part struct {
	name   string
	checks func(context.Context, *stack, time.Time) ([]check, error)
}

// finding is what a check can find. If applies is true, the line has its state and text, and what comes next.
type finding struct {
	applies bool
	state   state
	text    string
	next    string
}

// judge makes the line of the first finding that applies. It is ok with the text if none does.
func judge(name, text string, findings ...finding) check {
	for _, f := range findings {
		if f.applies {
			return check{name, f.state, f.text, f.next}
		}
	}
	return check{name, ok, text, ""}
}

// failed is the line of a part that cannot be read.
func failed(name string, err error) check {
	return check{name, notMeasured, err.Error(), "if access was denied, add the permissions in " +
		"infra/cmd/payhook/policy.json; if something no longer exists, see infra/RECOVERY.md"}
}

// status makes every check and prints the results. A check that fails hides no other.
func (d *stack) status(ctx context.Context, p *cli.Program) error {
	h := struct {
		Stack   string  `json:"stack"`
		Version string  `json:"version"` // of the stack
		Program string  `json:"program"` // its version
		Healthy bool    `json:"healthy"`
		Checks  []check `json:"checks"`
		// Oldest are the oldest pending events, if one needs attention.
		Oldest []waiting `json:"oldest,omitempty"`
	}{Stack: d.Stack, Version: d.Version, Program: payment.Version()}
	parts := []part{{"pending", pending}, {"parked", parked}, {"token", accessToken}, {"alarms", measured}}
	if d.compare {
		fmt.Fprintln(p.Err, "building the functions")
		parts = append(parts, part{"code", code})
	}
	for _, part := range parts {
		checks, err := part.checks(ctx, d, p.Now())
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			checks = append(checks, failed(part.name, err))
		}
		h.Checks = append(h.Checks, checks...)
	}
	in := func(s state) bool {
		return slices.ContainsFunc(h.Checks, func(c check) bool { return c.State == s })
	}
	verdict := "healthy"
	switch {
	case in(attention):
		verdict = "NOT HEALTHY"
	case in(notMeasured):
		verdict = "UNKNOWN"
	}
	h.Healthy, h.Oldest = verdict == "healthy", d.oldest
	var err error
	if p.JSON {
		err = p.PrintJSON(h)
	} else {
		fmt.Fprintf(p.Out, "%s\nversion %s; this program %s\n%s\n", d.Name, h.Version, h.Program, verdict)
		rows := cli.Rows{{"NAME", "STATE", "TEXT"}}
		for _, c := range h.Checks {
			rows = append(rows, []any{c.Name, c.State, c.Text})
			if c.Next != "" {
				rows = append(rows, []any{"", "", "  " + c.Next})
			}
		}
		err = cli.List(p, h.Checks, rows)
		if len(h.Oldest) > 0 && err == nil {
			err = p.Show(nil, "the oldest pending events", table(h.Oldest))
		}
	}
	if err == nil && !h.Healthy {
		err = cli.ErrAttention
	}
	return err
}

// accessToken reads how long the stored token is valid.
func accessToken(ctx context.Context, d *stack, now time.Time) ([]check, error) {
	if !d.KeepsToken() {
		return nil, nil
	}
	t, err := d.token.Bearer(ctx)
	switch {
	case errors.Is(err, token.ErrNone), errors.Is(err, token.ErrExpired), errors.Is(err, token.ErrUnreadable):
		return []check{{"token", attention, err.Error(), d.hint("logs token --since 1h")}}, nil
	case err != nil:
		return nil, err
	}
	text := fmt.Sprintf("valid for %s, until %s", cli.Readable(t.ExpiresAt.Sub(now)),
		t.ExpiresAt.UTC().Format(time.RFC3339))
	return []check{judge("token", text, finding{t.Late(now), attention, text, d.hint("logs token --since 1h")},
		finding{d.TokenSecret != "" && t.WritesTooOften(), attention, text, token.ShortLived})}, nil
}
