// Package payment is the wire format of the payment service's webhooks:
// sections 2.2 to 2.5 of its interface.
//
// It guarantees that what it decodes is unambiguous. Two readers of the same
// bytes, whatever their language, see the same payment: names that occur
// twice, names that differ from a field of the interface only in case, invalid
// UTF-8, and values of another JSON type than the interface's are refused.
// Fields that the interface does not know are kept. Amounts keep their digits:
// no number passes through a float64.
//
// A receiver calls [DecodeDelivery]. A consumer of the events on the bus calls
// [DecodeEvent] with an event's detail.
package payment

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"encoding/json/jsontext"
	"encoding/json/v2"

	"payhook.example/shared/rfc3339"
)

// Event is one element of a delivery (section 2.3), which is also the detail
// of one event on the bus. Fields that the sender left out are zero.
type Event struct {
	EventName      string    `json:"eventName"`      // GROUP.STATUS, as in PAYMENT_STATUS.RELEASED
	EventID        string    `json:"eventId"`        // a UUID; the idempotency key
	EventTimestamp time.Time `json:"eventTimestamp"` // UTC, milliseconds
	EventData      Data      `json:"eventData"`
}

// Data is the payment that an event is about (section 2.4).
type Data struct {
	Identifiers              Identifiers   `json:"identifiers"`
	PaymentExecutedValueDate string        `json:"paymentExecutedValueDate"` // YYYY-MM-DD
	Amount                   Amount        `json:"amount"`
	AmountType               string        `json:"amountType"`      // PAYMENT, and others that the interface does not show
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
	RailReferenceID    jsontext.Value `json:"railReferenceId,omitzero"` // an object of a structure that is not shown
	SvcPostingIDs      []string       `json:"svcPostingIds"`            // ledger postings
}

// PaymentStatus is the state of a payment and when it was reached.
type PaymentStatus struct {
	Status     string    `json:"status"`     // RELEASED, and others that the interface does not show
	StatusTime time.Time `json:"statusTime"` // UTC, milliseconds
}

// Returns says whether details of a return accompany the payment.
type Returns struct {
	HasReturnDetails bool `json:"hasReturnDetails"`
}

// Cancelations says whether details of a cancelation accompany the payment.
type Cancelations struct {
	HasCancelationDetails bool `json:"hasCancelationDetails"`
}

// Cases says whether cases are linked to the payment.
type Cases struct {
	HasLinkedCases bool `json:"hasLinkedCases"`
}

// Amount is a JSON number, digit for digit as it was sent: 100.00 stays
// 100.00. The empty Amount stands for one that was not sent, and is written as
// 0. Compare and add amounts by [Amount.Rat], never as texts or floats.
type Amount string

// maxAmountDigits bounds the work of Rat: 1e999999999 is a JSON number too.
const maxAmountDigits = 1000

// Rat returns the exact value of a. It reports false if a is no JSON number or
// would need more than 1000 digits.
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

// MarshalJSON writes the digits of a. It fails if a is no JSON number.
func (a Amount) MarshalJSON() ([]byte, error) {
	if a == "" {
		return []byte("0"), nil
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	return []byte(a), nil
}

// UnmarshalJSON takes over the digits of a JSON number and refuses everything
// else.
func (a *Amount) UnmarshalJSON(b []byte) error {
	got := Amount(b)
	if err := got.check(); err != nil {
		return err
	}
	*a = got
	return nil
}

// DecodeEvent decodes one event: an element of a delivery, or the detail of an
// event on the bus. It is as strict as [DecodeDelivery] and returns the same
// errors. It is safe for concurrent use.
func DecodeEvent(raw []byte) (Event, error) {
	if _, err := DecodeRawEvent(raw); err != nil {
		return Event{}, err
	}
	var event Event
	if err := json.Unmarshal(raw, &event, strictTimes); err != nil {
		// The types hold already, and so does eventTimestamp.
		return Event{}, fmt.Errorf("payment: %w", &FieldError{Field: "event.eventData.paymentStatus.statusTime", Problem: "is not an RFC 3339 timestamp"})
	}
	return event, nil
}

// strictTimes reads times as a delivery is decoded: the standard library refuses
// a lower-case t or z, and leap seconds.
var strictTimes = json.WithUnmarshalers(json.UnmarshalFunc(func(raw []byte, t *time.Time) (err error) {
	*t, err = rfc3339.Parse(unquote(raw))
	return err
}))
