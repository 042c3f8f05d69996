package paymenttest

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"time"
	"uuid"

	"payhook.example/shared/payment"
)

// Event returns an event with every field of section 2 and new ids: a payment of 1250.00
// USD that was released now, with no flag set. The caller can change its fields.
func Event() payment.Event {
	now := time.Now().UTC().Truncate(time.Millisecond)
	return payment.Event{
		EventName:      "PAYMENT_STATUS.RELEASED",
		EventID:        uuid.New().String(),
		EventTimestamp: now,
		EventData: payment.Data{
			Identifiers: payment.Identifiers{
				PaymentRequestID:   "REQ-" + uuid.New().String()[:8],
				PaymentEndToEndID:  "E2E-" + uuid.New().String()[:8],
				SvcUniquePaymentID: "PAY-" + uuid.New().String()[:8],
				RailReferenceID:    jsontext.Value(`{}`),
				SvcPostingIDs:      []string{"POST-" + uuid.New().String()[:8], "POST-" + uuid.New().String()[:8]},
			},
			PaymentExecutedValueDate: now.Format(time.DateOnly),
			Amount:                   "1250.00",
			AmountType:               "PAYMENT",
			PaymentCurrency:          "USD",
			PaymentStatus:            payment.PaymentStatus{Status: "RELEASED", StatusTime: now},
		},
	}
}

// Events returns n events of [Event].
func Events(n int) []payment.Event {
	events := make([]payment.Event, n)
	for i := range events {
		events[i] = Event()
	}
	return events
}

// Encode returns an event as the service sends it. Times have milliseconds (section 2.3),
// and amounts keep their digits. It panics if the amount is not a JSON number.
func Encode(e payment.Event) []byte {
	text, err := json.Marshal(e, json.WithMarshalers(json.MarshalFunc(func(t time.Time) ([]byte, error) {
		return []byte(t.UTC().Format(`"2006-01-02T15:04:05.000Z"`)), nil
	})))
	if err != nil {
		panic(fmt.Sprintf("paymenttest: %v", err))
	}
	return text
}

// Delivery returns the payload of a delivery of events with a new id (section 2.2).
func Delivery(events ...payment.Event) []byte {
	encoded := make([][]byte, len(events))
	for i, e := range events {
		encoded[i] = Encode(e)
	}
	return RawDelivery(uuid.New().String(), encoded...)
}

// RawDelivery returns the payload of a delivery of events in JSON. It does not check or change their bytes.
func RawDelivery(id string, events ...[]byte) []byte {
	return fmt.Appendf(nil, `{"deliveryId":"%s","events":[%s]}`, id, bytes.Join(events, []byte(",")))
}
