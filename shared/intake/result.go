package intake

import (
	"crypto/x509"
	"time"

	"payhook.example/shared/keys"
)

// Result is what became of a delivery, and how.
type Result struct {
	Outcome Outcome
	// Err is the cause of an outcome other than Accepted; nil if a replay lacks a
	// version that fits. It wraps an error of the package that found it, and its text
	// has nothing of the delivery.
	Err error
	// PublishErr is why an event is not known to be on the bus: why EventBridge rejects
	// the first of those that it is known to reject, or else of the first event.
	PublishErr error

	Authentication
	DeliveryID string // "" until the delivery is known to be authentic
	// UnverifiedID is the deliveryId in the body of a webhook that was not found authentic, if it is a
	// UUID. Anybody can have written it.
	UnverifiedID string
	Counts
	EventIDs EventIDs
	// Deviations has, of each of the first ten events with a value of another type than the interface's, the
	// first path to one, and key.e for a key with another exponent than 65537. No value is in it.
	Deviations []string
	ParkedAs
	// AlsoParked is the name with the events in conflict, if ParkedAs is that with the events without identity.
	AlsoParked ParkedAs
	// ClaimEnds is when the event of a claim check that was replayed is deleted, if that is soon.
	ClaimEnds time.Time
	Steps     Steps
}

// Authentication is what is known of how a delivery was authenticated.
type Authentication struct {
	KeyID string // "" until it is known to be a key id: as it was sent
	Key   keys.Found
	// Chain is that of the client certificate, if one is required: the certificate first. It has no other
	// one if it was not accepted, and is empty if it could not be read.
	Chain []*x509.Certificate
	// Unverified says what a replay could not verify; "" for nothing.
	Unverified string
}

// Counts are numbers of events of a delivery. Those with a name in JSON are in the log.
type Counts struct {
	Events     int `json:"-"`                   // in the delivery, with identity
	Recorded   int `json:"recorded,omitzero"`   // new
	Duplicates int `json:"duplicates,omitzero"` // recorded before
	// PendingDuplicates are those of Duplicates that are not published yet.
	PendingDuplicates int `json:"-"`
	Conflicts         int `json:"-"`                   // seen before with other content
	Claimed           int `json:"claimed,omitzero"`    // new, and sent as claim checks
	Pending           int `json:"pending,omitzero"`    // new, and left to redrive
	Unrecorded        int `json:"unrecorded,omitzero"` // not known to be recorded
	Published         int `json:"-"`                   // new, on the bus, and marked so
	Unmarked          int `json:"unmarked,omitzero"`   // the same, not marked so: redrive publishes them again
	// Unpublishable events are new and parked one by one, since EventBridge is known to
	// reject them.
	Unpublishable int `json:"unpublishable,omitzero"`
	Invalid       int `json:"invalid,omitzero"` // without identity, if there are others
}

// ParkedAs says under which name a delivery is parked.
type ParkedAs struct {
	Parked       string // the name; "" if it is not parked
	ParkedBefore bool   // the same delivery, with the same proof, was parked before
}

// New reports whether a delivery was parked now, and not before.
func (p ParkedAs) New() bool { return p.Parked != "" && !p.ParkedBefore }

// Steps has the time that each step took. Evidence is stored while events are published and marked.
type Steps struct {
	Authenticate, Decode, Record, Publish, Mark, Evidence time.Duration
}
