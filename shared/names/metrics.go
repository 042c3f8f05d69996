package names

// Every metric that a function writes is in this CloudWatch namespace and has
// one dimension, the name of the Lambda function.
const (
	MetricNamespace = "Payhook"
	MetricDimension = "FunctionName"
)

// The metrics that alarms watch; the functions write more. A count is written
// for every webhook or run, 0 included, where nothing else is said.

// The metrics of the webhook function.
const (
	// Webhooks answered 401: no proof, or one that does not verify. Written only
	// where there is one.
	UnauthenticatedMetric = "Unauthenticated"
	// Webhooks answered 400 to 499. Lambda's Url4xxCount holds these, and those
	// that AWS answered itself, as too large or throttled.
	ClientErrorsMetric = "ClientErrors"
	// Webhooks answered 401 for their client certificate. Written where one is
	// required.
	CertificateRejectedMetric = "CertificateRejected"
	// Webhooks answered 503 because the key was in no cache and the service's key
	// endpoint did not answer. Nothing is known of whether they are authentic.
	KeyUnavailableMetric = "KeyUnavailable"
	// Webhooks answered 503 because the key was in no cache and the fleet had
	// asked the service for as many keys as it may in a minute (KeyMissBudget).
	KeyOutOfBudgetMetric = "KeyOutOfBudget"
	// Webhooks that were checked with a key that was due to be fetched again and
	// that the service's key endpoint did not give: it did not answer, or it called
	// the key unknown. Such a key is used until KeyMaxAge or KeyUnknownGrace ends.
	KeyStaleMetric = "KeyStale"
	// Webhooks that name a key which the service gave before and now calls unknown,
	// or sends in a form that must not be used: while the key is still used
	// (KeyUnknownGrace), and after its removal for as long as a copy of it could
	// have been used (KeyMaxAge).
	KeyWithdrawnMetric = "KeyWithdrawn"
	// Webhooks that were authentic and answered 503: an event could not be
	// recorded, or what can't be taken could not be parked.
	NotStoredMetric = "NotStored"
	// Webhooks that were authentic and are parked, since they can't be used, and
	// single events that are parked, since EventBridge is known to reject them.
	ParkedMetric = "Parked"
	// Events whose eventId was seen before with other content.
	ConflictsMetric = "Conflicts"
	// Events that are recorded and were not on the bus when the webhook was
	// answered: redrive publishes them.
	LeftPendingMetric = "LeftPending"
)

// The metrics of the redrive function. Every run writes them, unless it dies.
const (
	// Seconds since the oldest item that the run took was recorded; 0 if it took
	// none. An item is taken when nobody else can be working on it, about a minute
	// after it was recorded, and again after each try that failed.
	OldestPendingMetric = "OldestPending"
	// Events that the run could not get published: a later run tries again.
	RedriveFailedMetric = "RedriveFailed"
	// Events that failed RedriveAttempts times, or that EventBridge is known to
	// reject, and are parked.
	RedriveParkedMetric = "RedriveParked"
	// Days until a CA of the truststore expires, or the client certificate that was
	// accepted last, whichever is first; 0 if one has expired. Written where a client
	// certificate is required, whether webhooks arrive or not.
	TrustDaysLeftMetric = "TrustDaysLeft"
)

// The metrics of the token function. Every run writes the first two, unless it
// could not read the secret: an alarm on them treats missing data as breaching, and
// so detects a function that does not run at all.
const (
	// Seconds of life left in the stored token after the run; 0 if it has expired or
	// there is none.
	TokenRemainingMetric = "TokenRemainingSeconds"
	// Seconds by which that is less than what callers need; 0 if it is enough. They
	// need the remaining life at which the token is refreshed, but at most 185 s (three
	// runs and the 5 s in which no token is handed out) and at least 65 s (one run and
	// these 5 s). If the endpoint has just returned the stored token again, there is no
	// newer one, and a token that has not expired is enough.
	TokenShortfallMetric = "TokenShortfallSeconds"

	TokenRefreshedMetric          = "TokenRefreshed"          // 1 for a run that stored a new token, or 0
	TokenFailedMetric             = "TokenFailed"             // 1 for a run that should have and could not, or 0
	TokenCredentialsMissingMetric = "TokenCredentialsMissing" // 1 if the client credentials are missing or unusable, or 0; TokenFailed is 1 as well
	// 1 for a run that stored a token less than 16 minutes after the previous one and
	// whose lifetime is under 20 minutes, or that could not store one because the
	// secret has 100 versions of the last 24 hours; or 0.
	TokenWritesTooOftenMetric = "TokenWritesTooOften"
)
