// Package ledger remembers every event that was accepted, by its eventId.
//
// It guarantees that of all callers that record one eventId within the
// de-duplication window exactly one is told that the event is new, and that a
// recorded event can be found until it is marked as published or parked: nothing
// deletes a pending item, neither the window nor DynamoDB's TTL.
//
// The table belongs to one stack: redrive publishes everything in it on the bus of the stack.
//
// # Layout
//
// One item for each event ([Item]), and an index that is sparse: what
// is published has no shard and is not in it. An event arrives in one write to the
// table and one to the index, and is published by one more of each. At 10,000
// events a second that is about 310 index writes a second for each of 64 shards,
// under a third of what one partition takes (AWS, "Best practices for designing
// and using partition keys").
//
// All but the event takes about 210 bytes. So an event of up to 810 bytes
// costs one write unit (1 KiB) for each write; the
// representative event of section 2 of the interface has about 720.
package ledger

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json/jsontext"
	"strings"
	"time"

	"payhook.example/shared/payment"
)

// Shards is how many partitions the index of pending items is spread over.
const Shards = 64

// MaxEventBytes is the size of the largest event that can be recorded. An item has at most 400 KB
// of 1,024 bytes each, including attribute names (AWS, "Constraints in Amazon DynamoDB"). The
// other attributes have less than 1 KB.
const MaxEventBytes = 400<<10 - 1<<10

// DefaultWindow is how long an eventId is remembered unless [Options] say
// otherwise.
const DefaultWindow = 30 * 24 * time.Hour

// defaultParallel is how many calls a ledger makes at the same time: enough for a thousand
// entries. It makes three times as many reads. A client should keep as many connections.
const defaultParallel = 40

// Options are the options of a [Ledger]. The zero value of each stands for the
// default that is named.
type Options struct {
	Window   time.Duration    // how long an eventId is remembered; DefaultWindow
	Parallel int              // calls at the same time, of reads three times as many; 40
	Batch    int              // entries in one call; MaxWrites, which is also the most
	Now      func() time.Time // time.Now
}

// Ledger is the table. It is safe for concurrent use.
type Ledger struct {
	store Store
	opts  Options
}

// New returns the ledger that is in store.
func New(store Store, opts Options) *Ledger {
	opts.Window = cmp.Or(opts.Window, DefaultWindow)
	opts.Parallel = cmp.Or(opts.Parallel, defaultParallel)
	opts.Batch = cmp.Or(opts.Batch, MaxWrites)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Ledger{store, opts}
}

// Digest identifies an event's content.
type Digest [sha256.Size]byte

// DigestOf returns the SHA-256 of an event's canonical form, so that the same content in another spelling is
// the same event. The form is that of RFC 8785 (no white space, members sorted, strings in their shortest
// form), except that numbers stay as they were sent: 1.0 is not 1.00. raw must be valid JSON without
// duplicate names.
func DigestOf(raw []byte) Digest {
	// What is no JSON is appended as it is.
	canonical, _ := jsontext.AppendFormat(nil, raw, jsontext.ReorderRawObjects(true))
	return sha256.Sum256(canonical)
}

// Entry is an event that waits to be published.
type Entry struct {
	EventID        string // in lower case: the ledger's key
	EventName      string
	EventTimestamp time.Time
	DeliveryID     string // of the delivery that brought it
	Digest         Digest // of the signed event
	Detail         []byte // what is published: the signed event, or its claim check
	Claimed        bool   // Detail is a claim check
	RecordedAt     time.Time
	Attempts       int // how often redrive has leased it
}

// NewEntry returns the entry of a signed event that is published as it is.
func NewEntry(event payment.RawEvent, deliveryID string, recordedAt time.Time) Entry {
	return Entry{
		EventID: Key(event.EventID), EventName: event.EventName, EventTimestamp: event.EventTimestamp,
		DeliveryID: deliveryID, Digest: DigestOf(event.Bytes), Detail: event.Bytes, RecordedAt: recordedAt,
	}
}

// AsClaim returns the entry of the same event that is published as a claim check.
func (e Entry) AsClaim(detail []byte) Entry {
	e.Detail, e.Claimed = detail, true
	return e
}

// Key returns the form of an eventId under which the ledger knows it: case has
// no meaning in a UUID (RFC 9562, section 4).
func Key(eventID string) string { return strings.ToLower(eventID) }

// Holder identifies an invocation that records or leases events. By it a writer
// recognizes its own write when the answer to the write was lost.
type Holder [8]byte

// NewHolder returns a random holder.
func NewHolder() (h Holder) {
	rand.Read(h[:]) // never fails
	return h
}
