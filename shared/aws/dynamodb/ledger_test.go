package dynamodb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/awstest"
	"payhook.example/shared/ledger"
)

// full has a value in every field that the table has.
func full() ledger.Item {
	at := time.UnixMilli(1769860800123).UTC()
	i := ledger.Item{EventID: "id", DeliveryID: "delivery", RecordedAt: at, Amount: "1.00", Currency: "EUR",
		Decision: ledger.Decision{By: "jane", At: at.Add(time.Second), Reason: "asked"}, State: ledger.Pending,
		Detail: []byte("\x00\xff"), Size: 2, Claimed: true, Shard: "pending/1", Due: at.Add(2 * time.Second),
		Attempts: 3, Cause: "attempts", Problem: "a problem", EventTimestamp: at.Add(3 * time.Second),
		PublishedAt: at.Add(4 * time.Second), ExpiresAt: at.Add(5 * time.Second).Truncate(time.Second)}
	copy(i.Digest[:], strings.Repeat("d", len(i.Digest)))
	copy(i.Holder[:], "1st hold")
	return i
}

// The texts of the statements. Each has as many parameters as question marks, and none changes the key.
func TestTheStatementsOfTheLedger(t *testing.T) {
	all := full()
	pending := ledger.Item{EventID: "id", Digest: all.Digest, RecordedAt: all.RecordedAt, State: ledger.Pending,
		Detail: []byte("{}"), Size: 2, Shard: "pending/1", Due: all.Due, Holder: all.Holder}
	recorded := ledger.Item{Digest: all.Digest, RecordedAt: all.RecordedAt}
	const digest = `b"dddddddddddddddddddddddddddddddd"`
	in := func(state ledger.State) ledger.Item {
		i := recorded
		i.State = state
		return i
	}
	const refused = "ReturnValuesOnConditionCheckFailure: ALL_OLD\n"
	for name, test := range map[string]struct {
		insert ledger.Item
		change ledger.Change
		want   string
	}{
		"an item with everything": {insert: all, want: `Parameters: ["id" ` + digest + ` "delivery" 1769860800123 ` +
			`"jane" 1769860801123 "asked" "1.00" "EUR" b"\x00\xff" 2 true "pending" "pending/1" 1769860802123 3 ` +
			`b"1st hold" "attempts" "a problem" 1769860803123 1769860804123 1769860805]` + "\n" +
			`Statement: INSERT INTO "ledger" VALUE {'eventId': ?, 'digest': ?, 'deliveryId': ?, 'recordedAt': ?, ` +
			`'decidedBy': ?, 'decidedAt': ?, 'reason': ?, 'amount': ?, 'currency': ?, 'event': ?, 'size': ?, ` +
			`'claimed': ?, 'state': ?, 'shard': ?, 'due': ?, 'attempts': ?, 'holder': ?, 'cause': ?, 'problem': ?, ` +
			`'eventTimestamp': ?, 'publishedAt': ?, 'expiresAt': ?}`},
		// A lease can add to what exists alone.
		"a new event": {insert: pending, want: `Parameters: ["id" ` + digest + ` 1769860800123 b"{}" 2 "pending" ` +
			`"pending/1" 1769860802123 0 b"1st hold"]` + "\n" +
			`Statement: INSERT INTO "ledger" VALUE {'eventId': ?, 'digest': ?, 'recordedAt': ?, 'event': ?, ` +
			`'size': ?, 'state': ?, 'shard': ?, 'due': ?, 'attempts': ?, 'holder': ?}`},
		"recorded anew": {change: ledger.Change{EventID: "id", Set: pending, Where: ledger.Item{State: ledger.Published,
			Digest: all.Digest, RecordedAt: all.RecordedAt, ExpiresAt: all.ExpiresAt}},
			want: `Parameters: [` + digest + ` 1769860800123 b"{}" 2 "pending" "pending/1" 1769860802123 0 ` +
				`b"1st hold" "id" ` + digest + ` 1769860800123 "published" 1769860805]` + "\n" + refused +
				`Statement: UPDATE "ledger" SET "digest" = ? REMOVE "deliveryId" SET "recordedAt" = ? ` +
				`REMOVE "decidedBy" REMOVE "decidedAt" REMOVE "reason" REMOVE "amount" REMOVE "currency" ` +
				`SET "event" = ? SET "size" = ? ` +
				`REMOVE "claimed" SET "state" = ? SET "shard" = ? SET "due" = ? SET "attempts" = ? SET "holder" = ? ` +
				`REMOVE "cause" REMOVE "problem" REMOVE "eventTimestamp" REMOVE "publishedAt" REMOVE "expiresAt" ` +
				`WHERE "eventId" = ? AND "digest" = ? AND "recordedAt" = ? AND "state" = ? AND "expiresAt" = ?`},
		"leased": {change: ledger.Change{EventID: "id", Where: ledger.Item{State: ledger.Pending, Due: all.RecordedAt},
			Set: ledger.Item{Due: all.Due, Holder: all.Holder}, Lease: true},
			want: `Parameters: [1769860802123 b"1st hold" 1 "id" "pending" 1769860800123]` + "\n" + refused +
				`Statement: UPDATE "ledger" SET "due" = ? SET "holder" = ? SET "attempts" = "attempts" + ? ` +
				`WHERE "eventId" = ? AND "state" = ? AND "due" = ? RETURNING ALL NEW *`},
		"postponed": {change: ledger.Change{EventID: "id", Set: ledger.Item{Due: all.Due},
			Where: ledger.Item{State: ledger.Pending, Holder: all.Holder}},
			want: `Parameters: [1769860802123 "id" "pending" b"1st hold"]` + "\n" + refused +
				`Statement: UPDATE "ledger" SET "due" = ? WHERE "eventId" = ? AND "state" = ? AND "holder" = ?`},
		"published": {change: ledger.Change{EventID: "id", Where: in(ledger.Pending), Set: ledger.Item{
			State: ledger.Published, PublishedAt: all.PublishedAt, ExpiresAt: all.ExpiresAt, Amount: "1.00"}},
			want: `Parameters: ["1.00" "published" 1769860804123 1769860805 "id" ` + digest +
				` 1769860800123 "pending"]` + "\n" + refused + `Statement: UPDATE "ledger" SET "amount" = ? ` +
				`REMOVE "event" REMOVE "size" REMOVE "claimed" SET "state" = ? REMOVE "shard" REMOVE "due" ` +
				`REMOVE "attempts" REMOVE "holder" REMOVE "cause" REMOVE "problem" REMOVE "eventTimestamp" ` +
				`SET "publishedAt" = ? SET "expiresAt" = ? ` +
				`WHERE "eventId" = ? AND "digest" = ? AND "recordedAt" = ? AND "state" = ?`},
		"parked": {change: ledger.Change{EventID: "id", Where: ledger.Item{State: ledger.Pending}, Set: ledger.Item{
			State: ledger.Parked, Shard: "parked/1", Due: all.Due, Cause: "attempts"}},
			want: `Parameters: ["parked" "parked/1" 1769860802123 0 "attempts" "id" "pending"]` + "\n" + refused +
				`Statement: UPDATE "ledger" SET "state" = ? SET "shard" = ? SET "due" = ? SET "attempts" = ? ` +
				`REMOVE "holder" SET "cause" = ? REMOVE "problem" REMOVE "eventTimestamp" REMOVE "publishedAt" ` +
				`REMOVE "expiresAt" WHERE "eventId" = ? AND "state" = ?`},
		"dismissed": {change: ledger.Change{EventID: "id", Where: ledger.Item{State: ledger.Parked, Due: all.Due},
			Set: ledger.Item{State: ledger.Dismissed, Decision: all.Decision, ExpiresAt: all.ExpiresAt}},
			want: `Parameters: ["jane" 1769860801123 "asked" "dismissed" 1769860805 "id" "parked" 1769860802123]` +
				"\n" + refused + `Statement: UPDATE "ledger" SET "decidedBy" = ? SET "decidedAt" = ? ` +
				`SET "reason" = ? REMOVE "event" REMOVE "size" ` +
				`REMOVE "claimed" SET "state" = ? REMOVE "shard" REMOVE "due" ` +
				`REMOVE "attempts" REMOVE "holder" REMOVE "cause" REMOVE "problem" REMOVE "eventTimestamp" ` +
				`REMOVE "publishedAt" SET "expiresAt" = ? WHERE "eventId" = ? AND "state" = ? AND "due" = ?`},
	} {
		t.Run(name, func(t *testing.T) {
			client, w := answering(t, `{"Responses":[{},{}]}`)
			l := dynamodb.NewLedger(client, "ledger")
			sends(t, w, "ExecuteStatement\n"+test.want, func() {
				if test.change.EventID == "" {
					l.Insert(t.Context(), []ledger.Item{test.insert})
				} else {
					l.Change(t.Context(), []ledger.Change{test.change})
				}
			})
			// A batch has the same statements.
			if test.change.EventID == "" {
				l.Insert(t.Context(), []ledger.Item{test.insert, test.insert})
			} else {
				l.Change(t.Context(), []ledger.Change{test.change, test.change})
			}
			one := w.Requests()[0]
			for _, s := range statementsOf(t, one) {
				alone := awstest.Request{Operation: "ExecuteStatement", Body: encoded(s)}
				if diff := cmp.Diff("ExecuteStatement\n"+test.want, lines(t, alone)); diff != "" ||
					one.Operation != "BatchExecuteStatement" || strings.Count(s.Statement, "?") != len(s.Parameters) {
					t.Errorf("%s: %s", one.Operation, diff)
				}
			}
		})
	}
}

type statement struct {
	Parameters                          []value
	ReturnValuesOnConditionCheckFailure string `json:",omitempty"`
	Statement                           string
}

// statementsOf returns the statements of a batch.
func statementsOf(t *testing.T, r awstest.Request) []statement {
	t.Helper()
	return decoded[struct{ Statements []statement }](t, r.Body).Statements
}

// attributesOf returns an item as the table has it, from the statement that inserts it.
func attributesOf(t *testing.T, i ledger.Item) map[string]value {
	t.Helper()
	client, w := answering(t, `{}`)
	if r := dynamodb.NewLedger(client, "ledger").Insert(t.Context(), []ledger.Item{i}); !r[0].Done {
		t.Fatal(r[0].Err)
	}
	s := decoded[statement](t, w.Requests()[0].Body)
	item := map[string]value{}
	for n, part := range strings.Split(s.Statement, "'") {
		if n%2 == 1 {
			item[part] = s.Parameters[n/2]
		}
	}
	return item
}

// read returns an item with these attributes as the ledger reads it.
func read(t *testing.T, item map[string]value) ledger.Item {
	t.Helper()
	client, _ := answering(t, `{"Responses":{"ledger":[`+encoded(item)+`]}}`)
	found, err := dynamodb.NewLedgerReader(client, "ledger").Get(t.Context(), []string{"id"}, true)
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	for _, i := range found {
		return i
	}
	return ledger.Item{}
}

// After a deployment is rolled back, items have attributes that the code does not know, and before, they lack those
// that it added.
func TestWhatIsWrittenIsRead(t *testing.T) {
	item := attributesOf(t, full())
	item["later"] = text("of another version")
	if diff := cmp.Diff(full(), read(t, item)); diff != "" {
		t.Error(diff)
	}
	want := full()
	delete(item, "deliveryId")
	if want.DeliveryID = ""; cmp.Diff(want, read(t, item)) != "" {
		t.Error("without an attribute:", cmp.Diff(want, read(t, item)))
	}
}

// What else an item has is read: its eventId and due are enough to lease it.
func TestAnAttributeThatCannotBeDecodedHidesNoOther(t *testing.T) {
	item := attributesOf(t, full())
	for name := range item {
		if name == "eventId" {
			continue
		}
		for _, wrong := range []value{{"L": []any{}}, {"N": "1.5"}, {"B": "YQ=="}, {"S": "x"}} {
			kind := map[string]string{"claimed": "BOOL", "event": "B"}[name]
			for k := range item[name] {
				kind = k
			}
			if _, same := wrong[kind]; same && (kind == "S" || name == "event") {
				continue
			}
			damaged := maps.Clone(item)
			damaged[name] = wrong
			got := read(t, damaged)
			if fmt.Sprint(got.Err) != "can't decode "+name {
				t.Errorf("%s is %v: %v", name, wrong, got.Err)
			}
			delete(damaged, name)
			if diff := cmp.Diff(read(t, damaged), got, cmpopts.IgnoreFields(ledger.Item{}, "Err")); diff != "" {
				t.Errorf("%s is %v: %s", name, wrong, diff)
			}
		}
	}
	damaged := map[string]value{"eventId": text("id"), "size": text("x"), "due": text("y")}
	if got := read(t, damaged); fmt.Sprint(got.Err) != "can't decode due, size" || got.EventID != "id" {
		t.Errorf("%+v", got)
	}
}

// sizeOf returns the size of an item in bytes: that of the names and values of its attributes. Of numbers,
// zeros at both ends do not count (AWS,
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html).
func sizeOf(t *testing.T, i ledger.Item) (size int) {
	t.Helper()
	for name, v := range attributesOf(t, i) {
		size += len(name)
		switch {
		case v["S"] != nil:
			size += len(v["S"].(string))
		case v["B"] != nil:
			size += len(decoded[[]byte](t, encoded(v["B"])))
		case v["N"] != nil:
			size += 1 + (len(strings.Trim(v["N"].(string), "0"))+1)/2
		default:
			size++
		}
	}
	return size
}

// The sizes that the documents name: a write unit has 1 KiB, and an item at most 400 KiB. The largest item is one that
// is parked again after a replay.
func TestAnItemHasItsDocumentedSize(t *testing.T) {
	id, now := uuid.New().String(), time.UnixMilli(1769860800123)
	for _, test := range []struct{ event, item int }{
		{800, 1 << 10}, {ledger.MaxEventBytes, 400 << 10},
	} {
		memory := &ledger.Memory{}
		l := ledger.New(memory, ledger.Options{Window: time.Hour})
		e := ledger.Item{EventID: id, DeliveryID: id, Digest: ledger.Digest{1}, RecordedAt: now,
			Detail: bytes.Repeat([]byte("x"), test.event), Amount: strings.Repeat("1", 128),
			Currency: strings.Repeat("1", 128)}
		l.Record(t.Context(), []ledger.Item{e}, ledger.NewHolder(), now)
		if got := sizeOf(t, memory.Items()[id]); got > test.item || got < test.event+200 {
			t.Errorf("an event of %d bytes takes %d", test.event, got)
		}
		d := ledger.Decision{By: "a", At: now, Reason: strings.Repeat("a", 999)}
		err := l.Park(t.Context(), e, "", "")
		r := l.Replay(t.Context(), ledger.Item{EventID: id}, d, now)
		err = errors.Join(err, r.Err, l.Park(t.Context(), ledger.Item{EventID: id, Holder: memory.Items()[id].Holder,
			Attempts: 20, Amount: e.Amount, Currency: e.Currency}, strings.Repeat("c", 64), strings.Repeat("p", 512)))
		if parked := memory.Items()[id]; err != nil || parked.Problem == "" || sizeOf(t, parked) > 400<<10 {
			t.Errorf("%v: %s, %d bytes", err, parked.State, sizeOf(t, parked))
		}
	}
}

// changesOf returns n leases of different events.
func changesOf(n int) (all []ledger.Change) {
	for i := range n {
		all = append(all, ledger.Change{EventID: fmt.Sprint(i), Set: ledger.Item{Due: time.Now()}, Lease: true})
	}
	return all
}

const found = `{"eventId":{"S":"found"},"size":{"N":"2"},"state":{"S":"pending"}}`

func TestEachStatementHasItsOwnResult(t *testing.T) {
	old := ledger.Item{EventID: "found", Size: 2, State: ledger.Pending}
	written := old
	written.Size = 0 // only the index needs it
	for name, test := range map[string]struct {
		batch, alone string // the answers
		want         ledger.Result
	}{
		"written": {`{}`, `{}`, ledger.Result{Done: true}},
		"leased": {`{"Item":` + found + `}`, `{"Items":[` + found + `]}`,
			ledger.Result{Done: true, Item: written}},
		"it exists already": {`{"Error":{"Code":"DuplicateItem"}}`, awstest.Refused("DuplicateItemException"),
			ledger.Result{}},
		"it is another one": {`{"Error":{"Code":"ConditionalCheckFailed","Item":` + found + `}}`,
			awstest.Refused("ConditionalCheckFailedException", `"Item":`+found), ledger.Result{Item: old}},
		"there is none": {`{"Error":{"Code":"ConditionalCheckFailed"}}`,
			awstest.Refused("ConditionalCheckFailedException"), ledger.Result{}},
		"refused": {`{"Error":{"Code":"AccessDenied","Message":"arn:aws"}}`, awstest.Refused("AccessDeniedException"),
			ledger.Result{Err: cmpopts.AnyError}},
	} {
		client, _ := answering(t, `{"Responses":[{},`+test.batch+`]}`, test.alone)
		l := dynamodb.NewLedger(client, "ledger")
		items := []ledger.Item{{EventID: "1"}, {EventID: "2"}}
		batch, alone := l.Insert(t.Context(), items), l.Insert(t.Context(), items[1:])
		for kind, diff := range map[string]string{
			"in a batch": cmp.Diff([]ledger.Result{{Done: true}, test.want}, batch, cmpopts.EquateErrors()),
			"alone":      cmp.Diff([]ledger.Result{test.want}, alone, cmpopts.EquateErrors()),
		} {
			if diff != "" {
				t.Errorf("%s, %s: %s", name, kind, diff)
			}
		}
	}
}

var transientCodes = []string{"ThrottlingError", "ProvisionedThroughputExceeded", "RequestLimitExceeded",
	"TransactionConflict", "InternalServerError"}

// failing answers a batch: fails says which of the statements, by eventId, fail with a code; the others return an item.
func failing(t *testing.T, sizes *[]int, fails func(id string) (code string)) func(awstest.Request) string {
	return func(r awstest.Request) string {
		var answers []string
		for _, s := range statementsOf(t, r) {
			id := s.Parameters[2]["S"].(string)
			answer := `{"Item":{"eventId":{"S":"` + id + `"}}}`
			if code := fails(id); code != "" {
				answer = `{"Error":{"Code":"` + code + `"}}`
			}
			answers = append(answers, answer)
		}
		*sizes = append(*sizes, len(answers))
		return `{"Responses":[` + strings.Join(answers, ",") + `]}`
	}
}

// Only the statements that failed are tried again.
func TestStatementsThatFailForAMomentAreTriedAgain(t *testing.T) {
	for _, code := range transientCodes {
		failures, sizes := map[string]int{"3": 3, "24": 1}, []int(nil)
		client, _ := serving(t, failing(t, &sizes, func(id string) string {
			if failures[id]--; failures[id] >= 0 {
				return code
			}
			return ""
		}))
		synctest.Test(t, func(t *testing.T) {
			for n, r := range dynamodb.NewLedger(client, "ledger").Change(t.Context(), changesOf(25)) {
				if !r.Done || r.Err != nil || r.Item.EventID != fmt.Sprint(n) {
					t.Errorf("%s: %d: %+v", code, n, r)
				}
			}
		})
		if !slices.Equal(sizes, []int{25, 2, 1, 1}) {
			t.Errorf("%s: batches of %v", code, sizes)
		}
	}
}

// The number of attempts is limited, and the caller's time is.
func TestAStatementThatFailsAgainAndAgainIsAnError(t *testing.T) {
	for _, code := range append(slices.Clone(transientCodes), "AccessDenied", "ResourceNotFound",
		"ItemCollectionSizeLimitExceeded", "ValidationError", "SomethingNew") {
		var sizes []int
		client, _ := serving(t, failing(t, &sizes, func(id string) string {
			if id == "1" {
				return code
			}
			return ""
		}))
		synctest.Test(t, func(t *testing.T) {
			calls, took := 1, time.Duration(0)
			if slices.Contains(transientCodes, code) {
				calls, took = 12, 6575*time.Millisecond // pauses of 25 ms, doubled up to a second
			}
			l, start := dynamodb.NewLedger(client, "ledger"), time.Now()
			for n, r := range l.Change(t.Context(), changesOf(3)) {
				if r.Done != (n != 1) || n == 1 && fmt.Sprint(r.Err) != "DynamoDB BatchExecuteStatement: "+code {
					t.Errorf("%s: %d: %+v", code, n, r)
				}
			}
			if len(sizes) != calls || time.Since(start) != took {
				t.Errorf("%s: batches of %v in %v", code, sizes, time.Since(start))
			}
			sizes = nil
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			l.Change(ctx, changesOf(3))
			if len(sizes) > 4 { // at 0, 25, 75 and 175 ms
				t.Errorf("%s: %d calls", code, len(sizes))
			}
		})
	}
}

func TestABatchWithoutAnAnswerIsUncertain(t *testing.T) {
	const throttled = `{"Error":{"Code":"ThrottlingError"}}`
	for name, test := range map[string]struct {
		answers []string
		want    string // "": each is done
		first   string // likewise, of the first statement
	}{
		"no answer": {[]string{awstest.CutOff}, "no answer", "no answer"},
		"refused": {[]string{awstest.Refused("ResourceNotFoundException")}, "ResourceNotFoundException",
			"ResourceNotFoundException"},
		"an answer is missing": {[]string{`{"Responses":[{}]}`}, "no answer", "no answer"},
		"the second attempt":   {[]string{`{"Responses":[{},` + throttled + `]}`, awstest.CutOff}, "no answer", ""},
		"alone, since one of them is wrong": {[]string{awstest.Refused("ValidationException"), `{}`,
			awstest.Refused("AccessDeniedException")}, "AccessDeniedException", ""},
	} {
		client, _ := answering(t, test.answers...)
		synctest.Test(t, func(t *testing.T) {
			results := dynamodb.NewLedger(client, "ledger").Insert(t.Context(), []ledger.Item{{EventID: "1"},
				{EventID: "2"}})
			for n, want := range []string{test.first, test.want} {
				r := results[n]
				if want == "" {
					want = "<nil>"
				}
				if r.Done != (want == "<nil>") || !strings.HasSuffix(fmt.Sprint(r.Err), want) {
					t.Errorf("%s: %d: %+v", name, n, r)
				}
			}
		})
	}
}

// An engine whose batches return no items.
func TestALeaseWithoutTheItemIsCompleted(t *testing.T) {
	client, w := answering(t, `{"Responses":[{"Item":`+found+`},{},{"Error":{"Code":"ConditionalCheckFailed"}}]}`,
		awstest.Refused("ConditionalCheckFailedException", `"Item":`+found))
	results := dynamodb.NewLedger(client, "ledger").Change(t.Context(), changesOf(3))
	if results[1].Done || results[1].Item.EventID != "found" || !results[0].Done || results[2].Done ||
		len(w.Requests()) != 2 {
		t.Errorf("%+v", results)
	}
}
