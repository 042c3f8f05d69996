// Package send has the commands that make signed webhooks: local send, which sends them to a
// stack of the local run, and invoke, which invokes a function with a sample event. The
// simulated payment service of the local run signs; neither takes a private key. The command
// local fault makes that service fail.
package send

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
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
payment service of the local run signs and sends them, with the method and headers that
are deployed. --stack chooses another stack than that of the local run.

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
  payhook local send --certificate expired --expect 403 --stack PayhookMTLS`

// options are the flags.
type options struct {
	p      *cli.Program
	target *deployment.Target

	file                           string
	count, duplicates, events, pad int
	name, eventID                  string
	amount, currency               string
	conflict                       bool
	corrupt                        string        // what is wrong with the proof; "" for nothing
	age                            time.Duration // of the timestamp; negative in the future
	rotate, rotateCertificate      bool
	certificate, expect            string
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
	f.StringVar(&o.name, "name", "", "eventName (default PAYMENT_STATUS.RELEASED)")
	f.StringVar(&o.eventID, "event-id", "", "eventId of the first event (default a new one)")
	f.BoolVar(&o.conflict, "conflict", false, "send the first event again with another amount, which is a conflict")
	f.IntVar(&o.pad, "pad", 0, "bytes of white space to add to each payload")
	cli.ChoiceVar(cmd, &o.corrupt, "corrupt", "`flaw`: what is wrong with the proof", words(paymenttest.Flaws())...)
	cli.DurationVar(f, &o.age, "age", 0, "age of the timestamp, such as 10m; -10m is in the future")
	f.BoolVar(&o.rotate, "rotate", false, "from now on, the simulated service signs with a new key")
	certificates := append([]string{string(paymenttest.NoCertificate)}, words(paymenttest.CertificateFlaws())...)
	cli.ChoiceVar(cmd, &o.certificate, "certificate", "`flaw`: what is wrong with the client certificate: "+
		strings.Join(certificates, ", "), certificates...)
	f.BoolVar(&o.rotateCertificate, "rotate-certificate", false,
		"from now on, the simulated service presents a new client certificate")
	return cmd
}

func (o *options) run(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	webhooks, err := o.webhooks() // before anything is done, since a flag can be wrong
	if err != nil {
		return err
	}
	d, err := deployment.Connect(ctx, *o.target)
	if err != nil {
		return cli.Unreachable(err)
	}
	service, conf, err := simulated(ctx, d)
	if err != nil {
		return err
	}
	if o.certificate != "" && conf.setting("authentication") == settings.BySignature {
		return cli.Usage("stack %s asks for no client certificates: --certificate needs one that does:\n  %s", d.Stack,
			d.Restart(map[string]string{"authentication": settings.ByBoth}))
	}
	if o.rotate {
		_, err = service.Rotate(ctx)
	}
	if err == nil && o.rotateCertificate {
		_, err = service.RotateCertificate(ctx)
	}
	if err != nil {
		return cli.Unreachable(err)
	}
	return o.sendAll(ctx, service, webhooks, paymenttest.Webhook{URL: d.WebhookURL,
		Method: conf.setting("httpMethod"), Carriers: conf.carriers()})
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

// webhooks returns what is sent, in this order. Each is made when it is sent, and stays in memory only if it is
// sent again. Their URLs have at most a query.
func (o *options) webhooks() (iter.Seq[paymenttest.Webhook], error) {
	given, err := o.given()
	if err != nil {
		return nil, err
	}
	first := o.webhook(given, o.eventID)
	again := first
	if o.conflict {
		if again, err = conflicting(first); err != nil {
			return nil, err
		}
	}
	return func(yield func(paymenttest.Webhook) bool) {
		var kept []paymenttest.Webhook
		for i := range o.count + o.duplicates {
			w := first
			if i >= o.count {
				w = kept[(i-o.count)%len(kept)]
			} else if i > 0 {
				w = o.webhook(given, "")
			}
			if i < min(o.count, o.duplicates) {
				kept = append(kept, w)
			}
			if !yield(w) {
				return
			}
		}
		if o.conflict {
			yield(again)
		}
	}, nil
}

// webhook returns a webhook like the given one, and with new events unless there is a file. eventID is that of the
// first event; "" for a new one.
func (o *options) webhook(w paymenttest.Webhook, eventID string) paymenttest.Webhook {
	if o.file == "" {
		w.Payload = o.payload(eventID)
	}
	w.Payload = append(w.Payload, strings.Repeat(" ", o.pad)...)
	w.Age, w.Flaw, w.Certificate = o.age, paymenttest.Flaw(o.corrupt), paymenttest.CertificateFlaw(o.certificate)
	return w
}

// conflicting returns a delivery with the first event of another and another amount.
func conflicting(w paymenttest.Webhook) (paymenttest.Webhook, error) {
	delivery, err := payment.DecodeDelivery(w.Payload)
	if err != nil || len(delivery.Events) == 0 {
		return w, cli.Usage("--conflict needs a delivery with an event")
	}
	e, err := payment.DecodeEvent(delivery.Events[0].Bytes)
	if err != nil {
		return w, cli.Usage("--conflict: %w", err)
	}
	e.EventData.Amount = "1" + payment.Amount(strings.TrimPrefix(string(e.EventData.Amount), "-"))
	w.Payload = paymenttest.RawDelivery(uuid.New().String(), paymenttest.Encode(e))
	return w, nil
}

// given returns the webhook of --file; the zero webhook without the flag.
func (o *options) given() (w paymenttest.Webhook, err error) {
	switch o.file {
	case "":
		return w, nil
	case "-":
		w.Payload, err = io.ReadAll(o.p.In)
	default:
		w.Payload, err = os.ReadFile(o.file)
	}
	if err != nil {
		return w, cli.Usage("%w", err)
	}
	if sample, ok := parseSample(w.Payload); ok {
		return sample.webhook(""), nil
	}
	return w, nil
}

func (o *options) payload(eventID string) []byte {
	events := make([][]byte, o.events)
	for i := range events {
		e := paymenttest.Event()
		if eventID != "" && i == 0 {
			e.EventID = eventID
		}
		if o.name != "" {
			e.EventName = o.name
		}
		if o.amount != "" {
			e.EventData.Amount = payment.Amount(o.amount)
		}
		e.EventData.PaymentCurrency = cmp.Or(o.currency, e.EventData.PaymentCurrency)
		events[i] = paymenttest.Encode(e)
	}
	return paymenttest.RawDelivery(uuid.New().String(), events...)
}

// result is one answer.
type result struct {
	Number       int   `json:"number"`
	Status       int   `json:"status"` // 0 for no answer
	Expected     bool  `json:"expected"`
	Milliseconds int64 `json:"milliseconds"`
	Answer       any   `json:"answer,omitempty"` // JSON, or text
}

// sendAll sends webhooks, one after another, and prints every answer. The URL, method and carriers are those
// of to.
func (o *options) sendAll(ctx context.Context, service paymenttest.Remote, webhooks iter.Seq[paymenttest.Webhook],
	to paymenttest.Webhook) error {
	sent, unexpected, unauthorized := 0, 0, false
	var noAnswer error
	start := time.Now()
	for w := range webhooks {
		sent++
		w.URL, w.Method, w.Carriers = to.URL+w.URL, cmp.Or(w.Method, to.Method), to.Carriers
		got, err := sendOne(ctx, service, w)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		got.Number, got.Expected = sent, o.expected(got.Status)
		switch {
		case got.Expected:
		case err != nil:
			noAnswer = err
		default:
			unexpected++
			unauthorized = unauthorized || got.Status == http.StatusUnauthorized
		}
		if err := o.print(got); err != nil {
			return err
		}
	}
	if sent > 1 {
		fmt.Fprintf(o.p.Err, "%d webhooks were sent in %s\n", sent, cli.Readable(time.Since(start)))
	}
	if noAnswer != nil {
		return cli.Unreachable(fmt.Errorf("no answer: %w", noAnswer))
	}
	if unexpected == 0 {
		return nil
	}
	err := fmt.Errorf("%s not answered with %s; --expect says what is expected",
		cli.Counted(unexpected, "webhook was", "webhooks were"), o.expect)
	if !unauthorized {
		return err
	}
	return fmt.Errorf("%w\nIf captureRejected is on, as after make up, this says why:\n  %s", err,
		o.p.Hint(o.target, "explain --last"))
}

func sendOne(ctx context.Context, service paymenttest.Remote, w paymenttest.Webhook) (result, error) {
	start := time.Now()
	answer, err := service.Send(ctx, w)
	got := result{Milliseconds: time.Since(start).Milliseconds()}
	if err != nil {
		return got, err
	}
	got.Status = answer.Status
	if json.Valid(answer.Body) {
		got.Answer = json.RawMessage(answer.Body)
	} else if len(answer.Body) > 0 {
		got.Answer = string(answer.Body)
	}
	return got, nil
}

func (o *options) print(r result) error {
	switch {
	case o.p.JSON:
		return o.p.PrintJSON(r)
	case r.Status == 0:
		_, err := fmt.Fprintf(o.p.Out, "%d: no answer\n", r.Number)
		return err
	case r.Answer == nil:
		r.Answer = ""
	}
	_, err := fmt.Fprintf(o.p.Out, "%d: %d in %d ms: %s\n", r.Number, r.Status, r.Milliseconds, r.Answer)
	return err
}
