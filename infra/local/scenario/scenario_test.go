package scenario

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/deployment"
	"payhook.example/shared/paymenttest"
)

func TestTableFitsTheTerminal(t *testing.T) {
	right := Check{Right: true, Topic: ofDeliveries, What: strings.Repeat("what ", 20), Got: "200 1 new, 0 known",
		Expected: "200", Arrived: map[string]int{Released: 1, needsAttention: 1},
		ExpectedArrived: map[string]int{Released: 1, needsAttention: 1}, Milliseconds: 1200}
	wrong := right
	wrong.Right, wrong.Topic = false, ofParked
	wrong.Got = strings.Repeat("a long detail ", 20) + strings.Repeat("x", 200)
	show := func(width int, wide bool, results ...Check) string {
		var out bytes.Buffer
		var all []*Check
		for _, r := range results {
			all = append(all, &r)
		}
		r := Report{Parts: []Section{{Webhooks: all, Checks: []*Check{&right}},
			{Title: "PayhookMTLS", Checks: []*Check{&right}}}, Note: strings.Repeat("a note ", 30)}
		if err := r.Print(&out, width, wide); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	words := func(text string) string { return strings.Join(strings.Fields(text), "") }
	for _, width := range []int{60, 80, 100, 120, 300} {
		text := show(width, false, right, wrong, right)
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("a line has %d columns, want at most %d: %s", n, width, line)
			}
		}
		// What is wrong is shown in full.
		_, last, _ := strings.Cut(text, "WRONG     what")
		want := words("result " + wrong.Got + "expected 200 arrived needs-attention 1, released 1")
		if !strings.Contains(words(last), want) || !strings.Contains(last, "1 of 5 results are wrong.") {
			t.Errorf("width %d: the wrong result is not shown in full:\n%s", width, text)
		}
	}
	text := show(80, false, right, right)
	for _, want := range []string{
		"\nTOPIC                                          RESULTS  WRONG  TIME\n" +
			"Deliveries, duplicates and rules               2        -      2.4 s\n" +
			"Deliveries, duplicates and rules               1        -      1.2 s\n" +
			"PayhookMTLS: deliveries, duplicates and rules  1        -      1.2 s\n",
		"\nAll 4 results are as expected.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	text = show(80, true, right)
	for _, want := range []string{right.What, "EXPECTED", "1200\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

func TestWrappedCellLosesNothing(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 12, []string{""}},
		{"as it is", 8, []string{"as it is"}},
		{"two lines", 8, []string{"two", "lines"}},
		{"a\nline break", 12, []string{"a line break"}},
		{"ab abcdefghij c", 4, []string{"ab", "abcd", "efgh", "ij c"}},
		{"größer größer", 6, []string{"größer", "größer"}},
	} {
		if got := wrap(c.text, c.width); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
	}
}

func TestEventBelongsToTheCheckThatSentIt(t *testing.T) {
	events := paymenttest.Events(3)
	payload := deliver(events...).Payload
	first, second, forged := &Check{payload: payload}, &Check{payload: payload}, &Check{payload: []byte("{")}
	checks := []*Check{first, second, forged}
	var all []Arrival
	for _, e := range events {
		all = append(all, Arrival{Rule: Released, EventID: e.EventID})
	}
	attribute(checks, append(all, Arrival{Rule: euro, EventID: events[0].EventID},
		Arrival{Rule: euro, EventID: "another"}))
	if diff := cmp.Diff([]map[string]int{{Released: 3, euro: 1}, {}, {}},
		[]map[string]int{first.Arrived, second.Arrived, forged.Arrived}); diff != "" {
		t.Error(diff)
	}
	// A duplicate that is published belongs to the check that sent it.
	attribute(checks, append(all, all[0], all[0]))
	if diff := cmp.Diff([]map[string]int{{Released: 3}, {Released: 2}},
		[]map[string]int{first.Arrived, second.Arrived}); diff != "" {
		t.Error(diff)
	}
}

func TestAnswerIsRightOnlyIfEveryPartIs(t *testing.T) {
	want := answer{status: 200, body: `"recorded":1`, header: "Allow"}
	got := func() paymenttest.Answer {
		return paymenttest.Answer{Status: 200,
			Header: http.Header{"Allow": {"POST"}, "Content-Type": {"application/json"}},
			Body:   []byte(`{ "recorded": 1 }`)}
	}
	if !want.right(got(), nil) {
		t.Error("a right answer is wrong")
	}
	for name, change := range map[string]func(*paymenttest.Answer){
		"status": func(a *paymenttest.Answer) { a.Status = 202 },
		"body":   func(a *paymenttest.Answer) { a.Body = []byte(`{"recorded":2}`) },
		"header": func(a *paymenttest.Answer) { a.Header.Del("Allow") },
		"type":   func(a *paymenttest.Answer) { a.Header.Set("Content-Type", "text/plain") },
	} {
		a := got()
		if change(&a); want.right(a, nil) {
			t.Errorf("%s: a wrong answer is right", name)
		}
	}
	failed, none := errors.New("no answer"), answer{none: true}
	if want.right(got(), failed) || !none.right(paymenttest.Answer{}, failed) || none.right(got(), nil) {
		t.Error("a connection that failed, or did not, has the wrong result")
	}
}

func TestCheckIsRightOnlyIfObserved(t *testing.T) {
	s := &Scenario{Lacks: map[Need]string{LambdaLimits: "a reason"}}
	do := func(got string, right bool, err error) func(context.Context) (string, bool, error) {
		return func(context.Context) (string, bool, error) { return got, right, err }
	}
	failed := errors.New("it failed")
	for _, test := range []struct {
		check      Check
		right      bool
		wrong      bool
		got, shown string
	}{
		{Check{Do: do("x", true, nil)}, true, false, "x", ""},
		{Check{Do: do("x", false, nil)}, false, true, "x", ""},
		{Check{Do: do("x", true, failed)}, false, true, "x, it failed", ""},
		{Check{Do: do("", true, failed)}, false, true, "it failed", ""},
		{Check{Do: do("x", true, nil), Needs: []Need{LambdaLimits}}, false, false, "not shown", "a reason"},
		{*Exactly("", "x", func(context.Context) (string, error) { return "x", nil }), true, false, "x", ""},
		{*Exactly("", "x", func(context.Context) (string, error) { return "y", nil }), false, true, "y", ""},
	} {
		c := test.check
		if err := s.Run(t.Context(), &c); err != nil || c.Right != test.right || c.Wrong() != test.wrong ||
			c.Got != test.got || c.NotShown != test.shown {
			t.Errorf("%+v, %v", c, err)
		}
		if NewReport(Section{Checks: []*Check{&c}}).Right == test.wrong {
			t.Errorf("%+v: the report is right: %t", c, !test.wrong)
		}
	}
}

// service is a payment service whose webhooks get one answer after another.
type service struct {
	Service
	sender paymenttest.Sender
}

func (s service) Sender() paymenttest.Sender { return s.sender }

func TestRejectionsThatDifferAreWrong(t *testing.T) {
	bodies := []string{`{"a":1}`, `{"a":2}`, `{"a":1}`}
	s := &Scenario{Deployment: &deployment.Deployment{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, bodies[0])
		bodies = bodies[1:]
	}))
	t.Cleanup(server.Close)
	s.WebhookURL = server.URL
	s.Service = service{sender: paymenttest.Sender{Key: paymenttest.NewKey(2048)}}
	var checks []*Check
	for range 3 {
		checks = append(checks, s.rejected("forged", deliver(paymenttest.Event())))
	}
	if err := s.Run(t.Context(), checks...); err != nil || countWrong(checks) != 1 || checks[1].Right {
		t.Errorf("%v, %+v: want that the second is wrong", err, checks[0])
	}
}
