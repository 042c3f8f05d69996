package commands

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/bus"
	"payhook.example/shared/ledger"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/signature"
)

func TestParkedListHasTimesAndStates(t *testing.T) {
	w := newWorld(t)
	open, _ := w.park(48*time.Hour, proof.Conflict)
	replayed, _ := w.park(time.Hour, proof.Invalid)
	w.decide(proof.Replayed, replayed, proof.Note{At: noon})
	dismissed, _ := w.park(30*time.Minute, proof.Conflict)
	w.decide(proof.Dismissed, dismissed, proof.Note{At: noon})
	event := w.insert(ledger.Parked, newItem(2*time.Hour))
	out, err := w.expect(0, "parked", "list", "--state", "any")
	w.contains(out, "TIME ", "2026-01-29T12:00:00.000Z (2d ago)   conflict  open                 "+open+"\n",
		"2026-01-31T11:00:00.000Z (1h ago)   invalid   replayed             "+replayed+"\n",
		"2026-01-31T11:30:00.000Z (30m ago)  conflict  dismissed            "+dismissed+"\n")
	w.contains(err, "4 listed")
	w.parking.Fails = func(_ context.Context, call, key string) error {
		if call == "Get" {
			t.Errorf("it reads %s, which it does not show", key)
		}
		return nil
	}
	out, _ = w.expect(0, "parked", "list", "--json")
	want := []listed{{Time: noon.Add(-48 * time.Hour), Kind: "conflict", State: "open", Name: open},
		{Time: event.RecordedAt, Kind: "event", State: "open", Name: event.EventID, Cause: "attempts"}}
	if diff := cmp.Diff(want, documents[listed](t, out)); diff != "" {
		t.Error(diff)
	}
	w.decide(proof.Replayed, open, proof.Note{At: noon})
	w.insert(ledger.Pending, event)
	if out, _ = w.expect(0, "parked", "list"); out != "" {
		t.Errorf("%q", out)
	}
}

// A delivery that cannot be read can be about the event, so it is named, and the others are shown.
func TestADamagedDeliveryDoesNotHideTheOthers(t *testing.T) {
	w := newWorld(t)
	event := w.insert(ledger.Published, newItem(36*time.Hour)).EventID
	open, _ := w.park(time.Hour, proof.Conflict, about(event))
	damaged, _ := w.park(2*time.Hour, proof.Invalid)
	w.parking.Put(t.Context(), damaged, []byte("{}"))
	list := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(list, []byte(event+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"parked": {"parked", "list", "--event", event}, "event": {"event", event}, "reconcile": {"reconcile", list},
	} {
		out, err := w.expect(cli.StatusFailed, args...)
		w.contains(err, damaged)
		if name != "reconcile" {
			w.contains(out, open)
		}
	}
}

func TestFiltersFindExactlyWhatTheyName(t *testing.T) {
	w := newWorld(t)
	parked := w.insert(ledger.Parked, newItem(36*time.Hour))
	event, other := parked.EventID, uuid.New().String()
	old, delivery := w.park(48*time.Hour, proof.Conflict, about(event, other))
	mid, _ := w.park(25*time.Hour, proof.Invalid, about(event))
	now, _ := w.park(time.Hour, proof.Conflict, about(other), func(p *proof.Proof) { p.DeliveryID = parked.DeliveryID })
	w.decide(proof.Replayed, mid, proof.Note{At: noon})
	rejected := w.rejected(nil, 0)
	pending := w.insert(ledger.Pending, newItem(time.Hour))
	for filters, want := range map[string][]string{
		"":                                  {old, event, now},
		"--kind event":                      {event},
		"--kind event --state dismissed":    nil,
		"--kind rejected":                   {rejected},
		"--kind rejected --from 1ms":        {rejected},
		"--kind rejected --until 1ms":       nil,
		"--state any":                       {old, event, mid, now},
		"--state replayed":                  {mid},
		"--from 25h --state any":            {mid, now},
		"--from 36h":                        {event, now},
		"--until 36h":                       {old},
		"--until 35h":                       {old, event},
		"--from 2d --until 24h --state any": {old, event, mid},
		"--from 2026-01-30T12:00:00+01:00 --state any": {mid, now},
		"--kind invalid": nil,
		"--state any --event " + strings.ToUpper(event):    {old, event, mid},
		"--event " + other + " --from 24h":                 {now},
		"--event " + other + " --until 24h":                {old},
		"--state any --kind invalid --event " + event:      {mid},
		"--kind event --event " + event:                    {event},
		"--event " + pending.EventID:                       nil,
		"--delivery " + delivery.DeliveryID:                {old},
		"--delivery " + strings.ToUpper(parked.DeliveryID): {event, now},
		"--kind conflict --delivery " + parked.DeliveryID:  {now},
		"--delivery " + uuid.New().String():                nil,
	} {
		out, err, _ := w.operate(append([]string{"parked", "list", "--json"}, strings.Fields(filters)...)...)
		if alone, _, _ := w.operate(append([]string{"parked", "--json"}, strings.Fields(filters)...)...); alone != out {
			t.Errorf("%s: without list: %s", filters, alone)
		}
		var got []string
		for _, l := range documents[listed](t, out) {
			got = append(got, l.Name)
			if l.Kind == "rejected" && l.Cause != "key-unknown" {
				t.Errorf("%+v", l)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q: %s", filters, got, want, err)
		}
	}
}

// A replay of a claim check needs the large event, which is deleted some time after it was recorded.
func TestTheEndOfALargeEventIsShownIfItIsSoon(t *testing.T) {
	for retention, want := range map[string]time.Time{"40d": {}, "30d": noon.Add(30*24*time.Hour - time.Hour),
		"never": {}, "": {}} {
		w := newWorld(t)
		w.setting = map[string]string{"PAYHOOK_LARGE_EVENT_RETENTION": retention}
		i := newItem(time.Hour)
		i.Large = true
		i = w.insert(ledger.Parked, i)
		w.insert(ledger.Parked, newItem(time.Hour)) // a small one
		out, _ := w.expect(0, "parked", "list")
		if n := strings.Count(out, "  2026-03-02T11:00:00.000Z (in 29d23h)  "); (n == 1) == want.IsZero() || n > 1 {
			t.Errorf("%s: %s", retention, out)
		}
		for _, call := range []string{"event", "parked show"} {
			out, _, _ = w.operate(append(strings.Fields(call), i.EventID, "--json")...)
			if e := documents[eventState](t, out)[0]; e.LargeEventEnds != want {
				t.Errorf("%s, %s: %+v", retention, call, e)
			}
		}
	}
}

func TestParkedIsShownWithProofAndDecision(t *testing.T) {
	w := newWorld(t)
	name, p := w.park(time.Hour, proof.Invalid)
	note := proof.Note{By: callerARN, At: noon.Add(-time.Minute), Reason: "sent again"}
	w.decide(proof.Dismissed, name, note)
	sum := sha256.Sum256(p.Payload)
	out, _ := w.expect(0, "parked", "show", name)
	w.contains(out, name, "why", "2026-01-31T11:00:00.000Z (1h ago)", p.DeliveryID, p.EventIDs[0],
		hex.EncodeToString(sum[:]), p.Timestamp, p.KeyID, p.Signature, "dismissed", "sent again", callerARN)
	out, _ = w.expect(0, "parked", "show", name, "--json")
	want := stored{Name: name, State: "dismissed", Proof: p, PayloadBytes: 17,
		PayloadSHA256: hex.EncodeToString(sum[:]), Note: note}
	want.Payload = nil
	if diff := cmp.Diff(want, documents[stored](t, out)[0]); diff != "" {
		t.Error(diff)
	}
	rejected := w.rejected([]byte(`{"a":"b"}`), 9)
	w.decide(proof.Replayed, rejected, proof.Note{By: "ann", At: noon, Reason: "wrong header", AgeAccepted: true})
	out, _ = w.expect(0, "parked", "show", rejected)
	w.contains(out, "request-1", "a=b", "headers.X-Key", `"k\x1b"`, "settings.timestampTolerance", "5m", "note.by",
		"ann", "wrong header", "note.ageAccepted", "payloadBytes                 9\n")
	if err := w.parking.Put(t.Context(), name, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	_, said := w.expect(cli.StatusFailed, "parked", "show", name)
	w.contains(said, ": damaged: it is not")
}

func TestWhatIsNotParkedIsNotShown(t *testing.T) {
	w := newWorld(t)
	pending := w.insert(ledger.Pending, newItem(time.Hour))
	for _, name := range []string{invalidName, uuid.New().String(), pending.EventID} {
		out, err := w.expect(cli.StatusFailed, "parked", "show", name, "--payload")
		w.contains(err, "nothing is parked under the name "+name)
		if out != "" {
			t.Errorf("%q", out)
		}
	}
}

func TestAnEventIsFollowedOnItsWay(t *testing.T) {
	w := newWorld(t)
	out, _ := w.expect(cli.StatusFailed, "event", uuid.New().String())
	w.contains(out, "unknown")
	e := newItem(2 * time.Minute)
	e.Attempts = 1
	w.insert(ledger.Pending, e)
	out, _ = w.expect(0, "event", e.EventID)
	w.contains(out, "pending", e.DeliveryID, "2026-01-31T11:58:00.000Z (2m ago)", "leasedUntil  2026-01-31T11:59",
		"attempts     1")
	w.insert(ledger.Parked, e)
	for _, call := range []string{"event", "parked show"} {
		out, _, status := w.operate(append(strings.Fields(call), e.EventID)...)
		w.contains(out, "state       parked", "attempts    1", "it failed", "parkedAt    2026-01-31T12")
		if (call == "event") != (status == cli.StatusFailed) || strings.Contains(out, "due  ") {
			t.Errorf("%s: %d %s", call, status, out)
		}
	}
	e.Note, e.Attempts = ledger.Note{By: "ann", At: noon, Reason: "why not"}, 0
	e = w.insert(ledger.Published, e)
	conflict, _ := w.park(0, proof.Conflict, about(e.EventID))
	out, _ = w.expect(cli.StatusFailed, "event", e.EventID)
	w.contains(out, "published", "(in 30d)", "conflict  open   "+conflict)
	w.decide(proof.Replayed, conflict, proof.Note{At: noon})
	out, _ = w.expect(0, "event", e.EventID, "--json")
	want := eventState{
		EventID: e.EventID, State: "published", DeliveryID: e.DeliveryID, RecordedAt: e.RecordedAt,
		PublishedAt: noon, EventTimestamp: e.EventTimestamp.Truncate(time.Millisecond),
		ExpiresAt: noon.Add(30 * 24 * time.Hour), SHA256: hex.EncodeToString(e.Digest[:]),
		Note:   proof.Note{By: "ann", At: noon, Reason: "why not"},
		Parked: []listed{{Time: noon, Kind: "conflict", State: "replayed", Name: conflict}},
	}
	if diff := cmp.Diff(want, documents[eventState](t, out)[0]); diff != "" {
		t.Error(diff)
	}
	i := newItem(time.Hour)
	i.Err = errors.New("ledger: can't decode attempts")
	w.insert(ledger.Pending, i)
	out, _ = w.expect(cli.StatusFailed, "event", i.EventID)
	w.contains(out, "damaged", "cause        can't decode attempts", i.DeliveryID)
}

// first returns what is shown of the first content of a conflict.
func (w *world) first(name string) content {
	w.t.Helper()
	out, _ := w.expect(0, "parked", "show", name, "--json")
	v := documents[stored](w.t, out)[0].Contents[0]
	if v.Parked.Amount != "9250.00" || v.Parked.Status != "RELEASED" || v.Parked.Currency != "EUR" ||
		v.Parked.State != "parked" {
		w.t.Errorf("%+v", v.Parked)
	}
	return v.First
}

// The amount is in the proof, also if the ledger has forgotten the event or has another one.
func TestAConflictShowsBothAmounts(t *testing.T) {
	w := newWorld(t)
	first := w.published()
	name, _ := w.conflict(first.EventID, first)
	for state, item := range map[ledger.State]*ledger.Item{ledger.Published: &first, unknown: nil,
		replaced: new(ledger.NewItem(paymentOf(first.EventID, "9250.00"), uuid.New().String(), noon))} {
		w.table.Delete(t.Context(), first.EventID)
		if item != nil {
			w.insert(ledger.Published, *item)
		}
		if v := w.first(name); v.State != state || v.Amount != "100.00" || v.Currency != "EUR" || v.Status != "" ||
			v.DeliveryID != first.DeliveryID || v.SHA256 != hex.EncodeToString(first.Digest[:]) {
			t.Errorf("%s: %+v", state, v)
		}
	}
}

// The whole first content is shown from where it is stored.
func TestFirstContentIsFoundWhereItIsStored(t *testing.T) {
	for name, test := range map[string]struct {
		state ledger.State
		large bool
		where string
		at    time.Time
	}{
		"pending":             {ledger.Pending, false, "the ledger", noon.Add(-time.Hour)},
		"parked":              {ledger.Parked, false, "the ledger", noon},
		"large and pending":   {ledger.Pending, true, "s3://large-events/events/", noon.Add(-time.Hour)},
		"large and published": {ledger.Published, true, "s3://large-events/events/", noon},
		"large and dismissed": {ledger.Dismissed, true, "s3://large-events/events/", noon.Add(-time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			id := uuid.New().String()
			var i ledger.Item
			for _, amount := range []string{"1.00", "100.00"} { // the first is another content of the same id
				raw := paymentOf(strings.ToUpper(id), amount)
				if i = ledger.NewItem(raw, uuid.New().String(), noon.Add(-time.Hour)); test.large {
					detail, err := bus.NewLargeEvents(&w.largeEvents, "large-events").Put(t.Context(), raw)
					if err != nil {
						t.Fatal(err)
					}
					i.Detail, i.Large = detail, true
				}
			}
			i.Amount, i.Currency = "", "" // as while it is pending
			i.Note.At = noon.Add(-time.Minute)
			i = w.insert(test.state, i)
			parked, _ := w.conflict(id, i)
			if v := w.first(parked); v.Amount != "100.00" || v.Currency != "EUR" || v.Status != "RELEASED" ||
				!strings.HasPrefix(v.Where, test.where) || v.State != test.state || v.At != test.at {
				t.Errorf("%+v", v)
			}
			w.largeEvents.Fails = func(context.Context, string, string) error { return errors.New("down") }
			if !test.large {
				return
			}
			w.expect(cli.StatusUnreachable, "parked", "show", parked)
		})
	}
}

// The evidence has the delivery of the first content. If it can't be read, the rest is shown.
func TestFirstContentIsFoundInTheEvidence(t *testing.T) {
	w := newWorld(t)
	w.at.EvidenceBucket = "evidence"
	first := w.published()
	name, _ := w.conflict(first.EventID, first)
	w.evidence.Fails = func(_ context.Context, call, key string) error {
		if call == "Get" && !strings.Contains(key, first.DeliveryID) {
			t.Errorf("it reads another delivery: %s", key)
		}
		return nil
	}
	var object string
	for _, p := range []proof.Proof{ // the first is another delivery, the second another content
		{DeliveryID: uuid.New().String(), Payload: []byte("{")},
		{DeliveryID: first.DeliveryID, Payload: paymenttest.RawDelivery(first.DeliveryID,
			paymentOf(first.EventID, "1.00").Bytes)},
		{DeliveryID: first.DeliveryID, Payload: paymenttest.RawDelivery(first.DeliveryID,
			paymentOf(first.EventID, "100.00").Bytes)}} {
		if v := w.first(name); !strings.HasPrefix(v.Where, "Payhook does not") ||
			!strings.Contains(v.Where, "payhook evidence find "+first.EventID) {
			t.Errorf("%+v", v)
		}
		p.LockDays, p.Timestamp = 30, signature.FormatTime(first.RecordedAt.Add(-5*time.Minute))
		p = p.AsAccepted()
		var err error
		if object, _, err = proof.Put(t.Context(), &w.evidence, p); err != nil {
			t.Fatal(err)
		}
	}
	if v := w.first(name); v.Where != "s3://evidence/"+object || v.Status != "RELEASED" {
		t.Errorf("%+v", v)
	}
	out, _ := w.expect(0, "parked", "show", name)
	w.contains(out, "The whole first content: s3://evidence/accepted/")
	w.evidence.Fails = func(context.Context, string, string) error { return errors.New("down") }
	if v := w.first(name); v.Amount != "100.00" || !strings.HasSuffix(v.Where, "down)") {
		t.Errorf("%+v", v)
	}
}

// An event is published whatever its types are, so it can be in conflict.
func TestContentsAreShownWhateverTheirTypes(t *testing.T) {
	for event, want := range map[string]content{
		`{"eventData":{"amount":"1.00","paymentCurrency":null,"paymentStatus":"X"}}`: {Amount: "1.00",
			Currency: "null"},
		`{"eventData":{"amount":1,"paymentStatus":{"status":7}}}`: {Amount: "1", Status: "7"},
		`{"eventData":[1]}`: {}, `{"eventData":null}`: {}, `{}`: {}, ``: {},
	} {
		var got content
		if got.read([]byte(event)); got != want {
			t.Errorf("%s: %+v", event, got)
		}
	}
}
