package paymenttest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"payhook.example/shared/signature"
)

// Carriers say where and how a request carries the proof of a webhook, in the texts of
// Payhook's settings. An empty text leaves a part as it is.
type Carriers struct {
	SignatureHeader string `json:"signatureHeader,omitempty"`  // NAME
	Timestamp       string `json:"timestampCarrier,omitempty"` // header:NAME or query:NAME
	// KeyID is header:NAME, query:NAME, or static:UUID: the id is not sent, and the receiver
	// knows it.
	KeyID           string `json:"keyIdCarrier,omitempty"`
	TimestampFormat string `json:"timestampFormat,omitempty"` // as [signature.ParseFormat] takes it
}

// With returns s with other carriers. Its error names each part that is wrong, and parts
// that have the same place.
func (s Sender) With(c Carriers) (Sender, error) {
	if s.Scheme == (signature.Scheme{}) {
		s.Scheme = DefaultScheme()
	}
	if c == (Carriers{}) {
		return s, nil
	}
	var wrong []error
	check := func(part, text string, err error) {
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s %s: %w", part, text, err))
		}
	}
	if c.SignatureHeader != "" {
		_, err := signature.ParseCarrier("header:" + c.SignatureHeader)
		if err != nil {
			err = errors.New("must be the name of a header")
		}
		check("signature header", c.SignatureHeader, err)
		s.Scheme.SignatureHeader = c.SignatureHeader
	}
	var err error
	if c.Timestamp != "" {
		s.Scheme.Timestamp, err = signature.ParseCarrier(c.Timestamp)
		check("timestamp carrier", c.Timestamp, err)
	}
	if c.KeyID != "" {
		s.Scheme.KeyID, err = signature.ParseKeyIDCarrier(c.KeyID)
		check("key id carrier", c.KeyID, err)
	}
	if c.TimestampFormat != "" {
		s.Format, err = signature.ParseFormat(c.TimestampFormat)
		check("timestamp format", c.TimestampFormat, err)
	}
	if len(wrong) == 0 {
		wrong = misplaced(s.Scheme)
	}
	return s, errors.Join(wrong...)
}

// misplaced returns an error for each part of a proof that a request cannot carry where
// the scheme says.
func misplaced(scheme signature.Scheme) (wrong []error) {
	parts := []struct{ name, at string }{
		{"signature", "header:" + scheme.SignatureHeader},
		{"timestamp", scheme.Timestamp.String()},
		{"key id", scheme.KeyID.String()},
	}
	for i, a := range parts {
		name, isHeader := strings.CutPrefix(a.at, "header:")
		if isHeader && slices.Contains(ownHeaders, strings.ToLower(name)) {
			wrong = append(wrong, fmt.Errorf("the %s cannot be in %s: an HTTP client sets this header itself", a.name,
				a.at))
		}
		for _, b := range parts[:i] {
			if a.at == b.at || isHeader && strings.EqualFold(a.at, b.at) {
				wrong = append(wrong, fmt.Errorf("the %s and the %s cannot both be in %s", b.name, a.name, a.at))
			}
		}
	}
	return wrong
}

// ownHeaders are the headers that net/http writes itself, in lower case, whatever a request
// says, and the content type, which every webhook has.
var ownHeaders = []string{"host", "content-length", "transfer-encoding", "trailer", "connection", "content-type"}
