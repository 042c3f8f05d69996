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
	i := ledger.Item{EventID: "id", DeliveryID: "delivery", RecordedAt: start, Amount: "1.00", Currency: "EUR",
		Note: ledger.Note{By: "jane", At: start.Add(time.Second), Reason: "asked"}, State: ledger.Pending,
		Detail: []byte("\x00\xff"), Size: 2, Large: true, Shard: "pending/1", LeasedUntil: start.Add(2 * time.Second),
		Attempts: 3, Cause: "attempts", Problem: "a problem", EventTimestamp: start.Add(3 * time.Second),
		PublishedAt: start.Add(4 * time.Second), ExpiresAt: start.Add(5 * time.Second).Truncate(time.Second)}
	copy(i.Digest[:], strings.Repeat("d", len(i.Digest)))
	copy(i.LeaseOwner[:], "1st hold")
	return i
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

// A batch has the statements of single calls, with as many parameters as question marks.
func TestABatchHasTheStatementsOfSingleWrites(t *testing.T) {
	i := full()
	pending := ledger.Item{EventID: "id", Digest: i.Digest, RecordedAt: i.RecordedAt, State: ledger.Pending,
		Detail: []byte("{}"), Size: 2, Shard: "pending/1", LeasedUntil: i.LeasedUntil, LeaseOwner: i.LeaseOwner}
	published := ledger.Item{EventID: "id", State: ledger.Published, PublishedAt: i.PublishedAt, Amount: "1.00"}
	parked := ledger.Item{EventID: "id", State: ledger.Parked, Shard: "parked/1", ParkedAt: i.LeasedUntil}
	dismissed := ledger.Item{EventID: "id", State: ledger.Dismissed, Note: i.Note, ExpiresAt: i.ExpiresAt}
	lease := ledger.Item{EventID: "id", LeasedUntil: i.LeasedUntil, LeaseOwner: i.LeaseOwner}
	all := []ledger.Write{
		{Item: i}, {Item: pending},
		{Item: pending, If: &ledger.Item{State: ledger.Published, Digest: i.Digest, ExpiresAt: i.ExpiresAt}},
		{Item: lease, If: &ledger.Item{LeasedUntil: i.RecordedAt}, Kept: ledger.Rest, Lease: true},
		{Item: lease, If: &ledger.Item{LeaseOwner: i.LeaseOwner}, Kept: ledger.Rest},
		{Item: published, If: &ledger.Item{Digest: i.Digest}, Kept: ledger.Identity},
		{Item: parked, If: &ledger.Item{Shard: "pending/1"}, Kept: ledger.Content},
		{Item: dismissed, If: &ledger.Item{ParkedAt: i.LeasedUntil}, Kept: ledger.Identity},
	}
	client, w := answering(t, `{}`)
	table := dynamodb.NewLedger(client, "ledger")
	var want []statement
	for n := range all {
		table.Write(t.Context(), all[n:n+1])
		want = append(want, decoded[statement](t, w.Requests()[0].Body))
	}
	table.Write(t.Context(), all)
	got := statementsOf(t, w.Requests()[0])
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, s := range got {
		if strings.Count(s.Statement, "?") != len(s.Parameters) {
			t.Errorf("%d parameters of %s", len(s.Parameters), s.Statement)
		}
	}
}

// attributesOf returns an item as the table has it, from the statement that inserts it.
func attributesOf(t *testing.T, i ledger.Item) map[string]value {
	t.Helper()
	client, w := answering(t, `{}`)
	if r := dynamodb.NewLedger(client, "ledger").Write(t.Context(), []ledger.Write{{Item: i}}); !r[0].Done {
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
	return found["id"]
}

// After a deployment is rolled back, items have attributes that the code does not know, and before, they lack those
// that it added. What else an item has is read if an attribute can't be decoded: eventId and due are enough to lease
// it.
func TestWhatIsWrittenIsReadAsFarAsItCanBeDecoded(t *testing.T) {
	item := attributesOf(t, full())
	item["later"] = text("of another version")
	if diff := cmp.Diff(full(), read(t, item)); diff != "" {
		t.Error(diff)
	}
	delete(item, "later")
	for name := range item {
		if name == "eventId" {
			continue
		}
		without := maps.Clone(item)
		delete(without, name)
		want := read(t, without)
		for _, wrong := range []value{{"L": []any{}}, {"N": "1.5"}, {"B": "YQ=="}, {"S": "x"}, {"BOOL": true}} {
			damaged := maps.Clone(item)
			damaged[name] = wrong
			if kind := slices.Collect(maps.Keys(wrong))[0]; item[name][kind] != nil && (kind == "S" || kind == "BOOL" ||
				name == "event") {
				continue // it has the type of the attribute
			}
			got := read(t, damaged)
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(ledger.Item{}, "Err")); diff != "" ||
				fmt.Sprint(got.Err) != "can't decode "+name {
				t.Errorf("%s is %v: %v %s", name, wrong, got.Err, diff)
			}
		}
	}
	damaged := map[string]value{"eventId": text("id"), "size": text("x"), "order": text("y")}
	if got := read(t, damaged); fmt.Sprint(got.Err) != "can't decode order, size" || got.EventID != "id" {
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
	id, now := uuid.New().String(), start
	for _, test := range []struct{ event, item int }{
		{800, 1 << 10}, {ledger.MaxEventBytes, 400 << 10},
	} {
		memory := &ledger.Memory{}
		l := ledger.New(memory, ledger.Options{Window: time.Hour})
		e := ledger.Item{EventID: id, DeliveryID: id, Digest: ledger.Digest{1}, RecordedAt: now,
			Detail: bytes.Repeat([]byte("x"), test.event), Amount: strings.Repeat("1", 128),
			Currency: strings.Repeat("1", 128)}
		l.Record(t.Context(), []ledger.Item{e}, ledger.NewLeaseOwner(), now)
		if got := sizeOf(t, memory.Items()[id]); got > test.item || got < test.event+200 {
			t.Errorf("an event of %d bytes takes %d", test.event, got)
		}
		d := ledger.Note{By: "a", At: now, Reason: strings.Repeat("a", 999)}
		err := l.Park(t.Context(), e, "", "")
		r := l.Replay(t.Context(), ledger.Item{EventID: id}, d, now)
		err = errors.Join(err, r.Err, l.Park(t.Context(), ledger.Item{EventID: id,
			LeaseOwner: memory.Items()[id].LeaseOwner, Attempts: 20, Amount: e.Amount, Currency: e.Currency},
			strings.Repeat("c", 64), strings.Repeat("p", 512)))
		if parked := memory.Items()[id]; err != nil || parked.Problem == "" || sizeOf(t, parked) > 400<<10 {
			t.Errorf("%v: %s, %d bytes", err, parked.State, sizeOf(t, parked))
		}
	}
}

// leases returns n leases of different events.
func leases(n int) (all []ledger.Write) {
	for i := range n {
		all = append(all, ledger.Write{If: &ledger.Item{},
			Item: ledger.Item{EventID: fmt.Sprint(i), LeasedUntil: start}, Kept: ledger.Rest, Lease: true})
	}
	return all
}

var inserts = []ledger.Write{{Item: ledger.Item{EventID: "1"}}, {Item: ledger.Item{EventID: "2"}}}

const found = `{"eventId":{"S":"found"},"size":{"N":"2"},"state":{"S":"pending"}}`

func TestEachStatementHasItsOwnResult(t *testing.T) {
	old := &ledger.Item{EventID: "found", Size: 2, State: ledger.Pending}
	for name, test := range map[string]struct {
		batch, alone string // the answers
		want         ledger.WriteResult
	}{
		"written": {`{}`, `{}`, ledger.WriteResult{Done: true}},
		"leased":  {`{"Item":` + found + `}`, `{"Items":[` + found + `]}`, ledger.WriteResult{Done: true, Found: old}},
		"it exists already": {`{"Error":{"Code":"DuplicateItem"}}`, awstest.Refused("DuplicateItemException"),
			ledger.WriteResult{}},
		"it exists already, in DynamoDB Local": {`{"Error":{"Code":"DuplicateItem"}}`,
			awstest.Refused("com.amazonaws.dynamodb.v20120810#DuplicateItem"), ledger.WriteResult{}},
		"it is another one": {`{"Error":{"Code":"ConditionalCheckFailed","Item":` + found + `}}`,
			awstest.Refused("ConditionalCheckFailedException", `"Item":`+found), ledger.WriteResult{Found: old}},
		"there is none": {`{"Error":{"Code":"ConditionalCheckFailed"}}`,
			awstest.Refused("ConditionalCheckFailedException"), ledger.WriteResult{}},
		"refused": {`{"Error":{"Code":"AccessDenied","Message":"arn:aws"}}`, awstest.Refused("AccessDeniedException"),
			ledger.WriteResult{Err: cmpopts.AnyError}},
	} {
		client, _ := answering(t, `{"Responses":[{},`+test.batch+`]}`, test.alone)
		l := dynamodb.NewLedger(client, "ledger")
		got := append(l.Write(t.Context(), inserts), l.Write(t.Context(), inserts[1:])...)
		want := []ledger.WriteResult{{Done: true}, test.want, test.want} // two of a batch, and one alone
		if diff := cmp.Diff(want, got, cmpopts.EquateErrors()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

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

// Only the statements that failed for a moment are tried again, twelve times at most, and not after the caller's time.
func TestStatementsThatFailForAMomentAreTriedAgain(t *testing.T) {
	for code, transient := range map[string]bool{"ThrottlingError": true, "ProvisionedThroughputExceeded": true,
		"RequestLimitExceeded": true, "TransactionConflict": true, "InternalServerError": true, "AccessDenied": false,
		"ValidationError": false, "SomethingNew": false} {
		failures, sizes := map[string]int{}, []int(nil)
		client, _ := serving(t, failing(t, &sizes, func(id string) string {
			if failures[id]--; failures[id] >= 0 {
				return code
			}
			return ""
		}))
		calls := func(times map[string]int, timeout time.Duration) (results []ledger.WriteResult, took time.Duration) {
			failures, sizes = times, nil
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				begin := time.Now()
				results = dynamodb.NewLedger(client, "ledger").Write(ctx, leases(25))
				took = time.Since(begin)
			})
			return results, took
		}
		results, _ := calls(map[string]int{"3": 3, "24": 1}, time.Hour)
		for n, r := range results {
			if done := transient || n != 3 && n != 24; r.Done != done || done && r.Found.EventID != fmt.Sprint(n) {
				t.Errorf("%s: %d: %+v", code, n, r)
			}
		}
		if want := []int{25, 2, 1, 1}; !slices.Equal(sizes, want[:len(sizes)]) || (len(sizes) == 4) != transient {
			t.Errorf("%s: batches of %v", code, sizes)
		}
		results, took := calls(map[string]int{"1": 99}, time.Hour)
		if results[1].Done || fmt.Sprint(results[1].Err) != "DynamoDB BatchExecuteStatement: "+code ||
			!results[2].Done {
			t.Errorf("%s: %+v", code, results[1])
		}
		// Pauses of 25 ms, doubled up to a second.
		if transient && (len(sizes) != 12 || took != 6575*time.Millisecond) || !transient && len(sizes) != 1 {
			t.Errorf("%s: %d calls in %s", code, len(sizes), took)
		}
		calls(map[string]int{"1": 99}, 200*time.Millisecond)
		if len(sizes) > 4 { // at 0, 25, 75 and 175 ms
			t.Errorf("%s: %d calls in 200 ms", code, len(sizes))
		}
	}
}

func TestABatchWithoutAnAnswerIsUncertain(t *testing.T) {
	const throttled = `{"Error":{"Code":"ThrottlingError"}}`
	for name, test := range map[string]struct {
		answers []string
		want    [2]string // the ends of the errors
	}{
		"no answer": {[]string{awstest.CutOff}, [2]string{"no answer", "no answer"}},
		"refused": {[]string{awstest.Refused("ResourceNotFoundException")},
			[2]string{"ResourceNotFoundException", "ResourceNotFoundException"}},
		"an answer is missing": {[]string{`{"Responses":[{}]}`}, [2]string{"no answer", "no answer"}},
		"the second attempt": {[]string{`{"Responses":[{},` + throttled + `]}`, awstest.CutOff},
			[2]string{"<nil>", "no answer"}},
		"alone, since one of them is wrong": {[]string{awstest.Refused("ValidationException"), `{}`,
			awstest.Refused("AccessDeniedException")}, [2]string{"<nil>", "AccessDeniedException"}},
	} {
		client, _ := answering(t, test.answers...)
		synctest.Test(t, func(t *testing.T) {
			for n, r := range dynamodb.NewLedger(client, "ledger").Write(t.Context(), inserts) {
				want := test.want[n]
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
	results := dynamodb.NewLedger(client, "ledger").Write(t.Context(), leases(3))
	if results[1].Done || results[1].Found.EventID != "found" || !results[0].Done || results[2].Done ||
		len(w.Requests()) != 2 {
		t.Errorf("%+v", results)
	}
}
