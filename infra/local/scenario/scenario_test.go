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
	"unicode/utf8"
	"uuid"

	"payhook.example/infra/deployment"
	"payhook.example/infra/local/emulator"
	"payhook.example/shared/paymenttest"
)

func TestTableFitsTheTerminal(t *testing.T) {
	right := Check{Right: true, What: strings.Repeat("what ", 20), Got: "200; 1 new, 0 known",
		Expected: "200", Milliseconds: 1200}
	wrong := right
	wrong.Right = false
	wrong.Got = strings.Repeat("ein größeres Detail\n", 20) + strings.Repeat("x", 200)
	show := func(width int, wide bool, results ...*Check) string {
		var out bytes.Buffer
		r := Report{Parts: []Section{{"Deliveries, duplicates and rules", results}, {"The access token", []*Check{&right}}}}
		if err := r.Print(&out, width, wide); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	words := func(text string) string { return strings.Join(strings.Fields(text), "") }
	for _, width := range []int{60, 80, 120, 300} {
		text := show(width, false, &right, &wrong, &right)
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("a line has %d columns, want at most %d: %s", n, width, line)
			}
		}
		// What is wrong is shown in full.
		_, last, _ := strings.Cut(text, "\nWRONG     what")
		want := words("result " + wrong.Got + "expected 200")
		if !strings.Contains(words(last), want) || !strings.Contains(last, "1 of 4 results are wrong.") {
			t.Errorf("width %d: the wrong result is not shown in full:\n%s", width, text)
		}
	}
	for text, want := range map[string][]string{
		show(80, false, &right, &right): {"\nTOPIC                             RESULTS  WRONG  TIME\n" +
			"Deliveries, duplicates and rules  2        0      2.4 s\n" +
			"The access token                  1        0      1.2 s\n",
			"\nAll 3 results are as expected.\n"},
		show(80, true, &right): {right.What, "EXPECTED", "1200\n"},
	} {
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%q is missing in\n%s", w, text)
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
