// Package names has the names that the simulated payment service in AWS shares with its
// stack and with the sender of webhooks.
package names

const (
	// StateBucketEnv is the function's environment variable with the name of the bucket.
	StateBucketEnv = "STATE_BUCKET"
	// StateObject is the key of the object with the state, a paymenttest.State in JSON.
	StateObject = "state.json"
)

// The outputs of the stack.
const (
	ServiceURLOutput  = "ServiceUrl"
	StateBucketOutput = "StateBucket"
	LimitsBusOutput   = "LimitsBus" // the name of a bus that accepts events of the account
)

// The keys of the context of the CDK app.
const (
	StackNameContext = "stackName"
	// LocalContext is true for the emulator.
	LocalContext = "local"
)
