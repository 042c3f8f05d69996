// Package signer is the flags with which a tool is told to sign webhooks with a
// private key, as the payment service does, instead of asking the simulated one.
package signer

import (
	"errors"
	"flag"
	"os"

	"payhook.example/shared/paymenttest"
	"payhook.example/shared/rfc9562"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

// Flags are the flags.
type Flags struct {
	file, keyID                     string
	header, timestamp, keyIDCarrier string
	format                          string
}

// Register adds the flags to f. Their defaults are those of a deployment.
func (s *Flags) Register(f *flag.FlagSet) {
	f.StringVar(&s.file, "key", "", "`file` with an RSA private key in PEM to sign with, instead of the simulated service")
	f.StringVar(&s.keyID, "key-id", "", "with -key: the `UUID` under which its public half is published")
	f.StringVar(&s.header, "signature-header", settings.SignatureHeader.Default, "with -key: the header of the signature")
	f.StringVar(&s.timestamp, "timestamp-carrier", settings.TimestampCarrier.Default, "with -key: where the timestamp travels")
	f.StringVar(&s.keyIDCarrier, "key-id-carrier", settings.KeyIDCarrier.Default, "with -key: where the key id travels")
	f.StringVar(&s.format, "timestamp-format", settings.TimestampFormat.Default, "with -key: how the timestamp is written")
}

// Given reports whether there is a key to sign with.
func (s *Flags) Given() bool { return s.file != "" }

// Sender returns what signs with the key. Its error lists every flag that is
// wrong.
func (s *Flags) Sender() (paymenttest.Sender, error) {
	var errID error
	if !rfc9562.Valid(s.keyID) {
		errID = errors.New("with a key, its key id must be given, a UUID")
	}
	var key paymenttest.Key
	text, errKey := os.ReadFile(s.file)
	if errKey == nil {
		key, errKey = paymenttest.ParseKey(text, s.keyID)
	}
	timestamp, errTimestamp := signature.ParseCarrier(s.timestamp)
	keyID, errCarrier := signature.ParseKeyIDCarrier(s.keyIDCarrier)
	format, errFormat := signature.ParseFormat(s.format)
	return paymenttest.Sender{
		Key:    key,
		Scheme: signature.Scheme{SignatureHeader: s.header, Timestamp: timestamp, KeyID: keyID},
		Format: format,
	}, errors.Join(errID, errKey, errTimestamp, errCarrier, errFormat)
}
