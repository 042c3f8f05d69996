package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/parking"
)

func (p *program) capturedListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the rejected webhooks that were captured",
		Long: `Lists the webhooks that were rejected before they were found authentic and that
captureRejected stored, the earliest first. Nothing about them is proven: anybody who
knows the URL can have sent them. S3 removes them from this list one to two days after
they were stored.`,
		Example: "  payhook captured list\n  payhook captured list --local",
		Args:    cli.Args(),
		RunE:    p.on(p.capturedList),
	}
}

func (p *program) capturedShowCommand() *cobra.Command {
	return p.show(&cobra.Command{
		Use:   "show NAME",
		Short: "Show one rejected webhook",
		Long: `Shows a rejected webhook without its payload. "payhook captured list" has the names, and
"payhook explain --captured NAME" explains it. The values of Authorization, cookies and
other credentials were not stored.

Status 1: there is none of this name.`,
		Example: "  payhook captured show NAME\n  payhook captured show NAME --payload > body.json",
	}, p.capturedShow)
}

func (p *program) capturedReplayCommand() *cobra.Command {
	var reason string
	var acceptAge, yes bool
	cmd := &cobra.Command{
		Use:   "replay NAME...",
		Short: "Publish a rejected webhook that verifies by now",
		Long: `Lets the redrive function receive a captured webhook with the present settings, as if it
arrived now: with every check of the webhook function, and with its evidence. It is for
webhooks of the service that a wrong setting rejected. Deploy the right setting first,
with captureRejected: without it, the function does not read captured webhooks.

By now, a webhook is usually older than timestampTolerance and rejected. --accept-age
checks its timestamp against the time when it arrived.

Who replayed it, when and why is stored in the parking bucket, under
replayed/captured-NAME, and stays there when the captured webhook expires.

Outcomes of a replay:

  accepted  every event is recorded, now (recorded) or before (duplicates), and published
            unless a cause says that it is parked, or it was parked before
  recorded  redrive publishes it within a minute

Every other outcome is a failure, with its cause. With conflict and invalid, the webhook
is authentic and parked. These need the service to send the webhook again:

  certificate-not-captured  authentication is mtls or both: a client certificate is not
                            captured
  payload-incomplete        the body was too large to be captured
  signature-missing         the settings named another place of the signature when it was
                            captured, so that its value is not stored

A webhook that is replayed twice is a duplicate. It asks before it replays more than one.

Status 1: the outcome of at least one is neither accepted nor recorded.`,
		Example: "  payhook captured replay NAME --accept-age --reason 'baseUrl was wrong'",
		Args: func(cmd *cobra.Command, names []string) error {
			switch {
			case len(names) == 0:
				return fmt.Errorf("names are missing: %s has them", p.hint("captured list"))
			case strings.TrimSpace(reason) == "":
				return errors.New("--reason is missing: say why it was rejected wrongly")
			}
			return nil
		},
		RunE: p.on(func(ctx context.Context, s *stack, names []string) error {
			if len(names) > 1 && !yes {
				if err := p.Confirm(ctx, fmt.Sprintf("Replay %d in %s?", len(names), s.Name)); err != nil {
					return err
				}
			}
			return p.decide(ctx, s, names, func(name string) request {
				return request{Captured: []string{strings.TrimPrefix(name, parking.CapturedPrefix)}, Reason: reason,
					AcceptAge: acceptAge}
			})
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why it was rejected wrongly (required)")
	cmd.Flags().BoolVar(&acceptAge, "accept-age", false, "check its age as of when it arrived")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask; required without a terminal")
	return cmd
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
		fmt.Fprintln(p.Err, errNoneCaptured)
	}
	return cli.List(p.Program, list, rows)
}

// errNoneCaptured is returned when no rejected webhook is stored.
var errNoneCaptured = errors.New("no rejected webhook is stored: captureRejected is off or has ended, none was " +
	"rejected since, or they were deleted after a day")

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
	state, note, err := d.store.Decision(ctx, parking.CapturedPrefix+name)
	if err != nil {
		return err
	}
	document := struct {
		parking.Captured
		Replayed *parking.Note `json:"replayed,omitempty"`
	}{Captured: r}
	if state == parking.Replayed {
		document.Replayed = &note
	}
	pairs := slices.Concat([]any{"receivedAt", r.ReceivedAt, "requestId", r.RequestID, "outcome", r.Outcome,
		"cause", r.Cause, "method", r.Method, "path", r.Path, "rawQuery", r.RawQuery, "sourceIp", r.SourceIP,
		"payloadBytes", r.PayloadBytes, "payloadSha256", r.PayloadSHA256},
		cli.Pairs("headers", r.Headers), cli.Pairs("settings", r.Settings),
		[]any{"replayed.by", note.By, "replayed.at", note.At, "replayed.reason", note.Reason,
			"replayed.ageAccepted", note.AgeAccepted})
	return p.Show(document, pairs...)
}
