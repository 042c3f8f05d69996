// Command send sends signed webhooks: through the simulated payment service of a
// local run, or, with a private key, as a payment service of your own would, to
// any URL.
//
// It prints every answer and fails if one of them did not come.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"uuid"

	"payhook.example/events/internal/signer"
	"payhook.example/infra/local/up"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

const usage = `Usage: make send [NAME=VALUE ...]    or    send [-name VALUE ...]

Sends signed webhooks to what make run or make up has started, and prints the
answers. With KEY, KEY_ID and URL it signs with a key of yours and sends anywhere.

  make send EVENTS=25                       25 events in one delivery
  make send COUNT=10 DUPLICATES=5           10 deliveries, of which 5 repeat one before
  make send EVENT_ID=0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d
                                            twice, it makes a conflict
  make send CORRUPT=signature               a forged one; CORRUPT=list lists the flaws
  make send AGE=10m                         an old one; -10m lies in the future
  make send AMOUNT=2500000.00 CURRENCY=EUR FLAGS=cases
                                            for the rules in events/rules
  make send FILE=delivery.json              a payload of yours, byte for byte
  make send PAD=6300000                     one that is too large
  make send ROTATE=1                        signed with a new key
  make send CERTIFICATE=expired             with an invalid client certificate, where one is required;
                                            CERTIFICATE=list lists them, none sends none
  make send ROTATE_CERTIFICATE=1            with a new client certificate
  make send FAULT=keys=down ROTATE=1        while key lookup is down; FAULT=keys= ends it

Flags:
`

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "send:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	url, method, contentType  string
	file                      string
	count, duplicates, events int
	parallel, pad             int
	name, eventID, amount     string
	currency, flags           string
	corrupt                   string
	age                       time.Duration
	rotate, rekey             bool
	certificate               string
	rotateCertificate         bool
	fault                     string
	deliveryID                string
	signer                    signer.Flags
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	f := flag.NewFlagSet("send", flag.ContinueOnError)
	f.Usage = func() {
		fmt.Fprint(f.Output(), usage)
		f.PrintDefaults()
	}
	f.StringVar(&o.url, "url", "", "where to; that of the local run by default")
	f.StringVar(&o.method, "method", "", "HTTP method")
	f.StringVar(&o.contentType, "content-type", "", "of the payload; application/json by default")
	f.StringVar(&o.file, "file", "", "file with a payload, sent byte for byte; - for standard input")
	f.IntVar(&o.count, "count", 1, "how many deliveries")
	f.IntVar(&o.duplicates, "duplicates", 0, "how many of them repeat one before")
	f.IntVar(&o.events, "events", 1, "events in each delivery")
	f.IntVar(&o.parallel, "parallel", 1, "how many deliveries at once")
	f.IntVar(&o.pad, "pad", 0, "bytes of white space to add to the payload")
	f.StringVar(&o.deliveryID, "delivery-id", "", "deliveryId; a new one by default")
	f.StringVar(&o.name, "name", "", "eventName; PAYMENT_STATUS.RELEASED by default")
	f.StringVar(&o.eventID, "event-id", "", "eventId of the first event; a new one by default")
	f.StringVar(&o.amount, "amount", "", "amount, as digits; 1250.00 by default")
	f.StringVar(&o.currency, "currency", "", "paymentCurrency; USD by default")
	f.StringVar(&o.flags, "flags", "", "those of returns, cancelations, cases that are true, joined by commas")
	f.StringVar(&o.corrupt, "corrupt", "", "what is wrong with the proof; list lists it")
	f.DurationVar(&o.age, "age", 0, "how old the timestamp is, as in 10m")
	f.BoolVar(&o.rotate, "rotate", false, "let the simulated service sign with a new key from now on")
	f.BoolVar(&o.rekey, "rekey", false, "the same, with a new key under the same id")
	f.StringVar(&o.certificate, "certificate", "", "what is wrong with the client certificate; list lists it")
	f.BoolVar(&o.rotateCertificate, "rotate-certificate", false, "let the simulated service present a new client certificate from now on")
	f.StringVar(&o.fault, "fault", "", "let the simulated service misbehave from now on: ENDPOINT=FAULT, as in keys=down, keys=slow:3s, token=expires-in:-1; ENDPOINT= ends it")
	o.signer.Register(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	if o.corrupt == "list" {
		for _, flaw := range paymenttest.Flaws() {
			fmt.Fprintln(out, flaw)
		}
		return nil
	}
	if o.certificate == "list" {
		for _, flaw := range certificateFlaws() {
			fmt.Fprintln(out, flaw)
		}
		return nil
	}
	if o.certificate != "" && !slices.Contains(certificateFlaws(), paymenttest.CertificateFlaw(o.certificate)) {
		return fmt.Errorf("no flaw %q of client certificates; CERTIFICATE=list lists them", o.certificate)
	}
	if o.corrupt != "" && !slices.Contains(paymenttest.Flaws(), paymenttest.Flaw(o.corrupt)) {
		return fmt.Errorf("no flaw %q; CORRUPT=list lists them", o.corrupt)
	}
	if o.count < 1 || o.events < 0 || o.duplicates < 0 || o.duplicates >= o.count && o.duplicates > 0 || o.parallel < 1 || o.pad < 0 {
		return errors.New("count and parallel must be at least 1, duplicates less than count, nothing negative")
	}
	send, err := o.sender(ctx)
	if err != nil {
		return err
	}
	payloads, err := o.payloads()
	if err != nil {
		return err
	}
	return o.sendAll(ctx, out, send, payloads)
}

func certificateFlaws() []paymenttest.CertificateFlaw {
	return append(paymenttest.CertificateFlaws(), paymenttest.NoCertificate)
}

// send signs and sends one webhook.
type send func(context.Context, paymenttest.Webhook) (paymenttest.Answer, error)

// sender returns what signs and sends, and settles where to.
func (o *options) sender(ctx context.Context) (send, error) {
	local, err := up.Read(".")
	if o.url == "" && err != nil {
		return nil, err
	}
	if o.url == "" {
		o.url = local.WebhookURL
	}
	if o.signer.Given() {
		if o.rotate || o.rekey || o.fault != "" || o.certificate != "" || o.rotateCertificate {
			return nil, errors.New("rotate, rekey, fault, certificate and rotate-certificate are for the simulated service, not with a key")
		}
		sender, err := o.signer.Sender()
		if err == nil && o.url == local.WebhookURL && local.ServerCA != "" {
			sender.Client, err = tlsClient(local)
		}
		return sender.Send, err
	}
	if err != nil {
		return nil, err
	}
	if !local.Simulated {
		return nil, errors.New("the payment service is not the simulated one, so a key to sign with is needed: KEY=file.pem KEY_ID=uuid")
	}
	remote := paymenttest.Remote{URL: local.PaymentService}
	return remote.Send, o.simulate(ctx, remote)
}

// tlsClient returns a client for the endpoint of the local run.
func tlsClient(local up.File) (*http.Client, error) {
	text, err := os.ReadFile(local.ServerCA)
	if err != nil {
		return nil, err
	}
	servers := x509.NewCertPool()
	servers.AppendCertsFromPEM(text)
	var certificate tls.Certificate
	if local.ClientCert != "" {
		if certificate, err = tls.LoadX509KeyPair(local.ClientCert, local.ClientKey); err != nil {
			return nil, err
		}
	}
	return paymenttest.NewTLSClient(servers, certificate), nil
}

// simulate tells the simulated service how to go on.
func (o *options) simulate(ctx context.Context, remote paymenttest.Remote) error {
	if o.fault != "" {
		endpoint, fault, _ := strings.Cut(o.fault, "=")
		if err := remote.Misbehave(ctx, paymenttest.Endpoint(endpoint), paymenttest.ParseFault(fault)); err != nil {
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

func (o *options) payloads() ([][]byte, error) {
	fresh := o.count - o.duplicates
	payloads := make([][]byte, o.count)
	var file []byte
	if o.file != "" {
		var err error
		if o.file == "-" {
			file, err = io.ReadAll(os.Stdin)
		} else {
			file, err = os.ReadFile(o.file)
		}
		if err != nil {
			return nil, err
		}
	}
	for i := range payloads {
		if i >= fresh {
			payloads[i] = payloads[i%fresh]
			continue
		}
		if o.file != "" {
			payloads[i] = file
		} else {
			payload, err := o.payload(i == 0)
			if err != nil {
				return nil, err
			}
			payloads[i] = payload
		}
		payloads[i] = slices.Concat(payloads[i], []byte(strings.Repeat(" ", o.pad)))
	}
	return payloads, nil
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
				return nil, fmt.Errorf("amount %q is no JSON number", o.amount)
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
				return nil, fmt.Errorf("no flag %q: returns, cancelations and cases are", flag)
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

// sendAll sends the payloads, in their order as far as they don't go at once,
// and prints every answer.
func (o *options) sendAll(ctx context.Context, out io.Writer, send send, payloads [][]byte) error {
	var mu sync.Mutex
	var failed error
	var running sync.WaitGroup
	slots := make(chan struct{}, o.parallel)
	for i, payload := range payloads {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		running.Go(func() {
			defer func() { <-slots }()
			start := time.Now()
			answer, err := send(ctx, paymenttest.Webhook{
				URL: o.url, Method: o.method, Payload: payload, ContentType: o.contentType,
				Age: o.age, Flaw: paymenttest.Flaw(o.corrupt), Certificate: paymenttest.CertificateFlaw(o.certificate),
			})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				fmt.Fprintf(out, "%d: no answer\n", i+1)
				return
			}
			fmt.Fprintf(out, "%d: %d in %d ms: %s\n", i+1, answer.Status, time.Since(start).Milliseconds(), answer.Body)
		})
	}
	running.Wait()
	return errors.Join(failed, ctx.Err())
}
