// Package webhook has what the commands that make webhooks share: the flags that
// say how a webhook is signed, and the sample events of a function URL.
package webhook

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/rfc9562"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

// Flags say how webhooks are signed. Without a key, the simulated payment service
// of the local run signs.
type Flags struct {
	Corrupt string        // what is wrong with the proof; "" for nothing
	Age     time.Duration // of the timestamp; negative in the future

	file, keyID string
	carriers    paymenttest.Carriers
}

// Register adds the flags to a command. The defaults are those of a deployment.
// other are further words that --corrupt takes.
func (s *Flags) Register(cmd *cobra.Command, other ...string) {
	words := other
	for _, flaw := range paymenttest.Flaws() {
		words = append(words, string(flaw))
	}
	cli.ChoiceVar(cmd, &s.Corrupt, "corrupt", "flaw", "what is wrong with the proof, such as signature or wrong-key",
		words...)
	f := cmd.Flags()
	cli.DurationVar(f, &s.Age, "age", 0, "age of the timestamp, such as 10m; -10m is in the future")
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

// KeyGiven reports whether there is a key that signs.
func (s *Flags) KeyGiven() bool { return s.file != "" }

// Sender returns what signs with the key. A part of the proof for which there is no flag is
// carried as conf says, the settings of a deployment by their keys. Its error is one of
// usage and lists every flag that is wrong.
func (s *Flags) Sender(conf map[string]string) (paymenttest.Sender, error) {
	var errID error
	if !rfc9562.Valid(s.keyID) {
		errID = errors.New("--key needs --key-id, a UUID")
	}
	var key paymenttest.Key
	text, errKey := os.ReadFile(s.file)
	if errKey == nil {
		key, errKey = paymenttest.ParseKey(text, s.keyID)
	}
	sender, errCarriers := paymenttest.Sender{Key: key}.With(s.complete(conf))
	id, static := signature.StaticKeyID(s.complete(conf).KeyID)
	if static && errID == nil && errCarriers == nil && id != s.keyID {
		errCarriers = fmt.Errorf("key id carrier static:%s: must have the UUID of --key-id, which is signed", id)
	}
	if err := errors.Join(errID, errKey, errCarriers, s.checkCorrupt(conf)); err != nil {
		return sender, cli.Usage("%w", err)
	}
	return sender, nil
}

// Simulated returns where the simulated payment service is to carry the proof, which
// otherwise does as conf says, the settings of the local run by their keys. It is the zero
// value if no flag says so. Its error is one of usage.
func (s *Flags) Simulated(conf map[string]string) (paymenttest.Carriers, error) {
	given := s.carriers != (paymenttest.Carriers{})
	if given && conf[settings.Authentication.Key] == settings.ByMTLS {
		return s.carriers, cli.Usage("with authentication=mtls, nothing is signed: --signature-header, " +
			"--timestamp-carrier, --key-id-carrier and --timestamp-format have no effect")
	}
	err := s.checkCorrupt(conf)
	if given {
		_, wrong := paymenttest.Sender{}.With(s.complete(conf))
		err = errors.Join(wrong, err)
	}
	if err != nil {
		return s.carriers, cli.Usage("%w", err)
	}
	return s.carriers, nil
}

// checkCorrupt returns an error if the proof has no part that could be corrupted.
func (s *Flags) checkCorrupt(conf map[string]string) error {
	carrier := s.complete(conf).KeyID
	if _, static := signature.StaticKeyID(carrier); static && strings.HasPrefix(s.Corrupt, "keyid") {
		return fmt.Errorf("--corrupt %s needs a key id in the request: the key id carrier is %s", s.Corrupt, carrier)
	}
	return nil
}

// complete returns where each part of the proof is carried.
func (s *Flags) complete(conf map[string]string) paymenttest.Carriers {
	value := func(flag string, setting *settings.Setting) string {
		return cmp.Or(flag, conf[setting.Key], setting.Default)
	}
	return paymenttest.Carriers{
		SignatureHeader: value(s.carriers.SignatureHeader, settings.SignatureHeader),
		Timestamp:       value(s.carriers.Timestamp, settings.TimestampCarrier),
		KeyID:           value(s.carriers.KeyID, settings.KeyIDCarrier),
		TimestampFormat: value(s.carriers.TimestampFormat, settings.TimestampFormat),
	}
}

// Request is a webhook as a sample event of a function URL has it.
type Request struct {
	Payload     []byte
	ContentType string
	Method      string
	Query       string
}

// ParseEvent reads an event of a function URL or an HTTP API, in payload format 2.0
// (AWS, "Invoking Lambda function URLs" in the Lambda developer guide). It returns
// false if text is something else.
func ParseEvent(text []byte) (Request, bool, error) {
	var event struct {
		Version         string
		RawQueryString  string
		Headers         map[string]string
		Body            string
		IsBase64Encoded bool
		RequestContext  *struct{ HTTP struct{ Method string } }
	}
	if json.Unmarshal(text, &event) != nil || event.Version != "2.0" || event.RequestContext == nil {
		return Request{}, false, nil
	}
	r := Request{
		Payload: []byte(event.Body), ContentType: event.Headers["content-type"],
		Method: event.RequestContext.HTTP.Method, Query: event.RawQueryString,
	}
	var err error
	if event.IsBase64Encoded {
		r.Payload, err = base64.StdEncoding.DecodeString(event.Body)
	}
	return r, true, err
}
