package main

import (
	"cmp"
	"context"
	"encoding/json/v2"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"payhook.example/shared/awsenv"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/settings"
)

// handler receives the requests of a function URL or of an HTTP API, which both have
// payload format 2.0, and writes answers, log lines and metrics. It is safe for
// concurrent use.
type handler struct {
	authentication  string         // settings.BySignature, ByMTLS or ByBoth
	allowed         []netip.Prefix // source addresses; none: any
	origin          *origin        // nil: any; no client certificate is read then
	receiver        *intake.Receiver
	log             *awsenv.Log
	successStatus   int
	maxPayloadBytes int
	capturer        *parking.Capturer // nil: rejected requests are not stored
	proof           map[string]string // the settings that are stored with them
}

// taken is the body of the answer to an accepted delivery.
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
	Invalid    int    `json:"invalid,omitzero"` // without identity, if there are others; parked
}

// Invoke answers a webhook. It returns an error only if the event is not JSON: Lambda
// answers 502 for every error.
func (h *handler) Invoke(ctx context.Context, event []byte) ([]byte, error) {
	received := time.Now()
	r, err := readRequest(event)
	result := intake.Result{Outcome: intake.OutcomeOf(err), Err: err}
	switch {
	case err == nil:
		result = h.receive(ctx, r)
	case errors.Is(err, errNotJSON):
		return nil, err
	}
	answer := result.Outcome.AnswerTo(h.successStatus)
	response, err := json.Marshal(h.respond(result, answer))
	h.write(ctx, result, answer, h.capture(ctx, r, result, received)...)
	return response, err
}

func (h *handler) receive(ctx context.Context, r request) intake.Result {
	payload, source, err := h.accept(r)
	if err != nil {
		return intake.Result{Outcome: intake.OutcomeOf(err), Err: err}
	}
	return h.receiver.Receive(ctx, intake.Delivery{
		Payload:     payload,
		Headers:     r.Headers,
		RawQuery:    r.RawQueryString,
		SourceIP:    source,
		Certificate: r.RequestContext.Authentication.ClientCert.PEM,
	})
}

// accept returns the payload and the source address of a request that can be a delivery. The address
// is the peer of the TCP connection, as AWS saw it ("Invoking Lambda function URLs" in the Lambda
// developer guide, and the same field in API Gateway's payload format 2.0). X-Forwarded-For and other
// headers are not read: any client can set them.
func (h *handler) accept(r request) (payload []byte, source netip.Addr, err error) {
	if source, err = intake.CheckSource(r.RequestContext.HTTP.SourceIP, h.allowed); err != nil {
		return nil, source, err
	}
	if h.origin != nil {
		if err := h.origin.check(r); err != nil {
			return nil, source, err
		}
	}
	if err := intake.CheckMethod(r.RequestContext.HTTP.Method); err != nil {
		return nil, source, err
	}
	payload, err = r.payload(h.maxPayloadBytes)
	return payload, source, err
}

func (h *handler) respond(result intake.Result, answer intake.Answer) response {
	headers := map[string]string{"Content-Type": "application/json", "Cache-Control": "no-store"}
	if answer.Status < 300 {
		return newResponse(answer.Status, headers,
			taken{result.DeliveryID, result.Recorded, result.Duplicates, result.Conflicts})
	}
	headers["Content-Type"] = "application/problem+json"
	switch answer.Status {
	case http.StatusMethodNotAllowed:
		headers["Allow"] = strings.Join(names.Methods(), ", ")
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
	return newResponse(answer.Status, headers, problem{
		Title:      http.StatusText(answer.Status),
		Status:     answer.Status,
		Detail:     detail,
		DeliveryID: result.DeliveryID,
		Recorded:   result.Recorded,
		Duplicates: result.Duplicates,
		Conflicts:  result.Conflicts,
		Unrecorded: result.Unrecorded,
		Invalid:    result.Invalid,
	})
}

// challenge returns the header that RFC 9110, section 11.6.1, requires with a 401.
// Neither mechanism has a registered scheme. It is the same for every rejection of a deployment.
func (h *handler) challenge() string {
	if h.authentication == settings.ByMTLS {
		return "ClientCertificate"
	}
	return "Signature"
}

// response is the answer of the function in payload format 2.0.
type response struct {
	StatusCode int               `json:"statusCode"`
	Headers    map[string]string `json:"headers"`
	Body       string            `json:"body"`
}

func newResponse(status int, headers map[string]string, body any) response {
	text, err := json.Marshal(body)
	if err != nil || status == http.StatusNoContent || status == http.StatusResetContent {
		text = nil
	}
	return response{status, headers, string(text)}
}

// levelOf returns the level of a webhook's line: that of its answer, or a higher one if an
// event needs attention.
func levelOf(r intake.Result, answer intake.Answer) slog.Level {
	switch {
	case r.Conflicts > 0 || r.Unmarked > 0 || r.Unpublishable > 0:
		return slog.LevelError
	case r.Pending > 0 || r.Key.TableFailed || r.Key.Withdrawn || r.Key.UnexpectedType != "":
		return max(answer.Level, slog.LevelWarn)
	}
	return answer.Level
}

// write writes the outcome line of a webhook.
func (h *handler) write(ctx context.Context, r intake.Result, answer intake.Answer, further ...slog.Attr) {
	var ids any
	var events, leftOut int // 0: all ids are in the line
	if n := r.EventIDs.Len(); n > 0 {
		ids = r.EventIDs
		if n < r.Events {
			events, leftOut = r.Events, r.Events-n
		}
	}
	var deviations any
	if len(r.Deviations) > 0 {
		deviations = r.Deviations
	}
	attrs := []slog.Attr{
		slog.String("outcome", r.Outcome.Name),
		slog.Int("status", answer.Status),
		slog.String("authentication", unless(h.authentication, settings.BySignature)),
		certificateAttr(r.Certificate),
		slog.String("cause", awsenv.Cause(cmp.Or(r.Err, r.PublishErr))),
		slog.String("keyId", r.KeyID),
		slog.String("keySource", string(unless(r.Key.Source, keys.InMemory))),
		slog.Bool("keyTableFailed", r.Key.TableFailed),
		slog.String("keyContentType", r.Key.UnexpectedType),
		slog.String("deliveryId", r.DeliveryID),
		slog.String("unverifiedDeliveryId", r.UnverifiedID),
		slog.Int("recorded", r.Recorded),
		slog.Int("duplicates", r.Duplicates),
		slog.Int("claimed", r.Claimed),
		slog.Int("pending", r.Pending),
		slog.Int("unrecorded", r.Unrecorded),
		slog.Int("unmarked", r.Unmarked),
		slog.Int("unpublishable", r.Unpublishable),
		slog.Int("invalid", r.Invalid),
		slog.Any("deviations", deviations),
		slog.Any("ids", ids),
		slog.Int("events", events),
		slog.Int("idsLeftOut", leftOut),
		slog.String("parked", r.Parked),
		slog.String("alsoParked", r.AlsoParked.Parked),
	}
	attrs = append(attrs, further...)
	attrs = append(attrs, slog.GroupAttrs("ms", withoutZeros(
		milliseconds("authenticate", r.Steps.Authenticate),
		milliseconds("decode", r.Steps.Decode),
		milliseconds("record", r.Steps.Record),
		milliseconds("publish", r.Steps.Publish),
		milliseconds("mark", r.Steps.Mark),
	)...))
	h.log.Outcome(ctx, levelOf(r, answer), "webhook", h.metrics(r, answer), withoutZeros(attrs...)...)
}

// unless returns the value of a field, or the zero value if it is the usual one.
func unless[T comparable](value, usual T) (other T) {
	if value != usual {
		other = value
	}
	return other
}

func milliseconds(name string, took time.Duration) slog.Attr {
	return slog.Int64(name, took.Round(time.Millisecond).Milliseconds())
}

// withoutZeros removes the fields that are empty, 0 or false: CloudWatch charges for each byte.
func withoutZeros(attrs ...slog.Attr) []slog.Attr {
	return slices.DeleteFunc(attrs, func(a slog.Attr) bool {
		switch value := a.Value.Any().(type) {
		case string:
			return value == ""
		case int64:
			return value == 0
		case bool:
			return !value
		case []slog.Attr:
			return len(value) == 0
		default:
			return value == nil
		}
	})
}

// metrics returns the metrics of a webhook: those that are not 0, and ClientErrors. The
// alarm that needs its zeros exists only with a function URL, so not with client
// certificates. It subtracts ClientErrors from another metric: AWS does not document what
// FILL returns for a metric without any data.
func (h *handler) metrics(r intake.Result, answer intake.Answer) []awsenv.Value {
	values := make([]awsenv.Value, 0, 8)
	for _, v := range []awsenv.Value{
		{Metric: names.ClientErrorsMetric, Value: count(answer.Status >= 400 && answer.Status <= 499)},
		{Metric: answer.Metric, Value: count(answer.Metric.Name != "")},
		{Metric: names.ConflictsMetric, Value: float64(r.Conflicts)},
		{Metric: names.DeviationsMetric, Value: count(len(r.Deviations) > 0)},
		{Metric: names.ParkedMetric, Value: count(r.ParkedAs.New()) + count(r.AlsoParked.New()) +
			float64(r.Unpublishable)},
		{Metric: names.KeyStaleMetric, Value: count(r.Key.Source == keys.Stale)},
		{Metric: names.KeyWithdrawnMetric, Value: count(r.Key.Withdrawn)},
	} {
		if v.Value != 0 || v.Metric == names.ClientErrorsMetric && h.origin == nil {
			values = append(values, v)
		}
	}
	return values
}

func count(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
