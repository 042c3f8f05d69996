// Package send has the command that sends signed webhooks: through the simulated
// payment service of the local run, or, with a private key, as a payment service
// would, to any URL.
package send

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"uuid"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/webhook"
	"payhook.example/infra/deployment"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
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
  payhook send --local --amount 2500000.00 --currency EUR --flags cases
  payhook send --local --conflict                   one eventId with two contents
  payhook send --local --file events/webhook/one-event.json
  payhook send --local --pad 6300000 --expect 413   more than Lambda takes
  payhook send --local --timestamp-carrier header:X-Brand-Time --key-id-carrier query:kid
  payhook send --local --rotate                     signed with a new key
  payhook send --local --fault keys=down --rotate --expect 503
  payhook send --local --fault keys=                end that fault
  payhook send --local --certificate expired --expect 403
  payhook send --key key.pem --key-id 5f0c1b7e-3d43-4f26-9c0d-2f1f6a5b7c8d --url https://example.com/`

// list is the value of a flag that lists what it takes.
const list = "list"

// options are the flags.
type options struct {
	p      *cli.Program
	target *deployment.Target

	url, method, contentType  string
	file                      string
	count, duplicates, events int
	parallel, pad             int
	name, eventID, amount     string
	currency, flags           string
	rotate, rekey, conflict   bool
	certificate               string
	rotateCertificate         bool
	fault                     string
	deliveryID                string
	expect                    string
	sign                      webhook.Flags

	carriers paymenttest.Carriers // of the simulated service; its own if zero
	why      string               // how to see why a webhook was answered 401; "" if there is no way
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
	f.IntVar(&o.parallel, "parallel", 1, "deliveries to send at once")
	f.StringVar(&o.expect, "expect", "2xx", "expected statuses, such as 401, 4xx or 401,503; none for no answer")
	f.StringVar(&o.file, "file", "",
		"`file` with a payload, sent byte for byte, or with a sample event of a function URL, whose payload is sent; "+
			"- is standard input")
	f.StringVar(&o.amount, "amount", "", "amount, as digits (default 1250.00)")
	f.StringVar(&o.currency, "currency", "", "paymentCurrency (default USD)")
	f.StringVar(&o.flags, "flags", "", "the flags that are true, joined by commas: returns, cancelations, cases")
	f.StringVar(&o.name, "name", "", "eventName (default PAYMENT_STATUS.RELEASED)")
	f.StringVar(&o.eventID, "event-id", "", "eventId of the first event (default a new one)")
	f.StringVar(&o.deliveryID, "delivery-id", "", "deliveryId of the first delivery (default a new one)")
	f.BoolVar(&o.conflict, "conflict", false, "send the first event again with another amount, which is a conflict")
	f.IntVar(&o.pad, "pad", 0, "bytes of white space to add to each payload")
	f.StringVar(&o.url, "url", "", "where to send to (default the webhook URL of the local run or of the stack)")
	f.StringVar(&o.method, "method", "", "HTTP method (default the service's)")
	f.StringVar(&o.contentType, "content-type", "", "content type of the payload (default application/json)")
	o.sign.Register(cmd, list)
	f.BoolVar(&o.rotate, "rotate", false, "from now on, the simulated service signs with a new key")
	f.BoolVar(&o.rekey, "rekey", false, "from now on, the simulated service signs with a new key under the same key id")
	f.StringVar(&o.fault, "fault", "",
		"from now on, an endpoint of the simulated service fails: ENDPOINT=FAULT, such as keys=down, keys=slow:3s or "+
			"token=expires-in:-1; ENDPOINT= ends it; list lists them")
	flaws := []string{list}
	for _, flaw := range append(paymenttest.CertificateFlaws(), paymenttest.NoCertificate) {
		flaws = append(flaws, string(flaw))
	}
	cli.ChoiceVar(cmd, &o.certificate, "certificate", "flaw",
		"what is wrong with the client certificate, such as expired or none; list lists them", flaws...)
	f.BoolVar(&o.rotateCertificate, "rotate-certificate", false,
		"from now on, the simulated service presents a new client certificate")
	return cmd
}

func (o *options) run(ctx context.Context) error {
	if words := o.lists(); words != nil {
		for _, word := range words {
			fmt.Fprintln(o.p.Out, word)
		}
		return nil
	}
	if o.count < 0 || o.events < 0 || o.duplicates < 0 || o.parallel < 1 || o.pad < 0 {
		return cli.Usage("--parallel must be at least 1, and no number may be negative")
	}
	expect, err := parseStatuses(o.expect)
	if err != nil {
		return err
	}
	endpoint, fault, err := parseFault(o.fault)
	if err != nil {
		return err
	}
	requests, err := o.requests()
	if err != nil {
		return err
	}
	send, simulated, err := o.sender(ctx)
	if err != nil {
		return err
	}
	if simulated != nil {
		if err := o.change(ctx, *simulated, endpoint, fault); err != nil {
			return cli.Unreachable(err)
		}
	}
	return o.sendAll(ctx, send, requests, expect)
}

// lists returns the words that a flag takes if its value asks for them.
func (o *options) lists() (words []string) {
	switch list {
	case o.sign.Corrupt:
		for _, flaw := range paymenttest.Flaws() {
			words = append(words, string(flaw))
		}
	case o.certificate:
		for _, flaw := range append(paymenttest.CertificateFlaws(), paymenttest.NoCertificate) {
			words = append(words, string(flaw))
		}
	case o.fault:
		for _, endpoint := range endpoints {
			for _, name := range paymenttest.Faults(endpoint) {
				words = append(words, string(endpoint)+"="+string(name))
			}
		}
	}
	return words
}

var endpoints = []paymenttest.Endpoint{paymenttest.Keys, paymenttest.Token, paymenttest.API}

// parseFault reads ENDPOINT=FAULT. It returns "" for "".
func parseFault(text string) (paymenttest.Endpoint, paymenttest.Fault, error) {
	if text == "" {
		return "", paymenttest.Fault{}, nil
	}
	name, value, given := strings.Cut(text, "=")
	endpoint, fault := paymenttest.Endpoint(name), paymenttest.ParseFault(value)
	if !given || !slices.Contains(endpoints, endpoint) ||
		fault.Name != "" && !slices.Contains(paymenttest.Faults(endpoint), fault.Name) {
		return "", fault, cli.Usage("--fault %s: there is no such endpoint or fault; --fault list lists them", text)
	}
	return endpoint, fault, nil
}

// statuses are the expected answers. 0 is no answer; N00 with any is NXX.
type statuses struct {
	exact   []int
	classes []int
}

func parseStatuses(text string) (s statuses, err error) {
	for part := range strings.SplitSeq(text, ",") {
		class, isClass := strings.CutSuffix(strings.ToLower(strings.TrimSpace(part)), "xx")
		number, err := strconv.Atoi(class)
		switch {
		case class == "none":
			s.exact = append(s.exact, 0)
		case err == nil && isClass && number >= 1 && number <= 5:
			s.classes = append(s.classes, number)
		case err == nil && !isClass && number >= 100 && number <= 599:
			s.exact = append(s.exact, number)
		default:
			return s, cli.Usage("--expect %s: must be statuses such as 401, 4xx or none, joined by commas", text)
		}
	}
	return s, nil
}

func (s statuses) has(status int) bool {
	return slices.Contains(s.exact, status) || status > 0 && slices.Contains(s.classes, status/100)
}

// send signs and sends one webhook.
type send func(context.Context, paymenttest.Webhook) (paymenttest.Answer, error)

// sender returns what signs and sends, with the simulated service if that is what
// does it, and sets the URL.
func (o *options) sender(ctx context.Context) (send, *paymenttest.Remote, error) {
	simulatedOnly := o.rotate || o.rekey || o.fault != "" || o.certificate != "" || o.rotateCertificate
	switch {
	case o.sign.KeyGiven() && simulatedOnly:
		return nil, nil, cli.Usage("--rotate, --rekey, --fault, --certificate and --rotate-certificate are for the " +
			"simulated payment service, not with --key")
	case !o.sign.KeyGiven() && !o.target.Local:
		return nil, nil, cli.Usage("nothing to sign with: use --key FILE --key-id UUID, or --local for the simulated " +
			"payment service of the local run")
	}
	if o.target.Local {
		return o.local()
	}
	sender, err := o.sign.Sender(nil)
	if err != nil || o.url != "" {
		return sender.Send, nil, err
	}
	o.url, err = o.deployed(ctx)
	return sender.Send, nil, cli.Unreachable(err)
}

// change changes how the simulated service behaves.
func (o *options) change(ctx context.Context, remote paymenttest.Remote, endpoint paymenttest.Endpoint,
	fault paymenttest.Fault) error {
	if endpoint != "" {
		if err := remote.Misbehave(ctx, endpoint, fault); err != nil {
			return err
		}
	}
	if o.rotate {
		if _, err := remote.Rotate(ctx); err != nil {
			return err
		}
	}
	if o.rotateCertificate {
		if _, err := remote.RotateCertificate(ctx); err != nil {
			return err
		}
	}
	if o.rekey {
		if _, err := remote.Rekey(ctx); err != nil {
			return err
		}
	}
	return nil
}

// requests returns what is sent, in this order.
func (o *options) requests() ([]webhook.Request, error) {
	var requests []webhook.Request
	for i := range o.count {
		r, err := o.request(i == 0)
		if err != nil {
			return nil, err
		}
		r.Payload = append(r.Payload, strings.Repeat(" ", o.pad)...)
		requests = append(requests, r)
	}
	for i := range o.duplicates {
		if o.count == 0 {
			return nil, cli.Usage("--duplicates needs a delivery to repeat: --count must be at least 1")
		}
		requests = append(requests, requests[i%o.count])
	}
	if o.conflict {
		return o.withConflict(requests)
	}
	return requests, nil
}

// withConflict adds a delivery with the first event again and another amount.
func (o *options) withConflict(requests []webhook.Request) ([]webhook.Request, error) {
	if len(requests) == 0 {
		return nil, cli.Usage("--conflict needs a delivery: --count must be at least 1")
	}
	delivery, err := payment.DecodeDelivery(requests[0].Payload)
	if err != nil || len(delivery.Events) == 0 {
		return nil, cli.Usage("--conflict needs a delivery with an event")
	}
	e, err := payment.DecodeEvent(delivery.Events[0].Bytes)
	if err != nil {
		return nil, cli.Usage("--conflict: %w", err)
	}
	if e.EventData.Amount = "9250.00"; o.amount == "9250.00" {
		e.EventData.Amount = "9250.01"
	}
	again := requests[0]
	again.Payload = paymenttest.RawDelivery(uuid.New().String(), paymenttest.Encode(e))
	return append(requests, again), nil
}

func (o *options) request(first bool) (webhook.Request, error) {
	r := webhook.Request{Method: o.method, ContentType: o.contentType}
	if o.file == "" {
		var err error
		r.Payload, err = o.payload(first)
		return r, err
	}
	var text []byte
	var err error
	if o.file == "-" {
		text, err = io.ReadAll(o.p.In)
	} else {
		text, err = os.ReadFile(o.file)
	}
	if err != nil {
		return r, cli.Usage("%w", err)
	}
	sample, isEvent, err := webhook.ParseEvent(text)
	switch {
	case err != nil:
		return r, cli.Usage("%s: %w", o.file, err)
	case !isEvent:
		r.Payload = text
		return r, nil
	}
	if o.method != "" {
		sample.Method = o.method
	}
	if o.contentType != "" {
		sample.ContentType = o.contentType
	}
	return sample, nil
}

func (o *options) payload(first bool) ([]byte, error) {
	events := make([][]byte, o.events)
	for i := range events {
		e := paymenttest.Event()
		if o.eventID != "" && first && i == 0 {
			e.EventID = o.eventID
		}
		if o.name != "" {
			e.EventName = o.name
		}
		if o.amount != "" {
			e.EventData.Amount = payment.Amount(o.amount)
			if _, ok := e.EventData.Amount.Rat(); !ok {
				return nil, cli.Usage("--amount %s: is not a JSON number", o.amount)
			}
		}
		if o.currency != "" {
			e.EventData.PaymentCurrency = o.currency
		}
		for flag := range strings.SplitSeq(o.flags, ",") {
			switch flag {
			case "":
			case "returns":
				e.EventData.Returns.HasReturnDetails = true
			case "cancelations":
				e.EventData.Cancelations.HasCancelationDetails = true
			case "cases":
				e.EventData.Cases.HasLinkedCases = true
			default:
				return nil, cli.Usage("--flags %s: must be returns, cancelations or cases, joined by commas", o.flags)
			}
		}
		events[i] = paymenttest.Encode(e)
	}
	id := o.deliveryID
	if id == "" || !first {
		id = uuid.New().String()
	}
	return paymenttest.RawDelivery(id, events...), nil
}

// result is one answer.
type result struct {
	Number       int   `json:"number"`
	Status       int   `json:"status"` // 0 for no answer
	Expected     bool  `json:"expected"`
	Milliseconds int64 `json:"milliseconds"`
	Answer       any   `json:"answer,omitempty"` // JSON, or text
}

// sendAll sends the requests, in their order as far as they are not sent at once,
// and prints every answer.
func (o *options) sendAll(ctx context.Context, send send, requests []webhook.Request, expect statuses) error {
	var mu sync.Mutex
	counts, answered, unexpected, unauthorized := map[string]int{}, 0, 0, 0
	var noAnswer error
	start := time.Now()
	stop := o.p.Every(func() {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(o.p.Err, "%d of %d answered after %s\n", answered, len(requests), cli.Readable(time.Since(start)))
	})
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.parallel)
	for i, r := range requests {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			got, err := o.sendOne(ctx, send, r)
			got.Number = i + 1
			got.Expected = expect.has(got.Status)
			mu.Lock()
			defer mu.Unlock()
			answered++
			if err != nil && !got.Expected {
				noAnswer = err
			} else if !got.Expected {
				unexpected++
				if got.Status == http.StatusUnauthorized {
					unauthorized++
				}
			}
			status := "no answer"
			if got.Status > 0 {
				status = strconv.Itoa(got.Status)
			}
			counts[status]++
			return o.print(got)
		})
	}
	err := group.Wait()
	stop()
	if err != nil {
		return err
	}
	if len(requests) > 1 {
		var parts []string
		for _, status := range slices.Sorted(maps.Keys(counts)) {
			parts = append(parts, fmt.Sprintf("%s: %d", status, counts[status]))
		}
		fmt.Fprintf(o.p.Err, "%d of %d answered in %s (%s)\n", answered, len(requests), cli.Readable(time.Since(start)),
			strings.Join(parts, ", "))
	}
	switch {
	case ctx.Err() != nil && answered < len(requests):
		return ctx.Err()
	case noAnswer != nil:
		return cli.Unreachable(fmt.Errorf("no answer: %w", noAnswer))
	case unexpected > 0:
		err := fmt.Errorf("%s not answered with %s; --expect says what is expected",
			cli.Counted(unexpected, "webhook was", "webhooks were"), o.expect)
		if unauthorized > 0 && o.why != "" {
			err = fmt.Errorf("%w\n%s", err, o.why)
		}
		return err
	}
	return nil
}

func (o *options) sendOne(ctx context.Context, send send, r webhook.Request) (result, error) {
	url := o.url
	if r.Query != "" {
		url += "?" + r.Query
	}
	start := time.Now()
	answer, err := send(ctx, paymenttest.Webhook{
		URL: url, Method: r.Method, Payload: r.Payload, ContentType: r.ContentType,
		Age: o.sign.Age, Flaw: paymenttest.Flaw(o.sign.Corrupt),
		Certificate: paymenttest.CertificateFlaw(o.certificate), Carriers: o.carriers,
	})
	got := result{Milliseconds: time.Since(start).Milliseconds()}
	if err != nil {
		return got, err
	}
	got.Status = answer.Status
	if len(answer.Body) > 0 {
		if json.Unmarshal(answer.Body, &got.Answer) != nil {
			got.Answer = string(answer.Body)
		} else {
			got.Answer = json.RawMessage(answer.Body)
		}
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
	}
	text := ""
	switch answer := r.Answer.(type) {
	case string:
		text = answer
	case json.RawMessage:
		text = string(answer)
	}
	_, err := fmt.Fprintf(o.p.Out, "%d: %d in %d ms: %s\n", r.Number, r.Status, r.Milliseconds, text)
	return err
}
