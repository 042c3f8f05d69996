package payment

import (
	"bytes"
	"encoding/json/jsontext"
	"strconv"
)

// maxRoutingToken is the maximum length of a value in the routing data, in bytes.
const maxRoutingToken = 128

// routed are the fields of eventData that the routing data contains. A nil value
// is a field with a single value.
type routed map[string]routed

var routedData = routed{
	"amount":          nil,
	"paymentCurrency": nil,
	"paymentStatus":   {"status": nil, "statusTime": nil},
	"returns":         {"hasReturnDetails": nil},
	"cancelations":    {"hasCancelationDetails": nil},
	"cases":           {"hasLinkedCases": nil},
}

// RoutingData returns the fields of an event's eventData that rules usually match,
// as a JSON object: amount, paymentCurrency, paymentStatus and the flags of
// returns, cancelations and cases. Each value is copied byte for byte, so that an
// amount keeps its digits. A value of more than 128 bytes is left out, and so is an
// integer outside 64 bits, which EventBridge rejects (AWS, "PutEvents" in the
// EventBridge API reference). The result is nil if the event has none of these
// fields. e must come from [DecodeDelivery] or [DecodeRawEvent]. It is safe for
// concurrent use.
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

// copyRouted reads an object and returns an object with the members that fields
// names, or nil if it has none of them. Decoding has checked that the object is valid and
// that these members have their types.
func copyRouted(dec *jsontext.Decoder, fields routed) jsontext.Value {
	_, _ = dec.ReadToken()
	var out []byte
	for dec.PeekKind() == '"' {
		name, _ := dec.ReadToken()
		field := name.String()
		inner, known := fields[field]
		var value jsontext.Value
		switch {
		case inner != nil:
			value = copyRouted(dec, inner)
		case known:
			value, _ = dec.ReadValue()
			if len(value) > maxRoutingToken || value.Kind() == '0' && !publishable(value) {
				value = nil
			}
		default:
			_, _ = dec.ReadValue()
		}
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
