package paymenttest

import (
	"cmp"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"payhook.example/shared/payment"
	"payhook.example/shared/wire"
)

// ControlPath is the path of the control endpoint, which takes a [wire.ControlRequest] with POST and answers a
// [wire.ControlReport].
const ControlPath = "/control"

// The kinds of an Order that are no flaws.
const (
	Duplicate wire.Flaw = "duplicate" // the last delivery without a flaw, again
	Conflict  wire.Flaw = "conflict"  // its first event with another amount, in a new delivery
)

// maxEvents is how many new events an Order can have.
const maxEvents = 20_000

// durations are texts such as 10m in JSON.
var durations = json.WithUnmarshalers(json.UnmarshalFunc(func(text []byte, d *time.Duration) (err error) {
	*d, err = time.ParseDuration(strings.Trim(string(text), `"`))
	return err
}))

// Do does what the control endpoint does with a command.
func (s *Server) Do(ctx context.Context, c wire.ControlRequest) (report wire.ControlReport, err error) {
	for endpoint, fault := range c.Faults {
		if !slices.Contains(endpoints, endpoint) || fault != "" && !slices.Contains(Faults(), fault) {
			return report, fmt.Errorf("paymenttest: there is no endpoint %q or no fault %q; the endpoints are %s, "+
				"the faults %s", endpoint, fault, endpoints, Faults())
		}
	}
	s.Change(func(state *State) {
		delete(state.Keys, c.Withdraw)
		maps.Copy(state.Faults, c.Faults)
	})
	if c.Rotate {
		s.use(NewKey(2048))
	}
	if c.Send != nil {
		w, err := s.webhook(*c.Send)
		if err != nil {
			return report, err
		}
		got, err := s.Send(ctx, w)
		if err != nil {
			return report, err
		}
		report.Status, report.Body = got.Status, string(got.Body)
	}
	report.KeyID, report.Faults = s.Key().ID, s.snapshot().Faults
	return report, nil
}

// webhook returns the webhook of an order.
func (s *Server) webhook(o wire.Order) (w Webhook, err error) {
	w = Webhook{URL: o.URL, Method: o.Method, Payload: o.Payload, ContentType: o.ContentType, Header: o.Header,
		Age: o.Age, Flaw: o.Kind, Certificate: o.Certificate}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.URL = cmp.Or(w.URL, s.webhookURL); w.URL == "" {
		return w, errors.New("paymenttest: the service was given no webhook URL")
	}
	switch {
	case w.Flaw == Duplicate:
		if w.Payload = s.last; s.last == nil {
			err = errors.New("paymenttest: no delivery was sent yet")
		}
	case w.Flaw == Conflict:
		w.Payload, err = otherAmount(s.last)
	case w.Payload == nil:
		w.Payload, err = delivery(o)
	}
	switch w.Flaw {
	case Duplicate, Conflict:
		w.Flaw = ""
	case "":
		s.last = w.Payload
	}
	return w, err
}

// otherAmount returns a delivery of the first event of a delivery, with another amount.
func otherAmount(text []byte) ([]byte, error) {
	delivery, err := payment.DecodeDelivery(text)
	if err != nil || len(delivery.Events) == 0 {
		return nil, errors.New("paymenttest: no delivery with an event was sent yet")
	}
	e, err := payment.DecodeEvent(delivery.Events[0].Bytes)
	e.EventData.Amount = "1" + payment.Amount(strings.TrimPrefix(string(e.EventData.Amount), "-"))
	return Delivery(e), err
}

// delivery returns a delivery of new events.
func delivery(o wire.Order) ([]byte, error) {
	if _, ok := o.Amount.Rat(); o.Amount != "" && !ok || o.Events < 0 || o.Events > maxEvents {
		return nil, fmt.Errorf("paymenttest: at most %d events, and an amount that is a JSON number", maxEvents)
	}
	events := Events(cmp.Or(o.Events, 1))
	for i := range events {
		data := &events[i].EventData
		data.Amount = cmp.Or(o.Amount, data.Amount)
		data.PaymentCurrency = cmp.Or(o.Currency, data.PaymentCurrency)
	}
	return Delivery(events...), nil
}

// SetWebhookURL sets the URL to which the control endpoint sends webhooks that name none.
func (s *Server) SetWebhookURL(url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.webhookURL = url
}

// Control returns the control endpoint, for a server that has the guard [NotForPages], as s has.
func (s *Server) Control() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c wire.ControlRequest
		err := json.UnmarshalRead(r.Body, &c, json.RejectUnknownMembers(true), durations)
		var report wire.ControlReport
		if err == nil {
			report, err = s.Do(r.Context(), c)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.MarshalWrite(w, report, json.Deterministic(true)) // an error means that the client is gone
	})
}

// FromPage returns an error if a web page of another origin sent a request, of any method
// ([http.CrossOriginProtection]), or if the request names a host other than 127.0.0.1, localhost and hosts: the
// name of a page that resolves to 127.0.0.1 since the page was loaded (DNS rebinding).
func FromPage(r *http.Request, hosts ...string) error {
	host, _, _ := strings.Cut(strings.ToLower(r.Host), ":")
	if !slices.Contains(append(hosts, "127.0.0.1", "localhost"), host) {
		return fmt.Errorf("this server is not %s", r.Host)
	}
	asPOST := r.WithContext(r.Context()) // the protection lets every GET pass
	asPOST.Method = http.MethodPost
	return http.NewCrossOriginProtection().Check(asPOST)
}

// NotForPages answers 403 to requests of [FromPage]. Other requests reach next.
func NotForPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := FromPage(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
