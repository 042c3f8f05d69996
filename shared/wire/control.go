package wire

import (
	"net/http"
	"time"

	"payhook.example/shared/payment"
)

// The values of these types are in package paymenttest, which does what they say.
type (
	// Endpoint is an endpoint of the payment service.
	Endpoint string
	// Fault is how an endpoint fails; "" if it does not.
	Fault string
	// Flaw is a flaw of the proof of a webhook that is otherwise valid. A receiver must reject it as not authentic.
	Flaw string
	// CertificateFlaw is why a receiver must reject a client certificate.
	CertificateFlaw string
)

// ControlRequest is a request to the control endpoint. It changes what it names, in the order of the fields.
// The zero value changes nothing.
type ControlRequest struct {
	Faults   map[Endpoint]Fault `json:"faults"`   // to set; "" ends one
	Withdraw string             `json:"withdraw"` // this key id is unknown from now on
	Rotate   bool               `json:"rotate"`   // sign with a new key from now on
	Send     *Order             `json:"send"`     // sign and send this webhook
}

// Order is a webhook that the control endpoint signs and sends. The comment of each field ends with its default, which
// replaces the zero value.
type Order struct {
	Events   int            `json:"events"`   // the number of new events, unless there is a payload; 1
	Amount   payment.Amount `json:"amount"`   // of each, a number; 1250.00
	Currency string         `json:"currency"` // of each; USD

	Kind        Flaw            `json:"kind"`        // a flaw, or a kind of package paymenttest; none
	Age         time.Duration   `json:"age"`         // of the timestamp, in JSON like "10m"; below 0: in the future
	Certificate CertificateFlaw `json:"certificate"` // of the client certificate, if there is one; none

	URL         string      `json:"url"`         // the one that the service was given
	Method      string      `json:"method"`      // POST
	Payload     []byte      `json:"payload"`     // Base64 in JSON
	ContentType string      `json:"contentType"` // application/json
	Header      http.Header `json:"header"`      // further headers; none
}

// ControlReport is an answer of the control endpoint.
type ControlReport struct {
	KeyID  string             `json:"keyId"` // of the key that signs
	Faults map[Endpoint]Fault `json:"faults"`
	Status int                `json:"status,omitzero"` // of the answer to the webhook; 0: none was sent
	Body   string             `json:"body,omitempty"`  // of this answer
}
