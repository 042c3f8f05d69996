package explain

import (
	"bytes"
	"context"
	"crypto"
	"crypto/sha256"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"
)

// form is how a message is composed of payload (P), timestamp (T) and key id (K).
type form struct {
	order        string   // as in PTK
	between      []string // after each part but the last
	end          string
	keyOfAnother bool
}

// canonical is the form of section 5.4 of the interface.
var canonical = form{order: "PTK", between: []string{"\n", "\n"}}

func (f form) isCanonical() bool {
	return f.order == canonical.order && slices.Equal(f.between, canonical.between) && f.end == ""
}

// write writes the message of the form. The payload is written by the caller if it is
// the first part.
func (f form) write(h hash.Hash, skipPayload bool, payload []byte, timestamp, keyID string) (n int) {
	put := func(b []byte) {
		h.Write(b)
		n += len(b)
	}
	for i, part := range f.order {
		switch part {
		case 'P':
			if !skipPayload {
				put(payload)
			}
		case 'T':
			put([]byte(timestamp))
		case 'K':
			put([]byte(keyID))
		}
		if i < len(f.between) {
			put([]byte(f.between[i]))
		}
	}
	put([]byte(f.end))
	return n
}

var partNames = map[rune]string{'P': "payload", 'T': "timestamp", 'K': "key id"}

// separators are what can be between two parts, with their names.
var separators = []struct{ text, name string }{
	{"\n", "a line feed"}, {"\r\n", "CR LF"}, {"", "nothing"}, {".", "a dot"}, {":", "a colon"},
	{"|", "a vertical bar"}, {",", "a comma"}, {";", "a semicolon"}, {" ", "a space"}, {"&", "an ampersand"},
	{"\n\n", "two line feeds"}, {`\n`, `the two characters \n`}, {"-", "a hyphen"}, {"_", "an underscore"},
}

func nameOf(separator string) string {
	for _, s := range separators {
		if s.text == separator {
			return s.name
		}
	}
	return strconv.Quote(separator)
}

// forms returns the forms of a message that differ from the canonical one.
func forms() (all []form) {
	ends := []string{"", "\n", "\r\n"}
	for _, order := range []string{"PTK", "PKT", "TPK", "TKP", "KPT", "KTP", "PT", "TP", "PK", "KP", "P"} {
		gaps := len(order) - 1
		var betweens [][]string
		if gaps == 0 {
			betweens = [][]string{nil}
		}
		for _, a := range separators {
			if gaps == 1 {
				betweens = append(betweens, []string{a.text})
			}
			for _, b := range separators {
				// Both the same, or one of them a line feed or nothing.
				if gaps == 2 && (a == b || a.text == "\n" || b.text == "\n" || a.text == "" || b.text == "") {
					betweens = append(betweens, []string{a.text, b.text})
				}
			}
		}
		for _, between := range betweens {
			for _, end := range ends {
				if f := (form{order: order, between: between, end: end}); !f.isCanonical() {
					all = append(all, f)
				}
			}
		}
	}
	return all
}

// differences describes how a form differs from the canonical one.
func (f form) differences() (texts []string) {
	var names []string
	for _, part := range f.order {
		names = append(names, partNames[part])
	}
	if f.order != canonical.order {
		text := "The signed message consists of " + strings.Join(names, ", ") + ", in this order."
		if len(f.order) == 1 {
			text = "The signed message is the payload alone."
		}
		texts = append(texts, text+" In section 5.4 of the interface it is payload, timestamp, key id.")
	}
	for i, separator := range f.between {
		if separator != "\n" {
			texts = append(texts, fmt.Sprintf("Between %s and %s there is %s instead of a line feed.", names[i],
				names[i+1], nameOf(separator)))
		}
	}
	if f.end != "" {
		texts = append(texts, fmt.Sprintf("The signed message ends with %s.", nameOf(f.end)))
	}
	return texts
}

// openedSignature is a signature and the key that made it.
type openedSignature struct {
	signature signatureCandidate
	opened    openedBy
}

// match is the message that was signed.
type match struct {
	made    openedSignature
	form    form
	payload payloadForm

	timestamp     timestampCandidate // zero if the form has none
	timestampText string             // as it was signed
	keyID         keyCandidate       // zero if the form has none
	keyIDText     string
}

// work counts what is hashed.
type work struct {
	limit, hashed int
	exceeded      bool
}

func (w *work) spend(n int) bool {
	w.hashed += max(n, sha256.BlockSize)
	w.exceeded = w.exceeded || w.hashed > w.limit
	return !w.exceeded
}

func (w *work) report(e *explainer) {
	if w.exceeded {
		e.skipped("Not every form of the message was tried: %d MiB were hashed, which is the limit.", w.limit>>20)
	}
}

// signedTime is a text that can be the signed timestamp, and where it comes from.
type signedTime struct {
	candidate timestampCandidate
	text      string
}

// signedKeyID is likewise for the key id.
type signedKeyID struct {
	candidate keyCandidate
	text      string
}

// search looks for the message that a key signed. It begins with what is most likely.
func (e *explainer) search(ctx context.Context, m openedSignature) (match, bool) {
	var asCarried, rewritten []signedTime
	seen := map[string]bool{}
	for _, c := range e.timestamps {
		if !seen[c.text] {
			seen[c.text] = true
			asCarried = append(asCarried, signedTime{c, c.text})
		}
	}
	for _, c := range e.timestamps {
		for _, text := range c.rewritten() {
			if !seen[text] {
				seen[text] = true
				rewritten = append(rewritten, signedTime{c, text})
			}
		}
	}
	ids := e.signedKeyIDs(m.opened.key)
	original := []payloadForm{{bytes: e.request.Payload}}
	simple, serialized := payloadForms(e.request.Payload)
	if len(e.request.Payload) > maxRewritten {
		e.skipped("The JSON of the payload was not written again in other forms, because it is larger than %d bytes.",
			maxRewritten)
	}
	others := forms()
	alone := []form{canonical}

	for _, try := range []struct {
		payloads []payloadForm
		times    []signedTime
		forms    []form
	}{
		{original, asCarried, alone},
		// A line feed more or less is rather one of the payload than of the message.
		{simple, asCarried, alone},
		{original, asCarried, others},
		{serialized, asCarried, alone},
		{original, rewritten, alone},
		{simple, rewritten, alone},
		{simple, asCarried, others},
		{original, rewritten, others},
		{serialized, rewritten, alone},
	} {
		for _, p := range try.payloads {
			if ctx.Err() != nil || e.work.exceeded {
				return match{}, false
			}
			if found, ok := e.searchPayload(m, p, try.times, ids, try.forms); ok {
				return found, true
			}
		}
	}
	return match{}, false
}

// signedKeyIDs returns the texts that can be the key id in a message that the key
// signed: its id in all forms, and then the other ids.
func (e *explainer) signedKeyIDs(key *keyResult) (ids []signedKeyID) {
	seen := map[string]bool{}
	add := func(c keyCandidate, text string) {
		if !seen[text] && len(ids) < 16 {
			seen[text] = true
			ids = append(ids, signedKeyID{c, text})
		}
	}
	for _, own := range []bool{true, false} {
		for _, c := range e.keyIDs {
			if strings.EqualFold(c.id, key.id) == own {
				add(c, c.text)
			}
		}
		for _, c := range e.keyIDs {
			if own && strings.EqualFold(c.id, key.id) {
				add(c, strings.ToLower(c.id))
				add(c, strings.ToUpper(c.id))
				add(c, strings.ReplaceAll(strings.ToLower(c.id), "-", ""))
			}
		}
	}
	return ids
}

func (e *explainer) searchPayload(m openedSignature, p payloadForm, times []signedTime, ids []signedKeyID,
	forms []form) (match, bool) {
	h := m.opened.hash
	started := h.New() // of messages that begin with the payload
	started.Write(p.bytes)
	if !e.work.spend(len(p.bytes)) {
		return match{}, false
	}
	sum := make([]byte, 0, 64)
	try := func(f form, t signedTime, k signedKeyID) bool {
		first := f.order[0] == 'P'
		state := h.New()
		if first {
			state = clone(h, started, p.bytes)
		}
		e.work.spend(f.write(state, first, p.bytes, t.text, k.text))
		return bytes.Equal(state.Sum(sum[:0]), m.opened.digest)
	}
	for _, f := range forms {
		someTimes, someIDs := times, ids
		if !strings.Contains(f.order, "T") {
			someTimes = []signedTime{{}}
		}
		if !strings.Contains(f.order, "K") {
			someIDs = []signedKeyID{{}}
		}
		for _, t := range someTimes {
			for _, k := range someIDs {
				if e.work.exceeded {
					return match{}, false
				}
				if try(f, t, k) {
					f.keyOfAnother = k.text != "" && !strings.EqualFold(k.candidate.id, m.opened.key.id)
					return match{m, f, p, t.candidate, t.text, k.candidate, k.text}, true
				}
			}
		}
	}
	return match{}, false
}

// clone returns a copy of a hash that has been given the payload.
func clone(h crypto.Hash, started hash.Hash, payload []byte) hash.Hash {
	if c, ok := started.(hash.Cloner); ok {
		if copied, err := c.Clone(); err == nil {
			return copied
		}
	}
	again := h.New()
	again.Write(payload)
	return again
}
