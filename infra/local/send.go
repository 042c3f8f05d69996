package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

const sendLong = `Sends a signed webhook to a stack of the local run, and prints the answer. The simulated
payment service signs and sends it, as the settings of the local run say. --stack chooses
another stack.

--kind duplicate sends the last delivery again, and conflict its first event with another
amount. The other kinds are not authentic: signature, payload, timestamp or keyid is
changed after signing; wrong-key or unknown-key signs; and signature, timestamp or keyid
with -missing, -malformed or -repeated.

The control endpoint of the simulated service does the same, rotates the key, and makes
its endpoints fail (down, hang-up, slow, status, garbage; "" ends it):

  curl -d '{"faults": {"keys": "down"}, "rotate": true, "send": {}}' $BASE_URL/control

Status 1: the webhook was not answered, or not as expected: 2xx, or what --expect says.

With --json, one document: status, expected, milliseconds, answer.`

const sendExample = `  payhook local send --events 25                  25 events in one delivery
  payhook local send --amount 2500000.00 --currency EUR
  payhook local send --kind signature --expect 401
  payhook local send --age 10m --expect 401       an old timestamp; -10m is in the future
  payhook local send --file delivery.json
  payhook local send --certificate expired --expect 403`

// sending are the flags of the command send.
type sending struct {
	*cli.Program
	target               deployment.Deployment
	order                paymenttest.Order // what is sent
	amount, file, expect string
}

// sendCommand returns the command that sends webhooks. It uses the stack and the id of a target, which is local.
func sendCommand(p *cli.Program, t *deployment.Deployment) *cobra.Command {
	s := &sending{Program: p}
	cmd := &cobra.Command{
		Use: "send", Short: "Send signed webhooks", Long: sendLong, Example: sendExample, Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.NoTargetFlags(cmd, "local", "stack", "id"); err != nil {
				return err
			}
			s.target = *t
			s.target.Local = true
			return s.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.IntVar(&s.order.Events, "events", 1, "number of events")
	f.StringVar(&s.amount, "amount", "", "amount of the events, as digits (default 1250.00)")
	f.StringVar(&s.order.Currency, "currency", "", "paymentCurrency of the events (default USD)")
	f.StringVar(&s.file, "file", "", "`file` with a payload, which is sent byte for byte")
	cli.ChoiceVar(cmd, (*string)(&s.order.Flaw), "kind", "`kind` of webhook (default one that is authentic and new)",
		words(append(paymenttest.Flaws(), paymenttest.Duplicate, paymenttest.Conflict))...)
	cli.DurationVar(f, &s.order.Age, "age", 0, "age of the timestamp, such as 10m; -10m is in the future")
	certificates := words(paymenttest.CertificateFlaws())
	cli.ChoiceVar(cmd, (*string)(&s.order.Certificate), "certificate", "`flaw`: what is wrong with the client "+
		"certificate: "+strings.Join(certificates, ", "), certificates...)
	f.StringVar(&s.expect, "expect", "2xx", "expected status, such as 401 or 4xx")
	return cmd
}

// words returns flaws as texts.
func words[T ~string](flaws []T) (texts []string) {
	for _, flaw := range flaws {
		texts = append(texts, string(flaw))
	}
	return texts
}

func (s *sending) run(ctx context.Context) error {
	s.order.Amount = payment.Amount(s.amount)
	if _, ok := s.order.Amount.Rat(); s.amount != "" && !ok {
		return cli.Usage("--amount %s: is not a JSON number", s.amount)
	}
	if !regexp.MustCompile(`^[1-5](\d\d|xx)$`).MatchString(s.expect) {
		return cli.Usage("--expect %s: must be a status such as 401 or 4xx", s.expect)
	}
	if s.order.Events < 1 {
		return cli.Usage("--events must be at least 1")
	}
	if s.file != "" {
		var err error
		if s.order.Payload, err = os.ReadFile(s.file); err != nil {
			return cli.Usage("--file: %w", err)
		}
	}
	service, err := s.connect(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	got, err := service.Do(ctx, paymenttest.Command{Send: &s.order})
	if _, unreachable := errors.AsType[*url.Error](err); unreachable {
		return cli.Unreachable(err)
	} else if err != nil {
		return err
	}
	expected := strings.HasPrefix(strconv.Itoa(got.Status), strings.TrimRight(s.expect, "x"))
	if ms := time.Since(start).Milliseconds(); s.JSON {
		answer := any(got.Body)
		if json.Valid([]byte(got.Body)) {
			answer = json.RawMessage(got.Body)
		}
		err = s.PrintJSON(map[string]any{"status": got.Status, "expected": expected, "milliseconds": ms,
			"answer": answer})
	} else {
		_, err = fmt.Fprintf(s.Out, "%d in %d ms: %s\n", got.Status, ms, got.Body)
	}
	if err != nil || expected {
		return err
	}
	err = fmt.Errorf("the webhook was not answered with %s; --expect says what is expected", s.expect)
	if got.Status == http.StatusUnauthorized {
		return fmt.Errorf("%w\nIf captureRejected is on, as after make up, this says why:\n  %s", err,
			s.Hint(&s.target, "explain"))
	}
	return err
}

// connect returns the service that signs, and sets where the order is sent.
func (s *sending) connect(ctx context.Context) (service paymenttest.Remote, err error) {
	d, err := deployment.Connect(ctx, s.target)
	switch {
	case err != nil:
		return service, cli.Unreachable(err)
	case !d.Simulated:
		return service, cli.Usage("only the simulated payment service signs on request, and this local run uses %s: "+
			"let it send its own webhooks", d.PaymentService)
	case s.order.Certificate != "" && !strings.HasPrefix(d.WebhookURL, "https:"):
		return service, cli.Usage("stack %s asks for no client certificates: --certificate needs one that does:\n  %s",
			d.Stack, d.Restart(map[string]string{"authentication": settings.ByBoth}))
	}
	s.order.URL = d.WebhookURL
	return paymenttest.Remote{URL: d.PaymentService}, nil
}
