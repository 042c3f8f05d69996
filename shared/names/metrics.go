package names

// MetricNamespace is the CloudWatch namespace of every metric that a function
// writes. MetricDimension is the only dimension of these metrics: the name of the
// Lambda function.
const (
	MetricNamespace = "Payhook"
	MetricDimension = "FunctionName"
)

// The constants below are the metrics that the functions write. Each is on the
// dashboard, and some have an alarm. A webhook writes its counts that are not 0, and ClientErrors in any
// case. Each run of another function writes its counts, also if they are 0.

// The metrics of the webhook function.
const (
	// RecordedMetric counts events that are new, DuplicatesMetric those that were
	// recorded before with the same content, and ClaimedMetric those that are new and too
	// large for the bus, which carries a reference.
	RecordedMetric   = "Recorded"
	DuplicatesMetric = "Duplicates"
	ClaimedMetric    = "Claimed"

	// AcceptedMetric counts webhooks that are answered 2xx, InvalidMetric those that are
	// authentic and answered 422, RejectedMetric those that are no deliveries (400, 405,
	// 413), UnavailableMetric those that are answered 503. A webhook writes the one of
	// its answer, or Unauthenticated, and none of the others.
	AcceptedMetric    = "Accepted"
	InvalidMetric     = "Invalid"
	RejectedMetric    = "Rejected"
	UnavailableMetric = "Unavailable"

	// UnauthenticatedMetric counts webhooks that are answered 401, because they have
	// no proof or their proof does not verify.
	UnauthenticatedMetric = "Unauthenticated"
	// ClientErrorsMetric counts webhooks that are answered 400 to 499. Lambda's
	// Url4xxCount contains these, and the requests that AWS itself rejects as too
	// large or throttled.
	ClientErrorsMetric = "ClientErrors"
	// CertificateRejectedMetric counts webhooks that are answered 401 because of
	// their client certificate. It is written if a client certificate is required.
	CertificateRejectedMetric = "CertificateRejected"
	// KeyUnavailableMetric counts webhooks that are answered 503 because no cache has
	// the key and the service's key endpoint does not answer. It is not known whether
	// these webhooks are authentic.
	KeyUnavailableMetric = "KeyUnavailable"
	// KeyOutOfBudgetMetric counts webhooks that are answered 503 because no cache has
	// the key and all sandboxes together have made as many key requests as are
	// allowed in a minute (KeyMissBudget).
	KeyOutOfBudgetMetric = "KeyOutOfBudget"
	// KeyStaleMetric counts webhooks that are verified with a stale key: it is due to
	// be fetched again, and the service's key endpoint does not answer or reports it
	// as unknown. A stale key is used until KeyMaxAge or KeyUnknownGrace ends.
	KeyStaleMetric = "KeyStale"
	// KeyWithdrawnMetric counts webhooks that name a key that the service returned
	// earlier and now reports as unknown or returns in a form that must not be used.
	// They are counted while the key is still used (KeyUnknownGrace), and after its
	// removal for as long as a copy of it could have been used (KeyMaxAge).
	KeyWithdrawnMetric = "KeyWithdrawn"
	// KeyTableFailedMetric counts webhooks whose key was looked up without the shared
	// table, because the table did not answer.
	KeyTableFailedMetric = "KeyTableFailed"
	// NotStoredMetric counts authentic webhooks that are answered 503, because an
	// event could not be recorded or an unusable delivery could not be parked.
	NotStoredMetric = "NotStored"
	// ParkedMetric counts authentic webhooks that are parked because they cannot be
	// used, and single events that are parked because EventBridge is known to reject
	// them.
	ParkedMetric = "Parked"
	// ConflictsMetric counts events whose eventId was recorded before with different
	// content.
	ConflictsMetric = "Conflicts"
	// LeftPendingMetric counts events that are recorded but not yet on the bus when
	// the webhook is answered. Redrive publishes them.
	LeftPendingMetric = "LeftPending"
)

// The metrics of the redrive function. Every run that completes writes them.
const (
	// OldestPendingMetric is the number of seconds since the oldest item that the run
	// claimed was recorded; 0 if it claimed none. A run claims an item when no other
	// function can be working on it, about a minute after it was recorded, and again
	// after each failed attempt.
	OldestPendingMetric = "OldestPending"
	// RedriveFoundMetric counts events that were due, RedrivePublishedMetric those that
	// the run published.
	RedriveFoundMetric     = "RedriveFound"
	RedrivePublishedMetric = "RedrivePublished"
	// RedriveLeftMetric is 1 for a run whose time was up before every event that was due
	// had its turn, or 0.
	RedriveLeftMetric = "RedriveLeft"
	// RedriveFailedMetric counts events that the run could not publish. A later run
	// tries again.
	RedriveFailedMetric = "RedriveFailed"
	// RedriveParkedMetric counts events that are parked because they failed
	// RedriveAttempts times or because EventBridge is known to reject them.
	RedriveParkedMetric = "RedriveParked"
	// ParkedOpenMetric is the number of parked deliveries and events that are neither
	// replayed nor settled. About one run in ten minutes writes it.
	ParkedOpenMetric = "ParkedOpen"
	// TrustDaysLeftMetric is the number of days until a CA of the truststore or the
	// last accepted client certificate expires, whichever is first; 0 if one has
	// expired. It is written if a client certificate is required, also when no
	// webhooks arrive.
	TrustDaysLeftMetric = "TrustDaysLeft"
)

// The metrics of the token function. Every run writes the first two, unless it
// could not read the secret. An alarm on them treats missing data as breaching, and
// so detects a function that does not run at all.
const (
	// TokenRemainingMetric is the remaining lifetime of the stored token after the
	// run, in seconds; 0 if it has expired or there is none.
	TokenRemainingMetric = "TokenRemainingSeconds"
	// TokenShortfallMetric is the number of seconds by which the remaining lifetime
	// is less than callers need; 0 if it is enough. Callers need the remaining
	// lifetime at which the token is refreshed, but at most 185 s (three runs and the
	// last 5 s, in which the token is not used) and at least 65 s (one run and these
	// 5 s). If the endpoint has just returned the stored token again, there is no
	// newer one, and a token that has not expired is enough.
	TokenShortfallMetric = "TokenShortfallSeconds"

	// TokenRefreshedMetric is 1 for a run that stored a new token, or 0.
	TokenRefreshedMetric = "TokenRefreshed"
	// TokenFailedMetric is 1 for a run that had to store a new token and could not,
	// or 0.
	TokenFailedMetric = "TokenFailed"
	// TokenCredentialsMissingMetric is 1 if the client credentials are missing or
	// unusable, or 0. TokenFailed is then 1 as well.
	TokenCredentialsMissingMetric = "TokenCredentialsMissing"
	// TokenWritesTooOftenMetric is 1 for a run that stored a token less than 16
	// minutes after the previous one and whose lifetime is under 20 minutes, or that
	// could not store one because the secret has 100 versions of the last 24 hours;
	// or 0.
	TokenWritesTooOftenMetric = "TokenWritesTooOften"
)
