// Package webhook has what the commands that make webhooks share: the flags that
// say how a webhook is signed, and the sample events of a function URL.
package webhook

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/payhook/cli"
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

	file, keyID                     string
	header, timestamp, keyIDCarrier string
	format                          string
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
	f.StringVar(&s.header, "signature-header", settings.SignatureHeader.Default, "with --key: header of the signature")
	f.StringVar(&s.timestamp, "timestamp-carrier", settings.TimestampCarrier.Default,
		"with --key: where the timestamp is carried")
	f.StringVar(&s.keyIDCarrier, "key-id-carrier", settings.KeyIDCarrier.Default,
		"with --key: where the key id is carried")
	f.StringVar(&s.format, "timestamp-format", settings.TimestampFormat.Default,
		"with --key: how the timestamp is written")
}

// KeyGiven reports whether there is a key that signs.
func (s *Flags) KeyGiven() bool { return s.file != "" }

// Sender returns what signs with the key. Its error is one of usage and lists every
// flag that is wrong.
func (s *Flags) Sender() (paymenttest.Sender, error) {
	var errID error
	if !rfc9562.Valid(s.keyID) {
		errID = errors.New("--key needs --key-id, a UUID")
	}
	var key paymenttest.Key
	text, errKey := os.ReadFile(s.file)
	if errKey == nil {
		key, errKey = paymenttest.ParseKey(text, s.keyID)
	}
	timestamp, errTimestamp := signature.ParseCarrier(s.timestamp)
	keyID, errCarrier := signature.ParseKeyIDCarrier(s.keyIDCarrier)
	format, errFormat := signature.ParseFormat(s.format)
	sender := paymenttest.Sender{
		Key:    key,
		Scheme: signature.Scheme{SignatureHeader: s.header, Timestamp: timestamp, KeyID: keyID},
		Format: format,
	}
	if err := errors.Join(errID, errKey, errTimestamp, errCarrier, errFormat); err != nil {
		return sender, cli.Usage("%w", err)
	}
	return sender, nil
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
