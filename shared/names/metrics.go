package names

// MetricNamespace is the CloudWatch namespace of every metric that a function writes.
// MetricDimension is the only dimension of these metrics: the name of the deployment. So two
// functions can write one metric, and a metric continues if a function is replaced.
const (
	MetricNamespace = "Payhook"
	MetricDimension = "StackName"
)

// StackEnv is the environment variable with the name of the deployment.
const StackEnv = "PAYHOOK_STACK"

// Metric is a metric of a function's log line. As JSON, it is a MetricDefinition of the
// embedded metric format.
type Metric struct {
	Name    string
	Unit    Unit   `json:",omitempty"`
	Meaning string `json:"-"` // for the table in functions/README.md
	Status  int    `json:"-"` // of the answers that it counts; 0 if it counts something else, or 2xx
}

// Unit is the unit of a metric (AWS, MetricDatum). A count has none, so that its line is
// shorter.
type Unit string

// Seconds is the unit of a time.
const Seconds Unit = "Seconds"

// The metrics of the webhook function. Each counts webhooks, unless it says events. A
// webhook writes those that are not 0, and the zeros of ClientErrorsMetric.
var (
	AcceptedMetric   = Metric{Name: "Accepted", Meaning: "webhooks answered 2xx"}
	BadRequestMetric = Metric{Name: "BadRequest", Status: 400, Meaning: "webhooks answered 400: without a body, or " +
		"with one that can't be decoded"}
	// UnauthenticatedMetric counts webhooks that have no proof or whose proof does not
	// verify.
	UnauthenticatedMetric = Metric{Name: "Unauthenticated", Status: 401, Meaning: "webhooks answered 401"}
	// SourceNotAllowedMetric shows that a sender has a new address.
	SourceNotAllowedMetric = Metric{Name: "SourceNotAllowed", Status: 403, Meaning: "webhooks answered 403, because " +
		"`allowedSources` does not contain their source address"}
	MethodNotAllowedMetric = Metric{Name: "MethodNotAllowed", Status: 405, Meaning: "webhooks answered 405, because " +
		"they have another method than `httpMethod`"}
	TooLargeMetric = Metric{Name: "TooLarge", Status: 413, Meaning: "webhooks answered 413 by the function, because " +
		"they are larger than `maxPayloadBytes`"}
	InvalidMetric = Metric{Name: "Invalid", Status: 422, Meaning: "authentic webhooks answered 422: not a delivery " +
		"of the interface"}
	// ClientErrorsMetric is part of Lambda's Url4xxCount, which also contains the requests
	// that AWS itself rejects as too large or throttled.
	ClientErrorsMetric = Metric{Name: "ClientErrors", Meaning: "webhooks answered 400 to 499; also written if it " +
		"is 0, except with `mtls` and `both`"}
	NotStoredMetric = Metric{Name: "NotStored", Status: 503, Meaning: "authentic webhooks answered 503: an event " +
		"was not recorded, an unusable delivery not parked, or no evidence stored"}
	// KeyUnavailableMetric counts webhooks of which it is not known whether they are
	// authentic.
	KeyUnavailableMetric = Metric{
		Name: "KeyUnavailable", Status: 503,
		Meaning: "webhooks answered 503, because no cache has their " +
			"key and it could not be fetched: the key endpoint does not answer, or `keyMissBudget` is used up",
	}
	// KeyStaleMetric counts webhooks whose key is due to be fetched again, while the
	// service's key endpoint does not answer or reports it as unknown.
	KeyStaleMetric = Metric{Name: "KeyStale", Meaning: "webhooks verified with a key that is due to be fetched again"}
	// KeyWithdrawnMetric counts webhooks while the key is still used (keyUnknownGrace), and
	// after its removal for as long as a copy of it could have been used (keyMaxAge).
	KeyWithdrawnMetric = Metric{Name: "KeyWithdrawn", Meaning: "webhooks that name a key which the service returned " +
		"earlier, and now reports as unknown or returns in a form that must not be used"}
	ConflictsMetric = Metric{Name: "Conflicts", Meaning: "events whose eventId was recorded before with other content"}
	// ParkedMetric is written by the webhook function and by redrive.
	ParkedMetric = Metric{Name: "Parked", Meaning: "authentic webhooks parked for the first time, and single events " +
		"parked by a webhook or by redrive"}
)

// The metrics of the redrive function.
var (
	// OldestPendingMetric is written by every run that could read the whole ledger. It is
	// 0 if nothing is pending. An event is also pending while its receiver publishes it.
	OldestPendingMetric = Metric{
		Name: "OldestPending",
		Unit: Seconds,
		Meaning: "seconds since the oldest pending event " +
			"was recorded, postponed ones included; each run of redrive that could read the ledger writes it",
	}
	// TrustDaysLeftMetric is written by every run if a client certificate is required, so
	// also when no webhooks arrive.
	TrustDaysLeftMetric = Metric{Name: "TrustDaysLeft", Meaning: "days until a CA of the truststore or the last " +
		"accepted client certificate expires, 0 if one has; with `mtls` and `both`"}
)

// The metrics of the token function.
var (
	// TokenShortfallMetric is 0 if the remaining lifetime is enough. Callers need the
	// remaining lifetime at which the token is refreshed, but at most 185 s (three runs and
	// the last 5 s, in which the token is not used) and at least 65 s (one run and these
	// 5 s). If the endpoint has just returned the stored token again, there is no newer one,
	// and a token that has not expired is enough. Every run that could read the secret
	// writes it.
	TokenShortfallMetric = Metric{Name: "TokenShortfallSeconds", Unit: Seconds, Meaning: "by how many seconds the " +
		"lifetime of the stored token is less than callers need (at most 185 s, at least 65 s); absent if the secret " +
		"could not be read"}
	TokenFailedMetric = Metric{Name: "TokenFailed", Meaning: "runs that had to store a new token and could not"}
	// TokenWritesTooOftenMetric counts runs that stored a token less than 16 minutes after
	// the previous one and whose lifetime is under 20 minutes, or that could not store one
	// because the secret has 100 versions of the last 24 hours.
	TokenWritesTooOftenMetric = Metric{
		Name: "TokenWritesTooOften",
		Meaning: "runs that store tokens too often for the " +
			"quota of the secret's versions",
	}
)

// Metrics returns every metric that the functions write.
func Metrics() []Metric {
	return []Metric{
		AcceptedMetric, BadRequestMetric, UnauthenticatedMetric, SourceNotAllowedMetric, MethodNotAllowedMetric,
		TooLargeMetric, InvalidMetric, ClientErrorsMetric, NotStoredMetric, KeyUnavailableMetric,
		KeyStaleMetric, KeyWithdrawnMetric, ConflictsMetric, ParkedMetric, OldestPendingMetric, TrustDaysLeftMetric,
		TokenShortfallMetric, TokenFailedMetric, TokenWritesTooOftenMetric,
	}
}
