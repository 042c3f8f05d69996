package settings

import "time"

// SafePayloadBytes is the size up to which a payload always reaches the function,
// provided that it is JSON in UTF-8 and that Lambda writes it as RFC 8259
// requires. Lambda escapes a text body, which turns one byte into two at most
// (quotation marks, backslashes, line breaks, tabs; JSON allows no other control
// character). It encodes other bodies in base64, four bytes for three, which needs
// less space. A larger payload can fit.
//
// The JSON of a synchronous invocation must be smaller than 6 MB of 1,048,576 bytes each
// (AWS, "Lambda quotas", and the message of a RequestTooLargeException). 64 KB are reserved
// for headers, cookies, query and request context.
const SafePayloadBytes = (6<<20 - 1 - 64<<10) / 2

// KeyTimeout is the timeout of one fetch of a key. It leaves time to record the events.
const KeyTimeout = 3 * time.Second

// WebhookMemory is the memory of the webhook function in MiB. Lambda allocates CPU in
// proportion.
const WebhookMemory = 512

// ClaimCheckBytes is the size of the largest event that is sent whole: every target of a rule can take it with
// the envelope of EventBridge. SNS, Step Functions and, in the Regions of China, all targets take 256 KB.
const ClaimCheckBytes = 200_000

// TokenTimeout is the timeout of one run of the token function: shorter than the minute
// between two runs.
const TokenTimeout = 55 * time.Second

// TokenInterval is the time between two scheduled runs of the token function.
//
// A refresh leaves at least three runs before the token expires, from a lifetime
// of 5 minutes on and with a refresh when 66 % of the lifetime is left: 66 % of 300 s are
// 198 s, and 198/60 = 3.3. From 6 minutes on, it leaves at least 4 minutes.
//
// Each new token in a secret creates a version of it, and a secret can have 100 versions
// from the last 24 hours (AWS, "AWS Secrets Manager quotas" in the Secrets Manager
// User Guide). Tokens are therefore stored at most every 16 minutes (24 h / 90) if
// this leaves 4 minutes before expiry, which is so for a lifetime of 20 minutes or
// more. Package token describes shorter lifetimes, and tokens in a parameter.
const TokenInterval = time.Minute
