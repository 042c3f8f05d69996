package send

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
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
	choice(cmd, &s.corrupt, "corrupt", "what is wrong with the proof", paymenttest.Flaws())
	f := cmd.Flags()
	cli.DurationVar(f, &s.age, "age", 0, "age of the timestamp, such as 10m; -10m is in the future")
	f.StringVar(&s.file, "key", "",
		"`file` with an RSA private key in PEM that signs, instead of the simulated payment service")
	f.StringVar(&s.keyID, "key-id", "", "with --key: the `UUID` under which the public key is published")
	f.StringVar(&s.carriers.SignatureHeader, "signature-header", "",
		"`NAME` of the header with the signature"+deployedDefault(settings.SignatureHeader))
	f.StringVar(&s.carriers.Timestamp, "timestamp-carrier", "",
		"where the timestamp is carried: `header:NAME` or query:NAME"+deployedDefault(settings.TimestampCarrier))
	f.StringVar(&s.carriers.KeyID, "key-id-carrier", "",
		"where the key id is carried: `header:NAME` or query:NAME; static:UUID for a service that does not send it"+
			deployedDefault(settings.KeyIDCarrier))
	f.StringVar(&s.carriers.TimestampFormat, "timestamp-format", "",
		"how the timestamp is written: `rfc3339`, unix-seconds or unix-milliseconds"+
			deployedDefault(settings.TimestampFormat))
}

// deployedDefault says what replaces a flag for a setting that is not given.
func deployedDefault(s *settings.Setting) string {
	return " (default " + s.Default + "; with --local, the setting of the local run)"
}

// choice adds a flag for one of some flaws, which its help lists.
func choice[F ~string](cmd *cobra.Command, to *string, name, usage string, flaws []F) {
	words := make([]string, len(flaws))
	for i, flaw := range flaws {
		words[i] = string(flaw)
	}
	cli.ChoiceVar(cmd, to, name, "flaw", usage+": "+strings.Join(words, ", "), words...)
}

// service signs and sends webhooks: the simulated payment service, or a private key.
type service interface {
	Sign(context.Context, paymenttest.Webhook) (paymenttest.Signed, error)
	Send(context.Context, paymenttest.Webhook) (paymenttest.Answer, error)
}

// service returns what signs webhooks for a deployment. A part of the proof for which there
// is no flag is carried as the deployment's settings say. Its error is one of usage and
// lists every flag that is wrong.
func (s *signing) service(d *deployment.Deployment) (service, error) {
	if s.file == "" && !d.Simulated {
		return nil, cli.Usage("the payment service at %s is not the simulated one, so a key is needed to sign: "+
			"--key FILE --key-id UUID", d.PaymentService)
	}
	if s.carriers != (paymenttest.Carriers{}) && d.Setting(settings.Authentication) == settings.ByMTLS {
		return nil, cli.Usage("with authentication=mtls, nothing is signed: --signature-header, --timestamp-carrier, " +
			"--key-id-carrier and --timestamp-format have no effect")
	}
	all := s.complete(d)
	id, static := signature.StaticKeyID(all.KeyID)
	var wrong []error
	if static && strings.HasPrefix(s.corrupt, "keyid") {
		wrong = append(wrong, fmt.Errorf("--corrupt %s needs a key id in the request: the key id carrier is %s",
			s.corrupt, all.KeyID))
	}
	sender, err := paymenttest.Sender{}.With(all)
	if wrong = append(wrong, err); s.file == "" {
		if err := errors.Join(wrong...); err != nil {
			return nil, cli.Usage("%w", err)
		}
		return paymenttest.Remote{URL: d.PaymentService}, nil
	}
	if static && err == nil && id != s.keyID {
		wrong = append(
			wrong,
			fmt.Errorf("key id carrier static:%s: must have the UUID of --key-id, which is signed", id),
		)
	}
	sender.Key, err = s.key()
	if wrong = append(wrong, err); d.ServerCA != "" {
		sender.Client, err = tlsClient(d)
		wrong = append(wrong, err)
	}
	if err := errors.Join(wrong...); err != nil {
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

// complete returns where each part of the proof is carried.
func (s *signing) complete(d *deployment.Deployment) paymenttest.Carriers {
	return paymenttest.Carriers{
		SignatureHeader: cmp.Or(s.carriers.SignatureHeader, d.Setting(settings.SignatureHeader)),
		Timestamp:       cmp.Or(s.carriers.Timestamp, d.Setting(settings.TimestampCarrier)),
		KeyID:           cmp.Or(s.carriers.KeyID, d.Setting(settings.KeyIDCarrier)),
		TimestampFormat: cmp.Or(s.carriers.TimestampFormat, d.Setting(settings.TimestampFormat)),
	}
}
