package payment

import (
	"bytes"
	"encoding/json/jsontext"
	"strconv"
)

// maxRoutingToken is the maximum length of a value in the routing data, in bytes.
const maxRoutingToken = 128

// RoutingData returns the fields of an event's eventData that rules usually match, as a JSON object: amount,
// paymentCurrency, paymentStatus and the flags of returns, cancelations and cases. Each value is copied byte for byte,
// so that an amount keeps its digits. Left out are values with another type than that of the interface, values of more
// than 128 bytes, and integers outside 64 bits, which EventBridge rejects (AWS, "PutEvents" in the EventBridge API
// reference). The result is nil if the event has none of these fields. e must come from [DecodeDelivery] or
// [DecodeRawEvent]. It is safe for concurrent use.
func (e RawEvent) RoutingData() jsontext.Value {
	// Decoding has checked both, for all of the event.
	dec := jsontext.NewDecoder(bytes.NewBuffer(e.Bytes), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	_, _ = dec.ReadToken()
	for dec.PeekKind() == '"' {
		if name, _ := dec.ReadToken(); name.String() == "eventData" {
			return copyRouted(dec, eventDataSchema)
		}
		_, _ = dec.ReadValue() // faster than SkipValue
	}
	return nil
}

// copyRouted reads a value and returns what of it is routed, or nil.
func copyRouted(dec *jsontext.Decoder, s *schema) jsontext.Value {
	kind := kindOf(dec)
	if s == nil || kind != s.kind || kind != '{' {
		value, _ := dec.ReadValue()
		if s == nil || kind != s.kind || len(value) > maxRoutingToken || kind == '0' && !publishable(value) {
			return nil
		}
		return value
	}
	_, _ = dec.ReadToken()
	var out []byte
	for dec.PeekKind() == '"' {
		name, _ := dec.ReadValue()
		var field *schema
		i, known := s.find(name)
		if known && s.members[i].routed {
			field = s.members[i].value
		}
		value := copyRouted(dec, field)
		if value == nil {
			continue
		}
		out = append(out, ',')
		out, _ = jsontext.AppendQuote(out, s.members[i].name)
		out = append(append(out, ':'), value...)
	}
	_, _ = dec.ReadToken()
	if out == nil {
		return nil
	}
	out[0] = '{'
	return append(out, '}')
}

// publishable reports whether EventBridge accepts a number.
func publishable(number []byte) bool {
	if bytes.ContainsAny(number, ".eE") {
		return true
	}
	_, err := strconv.ParseInt(string(number), 10, 64)
	return err == nil
}
