package settings

import "time"

// SafePayloadBytes is the size up to which a payload always reaches the function, provided that it is JSON in UTF-8 and
// that Lambda writes it as RFC 8259 requires. Lambda escapes a text body, which turns one byte into two at most
// (quotation marks, backslashes, line breaks, tabs; JSON allows no other control character). It encodes other bodies in
// base64, four bytes for three, which needs less space. A larger payload can fit.
//
// The JSON of a synchronous invocation must be smaller than 6 MB of 1,048,576 bytes each (AWS, "Lambda quotas", and the
// message of a RequestTooLargeException). 64 KB are reserved for headers, cookies, query and request context.
const SafePayloadBytes = (6<<20 - 1 - 64<<10) / 2

// EventSource is the source of every event. The rules of consumers match it.
const EventSource = "payhook"

// KeyTimeout is the timeout of one fetch of a key. It leaves time to record the events.
const KeyTimeout = 3 * time.Second

// WebhookMemory is the memory of the webhook function in MiB. Lambda allocates CPU in proportion.
const WebhookMemory = 512

// ClaimCheckBytes is the size of the largest event that is sent whole: every target of a rule can take it with
// the envelope of EventBridge. SNS, Step Functions and, in the Regions of China, all targets take 256 KB.
const ClaimCheckBytes = 200_000

// TokenTimeout is the timeout of one run of the token function: shorter than the minute between two runs.
const TokenTimeout = 55 * time.Second

// RedriveAttempts is how often an event is tried before it is parked.
const RedriveAttempts = 20

// RedriveTimeout is the timeout of one run of the redrive function, which the schedule starts every minute. A local
// run is faster.
const (
	RedriveTimeout      = 55 * time.Second
	LocalRedriveTimeout = 5 * time.Second
)

// RedriveGrace is how long redrive waits after the deadline of the function that processes an event: more than the
// clocks of two functions can differ. In a local run, they have one clock.
const (
	RedriveGrace      = 30 * time.Second
	LocalRedriveGrace = time.Second
)
