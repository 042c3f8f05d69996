// Package send has the commands local send, which sends signed webhooks to a stack of the local
// run, and local fault, which makes its simulated payment service fail. That service signs;
// neither takes a private key.
package send

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"uuid"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

const long = `Sends signed webhooks to a stack of the local run, and prints each answer. The simulated
payment service of the local run signs and sends them, with the headers that are
deployed. --stack chooses another stack than that of the local run.

--corrupt takes signature, payload, timestamp or keyid, which is changed after signing;
wrong-key or unknown-key, which signs; and signature, timestamp or keyid with -missing,
-malformed or -repeated.

Status 1: an answer is not the expected one: 2xx, or what --expect lists.
Status 3: there was no answer.

With --json, one document a line: number, status (0 for no answer), expected,
milliseconds, answer.`

const example = `  payhook local send --events 25                  25 events in one delivery
  payhook local send --count 10 --duplicates 5    10 deliveries, then 5 of them again
  payhook local send --corrupt signature --expect 401
  payhook local send --age 10m --expect 401       an old timestamp; -10m is in the future
  payhook local send --amount 2500000.00 --currency EUR
  payhook local send --conflict                   one eventId with two contents
  payhook local send --file events/webhook/one-event.json
  payhook local send --pad 6300000 --expect 413   more than Lambda takes
  payhook local send --rotate                     signed with a new key
  payhook local send --certificate expired --expect 403`

// options are the flags.
type options struct {
	p      *cli.Program
	target *deployment.Target

	like                           paymenttest.Webhook // what all webhooks have
	file                           string
	count, duplicates, events, pad int
	amount, currency, expect       string
	conflict                       bool
	rotate, rotateCertificate      bool
}

// Command returns the command. It uses the stack and the id of the target, which is made local.
func Command(p *cli.Program, t *deployment.Target) *cobra.Command {
	o := &options{p: p, target: t}
	cmd := &cobra.Command{
		Use: "send", Short: "Send signed webhooks", Long: long, Example: example, Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.NoTargetFlags(cmd, "local", "stack", "id"); err != nil {
				return err
			}
			t.Local = true
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.count, "count", 1, "number of new deliveries")
	f.IntVar(&o.duplicates, "duplicates", 0, "number of these deliveries to send again afterwards")
	f.IntVar(&o.events, "events", 1, "events in each delivery")
	f.StringVar(&o.expect, "expect", "2xx", "expected statuses, such as 401, 4xx or 401,503; none for no answer")
	f.StringVar(&o.file, "file", "",
		"`file` with a payload, sent byte for byte, or with a sample event of a function URL, whose payload is sent; "+
			"- is standard input")
	f.StringVar(&o.amount, "amount", "", "amount, as digits (default 1250.00)")
	f.StringVar(&o.currency, "currency", "", "paymentCurrency (default USD)")
	f.BoolVar(&o.conflict, "conflict", false, "send the first event again with another amount, which is a conflict")
	f.IntVar(&o.pad, "pad", 0, "bytes of white space to add to each payload")
	cli.ChoiceVar(cmd, (*string)(&o.like.Flaw), "corrupt", "`part` that is wrong: of the signature or the message",
		words(paymenttest.Flaws())...)
	cli.DurationVar(f, &o.like.Age, "age", 0, "age of the timestamp, such as 10m; -10m is in the future")
	f.BoolVar(&o.rotate, "rotate", false, "from now on, the simulated service signs with a new key")
	certificates := append([]string{string(paymenttest.NoCertificate)}, words(paymenttest.CertificateFlaws())...)
	cli.ChoiceVar(cmd, (*string)(&o.like.Certificate), "certificate", "`flaw`: what is wrong with the client "+
		"certificate: "+strings.Join(certificates, ", "), certificates...)
	f.BoolVar(&o.rotateCertificate, "rotate-certificate", false,
		"from now on, the simulated service presents a new client certificate")
	return cmd
}

func (o *options) run(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	first, again, err := o.first() // before anything is done, since a flag can be wrong
	if err != nil {
		return err
	}
	d, err := deployment.Connect(ctx, *o.target)
	if err != nil {
		return cli.Unreachable(err)
	}
	service, err := simulated(d)
	if err != nil {
		return err
	}
	if o.like.Certificate != "" && !strings.HasPrefix(d.WebhookURL, "https:") {
		return cli.Usage("stack %s asks for no client certificates: --certificate needs one that does:\n  %s", d.Stack,
			d.Restart(map[string]string{"authentication": settings.ByBoth}))
	}
	rotate := paymenttest.Command{Rotate: o.rotate, RotateCertificate: o.rotateCertificate}
	if _, err := service.Do(ctx, rotate); err != nil {
		return cli.Unreachable(err)
	}
	s := sending{o: o, service: service, url: d.WebhookURL}
	repeated := []paymenttest.Webhook{first} // only these stay in memory
	for i := range o.count + o.duplicates {
		w := first
		switch {
		case i >= o.count:
			w = repeated[(i-o.count)%len(repeated)]
		case i > 0:
			w = o.webhook(first)
			if i < o.duplicates {
				repeated = append(repeated, w)
			}
		}
		if err := s.send(ctx, w); err != nil {
			return err
		}
	}
	if o.conflict {
		if err := s.send(ctx, again); err != nil {
			return err
		}
	}
	return s.result()
}

// check returns an error of usage if a flag is wrong or contradicts another.
func (o *options) check() error {
	if o.count < 0 || o.events < 0 || o.duplicates < 0 || o.pad < 0 {
		return cli.Usage("no number may be negative")
	}
	// Lambda takes 6 MB (AWS, "Lambda quotas").
	if o.events > 20_000 || o.pad > 100<<20 {
		return cli.Usage("at most 20000 events and 100 MiB of white space: a delivery with more is never accepted")
	}
	if _, ok := payment.Amount(o.amount).Rat(); o.amount != "" && !ok {
		return cli.Usage("--amount %s: is not a JSON number", o.amount)
	}
	if o.count == 0 && (o.duplicates > 0 || o.conflict) {
		return cli.Usage("--duplicates and --conflict need a delivery to repeat: --count must be at least 1")
	}
	for expected := range strings.SplitSeq(o.expect, ",") {
		if !expectation.MatchString(expected) {
			return cli.Usage("--expect %s: must be statuses such as 401, 4xx or none, joined by commas", o.expect)
		}
	}
	return nil
}

// words returns flaws as texts.
func words[T ~string](flaws []T) (texts []string) {
	for _, flaw := range flaws {
		texts = append(texts, string(flaw))
	}
	return texts
}

// expectation is one of --expect.
var expectation = regexp.MustCompile(`^([1-5]\d\d|[1-5]xx|none)$`)

// expected reports whether --expect has a status; 0 is no answer.
func (o *options) expected(status int) bool {
	words := strings.Split(o.expect, ",")
	if status == 0 {
		return slices.Contains(words, "none")
	}
	return slices.Contains(words, strconv.Itoa(status)) || slices.Contains(words, strconv.Itoa(status/100)+"xx")
}

// first returns the first webhook, and with --conflict a delivery of its first event with another amount.
// Their URLs have at most a query.
func (o *options) first() (first, again paymenttest.Webhook, err error) {
	w := o.like
	if o.file != "" {
		var text []byte
		if o.file == "-" {
			text, err = io.ReadAll(o.p.In)
		} else {
			text, err = os.ReadFile(o.file)
		}
		if err != nil {
			return w, w, cli.Usage("%w", err)
		}
		read(text, &w)
		w.Payload = append(w.Payload, strings.Repeat(" ", o.pad)...)
	}
	first = o.webhook(w)
	if again = first; !o.conflict {
		return first, again, nil
	}
	delivery, err := payment.DecodeDelivery(first.Payload)
	if err != nil || len(delivery.Events) == 0 {
		return first, again, cli.Usage("--conflict needs a delivery with an event")
	}
	e, err := payment.DecodeEvent(delivery.Events[0].Bytes)
	if err != nil {
		return first, again, cli.Usage("--conflict: %w", err)
	}
	e.EventData.Amount = "1" + payment.Amount(strings.TrimPrefix(string(e.EventData.Amount), "-"))
	again.Payload = paymenttest.RawDelivery(uuid.New().String(), paymenttest.Encode(e))
	return first, again, nil
}

// webhook returns a webhook like the given one, and with new events unless there is a file.
func (o *options) webhook(w paymenttest.Webhook) paymenttest.Webhook {
	if o.file != "" {
		return w
	}
	events := make([][]byte, o.events)
	for i := range events {
		e := paymenttest.Event()
		e.EventData.Amount = cmp.Or(payment.Amount(o.amount), e.EventData.Amount)
		e.EventData.PaymentCurrency = cmp.Or(o.currency, e.EventData.PaymentCurrency)
		events[i] = paymenttest.Encode(e)
	}
	w.Payload = append(paymenttest.RawDelivery(uuid.New().String(), events...), strings.Repeat(" ", o.pad)...)
	return w
}

// answer is one answer, as it is printed.
type answer struct {
	Number       int   `json:"number"`
	Status       int   `json:"status"` // 0 for no answer
	Expected     bool  `json:"expected"`
	Milliseconds int64 `json:"milliseconds"`
	Answer       any   `json:"answer,omitempty"` // JSON, or text
}

// sending sends webhooks, one after another, and prints every answer.
type sending struct {
	o       *options
	service paymenttest.Remote
	url     string // of the stack's webhook

	sent, unexpected int
	unauthorized     bool
	noAnswer         error
}

// send sends a webhook. Its error ends the command.
func (s *sending) send(ctx context.Context, w paymenttest.Webhook) error {
	s.sent++
	w.URL = s.url + w.URL
	start := time.Now()
	got, err := s.service.Do(ctx, paymenttest.Command{Send: &paymenttest.Order{Webhook: w}})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	a := answer{s.sent, got.Status, s.o.expected(got.Status), time.Since(start).Milliseconds(), nil}
	switch {
	case a.Expected:
	case err != nil:
		s.noAnswer = err
	default:
		s.unexpected++
		s.unauthorized = s.unauthorized || a.Status == http.StatusUnauthorized
	}
	if json.Valid([]byte(got.Body)) {
		a.Answer = json.RawMessage(got.Body)
	} else if len(got.Body) > 0 {
		a.Answer = got.Body
	}
	switch {
	case s.o.p.JSON:
		return s.o.p.PrintJSON(a)
	case a.Status == 0:
		_, err = fmt.Fprintf(s.o.p.Out, "%d: no answer\n", a.Number)
	default:
		_, err = fmt.Fprintf(s.o.p.Out, "%d: %d in %d ms: %s\n", a.Number, a.Status, a.Milliseconds, got.Body)
	}
	return err
}

// result returns an error if an answer was not as expected.
func (s *sending) result() error {
	if s.noAnswer != nil {
		return cli.Unreachable(fmt.Errorf("no answer: %w", s.noAnswer))
	}
	if s.unexpected == 0 {
		return nil
	}
	err := fmt.Errorf("%s not answered with %s; --expect says what is expected",
		cli.Counted(s.unexpected, "webhook was", "webhooks were"), s.o.expect)
	if !s.unauthorized {
		return err
	}
	return fmt.Errorf("%w\nIf captureRejected is on, as after make up, this says why:\n  %s", err,
		s.o.p.Hint(s.o.target, "explain"))
}
