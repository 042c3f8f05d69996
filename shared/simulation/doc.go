// Package simulation tests the guarantees of Payhook with simulated histories. shared/README.md has what is counted,
// and what the simulation assumes.
//
// It runs the code of intake, ledger, bus, keys and proof in virtual time (testing/synctest), with the stores in
// memory. In a history of some minutes, webhooks are sent and repeated, people replay and dismiss what is parked, and a
// deployment replaces the functions. Every call of a store, the bus or the key endpoint can fail: with an error or
// timeout before or after its effect, late, in part, or because the caller ends. Then the faults stop, redrive runs
// until nothing is pending, and events are counted.
//
// One scheduler decides the order of the calls and their faults, so a history depends only on its seed and can be
// replayed. A duplicate is explained if the earlier publisher crashed, was suspended past its deadline, lost the answer
// of PutEvents, or could not write the mark; or if a request whose answer was lost arrived after the mark of another.
//
// No function may send an event that the ledger does not have as pending or that another one holds. A decision changes
// only the event that was parked when it was made, and nothing else is overwritten within the window.
package simulation
