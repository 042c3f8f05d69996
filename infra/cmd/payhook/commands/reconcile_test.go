package commands

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json/v2"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
)

// reconciling is a stack in memory with evidence.
type reconciling struct {
	*world
	recent []proof.Proof // stored an hour ago, and
	old    []proof.Proof // a year ago
	pauses int
	window time.Duration // the setting
}

func newReconciling(t *testing.T) *reconciling {
	return &reconciling{world: newWorld(t), window: 30 * 24 * time.Hour}
}

// record adds an event of a delivery to the ledger.
func (w *reconciling) record(s ledger.State, delivery string) payment.Event {
	e := paymenttest.Event()
	i := ledger.Item{EventID: e.EventID, State: s, DeliveryID: delivery, RecordedAt: noon}
	switch s {
	case ledger.Published:
		i.PublishedAt, i.ExpiresAt = noon, noon.Add(w.window)
	case ledger.Dismissed:
		i.Note.At, i.ExpiresAt = noon, noon.Add(w.window)
	}
	w.table.Write(w.t.Context(), []ledger.Write{{Item: i}})
	return e
}

// park parks an invalid delivery with an event.
func (w *reconciling) park() (name string, p proof.Proof) {
	p = proof.Proof{Reason: proof.Invalid, DeliveryID: uuid.New().String(), EventIDs: []string{uuid.New().String()}}
	return w.put(p), p
}

// put stores a delivery, signed at noon.
func (w *reconciling) put(p proof.Proof) (name string) {
	w.t.Helper()
	p.Timestamp, p.Payload = noon.Format(time.RFC3339), []byte(rand.Text())
	return w.world.put(p)
}

// by returns a reconciler of ids of that name, which reads the evidence.
func by(name string) reconciler {
	n := slices.IndexFunc(identifiers, func(i identifier) bool { return i.name == name })
	return reconciler{by: identifiers[n], in: Section{From: noon}}
}

var (
	events = reconciler{by: identifiers[0]}
	table  = reconciler{by: identifiers[0], column: "event"}
)

// reconcile reads a list and reconciles it, and returns the rows.
func (w *reconciling) reconcile(r reconciler, text string) (rows []row, stderr string, err error) {
	w.t.Helper()
	var out, said bytes.Buffer
	r.Program = &cli.Program{In: strings.NewReader(text), Out: &out, Err: &said, Now: func() time.Time { return noon },
		JSON: true}
	r.all, r.ledger, r.store = true, w, &w.parking
	r.setting = func(context.Context) (time.Duration, error) { return w.window, nil }
	r.pause = func(ctx context.Context) error {
		w.pauses++
		return ctx.Err()
	}
	r.scan = func(_ context.Context, got func(Object)) error {
		for _, e := range w.recent {
			got(Object{Proof: e, StoredAt: noon.Add(-time.Hour)})
		}
		for _, e := range w.old {
			got(Object{Proof: e, StoredAt: noon.AddDate(-1, 0, 0)})
		}
		got(Object{Deleted: true})
		return nil
	}
	if r.list, err = r.open("-"); err == nil {
		err = r.load(w.t.Context())
	}
	if err != nil {
		return nil, said.String(), err
	}
	err = r.print()
	for line := range strings.Lines(out.String()) {
		var made row
		if err := json.Unmarshal([]byte(line), &made); err != nil {
			w.t.Fatal(err)
		}
		rows = append(rows, made)
	}
	return rows, said.String(), err
}

// check compares the findings in the rows, in their order, and whether something needs attention.
func (w *reconciling) check(r reconciler, text string, attention bool, want ...finding) {
	w.t.Helper()
	rows, said, err := w.reconcile(r, text)
	var got []finding
	for _, made := range rows {
		got = append(got, made.Finding)
	}
	if !slices.Equal(got, want) || err != nil && err != cli.ErrAttention || (err != nil) != attention {
		w.t.Errorf("got %v, %v, want %v\n%s", got, err, want, said)
	}
}

func TestTheFindingOfEachEvent(t *testing.T) {
	w := newReconciling(t)
	recorded := func(s ledger.State) string { return w.record(s, uuid.New().String()).EventID }
	open, parkedOne := w.park()
	name, dismissedOne := w.park()
	w.decide(proof.Dismissed, name, proof.Note{At: noon})
	name, replayedOne := w.park()
	w.decide(proof.Replayed, name, proof.Note{At: noon})
	inConflict := recorded(ledger.Published)
	conflict := w.put(proof.Proof{Reason: proof.Conflict, EventIDs: []string{inConflict}})
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
	got, said, err := w.reconcile(table, text)
	if diff := cmp.Diff(want, got); diff != "" || err != cli.ErrAttention {
		t.Errorf("%v\n%s", err, diff)
	}
	if counts := "11 ids, 1 missing, 2 damaged, 2 parked, 1 pending, 2 dismissed, 1 replayed, 0 older, 2 published\n" +
		"the ledger remembers 30d, or less of what was"; !strings.HasPrefix(said, counts) {
		t.Errorf("%q", said)
	}
	w.check(events, want[1].ID, true, damaged)
	w.check(events, unknown, true, missing)
	for _, r := range want[3:] {
		w.check(table, "event,sent\n"+r.ID+",x", false, r.Finding)
	}
}

// What was replayed was accepted, and only the ledger forgets it. A delivery that is open decides, and of several
// decisions a replay.
func TestAReplayedIDIsNotMissing(t *testing.T) {
	w := newReconciling(t)
	name, p := w.park()
	id := p.EventIDs[0]
	w.decide(proof.Replayed, name, proof.Note{At: noon})
	w.check(by("deliveryId"), p.DeliveryID, false, replayed)
	for range 5 { // in the order of the names, which is random
		name := w.put(p)
		w.check(events, id, false, parked)
		w.decide(proof.Dismissed, name, proof.Note{At: noon})
		w.check(events, id, false, replayed)
	}
}

// What was published with the longer window is still remembered, and without items the setting decides.
func TestTheLongestWindowDecidesWhatIsOlder(t *testing.T) {
	lost := accepted(paymenttest.Event())
	id := lost.EventIDs[0]
	for days, want := range map[int]finding{300: older, 400: missing} {
		w := newReconciling(t)
		w.old, w.window = []proof.Proof{lost}, time.Duration(days)*24*time.Hour
		w.check(by(eventID), id, want == missing, want)
		long := w.record(ledger.Published, "").EventID
		w.window = time.Hour
		short := w.record(ledger.Published, "").EventID
		w.check(by(eventID), id, false, older)
		for range 20 { // in any order of the items
			w.check(by(eventID), id+"\n"+long+"\n"+short, want == missing, want, published, published)
		}
	}
}

// Other events of the same payment may be in a record that was not read, or whose identifier has another type.
func TestARecordThatCannotBeReadIsAFailure(t *testing.T) {
	w := newReconciling(t)
	event := w.record(ledger.Published, "")
	w.recent = []proof.Proof{accepted(event)}
	w.check(by("eventId"), event.EventID, false, published)
	w.old = []proof.Proof{{}}
	w.check(by("eventId"), event.EventID, true, published)
	w.old = nil
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
		w.recent = []proof.Proof{proof.Proof{Payload: payload}.AsAccepted()}
		for _, field := range []string{"svcUniquePaymentId", "svcPostingIds", "paymentRequestId"} {
			_, said, _ := w.reconcile(by(field), "P-7")
			if got := strings.Contains(said, "1 record not read, or without a readable "+field); got !=
				(unread == field || unread == "every") {
				t.Errorf("%s: %s", data, said)
			}
		}
	}
}

func TestADeliveryHasTheWorstFindingOfItsEvents(t *testing.T) {
	w := newReconciling(t)
	first := accepted(w.record(ledger.Published, ""), w.record(ledger.Pending, ""))
	event := w.record(ledger.Published, "")
	second := accepted(event, w.record(ledger.Published, ""))
	again := accepted(event) // the same event in another delivery
	name, invalid := w.park()
	conflict := w.put(proof.Proof{Reason: proof.Conflict, DeliveryID: second.DeliveryID,
		EventIDs: []string{event.EventID}})
	lost := uuid.New().String()
	text := strings.Join([]string{first.DeliveryID, second.DeliveryID, again.DeliveryID, invalid.DeliveryID, lost},
		"\r\n\r\n") + "\r\n" + first.DeliveryID
	w.recent = []proof.Proof{first, second, again}
	rows, _, _ := w.reconcile(by("deliveryId"), text)
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

// accepted returns the record of a delivery with events.
func accepted(events ...payment.Event) proof.Proof {
	return proof.Proof{Payload: paymenttest.Delivery(events...)}.AsAccepted()
}

func TestPaymentIdentifiersAreFoundInTheEvidence(t *testing.T) {
	w := newReconciling(t)
	event, other := w.record(ledger.Published, ""), w.record(ledger.Pending, "")
	known, lost := accepted(event, other), accepted(paymenttest.Event())
	ids := event.EventData.Identifiers
	for _, test := range []struct {
		by           string
		id           string
		recent, aged []proof.Proof
		want         finding
	}{
		{"paymentRequestId", ids.PaymentRequestID, []proof.Proof{known}, nil, published},
		{"paymentEndToEndId", ids.PaymentEndToEndID, []proof.Proof{known}, nil, published},
		{"svcUniquePaymentId", ids.SvcUniquePaymentID, []proof.Proof{known}, nil, published},
		{"svcPostingIds", ids.SvcPostingIDs[0], []proof.Proof{known}, nil, published},
		{"paymentRequestId", other.EventData.Identifiers.PaymentRequestID, []proof.Proof{known}, nil, pending},
		{"paymentRequestId", "another", []proof.Proof{known}, nil, missing},
		{"eventId", lost.EventIDs[0], nil, []proof.Proof{lost}, older},
		{"eventId", lost.EventIDs[0], []proof.Proof{lost}, []proof.Proof{lost}, older},
		// Its record was stored, and the ledger does not have it although it remembers this time.
		{"eventId", lost.EventIDs[0], []proof.Proof{lost}, nil, missing},
		{"eventId", event.EventID, []proof.Proof{known}, nil, published},
	} {
		w.recent, w.old = test.recent, test.aged
		w.check(by(test.by), test.id, test.want == missing, test.want)
	}
}

// 100,000 ids are read in 1,000 calls, and before each the run waits.
func TestTheLedgerIsReadInBatches(t *testing.T) {
	w := newReconciling(t)
	var text strings.Builder
	for range 100_000 {
		fmt.Fprintln(&text, uuid.New())
	}
	if rows, _, _ := w.reconcile(events, text.String()); len(rows) != 100_000 || w.gets != 1000 ||
		w.pauses != w.gets {
		t.Errorf("%d rows, %d calls, %d pauses", len(rows), w.gets, w.pauses)
	}
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
		r := reconciler{Program: p, by: test.by, column: test.column}
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
