// Package wire has the JSON that programs exchange: with the redrive function, with the page of make run, and with the
// control endpoint of the simulated payment service. It only has types. It imports neither the SDK nor what uses them.
package wire

import "time"

// Content is the one of the two contents of an eventId in conflict that a person chose.
type Content string

// The contents.
const (
	NoContent     Content = ""       // no choice
	FirstContent  Content = "first"  // what the ledger has stays as it is
	ParkedContent Content = "parked" // what is parked is published as well
)

// RedriveRequest is the event of an invocation of the redrive function. That of the schedule is empty and starts a run.
// A name is the eventId of a parked event, or that of a stored delivery, which begins with its reason.
type RedriveRequest struct {
	// Replay has names of what is published instead of a run. A conflict needs a Content, and a rejected
	// webhook a Reason.
	Replay  []string `json:"replay,omitempty"`
	Content Content  `json:"content,omitempty"`
	// Again also replays deliveries that were replayed or dismissed before.
	Again bool `json:"again,omitzero"`
	// AcceptAge checks the age of rejected webhooks as of when they arrived.
	AcceptAge bool `json:"acceptAge,omitzero"`
	// Dismiss has names of what needs no replay, for a Reason.
	Dismiss []string `json:"dismiss,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	// By is who decided, as the caller states.
	By string `json:"by,omitempty"`
	// Certificates requests the report on client certificates, instead of a run.
	Certificates bool `json:"certificates,omitzero"`
}

// RedriveReport is what an invocation of the redrive function returns.
type RedriveReport struct {
	RedriveCounts // of a run

	Decided []Decided `json:"decided,omitempty"`

	Certificates *Certificates `json:"certificates,omitzero"`
}

// RedriveCounts are what a run of redrive did. The log has them as well.
type RedriveCounts struct {
	Found     int `json:"found"`             // due, according to the index
	Leased    int `json:"leased,omitzero"`   // of these, taken by this run
	Published int `json:"published"`         // on the bus, and marked so
	Unmarked  int `json:"unmarked,omitzero"` // on the bus and not marked so: a later run publishes them again
	Failed    int `json:"failed"`            // leased, and not known to be on the bus
	Parked    int `json:"parked,omitzero"`   // of these, parked: they failed too often, or EventBridge rejects them
	// Errors is how many calls of the ledger or of parking failed, or items could not be decoded.
	Errors int  `json:"errors,omitzero"`
	Left   bool `json:"left"` // the time was up before every item that was due was tried
}

// Decided is the result of the replay of one name, or of its dismissal, which has no outcome.
type Decided struct {
	Name       string `json:"name"`
	Outcome    string `json:"outcome,omitempty"` // of a replay, as in the log
	Cause      string `json:"cause,omitempty"`   // why it is not dismissed or accepted
	Recorded   int    `json:"recorded,omitzero"`
	Pending    int    `json:"pending,omitzero"` // also of Duplicates: redrive publishes them
	Duplicates int    `json:"duplicates,omitzero"`
	Conflicts  int    `json:"conflicts,omitzero"`
	// Parked is the name of the delivery that the replay parked with its events in conflict.
	Parked string `json:"parked,omitempty"`
	// Unverified is the part of the proof that could not be verified.
	Unverified string `json:"unverified,omitempty"`
	// LargeEventEnds is when the large event of a claim check is deleted, if that is soon.
	LargeEventEnds time.Time `json:"largeEventEnds,omitzero"`
}

// Certificates are the client certificates that the webhook function accepts.
type Certificates struct {
	Authentication string   `json:"authentication"`
	DaysLeft       float64  `json:"daysLeft"` // of the CAs; as the metric TrustDaysLeft
	CAs            []CA     `json:"cas"`
	Pins           []string `json:"pins,omitempty"`
	Subjects       []string `json:"subjects,omitempty"`
	RevokedKeys    []string `json:"revokedKeys,omitempty"`
}

// CA is one certificate of the truststore.
type CA struct {
	Subject     string    `json:"subject"`
	Issuer      string    `json:"issuer"`
	Fingerprint string    `json:"fingerprint"`
	Pin         string    `json:"pin"`
	NotAfter    time.Time `json:"notAfter"`
}
