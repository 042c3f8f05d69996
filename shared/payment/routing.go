package payment

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"strconv"
	"strings"
)

// maxRoutingToken is the maximum length of a value in the routing data, in bytes.
const maxRoutingToken = 128

// routingData is what of an event's eventData rules usually match.
type routingData struct {
	Amount        Amount  `json:"amount,omitzero"`
	Currency      rawText `json:"paymentCurrency,omitzero"`
	PaymentStatus struct {
		Status rawText `json:"status,omitzero"`
		Time   rawText `json:"statusTime,omitzero"`
	} `json:"paymentStatus,omitzero"`
	Returns struct {
		Details *bool `json:"hasReturnDetails,omitzero"`
	} `json:"returns,omitzero"`
	Cancelations struct {
		Details *bool `json:"hasCancelationDetails,omitzero"`
	} `json:"cancelations,omitzero"`
	Cases struct {
		Linked *bool `json:"hasLinkedCases,omitzero"`
	} `json:"cases,omitzero"`
}

// rawText is a JSON string, byte for byte.
type rawText struct{ jsontext.Value }

// RoutingData returns the fields of an event's eventData that rules usually match, as a JSON object: amount,
// paymentCurrency, paymentStatus and the flags of returns, cancelations and cases. Each value is copied byte for byte,
// so that an amount keeps its digits. Left out are values with another type than that of the interface, values of more
// than 128 bytes, and integers outside 64 bits, which EventBridge rejects (AWS, "PutEvents" in the EventBridge API
// reference). The result is nil if the event has none of these fields. e must come from [DecodeDelivery] or
// [DecodeRawEvent]. It is safe for concurrent use.
func (e RawEvent) RoutingData() jsontext.Value {
	var event struct {
		Data routingData `json:"eventData"`
	}
	_ = unmarshal("event", e.Bytes, &event) // decoding has checked it
	data := &event.Data
	if len(data.Amount) > maxRoutingToken || !publishable(string(data.Amount)) {
		data.Amount = ""
	}
	for _, text := range []*rawText{&data.Currency, &data.PaymentStatus.Status, &data.PaymentStatus.Time} {
		if len(text.Value) > maxRoutingToken {
			text.Value = nil
		}
	}
	out, _ := json.Marshal(data, jsontext.PreserveRawStrings(true))
	if string(out) == "{}" {
		return nil
	}
	return out
}

// publishable reports whether EventBridge accepts a number.
func publishable(number string) bool {
	_, err := strconv.ParseInt(number, 10, 64)
	return err == nil || strings.ContainsAny(number, ".eE")
}
