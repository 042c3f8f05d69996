package main

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"encoding/json/v2"

	"github.com/aws/aws-lambda-go/events"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
	"payhook.example/shared/payment"
	"payhook.example/shared/settings"
	"payhook.example/shared/telemetry"
)

// handler turns requests of a function URL or of an HTTP API, which both have
// payload format 2.0, into deliveries, and what became of them into answers, log
// lines and metrics. It is safe for concurrent use.
type handler struct {
	authentication  string  // settings.BySignature, ByMTLS or ByBoth
	origin          *origin // nil: any; no client certificate is read then
	receiver        *intake.Receiver
	log             *telemetry.Log
	method          string
	successStatus   int
	maxPayloadBytes int
}

// The outcomes of requests that are no deliveries.
const (
	methodNotAllowed intake.Outcome = "method-not-allowed"
	payloadEmpty     intake.Outcome = "payload-empty"
	payloadTooLarge  intake.Outcome = "payload-too-large"
	payloadEncoding  intake.Outcome = "payload-encoding"
)

// answers is the one table from outcomes to HTTP. An outcome that is not in it
// would be answered 500.
var answers = map[intake.Outcome]answer{
	methodNotAllowed: {status: http.StatusMethodNotAllowed, detail: "The method is not the one of webhooks.", metric: rejected},
	payloadEmpty:     {status: http.StatusBadRequest, detail: "The request has no body.", metric: rejected},
	payloadEncoding:  {status: http.StatusBadRequest, detail: "The body can't be decoded.", metric: rejected},
	payloadTooLarge:  {status: http.StatusRequestEntityTooLarge, detail: "The body is too large.", metric: rejected},

	// One answer for all: who forges learns nothing.
	intake.SignatureMissing:     unauthentic,
	intake.SignatureRepeated:    unauthentic,
	intake.SignatureMalformed:   unauthentic,
	intake.TimestampOutside:     unauthentic,
	intake.KeyUnknown:           unauthentic,
	intake.KeyRefused:           unauthentic,
	intake.SignatureDoesntMatch: unauthentic,

	intake.Outcome(clientcert.Missing):     unauthentic,
	intake.Outcome(clientcert.WrongOrigin): unauthentic,
	intake.Outcome(clientcert.Malformed):   unauthentic,
	intake.Outcome(clientcert.Expired):     unauthentic,
	intake.Outcome(clientcert.NotYetValid): unauthentic,
	intake.Outcome(clientcert.Weak):        unauthentic,
	intake.Outcome(clientcert.WrongUsage):  unauthentic,
	intake.Outcome(clientcert.Untrusted):   unauthentic,
	intake.Outcome(clientcert.Revoked):     unauthentic,
	intake.Outcome(clientcert.NotPinned):   unauthentic,
	intake.Outcome(clientcert.Contradicts): unauthentic,

	intake.Invalid:  {status: http.StatusUnprocessableEntity, metric: invalid}, // its detail names the field
	intake.TooLarge: {status: http.StatusRequestEntityTooLarge, detail: "An event is too large.", metric: tooLarge},
	intake.Conflict: {status: http.StatusConflict, detail: "An eventId was seen before with other content.", metric: conflict},

	intake.KeyUnavailable:    {status: http.StatusServiceUnavailable, detail: "The signature can't be checked now.", retryAfter: 5, metric: unavailable},
	intake.KeyOutOfBudget:    {status: http.StatusServiceUnavailable, detail: "The signature can't be checked now.", retryAfter: 60, metric: unavailable},
	intake.LedgerUnavailable: {status: http.StatusServiceUnavailable, detail: "Not every event could be recorded.", retryAfter: 5, metric: unavailable},
	intake.OutOfTime:         {status: http.StatusServiceUnavailable, detail: "Not every event could be recorded in time.", retryAfter: 5, metric: unavailable},
	intake.ParkingFailed:     {status: http.StatusServiceUnavailable, detail: "The delivery could not be kept.", retryAfter: 5, metric: unavailable},
}

var unauthentic = answer{status: http.StatusUnauthorized, detail: "The webhook is not authentic.", metric: unauthenticated}

// answer is what is told to the sender, and counted.
type answer struct {
	status     int
	detail     string
	retryAfter int // seconds; 0 for none
	metric     telemetry.Metric
}

// The metrics of a webhook.
var (
	recorded        = telemetry.Metric{Name: "Recorded", Unit: telemetry.Count}                      // events, new
	duplicates      = telemetry.Metric{Name: "Duplicates", Unit: telemetry.Count}                    // events, seen before
	conflicts       = telemetry.Metric{Name: names.ConflictsMetric, Unit: telemetry.Count}           // events, seen before with other content
	eventsTooLarge  = telemetry.Metric{Name: "EventsTooLarge", Unit: telemetry.Count}                // events, refused for their size
	published       = telemetry.Metric{Name: "Published", Unit: telemetry.Count}                     // events, on the bus
	leftPending     = telemetry.Metric{Name: names.LeftPendingMetric, Unit: telemetry.Count}         // events, left to redrive
	parked          = telemetry.Metric{Name: names.ParkedMetric, Unit: telemetry.Count}              // webhooks, parked for the first time, and events that EventBridge rejects
	claimed         = telemetry.Metric{Name: "Claimed", Unit: telemetry.Count}                       // events, new and sent by claim check
	keyTableFailed  = telemetry.Metric{Name: "KeyTableFailed", Unit: telemetry.Count}                // lookups without the shared table
	outOfBudget     = telemetry.Metric{Name: names.KeyOutOfBudgetMetric, Unit: telemetry.Count}      // lookups that the budget stopped
	keyUnavailable  = telemetry.Metric{Name: names.KeyUnavailableMetric, Unit: telemetry.Count}      // lookups that the service did not answer
	keyStale        = telemetry.Metric{Name: names.KeyStaleMetric, Unit: telemetry.Count}            // lookups served with a key that is due to be fetched again
	keyWithdrawn    = telemetry.Metric{Name: names.KeyWithdrawnMetric, Unit: telemetry.Count}        // webhooks that name a key which the service gives no more
	clientErrors    = telemetry.Metric{Name: names.ClientErrorsMetric, Unit: telemetry.Count}        // webhooks: 400 to 499
	certRejected    = telemetry.Metric{Name: names.CertificateRejectedMetric, Unit: telemetry.Count} // webhooks: 401 for their client certificate
	notStored       = telemetry.Metric{Name: names.NotStoredMetric, Unit: telemetry.Count}           // webhooks, authentic and nowhere whole
	accepted        = telemetry.Metric{Name: "Accepted", Unit: telemetry.Count}                      // webhooks
	rejected        = telemetry.Metric{Name: "Rejected", Unit: telemetry.Count}                      // webhooks: 400, 405, 413
	unauthenticated = telemetry.Metric{Name: names.UnauthenticatedMetric, Unit: telemetry.Count}     // webhooks: 401
	invalid         = telemetry.Metric{Name: "Invalid", Unit: telemetry.Count}                       // webhooks: 422
	tooLarge        = telemetry.Metric{Name: "TooLarge", Unit: telemetry.Count}                      // webhooks: 413
	conflict        = telemetry.Metric{Name: "Conflict", Unit: telemetry.Count}                      // webhooks: 409
	unavailable     = telemetry.Metric{Name: "Unavailable", Unit: telemetry.Count}                   // webhooks: 503
	duration        = telemetry.Metric{Name: "Duration", Unit: telemetry.Milliseconds}               // of a webhook
)

// taken is the body of the answer to a delivery that was taken.
type taken struct {
	DeliveryID string `json:"deliveryId"`
	Recorded   int    `json:"recorded"`
	Duplicates int    `json:"duplicates"`
	Conflicts  int    `json:"conflicts,omitzero"` // kept aside, and not published
}

// problem is the body of every other answer (RFC 9457). The counts are there
// where a delivery was found authentic.
type problem struct {
	Title      string `json:"title"`
	Status     int    `json:"status"`
	Detail     string `json:"detail,omitempty"`
	DeliveryID string `json:"deliveryId,omitempty"`
	Recorded   int    `json:"recorded,omitzero"`
	Duplicates int    `json:"duplicates,omitzero"`
	Conflicts  int    `json:"conflicts,omitzero"`
	TooLarge   int    `json:"tooLarge,omitzero"`
	Unrecorded int    `json:"unrecorded,omitzero"`
}

// Handle answers one webhook. It returns no error: Lambda would make a 502 of
// it.
func (h *handler) Handle(ctx context.Context, request events.APIGatewayV2HTTPRequest) (events.LambdaFunctionURLResponse, error) {
	start := time.Now()
	result := h.receive(ctx, request)
	status, response := h.answer(result)
	h.write(ctx, status, result, time.Since(start))
	return response, nil
}

func (h *handler) receive(ctx context.Context, request events.APIGatewayV2HTTPRequest) intake.Result {
	if h.origin != nil {
		if err := h.origin.check(request); err != nil {
			return intake.Result{Outcome: intake.Outcome(clientcert.WrongOrigin), Err: err}
		}
	}
	if request.RequestContext.HTTP.Method != h.method {
		return intake.Result{Outcome: methodNotAllowed}
	}
	payload, outcome := h.payload(request)
	if outcome != "" {
		return intake.Result{Outcome: outcome}
	}
	return h.receiver.Receive(ctx, intake.Delivery{
		Payload:     payload,
		Headers:     request.Headers,
		RawQuery:    request.RawQueryString,
		SourceIP:    sourceIP(request),
		Certificate: presented(request),
	})
}

// sourceIP returns the peer of the TCP connection, as AWS saw it ("Invoking
// Lambda function URLs" in the Lambda developer guide, and the same field in API
// Gateway's payload format 2.0). X-Forwarded-For and other headers are not read:
// anybody can write an address into them.
func sourceIP(request events.APIGatewayV2HTTPRequest) netip.Addr {
	addr, err := netip.ParseAddr(request.RequestContext.HTTP.SourceIP)
	if err != nil {
		return netip.Addr{}
	}
	return addr
}

// payload returns the bytes that were sent, or why there are none.
func (h *handler) payload(request events.APIGatewayV2HTTPRequest) ([]byte, intake.Outcome) {
	size := len(request.Body)
	if request.IsBase64Encoded {
		size = base64.StdEncoding.DecodedLen(size) - 2 // padding at the most
	}
	if size > h.maxPayloadBytes {
		return nil, payloadTooLarge
	}
	var payload []byte
	if !request.IsBase64Encoded {
		payload = []byte(request.Body)
	} else {
		var err error
		if payload, err = base64.StdEncoding.DecodeString(request.Body); err != nil {
			return nil, payloadEncoding
		}
	}
	switch {
	case len(payload) == 0:
		return nil, payloadEmpty
	case len(payload) > h.maxPayloadBytes:
		return nil, payloadTooLarge
	}
	return payload, ""
}

func (h *handler) answer(result intake.Result) (int, events.LambdaFunctionURLResponse) {
	headers := map[string]string{"Content-Type": "application/json", "Cache-Control": "no-store"}
	// A conflict that is kept aside is safe with us: sending it again would not
	// help.
	if result.Outcome == intake.Accepted || result.Outcome == intake.Conflict && result.Parked != "" {
		return h.successStatus, response(h.successStatus, headers, taken{result.DeliveryID, result.Recorded, result.Duplicates, result.Conflicts})
	}
	a, ok := answers[result.Outcome]
	if !ok {
		a = answer{status: http.StatusInternalServerError}
	}
	headers["Content-Type"] = "application/problem+json"
	switch a.status {
	case http.StatusMethodNotAllowed:
		headers["Allow"] = h.method
	case http.StatusUnauthorized:
		headers["WWW-Authenticate"] = h.challenge()
	}
	if a.retryAfter > 0 {
		headers["Retry-After"] = strconv.Itoa(a.retryAfter)
	}
	detail := a.detail
	var field *payment.FieldError
	if result.Outcome == intake.Invalid && errors.As(result.Err, &field) {
		detail = field.Error()
	}
	return a.status, response(a.status, headers, problem{
		Title:      http.StatusText(a.status),
		Status:     a.status,
		Detail:     detail,
		DeliveryID: result.DeliveryID,
		Recorded:   result.Recorded,
		Duplicates: result.Duplicates,
		Conflicts:  result.Conflicts,
		TooLarge:   result.TooLarge,
		Unrecorded: result.Unrecorded,
	})
}

// challenge returns what RFC 9110, section 11.6.1, wants with a 401. There is no
// scheme for either mechanism. It is the same for every rejection of a deployment.
func (h *handler) challenge() string {
	if h.authentication == settings.ByMTLS {
		return "ClientCertificate"
	}
	return "Signature"
}

func response(status int, headers map[string]string, body any) events.LambdaFunctionURLResponse {
	text, err := json.Marshal(body)
	if err != nil || status == http.StatusNoContent || status == http.StatusResetContent {
		text = nil
	}
	return events.LambdaFunctionURLResponse{StatusCode: status, Headers: headers, Body: string(text)}
}

// write writes the outcome line of a webhook.
func (h *handler) write(ctx context.Context, status int, r intake.Result, took time.Duration) {
	level := slog.LevelInfo
	switch {
	case status >= 500 || r.Conflicts > 0 || r.Unmarked > 0 || r.Unpublishable > 0:
		level = slog.LevelError
	case status >= 400 || r.Pending > 0 || r.Key.TableFailed || r.Key.Withdrawn:
		level = slog.LevelWarn
	}
	kind := accepted
	if a, ok := answers[r.Outcome]; ok {
		kind = a.metric
	}
	attrs := make([]slog.Attr, 0, 19)
	attrs = append(attrs,
		slog.String("outcome", string(r.Outcome)),
		slog.Int("status", status),
		slog.String("authentication", h.authentication),
	)
	if r.Certificate != nil {
		attrs = append(attrs, certificateAttr(r.Certificate))
	}
	if r.Err != nil {
		attrs = append(attrs, slog.String("cause", telemetry.Cause(r.Err)))
	}
	if r.KeyID != "" {
		attrs = append(attrs, slog.String("keyId", r.KeyID), slog.String("keySource", string(r.Key.Source)))
	}
	if r.DeliveryID != "" {
		attrs = append(attrs,
			slog.String("deliveryId", r.DeliveryID),
			slog.Int("events", r.Events),
			slog.Int("unrecorded", r.Unrecorded),
			slog.Int("unmarked", r.Unmarked),
			slog.Int("unpublishable", r.Unpublishable),
		)
	}
	if r.Parked != "" {
		attrs = append(attrs, slog.String("parked", r.Parked))
	}
	attrs = append(attrs, slog.Group("ms",
		slog.Float64("authenticate", telemetry.Milli(r.Steps.Authenticate)),
		slog.Float64("decode", telemetry.Milli(r.Steps.Decode)),
		slog.Float64("record", telemetry.Milli(r.Steps.Record)),
		slog.Float64("publish", telemetry.Milli(r.Steps.Publish)),
		slog.Float64("mark", telemetry.Milli(r.Steps.Mark)),
	))
	unstored := r.Outcome == intake.LedgerUnavailable || r.Outcome == intake.OutOfTime || r.Outcome == intake.ParkingFailed
	values := make([]telemetry.Value, 0, 17)
	if h.origin != nil {
		values = append(values, telemetry.Value{Metric: certRejected, Value: count(slices.Contains(clientcert.Reasons(), clientcert.Reason(r.Outcome)))})
	}
	h.log.Outcome(ctx, level, "webhook", append(values, []telemetry.Value{
		{Metric: kind, Value: 1},
		{Metric: clientErrors, Value: count(status >= 400 && status <= 499)},
		{Metric: recorded, Value: float64(r.Recorded)},
		{Metric: duplicates, Value: float64(r.Duplicates)},
		{Metric: conflicts, Value: float64(r.Conflicts)},
		{Metric: eventsTooLarge, Value: float64(r.TooLarge)},
		{Metric: published, Value: float64(r.Published)},
		{Metric: leftPending, Value: float64(r.Pending)},
		{Metric: parked, Value: count(r.Parked != "" && !r.ParkedBefore) + float64(r.Unpublishable)},
		{Metric: claimed, Value: float64(r.Claimed)},
		{Metric: keyTableFailed, Value: count(r.Key.TableFailed)},
		{Metric: outOfBudget, Value: count(r.Outcome == intake.KeyOutOfBudget)},
		{Metric: keyUnavailable, Value: count(r.Outcome == intake.KeyUnavailable)},
		{Metric: keyStale, Value: count(r.Key.Source == keys.Stale)},
		{Metric: keyWithdrawn, Value: count(r.Key.Withdrawn)},
		{Metric: notStored, Value: count(unstored)},
		{Metric: duration, Value: telemetry.Milli(took)},
	}...), attrs...)
}

func count(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
