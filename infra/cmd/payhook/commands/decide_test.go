package commands

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/ledger"
	"payhook.example/shared/proof"
	"payhook.example/shared/wire"
)

func (w *world) parkMany(n int) (names []string) {
	w.t.Helper()
	for i := range n {
		name, _ := w.park(time.Duration(n-i)*time.Minute, proof.Invalid)
		names = append(names, name)
	}
	return names
}

// names returns the names that the function was asked to replay or dismiss.
func (w *world) names() (all []string) {
	for _, r := range w.requests {
		all = slices.Concat(all, r.Replay, r.Dismiss)
	}
	return all
}

func TestRequestSaysWhatIsDecided(t *testing.T) {
	w := newWorld(t)
	name, event, rejected := w.parkMany(1)[0], w.insert(ledger.Parked, newItem(time.Hour)), w.rejected(nil, 0)
	conflict, _ := w.park(time.Hour, proof.Conflict)
	w.insert(ledger.Parked, newItem(time.Hour))
	id := event.EventID
	for call, want := range map[string]wire.RedriveRequest{
		"replay " + name + " " + name:                      {Replay: []string{name}},
		"replay --again " + name:                           {Replay: []string{name}, Again: true},
		"replay --content first " + conflict:               {Replay: []string{conflict}, Content: "first"},
		"replay --yes --content parked --reason r " + name: {Replay: []string{name}, Content: "parked", Reason: "r"},
		"replay " + strings.ToUpper(id):                    {Replay: []string{id}},
		"replay " + strings.ToUpper(id[:35]):               {Replay: []string{id}},
		"replay conflict/ --content first":                 {Replay: []string{conflict}, Content: "first"},
		"replay --reason why --accept-age rejected/2026/01/31": {Replay: []string{rejected}, Reason: "why",
			AcceptAge: true},
		"replay --all --kind rejected --reason why":   {Replay: []string{rejected}, Reason: "why"},
		"dismiss --reason why " + name[:20]:           {Dismiss: []string{name}, Reason: "why"},
		"dismiss --all --kind conflict --reason w":    {Dismiss: []string{conflict}, Reason: "w"},
		"dismiss --all --event " + id + " --reason w": {Dismiss: []string{id}, Reason: "w"},
	} {
		w.requests = nil
		out, err := w.expect(0, strings.Fields(call)...)
		want.By = callerARN
		if diff := cmp.Diff([]wire.RedriveRequest{want}, w.requests); diff != "" || err != "" {
			t.Errorf("%s: %s%s", call, err, diff)
		}
		if strings.Contains(out, "failed") || !strings.HasPrefix(out, "name="+w.names()[0]) {
			t.Errorf("%s: %s", call, out)
		}
	}
}

// A name that is not whole must be that of one thing.
func TestOnlyAUniqueBeginningOfANameIsEnough(t *testing.T) {
	w := newWorld(t)
	names := w.parkMany(2)
	w.decide(proof.Replayed, names[0], proof.Note{At: noon})
	first, second := newItem(time.Hour), newItem(time.Hour)
	first.EventID, second.EventID = "00"+first.EventID[2:], "00"+second.EventID[2:]
	w.insert(ledger.Parked, first)
	w.insert(ledger.Parked, second)
	one := newWorld(t)
	one.insert(ledger.Parked, newItem(time.Hour))
	if _, err, status := one.operate("dismiss", "", "--reason", "why"); status != cli.StatusFailed ||
		!strings.Contains(err, "nothing is parked under the name ;") {
		t.Errorf("without a name: %d, %s", status, err)
	}
	for text, says := range map[string]string{
		"invalid/":             "several names begin with invalid/: " + names[0] + " and " + names[1],
		"00":                   "several names begin with 00",
		"accepted/2026/01/31":  "nothing is parked under the name accepted/2026/01/31",
		"conflict/2026":        "nothing is parked under the name conflict/2026",
		"nonsense":             "nothing is parked under the name nonsense",
		"../x":                 "nothing is parked under the name ../x",
		names[0][1:]:           "nothing is parked under the name nvalid/",
		"replayed/" + names[0]: "nothing is parked",
	} {
		for _, call := range []string{"replay", "dismiss --reason why", "parked show"} {
			_, err, status := w.operate(append(strings.Fields(call), text)...)
			w.contains(err, says)
			if len(w.requests) > 0 || status == 0 {
				t.Errorf("%s %s: %d, %v", call, text, status, w.requests)
			}
		}
	}
}

func TestItAsksBeforeItDecidesMoreThanOne(t *testing.T) {
	for answer, yes := range map[string]bool{"y\n": true, "n\n": false} {
		for call, question := range map[string]string{"replay": "Replay 2", "replay --all": "Replay 2",
			"dismiss --reason why": "Dismiss 2", "dismiss --all --reason why": "Dismiss 2"} {
			w := newWorld(t)
			args := strings.Fields(call)
			if names := w.parkMany(2); !strings.Contains(call, "--all") {
				args = append(args, names...)
			}
			w.answer = strings.NewReader(answer)
			_, err := w.expect(cli.StatusUsage, args...) // nobody typed that
			w.contains(err, question, "--yes")
			w.terminal = true
			status, asked := cli.StatusUsage, 0
			if yes {
				status, asked = 0, 2
			}
			_, err = w.expect(status, args...)
			w.contains(err, question+" in stack Payhook (nowhere)? [y/N]")
			if len(w.requests) != asked || strings.Contains(err, "nothing was done") == yes {
				t.Errorf("%q: %v\n%s", answer, w.requests, err)
			}
		}
	}
}

func TestAllThatIsOpenIsDecided(t *testing.T) {
	w := newWorld(t)
	all := w.parkMany(5)
	w.decide(proof.Replayed, all[3], proof.Note{At: noon})
	conflict, _ := w.park(0, proof.Conflict)
	w.rejected(nil, 0)
	event := w.insert(ledger.Parked, newItem(time.Hour))
	_, err := w.expect(0, "replay", "--all", "--yes")
	open := slices.Concat([]string{event.EventID}, all[:3], all[4:])
	if !slices.Equal(w.names(), open) {
		t.Errorf("got %q, want %q", w.names(), open)
	}
	w.contains(err, "5 of 5 succeeded, 0 failed", "1 conflict is not included")
	w.requests = nil
	w.expect(0, "dismiss", "--all", "--yes", "--reason", "why")
	if want := append(open, conflict); !slices.Equal(w.names(), want) {
		t.Errorf("got %q, want %q", w.names(), want)
	}
	w.requests = nil
	_, err = w.expect(0, "replay", "--all", "--from", "1ms", "--kind", "invalid")
	w.contains(err, "nothing was done")
	if len(w.requests) > 0 {
		t.Errorf("%v", w.requests)
	}
}

func TestResultsAreShownWithReason(t *testing.T) {
	w := newWorld(t)
	names := w.parkMany(6)
	w.redrive = func(r wire.RedriveRequest) string {
		return map[string]string{
			names[0]: `{"decided":[{"name":"` + names[0] + `","outcome":"accepted","recorded":2,"duplicates":1}]}`,
			names[1]: `{"decided":[{"name":"` + names[1] + `","outcome":"conflict","conflicts":2,"parked":"x"}]}`,
			names[2]: `{"decided":[{"name":"` + names[2] + `","outcome":"accepted","cause":"not marked"}]}`,
			names[3]: `{"errorMessage":"out of memory"}`,
			names[4]: `{"decided":[{"name":"` + names[4] + `","outcome":"accepted","recorded":2,"pending":1,` +
				`"largeEventEnds":"2026-02-01T12:00:00Z"}]}`,
			names[5]: `{"decided":[{"name":"` + names[5] + `","outcome":"pending","cause":"not yet","duplicates":1}]}`,
		}[r.Replay[0]]
	}
	call := append([]string{"replay", "--yes"}, names...)
	out, err := w.expect(cli.StatusFailed, call...)
	w.contains(out, "name="+names[0]+"  outcome=accepted  recorded=2  duplicates=1\n",
		"failed=true  name="+names[1]+"  outcome=conflict  conflicts=2  parked=x\n", `cause="not marked"`+"\n",
		"failed=true  name="+names[3]+`  cause="the redrive function failed: out of memory"`+"\n",
		"name="+names[4]+`  outcome=recorded  recorded=2  pending=1`+
			`  largeEventEnds="2026-02-01T12:00:00.000Z (in 1d)"`+"\n",
		"failed=true  name="+names[5]+`  outcome=pending  cause="not yet"  duplicates=1`+"\n")
	w.contains(err, "2 of 6 succeeded, 4 failed")
	out, _ = w.expect(cli.StatusFailed, append(call, "--json")...)
	want := decided{Failed: true, Name: names[1], Outcome: "conflict", Conflicts: 2, Parked: "x"}
	if diff := cmp.Diff(want, documents[decided](t, out)[1]); diff != "" {
		t.Error(diff)
	}
	w.redrive = func(wire.RedriveRequest) string {
		return `{"decided":[{"name":"x","cause":"not parked"}]}`
	}
	out, _ = w.expect(cli.StatusFailed, "dismiss", names[0], "--reason", "why")
	w.contains(out, `failed=true  name=x  cause="not parked"`)
}

func TestErrorsEndTheReplay(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	for name, test := range map[string]struct {
		redrive func(calls int) string
		status  int
		says    []string
	}{
		"three failed runs": {func(int) string { return `{"errorMessage":"x"}` }, cli.StatusFailed,
			[]string{"the rest was not tried\n0 of 5 succeeded, 3 failed"}},
		"failed runs apart": {func(calls int) string {
			if calls == 3 {
				return `{"decided":[{"outcome":"accepted"}]}`
			}
			return `{"errorMessage":"x"}`
		}, cli.StatusFailed, []string{"1 of 5 succeeded, 4 failed"}},
		"AWS": {func(calls int) string {
			if calls == 3 {
				return ""
			}
			return `{"decided":[{"outcome":"accepted"}]}`
		}, cli.StatusUnreachable, []string{"2 of 5 succeeded, 0 failed", "AccessDeniedException"}},
		"Ctrl-C": {func(calls int) string {
			cancel()
			return ""
		}, cli.StatusInterrupted, []string{"0 of 5 succeeded", "may still be done", "interrupted"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.parkMany(5)
			if name == "Ctrl-C" {
				w.ctx = ctx
			}
			w.redrive = func(wire.RedriveRequest) string { return test.redrive(len(w.requests)) }
			_, err := w.expect(test.status, "replay", "--all", "--yes")
			w.contains(err, test.says...)
		})
	}
}

func TestParkedContentNeedsConfirmationOfBoth(t *testing.T) {
	w := newWorld(t)
	first := w.published()
	name, _ := w.conflict(first.EventID, first)
	_, err := w.expect(cli.StatusUsage, "replay", name, "--content", "parked")
	w.contains(err, "event "+first.EventID, "FIRST CONTENT", "PARKED CONTENT", "published 2026-01-31T12:00:00.000Z",
		"amount    100.00  ", "9250.00", "EUR", "RELEASED",
		"The whole first content: Payhook does not store it any more.",
		"Consumers may process a second payment. Publish the parked content", "--yes")
	if len(w.requests) > 0 {
		t.Fatalf("%v\n%s", w.requests, err)
	}
	w.terminal, w.answer = true, strings.NewReader("n\n")
	w.expect(cli.StatusUsage, "replay", name, "--content", "parked")
	if len(w.requests) > 0 {
		t.Errorf("%+v", w.requests)
	}
	w.answer = strings.NewReader("y\n")
	w.expect(0, "replay", name, "--content", "parked")
}
