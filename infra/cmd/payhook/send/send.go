// Package send has the commands that make signed webhooks: send, which sends them to a URL,
// and invoke, which invokes a function with a sample event. The simulated payment service
// of the local run signs, or a private key.
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

const long = `Sends signed webhooks and prints each answer.

With --local, the simulated payment service of the local run signs and sends them.
With --key and --key-id, they are signed with your own private key and sent to --url,
or to the function URL or domain of the stack.

--signature-header, --timestamp-carrier, --key-id-carrier and --timestamp-format send the
proof in another place or format than the settings say. "payhook explain --last" then
finds the settings that fit.

Status 1: an answer is not the expected one: 2xx, or what --expect lists.
Status 3: there was no answer.

With --json, one document a line: number, status (0 for no answer), expected,
milliseconds, answer.`

const example = `  payhook send --local --events 25                  25 events in one delivery
  payhook send --local --count 10 --duplicates 5    10 deliveries, then 5 of them again
  payhook send --local --corrupt signature --expect 401
  payhook send --local --age 10m --expect 401       an old timestamp; -10m is in the future
  payhook send --local --amount 2500000.00 --currency EUR
  payhook send --local --conflict                   one eventId with two contents
  payhook send --local --file events/webhook/one-event.json
  payhook send --local --pad 6300000 --expect 413   more than Lambda takes
  payhook send --local --timestamp-carrier header:X-Brand-Time --key-id-carrier query:kid
  payhook send --local --rotate                     signed with a new key
  payhook send --local --fault keys=down --rotate --expect 503
  payhook send --local --fault keys=                end that fault
  payhook send --local --certificate expired --expect 403
  payhook send --key key.pem --key-id 5f0c1b7e-3d43-4f26-9c0d-2f1f6a5b7c8d --url https://example.com/`

// options are the flags.
type options struct {
	p      *cli.Program
	target *deployment.Target

	url, file                      string
	count, duplicates, events, pad int
	name, eventID                  string
	amount, currency               string
	conflict                       bool
	rotate, rotateCertificate      bool
	certificate, fault, expect     string
	sign                           signing
}

// Command returns the command.
func Command(p *cli.Program, t *deployment.Target) *cobra.Command {
	o := &options{p: p, target: t}
	cmd := &cobra.Command{
		Use: "send", Short: "Send signed webhooks", Long: long, Example: example, Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
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
	f.StringVar(&o.url, "url", "", "where to send to (default the webhook URL of the local run or of the stack)")
	o.sign.register(cmd)
	f.BoolVar(&o.rotate, "rotate", false, "from now on, the simulated service signs with a new key")
	f.Func("fault", "`ENDPOINT=FAULT`: from now on, an endpoint of the simulated service fails; "+
		"list explains the faults",
		func(text string) error {
			o.fault = text
			name, _, _ := strings.Cut(text, ":")
			return cli.OneOf(name, faults()...)
		})
	certificates := []string{string(paymenttest.NoCertificate)}
	for _, flaw := range paymenttest.CertificateFlaws() {
		certificates = append(certificates, string(flaw))
	}
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
	d, err := o.connect(ctx)
	if err != nil {
		return err
	}
	if o.certificate != "" && d.Setting(settings.Authentication) == settings.BySignature {
		return cli.Usage("this local run asks for no client certificates: --certificate needs one that does:\n  %s",
			d.Restart(map[string]string{settings.Authentication.Key: settings.ByBoth}))
	}
	from, err := o.sign.service(d)
	if err != nil {
		return err
	}
	if remote, ok := from.(paymenttest.Remote); ok {
		if err := o.change(ctx, remote); err != nil {
			return cli.Unreachable(err)
		}
	}
	return o.sendAll(ctx, from, d.WebhookURL, webhooks)
}

// connect returns the deployment that webhooks are sent to. With --url, it has that URL.
func (o *options) connect(ctx context.Context) (d *deployment.Deployment, err error) {
	if o.sign.file == "" || o.url == "" {
		err = o.p.Choose(ctx, o.target)
	}
	switch {
	case err != nil:
	case o.target.Local:
		d, err = deployment.Running(ctx)
	case o.sign.file == "":
		return nil, cli.Usage("nothing to sign with: use --key FILE --key-id UUID, or --local for the simulated " +
			"payment service of the local run")
	case o.url != "":
		d = &deployment.Deployment{}
	default:
		if d, err = o.p.Connect(ctx, o.target); err != nil {
			err = fmt.Errorf("%w\n--url sends to a URL without reading the stack", err)
		}
	}
	if err != nil {
		return nil, cli.Unreachable(err)
	}
	if o.url != "" {
		d.WebhookURL, d.ServerCA = o.url, ""
	}
	return d, nil
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
	for expected := range strings.SplitSeq(o.expect, ",") {
		if !expectation.MatchString(expected) {
			return cli.Usage("--expect %s: must be statuses such as 401, 4xx or none, joined by commas", o.expect)
		}
	}
	if o.sign.file != "" && (o.rotate || o.fault != "" || o.certificate != "" || o.rotateCertificate) {
		return cli.Usage("--rotate, --fault, --certificate and --rotate-certificate are for the simulated payment " +
			"service, not with --key")
	}
	return nil
}

// faultTexts explain the faults of an endpoint.
var faultTexts = map[paymenttest.Fault]string{
	paymenttest.Slow:    "the correct answer after 10s, or after DURATION with slow:DURATION",
	paymenttest.Down:    "503",
	paymenttest.HangUp:  "the connection is cut without an answer",
	paymenttest.Status:  "500, or NUMBER with status:NUMBER, and an empty object",
	paymenttest.Garbage: "200 with a body that is not JSON",
	"":                  "no fault any more",
}

// faults returns what --fault takes, without values, with explanations.
func faults() (words []string) {
	for _, endpoint := range []paymenttest.Endpoint{paymenttest.Keys, paymenttest.Token, paymenttest.API} {
		for _, name := range append(paymenttest.Faults(), "") {
			words = append(words, string(endpoint)+"="+string(name)+"\t"+faultTexts[name])
		}
	}
	return words
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

// change changes how the simulated service behaves.
func (o *options) change(ctx context.Context, remote paymenttest.Remote) (err error) {
	if endpoint, fault, ok := strings.Cut(o.fault, "="); ok {
		err = remote.Misbehave(ctx, paymenttest.Endpoint(endpoint), paymenttest.Fault(fault))
	}
	if err == nil && o.rotate {
		_, err = remote.Rotate(ctx)
	}
	if err == nil && o.rotateCertificate {
		_, err = remote.RotateCertificate(ctx)
	}
	return err
}

// webhooks returns what is sent, in this order. Each is made when it is sent, and stays in memory only if it is
// sent again. Their URLs have at most a query.
func (o *options) webhooks() (iter.Seq[paymenttest.Webhook], error) {
	if o.count == 0 && (o.duplicates > 0 || o.conflict) {
		return nil, cli.Usage("--duplicates and --conflict need a delivery to repeat: --count must be at least 1")
	}
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
	o.sign.apply(&w)
	w.Certificate = paymenttest.CertificateFlaw(o.certificate)
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

// sendAll sends webhooks to a URL, one after another, and prints every answer.
func (o *options) sendAll(ctx context.Context, from service, url string, webhooks iter.Seq[paymenttest.Webhook]) error {
	sent, unexpected, unauthorized := 0, 0, false
	var noAnswer error
	start := time.Now()
	for w := range webhooks {
		sent++
		w.URL = url + w.URL
		got, err := o.sendOne(ctx, from, w)
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
	if !unauthorized || o.url != "" {
		return err
	}
	return fmt.Errorf("%w\nIf captureRejected is on, as after make up, this says why:\n  %s", err,
		o.p.Hint(o.target, "explain --last"))
}

func (o *options) sendOne(ctx context.Context, from service, w paymenttest.Webhook) (result, error) {
	start := time.Now()
	answer, err := from.Send(ctx, w)
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
