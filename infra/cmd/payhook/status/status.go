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
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
	"github.com/spf13/cobra"

	"payhook.example/infra/build"
	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/awsenv"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/settings"
	"payhook.example/shared/token"
)

// Command returns the command.
func Command(p *cli.Program) *cobra.Command {
	var compare, outputs bool
	cmd := &cobra.Command{
		Use: "status", Short: "Show whether Payhook is healthy",
		Args: cobra.NoArgs,
		RunE: p.OnStack(func(ctx context.Context, d *deployment.Deployment, _ []string) error {
			if outputs {
				return cli.List(p, d.Outputs, "name", "meaning", "value") // a value can be long
			}
			s := stack{d, dynamodb.NewLedgerReader(dynamodb.NewClient(d.AWS), d.LedgerTable),
				s3.NewBucket(d.S3(), d.ParkingBucket), d.Token(), secretsmanager.NewFromConfig(d.AWS),
				cloudwatch.NewFromConfig(d.AWS), cloudformation.NewFromConfig(d.AWS),
				p.Hint, compare, lambda.NewFromConfig(d.AWS), build.Functions, nil}
			return s.status(ctx, p)
		}),
	}
	cmd.Flags().BoolVar(&compare, "code", false, "compare the deployed programs with a build of the current folder")
	cmd.Flags().BoolVar(&outputs, "outputs", false, "only show the outputs of the stack")
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
	secrets secretsmanager.ListSecretsAPIClient
	metrics interface {
		cloudwatch.GetMetricDataAPIClient
		cloudwatch.DescribeAlarmsAPIClient
	}
	stacks cloudformation.ListStackResourcesAPIClient
	hint   func(command string) string // for the same deployment

	compare   bool // the flag --code
	functions functions
	build     func(arch string) (map[string][]byte, error)

	oldest []waiting // set by pending
}

type state string

const (
	ok          state = "ok"
	attention   state = "attention"
	notMeasured state = "not measured"
)

type check struct {
	Name  string `json:"name"`
	State state  `json:"state"`
	Text  string `json:"text"`
	Next  string `json:"next,omitempty"` // a command or sentence
}

func failed(name string, err error) check {
	return check{name, notMeasured, awsenv.Cause(err), "if access was denied, the statements of policy.json " +
		"whose Sids begin with Status are missing; if something no longer exists, see infra/RUNBOOK.md"}
}

// status makes every check and prints the results. A check that fails hides no other.
func (d *stack) status(ctx context.Context, p *cli.Program) error {
	h := struct {
		Stack   string  `json:"stack"`
		Version string  `json:"version"` // of the stack
		Program string  `json:"program"` // its version
		Healthy bool    `json:"healthy"`
		Checks  []check `json:"checks"`
		// Oldest are the oldest pending events that are left to redrive.
		Oldest []waiting `json:"oldest,omitempty"`
	}{Stack: d.Stack, Version: d.Version, Program: payment.Version()}
	parts := []struct {
		name   string // of the line if it fails
		checks func(context.Context, *stack, time.Time) ([]check, error)
	}{{"pending", pending}, {"parked", parked}, {"token", accessToken}, {"old secret", oldSecret},
		{"webhooks", webhooks}, {"alarms", alarms}, {"code", code}}
	if !d.compare {
		parts = parts[:len(parts)-1]
	} else {
		fmt.Fprintln(p.Err, "building the functions")
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
		err = cli.List(p, lines(h.Checks))
		if len(h.Oldest) > 0 {
			fmt.Fprintln(p.Out, "\nleft to redrive")
			err = errors.Join(err, cli.List(p, h.Oldest))
		}
	}
	if err == nil && !h.Healthy {
		err = cli.ErrAttention
	}
	return err
}

// lines returns the lines of the screen, each as a check.
func lines(checks []check) (all []check) {
	for _, c := range checks {
		line := check{Name: c.Name, State: c.State}
		for i, text := range []string{c.Text, c.Next} {
			for _, line.Text = range wrap(text) {
				line.Text = strings.Repeat("  ", i) + line.Text
				all = append(all, line)
				line = check{}
			}
		}
	}
	return all
}

// wrap splits a text into lines of about 90 characters, unless it has lines, of which one is a command to copy.
func wrap(text string) (lines []string) {
	const width = 90
	if strings.Contains(text, "\n") {
		return strings.Split(text, "\n")
	}
	for word := range strings.FieldsSeq(text) {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+len(word) < width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

// accessToken reads how long the stored token is valid.
func accessToken(ctx context.Context, d *stack, now time.Time) ([]check, error) {
	if !d.KeepsToken() {
		return nil, nil
	}
	logs := d.hint("logs token --since 1h")
	t, err := d.token.Bearer(ctx)
	switch {
	case errors.Is(err, token.ErrNone):
		return []check{{"token", attention, awsenv.Cause(err), "store the client credentials:\n" +
			"aws secretsmanager put-secret-value --secret-id " + d.CredentialsSecret + " --secret-string " +
			`'{"client_id":"…","client_secret":"…"}'` + "\nif they are stored, the cause is in the log:\n" + logs}}, nil
	case errors.Is(err, token.ErrExpired), errors.Is(err, token.ErrUnreadable):
		return []check{{"token", attention, awsenv.Cause(err), logs}}, nil
	case err != nil:
		return nil, err
	}
	c := check{"token", ok, fmt.Sprintf("valid for %s, until %s", cli.Readable(t.ExpiresAt.Sub(now)),
		t.ExpiresAt.UTC().Format(time.RFC3339)), ""}
	if d.TokenSecret != "" && t.WritesTooOften() {
		c.State, c.Next = attention, token.ShortLived
	}
	return []check{c}, nil
}

// oldSecret names a secret that had the token before tokenStore was changed. It is retained, because callers use it
// until they know the new store.
func oldSecret(ctx context.Context, d *stack, _ time.Time) (checks []check, err error) {
	description := settings.TokenSecretDescription(d.FullName)
	pages := secretsmanager.NewListSecretsPaginator(d.secrets, &secretsmanager.ListSecretsInput{
		Filters: []types.Filter{{Key: types.FilterNameStringTypeDescription, Values: []string{description}}}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, s := range page.SecretList {
			// The filter compares the beginning, and no case.
			if arn := aws.ToString(s.ARN); arn != d.TokenSecret && aws.ToString(s.Description) == description {
				checks = append(checks, check{"old secret", ok, "tokenStore was changed, and " + arn + " is retained",
					"when no caller reads it:\naws secretsmanager delete-secret --secret-id " + arn})
			}
		}
	}
	return checks, nil
}
