package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json/v2"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/aws/aws-lambda-go/events"

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

// The metrics of every webhook, beside the one of its answer.
var (
	// events, new
	recorded = telemetry.Metric{Name: "Recorded"}
	// events, seen before
	duplicates = telemetry.Metric{Name: "Duplicates"}
	// events, seen before with other content
	conflicts = telemetry.Metric{Name: names.ConflictsMetric}
	// events, on the bus
	published = telemetry.Metric{Name: "Published"}
	// events, left to redrive
	leftPending = telemetry.Metric{Name: names.LeftPendingMetric}
	// webhooks, parked for the first time, and events that EventBridge rejects
	parked = telemetry.Metric{Name: names.ParkedMetric}
	// events, new and sent as claim checks
	claimed = telemetry.Metric{Name: "Claimed"}
	// lookups without the shared table
	keyTableFailed = telemetry.Metric{Name: "KeyTableFailed"}
	// lookups served with a key that is due to be fetched again
	keyStale = telemetry.Metric{Name: names.KeyStaleMetric}
	// webhooks that name a key which the service does not give any more
	keyWithdrawn = telemetry.Metric{Name: names.KeyWithdrawnMetric}
	// webhooks: 400 to 499
	clientErrors = telemetry.Metric{Name: names.ClientErrorsMetric}
	// of a webhook
	duration = telemetry.Metric{Name: "Duration", Unit: telemetry.Milliseconds}
)

// alarmMetrics are written for every webhook: 1 if it has an outcome that they count.
var alarmMetrics = []string{names.KeyOutOfBudgetMetric, names.KeyUnavailableMetric, names.NotStoredMetric}

// taken is the body of the answer to a delivery that was accepted.
type taken struct {
	DeliveryID string `json:"deliveryId"`
	Recorded   int    `json:"recorded"`
	Duplicates int    `json:"duplicates"`
	Conflicts  int    `json:"conflicts,omitzero"` // parked, and not published
}

// problem is the body of every other answer (RFC 9457). It has the counts if the
// delivery is authentic.
type problem struct {
	Title      string `json:"title"`
	Status     int    `json:"status"`
	Detail     string `json:"detail,omitempty"`
	DeliveryID string `json:"deliveryId,omitempty"`
	Recorded   int    `json:"recorded,omitzero"`
	Duplicates int    `json:"duplicates,omitzero"`
	Conflicts  int    `json:"conflicts,omitzero"`
	Unrecorded int    `json:"unrecorded,omitzero"`
}

// Handle answers one webhook. It returns no error: Lambda would make a 502 of
// it.
func (h *handler) Handle(ctx context.Context,
	request events.APIGatewayV2HTTPRequest) (events.LambdaFunctionURLResponse, error) {
	start := time.Now()
	result := h.receive(ctx, request)
	answer := intake.AnswerTo(result.Outcome)
	if answer.Status == 0 {
		answer.Status = h.successStatus
	}
	response := h.respond(result, answer)
	h.write(ctx, result, answer, time.Since(start))
	return response, nil
}

func (h *handler) receive(ctx context.Context, request events.APIGatewayV2HTTPRequest) intake.Result {
	payload, err := h.accept(request)
	if err != nil {
		return intake.Result{Outcome: intake.OutcomeOf(err), Err: err}
	}
	return h.receiver.Receive(ctx, intake.Delivery{
		Payload:     payload,
		Headers:     request.Headers,
		RawQuery:    request.RawQueryString,
		SourceIP:    sourceIP(request),
		Certificate: presented(request),
	})
}

// accept returns the payload of a request that can be a delivery.
func (h *handler) accept(request events.APIGatewayV2HTTPRequest) ([]byte, error) {
	if h.origin != nil {
		if err := h.origin.check(request); err != nil {
			return nil, err
		}
	}
	if request.RequestContext.HTTP.Method != h.method {
		return nil, intake.ErrMethod
	}
	return h.payload(request)
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

// payload returns the bytes that were sent.
func (h *handler) payload(request events.APIGatewayV2HTTPRequest) ([]byte, error) {
	size := len(request.Body)
	if request.IsBase64Encoded {
		size = base64.StdEncoding.DecodedLen(size) - 2 // at most two bytes are padding
	}
	if size > h.maxPayloadBytes {
		return nil, intake.ErrPayloadTooLarge
	}
	payload := []byte(request.Body)
	if request.IsBase64Encoded {
		var err error
		if payload, err = base64.StdEncoding.DecodeString(request.Body); err != nil {
			return nil, intake.ErrPayloadEncoding
		}
	}
	switch {
	case len(payload) == 0:
		return nil, intake.ErrPayloadEmpty
	case len(payload) > h.maxPayloadBytes:
		return nil, intake.ErrPayloadTooLarge
	}
	return payload, nil
}

func (h *handler) respond(result intake.Result, answer intake.Answer) events.LambdaFunctionURLResponse {
	headers := map[string]string{"Content-Type": "application/json", "Cache-Control": "no-store"}
	if answer.Status < 300 {
		return response(answer.Status, headers,
			taken{result.DeliveryID, result.Recorded, result.Duplicates, result.Conflicts})
	}
	headers["Content-Type"] = "application/problem+json"
	switch answer.Status {
	case http.StatusMethodNotAllowed:
		headers["Allow"] = h.method
	case http.StatusUnauthorized:
		headers["WWW-Authenticate"] = h.challenge()
	}
	if answer.RetryAfter > 0 {
		headers["Retry-After"] = strconv.Itoa(answer.RetryAfter)
	}
	detail := answer.Detail
	if field, ok := errors.AsType[*payment.FieldError](result.Err); ok && result.Outcome == intake.Invalid {
		detail = field.Error()
	}
	return response(answer.Status, headers, problem{
		Title:      http.StatusText(answer.Status),
		Status:     answer.Status,
		Detail:     detail,
		DeliveryID: result.DeliveryID,
		Recorded:   result.Recorded,
		Duplicates: result.Duplicates,
		Conflicts:  result.Conflicts,
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
func (h *handler) write(ctx context.Context, r intake.Result, answer intake.Answer, took time.Duration) {
	level := answer.Level
	switch {
	case r.Conflicts > 0 || r.Unmarked > 0 || r.Unpublishable > 0:
		level = slog.LevelError
	case r.Pending > 0 || r.Key.TableFailed || r.Key.Withdrawn:
		level = max(level, slog.LevelWarn)
	}
	attrs := make([]slog.Attr, 0, 21)
	attrs = append(attrs,
		slog.String("outcome", string(r.Outcome)),
		slog.Int("status", answer.Status),
		slog.String("authentication", h.authentication),
	)
	if r.Certificate != nil {
		attrs = append(attrs, certificateAttr(r.Certificate))
	}
	if err := cmp.Or(r.Err, r.PublishErr); err != nil {
		attrs = append(attrs, slog.String("cause", telemetry.Cause(err)))
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
	if n := r.EventIDs.Len(); n > 0 {
		attrs = append(attrs, slog.Any("ids", r.EventIDs))
		if left := r.Events - n; left > 0 {
			attrs = append(attrs, slog.Int("idsLeftOut", left))
		}
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
	values := make([]telemetry.Value, 0, 16)
	values = append(values, telemetry.Value{Metric: telemetry.Metric{Name: answer.Metric},
		Value: 1})
	alarms := alarmMetrics
	if h.origin != nil {
		alarms = append(alarms[:len(alarms):len(alarms)], names.CertificateRejectedMetric)
	}
	for _, name := range alarms {
		values = append(values, telemetry.Value{Metric: telemetry.Metric{Name: name},
			Value: count(answer.Alarm == name)})
	}
	h.log.Outcome(ctx, level, "webhook", append(values, []telemetry.Value{
		{Metric: clientErrors, Value: count(answer.Status >= 400 && answer.Status <= 499)},
		{Metric: recorded, Value: float64(r.Recorded)},
		{Metric: duplicates, Value: float64(r.Duplicates)},
		{Metric: conflicts, Value: float64(r.Conflicts)},
		{Metric: published, Value: float64(r.Published)},
		{Metric: leftPending, Value: float64(r.Pending)},
		{Metric: parked, Value: count(r.Parked != "" && !r.ParkedBefore) + float64(r.Unpublishable)},
		{Metric: claimed, Value: float64(r.Claimed)},
		{Metric: keyTableFailed, Value: count(r.Key.TableFailed)},
		{Metric: keyStale, Value: count(r.Key.Source == keys.Stale)},
		{Metric: keyWithdrawn, Value: count(r.Key.Withdrawn)},
		{Metric: duration, Value: telemetry.Milli(took)},
	}...), attrs...)
}

func count(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
