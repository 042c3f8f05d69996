package send

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// signing has the flags about the proof of a webhook. Without a key, the simulated payment
// service of the local run signs.
type signing struct {
	corrupt     string        // what is wrong with the proof; "" for nothing
	age         time.Duration // of the timestamp; negative in the future
	file, keyID string
	carriers    paymenttest.Carriers
}

// register adds the flags to a command. The defaults are those of a deployment.
func (s *signing) register(cmd *cobra.Command) {
	var flaws []string
	for _, flaw := range paymenttest.Flaws() {
		flaws = append(flaws, string(flaw)+"\t"+flawTexts[flaw])
	}
	cli.ChoiceVar(cmd, &s.corrupt, "corrupt", "`flaw`: what is wrong with the proof; list explains the flaws", flaws...)
	f := cmd.Flags()
	cli.DurationVar(f, &s.age, "age", 0, "age of the timestamp, such as 10m; -10m is in the future")
	f.StringVar(&s.file, "key", "",
		"`file` with an RSA private key in PEM that signs, instead of the simulated payment service")
	f.StringVar(&s.keyID, "key-id", "", "with --key: the `UUID` under which the public key is published")
	carrier := func(to *string, s *settings.Setting, name, usage string) {
		f.StringVar(to, name, "", usage+" (default "+s.Default+"; with --local, the setting of the local run)")
	}
	carrier(&s.carriers.SignatureHeader, settings.SignatureHeader, "signature-header",
		"`NAME` of the header with the signature")
	carrier(&s.carriers.Timestamp, settings.TimestampCarrier, "timestamp-carrier",
		"where the timestamp is carried: `header:NAME` or query:NAME")
	carrier(&s.carriers.KeyID, settings.KeyIDCarrier, "key-id-carrier",
		"where the key id is carried: `header:NAME` or query:NAME; static:UUID for a service that does not send it")
	carrier(&s.carriers.TimestampFormat, settings.TimestampFormat, "timestamp-format",
		"how the timestamp is written: `rfc3339`, unix-seconds or unix-milliseconds")
}

// flawTexts explain the flaws of a proof.
var flawTexts = map[paymenttest.Flaw]string{
	paymenttest.SignatureChanged:   "one bit of the signature is changed",
	paymenttest.PayloadChanged:     "one bit of the payload is changed after it was signed",
	paymenttest.TimestampChanged:   "the timestamp is changed after it was signed",
	paymenttest.KeyIDChanged:       "the key id is changed after it was signed",
	paymenttest.WrongKey:           "another key signed than the one of the key id",
	paymenttest.UnknownKey:         "a key signed that the service has never published",
	paymenttest.SignatureMissing:   "there is no signature",
	paymenttest.SignatureMalformed: "the signature is not base64url",
	paymenttest.SignatureRepeated:  "the signature is sent twice",
	paymenttest.TimestampMissing:   "there is no timestamp",
	paymenttest.TimestampMalformed: "the timestamp is not a time",
	paymenttest.TimestampRepeated:  "the timestamp is sent twice",
	paymenttest.KeyIDMissing:       "there is no key id",
	paymenttest.KeyIDMalformed:     "the key id is not a UUID",
	paymenttest.KeyIDRepeated:      "the key id is sent twice",
}

// apply gives a webhook the proof that the flags describe.
func (s *signing) apply(w *paymenttest.Webhook) {
	w.Age, w.Flaw, w.Carriers = s.age, paymenttest.Flaw(s.corrupt), s.carriers
}

// service signs and sends webhooks: the simulated payment service, or a private key.
type service interface {
	Sign(context.Context, paymenttest.Webhook) (paymenttest.Signed, error)
	Send(context.Context, paymenttest.Webhook) (paymenttest.Answer, error)
}

// service returns what signs webhooks for a deployment. A part of the proof for which there
// is no flag is carried as the deployment's settings say. Its error is one of usage.
func (s *signing) service(d *deployment.Deployment) (service, error) {
	if s.file == "" && !d.Simulated {
		return nil, cli.Usage("the payment service at %s is not the simulated one, so a key is needed to sign: "+
			"--key FILE --key-id UUID", d.PaymentService)
	}
	sender, err := paymenttest.Sender{}.With(paymenttest.Carriers{
		SignatureHeader: d.Setting(settings.SignatureHeader), Timestamp: d.Setting(settings.TimestampCarrier),
		KeyID: d.Setting(settings.KeyIDCarrier), TimestampFormat: d.Setting(settings.TimestampFormat),
	})
	if err == nil {
		sender, err = sender.With(s.carriers)
	}
	if err == nil && s.file == "" {
		return paymenttest.Remote{URL: d.PaymentService}, nil
	}
	if err == nil {
		sender.Key, err = s.key()
	}
	if err == nil && d.ServerCA != "" {
		sender.Client, err = tlsClient(d)
	}
	if err != nil {
		return nil, cli.Usage("%w", err)
	}
	return sender, nil
}

// key reads the private key.
func (s *signing) key() (paymenttest.Key, error) {
	if !payment.IsUUID(s.keyID) {
		return paymenttest.Key{}, errors.New("--key needs --key-id, a UUID")
	}
	text, err := os.ReadFile(s.file)
	if err != nil {
		return paymenttest.Key{}, err
	}
	return paymenttest.ParseKey(text, s.keyID)
}

// tlsClient returns a client for the endpoint of the local run.
func tlsClient(d *deployment.Deployment) (*http.Client, error) {
	text, err := os.ReadFile(d.ServerCA)
	if err != nil {
		return nil, err
	}
	servers := x509.NewCertPool()
	servers.AppendCertsFromPEM(text)
	var certificate tls.Certificate
	if d.ClientCert != "" {
		certificate, err = tls.LoadX509KeyPair(d.ClientCert, d.ClientKey)
	}
	return paymenttest.NewTLSClient(servers, certificate), err
}

// sample is an event of a function URL or an HTTP API in payload format 2.0 (AWS, "Invoking
// Lambda function URLs" in the Lambda developer guide).
type sample struct {
	events.APIGatewayV2HTTPRequest
	payload []byte
}

// parseSample reads a sample event. It returns false if text is something else.
func parseSample(text []byte) (s sample, ok bool) {
	r := &s.APIGatewayV2HTTPRequest
	if json.Unmarshal(text, r) != nil || r.Version != "2.0" || r.RequestContext.HTTP.Method == "" {
		return s, false
	}
	if r.Headers == nil {
		r.Headers = map[string]string{}
	}
	s.payload = []byte(r.Body)
	if !r.IsBase64Encoded {
		return s, true
	}
	var err error
	s.payload, err = base64.StdEncoding.DecodeString(r.Body)
	return s, err == nil
}

// webhook returns the webhook of which the event is one, to send to a URL.
func (s sample) webhook(to string) paymenttest.Webhook {
	w := paymenttest.Webhook{URL: to, Method: s.RequestContext.HTTP.Method, Payload: s.payload,
		ContentType: s.Headers["content-type"]}
	if s.RawQueryString != "" {
		w.URL += "?" + s.RawQueryString
	}
	return w
}
