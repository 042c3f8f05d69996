package settings

// MetricNamespace is the CloudWatch namespace of every metric that a function writes.
// MetricDimension is the only dimension of these metrics: the full name of the stack. So two
// functions can write one metric, and a metric continues if a function is replaced.
const (
	MetricNamespace = "Payhook"
	MetricDimension = "StackName"
)

// Metric is a metric of a function's log line. As JSON, it is a MetricDefinition of the embedded metric format.
type Metric struct {
	Name   string
	Unit   Unit `json:",omitempty"`
	Status int  `json:"-"` // of the answers that it counts; 0 if it counts something else, or 2xx
}

// Unit is the unit of a metric (AWS, MetricDatum). A count has none, so that its line is shorter.
type Unit string

const Seconds Unit = "Seconds"

// The metrics of the webhook function. Each counts webhooks, unless it says events. A
// webhook writes those that are not 0, and the zeros of ClientErrorsMetric.
var (
	AcceptedMetric         = Metric{Name: "Accepted"}
	BadRequestMetric       = Metric{Name: "BadRequest", Status: 400}
	UnauthenticatedMetric  = Metric{Name: "Unauthenticated", Status: 401}
	SenderNotAllowedMetric = Metric{Name: "SenderNotAllowed", Status: 403}
	MethodNotAllowedMetric = Metric{Name: "MethodNotAllowed", Status: 405}
	InvalidMetric          = Metric{Name: "Invalid", Status: 422}
	// ClientErrorsMetric counts answers of 400 to 499, and with client certificates API Gateway's answers of 403. It is
	// part of Lambda's Url4xxCount, which also contains the requests that AWS itself rejects as too large or throttled.
	ClientErrorsMetric = Metric{Name: "ClientErrors"}
	// NotStoredMetric counts authentic webhooks, and KeyUnavailableMetric those of which it is not known.
	NotStoredMetric      = Metric{Name: "NotStored", Status: 503}
	KeyUnavailableMetric = Metric{Name: "KeyUnavailable", Status: 503}
	// KeyStaleMetric counts webhooks whose key is due to be fetched again, while the
	// service's key endpoint does not answer or reports it as unknown.
	KeyStaleMetric = Metric{Name: "KeyStale"}
	// KeyWithdrawnMetric counts webhooks while the key is still used (for 5 minutes), and
	// after its removal for as long as a copy of it could have been used (keyMaxAge).
	KeyWithdrawnMetric = Metric{Name: "KeyWithdrawn"}
	ConflictsMetric    = Metric{Name: "Conflicts"}
	// DeviationsMetric counts webhooks with a value of another type than the interface's, or an unusual key.
	DeviationsMetric = Metric{Name: "Deviations"}
	ParkedMetric     = Metric{Name: "Parked"} // also of redrive
)

// The metrics of the redrive function, and of other parts.
var (
	// OldestPendingMetric is written by every run that could read the whole ledger. It is
	// 0 if nothing is pending. An event is also pending while its receiver publishes it.
	OldestPendingMetric = Metric{Name: "OldestPending", Unit: Seconds}
	// BusMissingMetric counts runs that found no bus, and so published nothing.
	BusMissingMetric = Metric{Name: "BusMissing"}
	// TrustDaysLeftMetric is the number of days until the first certificate expires: of the
	// truststore, written by every run if a client certificate is required; and of the chain of
	// the client certificate, written by the webhook function with each webhook that it accepts.
	TrustDaysLeftMetric = Metric{Name: "TrustDaysLeft"}
	// TokenShortfallMetric is by how much the remaining lifetime of the token is less than callers need: the remaining
	// lifetime at which the token is refreshed, but at most 185 s (three runs and the last 5 s, in which the token is
	// not used) and at least 65 s (one run and these 5 s). A token that was due three runs ago is too old as well. If
	// the endpoint has just returned the stored token again, there is no newer one, and a token that has not expired
	// is enough. Every run of the token function that could read the store writes it.
	TokenShortfallMetric = Metric{Name: "TokenShortfallSeconds", Unit: Seconds}
	// NotInvokedMetric counts requests that API Gateway answered without a run of the webhook function, except 403
	// and 404. It is made from the lines of the access log.
	NotInvokedMetric = Metric{Name: "NotInvoked"}
)

// MinTrustDays is the number of days below which TrustDaysLeftMetric needs attention.
const MinTrustDays = 30

// Metrics returns every metric in the namespace.
func Metrics() []Metric {
	return []Metric{
		AcceptedMetric, BadRequestMetric, UnauthenticatedMetric, SenderNotAllowedMetric, MethodNotAllowedMetric,
		InvalidMetric, ClientErrorsMetric, NotStoredMetric, KeyUnavailableMetric,
		KeyStaleMetric, KeyWithdrawnMetric, ConflictsMetric, DeviationsMetric, ParkedMetric,
		OldestPendingMetric, BusMissingMetric, TrustDaysLeftMetric, TokenShortfallMetric, NotInvokedMetric,
	}
}
