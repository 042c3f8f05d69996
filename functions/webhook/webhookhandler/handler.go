// Package webhookhandler receives the webhooks of the payment service.
package webhookhandler

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

	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
)

// Handler receives the requests of a function URL or of an HTTP API, which both have payload format 2.0, and writes
// answers, log lines and metrics. It is safe for concurrent use.
type Handler struct {
	conf     settings.Config
	receiver *intake.Receiver
	log      *lambdaruntime.Log
	rejected *proof.RejectedStore // nil: rejected requests are not stored
}

// New returns the handler with its stores and settings. keyEndpoint calls the key endpoint.
func New(stores intake.Stores, keyEndpoint *http.Client, s settings.Config, log *lambdaruntime.Log) *Handler {
	h := &Handler{conf: s, log: log}
	var mechanisms intake.Mechanisms
	if s.UsesSignature() {
		mechanisms.Signature = stores.Signature(keyEndpoint, s)
	}
	if m := s.MTLS; m != nil {
		mechanisms.MTLS = clientcert.NewVerifier(m.Truststore, m.Policy)
	}
	if !s.StoreRejectedUntil.IsZero() {
		h.rejected = proof.NewRejectedStore(stores.Parking, stores.Keys, s.Scheme, s.StoreRejectedUntil)
	}
	h.receiver = intake.NewReceiver(stores.Pipeline(s), mechanisms)
	return h
}

// taken is the body of the answer to an accepted delivery.
type taken struct {
	DeliveryID string `json:"deliveryId"`
	Recorded   int    `json:"recorded"`
	Duplicates int    `json:"duplicates"`
	Conflicts  int    `json:"conflicts,omitzero"` // parked, and not published
}

// problem is the body of every other answer (RFC 9457). It has the counts if the delivery is authentic.
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

// Invoke answers a webhook, or a monitor: [settings.MonitorMethods]. It returns an error only if the event is not JSON:
// Lambda answers 502 for every error.
func (h *Handler) Invoke(ctx context.Context, event []byte) ([]byte, error) {
	received := time.Now()
	r, err := readRequest(event)
	if errors.Is(err, errNotJSON) {
		return nil, err
	}
	if err == nil && slices.Contains(settings.MonitorMethods(), r.RequestContext.HTTP.Method) {
		// It says nothing about the stack. A line or a metric would hide webhooks that are refused.
		return json.Marshal(newResponse(http.StatusNoContent, nil, nil))
	}
	result := intake.Failed(err)
	if err == nil {
		result = h.receive(ctx, r)
	}
	a := answerTo(result.Outcome, h.conf.SuccessStatus)
	response, err := json.Marshal(h.respond(result, a))
	h.write(ctx, result, a, h.storeRejected(ctx, r, result, received))
	return response, err
}

func (h *Handler) receive(ctx context.Context, r request) intake.Result {
	payload, sender, err := h.accept(r)
	if err != nil {
		return intake.Failed(err)
	}
	return h.receiver.Receive(ctx, intake.Delivery{
		Payload:     payload,
		Headers:     r.Headers,
		RawQuery:    r.RawQueryString,
		SenderIP:    sender,
		Certificate: r.RequestContext.Authentication.ClientCert.PEM,
	})
}

// accept returns the payload and the sender address of a request that can be a delivery. The address is the peer of the
// TCP connection, as AWS saw it ("Invoking Lambda function URLs" in the Lambda developer guide, and the same field in
// API Gateway's payload format 2.0). X-Forwarded-For and other headers are not read: any client can set them.
func (h *Handler) accept(r request) (payload []byte, sender netip.Addr, err error) {
	if sender, err = intake.CheckSender(r.RequestContext.HTTP.SourceIP, h.conf.Networks); err != nil {
		return nil, sender, err
	}
	if h.conf.MTLS != nil {
		if err := checkOrigin(r, h.conf.MTLS); err != nil {
			return nil, sender, err
		}
	}
	if err := intake.CheckMethod(r.RequestContext.HTTP.Method); err != nil {
		return nil, sender, err
	}
	payload, err = r.payload()
	return payload, sender, err
}

func (h *Handler) respond(result intake.Result, a answer) response {
	headers := map[string]string{"Content-Type": "application/json", "Cache-Control": "no-store"}
	if a.status < 300 {
		return newResponse(a.status, headers,
			taken{result.DeliveryID, result.Recorded, result.Duplicates, result.Conflicts})
	}
	headers["Content-Type"] = "application/problem+json"
	switch a.status {
	case http.StatusMethodNotAllowed:
		headers["Allow"] = strings.Join(slices.Concat(settings.Methods(), settings.MonitorMethods()), ", ")
	case http.StatusUnauthorized:
		headers["WWW-Authenticate"] = h.challenge()
	}
	if a.retryAfter > 0 {
		headers["Retry-After"] = strconv.Itoa(a.retryAfter)
	}
	detail := a.detail
	if field, ok := errors.AsType[*payment.FieldError](result.Err); ok && result.Outcome == intake.Invalid {
		detail = field.Error()
	}
	return newResponse(a.status, headers, problem{
		Title:      http.StatusText(a.status),
		Status:     a.status,
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
// Neither mechanism has a registered scheme. It is the same for every rejection of a stack.
func (h *Handler) challenge() string {
	if h.conf.Authentication == settings.ByMTLS {
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

// levelOf returns the level of a webhook's line: that of its answer, or a higher one if an event needs attention.
func levelOf(r intake.Result, a answer) slog.Level {
	switch {
	case r.Conflicts > 0 || r.Unmarked > 0 || r.Unpublishable > 0:
		return slog.LevelError
	case r.Pending > 0 || r.By.Key.TableFailed || r.By.Key.Withdrawn || r.By.Key.UnexpectedType != "":
		return max(a.level, slog.LevelWarn)
	}
	return a.level
}

// line is the outcome line of a webhook. Members that are zero are left out: CloudWatch charges for each byte.
type line struct {
	Result         intake.Result `json:",embed"`
	Status         int           `json:"status"`
	Mechanism      string        `json:"authentication,omitzero"`
	Certificate    *certificate  `json:"certificate,omitzero"`
	Cause          string        `json:"cause,omitzero"`
	KeySource      keys.Source   `json:"keySource,omitzero"`
	KeyTableFailed bool          `json:"keyTableFailed,omitzero"`
	KeyContentType string        `json:"keyContentType,omitzero"`
	Total          int           `json:"events,omitzero"` // 0: all ids are in the line
	IDsLeftOut     int           `json:"idsLeftOut,omitzero"`
	Also           string        `json:"alsoParked,omitzero"`
	Attempt        attempt       `json:",embed"`
}

// write writes the outcome line of a webhook.
func (h *Handler) write(ctx context.Context, r intake.Result, a answer, tried attempt) {
	l := line{
		Result:         r,
		Status:         a.status,
		Mechanism:      unless(h.conf.Authentication, settings.BySignature),
		Certificate:    newCertificate(r.By.Chain),
		Cause:          lambdaruntime.Cause(cmp.Or(r.Err, r.PublishErr)),
		KeySource:      unless(r.By.Key.Source, keys.InMemory),
		KeyTableFailed: r.By.Key.TableFailed,
		KeyContentType: r.By.Key.UnexpectedType,
		Also:           r.AlsoParked.Name,
		Attempt:        tried,
	}
	if n := r.EventIDs.Len(); 0 < n && n < r.Events {
		l.Total, l.IDsLeftOut = r.Events, r.Events-n
	}
	h.log.Outcome(ctx, levelOf(r, a), "webhook", l, h.metrics(r, a)...)
}

// unless returns the value of a field, or the zero value if it is the usual one.
func unless[T comparable](value, usual T) (other T) {
	if value != usual {
		other = value
	}
	return other
}

// metrics returns the metrics of a webhook: those that are not 0, and ClientErrors. The alarm that needs its zeros
// exists only with a function URL, so not with client certificates. It subtracts ClientErrors from another metric: AWS
// does not document what FILL returns for a metric without any data.
func (h *Handler) metrics(r intake.Result, a answer) []lambdaruntime.Value {
	values := make([]lambdaruntime.Value, 0, 8)
	for _, v := range []lambdaruntime.Value{
		{Metric: settings.ClientErrorsMetric, Value: count(a.status >= 400 && a.status <= 499)},
		{Metric: a.metric, Value: count(a.metric.Name != "")},
		{Metric: settings.ConflictsMetric, Value: float64(r.Conflicts)},
		{Metric: settings.DeviationsMetric, Value: count(len(r.Deviations) > 0)},
		{Metric: settings.ParkedMetric, Value: count(r.ParkedAs.New()) + count(r.AlsoParked.New()) +
			float64(r.Unpublishable)},
		{Metric: settings.KeyStaleMetric, Value: count(r.By.Key.Source == keys.StaleKey)},
		{Metric: settings.KeyWithdrawnMetric, Value: count(r.By.Key.Withdrawn)},
	} {
		if v.Value != 0 || v.Metric == settings.ClientErrorsMetric && h.conf.MTLS == nil {
			values = append(values, v)
		}
	}
	if a.status < 300 && len(r.By.Chain) > 0 {
		values = append(values, lambdaruntime.Value{Metric: settings.TrustDaysLeftMetric,
			Value: clientcert.DaysLeft(r.By.Chain, time.Now())})
	}
	return values
}

func count(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
