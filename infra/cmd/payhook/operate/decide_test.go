package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/claimcheck"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

func (w *world) parkMany(n int) (names []string) {
	w.t.Helper()
	for i := range n {
		name, _ := w.park(time.Duration(n-i)*time.Minute, parking.Invalid)
		names = append(names, name)
	}
	return names
}

// names returns the names that the function was asked to replay or dismiss.
func (w *world) names() (all []string) {
	for _, r := range w.requests {
		all = slices.Concat(all, r.Replay, r.Captured, r.Dismiss)
	}
	return all
}

func TestRequestSaysWhatIsDecided(t *testing.T) {
	w := newWorld(t)
	name := w.parkMany(1)[0]
	conflict := strings.ReplaceAll(name, "invalid", "conflict")
	for call, want := range map[string]request{
		"parked replay parked/" + name + " " + name:    {Replay: []string{name}},
		"parked replay --again " + name:                {Replay: []string{name}, Again: true},
		"parked replay --version first " + conflict:    {Replay: []string{conflict}, Version: "first"},
		"parked replay --yes --version parked " + name: {Replay: []string{name}, Version: "parked"},
		"parked dismiss --reason why " + name:          {Dismiss: []string{name}, Reason: "why"},
		"captured replay --reason why a":               {Captured: []string{"a"}, Reason: "why"},
		"captured replay --reason why --accept-age captured/a": {Captured: []string{"a"}, Reason: "why",
			AcceptAge: true},
	} {
		w.requests = nil
		out, err := w.expect(0, strings.Fields(call)...)
		want.By = callerARN
		if diff := cmp.Diff([]request{want}, w.requests); diff != "" || err != "" {
			t.Errorf("%s: %s%s", call, err, diff)
		}
		if strings.Contains(out, "failed") || !strings.HasPrefix(out, "name="+w.names()[0]) {
			t.Errorf("%s: %s", call, out)
		}
	}
}

func TestItAsksBeforeItDecidesMoreThanOne(t *testing.T) {
	for answer, yes := range map[string]bool{"y\n": true, "n\n": false} {
		for call, question := range map[string]string{"replay": "Replay 2", "replay --all": "Replay 2",
			"dismiss --reason why": "Dismiss 2", "captured replay --reason why": "Replay 2"} {
			w := newWorld(t)
			args := strings.Fields(call)
			if args[0] != "captured" {
				args = append([]string{"parked"}, args...)
			}
			if names := w.parkMany(2); call != "replay --all" {
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

func TestAllThatIsOpenIsReplayed(t *testing.T) {
	w := newWorld(t)
	all := w.parkMany(5)
	w.replayed(all[3])
	w.park(0, parking.Conflict)
	_, err := w.expect(0, "parked", "replay", "--all", "--yes")
	if want := slices.Concat(all[:3], all[4:]); !slices.Equal(w.names(), want) {
		t.Errorf("got %q, want %q", w.names(), want)
	}
	w.contains(err, "4 of 4 succeeded, 0 failed", "1 conflict is not included")

	w.requests = nil
	_, err = w.expect(0, "parked", "replay", "--all", "--from", "1ms", "--reason", "unpublishable")
	w.contains(err, "nothing was done")
	if len(w.requests) > 0 {
		t.Errorf("%v", w.requests)
	}
}

func TestResultsAreShownWithReason(t *testing.T) {
	w := newWorld(t)
	names := w.parkMany(6)
	w.redrive = func(r request) (string, error) {
		return map[string]string{
			names[0]: `{"replayed":[{"name":"` + names[0] + `","outcome":"accepted","recorded":2,"duplicates":1}]}`,
			names[1]: `{"replayed":[{"name":"` + names[1] + `","outcome":"conflict","conflicts":2,"parked":"x"}]}`,
			names[2]: `{"replayed":[{"name":"` + names[2] + `","outcome":"accepted","cause":"not marked"}]}`,
			names[3]: `{"errorMessage":"out of memory"}`,
			names[4]: `{"replayed":[{"name":"` + names[4] + `","outcome":"accepted","recorded":2,"pending":1}]}`,
			names[5]: `{"replayed":[{"name":"` + names[5] + `","outcome":"pending","cause":"not yet","duplicates":1}]}`,
		}[r.Replay[0]], nil
	}
	call := append([]string{"parked", "replay", "--yes"}, names...)
	out, err := w.expect(cli.StatusFailed, call...)
	w.contains(out, "name="+names[0]+"  outcome=accepted  recorded=2  duplicates=1\n",
		"failed=true  name="+names[1]+"  outcome=conflict  conflicts=2  parked=x\n", `cause="not marked"`+"\n",
		"failed=true  name="+names[3]+`  cause="the redrive function failed: out of memory"`+"\n",
		"name="+names[4]+`  outcome=recorded  next="redrive publishes it within a minute"  recorded=2  pending=1`+"\n",
		"failed=true  name="+names[5]+`  outcome=pending  cause="not yet"  duplicates=1`+"\n")
	w.contains(err, "2 of 6 succeeded, 4 failed")
	out, _ = w.expect(cli.StatusFailed, append(call, "--json")...)
	want := decided{Failed: true, Name: names[1], Outcome: "conflict", Conflicts: 2, Parked: "x"}
	if diff := cmp.Diff(want, lines[decided](t, out)[1]); diff != "" {
		t.Error(diff)
	}
	w.redrive = func(request) (string, error) { return `{"dismissed":[{"name":"x","cause":"not parked"}]}`, nil }
	out, _ = w.expect(cli.StatusFailed, "parked", "dismiss", names[0], "--reason", "why")
	w.contains(out, `failed=true  name=x  cause="not parked"`)
}

func TestErrorsEndTheReplay(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	for name, test := range map[string]struct {
		redrive func(calls int) (string, error)
		status  int
		says    []string
	}{
		"three failed runs": {func(calls int) (string, error) { return `{"errorMessage":"x"}`, nil }, cli.StatusFailed,
			[]string{"the rest was not tried\n0 of 5 succeeded, 3 failed"}},
		"failed runs apart": {func(calls int) (string, error) {
			if calls == 3 {
				return `{"replayed":[{"outcome":"accepted"}]}`, nil
			}
			return `{"errorMessage":"x"}`, nil
		}, cli.StatusFailed, []string{"1 of 5 succeeded, 4 failed"}},
		"AWS": {func(calls int) (string, error) {
			if calls == 3 {
				return "", errors.New("denied")
			}
			return `{"replayed":[{"outcome":"accepted"}]}`, nil
		}, cli.StatusUnreachable, []string{"2 of 5 succeeded, 0 failed", "AccessDeniedException"}},
		"Ctrl-C": {func(calls int) (string, error) {
			cancel()
			return "", ctx.Err()
		}, cli.StatusInterrupted, []string{"0 of 5 succeeded", "may still be done", "interrupted"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.parkMany(5)
			if name == "Ctrl-C" {
				w.ctx = ctx
			}
			w.redrive = func(request) (string, error) { return test.redrive(len(w.requests)) }
			_, err := w.expect(test.status, "parked", "replay", "--all", "--yes")
			w.contains(err, test.says...)
		})
	}
}

// paymentOf returns an event with an amount.
func paymentOf(id, amount string) []byte {
	return fmt.Appendf(nil, `{"eventName":"PAYMENT_STATUS.RELEASED","eventId":%q,"eventTimestamp":`+
		`"2026-01-31T12:00:00Z","eventData":{"amount":%s,"paymentCurrency":"EUR",`+
		`"paymentStatus":{"status":"RELEASED"}}}`,
		id, amount)
}

// conflict publishes an event of 100.00, and parks a delivery in which it is 9250.00, and
// others with the same id.
func (w *world) conflict(others ...string) (name, id string) {
	w.t.Helper()
	id = uuid.New().String()
	raw, err := payment.DecodeRawEvent(paymentOf(id, "100.00"))
	if err != nil {
		w.t.Fatal(err)
	}
	e := ledger.NewItem(raw, uuid.New().String(), w.now.Add(-time.Hour))
	w.ledger.Record(w.t.Context(), []ledger.Item{e}, ledger.NewHolder(), w.now)
	w.publish(e)
	parked := paymentOf(id, "9250.00")
	events := [][]byte{parked}
	for _, amount := range others {
		events = append(events, paymentOf(id, amount))
	}
	name, _ = w.park(time.Minute, parking.Conflict, func(p *parking.Parked) {
		digest := ledger.DigestOf(parked)
		p.EventIDs, p.EventDigests = []string{id}, [][]byte{digest[:]}
		p.Payload = paymenttest.RawDelivery(p.DeliveryID, events...)
	})
	return name, id
}

func TestParkedVersionNeedsConfirmationOfBothVersions(t *testing.T) {
	w := newWorld(t)
	name, id := w.conflict()
	_, err := w.expect(cli.StatusUsage, "parked", "replay", name, "--version", "parked")
	w.contains(err, "event "+id, "FIRST VERSION", "PARKED VERSION", "published 2026-01-31T12:00:00.000Z", "9250.00",
		"EUR", "RELEASED", "Payhook does not store the first version any more. Consumers have it",
		"Consumers may process a second payment. Publish the parked version", "--yes")
	if strings.Count(err, "not available  ") != 3 || len(w.requests) > 0 {
		t.Fatalf("%v\n%s", w.requests, err)
	}
	w.terminal, w.answer = true, strings.NewReader("n\n")
	w.expect(cli.StatusUsage, "parked", "replay", name, "--version", "parked")
	if len(w.requests) > 0 {
		t.Errorf("%+v", w.requests)
	}
	w.answer = strings.NewReader("y\n")
	w.expect(0, "parked", "replay", name, "--version", "parked")
}

// The first version is shown if it is parked as well: in the same delivery, or in another.
func TestFirstVersionIsFoundInParkedObjects(t *testing.T) {
	w := newWorld(t)
	same, _ := w.conflict("100.00")
	other, id := w.conflict()
	first := paymentOf(id, "100.00")
	w.park(time.Minute, parking.Unpublishable, func(p *parking.Parked) {
		digest := ledger.DigestOf(first)
		*p = parking.Parked{Reason: p.Reason, ParkedAt: p.ParkedAt, EventIDs: []string{id}, Event: first,
			Digest: digest[:]}
	})
	for _, name := range []string{same, other} {
		out, _ := w.expect(0, "parked", "show", name)
		w.contains(out, "amount    100.00", "9250.00")
		out, _ = w.expect(0, "parked", "show", name, "--json")
		v := document[proof](t, out).Versions[0]
		if v.First.State != "published" || v.First.Amount != "100.00" || v.Parked.Amount != "9250.00" ||
			v.First.Currency != "EUR" || v.Parked.Status != "RELEASED" {
			t.Errorf("%+v", v)
		}
	}
}

// The first version is shown from the ledger while it is pending, and from the bucket of large events.
func TestFirstVersionIsFoundWhereItIsStored(t *testing.T) {
	for name, test := range map[string]struct{ large, published bool }{
		"pending": {false, false}, "large and pending": {true, false}, "large and published": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			id := uuid.New().String()
			claims := claimcheck.NewStore(s3.NewBucket(w.s3, "claims"), "claims")
			var e ledger.Item
			for _, amount := range []string{"1.00", "100.00"} { // the first is another content of the same id
				raw, err := payment.DecodeRawEvent(paymentOf(strings.ToUpper(id), amount))
				if err != nil {
					t.Fatal(err)
				}
				if e = ledger.NewItem(raw, uuid.New().String(), w.now); test.large {
					detail, err := claims.Put(t.Context(), raw)
					if err != nil {
						t.Fatal(err)
					}
					e = e.AsClaim(detail)
				}
			}
			w.ledger.Record(t.Context(), []ledger.Item{e}, ledger.NewHolder(), w.now)
			if test.published {
				w.publish(e)
			}
			parked, _ := w.park(time.Minute, parking.Conflict, func(p *parking.Parked) {
				p.EventIDs, p.EventDigests = []string{id}, [][]byte{{1}}
			})
			out, _ := w.expect(0, "parked", "show", parked, "--json")
			if v := document[proof](t, out).Versions[0].First; v.Amount != "100.00" || !v.Found || v.Where != "" ||
				(v.State == "published") != test.published || (v.State == "pending") == test.published {
				t.Errorf("%+v", v)
			}
		})
	}
}

// What is not stored can be found elsewhere, also by a person who has no consumer.
func TestItIsSaidWhoHasTheFirstVersion(t *testing.T) {
	w := newWorld(t)
	name, id := w.conflict()
	out, _ := w.expect(0, "parked", "show", name)
	if w.contains(out, "Consumers have it", "archive of the bus"); strings.Contains(out, "evidence") {
		t.Errorf("there is no evidence:\n%s", out)
	}
	w.at.EvidenceBucket = "evidence"
	out, _ = w.expect(0, "parked", "show", name)
	w.contains(out, "payhook evidence find "+id)
	w.s3.Fails = func(_, key string) error {
		if strings.HasPrefix(key, "events/") {
			return errors.New("denied")
		}
		return nil
	}
	w.expect(cli.StatusUnreachable, "parked", "show", name)
}

// An event is published whatever its types are, so it can be in conflict.
func TestVersionsAreShownWhateverTheirTypes(t *testing.T) {
	for event, want := range map[string]version{
		`{"eventData":{"amount":"1.00","paymentCurrency":null,"paymentStatus":"X"}}`: {Amount: "1.00",
			Currency: "null"},
		`{"eventData":{"amount":1,"paymentStatus":{"status":7}}}`: {Amount: "1", Status: "7"},
		`{"eventData":[1]}`: {}, `{"eventData":null}`: {}, `{}`: {},
	} {
		var got version
		want.Found = true
		if got.read([]byte(event)); got != want {
			t.Errorf("%s: %+v", event, got)
		}
	}
}

// What the ledger does not have is not invented.
func TestFirstVersionHasItsState(t *testing.T) {
	for state, change := range map[string]func(w *world, p *parking.Parked){
		"unknown": func(w *world, p *parking.Parked) {
			p.EventIDs, p.EventDigests = []string{uuid.New().String()}, [][]byte{{1}}
		},
		"replaced": func(w *world, p *parking.Parked) {
			e := w.record(time.Second)
			p.EventIDs, p.EventDigests = []string{e.EventID}, [][]byte{e.Digest[:]}
		},
	} {
		w := newWorld(t)
		name, _ := w.park(time.Minute, parking.Conflict, func(p *parking.Parked) { change(w, p) })
		out, _ := w.expect(0, "parked", "show", name)
		w.contains(out, "state     "+state, "not available")
	}
}
