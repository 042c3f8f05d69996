package scenario

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"uuid"

	"payhook.example/infra/deployment"
	"payhook.example/infra/local/emulator"
	"payhook.example/shared/paymenttest"
)

func TestTableShowsEachResultAndWhatIsWrong(t *testing.T) {
	right := &Check{Right: true, What: "one event", Got: "200; 1 new", Expected: "200", Milliseconds: 1200}
	wrong := &Check{What: "another", Got: "a detail\nin größeren lines", Expected: "401"}
	for _, test := range []struct {
		wide  bool
		parts []Section
		want  []string
	}{
		{false, []Section{{"Webhooks", []*Check{right, wrong}}, {"The token", []*Check{right}}}, []string{
			"\nWebhooks\n       CHECKED    RESULT\nok     one event  200; 1 new\n" +
				"WRONG  another    a detail in größeren lines\n",
			"\nTOPIC      RESULTS  WRONG  TIME\nWebhooks   2        1      1.2 s\nThe token  1        0      1.2 s\n",
			"\nWRONG     another\ntopic     Webhooks\nresult    a detail in größeren lines\nexpected  401\n",
			"\n1 of 3 results are wrong.\n"}},
		{true, []Section{{"Webhooks", []*Check{right}}}, []string{"\nok  one event  200; 1 new  200       1200\n",
			"\nAll 1 results are as expected.\n"}},
	} {
		var out bytes.Buffer
		if err := (Report{Parts: test.parts}).Print(&out, test.wide); err != nil {
			t.Fatal(err)
		}
		for _, want := range test.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q is missing in\n%s", want, &out)
			}
		}
	}
}

// What arrives belongs to the first check that sent it, so a duplicate that is published is wrong.
func TestWebhookIsRightOnlyIfItsEventsArrive(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"recorded":2,"duplicates":0}`)
	}))
	t.Cleanup(server.Close)
	s := &Scenario{Deployment: &deployment.Deployment{WebhookURL: server.URL},
		Service:  service{sender: paymenttest.Sender{Key: paymenttest.NewKey(2048)}},
		Progress: emulator.NewProgress(io.Discard)}
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
		checks := []*Check{s.webhook("", raw(payload), s.published(2, 0), Released+":2"),
			s.webhook("", raw(payload), s.published(2, 0), "")}
		in := &Arrivals{all: test.arrived, err: errors.New("nothing else comes")}
		if err := s.send(t.Context(), in, checks); err != nil || checks[0].Right != test.right || !checks[1].Right {
			t.Errorf("%+v: %+v, %+v, %v", test, checks[0], checks[1], err)
		}
	}
}

func TestCheckIsRightOnlyIfObserved(t *testing.T) {
	failed := errors.New("it failed")
	for _, test := range []struct {
		check Check
		do    func() string
		right bool
		wrong bool
		got   string
	}{
		{Check{Expected: "x"}, func() string { return "x" }, true, false, "x"},
		{Check{Expected: "x"}, func() string { return "x; a detail" }, true, false, "x; a detail"},
		{Check{Expected: "x"}, func() string { return "xy" }, false, true, "xy"},
		{Check{}, func() string { return "measured" }, true, false, "measured"},
		{Check{}, func() string { return Must("x", failed) }, false, true, "it failed"},
		{Check{NotShown: "a reason"}, nil, false, false, "not shown: a reason"},
	} {
		c := test.check
		c.Do = func(context.Context) string { return test.do() }
		if err := new(Scenario).Run(t.Context(), &c); err != nil || c.Right != test.right || c.Wrong() != test.wrong ||
			c.Got != test.got {
			t.Errorf("%+v, %v", c, err)
		}
		if NewReport(Section{Checks: []*Check{&c}}).Right == test.wrong {
			t.Errorf("%+v: the report is right: %t", c, !test.wrong)
		}
	}
}

// service is a payment service that only sends.
type service struct {
	Service
	sender paymenttest.Sender
}

func (s service) Sender() paymenttest.Sender { return s.sender }

func TestAnswerIsRightOnlyIfEveryPartIs(t *testing.T) {
	type got struct {
		status       int
		header, kind string
		body         string
	}
	const problem = "application/problem+json"
	none, rejected := answer{none: true}, answer{status: 401}
	ok := answer{status: 200, body: `"recorded":1`, header: "Allow"}
	s := &Scenario{Deployment: &deployment.Deployment{}, rejection: `{"a":1}`,
		Service: service{sender: paymenttest.Sender{Key: paymenttest.NewKey(2048)}}}
	for _, test := range []struct {
		want  answer
		got   got
		right bool
	}{
		{ok, got{200, "Allow", "application/json", `{ "recorded": 1 }`}, true},
		{ok, got{202, "Allow", "application/json", `{"recorded":1}`}, false},
		{ok, got{200, "Allow", "application/json", `{"recorded":2}`}, false},
		{ok, got{200, "Other", "application/json", `{"recorded":1}`}, false},
		{ok, got{200, "Allow", "text/plain", `{"recorded":1}`}, false},
		{rejected, got{401, "Allow", problem, `{"a":1}`}, true},
		{rejected, got{401, "Allow", problem, `{"a":2}`}, false}, // unlike the first
		{none, got{403, "Allow", problem, `{}`}, true},
		{none, got{200, "Allow", "application/json", `{}`}, false},
		{none, got{}, true}, // no answer
		{ok, got{}, false},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(test.got.header, "x")
			w.Header().Set("Content-Type", test.got.kind)
			w.WriteHeader(test.got.status)
			io.WriteString(w, test.got.body)
		}))
		s.WebhookURL = server.URL
		if test.got.status == 0 {
			server.Close()
		}
		c := s.webhook("", deliver(paymenttest.Event()), test.want, "")
		if err := s.Run(t.Context(), c); err != nil || c.Right != test.right {
			t.Errorf("%+v: %+v, %v", test, c, err)
		}
		server.Close()
	}
}
