// Package payment decodes the payment service's webhooks: sections 2.2 to 2.5 of its interface.
//
// It guarantees that what it decodes is unambiguous. Two readers of the same bytes, whatever their language, see the
// same payment: it rejects duplicate names, invalid UTF-8, and an event without an eventId and an eventName. It accepts
// everything else, whatever the types in eventData. Amounts keep their digits: no number is converted to a float64.
//
// A receiver calls [DecodeDelivery]. A consumer of the events on the bus calls [DecodeEvent] with an event's detail.
package payment

import (
	"encoding/json/jsontext"
	"errors"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Event is one element of a delivery (section 2.3) and the detail of one event on the bus. Fields that the sender
// omitted or sent as null are zero, and so are those in Deviations.
type Event struct {
	EventName      string    `json:"eventName"`               // GROUP.STATUS, as in PAYMENT_STATUS.RELEASED
	EventID        string    `json:"eventId"`                 // a UUID; the idempotency key
	EventTimestamp time.Time `json:"eventTimestamp,omitzero"` // UTC
	EventData      Data      `json:"eventData"`

	// Deviations are the paths of the values with another JSON type than that of the interface, null excepted, and of
	// texts that are not a time, as in eventData.amount. Of an array, only the first is named. The paths have only
	// names of the interface, in the order of the event.
	Deviations []string `json:"-"`
}

// Data is the payment that an event is about (section 2.4).
type Data struct {
	Identifiers              Identifiers   `json:"identifiers"`
	PaymentExecutedValueDate string        `json:"paymentExecutedValueDate"` // YYYY-MM-DD
	Amount                   Amount        `json:"amount"`
	AmountType               string        `json:"amountType"`      // PAYMENT; the interface does not list others
	PaymentCurrency          string        `json:"paymentCurrency"` // three upper-case letters
	PaymentStatus            PaymentStatus `json:"paymentStatus"`
	Returns                  Returns       `json:"returns"`
	Cancelations             Cancelations  `json:"cancelations"`
	Cases                    Cases         `json:"cases"`
}

// Identifiers name a payment (section 2.5).
type Identifiers struct {
	PaymentRequestID   string         `json:"paymentRequestId"`         // chosen by the client
	PaymentEndToEndID  string         `json:"paymentEndToEndId"`        // end-to-end tracking
	SvcUniquePaymentID string         `json:"svcUniquePaymentId"`       // assigned by the service
	RailReferenceID    jsontext.Value `json:"railReferenceId,omitzero"` // an object of unspecified fields
	SvcPostingIDs      []string       `json:"svcPostingIds,omitzero"`   // ledger postings; "" for a deviation
}

// PaymentStatus is the state of a payment and when it was reached.
type PaymentStatus struct {
	Status     string    `json:"status"`              // RELEASED; the interface does not list others
	StatusTime time.Time `json:"statusTime,omitzero"` // UTC
}

// Returns states whether the payment has details of a return.
type Returns struct {
	HasReturnDetails bool `json:"hasReturnDetails"`
}

// Cancelations states whether the payment has details of a cancelation.
type Cancelations struct {
	HasCancelationDetails bool `json:"hasCancelationDetails"`
}

// Cases states whether the payment has linked cases.
type Cases struct {
	HasLinkedCases bool `json:"hasLinkedCases"`
}

// Amount is a JSON number, digit for digit as it was sent: 100.00 stays 100.00. The empty Amount means that no number
// was sent; it is marshaled as null. Use [Amount.Rat] to compare and add amounts, never texts or floats.
type Amount string

// maxAmountDigits limits the work of Rat: 1e999999999 is also a JSON number.
const maxAmountDigits = 1000

// Rat returns the exact value of a. It reports false if a is not a JSON number or has more than 1000 digits.
func (a Amount) Rat() (*big.Rat, bool) {
	if len(a) > maxAmountDigits || a.check() != nil {
		return nil, false
	}
	if i := strings.IndexAny(string(a), "eE"); i >= 0 {
		exponent, err := strconv.Atoi(string(a[i+1:]))
		if err != nil || exponent > maxAmountDigits || exponent < -maxAmountDigits {
			return nil, false
		}
	}
	return new(big.Rat).SetString(string(a))
}

func (a Amount) check() error {
	if v := jsontext.Value(a); v.Kind() != '0' || !v.IsValid() || strings.TrimSpace(string(a)) != string(a) {
		return errors.New("payment: an amount must be a JSON number")
	}
	return nil
}

// MarshalJSON returns the digits of a, or null if a is empty. It returns an error if a is not a JSON number.
func (a Amount) MarshalJSON() ([]byte, error) {
	if a == "" {
		return []byte("null"), nil
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	return []byte(a), nil
}

// UnmarshalJSON stores the digits of a JSON number, and no amount for null. It returns an error for every other value.
func (a *Amount) UnmarshalJSON(b []byte) error {
	got := Amount(b)
	if string(b) == "null" {
		got = ""
	} else if err := got.check(); err != nil {
		return err
	}
	*a = got
	return nil
}

// DecodeEvent decodes one event: an element of a delivery, or the detail of an event on the bus. It accepts every event
// that [DecodeDelivery] accepts, and returns the errors of DecodeDelivery for the others. A value that the interface
// does not allow is zero and is in Deviations. It is safe for concurrent use.
func DecodeEvent(raw []byte) (Event, error) {
	e, err := decodeEvent(raw, false)
	return e.Event, err
}
