package explain

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json/jsontext"
	"fmt"
	"slices"
	"strings"
)

// form is how a message is composed of payload (P), timestamp (T) and key id (K).
type form struct {
	order, separator string
}

// specified is the form of section 5.4 of the interface.
var specified = form{order: "PTK", separator: "\n"}

// separators are what senders put between the parts, with their names.
var separators = []struct{ text, name string }{
	{"\n", "a line feed"}, {"\r\n", "CR LF"}, {"", "nothing"}, {".", "a dot"}, {":", "a colon"},
	{"|", "a vertical bar"}, {`\n`, `the two characters \n`},
}

// otherForms returns the forms that differ from the specified one.
func otherForms() (all []form) {
	for _, order := range []string{"PTK", "PKT", "TPK", "TKP", "KPT", "KTP", "PT", "TP", "PK", "KP", "P"} {
		for _, separator := range separators {
			f := form{order, separator.text}
			if f != specified && (len(order) > 1 || separator == separators[0]) {
				all = append(all, f)
			}
		}
	}
	return all
}

// differences describes how a form differs from the specified one.
func (f form) differences() (texts []string) {
	if f.order != specified.order {
		names := strings.NewReplacer("P", "payload, ", "T", "timestamp, ", "K", "key id, ").Replace(f.order)
		texts = append(texts, fmt.Sprintf("The signed message consists of %sin this order. In section 5.4 of the "+
			"interface it is payload, timestamp, key id.", names))
	}
	for _, s := range separators {
		if s.text == f.separator && f.separator != specified.separator {
			texts = append(texts, fmt.Sprintf("Between the parts of the signed message there is %s instead of a line "+
				"feed.", s.name))
		}
	}
	return texts
}

// payload is a form of the payload that the sender can have signed.
type payload struct {
	name  string // "" for the bytes as they were received
	bytes []byte
}

// changedPayloads returns the forms of a payload from before the changes that proxies and
// tools make.
func changedPayloads(received []byte) (all []payload) {
	unix := bytes.ReplaceAll(received, []byte("\r\n"), []byte("\n"))
	compact := jsontext.Value(bytes.Clone(received))
	if compact.Compact() != nil {
		compact = nil
	}
	for _, p := range []payload{
		{"without its last line break", bytes.TrimSuffix(bytes.TrimSuffix(received, []byte("\n")), []byte("\r"))},
		{"with a line feed at its end", slices.Concat(received, []byte("\n"))},
		{"without white space around it", bytes.TrimSpace(received)},
		{"with line feeds instead of CR LF", unix},
		{"as compact JSON", compact},
	} {
		if len(p.bytes) > 0 && !bytes.Equal(p.bytes, received) {
			all = append(all, p)
		}
	}
	return all
}

// match is the message that was signed.
type match struct {
	signature signed
	key       *keyResult
	digest    []byte
	form      form
	payload   payload
	time      value // zero if the form has none
}

// search looks for the message with the digest of m, the most likely first.
func (e *explainer) search(ctx context.Context, m match) (match, bool) {
	received, asSpecified := []payload{{"", e.request.Payload}}, []form{specified}
	for _, try := range []struct {
		payloads []payload
		forms    []form
	}{
		{received, asSpecified},
		{changedPayloads(e.request.Payload), asSpecified},
		{received, otherForms()},
	} {
		for _, m.payload = range try.payloads {
			for _, m.form = range try.forms {
				if found, ok := m.try(e.timestamps); ok || ctx.Err() != nil {
					return found, ok
				}
			}
		}
	}
	return match{}, false
}

// try tries all timestamps in the form of m.
func (m match) try(times []value) (match, bool) {
	if !strings.Contains(m.form.order, "T") {
		times = []value{{}}
	}
	for _, m.time = range times {
		if bytes.Equal(m.hash(), m.digest) {
			return m, true
		}
	}
	return match{}, false
}

// hash returns the digest of the message of m.
func (m match) hash() []byte {
	h := sha256.New()
	for i, part := range m.form.order {
		if i > 0 {
			h.Write([]byte(m.form.separator))
		}
		switch part {
		case 'P':
			h.Write(m.payload.bytes)
		case 'T':
			h.Write([]byte(m.time.text))
		case 'K':
			h.Write([]byte(m.key.id))
		}
	}
	return h.Sum(nil)
}
