package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/parking"
)

func (p *program) capturedCommands() []*cobra.Command {
	list := &cobra.Command{
		Use:   "list",
		Short: "List the rejected webhooks that were captured",
		Long: `Lists the webhooks that were rejected before they were found authentic and that
captureRejected stored, the earliest first. Nothing about them is proven: anybody who
knows the URL can have sent them. S3 removes them from this list one to two days after
they were stored.`,
		Example: "  payhook explain list\n  payhook explain list --local",
		Args:    cli.Args(),
		RunE:    p.on(p.capturedList),
	}
	show := p.show(&cobra.Command{
		Use:   "show NAME",
		Short: "Show one rejected webhook",
		Long: `Shows a rejected webhook without its payload. "payhook explain list" has the names, and
"payhook explain --captured NAME" explains it. The values of Authorization, cookies and
other credentials were not stored.

Status 1: there is none of this name.`,
		Example: "  payhook explain show NAME\n  payhook explain show NAME --payload > body.json",
	}, p.capturedShow)
	return []*cobra.Command{list, show}
}

func (p *program) capturedList(ctx context.Context, d *stack, _ []string) error {
	names, err := d.store.ListCaptured(ctx)
	if err != nil {
		return err
	}
	type captured struct {
		ReceivedAt time.Time `json:"receivedAt"`
		Outcome    string    `json:"outcome"`
		Name       string    `json:"name"`
	}
	var list []captured
	rows := cli.Rows{{"RECEIVEDAT", "OUTCOME", "NAME"}}
	for _, name := range names {
		at, _ := parking.TimeOf(name)
		list = append(list, captured{at, parking.OutcomeOf(name), name})
		rows = append(rows, []any{at, parking.OutcomeOf(name), name})
	}
	if len(list) == 0 {
		fmt.Fprintln(p.Err, ErrNoneCaptured)
	}
	return cli.List(p.Program, list, rows)
}

// ErrNoneCaptured is returned when no rejected webhook is stored.
var ErrNoneCaptured = errors.New("no rejected webhook is stored: captureRejected is off or has ended, none was " +
	"rejected since, or they were deleted after a day")

// Captured returns a rejected webhook of a stack and its name: the one of that name, or
// the last one if name is empty.
func Captured(ctx context.Context, p *cli.Program, t *deployment.Target,
	name string) (parking.Captured, string, error) {
	d, err := connect(ctx, p, t)
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

func (p *program) capturedShow(ctx context.Context, d *stack, name string, payload bool) error {
	r, err := d.store.Captured(ctx, name)
	switch {
	case errors.Is(err, parking.ErrNotCaptured):
		fmt.Fprintln(p.Err, "there is no rejected webhook of this name; they are deleted after a day")
		return cli.ErrAttention
	case err != nil:
		return err
	case payload && len(r.Payload) < r.PayloadBytes:
		return fmt.Errorf("the payload was not stored: it has %d bytes, and at most %d are", r.PayloadBytes,
			parking.MaxCapturedPayload)
	case payload:
		_, err := p.Out.Write(r.Payload)
		return err
	}
	r.Payload = nil
	pairs := slices.Concat([]any{"receivedAt", r.ReceivedAt, "requestId", r.RequestID, "outcome", r.Outcome,
		"cause", r.Cause, "method", r.Method, "path", r.Path, "rawQuery", r.RawQuery, "sourceIp", r.SourceIP,
		"payloadBytes", r.PayloadBytes, "payloadSha256", r.PayloadSHA256},
		cli.Pairs("headers", r.Headers), cli.Pairs("settings", r.Settings))
	return p.Show(r, pairs...)
}
