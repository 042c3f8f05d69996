package names

// The keys of the two DynamoDB tables, which the deployment makes and the
// functions use. What else an item holds is documented where it is written, in
// packages ledger and keys.
const (
	LedgerKey          = "eventId"   // partition key, a string
	LedgerTTL          = "expiresAt" // Unix seconds
	LedgerPendingIndex = "pending"   // global secondary index: what is not published yet
	LedgerPendingShard = "shard"     // its partition key, a number
	LedgerPendingDue   = "due"       // its sort key, a number: Unix milliseconds

	LedgerRecordedAt = "recordedAt" // Unix milliseconds; the index has it beside the keys

	KeysKey = "keyId"     // partition key, a string
	KeysTTL = "expiresAt" // Unix seconds
)
