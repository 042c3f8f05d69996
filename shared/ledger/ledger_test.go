package ledger_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"encoding/json/jsontext"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/ledger"
)

func TestTheWindowIsCheckedEvenIfNothingIsDeleted(t *testing.T) {
	b := newFixture(t)
	e := b.new(t, 1)[0]
	b.record(t, e, ledger.Recorded)
	b.publish(t, e)
	b.now = b.now.Add(window - time.Second)
	b.record(t, e, ledger.Duplicate)
	b.now = b.now.Add(time.Second)
	next := b.entry(t, e.EventID, "1")
	b.record(t, next, ledger.Recorded)
	b.publish(t, next)
	b.now = b.now.Add(window)
	if r := b.Replace(t.Context(), []ledger.Item{next}, b.now)[0]; r.Outcome != ledger.Recorded {
		t.Errorf("replaced: %+v", r)
	}
}

func TestWhatIsPendingNeverExpires(t *testing.T) {
	b := newFixture(t)
	e := b.new(t, 1)[0]
	b.record(t, e, ledger.Recorded)
	b.now = b.now.Add(10 * window)
	b.record(t, e, ledger.Duplicate)
	b.record(t, b.entry(t, e.EventID, "1"), ledger.Conflict)
	for _, item := range b.store.Items() {
		if !item.ExpiresAt.IsZero() {
			t.Error("DynamoDB would delete a pending item")
		}
	}
}

func TestAPublishedEventKeepsNoBytesAndLeavesTheIndex(t *testing.T) {
	b := newFixture(t)
	e := b.new(t, 1)[0]
	b.record(t, e, ledger.Recorded)
	b.now = b.now.Add(time.Hour)
	if got := b.due(t); len(got) != 1 {
		t.Fatalf("%d due", len(got))
	}
	for range 2 { // a second mark, by an invocation that is late, changes nothing
		b.publish(t, e)
		b.now = b.now.Add(time.Hour)
	}
	if got := b.due(t); len(got) != 0 {
		t.Errorf("%d due", len(got))
	}
	at := b.now.Add(-2 * time.Hour)
	want := ledger.Item{EventID: e.EventID, Digest: e.Digest, DeliveryID: e.DeliveryID, RecordedAt: e.RecordedAt,
		State: ledger.Published, Amount: "1234567890.10", Currency: "EUR", PublishedAt: at,
		EventTimestamp: e.EventTimestamp.Truncate(time.Millisecond), ExpiresAt: at.Add(window)}
	if diff := cmp.Diff(want, b.find(t, e)); diff != "" {
		t.Error(diff)
	}
}

func TestNothingIsDueBeforeItsTime(t *testing.T) {
	b := newFixture(t)
	e := b.new(t, 1)[0]
	b.record(t, e, ledger.Recorded)
	b.now = b.now.Add(time.Minute - time.Millisecond)
	if got := b.due(t); len(got) != 0 {
		t.Fatalf("%d due", len(got))
	}
	b.now = b.now.Add(time.Millisecond)
	got := b.due(t)
	if len(got) != 1 || got[0].EventID != e.EventID {
		t.Fatalf("due: %v", got)
	}
	l := b.lease(t)
	if l.Err != nil || !l.Held {
		t.Fatal(l)
	}
	e.State, e.Shard, e.Due, e.Holder, e.Size, e.Attempts = ledger.Pending, got[0].Shard, b.now.Add(time.Minute),
		l.Item.Holder, 0, 1
	if diff := cmp.Diff(e, l.Item, cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); diff != "" {
		t.Error(diff)
	}
	if got := b.due(t); len(got) != 0 {
		t.Errorf("%d due while leased", len(got))
	}
	b.now = b.now.Add(time.Minute)
	got = b.due(t)
	if len(got) != 1 {
		t.Fatalf("%d due after the lease ran out", len(got))
	}
	b.publish(t, e)
	if l := b.leaseUntil(t, got[0], ledger.NewHolder(), b.now.Add(time.Minute)); l.Held || l.Err != nil {
		t.Errorf("a published event is leased: %+v", l)
	}
}

func TestShardsAreEven(t *testing.T) {
	b := newFixture(t)
	count := map[string]int{}
	for range 6400 {
		b.record(t, b.new(t, 1)[0], ledger.Recorded)
	}
	for _, item := range b.store.Items() {
		count[item.Shard]++
	}
	for shard, n := range count {
		if n > 200 {
			t.Errorf("shard %s has %d of 6400", shard, n)
		}
	}
	if len(count) != 64 || ledger.Shards != 64 {
		t.Errorf("%d shards are in use", len(count))
	}
}

// A digest is that of the content: neither white space, the order of members nor escapes change it. Everything
// else does, and the text of a number as well: an amount of 101 and one of 101.00 need a person.
func TestADigestIsThatOfTheContent(t *testing.T) {
	const event = `{"a":"x \" y\\/é😀","b":[1,2.0,{"c":null,"d":true}],"é":{},"\ufb33":-0}`
	want := ledger.DigestOf([]byte(event))
	for _, same := range []string{
		" { \"a\" :\t\"x \\\" y\\\\/é😀\" ,\r\n\"b\":[ 1, 2.0 , {\"c\":null,\"d\":true} ],\"é\":{ },\"\\ufb33\":-0 } ",
		`{"\ufb33":-0,"é":{},"b":[1,2.0,{"d":true,"c":null}],"a":"x \" y\\/é😀"}`,
		`{"\u0061":"\u0078 \u0022 y\u005c\/\u00E9\uD83D\ude00","b":[1,2.0,{"d":true,"\u0063":null}],"\u00e9":{},` +
			`"\uFB33":-0}`,
	} {
		if ledger.DigestOf([]byte(same)) != want {
			t.Errorf("%s has another digest", same)
		}
	}
	for _, change := range [][2]string{{`x \" y`, `x \"y`}, {"2.0", "2"}, {"2.0", "2.00"}, {"2.0", "2e0"},
		{"[1", "[1.0"}, {"-0", "0"}, {"-0", "-0.0"}, {"1,2.0", "2.0,1"}, {`"c":null,`, ""}, {"null", `"null"`},
		{"true", "false"},
		{"{}", "[]"},
		{`"a"`, `"A"`}, {"é", "e\u0301"}} {
		other := strings.Replace(event, change[0], change[1], 1)
		if other == event || ledger.DigestOf([]byte(other)) == want {
			t.Errorf("%s has the same digest", other)
		}
	}
	// Numbers of any length keep their digits.
	const long = `{"a":12345678901234567890.10}`
	if ledger.DigestOf([]byte(long)) == ledger.DigestOf([]byte(strings.Replace(long, "10}", "11}", 1))) {
		t.Error("digits are lost")
	}
}

func FuzzDigestOf(f *testing.F) {
	f.Add([]byte(`{"a":"x \" y\\ "}`))
	f.Add([]byte(" [ 1 , \"\\\\\" , \"\\\"\" ] "))
	f.Add([]byte(`"a`))
	f.Add([]byte(`"a\`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if v := jsontext.Value(bytes.Clone(raw)); v.IsValid() {
			sent := string(v)
			if err := v.Canonicalize(jsontext.CanonicalizeRawInts(false),
				jsontext.CanonicalizeRawFloats(false)); err != nil {
				t.Fatal(err)
			}
			if ledger.DigestOf(raw) != sha256.Sum256(v) || ledger.DigestOf(v) != ledger.DigestOf(raw) ||
				string(raw) != sent {
				t.Fatalf("not the digest of %s", v)
			}
			content := func(text []byte) (value any) {
				d := json.NewDecoder(bytes.NewReader(text))
				d.UseNumber()
				if err := d.Decode(&value); err != nil {
					t.Fatal(err)
				}
				return value
			}
			if !reflect.DeepEqual(content(v), content(raw)) {
				t.Fatalf("%s has another content", v)
			}
		} else {
			ledger.DigestOf(raw) // must not panic
		}
	})
}

func TestOnlyItsHolderPostponesAnItem(t *testing.T) {
	b := newFixture(t)
	e := b.new(t, 1)[0]
	b.record(t, e, ledger.Recorded)
	b.now = b.now.Add(time.Hour)
	first, second := ledger.NewHolder(), ledger.NewHolder()
	for _, holder := range []ledger.Holder{first, second} {
		if l := b.leaseUntil(t, b.due(t)[0], holder, b.now); l.Err != nil || !l.Held {
			t.Fatalf("%+v", l)
		}
		b.now = b.now.Add(time.Minute)
	}
	if err := b.Postpone(t.Context(), e, first, b.now.Add(time.Hour)); err != nil || len(b.due(t)) != 1 {
		t.Errorf("got %v, and %d are due", err, len(b.due(t)))
	}
	if err := b.Postpone(t.Context(), e, second, b.now.Add(time.Hour)); err != nil || len(b.due(t)) != 0 {
		t.Errorf("got %v, and %d are due", err, len(b.due(t)))
	}
	b.publish(t, e)
	if err := b.Postpone(t.Context(), e, second, b.now); err != nil || len(b.due(t)) != 0 {
		t.Errorf("what is published is pending again: %v", err)
	}
}

// The longest due come first, those that are due last come first of the others, and both
// page by page.
func TestAShardIsReadInOrder(t *testing.T) {
	b := newFixture(t)
	inShard := map[int][]ledger.Item{}
	for i := range 300 {
		e := b.new(t, 1)[0]
		due := b.now.Add(time.Duration(i) * time.Second)
		b.Record(t.Context(), []ledger.Item{e}, ledger.NewHolder(), due)
		name := b.find(t, e).Shard
		shard, err := strconv.Atoi(strings.TrimPrefix(name, "pending/"))
		if err != nil {
			t.Fatal(err)
		}
		inShard[shard] = append(inShard[shard],
			ledger.Item{EventID: e.EventID, Shard: name, Due: due, RecordedAt: e.RecordedAt, Size: len(e.Detail)})
	}
	for shard, want := range inShard {
		var got []ledger.Item
		for after, pages := (*ledger.Cursor)(nil), 0; pages <= len(want); pages++ {
			page, next, err := b.Due(t.Context(), shard, b.now.Add(time.Hour), after, 2)
			if err != nil || len(page) > 2 {
				t.Fatalf("%d items, %v", len(page), err)
			}
			got = append(got, page...)
			if after = next; after == nil {
				break
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("shard %d: %s", shard, diff)
		}
		last, err := b.Waiting(t.Context(), shard, b.now.Add(-time.Second), 1)
		if diff := cmp.Diff(want[len(want)-1:], last); diff != "" || err != nil {
			t.Errorf("shard %d: %v %s", shard, err, diff)
		}
	}
}

// The clock of the function that recorded an event may be ahead of the one that marks it.
func TestTheWindowBeginsWithTheLaterOfBothClocks(t *testing.T) {
	for ahead, want := range map[time.Duration]time.Duration{time.Hour: time.Hour, -time.Hour: 0} {
		b := newFixture(t)
		e := b.new(t, 1)[0]
		e.RecordedAt = b.now.Add(ahead)
		b.record(t, e, ledger.Recorded)
		b.publish(t, e)
		if i := b.find(t, e); !i.ExpiresAt.Equal(b.now.Add(want+window)) || !i.PublishedAt.Equal(b.now) {
			t.Errorf("%s ahead: %+v", ahead, i)
		}
	}
}

// A holder does not take an item for its own that it leased until another time.
func TestALeaseUntilAnotherTimeIsAnotherLease(t *testing.T) {
	b := newFixture(t)
	e := b.new(t, 1)[0]
	b.recordDue(t, e)
	p, holder := ledger.Item{EventID: e.EventID, Due: b.now}, ledger.NewHolder()
	for _, test := range []struct {
		until time.Duration
		held  bool
	}{{time.Minute, true}, {time.Minute, true}, {2 * time.Minute, false}} {
		if l := b.leaseUntil(t, p, holder, b.now.Add(test.until)); l.Held != test.held || l.Err != nil {
			t.Errorf("%s: %+v", test.until, l)
		}
	}
}

func TestWhatTheStatesAllow(t *testing.T) {
	const recorded, duplicate, conflict = ledger.Recorded, ledger.Duplicate, ledger.Conflict
	for _, test := range []struct {
		state           ledger.State // of what the ledger has
		other           bool         // it has other content
		record, replace ledger.Outcome
		decide          bool
	}{
		{"", false, recorded, recorded, false},
		{ledger.Pending, false, duplicate, duplicate, false},
		{ledger.Pending, true, conflict, conflict, false},
		{ledger.Published, false, duplicate, duplicate, false},
		{ledger.Published, true, conflict, recorded, false},
		{ledger.Parked, false, recorded, duplicate, true},
		{ledger.Parked, true, conflict, conflict, false},
		{ledger.Dismissed, false, duplicate, recorded, false},
		{ledger.Dismissed, true, conflict, recorded, false},
	} {
		b := newFixture(t)
		fresh := func() ledger.Item {
			first := b.new(t, 1)[0]
			b.in(t, test.state, first)
			if test.other {
				return b.entry(t, first.EventID, "1")
			}
			return first
		}
		holder := ledger.NewHolder()
		for name, r := range map[string]ledger.Recording{
			"record":  b.Record(t.Context(), []ledger.Item{fresh()}, holder, b.now)[0],
			"replace": b.Replace(t.Context(), []ledger.Item{fresh()}, b.now)[0],
		} {
			want := map[string]ledger.Outcome{"record": test.record, "replace": test.replace}[name]
			if r.Err != nil || r.Outcome != want || (r.Found == nil) != (want == recorded) ||
				r.Found != nil && r.Found.State != test.state {
				t.Errorf("%s what is %q, other %v: %+v, want %d", name, test.state, test.other, r, want)
			}
		}
		d := ledger.Decision{By: "alice"}
		for name, do := range map[string]func(e ledger.Item) ledger.Result{
			"replay":  func(e ledger.Item) ledger.Result { return b.Replay(t.Context(), e, d, b.now) },
			"dismiss": func(e ledger.Item) ledger.Result { return b.Dismiss(t.Context(), e, d) },
		} {
			e := fresh()
			before := b.store.Items()
			r := do(e)
			if r.Err != nil || r.Done != test.decide || !r.Done && r.Item.State != test.state {
				t.Errorf("%s what is %q, other %v: %+v", name, test.state, test.other, r)
			}
			if diff := cmp.Diff(before, b.store.Items()); (diff != "") != test.decide {
				t.Errorf("%s what is %q: %s", name, test.state, diff)
			}
		}
	}
}
