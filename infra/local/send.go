package local

import (
	"bytes"
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/stack"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/wire"
)

// sendCommand returns the command that sends webhooks. It uses the stack and the id of the target, which is local.
func sendCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use: "send [JSON]", Short: "Send signed webhooks",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.NoTargetFlags(cmd, "local", "stack", "id"); err != nil {
				return err
			}
			order := map[string]jsontext.Value{} // the digits of an amount stay
			if len(args) > 0 {
				if err := json.Unmarshal([]byte(args[0]), &order); err != nil {
					return cli.Usage("not a JSON object: %w", err)
				} else if order == nil {
					return cli.Usage("not a JSON object: null")
				}
			}
			p.Target.Local = true
			return send(cmd.Context(), p, order)
		},
	}
}

// send has the payment service of a local run send a webhook to one of its stacks.
func send(ctx context.Context, p *cli.Program, order map[string]jsontext.Value) error {
	d, err := stack.Connect(ctx, p.Target)
	if err != nil {
		return cli.Unreachable(err)
	}
	if order["url"] == nil {
		order["url"] = jsontext.Value(strconv.Quote(d.WebhookURL))
	}
	body, err := json.Marshal(map[string]any{"send": order})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.PaymentService+paymenttest.ControlPath,
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := stack.Direct.Do(r)
	if err != nil {
		return cli.Unreachable(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return cli.Usage("%s", bytes.TrimSpace(text))
	}
	var got wire.ControlReport
	if err = json.Unmarshal(text, &got); err != nil {
		return err
	}
	if p.JSON {
		err = p.PrintJSON(got)
	} else {
		_, err = fmt.Fprintln(p.Out, got.Status, got.Body)
	}
	if err == nil && got.Status == http.StatusUnauthorized {
		fmt.Fprintf(p.Err, "if storeRejected is on, as after make up, this says why:\n  %s\n", p.Hint("explain"))
	}
	if err == nil && got.Status/100 != 2 {
		err = cli.ErrAttention
	}
	return err
}
