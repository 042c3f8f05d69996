package reconcile

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json/v2"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// world is a stack in memory.
type world struct {
	t        *testing.T
	table    ledger.Memory
	gets     int
	bucket   objects.Memory
	ledger   *ledger.Ledger
	evidence []proof.Proof // stored an hour ago, and
	old      []proof.Proof // a year ago
	pauses   int
	window   time.Duration // the setting
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, window: 30 * 24 * time.Hour}
	w.ledger = ledger.New(&w.table, ledger.Options{Window: 30 * 24 * time.Hour, Now: func() time.Time { return noon }})
	return w
}

func (w *world) Get(ctx context.Context, ids []string, content bool) (map[string]ledger.Item, error) {
	w.gets++
	return w.table.Get(ctx, ids, content)
}

// Each has two pages.
func (w *world) Each(_ context.Context, pause func() error, found func(ledger.Item)) error {
	err := errors.Join(pause(), pause())
	for _, i := range w.table.Items() {
		found(i)
	}
	return err
}

// record records events, and returns them and the deliveryId.
func (w *world) record(n int) (list []ledger.Item, delivery string) {
	w.t.Helper()
	decoded, err := payment.DecodeDelivery(paymenttest.Delivery(paymenttest.Events(n)...))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range decoded.Events {
		list = append(list, ledger.NewItem(e, decoded.DeliveryID, noon))
	}
	for _, r := range w.ledger.Record(w.t.Context(), list, ledger.NewHolder(), noon) {
		if r.Outcome != ledger.Recorded {
			w.t.Fatalf("%+v", r)
		}
	}
	return list, decoded.DeliveryID
}

func (w *world) publish(list ...ledger.Item) {
	w.t.Helper()
	for _, err := range w.ledger.MarkPublished(w.t.Context(), list) {
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// park parks an invalid delivery with an event.
func (w *world) park() (name string, p proof.Proof) {
	p = proof.Proof{Reason: proof.Invalid, DeliveryID: uuid.New().String(), EventIDs: []string{uuid.New().String()}}
	return w.put(p), p
}

// put stores a delivery, signed at noon.
func (w *world) put(p proof.Proof) (name string) {
	w.t.Helper()
	p.Timestamp, p.Payload = noon.Format(time.RFC3339), []byte(rand.Text())
	name, _, err := proof.Put(w.t.Context(), &w.bucket, p)
	if err != nil {
		w.t.Fatal(err)
	}
	return name
}

func (w *world) replay(name string)  { w.decide(proof.Replayed, name) }
func (w *world) dismiss(name string) { w.decide(proof.Dismissed, name) }

func (w *world) decide(d proof.Decision, name string) {
	w.t.Helper()
	if err := proof.Decide(w.t.Context(), &w.bucket, d, name, proof.Note{At: noon}); err != nil {
		w.t.Fatal(err)
	}
}

// reconcile reads a list and reconciles it, and returns the rows.
func (w *world) reconcile(o options, text string) (rows []row, stderr string, err error) {
	w.t.Helper()
	var out, said bytes.Buffer
	p := &cli.Program{In: strings.NewReader(text), Out: &out, Err: &said, Now: func() time.Time { return noon },
		JSON: true}
	if o.by.name == "" {
		o.by = identifiers[0]
	}
	o.all = true
	list, err := o.open(p, "-")
	if err != nil {
		return nil, said.String(), err
	}
	r := newRun(p, &deployment.Deployment{}, o)
	r.ledger, r.store = w, &w.bucket
	r.setting = func(context.Context) (time.Duration, error) { return w.window, nil }
	r.pause = func(ctx context.Context) error {
		w.pauses++
		return ctx.Err()
	}
	r.scan = func(_ context.Context, got func(proof.Proof, time.Time, error)) error {
		for _, e := range w.evidence {
			got(e, noon.Add(-time.Hour), nil)
		}
		for _, e := range w.old {
			got(e, noon.AddDate(-1, 0, 0), nil)
		}
		return nil
	}
	err = r.reconcile(w.t.Context(), list)
	for line := range strings.Lines(out.String()) {
		var made row
		if err := json.Unmarshal([]byte(line), &made); err != nil {
			w.t.Fatal(err)
		}
		rows = append(rows, made)
	}
	return rows, said.String(), err
}

func by(name string) identifier {
	return identifiers[slices.IndexFunc(identifiers, func(i identifier) bool { return i.name == name })]
}

func TestTheStateOfEachEvent(t *testing.T) {
	w := newWorld(t)
	list, _ := w.record(5)
	w.publish(list[0], list[1])
	for _, i := range list[3:] {
		if err := w.ledger.Park(t.Context(), w.table.Items()[i.EventID], "attempts", "why"); err != nil {
			t.Fatal(err)
		}
	}
	if r := w.ledger.Dismiss(t.Context(), list[4], ledger.Decision{At: noon}); !r.Done {
		t.Fatalf("%+v", r)
	}
	open, parkedOne := w.park()
	name, dismissedOne := w.park()
	w.dismiss(name)
	name, replayedOne := w.park()
	w.replay(name)
	conflict := w.put(proof.Proof{Reason: proof.Conflict, EventIDs: []string{list[1].EventID}})
	unknown, long := uuid.New().String(), uuid.New().String()
	now := noon.Format(time.RFC3339)
	text := "sent;event\n"
	want := []row{
		{State: missing, ID: unknown},
		{State: parked, ID: parkedOne.EventIDs[0], Parked: []string{open}},
		{State: parked, ID: list[3].EventID, Parked: []string{list[3].EventID}},
		{State: pending, ID: list[2].EventID},
		{State: dismissed, ID: list[4].EventID},
		{State: dismissed, ID: dismissedOne.EventIDs[0]},
		{State: replayed, ID: replayedOne.EventIDs[0]},
		{State: older, ID: long},
		{State: published, ID: list[0].EventID},
		{State: published, ID: list[1].EventID, Parked: []string{conflict}},
	}
	for _, r := range want {
		at := now
		if r.ID == long {
			at = "2025-11-02"
		}
		text += at + ";" + strings.ToUpper(r.ID) + "\n"
	}
	got, said, err := w.reconcile(options{column: "event", time: "sent"}, text)
	if diff := cmp.Diff(want, got); diff != "" || err != cli.ErrAttention {
		t.Errorf("%v\n%s", err, diff)
	}
	counts := "10 ids, 1 missing, 0 damaged, 2 parked, 1 pending, 2 dismissed, 1 replayed, 1 older, 2 published\n"
	if !strings.HasPrefix(said, counts) {
		t.Errorf("%q", said)
	}
}

func TestOnlyAMissingIDIsAFailure(t *testing.T) {
	w := newWorld(t)
	list, _ := w.record(1)
	if _, _, err := w.reconcile(options{}, list[0].EventID); err != nil {
		t.Error(err)
	}
	_, said, err := w.reconcile(options{}, uuid.New().String())
	if err != cli.ErrAttention || !strings.Contains(said, "the ledger remembers 30d, or less of what was") {
		t.Errorf("%v, %q", err, said)
	}
}

// What was replayed was accepted, and only the ledger forgets it.
func TestAReplayedIDIsNotMissing(t *testing.T) {
	w := newWorld(t)
	name, p := w.park()
	w.replay(name)
	id := p.EventIDs[0]
	text := id + "," + noon.AddDate(0, 0, -90).Format(time.RFC3339) // before what the ledger remembers
	for _, test := range []struct {
		o    options
		text string
	}{{options{}, id}, {options{by: by("deliveryId")}, p.DeliveryID},
		{options{column: "event", time: "sent"}, "event,sent\n" + text}} {
		rows, said, err := w.reconcile(test.o, test.text)
		if len(rows) != 1 || rows[0].State != replayed || err != nil {
			t.Errorf("%s: %+v, %s, %v", test.text, rows, said, err)
		}
	}
	// Its events are in the ledger.
	list, delivery := w.record(1)
	p.DeliveryID, p.EventIDs = delivery, []string{list[0].EventID}
	w.replay(w.put(p))
	for _, want := range []state{pending, published} {
		rows, _, _ := w.reconcile(options{}, list[0].EventID)
		if len(rows) != 1 || rows[0].State != want {
			t.Errorf("%+v, want %s", rows, want)
		}
		w.publish(list...)
	}
	// One that is open decides, and of several decisions a replay.
	for i, decide := range []func(string){func(string) {}, w.dismiss, w.replay} {
		p.EventIDs = []string{id}
		name := w.put(p)
		if rows, _, _ := w.reconcile(options{}, id); len(rows) != 1 || rows[0].State != parked {
			t.Errorf("%+v, want parked", rows)
		}
		if decide(name); i == 0 {
			w.dismiss(name)
		}
		if rows, _, _ := w.reconcile(options{}, id); len(rows) != 1 || rows[0].State != replayed {
			t.Errorf("%+v, want replayed", rows)
		}
	}
}

// Nothing shows that such an event is published.
func TestADamagedItemIsNotPublished(t *testing.T) {
	for _, s := range []ledger.State{"", "done"} {
		w, id := newWorld(t), uuid.New().String()
		w.table.Insert(t.Context(), []ledger.Item{{EventID: id, State: s, PublishedAt: noon}})
		if rows, _, err := w.reconcile(options{}, id); len(rows) != 1 || rows[0].State != damaged ||
			err != cli.ErrAttention {
			t.Errorf("%s: %+v, %v", s, rows, err)
		}
	}
}

// What was published with the longer window is still remembered.
func TestTheLongestWindowDecidesWhatIsOlder(t *testing.T) {
	for range 20 { // in any order of the items
		w, text := newWorld(t), "event,sent\n"
		for _, window := range []time.Duration{24 * time.Hour, 240 * time.Hour} {
			w.ledger = ledger.New(&w.table, ledger.Options{Window: window,
				Now: func() time.Time { return noon }})
			list, _ := w.record(1)
			w.publish(list...)
			text += list[0].EventID + ",2026-01-31\n"
		}
		id := uuid.New().String()
		w.window = 24 * time.Hour
		rows, _, err := w.reconcile(options{column: "event", time: "sent"}, text+id+",2026-01-28\n")
		if len(rows) != 3 || rows[0].ID != id || rows[0].State != missing || err != cli.ErrAttention {
			t.Fatalf("%+v, %v", rows, err)
		}
	}
}

func TestTheSettingDecidesWhatIsOlderIfNothingIsFound(t *testing.T) {
	w := newWorld(t)
	for days, want := range map[int]state{30: older, 90: missing} {
		w.window = time.Duration(days) * 24 * time.Hour
		rows, _, _ := w.reconcile(options{column: "event", time: "sent"},
			"event,sent\n"+uuid.New().String()+",2025-12-20\n")
		if len(rows) != 1 || rows[0].State != want {
			t.Errorf("%d days: %+v", days, rows)
		}
	}
}

// A payment has several rows in a statement.
func TestARepeatedIDHasItsLatestTime(t *testing.T) {
	w := newWorld(t)
	text := `{"paymentRequestId":"p","sent":"2025-01-31"}` + "\n" + `{"paymentRequestId":"p","sent":"2026-01-31"}`
	rows, said, err := w.reconcile(options{by: by("paymentRequestId"), from: noon, time: "sent"}, text)
	if len(rows) != 1 || rows[0].State != missing || err != cli.ErrAttention || !strings.Contains(said, "1 repeated") {
		t.Errorf("%+v, %v, %s", rows, err, said)
	}
}

// Other events of the same payment may be in a record that was not read.
func TestARecordThatWasNotReadIsAFailure(t *testing.T) {
	w := newWorld(t)
	list, _ := w.record(1)
	w.publish(list...)
	w.evidence = []proof.Proof{proof.Proof{Payload: again(t, list)}.AsAccepted()}
	if _, _, err := w.reconcile(options{from: noon}, list[0].EventID); err != nil {
		t.Error(err)
	}
	w.old = []proof.Proof{{}}
	if _, said, err := w.reconcile(options{from: noon}, list[0].EventID); err != cli.ErrAttention ||
		!strings.Contains(said, "1 record not read") {
		t.Errorf("%v, %s", err, said)
	}
}

// The payment of an event whose identifier has another type may be the one in the list.
func TestAnIdentifierThatCannotBeReadIsAFailure(t *testing.T) {
	for data, unread := range map[string]string{
		`{"identifiers":{"svcUniquePaymentId":123}}`:  "svcUniquePaymentId",
		`{"identifiers":{"svcPostingIds":["P-1",2]}}`: "svcPostingIds",
		`{"identifiers":{"svcPostingIds":"P-1"}}`:     "svcPostingIds",
		`{"identifiers":["P-1"]}`:                     "every",
		`"P-1"`:                                       "every",
		`null`:                                        "none",
		`{"identifiers":{"svcUniquePaymentId":null,"railReferenceId":1},"amount":"1"}`: "none",
	} {
		w := newWorld(t)
		event := `{"eventName":"A.B","eventId":"` + uuid.New().String() + `","eventData":` + data + "}"
		payload := paymenttest.RawDelivery(uuid.New().String(), []byte(event))
		w.evidence = []proof.Proof{proof.Proof{Payload: payload}.AsAccepted()}
		for _, field := range []string{"svcUniquePaymentId", "svcPostingIds", "paymentRequestId"} {
			_, said, _ := w.reconcile(options{by: by(field), from: noon}, "P-7")
			if got := strings.Contains(said, "1 record not read, or without a readable "+field); got !=
				(unread == field || unread == "every") {
				t.Errorf("%s: %s", data, said)
			}
		}
	}
}

func TestADeliveryHasTheWorstStateOfItsEvents(t *testing.T) {
	w := newWorld(t)
	list, first := w.record(2)
	w.publish(list[0])
	whole, second := w.record(2)
	w.publish(whole...)
	name, invalid := w.park()
	sent := proof.Proof{Payload: again(t, whole)}.AsAccepted() // the same events in another delivery
	text := strings.Join([]string{first, second, invalid.DeliveryID, sent.DeliveryID}, "\r\n\r\n") + "\r\n" + first
	states := func(o options) string {
		rows, _, err := w.reconcile(o, text)
		if len(rows) == 0 {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, r := range rows {
			got[r.ID] = fmt.Sprintf("%s %d %v;", r.State, len(r.Events), r.Parked)
		}
		return got[first] + got[second] + got[invalid.DeliveryID] + got[sent.DeliveryID]
	}
	o := options{by: by("deliveryId")}
	others := fmt.Sprintf("pending 2 [];published 2 [];parked 0 [%s];", name)
	if got, want := states(o), others+"missing 0 [];"; got != want {
		t.Errorf("without evidence: %s", got)
	}
	w.evidence = append(w.evidence, sent)
	o.from = noon
	if got, want := states(o), others+"published 2 [];"; got != want {
		t.Errorf("with evidence: %s", got)
	}
}

// again returns a delivery with the events of entries.
func again(t *testing.T, entries []ledger.Item) []byte {
	t.Helper()
	var events [][]byte
	for _, e := range entries {
		events = append(events, e.Detail)
	}
	return paymenttest.RawDelivery(uuid.New().String(), events...)
}

func TestPaymentIdentifiersAreFoundInTheEvidence(t *testing.T) {
	w := newWorld(t)
	list, _ := w.record(2)
	w.publish(list[0])
	event, errEvent := payment.DecodeEvent(list[0].Detail)
	other, errOther := payment.DecodeEvent(list[1].Detail)
	if err := errors.Join(errEvent, errOther); err != nil {
		t.Fatal(err)
	}
	known, lost := proof.Proof{Payload: again(t, list)}.AsAccepted(),
		proof.Proof{Payload: paymenttest.Delivery(paymenttest.Event())}.AsAccepted()
	for _, test := range []struct {
		by           string
		id           string
		recent, aged []proof.Proof
		want         state
	}{
		{"paymentRequestId", event.EventData.Identifiers.PaymentRequestID, []proof.Proof{known}, nil, published},
		{"paymentEndToEndId", event.EventData.Identifiers.PaymentEndToEndID, []proof.Proof{known}, nil, published},
		{"svcUniquePaymentId", event.EventData.Identifiers.SvcUniquePaymentID, []proof.Proof{known}, nil, published},
		{"svcPostingIds", event.EventData.Identifiers.SvcPostingIDs[0], []proof.Proof{known}, nil, published},
		{"paymentRequestId", other.EventData.Identifiers.PaymentRequestID, []proof.Proof{known}, nil, pending},
		{"paymentRequestId", "another", []proof.Proof{known}, nil, missing},
		{"eventId", lost.EventIDs[0], nil, []proof.Proof{lost}, older},
		// Its record was stored, and the ledger does not have it although it remembers this time.
		{"eventId", lost.EventIDs[0], []proof.Proof{lost}, nil, missing},
		{"eventId", list[0].EventID, []proof.Proof{known}, nil, published},
	} {
		w.evidence, w.old = test.recent, test.aged
		line, _ := json.Marshal(map[string]string{test.by: test.id})
		rows, _, _ := w.reconcile(options{by: by(test.by), from: noon}, string(line)+"\n")
		if len(rows) != 1 || rows[0].State != test.want {
			t.Errorf("%s: %+v, want %s", test.by, rows, test.want)
		}
	}
}

func TestDeliveriesAreFoundInTheLedger(t *testing.T) {
	w := newWorld(t)
	var text strings.Builder
	for range 3 {
		_, delivery := w.record(30)
		fmt.Fprintln(&text, delivery)
	}
	rows, _, err := w.reconcile(options{by: by("deliveryId")}, text.String())
	if err != nil || w.pauses != 2*3+1 { // of 256 units a page, and 90 events
		t.Errorf("%v, %d pauses", err, w.pauses)
	}
	for _, r := range rows {
		if r.State != pending || len(r.Events) != 30 {
			t.Errorf("%s, %d events", r.State, len(r.Events))
		}
	}
}

// 100,000 ids are read in 1,000 calls, and before each the run waits.
func TestIDsAreLookedUpInBatches(t *testing.T) {
	w := newWorld(t)
	var text strings.Builder
	for range 100_000 {
		fmt.Fprintln(&text, uuid.New())
	}
	if rows, _, _ := w.reconcile(options{}, text.String()); len(rows) != 100_000 || w.gets != 1000 ||
		w.pauses != w.gets {
		t.Errorf("%d rows, %d calls, %d pauses", len(rows), w.gets, w.pauses)
	}
}

func TestAListThatCannotBeReadIsRejected(t *testing.T) {
	id := uuid.New().String()
	for name, test := range map[string]struct {
		o          format
		text, says string
	}{
		"empty":         {format{}, " \n", "the list is empty"},
		"not a UUID":    {format{}, id + "\n7\n", `line 2: "7" is not a UUID, which eventId is`},
		"no column":     {format{column: "id"}, "event,at\n", `no column "id"`},
		"no time":       {format{column: "id", time: "at"}, "id\n", `no column "at"`},
		"odd row":       {format{column: "id"}, "id,at\n" + id + "\n", "line 2"},
		"empty cell":    {format{column: "id", by: by("paymentRequestId")}, "id,at\n,x\n", "line 2: the id is empty"},
		"bad time":      {format{column: "id", time: "at"}, "id,at\n" + id + ",noon\n", `line 2: the time "noon"`},
		"time of lines": {format{time: "at"}, id, "--time-column needs"},
		"CSV":           {format{}, "event_id,at\n" + id + ",x\n", "line 1: has several columns: for CSV, name"},
		"CSV of ids":    {format{by: by("paymentRequestId")}, "P-1\nP-2;x\n", "line 2: has several columns"},
		"tabs":          {format{by: by("paymentRequestId")}, "id\tat\nP-2\tx\n", "line 1: has several columns"},
		"a long line":   {format{}, id + "\n\n" + strings.Repeat("x", maxLine), "line 3: is longer than 1048576 bytes"},
		"long JSON":     {format{}, `{"eventId":"` + strings.Repeat("x", maxLine), "line 1: is longer"},
		"not JSON":      {format{}, "{\n", "line 1: must be a JSON object"},
		"a number":      {format{}, `{"eventId":7}`, "line 1: the member eventId must be a string"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := newWorld(t).reconcile(options{format: test.o}, test.text)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestListsAreReadInEachFormat(t *testing.T) {
	id := uuid.New().String()
	for _, test := range []struct {
		o    format
		text string
	}{
		{format{}, "\xef\xbb\xbf" + id + "\n\n" + id},
		{format{column: "id"}, "\xef\xbb\xbfid,\"a;b;c\"\n" + id + ",\"x\ny\"\n"},
		{format{column: "id"}, "name; id\n;" + id + "\n"},
		{format{column: "id"}, "name, id\n," + id + "\n"},
		{format{column: "id"}, strings.Repeat("x", 5000) + ",id\n," + id + "\n"},
		{format{column: "id"}, strings.Repeat("x,y", 5000) + ";id\n;" + id + "\n"},
		{format{column: "id"}, `{"id":"` + id + `","other":{}}`},
	} {
		rows, said, _ := newWorld(t).reconcile(options{format: test.o}, test.text)
		if len(rows) != 1 || rows[0].ID != id {
			t.Errorf("%q: %+v, %s", test.text, rows, said)
		}
	}
}

func TestWrongUsageIsReportedBeforeAWSIsUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(file, []byte(uuid.New().String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{}, {"missing"}, {file, "--by", "amount"}, {file, "--by", "paymentRequestId"},
		{file, "--to", "2026-01-31"}, {file, "--from", "2026-02-01", "--to", "2026-01-31"}, {file, "--column", "x"}} {
		var out bytes.Buffer
		p := &cli.Program{Out: &out, Err: &out, Now: time.Now}
		target := &deployment.Target{}
		root := p.Root("test")
		root.AddCommand(Command(p, target))
		if status := p.Run(t.Context(), root, append([]string{"reconcile"}, args...)); status != cli.StatusUsage {
			t.Errorf("%q: %d %s", args, status, out.String())
		}
	}
}
