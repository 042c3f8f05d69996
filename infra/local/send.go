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

// sendCommand returns the command that sends webhooks. It uses the stack and the id of a target, which is local.
func sendCommand(p *cli.Program, t *stack.Stack) *cobra.Command {
	return &cobra.Command{
		Use: "send [JSON]", Short: "Send signed webhooks",
		Long: `Has the simulated payment service sign a webhook and send it to a stack of the local run,
as the settings of the local run say, and prints the answer. Without JSON, it has one new
event. The members of the JSON object:

  events, amount, currency  the number of new events, and what each has
  kind         duplicate sends the last delivery again, and conflict its first event
               with another amount. The others are not authentic: signature, payload,
               timestamp or keyid is changed after signing; wrong-key or unknown-key
               signs; signature-missing, or signature-, timestamp- or keyid-repeated
  age          of the timestamp, such as "10m"; "-10m" is in the future
  certificate  what is wrong with the client certificate, such as none or expired
  payload, contentType, method, header, url  of the request; payload is Base64

The control endpoint of the service takes the same as "send", rotates the key, and makes
its endpoints fail (down, hang-up, slow, status, garbage; "" ends it):

  curl -d '{"faults": {"keys": "down"}, "rotate": true, "send": {}}' $BASE_URL/control

Status 1: the webhook was not answered with 2xx.

With --json, the document that the endpoint answers: keyId, faults, status, body.`,
		Example: "  payhook local send\n" +
			`  payhook local send '{"events": 25, "amount": 2500000.00, "currency": "EUR"}'` + "\n" +
			`  payhook local send '{"kind": "signature"}'`,
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
			t.Local = true
			return send(cmd.Context(), p, *t, order)
		},
	}
}

// send has the payment service of a local run send a webhook to one of its stacks.
func send(ctx context.Context, p *cli.Program, target stack.Stack, order map[string]jsontext.Value) error {
	d, err := stack.Connect(ctx, target)
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
