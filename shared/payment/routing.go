package payment

import (
	"bytes"
	"encoding/json/jsontext"
	"strconv"
)

// maxRoutingToken is the maximum length of a value in the routing data, in bytes.
const maxRoutingToken = 128

// routed is a value that the routing data contains.
type routed struct {
	kind   jsontext.Kind     // 't' means true and false
	fields map[string]routed // of an object
}

var routedData = routed{'{', map[string]routed{
	"amount":          {kind: '0'},
	"paymentCurrency": {kind: '"'},
	"paymentStatus":   {'{', map[string]routed{"status": {kind: '"'}, "statusTime": {kind: '"'}}},
	"returns":         {'{', map[string]routed{"hasReturnDetails": {kind: 't'}}},
	"cancelations":    {'{', map[string]routed{"hasCancelationDetails": {kind: 't'}}},
	"cases":           {'{', map[string]routed{"hasLinkedCases": {kind: 't'}}},
}}

// RoutingData returns the fields of an event's eventData that rules usually match,
// as a JSON object: amount, paymentCurrency, paymentStatus and the flags of
// returns, cancelations and cases. Each value is copied byte for byte, so that an
// amount keeps its digits. Left out are values with another type than that of the
// interface, values of more than 128 bytes, and integers outside 64 bits, which
// EventBridge rejects (AWS, "PutEvents" in the EventBridge API reference). The
// result is nil if the event has none of these fields. e must come from
// [DecodeDelivery] or [DecodeRawEvent]. It is safe for concurrent use.
func (e RawEvent) RoutingData() jsontext.Value {
	// Decoding has checked both, for all of the event.
	dec := jsontext.NewDecoder(bytes.NewBuffer(e.Bytes), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	_, _ = dec.ReadToken()
	for dec.PeekKind() == '"' {
		if name, _ := dec.ReadToken(); name.String() == "eventData" {
			return copyRouted(dec, routedData)
		}
		_, _ = dec.ReadValue() // faster than SkipValue
	}
	return nil
}

// copyRouted reads a value and returns what of it is routed, or nil.
func copyRouted(dec *jsontext.Decoder, r routed) jsontext.Value {
	kind := dec.PeekKind()
	if kind == 'f' {
		kind = 't'
	}
	if kind != r.kind || r.fields == nil {
		value, _ := dec.ReadValue()
		if kind != r.kind || len(value) > maxRoutingToken || kind == '0' && !publishable(value) {
			return nil
		}
		return value
	}
	_, _ = dec.ReadToken()
	var out []byte
	for dec.PeekKind() == '"' {
		name, _ := dec.ReadToken()
		field := name.String()
		value := copyRouted(dec, r.fields[field])
		if value == nil {
			continue
		}
		out = append(out, ',')
		out, _ = jsontext.AppendQuote(out, field)
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
