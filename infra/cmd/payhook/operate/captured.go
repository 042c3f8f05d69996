package operate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/parking"
)

func (p *program) capturedListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the rejected webhooks that were captured",
		Long: `Lists the webhooks that were rejected before they were found authentic and that
captureRejected stored, the earliest first. Nothing about them is proven: anybody who
knows the URL can have sent them. S3 removes them from this list one to two days after
they were stored.

Status 1: there is none.

With --json, one document a line: name, receivedAt, outcome.`,
		Example: "  payhook captured list\n  payhook captured list --local",
		Args:    cli.Args(),
		RunE:    p.on(p.capturedList),
	}
}

func (p *program) capturedShowCommand() *cobra.Command {
	var payload bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show one rejected webhook",
		Long: `Shows a rejected webhook without its payload. "payhook captured list" has the names, and
"payhook explain --captured NAME" explains it. The values of Authorization, cookies and
other credentials were not stored.

Status 1: there is none of this name.

With --json, one document: name, receivedAt, requestId, outcome, cause, method, path,
rawQuery, headers, sourceIp, payloadBytes, payloadSha256, settings; with --payload also
payload, in base64.`,
		Example: "  payhook captured show NAME\n  payhook captured show NAME --payload > body.json",
		Args:    cli.Args("NAME"),
		RunE: p.on(func(ctx context.Context, s *stack, args []string) error {
			return p.capturedShow(ctx, s, args[0], payload)
		}),
	}
	cmd.Flags().BoolVar(&payload, "payload", false, "write only the payload, byte for byte; with --json, add it")
	return cmd
}

// listedCapture is one rejected webhook, as a listing has it.
type listedCapture struct {
	Name       string    `json:"name"`
	ReceivedAt time.Time `json:"receivedAt,omitzero"`
	Outcome    string    `json:"outcome,omitempty"`
}

func (p *program) capturedList(ctx context.Context, d *stack, _ []string) error {
	all, err := d.store.ListCaptured(ctx)
	if err != nil {
		return err
	}
	for _, name := range all {
		at, _ := parking.TimeOf(name)
		l := listedCapture{name, at, parking.OutcomeOf(name)}
		err := p.print(l, func(t cli.Fields) {
			fmt.Fprintf(t, "%s  %s  %s\n", cli.Ago(at, p.Now()), l.Outcome, cli.Plain(name))
		})
		if err != nil {
			return err
		}
	}
	if len(all) == 0 {
		fmt.Fprintln(p.Err, ErrNoneCaptured)
	}
	return attention(nil, len(all) == 0)
}

// ErrNoneCaptured is returned when no rejected webhook is stored.
var ErrNoneCaptured = errors.New("no rejected webhook is stored: captureRejected is off or has ended, none was " +
	"rejected since, or they were deleted after a day")

// Captured returns a rejected webhook of a stack and its name: the one of that name, or
// the last one if name is empty.
func Captured(ctx context.Context, t deployment.Target, name string) (parking.Captured, string, error) {
	d, err := connect(ctx, t)
	if err != nil {
		return parking.Captured{}, "", err
	}
	if name == "" {
		all, err := d.store.ListCaptured(ctx)
		if err != nil {
			return parking.Captured{}, "", err
		}
		if len(all) == 0 {
			return parking.Captured{}, "", ErrNoneCaptured
		}
		name = all[len(all)-1]
	}
	r, err := d.store.Captured(ctx, name)
	return r, name, err
}

// shownCapture is what is shown of a rejected webhook.
type shownCapture struct {
	Name string `json:"name"`
	parking.Captured
}

func (p *program) capturedShow(ctx context.Context, d *stack, name string, payload bool) error {
	r, err := d.store.Captured(ctx, name)
	if errors.Is(err, parking.ErrNotCaptured) {
		fmt.Fprintln(p.Err, "there is no rejected webhook of this name; they are deleted after a day")
		return cli.ErrAttention
	}
	if err != nil {
		return err
	}
	if payload && !p.JSON {
		if r.Payload == nil && r.PayloadBytes > 0 {
			return fmt.Errorf("the payload was not stored: it has %d bytes, and at most %d are", r.PayloadBytes,
				parking.MaxCapturedPayload)
		}
		_, err := p.Out.Write(r.Payload)
		return err
	}
	if !payload {
		r.Payload = nil
	}
	return p.print(shownCapture{name, r}, func(t cli.Fields) {
		t.Line("received", "%s", cli.Ago(r.ReceivedAt, p.Now()))
		t.Line("outcome", "%s", cli.Plain(r.Outcome))
		t.Line("cause", "%s", cli.Plain(r.Cause))
		t.Line("request", "%s", cli.Plain(strings.TrimSuffix(r.Method+" "+r.Path+"?"+r.RawQuery, "?")))
		t.Line("source", "%s", cli.Plain(r.SourceIP))
		t.Line("request id", "%s", cli.Plain(r.RequestID))
		t.Line("payload", "%d bytes, SHA-256 %s", r.PayloadBytes, r.PayloadSHA256)
		for _, header := range slices.Sorted(maps.Keys(r.Headers)) {
			t.Line("header "+strings.ToLower(cli.Plain(header)), "%s", cli.Plain(r.Headers[header]))
		}
	})
}
