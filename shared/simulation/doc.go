// Package simulation tests the guarantees of Payhook with simulated histories. shared/README.md says what a history is,
// what is counted, and what the simulation assumes.
//
// One scheduler decides the order of the calls and their faults, so a history depends only on its seed and can be
// replayed. A duplicate is explained if the earlier publisher crashed, was suspended past its deadline, lost the answer
// of PutEvents, or could not write the mark; or if a request whose answer was lost arrived after the mark of another.
//
// No function may send an event that the ledger does not have as pending or that another one holds. A decision changes
// only the event that was parked when it was made, and nothing else is overwritten within the window.
package simulation
