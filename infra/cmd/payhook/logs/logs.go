// Package logs has the commands that find out what arrived: logs shows what the functions have logged, and reconcile
// compares a list of the payment service with what Payhook has. They change nothing.
//
// Logs guarantees that each line is shown once and none is left out, even if the computer sleeps or AWS cannot be
// reached for a time, as long as a line reaches CloudWatch Logs at most two minutes after a line with a later time, and
// is still kept there.
package logs

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/json/jsontext"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
)

const long = `Shows what the functions have logged: all of them, or the one that is named. --follow
goes on until Ctrl-C. It reads every two seconds from where it was, so that nothing is
left out after the computer slept.

Members of a line that are zero are left out, and so are the lines that Lambda writes for
each invocation (START, END, REPORT), unless with --all. With --json, JSON lines with
everything: time, function, and line (what the function wrote), or text if that is not
JSON.

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
	since                    time.Duration
	follow, all, notAccepted bool
}

// Command returns the command.
func Command(p *cli.Program, t *deployment.Target) *cobra.Command {
	o := options{Program: p}
	cmd := &cobra.Command{
		Use: "logs [webhook|redrive|token]", Short: "Show what the functions log", Long: long, Example: example,
		ValidArgs: functions, Args: cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.since < 0 {
				return cli.Usage("--since must not be negative")
			}
			if o.notAccepted && (o.follow || o.all || len(args) > 0) {
				return cli.Usage("--not-accepted takes no function, --follow or --all")
			}
			d, err := p.Connect(cmd.Context(), t)
			switch {
			case err != nil:
			case o.notAccepted:
				err = o.showNotAccepted(cmd.Context(), d)
			default:
				err = o.run(cmd.Context(), d, args)
			}
			return cli.Unreachable(err)
		},
	}
	f := cmd.Flags()
	cli.DurationVar(f, &o.since, "since", 10*time.Minute, "how far back to begin")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with what comes, until Ctrl-C")
	f.BoolVar(&o.notAccepted, "not-accepted", false, "list the webhooks that were not accepted")
	f.BoolVar(&o.all, "all", false, "also what Lambda writes for each invocation")
	return cmd
}

// run shows the logs of the function that is named, or of all.
func (o *options) run(ctx context.Context, d *deployment.Deployment, named []string) error {
	client := cloudwatchlogs.NewFromConfig(d.AWS)
	var tails []*tail
	for _, function := range functions {
		if group := d.Logs[function]; group != "" && (len(named) == 0 || named[0] == function) {
			tails = append(tails, newTail(client, function, group, o.Now().Add(-o.since)))
		}
	}
	if len(tails) == 0 {
		return cli.Usage("the stack has no function %s: it has tokenStore=none", named[0])
	}
	if o.follow {
		return follow(ctx, func(text string) { fmt.Fprintln(o.Err, text) }, o.show, tails...)
	}
	entries, err := read(ctx, tails...)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(entries, o.shows) {
		fmt.Fprintf(o.Err, "nothing was logged in the last %s; --since goes further back\n", cli.Readable(o.since))
	}
	return o.show(entries)
}

func (o *options) shows(e entry) bool { return o.JSON || o.all || !e.routine() }

func (o *options) show(entries []entry) (err error) {
	for _, e := range entries {
		switch {
		case o.JSON:
			err = o.PrintJSON(e.json())
		case o.shows(e):
			_, err = fmt.Fprintln(o.Out, e.text())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// json returns the entry for a program. What the function wrote is in line if it is a JSON
// object, otherwise in text.
func (e entry) json() any {
	document := struct {
		Time     string          `json:"time"`
		Function string          `json:"function"`
		Line     json.RawMessage `json:"line,omitempty"`
		Text     string          `json:"text,omitempty"`
	}{Time: cli.Stamp(e.Time), Function: e.Function}
	if isObject(e.Text) {
		document.Line = json.RawMessage(e.Text)
	} else {
		document.Text = e.Text
	}
	return document
}

func isObject(text string) bool { return strings.HasPrefix(text, "{") && json.Valid([]byte(text)) }

// text returns the entry for a person. A message that is only the name of the function is left out.
func (e entry) text() string {
	level, words := "-", strings.Split(e.Text, "\t")
	if isObject(e.Text) {
		var known struct{ Level, Msg string }
		_ = json.Unmarshal([]byte(e.Text), &known) // of another type: it is shown as empty
		level, words = known.Level, members("", jsontext.Value(e.Text))
		if known.Msg != e.Function {
			words = append([]string{known.Msg}, words...)
		}
	}
	text := fmt.Sprintf("%s  %-7s  %-5s", cli.Stamp(e.Time), e.Function, cli.Plain(level))
	for _, word := range words {
		text += "  " + cli.Plain(word)
	}
	return text
}

// hidden are the members of a line that a person does not need: they are shown
// elsewhere, or are for CloudWatch.
var hidden = []string{"time", "level", "msg", "_aws", "StackName", "requestId"}

// members returns the members of a JSON object and of the objects within as name=value, without those that are
// hidden or zero.
func members(prefix string, object jsontext.Value) (words []string) {
	d := jsontext.NewDecoder(bytes.NewReader(object))
	_, _ = d.ReadToken() // {
	for d.PeekKind() == jsontext.KindString {
		token, _ := d.ReadToken()
		name := prefix + token.String()
		value, err := d.ReadValue()
		if err != nil {
			return words
		}
		text := string(value)
		switch {
		case slices.Contains(hidden, name), slices.Contains([]string{"0", "false", "null", "[]", `""`}, text):
		case value.Kind() == jsontext.KindBeginObject:
			words = append(words, members(name+".", value)...)
		default:
			if unquoted, err := jsontext.AppendUnquote(nil, value); err == nil {
				text = string(unquoted)
			}
			words = append(words, cli.Word(name, text))
		}
	}
	return words
}

// routine reports whether the entry is one that Lambda writes for every invocation that
// ends well: https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs-view.html
// REPORT has a status if it does not.
func (e entry) routine() bool {
	begins := func(text string) bool { return strings.HasPrefix(e.Text, text) }
	return slices.ContainsFunc([]string{"START RequestId:", "END RequestId:", "INIT_START "}, begins) ||
		begins("REPORT RequestId:") && !strings.Contains(e.Text, "\tStatus:")
}
