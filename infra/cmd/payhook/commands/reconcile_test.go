package commands

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
)

const month = 30 * 24 * time.Hour // the default of deduplicationWindow

// record adds an event to the ledger, which remembers it for a time after its end.
func (w *world) record(s ledger.State, window time.Duration) payment.Event {
	e := paymenttest.Event()
	w.insert(s, ledger.Item{EventID: e.EventID, RecordedAt: noon, ExpiresAt: noon.Add(window),
		Note: ledger.Note{At: noon}})
	return e
}

// accepted returns the proof of a delivery with events, which was signed at noon.
func accepted(events ...payment.Event) proof.Proof {
	return signed(key(), paymenttest.Delivery(events...), noon)
}

// add adds proofs that S3 stored so long before noon.
func (b bucket) add(age time.Duration, all ...proof.Proof) bucket {
	for _, p := range all {
		b[p.Name()+"?"+noon.Add(-age).Format(time.RFC3339)] = encoded(p)
	}
	return b
}

// by are the flags for ids of that name, which are in the evidence.
func by(name string) []string { return []string{"--by", name, "--from", "2026-01-31T12"} }

// reconcile reconciles a list.
func (w *world) reconcile(text string, flags ...string) (rows []row, said string, status int) {
	w.t.Helper()
	w.answer = strings.NewReader(text)
	out, said, status := w.operate(append([]string{"reconcile", "-", "--all", "--json"}, flags...)...)
	return documents[row](w.t, out), said, status
}

// check compares the findings in the rows, in their order, and whether something needs attention.
func (w *world) check(text string, flags []string, attention bool, want ...finding) {
	w.t.Helper()
	rows, said, status := w.reconcile(text, flags...)
	var got []finding
	for _, made := range rows {
		got = append(got, made.Finding)
	}
	if !slices.Equal(got, want) || status > cli.StatusFailed || (status != 0) != attention {
		w.t.Errorf("got %v, %d, want %v\n%s", got, status, want, said)
	}
}

func TestTheFindingOfEachEvent(t *testing.T) {
	w := newWorld(t)
	recorded := func(s ledger.State) string { return w.record(s, month).EventID }
	open, parkedOne := w.park(0, proof.Invalid)
	name, dismissedOne := w.park(0, proof.Invalid)
	w.decide(proof.Dismissed, name, proof.Note{At: noon})
	name, replayedOne := w.park(0, proof.Invalid)
	w.decide(proof.Replayed, name, proof.Note{At: noon})
	inConflict := recorded(ledger.Published)
	conflict, _ := w.park(0, proof.Conflict, about(inConflict))
	parkedID, unknown := recorded(ledger.Parked), uuid.New().String()
	text := "sent;event\n"
	want := []row{
		{Finding: missing, ID: unknown},
		{Finding: damaged, ID: recorded("done")},
		{Finding: damaged, ID: recorded("")},
		{Finding: parked, ID: parkedOne.EventIDs[0], Parked: []string{open}},
		{Finding: parked, ID: parkedID, Parked: []string{parkedID}},
		{Finding: pending, ID: recorded(ledger.Pending)},
		{Finding: dismissed, ID: recorded(ledger.Dismissed)},
		{Finding: dismissed, ID: dismissedOne.EventIDs[0]},
		{Finding: replayed, ID: replayedOne.EventIDs[0]},
		{Finding: published, ID: recorded(ledger.Published)},
		{Finding: published, ID: inConflict, Parked: []string{conflict}},
	}
	for _, r := range want {
		text += "x;" + strings.ToUpper(r.ID) + "\n"
	}
	got, said, status := w.reconcile(text, "--column", "event")
	if diff := cmp.Diff(want, got); diff != "" || status != cli.StatusFailed {
		t.Errorf("%d\n%s", status, diff)
	}
	if counts := "11 ids, 1 missing, 2 damaged, 2 parked, 1 pending, 2 dismissed, 1 replayed, 0 older, 2 published\n" +
		"the ledger remembers 30d, or less of what was"; !strings.HasPrefix(said, counts) {
		t.Errorf("%q", said)
	}
	w.check(want[1].ID, nil, true, damaged)
	w.check(unknown, nil, true, missing)
	for _, r := range want[3:] {
		w.check("event,sent\n"+r.ID+",x", []string{"--column", "event"}, false, r.Finding)
	}
}

// What was replayed was accepted, and only the ledger forgets it. A delivery that is open decides, and of several
// decisions a replay.
func TestAReplayedIDIsNotMissing(t *testing.T) {
	w := served(t, bucket{})
	name, p := w.park(0, proof.Invalid)
	id := p.EventIDs[0]
	w.decide(proof.Replayed, name, proof.Note{At: noon})
	w.check(p.DeliveryID, by("deliveryId"), false, replayed)
	for range 5 { // in the order of the names, which is random
		name, _ := w.park(0, proof.Invalid, about(id))
		w.check(id, nil, false, parked)
		w.decide(proof.Dismissed, name, proof.Note{At: noon})
		w.check(id, nil, false, replayed)
	}
}

// What was published with the longer window is still remembered, and without items the setting decides.
func TestTheLongestWindowDecidesWhatIsOlder(t *testing.T) {
	lost := accepted(paymenttest.Event())
	id := lost.EventIDs[0]
	for days, want := range map[int]finding{300: older, 400: missing} {
		w := served(t, bucket{}.add(365*24*time.Hour, lost))
		w.setting = map[string]string{"PAYHOOK_DEDUPLICATION_WINDOW": fmt.Sprint(days, "d")}
		w.check(id, by(eventID), want == missing, want)
		long := w.record(ledger.Published, time.Duration(days)*24*time.Hour).EventID
		w.setting = map[string]string{"PAYHOOK_DEDUPLICATION_WINDOW": "1d"}
		short := w.record(ledger.Published, time.Hour).EventID
		w.check(id, by(eventID), false, older)
		for range 20 { // in any order of the items
			w.check(id+"\n"+long+"\n"+short, by(eventID), want == missing, want, published, published)
		}
	}
}

// Other events of the same payment may be in a proof that was not read, or whose identifier has another type.
func TestAProofThatCannotBeReadIsAFailure(t *testing.T) {
	w := served(t, nil)
	event := w.record(ledger.Published, month)
	w.bucket = bucket{}.add(time.Hour, accepted(event))
	w.bucket["accepted/2562/2026/01/31/12/deleted?1"] = nil
	w.check(event.EventID, by("eventId"), false, published)
	w.bucket["accepted/2562/2026/01/31/12/x?1"] = []byte("x")
	w.check(event.EventID, by("eventId"), true, published)
	for data, unread := range map[string]string{
		`{"identifiers":{"svcUniquePaymentId":123}}`:  "svcUniquePaymentId",
		`{"identifiers":{"svcPostingIds":["P-1",2]}}`: "svcPostingIds",
		`{"identifiers":{"svcPostingIds":"P-1"}}`:     "svcPostingIds",
		`{"identifiers":["P-1"]}`:                     "every",
		`"P-1"`:                                       "every",
		`null`:                                        "none",
		`{"identifiers":{"svcUniquePaymentId":null,"railReferenceId":1},"amount":"1"}`: "none",
	} {
		event := `{"eventName":"A.B","eventId":"` + uuid.New().String() + `","eventData":` + data + "}"
		payload := paymenttest.RawDelivery(uuid.New().String(), []byte(event))
		w.bucket = bucket{}.add(time.Hour, signed(key(), payload, noon))
		for _, field := range []string{"svcUniquePaymentId", "svcPostingIds", "paymentRequestId"} {
			_, said, _ := w.reconcile("P-7", by(field)...)
			if got := strings.Contains(said, "1 proof not read, or without a readable "+field); got !=
				(unread == field || unread == "every") {
				t.Errorf("%s: %s", data, said)
			}
		}
	}
}

func TestADeliveryHasTheWorstFindingOfItsEvents(t *testing.T) {
	w := served(t, nil)
	first := accepted(w.record(ledger.Published, month), w.record(ledger.Pending, 0))
	event := w.record(ledger.Published, month)
	second := accepted(event, w.record(ledger.Published, month))
	again := accepted(event) // the same event in another delivery
	name, invalid := w.park(0, proof.Invalid)
	conflict, _ := w.park(0, proof.Conflict, about(event.EventID),
		func(p *proof.Proof) { p.DeliveryID = second.DeliveryID })
	lost := uuid.New().String()
	text := strings.Join([]string{first.DeliveryID, second.DeliveryID, again.DeliveryID, invalid.DeliveryID, lost},
		"\r\n\r\n") + "\r\n" + first.DeliveryID
	w.bucket = bucket{}.add(time.Hour, first, second, again)
	rows, _, _ := w.reconcile(text, by("deliveryId")...)
	got := map[string]string{}
	for _, r := range rows {
		got[r.ID] = fmt.Sprintf("%s %d %v", r.Finding, len(r.Events), r.Parked)
	}
	if diff := cmp.Diff(map[string]string{first.DeliveryID: "pending 2 []",
		second.DeliveryID: "published 2 [" + conflict + "]", again.DeliveryID: "published 1 [" + conflict + "]",
		invalid.DeliveryID: "parked 0 [" + name + "]", lost: "missing 0 []"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestPaymentIdentifiersAreFoundInTheEvidence(t *testing.T) {
	w := served(t, nil)
	event, other := w.record(ledger.Published, month), w.record(ledger.Pending, 0)
	known, lost := accepted(event, other), accepted(paymenttest.Event())
	recent := bucket{}.add(time.Hour, known, lost)
	aged := bucket{}.add(365*24*time.Hour, lost)
	ids := event.EventData.Identifiers
	for _, test := range []struct {
		by     string
		id     string
		bucket bucket
		want   finding
	}{
		{"paymentRequestId", ids.PaymentRequestID, recent, published},
		{"paymentEndToEndId", ids.PaymentEndToEndID, recent, published},
		{"svcUniquePaymentId", ids.SvcUniquePaymentID, recent, published},
		{"svcPostingIds", ids.SvcPostingIDs[0], recent, published},
		{"paymentRequestId", other.EventData.Identifiers.PaymentRequestID, recent, pending},
		{"paymentRequestId", "another", recent, missing},
		{"eventId", lost.EventIDs[0], aged, older},
		{"eventId", lost.EventIDs[0], maps.Clone(aged).add(time.Hour, lost), older},
		// Its proof was stored, and the ledger does not have it although it remembers this time.
		{"eventId", lost.EventIDs[0], recent, missing},
		{"eventId", event.EventID, recent, published},
	} {
		w.bucket = test.bucket
		w.check(test.id, by(test.by), test.want == missing, test.want)
	}
}

// 100,000 ids are read in 1,000 calls, between which the run waits.
func TestTheLedgerIsReadInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, calls := newWorld(t), 0
		w.fails = func(string) error { calls++; return nil }
		p := &cli.Program{Err: &bytes.Buffer{}, Now: time.Now}
		r := reconciler{p: p, s: &connected{ledger: w}, events: map[string][]string{}}
		for range 100_000 {
			r.events[uuid.New().String()] = []string{uuid.New().String()}
		}
		start := time.Now()
		if err := r.loadItems(t.Context()); err != nil || calls != 1000 || time.Since(start) != 999*pause {
			t.Errorf("%d calls in %s, %v", calls, time.Since(start), err)
		}
	})
}

func TestListsAreReadInEachFormat(t *testing.T) {
	const id = "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d"
	uuids, texts := identifiers[0], identifiers[2]
	for text, test := range map[string]struct {
		by     identifier
		column string
		says   string // "" if the list is read
	}{
		"\xef\xbb\xbf" + id + "\n\n" + id:                      {uuids, "", ""},
		"\xef\xbb\xbfid,\"a;b;c\"\n" + id + ",\"x\ny\"\n":      {uuids, "id", ""},
		"name; \"id\"\n;" + strings.ToUpper(id) + "\n":         {uuids, "id", ""},
		"name, id\n, " + id + " \n":                            {uuids, "id", ""},
		strings.Repeat("x,y", 5000) + ";id\n;" + id + "\n":     {uuids, "id", ""},
		"id;at\n" + id + ";2025-01-01\n" + id + ";2026-02-01 ": {uuids, "id", ""},
		" \n":                         {uuids, "", "the list is empty"},
		id + "\n7\n":                  {uuids, "", `line 2: "7" is not a UUID, which eventId is`},
		"event,at\n":                  {uuids, "id", `no column "id"`},
		"id,at\n" + id + "\n":         {uuids, "id", "line 2"},
		"id,at\n,x\n":                 {texts, "id", "line 2: the id is empty"},
		"event_id,at\n" + id:          {uuids, "", "line 1: has several columns: for CSV, name"},
		"P-1\nP-2;x\n":                {texts, "", "line 2: has several columns"},
		"P-1\nP-2,x\n":                {texts, "", "line 2: wrong number of fields"},
		"id\tat\nP-2\tx\n":            {texts, "", "line 1: has several columns"},
		`{"eventId":"` + id + "\"}\n": {uuids, "", "line 1"},
	} {
		var said bytes.Buffer
		p := &cli.Program{In: strings.NewReader(text), Err: &said}
		r := reconciler{p: p, by: test.by, column: test.column}
		list, err := r.open("-")
		if test.says == "" {
			if err != nil || !slices.Equal(list, []string{id}) ||
				strings.Contains(said.String(), "1 repeated id ignored") != (strings.Count(text, id) > 1) {
				t.Errorf("%.200q: %+v, %s, %v", text, list, &said, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%.200q: %v", text, err)
		}
	}
}
