package operate

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
)

// settle is the redrive function that settles; it fails as its reason says.
func (w *world) settle(r request) (*lambda.InvokeOutput, error) {
	switch {
	case strings.Contains(r.Reason, "denied"):
		return nil, errors.New("AccessDeniedException")
	case strings.Contains(r.Reason, "fails"):
		return &lambda.InvokeOutput{FunctionError: aws.String("Unhandled"),
			Payload: []byte(`{"errorMessage":"out of memory"}`)}, nil
	}
	var results []string
	for _, name := range r.Settle {
		cause := ""
		if len(w.settled) > 2 {
			cause = `,"cause":"parking: no parked object has this name"`
		}
		results = append(results, `{"name":"`+name+`"`+cause+`}`)
	}
	return &lambda.InvokeOutput{Payload: []byte(`{"settled":[` + strings.Join(results, ",") + `]}`)}, nil
}

func TestWhatNeedsNoReplayIsSettledWithAReason(t *testing.T) {
	w := newWorld(t)
	names := w.parkMany(2)
	out, err := w.expect(0, "parked", "settle", "parked/"+names[0], names[0], "--reason", "sent again by hand")
	if out != "settled       "+names[0]+"\n" || err != "" {
		t.Errorf("%q, %q", out, err)
	}
	if diff := cmp.Diff([]request{{Settle: names[:1], Reason: "sent again by hand", By: callerARN}},
		w.settled); diff != "" {
		t.Error(diff)
	}
	out, _ = w.expect(cli.StatusFailed, "parked", "settle", names[0], names[1], "--reason", "why", "--yes", "--json")
	want := []settled{{Name: names[0], Settled: true},
		{Name: names[1], Cause: "parking: no parked object has this name"}}
	if diff := cmp.Diff(want, lines[settled](t, out)); diff != "" {
		t.Error(diff)
	}
}

func TestItAsksBeforeItSettlesMoreThanOne(t *testing.T) {
	w := newWorld(t)
	names := w.parkMany(2)
	_, err := w.expect(cli.StatusUsage, "parked", "settle", names[0], names[1], "--reason", "why")
	w.contains(err, "Settle 2", "--yes")
	w.terminal, w.answer = true, strings.NewReader("n\n")
	w.expect(cli.StatusUsage, "parked", "settle", names[0], names[1], "--reason", "why")
	if len(w.settled) > 0 {
		t.Errorf("%v", w.settled)
	}
}

func TestWhatCouldNotBeSettledSaysSo(t *testing.T) {
	w := newWorld(t)
	name := w.parkMany(1)[0]
	out, _ := w.expect(cli.StatusFailed, "parked", "settle", name, "--reason", "it fails")
	w.contains(out, "not settled   "+name+"  the redrive function failed: out of memory")
	_, err := w.expect(cli.StatusUnreachable, "parked", "settle", name, "--reason", "it is denied")
	w.contains(err, "AccessDeniedException")
}
