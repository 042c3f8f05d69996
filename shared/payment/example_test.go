package payment_test

import (
	"fmt"
	"log"
	"math/big"

	"payhook.example/shared/payment"
)

func ExampleDecodeEvent() {
	// The detail of an EventBridge event.
	detail := []byte(`{
		"eventName": "PAYMENT_STATUS.RELEASED",
		"eventId": "6f1c0d7a-52a8-4a0e-9b5c-0d6d1a2b3c4e",
		"eventTimestamp": "2026-01-31T12:00:00.000Z",
		"eventData": {
			"amount": 1234567890.10,
			"paymentCurrency": "EUR",
			"paymentStatus": {"status": "RELEASED"}
		}
	}`)
	event, err := payment.DecodeEvent(detail)
	if err != nil {
		log.Fatal(err)
	}
	data := event.EventData
	fmt.Println(event.EventID, data.PaymentStatus.Status, data.Amount, data.PaymentCurrency)
	// Output: 6f1c0d7a-52a8-4a0e-9b5c-0d6d1a2b3c4e RELEASED 1234567890.10 EUR
}

func ExampleAmount_Rat() {
	sum := new(big.Rat)
	for _, amount := range []payment.Amount{"0.10", "0.20", "1E3"} {
		value, ok := amount.Rat() // exact; never a float64
		if !ok {
			log.Fatalf("%s is not an amount", amount)
		}
		sum.Add(sum, value)
	}
	fmt.Println(sum.FloatString(2))
	// Output: 1000.30
}
