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

// message is a message that can have been signed.
type message struct {
	order, separator string // of payload (P), timestamp (T) and key id (K)
	change           string // of the payload since it was signed; "" for none
	payload          []byte
	time             value // zero if the order has none
}

// separators are what senders put between the parts, with their names. The first is that of section
// 5.4 of the interface.
var separators = []struct{ text, name string }{
	{"\n", "a line feed"}, {"\r\n", "CR LF"}, {"", "nothing"}, {".", "a dot"}, {":", "a colon"},
	{"|", "a vertical bar"}, {`\n`, `the two characters \n`},
}

// orders are what senders sign. The first is that of section 5.4 of the interface.
var orders = []string{"PTK", "PKT", "TPK", "TKP", "KPT", "KTP", "PT", "TP", "PK", "KP", "P"}

// messages returns the messages that can have been signed if this payload arrived, without their
// timestamps, the most likely first.
func messages(received []byte) (all []message) {
	compact := jsontext.Value(bytes.Clone(received))
	if compact.Compact() != nil {
		compact = nil
	}
	for _, p := range []message{
		{payload: received},
		// What proxies and tools change.
		{change: "without its last line break", payload: bytes.TrimRight(received, "\r\n")},
		{change: "with a line feed at its end", payload: slices.Concat(received, []byte("\n"))},
		{change: "without white space around it", payload: bytes.TrimSpace(received)},
		{change: "with line feeds instead of CR LF", payload: bytes.ReplaceAll(received, []byte("\r\n"), []byte("\n"))},
		{change: "as compact JSON", payload: compact},
	} {
		p.order, p.separator = orders[0], separators[0].text
		if p.change == "" || len(p.payload) > 0 && !bytes.Equal(p.payload, received) {
			all = append(all, p)
		}
	}
	for _, order := range orders {
		for _, separator := range separators {
			all = append(all, message{order: order, separator: separator.text, payload: received})
		}
	}
	return all
}

// has reports whether a part is in the message.
func (m message) has(part string) bool { return strings.Contains(m.order, part) }

// differences describes how the message is composed, where it differs from section 5.4.
func (m message) differences() (texts []string) {
	if m.order != orders[0] {
		names := strings.NewReplacer("P", "payload, ", "T", "timestamp, ", "K", "key id, ").Replace(m.order)
		texts = append(texts, fmt.Sprintf("The signed message consists of %sin this order. In section 5.4 of the "+
			"interface it is payload, timestamp, key id.", names))
	}
	for _, s := range separators[1:] {
		if s.text == m.separator && len(m.order) > 1 {
			texts = append(texts, fmt.Sprintf("Between the parts of the signed message there is %s instead of a line "+
				"feed.", s.name))
		}
	}
	return texts
}

// search returns the message with a digest, which a key with that id signed.
func (e *explainer) search(ctx context.Context, digest []byte, id string) (message, bool) {
	for _, m := range messages(e.request.Payload) {
		times := e.values
		if !m.has("T") {
			times = []value{{}}
		}
		for _, m.time = range times {
			if bytes.Equal(m.hash(id), digest) {
				return m, true
			}
			if ctx.Err() != nil {
				return message{}, false
			}
		}
	}
	return message{}, false
}

// hash returns the digest of the message with a key id.
func (m message) hash(id string) []byte {
	h := sha256.New()
	for i, part := range m.order {
		if i > 0 {
			h.Write([]byte(m.separator))
		}
		switch part {
		case 'P':
			h.Write(m.payload)
		case 'T':
			h.Write([]byte(m.time.text))
		case 'K':
			h.Write([]byte(id))
		}
	}
	return h.Sum(nil)
}
