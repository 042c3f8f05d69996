package ledger_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	adapter "payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/awstest"
	"payhook.example/shared/ledger"
	"payhook.example/shared/names"
)

// operations calls every method for the entry e, and returns their errors.
func operations(t *testing.T, l *ledger.Ledger, i *adapter.LedgerReader, e ledger.Item,
	at time.Time) map[string]error {
	t.Helper()
	ctx, entries, holder := t.Context(), []ledger.Item{e}, ledger.NewHolder()
	errs := map[string]error{}
	for name, r := range map[string]ledger.Recording{
		"record": l.Record(ctx, entries, holder, at)[0], "replace": l.Replace(ctx, entries, at)[0],
	} {
		if errs[name] = r.Err; r.Err != nil && r.Outcome != 0 {
			t.Errorf("%s: outcome %d with an error", name, r.Outcome)
		}
	}
	leased := l.Lease(ctx, []ledger.Item{{EventID: e.EventID}}, holder, at)[0]
	if errs["lease"] = leased.Err; leased.Held {
		t.Error("lease: held with an error")
	}
	errs["postpone"] = l.Postpone(ctx, e, holder, at)
	errs["mark published"] = l.MarkPublished(ctx, entries)[0]
	errs["park"] = l.Park(ctx, e, "", "")
	errs["replay"] = l.Replay(ctx, e, ledger.Decision{}, at).Err
	errs["dismiss"] = l.Dismiss(ctx, e, ledger.Decision{}).Err
	_, _, errs["due"] = l.Due(ctx, 0, at, nil, 1)
	_, errs["waiting"] = l.Waiting(ctx, 0, at, 1)
	_, errs["known"] = l.Known(ctx, []string{e.EventID})
	_, _, errs["find"] = ledger.Find(ctx, i, e.EventID, false)
	_, errs["list"] = ledger.List(ctx, i, ledger.Pending)
	return errs
}

func TestEveryOperationReturnsTheErrorOfDynamoDB(t *testing.T) {
	b := newFixture(t)
	for name, err := range operations(t, ledger.New(adapter.NewLedger(b.db, "missing"), ledger.Options{}),
		adapter.NewLedgerReader(b.db, "missing"), b.entry(t, uuid.New().String(), ""), b.now) {
		if _, ok := errors.AsType[*types.ResourceNotFoundException](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// recordDue records an event that is due now.
func (b *fixture) recordDue(t *testing.T, e ledger.Item) {
	t.Helper()
	if outcome, err := b.Record(t.Context(), e, ledger.NewHolder(), b.now); outcome != ledger.Recorded || err != nil {
		t.Fatal(outcome, err)
	}
}

// put changes attributes of the item of an event; nil removes one.
func (b *fixture) put(t *testing.T, eventID string, change awstest.Item) {
	t.Helper()
	item := maps.Clone(b.db.Items("ledger")[eventID])
	for name, value := range change {
		if item[name] = value; value == nil {
			delete(item, name)
		}
	}
	if _, err := b.db.PutItem(t.Context(),
		&dynamodb.PutItemInput{TableName: aws.String("ledger"), Item: item}); err != nil {
		t.Fatal(err)
	}
}

// An item whose bytes are a claim check has the digest of the event, not of the
// bytes.
func TestLeaseReturnsAClaimCheck(t *testing.T) {
	b := newFixture(t)
	e := b.entry(t, uuid.New().String(), "")
	e.Claimed, e.Digest = true, ledger.Digest{1}
	b.recordDue(t, e)
	got, ok, err := b.Lease(t.Context(), ledger.Item{EventID: e.EventID, Due: b.now}, ledger.NewHolder(),
		b.now.Add(time.Minute))
	if !ok || err != nil || !got.Claimed || got.Digest != e.Digest || got.EventName != e.EventName ||
		got.Attempts != 1 {
		t.Errorf("%+v, %t, %v", got, ok, err)
	}
	b.put(t, e.EventID, awstest.Item{"event": &types.AttributeValueMemberB{Value: []byte("x")}})
	if got, ok, err := b.Lease(t.Context(), ledger.Item{EventID: e.EventID, Due: b.now.Add(time.Minute)},
		ledger.NewHolder(), b.now); !ok || !errors.Is(err, ledger.ErrCorrupt) || got.EventID != e.EventID {
		t.Errorf("without JSON: %+v, %t, %v", got, ok, err)
	}
}

// sameShard returns n entries of one shard.
func (b *fixture) sameShard(t *testing.T, n int) (entries []ledger.Item) {
	t.Helper()
	for shard := ""; len(entries) < n; {
		e := b.entry(t, uuid.New().String(), "")
		b.recordDue(t, e)
		if shard = cmp.Or(shard, b.shard(e)); b.shard(e) == shard {
			entries = append(entries, e)
		} else if err := b.MarkPublished(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	return entries
}

// Its eventId and due are enough to lease or move it.
func TestAnItemThatCannotBeDecodedHidesNoOther(t *testing.T) {
	b := newFixture(t)
	entries := b.sameShard(t, 3)
	bad := entries[0].EventID
	b.put(t, bad, awstest.Item{names.LedgerSize: &types.AttributeValueMemberS{Value: "x"}})
	waiting := func() (all []ledger.Item) {
		for shard := range ledger.Shards {
			page, err := b.Waiting(t.Context(), shard, b.now.Add(-time.Second), 10)
			if all = append(all, page...); err != nil {
				t.Error(err)
			}
		}
		return all
	}
	backlog, err := ledger.List(t.Context(), adapter.NewLedgerReader(b.db, "ledger"), ledger.Pending)
	if err != nil {
		t.Error(err)
	}
	for name, got := range map[string][]ledger.Item{"due": b.due(t), "waiting": waiting(), "backlog": backlog} {
		if len(got) != len(entries) {
			t.Errorf("%s: %d items", name, len(got))
		}
		for _, i := range got {
			if !i.Due.Equal(b.now) || !i.RecordedAt.Equal(b.now) || (i.Size == 0) != (i.EventID == bad) ||
				fmt.Sprint(i.Err) != map[bool]string{true: "can't decode size", false: "<nil>"}[i.EventID == bad] {
				t.Errorf("%s: %+v", name, i)
			}
		}
	}
	b.put(t, bad, awstest.Item{names.LedgerTTL: &types.AttributeValueMemberS{Value: "x"}})
	if known, err := b.Known(t.Context(), []string{bad, entries[1].EventID}); len(known) != 1 ||
		known[entries[1].EventID].Digest != entries[1].Digest || fmt.Sprint(err) != "ledger: read "+bad+
		": can't decode expiresAt" {
		t.Errorf("known: %v, %v", known, err)
	}
	i, ok, err := ledger.Find(t.Context(), adapter.NewLedgerReader(b.db, "ledger"), bad, false)
	if !ok || i.Digest != entries[0].Digest ||
		fmt.Sprint(err) != "ledger: find "+bad+": can't decode expiresAt" {
		t.Errorf("find: %+v, %t, %v", i, ok, err)
	}
}

// Only the condition decides about the item that the ledger has.
func TestAnItemThatCannotBeDecodedIsNoOutcome(t *testing.T) {
	b := newFixture(t)
	e := b.entry(t, uuid.New().String(), "")
	b.recordDue(t, e)
	b.put(t, e.EventID, awstest.Item{names.LedgerRecordedAt: &types.AttributeValueMemberS{Value: "x"}})
	for name, r := range map[string]ledger.Recording{
		"record":  b.Ledger.Record(t.Context(), []ledger.Item{e}, ledger.NewHolder(), b.now)[0],
		"replace": b.Ledger.Replace(t.Context(), []ledger.Item{e}, b.now)[0],
	} {
		if r.Err == nil || r.Outcome != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
