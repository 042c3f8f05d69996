package intake

import (
	"crypto/x509"
	"time"

	"payhook.example/shared/keys"
	"payhook.example/shared/signature"
)

// Result is what became of a delivery, and how. The fields with a name in JSON are in the log.
type Result struct {
	Outcome Outcome `json:"outcome"`
	// Err is the cause of an outcome other than Accepted. It wraps an error of the package that found it, and its text
	// has nothing of the delivery.
	Err error `json:"-"`
	// PublishErr is why an event is not known to be on the bus: why EventBridge rejects
	// the first of those that it is known to reject, or else of the first event.
	PublishErr error `json:"-"`

	By         Authentication `json:",embed"`              // how it was authenticated
	DeliveryID string         `json:"deliveryId,omitzero"` // "" until the delivery is known to be authentic
	// UnverifiedID is the deliveryId in the body of a webhook that was not found authentic, if it is a
	// UUID. Anybody can have written it.
	UnverifiedID string `json:"unverifiedDeliveryId,omitzero"`
	Counts
	EventIDs EventIDs `json:"ids,omitempty"`
	// Deviations has, of each of the first ten events with a value of another type than the interface's, the
	// first path to one, and key.e for a key with another exponent than 65537. No value is in it.
	Deviations []string `json:"deviations,omitempty"`
	ParkedAs   ParkedAs `json:",embed"`
	// AlsoParked is the name with the events in conflict, if ParkedAs is that with the events without identity.
	AlsoParked ParkedAs `json:"-"`
	// LargeEventEnds is when the event of a claim check that was replayed is deleted, if that is soon.
	LargeEventEnds time.Time `json:"-"`
	Steps          Steps     `json:"ms,omitzero"`
}

// Failed returns the result of what failed with that error before anything was done.
func Failed(err error) Result { return Result{}.with(err) }

// with returns r with an error and its outcome.
func (r Result) with(err error) Result {
	r.Outcome, r.Err = OutcomeOf(err), err
	return r
}

// Authentication is what is known of how a delivery was authenticated.
type Authentication struct {
	KeyID string     `json:"keyId,omitzero"` // "" until it is known to be a key id: as it was sent
	Key   keys.Found `json:"-"`
	// Chain is that of the client certificate, if one is required: the certificate first. It has no other
	// one if it was not accepted, and is empty if it could not be read.
	Chain []*x509.Certificate `json:"-"`
	// Unverified says what a replay could not verify; "" for nothing.
	Unverified string `json:"-"`

	signature  signature.Parts // which Key verified, once the delivery is known to be authentic
	acceptedAt time.Time       // when the certificate was verified
}

// Counts are numbers of events of a delivery. Those with a name in JSON are in the log.
type Counts struct {
	Events     int `json:"-"`                   // in the delivery, with identity
	Recorded   int `json:"recorded,omitzero"`   // new
	Duplicates int `json:"duplicates,omitzero"` // recorded before
	// PendingDuplicates are those of Duplicates that are not published yet.
	PendingDuplicates int `json:"-"`
	Conflicts         int `json:"-"`                   // seen before with other content
	Large             int `json:"large,omitzero"`      // new, and sent as claim checks
	Pending           int `json:"pending,omitzero"`    // new, and left to redrive
	Unrecorded        int `json:"unrecorded,omitzero"` // not known to be recorded
	Published         int `json:"-"`                   // new, on the bus, and marked so
	Unmarked          int `json:"unmarked,omitzero"`   // the same, not marked so: redrive publishes them again
	// Unpublishable events are new and parked one by one, since EventBridge is known to reject them.
	Unpublishable int `json:"unpublishable,omitzero"`
	Invalid       int `json:"invalid,omitzero"` // without identity, if there are others
}

// EventResult is what became of one event of a delivery. Its text is stable: logs have it.
type EventResult string

// The results. Conflicting and Unpublishable events are parked.
const (
	Published     EventResult = "published" // on the bus, marked so or not
	Pending       EventResult = "pending"   // left to redrive
	Duplicate     EventResult = "duplicate"
	Dismissed     EventResult = "dismissed" // a duplicate of an event that a person dismissed
	Conflicting   EventResult = "conflict"
	Unpublishable EventResult = "unpublishable"
	Unrecorded    EventResult = "unrecorded" // not known to be recorded
)

// maxEventIDs is how many eventIds of a result are kept, so that a log line stays short.
const maxEventIDs = 10

// EventIDs are eventIds of a delivery by what became of the events: of each result, some of
// the first events. A delivery can have an eventId with several results.
type EventIDs map[EventResult][]string

func (ids EventIDs) add(result EventResult, eventID string) {
	if len(ids[result]) < maxEventIDs {
		ids[result] = append(ids[result], eventID)
	}
}

// Len returns how many eventIds are kept.
func (ids EventIDs) Len() (n int) {
	for _, of := range ids {
		n += len(of)
	}
	return n
}

// ParkedAs says under which name a delivery is parked.
type ParkedAs struct {
	Name   string `json:"parked,omitzero"` // "" if it is not parked
	Before bool   `json:"-"`               // the same delivery, with the same proof, was parked before
}

// New reports whether a delivery was parked now, and not before.
func (p ParkedAs) New() bool { return p.Name != "" && !p.Before }

// Steps has the milliseconds of each step. Evidence is stored while events are published and marked.
type Steps struct {
	Authenticate int64 `json:"authenticate,omitzero"`
	Decode       int64 `json:"decode,omitzero"`
	Record       int64 `json:"record,omitzero"`
	Publish      int64 `json:"publish,omitzero"`
	Mark         int64 `json:"mark,omitzero"`
	Evidence     int64 `json:"evidence,omitzero"`
}
