package operate

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
)

func TestSettlingRecordsTheReason(t *testing.T) {
	w := newWorld(t)
	names := w.parkMany(2)
	out, err := w.expect(0, "parked", "settle", "parked/"+names[0], names[0], "--reason", "sent again by hand")
	if out != "settled       "+names[0]+"\n" || err != "" {
		t.Errorf("%q, %q", out, err)
	}
	if diff := cmp.Diff([]request{{Settle: names[:1], Reason: "sent again by hand", By: callerARN}},
		w.requests); diff != "" {
		t.Error(diff)
	}
	w.redrive = func(r request) (string, error) {
		if r.Settle[0] == names[1] {
			return `{"settled":[{"name":"` + names[1] + `","cause":"parking: no parked object has this name"}]}`, nil
		}
		return accepts(r)
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
	if len(w.requests) > 0 {
		t.Errorf("%v", w.requests)
	}
}

func TestWhatCouldNotBeSettledSaysSo(t *testing.T) {
	w := newWorld(t)
	name := w.parkMany(1)[0]
	w.redrive = func(request) (string, error) { return `{"errorMessage":"out of memory"}`, nil }
	out, _ := w.expect(cli.StatusFailed, "parked", "settle", name, "--reason", "it fails")
	w.contains(out, "not settled   "+name+"  the redrive function failed: out of memory")
	w.redrive = func(request) (string, error) { return "", errors.New("denied") }
	_, err := w.expect(cli.StatusUnreachable, "parked", "settle", name, "--reason", "it is denied")
	w.contains(err, "AccessDeniedException")
}
