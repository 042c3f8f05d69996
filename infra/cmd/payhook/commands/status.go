package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/smithy-go"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/stack"
	"payhook.example/shared/aws/client"
	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/payment"
	"payhook.example/shared/token"
)

// statusCommand returns the command that shows on one screen whether Payhook is healthy. Nothing counts as healthy that
// was not measured. It does not read the access token: the token function logs its state.
func (p *program) statusCommand() *cobra.Command {
	var outputs bool
	cmd := &cobra.Command{
		Use: "status", Short: "Show whether Payhook is healthy",
		Args: cobra.NoArgs,
		RunE: p.on(func(ctx context.Context, s *connected, _ []string) error {
			if outputs {
				return showOutputs(p.Program, s.Outputs)
			}
			return (&screen{s: s, p: p, open: map[string]int{}}).show(ctx)
		}),
	}
	cmd.Flags().BoolVar(&outputs, "outputs", false, "only show the outputs of the stack")
	return cmd
}

type screen struct {
	s      *connected
	p      *program
	oldest []eventState   // set by pendingChecks
	open   map[string]int // what is pending or parked, by the name of its alarm; set by pendingChecks and parkedChecks
}

type condition string

const (
	ok             condition = "ok"
	needsAttention condition = "attention"
	notMeasured    condition = "not measured"
)

type check struct {
	Name      string    `json:"name"`
	Condition condition `json:"condition"`
	Text      string    `json:"text"`
	Next      string    `json:"next,omitempty"` // a command or sentence
}

// goneCodes are the codes of AWS for what does not exist any more, or is marked for deletion.
var goneCodes = []string{"ResourceNotFoundException", "NoSuchBucket", "InvalidRequestException"}

const seeLost = "it does not exist any more, or is marked for deletion: infra/RUNBOOK.md, " +
	"\"What is lost, and when it is back\""

func unmeasured(name string, err error) check {
	c := check{name, notMeasured, lambdaruntime.Cause(err), "if access was denied, a statement of policy.json is " +
		"missing whose Sid names Status"}
	if slices.Contains(goneCodes, client.Code(err)) {
		c.Condition, c.Next = needsAttention, seeLost
		if call, ok := errors.AsType[*smithy.OperationError](err); ok && call.Service() == "DynamoDB" {
			c.Next = "the table does not exist any more: infra/RUNBOOK.md, \"Restore the ledger\""
		}
	}
	return c
}

func stackState(_ context.Context, d *screen, _ time.Time) ([]check, error) {
	c := check{"stack", ok, d.s.Status, ""}
	switch failed := strings.Contains(d.s.Status, "ROLLBACK") || strings.HasSuffix(d.s.Status, "_FAILED"); {
	case strings.HasPrefix(d.s.Status, "DELETE_"):
		c.Condition, c.Next = needsAttention, "infra/RUNBOOK.md, \"Delete a stack and use its data again\""
	case failed:
		c.Condition, c.Next = needsAttention, "the last deployment failed:\n"+
			d.p.AWS("cloudformation describe-stack-events --stack-name "+stack.Quote(d.s.StackName))
	}
	return []check{c}, nil
}

// show makes every check and prints the results. A check that fails hides no other.
func (d *screen) show(ctx context.Context) error {
	p := d.p.Program
	h := struct {
		Stack   string  `json:"stack"`
		Version string  `json:"version"` // of the stack
		Program string  `json:"program"` // its version
		Healthy bool    `json:"healthy"`
		Checks  []check `json:"checks"`
		// Oldest are the oldest pending events that are left to redrive.
		Oldest []eventState `json:"oldest,omitempty"`
	}{Stack: d.s.StackName, Version: d.s.Version, Program: payment.Version()}
	parts := []struct {
		name   string // of the line if it fails
		checks func(context.Context, *screen, time.Time) ([]check, error)
	}{{"stack", stackState}, {"pending", pendingChecks}, {"parked", parkedChecks}, {"token", accessToken},
		{"webhooks", webhooks}, {"alarms", alarms}}
	for _, part := range parts {
		checks, err := part.checks(ctx, d, p.Now())
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			checks = append(checks, unmeasured(part.name, err))
		}
		h.Checks = append(h.Checks, checks...)
	}
	worst := ok
	for _, c := range h.Checks {
		if worst == ok || c.Condition == needsAttention {
			worst = c.Condition
		}
	}
	verdict := map[condition]string{ok: "healthy", needsAttention: "NOT HEALTHY", notMeasured: "UNKNOWN"}[worst]
	h.Healthy, h.Oldest = worst == ok, d.oldest
	var err error
	if p.JSON {
		err = p.PrintJSON(h)
	} else {
		fmt.Fprintf(p.Out, "%s\nversion %s; this program %s\n%s\n", d.s.Name, h.Version, h.Program, verdict)
		err = cli.List(p, screenLines(h.Checks))
		if len(h.Oldest) > 0 {
			fmt.Fprintln(p.Out, "\nleft to redrive")
			err = errors.Join(err, cli.List(p, h.Oldest, "recordedAt", "leasedUntil", "attempts", "eventId",
				"deliveryId", "cause"))
		}
	}
	return attention(err, !h.Healthy)
}

// screenLines returns the lines of the screen, each as a check.
func screenLines(checks []check) (all []check) {
	for _, c := range checks {
		line := check{Name: c.Name, Condition: c.Condition}
		for i, text := range []string{c.Text, c.Next} {
			for _, text := range wrap(text) {
				line.Text = strings.Repeat("  ", i) + text
				all = append(all, line)
				line = check{}
			}
		}
	}
	return all
}

// word matches a word, or a command with its spaces.
var word = regexp.MustCompile("[^` ]*`[^`]*`[^ ]*|[^ ]+")

// wrap splits a text into lines of about 90 characters, unless it has lines, of which one is a command to copy.
func wrap(text string) (lines []string) {
	const width = 90
	if strings.Contains(text, "\n") {
		return strings.Split(text, "\n")
	}
	for _, word := range word.FindAllString(text, -1) {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+len(word) < width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

// showOutputs shows the outputs of the stack. Those with lines are texts for people, and follow.
func showOutputs(p *cli.Program, all []stack.Output) error {
	isText := func(o stack.Output) bool { return !p.JSON && strings.Contains(o.Value, "\n") }
	// A value can be long.
	err := cli.List(p, slices.DeleteFunc(slices.Clone(all), isText), "name", "meaning", "value")
	for _, o := range all {
		if isText(o) {
			fmt.Fprintf(p.Out, "\n%s: %s\n\n%s\n", o.Name, o.Meaning, strings.TrimSpace(o.Value))
		}
	}
	return err
}

// accessToken shows what the last run of the token function says about the token.
func accessToken(ctx context.Context, d *screen, now time.Time) ([]check, error) {
	const silence = 5 * time.Minute // the function runs every minute
	if !d.s.KeepsToken() {
		return nil, nil
	}
	lines, _, err := d.recent(ctx, "token", "", now.Add(-silence))
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		return []check{{"token", needsAttention, "the token function has logged nothing for " + cli.Readable(silence),
			d.p.Hint("logs token --since 1h --all")}}, nil
	}
	l, left := lines[len(lines)-1], time.Duration(0)
	c := check{"token", needsAttention, "it is not known whether there is a valid token",
		d.p.Hint("logs token --since 1h")}
	if l.Remaining != nil {
		c.Text = "there is no valid token"
		left = seconds(*l.Remaining) - now.Sub(l.at)
	}
	if left > 0 {
		until := now.Add(left).UTC().Format(time.RFC3339)
		c.Condition, c.Text = ok, fmt.Sprintf("valid for %s, until %s", cli.Readable(left), until)
	} else if l.Remaining != nil {
		c.Next = "store the client credentials, {\"client_id\":\"…\",\"client_secret\":\"…\"} in a file:\n" + d.p.AWS(
			"secretsmanager put-secret-value --secret-id "+stack.Quote(d.s.CredentialsSecret)+
				" --secret-string file://credentials.json") + "\nif they are stored, see the log:\n" + c.Next
	}
	if l.Cause != "" {
		c.Condition, c.Text = needsAttention, c.Text+"; the last refresh failed: "+l.Cause
		if slices.ContainsFunc(goneCodes, func(code string) bool { return strings.Contains(l.Cause, code) }) {
			c.Next = seeLost
		}
	}
	last := token.Bearer{IssuedAt: l.at, ExpiresAt: l.at.Add(seconds(l.Lifetime))}
	switch {
	case left > 0 && l.Cause == "" && d.s.TokenSecret != "" && last.WritesTooOften():
		c.Condition, c.Next = needsAttention, token.ShortLived
	case c.Condition == ok:
		c.Next = ""
	}
	return []check{c}, nil
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// logLine is what is read of a line of a function.
type logLine struct {
	at                            time.Time
	Msg, Outcome, Cause, BusCause string
	Status                        int
	Remaining                     *float64 `json:"remainingSeconds"` // of the token; nil: not known
	Lifetime                      float64  `json:"lifetimeSeconds"`
}

// recently is the time of which lines of the webhook and the redrive function are read.
const recently = 3 * time.Minute

// recent returns the lines of a function since a time, the last one last. It reads 10 pages at most; part is true if
// there are more.
func (d *screen) recent(ctx context.Context, function, filter string, from time.Time) (all []logLine, part bool,
	err error) {
	filter = fmt.Sprintf("{ $.msg = %q%s }", function, filter)
	for e, err := range logEvents(ctx, cloudwatchlogs.NewFromConfig(d.s.AWS), d.s.Logs[function], filter, from, 10) {
		if errors.Is(err, errPart) {
			return all, true, nil
		}
		if err != nil {
			return nil, false, err
		}
		l := logLine{at: e.Time}
		// The emulator ignores the filter.
		if json.Unmarshal([]byte(e.Text), &l) == nil && l.Msg == function {
			all = append(all, l)
		}
	}
	return all, false, nil
}
