// Package simulation proves by simulation that nothing gets lost, altered or
// invented between a sender's delivery and the bus, whatever fails on the way.
//
// It guarantees what its tests count. A history is some minutes of virtual time
// in which senders deliver, and retry or not, function instances receive and
// redrive, somebody replays or settles what is parked, a deployment replaces instances, and
// every call that they make of DynamoDB, EventBridge, S3 or the
// key service may meet a fault: an error before or after it took effect, a
// throttle, a timeout, an effect that comes late, a partial failure, the death
// or suspension of the caller, an index that lags, a clock that is off. The
// code that runs is the real one, packages intake, ledger, bus, keys, parking
// and claimcheck, with its own contexts and timers, in a bubble of package
// testing/synctest. One scheduler decides which call goes on next and what
// befalls it, so a history is a function of its seed, and can be replayed.
//
// When a history ends, faults stop, redrive runs until nothing is pending, and
// the events are counted, in the words of Jepsen's total-queue:
//
//   - accepted: answered with a 2xx
//   - lost: accepted, and neither on the bus nor parked
//   - unexpected: on the bus, and not what an authentic delivery held, byte for
//     byte; a quarter of the histories requires a client certificate, alone or with
//     a signature, and forged deliveries lack one of what is required
//   - duplicated: on the bus more than once
//   - recovered: on the bus, though no answer was a 2xx
//
// Nothing may be lost or unexpected. Every duplicate must be explained by the
// history: whoever published the event earlier died, was suspended past its
// deadline, lost the answer of PutEvents, or could not write the mark. That is
// one window, between EventBridge's taking the event and the ledger's saying
// so, but for a request whose answer was lost: it may arrive when another has
// been published and marked in its place. Such requests are counted by
// themselves, as overtaken. And nobody may send an event that the ledger calls
// published, or that another holds. What is settled stays parked, is listed as
// settled and causes nothing else.
//
// Histories about keys rotate the service's key, while the service has outages,
// a gateway in front of it answers 404 for published keys, and strangers invent
// key ids. No authentic delivery may be answered 401 while its key is published,
// or 503 for a spent budget while its source has a reserve, and no key may be
// used past its maximum age.
//
// What a history takes for granted: clocks differ by less than the grace of
// package intake, and a call is not sent once its context has ended.
//
//	go test ./shared/simulation -run TestRandomHistories -v -seed=42
//	go test ./shared/simulation -run TestRandomHistories -v -timeout=0 -seeds=1000000
//	go test ./shared/simulation -run TestNoPair -v -timeout=0 -pairs
//
// The first replays one history, the second plays a million (an interrupt ends
// it with what was counted so far), the third tries every pair of faults on
// every path, which takes hours for the longest.
package simulation
