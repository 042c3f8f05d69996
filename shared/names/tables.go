package names

// The keys of the two DynamoDB tables, which the deployment creates and the
// functions use. Packages ledger and keys document the other attributes.
const (
	LedgerKey          = "eventId"   // partition key, a string
	LedgerTTL          = "expiresAt" // Unix seconds
	LedgerPendingIndex = "pending"   // global secondary index of the items that are not published
	LedgerPendingShard = "shard"     // its partition key, a string: pending/ and a number
	LedgerPendingDue   = "due"       // its sort key, a number: Unix milliseconds

	LedgerRecordedAt = "recordedAt" // Unix milliseconds; also in the index
	LedgerSize       = "size"       // bytes of the event, while it is pending; also in the index

	KeysKey = "keyId"     // partition key, a string
	KeysTTL = "expiresAt" // Unix seconds
)
