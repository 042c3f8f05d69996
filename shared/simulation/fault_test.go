package simulation

import (
	"errors"
	"fmt"
	"time"

	"payhook.example/shared/bus"
)

// op is a kind of call.
type op int

const (
	fetchKey op = iota // at the key endpoint
	readKey            // in the table of keys
	writeKey
	spendKey
	storeLarge // in a bucket
	findLarge
	park   // a delivery or a decision about it
	keep   // evidence
	record // in the ledger
	query
	readKnown
	lease
	mark
	postpone
	parkEvent
	replayEvent
	dismissEvent
	put // on the bus
	ops
)

func (o op) String() string {
	return [...]string{"fetch key", "read key", "write key", "spend", "store large event", "find large event",
		"park", "keep",
		"record", "query", "read known", "lease", "mark", "postpone", "park event", "replay event", "dismiss event",
		"put"}[o]
}

// ofItems reports whether a call is about several items of the ledger.
func (o op) ofItems() bool { return o == record || o == lease || o == mark }

// writes reports whether a call can change anything.
func (o op) writes() bool {
	return o != fetchKey && o != readKey && o != findLarge && o != query && o != readKnown
}

// isDecision reports whether a call replays or dismisses a parked event.
func (o op) isDecision() bool { return o == replayEvent || o == dismissEvent }

// parksOrDecides reports whether a call parks an event, or is a decision about one.
func (o op) parksOrDecides() bool { return o == parkEvent || o.isDecision() }

// kind is a kind of fault.
type kind int

const (
	none          kind = iota
	errorBefore        // fails without effect
	errorAfter         // takes effect; the answer is an error
	throttled          // fails without effect: too many requests
	refused            // fails without effect: not permitted
	timeoutBefore      // no effect, no answer
	timeoutAfter       // takes effect; no answer
	late               // takes effect after its caller has given up
	slow               // takes some time
	slowest            // takes nearly all the time of its context
	partial            // it fails for some entries or items, once
	partialLost        // it takes effect for some items; the answer is an error
	failing            // fails, and so do all later calls of this kind by the caller
	rejecting          // some events fail in every request
	poisoned           // some events make every request with them fail as a whole
	crashBefore        // the caller crashes before the call is sent
	crashAfter         // the caller crashes before it has the answer
	freezeBriefly      // the caller is suspended for some seconds
	freezeLong         // the caller is suspended past its deadline
	lag                // takes effect; the index lags
	redeliver          // the same delivery arrives at another environment
	redriveFirst       // a run of redrive starts
	noKey              // the key endpoint answers 200 without a key
	kinds
)

var kindNames = [...]string{"", "error before", "error after effect", "throttled", "refused", "timeout before",
	"timeout after effect", "takes effect late", "slow", "slowest", "partial", "partial, then an error",
	"failing for good", "rejecting", "poisoned", "crash before", "crash after effect", "frozen briefly", "frozen long",
	"index lags", "delivered again first", "redrive first", "200 without a key"}

// fault is the fault of one call.
type fault struct {
	kind kind
	mask uint32        // the entries that fail
	code string        // the error code of the entries
	by   time.Duration // the delay or duration
}

// hits reports whether entry n fails.
func (f fault) hits(n int) bool { return f.mask>>n&1 == 1 }

func (f fault) String() string {
	text := kindNames[f.kind]
	if f.kind.ofEntries() {
		text += fmt.Sprintf(" (entries %b, %s)", f.mask, f.code)
	}
	if f.by > 0 {
		text += fmt.Sprintf(" (%v)", f.by)
	}
	return text
}

// ofEntries reports whether a kind of fault applies to some entries or items of a request.
func (k kind) ofEntries() bool {
	return k == partial || k == partialLost || k == rejecting || k == poisoned
}

// afterEffect is the code of an item that fails after the call took effect for it.
const afterEffect = "InternalServerError after effect"

// malformed is the code of an entry that the bus never takes.
const malformed = "MalformedDetail"

// codesOf returns the codes with which parts of a call fail.
func (k kind) codesOf(o op) []string {
	switch {
	case k == partialLost:
		return []string{""}
	case k == poisoned:
		return []string{"ValidationException"}
	case o != put:
		return []string{"AccessDenied", afterEffect}
	}
	return []string{"ThrottlingException", malformed}
}

// applies reports whether a kind of call can have a kind of fault.
func (k kind) applies(o op) bool {
	switch k {
	case partial:
		return o == put || o.ofItems()
	case partialLost:
		return o.ofItems()
	case rejecting, poisoned:
		return o == put
	case errorAfter, timeoutAfter, late:
		return o.writes()
	case lag:
		return o == record || o == lease || o == mark || o == postpone || o.parksOrDecides()
	case noKey:
		return o == fetchKey
	}
	return true
}

// The times are odd so that no two events coincide by construction.
const (
	clientTimeout = 5*time.Second + 7
	kindSlow      = 3*time.Second + 11
	kindLate      = 20*time.Second + 13
	kindBrief     = 10*time.Second + 17
	kindLong      = 150*time.Second + 19
	kindLag       = 90*time.Second + 23
)

// failure is the error of a service.
type failure struct {
	text  string
	again bool // the client tries again
}

func (f *failure) Error() string { return f.text }

var (
	errDead    = errors.New("the environment has crashed")
	errTimeout = &failure{"no answer in time", true}
)

// errorOf returns the error of a service for a kind of fault.
func errorOf(k kind, o op) error {
	rejected := &failure{"the request is rejected", false}
	switch {
	case k == poisoned:
		return &bus.RequestError{Fault: bus.OfEntry, Err: rejected}
	case k == refused && o == put:
		return &bus.RequestError{Fault: bus.OfCaller, Err: rejected}
	case k == refused:
		return rejected
	case k == throttled:
		return &failure{"too many requests", true}
	case k == errorAfter:
		return &failure{"connection reset by peer", true}
	}
	return &failure{"internal error", true}
}
