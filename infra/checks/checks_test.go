package checks

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"payhook.example/infra/stack"
	"payhook.example/shared/paymenttest"
)

func TestReportShowsEachResultAndWhatIsWrong(t *testing.T) {
	right := Check{Topic: "Webhooks", Right: true, What: "one event", Got: Seen{Status: 200,
		Fields: Fields{"recorded": 1.0}, Arrivals: []Arrival{{Rule: Released}, {Rule: Released}}}}
	wrong := Check{Topic: "Webhooks", What: "another", Got: Seen{Status: 503}, Detail: "a detail",
		Want: Seen{Status: 401}}
	for want, checks := range map[string][]Check{
		"\nWebhooks\nok     one event  200 recorded=1 2 arrived (released)\nWRONG  another    503; a detail\n" +
			"       expected   401\n\n1 of 2 results are as expected.\n": {right, wrong},
		"\nWebhooks\nok  one event  200 recorded=1 2 arrived (released)\n\n1 of 1 results are as expected.\n": {right},
	} {
		var out bytes.Buffer
		if wrong, err := Print(&out, checks); err != nil || out.String() != want || wrong != len(checks)-1 {
			t.Errorf("%d, %v:\n%s\nwant\n%s", wrong, err, &out, want)
		}
	}
}

// newSubject returns a stack whose webhooks are answered by a handler, and of whose events some have arrived.
func newSubject(t *testing.T, arrived []Arrival, handler http.HandlerFunc) *Subject {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return &Subject{Stack: &stack.Stack{WebhookURL: server.URL}, Timeout: time.Millisecond,
		Sender: paymenttest.Sender{Key: paymenttest.NewKey(2048)}, Arrivals: &Arrivals{all: arrived}}
}

// A mutation of what is seen of one webhook is found.
func TestWebhookIsRightOnlyIfAnswerAndArrivalsAre(t *testing.T) {
	event := paymenttest.Event()
	one := Arrival{Rule: Released, Type: event.EventName, EventID: event.EventID, Amount: 1250, Detail: []byte("{}")}
	with := func(change func(*Arrival)) []Arrival {
		other := one
		change(&other)
		return []Arrival{other}
	}
	for name, test := range map[string]struct {
		status  int
		kind    string
		body    string
		arrived []Arrival
	}{
		"all is right": {200, "application/json", `{"recorded":1,"duplicates":0}`, []Arrival{one}},
		"something else, too": {200, "application/json", `{"recorded":1,"duplicates":0,"x":1}`,
			append(with(func(a *Arrival) { a.EventID = "x" }), one)},
		"status":          {202, "application/json", `{"recorded":1,"duplicates":0}`, []Arrival{one}},
		"number":          {200, "application/json", `{"recorded":2,"duplicates":0}`, []Arrival{one}},
		"missing":         {200, "application/json", `{"recorded":1}`, []Arrival{one}},
		"text":            {200, "application/json", `{"recorded":"1","duplicates":0}`, []Arrival{one}},
		"unwanted":        {200, "application/json", `{"recorded":1,"duplicates":0,"conflicts":1}`, []Arrival{one}},
		"type":            {200, "text/plain", `{"recorded":1,"duplicates":0}`, []Arrival{one}},
		"no JSON":         {200, "application/json", `recorded`, []Arrival{one}},
		"nothing arrives": {200, "application/json", `{"recorded":1,"duplicates":0}`, nil},
		"twice":           {200, "application/json", `{"recorded":1,"duplicates":0}`, []Arrival{one, one}},
		"another rule": {200, "application/json", `{"recorded":1,"duplicates":0}`,
			append(with(func(a *Arrival) { a.Rule = euro }), one)},
		"another amount": {200, "application/json", `{"recorded":1,"duplicates":0}`,
			with(func(a *Arrival) { a.Amount = 1250.01 })},
		"another type": {200, "application/json", `{"recorded":1,"duplicates":0}`,
			with(func(a *Arrival) { a.Type = "X" })},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSubject(t, test.arrived, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.kind)
				w.WriteHeader(test.status)
				io.WriteString(w, test.body)
			})
			rows := []Check{send("", deliver(event), s.accepted(1, 0), Released)}
			right := name == "all is right" || name == "something else, too"
			if err := s.Run(t.Context(), rows); err != nil || rows[0].Right != right {
				t.Errorf("%+v, %v", rows, err)
			}
		})
	}
}

// A webhook that must not publish anything is wrong if its event arrives, also late.
func TestWebhookThatIsRejectedPublishesNothing(t *testing.T) {
	event, published := paymenttest.Event(), paymenttest.Event()
	s := newSubject(t, arrivals(deliver(published), []string{Released}),
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			io.WriteString(w, `{"status":422}`)
		})
	rows := []Check{{Webhook: deliver(event), Want: rejected(422)}, {Webhook: deliver(published), Want: rejected(422)}}
	if err := s.Run(t.Context(), rows); err != nil || !rows[0].Right || rows[1].Right {
		t.Errorf("%+v, %v", rows, err)
	}
}

func TestCommandIsRightOnlyIfItsLineAndStatusAre(t *testing.T) {
	s := newSubject(t, nil, nil)
	s.Command = func(ctx context.Context, args ...string) *exec.Cmd {
		return exec.CommandContext(ctx, "sh", "-c", `echo '{"name":"a","n":1}'; echo '{"name":"b","n":2}'
			echo "args $*" >&2; exit 3`, "sh", strings.Join(args[:len(args)-1], " "))
	}
	for _, test := range []struct {
		want  Seen
		right bool
	}{
		{Seen{Status: 3, Fields: Fields{"n": 2}}, true}, {Seen{Status: 3, Fields: Fields{"n": 1, "lines": 2}}, true},
		{Seen{Status: 3, Fields: Fields{"n": 3}}, false}, {Seen{Status: 0, Fields: Fields{"n": 1}}, false},
		{Seen{Status: 3, Fields: Fields{"n": 1, "name": "b"}}, false},
	} {
		rows := []Check{{Call: []string{"list"}, Want: test.want}}
		if err := s.Run(t.Context(), rows); err != nil || rows[0].Right != test.right {
			t.Errorf("%+v, %v", rows, err)
		}
	}
	rows := []Check{{Call: []string{"list"}, Want: Seen{Status: 3, Fields: Fields{"n": 1}}},
		{Call: []string{"show", "NAME"}, Want: Seen{Status: 0}}}
	if err := s.Run(t.Context(), rows); err != nil || rows[1].Detail != "args show a" {
		t.Errorf("%+v, %v", rows, err)
	}
}

func TestRowIsRepeatedUntilItIsRight(t *testing.T) {
	s, n, before := &Subject{Timeout: time.Minute}, 0, 0
	row := Check{Eventually: true, Want: Seen{Status: 3}, Before: func(context.Context) error { before++; return nil },
		Do: func(context.Context) (Seen, error) {
			if n++; n == 2 {
				return Seen{}, errors.New("it failed")
			}
			return Seen{Status: n}, nil
		}}
	if s.do(t.Context(), &row); !row.Right || n != 3 || before != 1 {
		t.Errorf("%+v after %d", row, n)
	}
	n, row.Eventually = 0, false
	if s.do(t.Context(), &row); row.Right || n != 1 {
		t.Errorf("%+v after %d", row, n)
	}
}
