package settings

// The keys of the two DynamoDB tables, which the deployment creates and the
// functions use. Packages ledger and keys document the other attributes.
const (
	LedgerKey   = "eventId"   // partition key, a string
	LedgerTTL   = "expiresAt" // Unix seconds
	LedgerIndex = "open"      // global secondary index of the items that are pending or parked
	LedgerShard = "shard"     // its partition key, a string: the state, a slash and a number
	LedgerDue   = "due"       // its sort key, a number: Unix milliseconds
	LedgerEvent = "event"     // bytes: the event or its claim check

	KeysKey = "keyId"     // partition key, a string
	KeysTTL = "expiresAt" // Unix seconds
)

// The other attributes that the index of the ledger has.
const (
	LedgerRecordedAt = "recordedAt" // Unix milliseconds
	LedgerSize       = "size"       // bytes of the event
	LedgerClaimed    = "claimed"    // the event is a claim check
	LedgerCause      = "cause"      // a code that says why the event is parked
)

// LedgerProjection returns all of these.
func LedgerProjection() []string {
	return []string{LedgerRecordedAt, LedgerSize, LedgerClaimed, LedgerCause}
}
