// Package simulation tests the guarantees of Payhook with simulated histories: no
// event is lost, changed or invented between a delivery and the bus, whatever fails.
//
// A history is some minutes of virtual time. Senders deliver and retry or not;
// function instances receive and redrive; parked objects are replayed or settled; a
// deployment replaces instances. Every call to DynamoDB, EventBridge, S3 or the key
// endpoint can have a fault: an error before or after its effect, a throttle, a
// timeout, a late effect, a partial failure, the crash or suspension of the caller, a
// lagging index, a clock that is off. The code under test is the real one, packages
// intake, ledger, bus, keys, parking and claimcheck, with its own contexts and timers,
// in a bubble of package testing/synctest. One scheduler decides the order of the
// calls and their faults, so a history depends only on its seed and can be replayed.
//
// When a history ends, faults stop, redrive runs until nothing is pending, and the
// events are counted, with the terms of Jepsen's total-queue:
//
//   - accepted: answered with a 2xx
//   - lost: accepted, and neither on the bus nor parked
//   - unexpected: on the bus, and not byte for byte an event of an authentic delivery.
//     A quarter of the histories require a client certificate, alone or with a
//     signature; a forged delivery lacks one of the required proofs.
//   - duplicated: on the bus more than once
//   - recovered: on the bus, although no answer was a 2xx
//
// No event may be lost or unexpected. Every duplicate must be explained by the
// history: the earlier publisher crashed, was suspended past its deadline, lost the
// answer of PutEvents, or could not write the mark. These are the failures between the
// effect of PutEvents and that of the mark. The exception is a request whose answer
// was lost: it may arrive after another request published the event and the mark was
// written. Such requests are counted separately, as overtaken. No instance may send an
// event that the ledger has as published or that another instance holds. A settled
// object stays parked, is listed as settled and has no other effect.
//
// Histories about keys rotate the service's key, while the service has outages, a
// gateway in front of it answers 404 for published keys, and other senders use
// invented key ids. No authentic delivery may be answered 401 while its key is
// published, or 503 because of a used budget while its source has a reserve, and no
// key may be used past its maximum age.
//
// The assumptions: clocks differ by less than the grace of package intake, and a call
// is not sent after its context has ended.
//
//	go test ./shared/simulation -run TestRandomHistories -v -seed=42
//	go test ./shared/simulation -run TestRandomHistories -v -timeout=0 -seeds=1000000
//	go test ./shared/simulation -run TestNoPair -v -timeout=0 -pairs
//
// The first command replays one history. The second plays a million; an interrupt ends
// it and prints the counts. The third tries every pair of faults on every path, which
// takes hours for the longest.
package simulation
