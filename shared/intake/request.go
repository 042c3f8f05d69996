package intake

import (
	"time"

	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
)

// EventKind is the kind of what is parked in the ledger. The other kinds are the reasons of stored deliveries.
const EventKind = "event"

// KindOf returns the kind of what has a name; "" if it is not a name.
func KindOf(name string) string {
	if payment.IsUUID(name) {
		return EventKind
	}
	n, err := proof.ParseName(name)
	if err != nil {
		return ""
	}
	return string(n.Reason)
}

// Version is the one of two contents of an eventId that a person chose.
type Version string

// The versions.
const (
	NoVersion     Version = ""       // no choice
	FirstVersion  Version = "first"  // what the ledger has stays as it is
	ParkedVersion Version = "parked" // what is parked is published as well
)

// Request is the event of an invocation of the redrive function. That of the schedule is empty and starts a run.
// A name is the eventId of a parked event, or that of a stored delivery, which begins with its reason.
type Request struct {
	// Replay has names of what is published instead of a run. A conflict needs a Version, and a rejected
	// webhook a Reason.
	Replay  []string `json:"replay,omitempty"`
	Version Version  `json:"version,omitempty"`
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

// Report is what an invocation of the redrive function returns.
type Report struct {
	Redriven // of a run

	Decided []Decided `json:"decided,omitempty"`

	Certificates *Certificates `json:"certificates,omitzero"`
}

// Redriven is the result of a run of redrive. The fields with a name in JSON are in the log.
type Redriven struct {
	Found     int `json:"found"`             // due, according to the index
	Leased    int `json:"leased,omitzero"`   // of these, taken by this run
	Published int `json:"published"`         // on the bus, and marked so
	Unmarked  int `json:"unmarked,omitzero"` // on the bus and not marked so: a later run publishes them again
	Failed    int `json:"failed"`            // leased, and not known to be on the bus
	Parked    int `json:"parked,omitzero"`   // of these, parked: they failed too often, or EventBridge rejects them
	// PublishErr is why the first of those that failed is not known to be on the bus.
	PublishErr error `json:"-"`
	// Errors is how many calls of the ledger or of parking failed, or items could not be decoded.
	Errors int `json:"errors,omitzero"`
	// Oldest is how long ago the oldest item was recorded that was pending when the
	// run began: of those that were due, and in each shard of those that are due
	// last, which have been failing longest.
	Oldest time.Duration `json:"-"`
	Unread bool          `json:"-"`    // not every shard was read, so that Oldest is not known
	Left   bool          `json:"left"` // the time was up before every item that was due was tried
	Err    error         `json:"-"`    // the first
}

// Decided is the result of the replay of one name, or of its dismissal, which has no outcome.
type Decided struct {
	Name       string `json:"name"`
	Outcome    string `json:"outcome,omitempty"` // the name of an [Outcome]
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
