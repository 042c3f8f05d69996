// Package histories proves by simulation that nothing gets lost, altered or
// invented between a sender's delivery and the bus, whatever fails on the way.
//
// It guarantees what its tests count. A history is some minutes of virtual time
// in which senders deliver, and retry or not, function instances receive and
// redrive, and every call that they make of DynamoDB, EventBridge, S3 or the
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
//     byte
//   - duplicated: on the bus more than once
//   - recovered: on the bus, though no answer was a 2xx
//
// Nothing may be lost or unexpected. Every duplicate must be explained by the
// history: whoever published the event first died, was suspended past its
// deadline, lost the answer of PutEvents, or could not write the mark; and
// nobody publishes an event that the ledger calls published, or that another
// holds.
//
// What a history takes for granted: clocks differ by less than the grace of
// package intake, and a request takes effect, if at all, before the grace of
// its sender is over.
//
//	go test ./shared/histories -seed=42 -run TestRandomHistories -v    replays one
//	go test ./shared/histories -seeds=1000000 -run TestRandomHistories -v -timeout=0
package histories
