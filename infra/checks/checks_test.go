package checks

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
	"uuid"

	"payhook.example/infra/deployment"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

func TestTableShowsEachResultAndWhatIsWrong(t *testing.T) {
	right := &Check{Right: true, What: "one event", Got: "200; 1 new", Expected: "200"}
	wrong := &Check{What: "another", Got: "a detail\nin größeren lines", Expected: "401"}
	for want, sections := range map[string][]Section{
		"\nWebhooks\nok     one event  200; 1 new\nWRONG  another    a detail in größeren lines\n" +
			"       expected   401\n\nThe token\nok  one event  200; 1 new\n\n1 of 3 results are wrong.\n": {
			{"Webhooks", []*Check{right, wrong}}, {"The token", []*Check{right}}},
		"\nWebhooks\nok  one event  200; 1 new\n\nAll 1 results are as expected.\n": {{"Webhooks", []*Check{right}}},
	} {
		var out bytes.Buffer
		if err := NewReport(sections).Print(&out); err != nil || out.String() != want {
			t.Errorf("%v:\n%s\nwant\n%s", err, &out, want)
		}
	}
}

func TestCheckIsRightOnlyIfObserved(t *testing.T) {
	failed := errors.New("it failed")
	for _, test := range []struct {
		do    func() string
		right bool
		got   string
	}{
		{func() string { return "x" }, true, "x"},
		{func() string { return "x; a detail" }, true, "x; a detail"},
		{func() string { return "xy" }, false, "xy"},
		{func() string { return Must("x", failed) }, false, "error: it failed"},
	} {
		c := check("", "x", func(context.Context) string { return test.do() })
		if err := Run(t.Context(), c); err != nil || c.Right != test.right || c.Got != test.got ||
			NewReport([]Section{{"", []*Check{c}}}).Right != test.right {
			t.Errorf("%+v, %v", c, err)
		}
	}
}

// scenario returns one whose webhooks are answered by a handler, and of whose events some have arrived.
func scenario(t *testing.T, arrived []Arrival, handler http.HandlerFunc) *Scenario {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return &Scenario{Deployment: &deployment.Deployment{WebhookURL: server.URL}, rejection: `{"a":1}`,
		Sender:   paymenttest.Sender{Key: paymenttest.NewKey(2048)},
		Arrivals: &Arrivals{all: arrived, err: errors.New("nothing else comes")}}
}

func TestWebhookIsRightOnlyIfItsEventsArrive(t *testing.T) {
	id := uuid.New().String()
	payload := paymenttest.RawDelivery(id, paymenttest.Encode(paymenttest.Event()))
	one, other := Arrival{Rule: Released, DeliveryID: id}, Arrival{Rule: Released, DeliveryID: "x"}
	for _, test := range []struct {
		arrived []Arrival
		right   bool
	}{
		{[]Arrival{one, other, one}, true}, {[]Arrival{one}, false}, {[]Arrival{one, one, one}, false}, {nil, false},
		{[]Arrival{one, one, {Rule: euro, DeliveryID: one.DeliveryID}}, false},
	} {
		s := scenario(t, test.arrived, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"recorded":2,"duplicates":0}`)
		})
		checks := []*Check{s.webhook("", "200, 2 new, 0 known", Released+":2", raw(payload)),
			s.webhook("", "200, 2 new, 0 known", "", raw(payload))}
		if err := Run(t.Context(), checks...); err != nil || checks[0].Right != test.right || !checks[1].Right {
			t.Errorf("%+v: %+v, %+v, %v", test, checks[0], checks[1], err)
		}
	}
}

// A duplicate that is published can arrive after its check.
func TestLateArrivalIsFoundAtTheEnd(t *testing.T) {
	for before, want := range map[string]string{"released:1": "nothing; of 1 webhooks",
		"": "of delivery late: released:1, and before: "} {
		s := scenario(t, []Arrival{{Rule: Released, DeliveryID: "late"}}, nil)
		s.WebhookURL = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			delivery, err := payment.DecodeDelivery(text)
			if err != nil {
				t.Error(err)
				return
			}
			s.Arrivals.all = append(s.Arrivals.all, Arrival{Rule: Released, EventID: delivery.Events[0].EventID})
		})).URL
		s.Arrivals.err, s.Timeout, s.Queues = nil, time.Minute, map[string]string{Released: "q"}
		s.sent = map[string]string{"late": before}
		c := s.nothingElse()
		if err := Run(t.Context(), c); err != nil || c.Got != want {
			t.Errorf("%+v, %v", c, err)
		}
	}
}

func TestAnswerIsRightOnlyIfEveryPartIs(t *testing.T) {
	const problem, json = "application/problem+json", "application/json"
	for _, test := range []struct {
		status     int
		kind, body string
		want       string
	}{
		{200, json, `{ "recorded": 1, "duplicates":2 }`, "200, 1 new, 2 known"},
		{200, "text/plain", `{"recorded":1,"duplicates":2}`,
			`200, and the body is "{\"recorded\":1,\"duplicates\":2}" of type text/plain`},
		{200, json, `1`, `200, and the body is "1" of type application/json`},
		{401, problem, `{"a":1}`, "401"},
		{401, problem, `{"a":2}`, "401, and another body than before"},
		{403, json, `{"message":"Forbidden"}`, "403 by AWS; Forbidden"},
		{405, problem, `{"detail":"No."}`, "405, Allow: POST; No."},
		{422, problem, `{"detail":"No."}`, "422; No."},
	} {
		s := scenario(t, nil, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", "POST")
			w.Header().Set("Content-Type", test.kind)
			w.WriteHeader(test.status)
			io.WriteString(w, test.body)
		})
		c := s.webhook("", "", "", deliver(paymenttest.Event()))
		if err := Run(t.Context(), c); err != nil || c.Got != test.want {
			t.Errorf("%+v: %+v, %v", test, c, err)
		}
	}
}
