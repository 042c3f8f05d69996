// Package simulation tests the guarantees of Payhook with simulated histories: no event is lost, changed or invented
// between a delivery and the bus, whatever fails. shared/README.md says what a history is, what is counted, and what
// the simulation assumes.
//
// The code under test is the real one, packages intake, ledger, bus, keys and proof, with its own
// contexts and timers, in a bubble of package testing/synctest. One scheduler decides the order of the calls and their
// faults, so a history depends only on its seed and can be replayed.
//
// Every duplicate must be explained by the history: the earlier publisher crashed, was suspended past its deadline,
// lost the answer of PutEvents, or could not write the mark. These are the failures between the effect of PutEvents and
// that of the mark. The exception is a request whose answer was lost: it may arrive after another request published the
// event and the mark was written. Such requests are counted separately, as overtaken. No instance may send an event
// that the ledger does not have as pending or that another instance holds. A decision concerns the event that was
// parked when it was made, and nothing else is overwritten within the window.
package simulation
