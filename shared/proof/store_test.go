package proof

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/objects"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/signature"
)

// parkedAt returns a proof of that reason, which does not verify.
func parkedAt(reason Reason, at time.Time, events ...string) Proof {
	return Proof{Reason: reason, StoredAt: noon, DeliveryID: uuid.New().String(), EventIDs: events,
		Payload: []byte("\x00 bytes \xff"), Timestamp: signature.FormatTime(at), JWK: []byte(`{"kty":"RSA"}`)}
}

func put(t *testing.T, c objects.Creator, p Proof) string {
	t.Helper()
	name, existed, err := Put(t.Context(), c, p)
	if err != nil || existed {
		t.Fatalf("existed: %v, %v", existed, err)
	}
	return name
}

func TestGetReturnsWhatWasPut(t *testing.T) {
	var bucket objects.Memory
	signed := sent(t, paymenttest.Delivery(paymenttest.Events(2)...), true, true)
	for _, want := range []Proof{signed, as(signed, Invalid), as(signed, Conflict), rejected("x")} {
		name := put(t, &bucket, want)
		got, err := Get(t.Context(), &bucket, name)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Error(diff, err)
		}
		later := want
		if want.Reason == Invalid || want.Reason == Conflict {
			later.StoredAt = noon.Add(time.Hour)
		}
		again, existed, err := Put(t.Context(), &bucket, later)
		if existed != (want.Reason != Rejected) || existed != (again == name) || err != nil {
			t.Errorf("again: %s, %v, %v, want %s", again, existed, err, name)
		}
	}
}

func TestWhatIsNotTheProofOfItsNameIsNotReturned(t *testing.T) {
	var bucket objects.Memory
	p, other, request := parkedAt(Invalid, noon), parkedAt(Invalid, noon), rejected("x")
	name, requestName := p.Name(), request.Name()
	for what, test := range map[string]struct {
		name string
		text []byte
		want error
	}{
		"nothing":               {name, nil, objects.ErrNotFound},
		"no name":               {"invalid/x", encode(t, p), ErrName},
		"a note":                {"replayed/" + name, []byte("{}"), ErrName},
		"another proof":         {name, encode(t, other), ErrDamaged},
		"another outcome":       {strings.Replace(requestName, "-s", "-t", 1), encode(t, request), ErrDamaged},
		"a part":                {name, encode(t, p)[:100], ErrDamaged},
		"more than a proof has": {name, append(encode(t, p), make([]byte, MaxSize)...), ErrDamaged},
	} {
		bucket.Delete(test.name)
		if test.text != nil {
			if err := bucket.Put(t.Context(), test.name, test.text); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Get(t.Context(), &bucket, test.name); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", what, err, test.want)
		}
	}
}

func list(t *testing.T, l objects.Lister, reason Reason, from, until time.Time) (names []string) {
	t.Helper()
	for o, err := range List(t.Context(), l, reason, from, until) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, o.Key)
	}
	return names
}

func TestListIsInOrderOfTime(t *testing.T) {
	var bucket objects.Memory
	var names []string
	for _, after := range []time.Duration{48 * time.Hour, 0, time.Minute, -time.Millisecond, 13 * time.Hour} {
		names = append(names, put(t, &bucket, parkedAt(Conflict, noon.Add(after))))
	}
	slices.Sort(names)
	put(t, &bucket, parkedAt(Invalid, noon))
	put(t, &bucket, rejected("x"))
	for _, test := range []struct {
		from, until time.Time
		want        []string
	}{
		{time.Time{}, time.Time{}, names},
		{noon, time.Time{}, names[1:]},
		{noon, noon.Add(13 * time.Hour), names[1:3]},
		{noon.Add(1), noon.Add(13*time.Hour + 1), names[2:4]}, // a name has milliseconds
		{time.Time{}, noon, names[:1]},
	} {
		if got := list(t, &bucket, Conflict, test.from, test.until); !slices.Equal(got, test.want) {
			t.Errorf("from %s until %s: %v, want %v", test.from, test.until, got, test.want)
		}
	}
}

// A setting that is changed gives the next records another folder. What is no proof is left out, so that it cannot be
// printed.
func TestTheRecordsOfEveryLockAreListed(t *testing.T) {
	var bucket objects.Memory
	var names, at []string
	for _, days := range []int{1, 2562, 25620, 30, 36500} {
		for _, after := range []time.Duration{0, time.Hour} {
			p := sent(t, paymenttest.Delivery(paymenttest.Event()), false, false)
			p.Timestamp, p.LockDays = signature.FormatTime(noon.Add(after)), days
			names = append(names, put(t, &bucket, p))
			if after == 0 {
				at = append(at, names[len(names)-1])
			}
		}
	}
	for _, odd := range []string{"accepted/x", "accepted/30-/x", "accepted/2562/2026/01/31/12/x", "accepted/2562/~",
		"accepted/\x1b/" + names[0], "accepted0", "accepted/" + names[0], "accepted//", "accepted/30/\xff"} {
		if err := bucket.Put(t.Context(), odd, nil); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(names)
	slices.Sort(at)
	if got := list(t, &bucket, Accepted, time.Time{}, time.Time{}); !slices.Equal(got, names) {
		t.Errorf("%q, want %q", got, names)
	}
	if got := list(t, &bucket, Accepted, noon, noon.Add(time.Minute)); !slices.Equal(got, at) {
		t.Errorf("%q, want %q", got, at)
	}
	for o := range List(t.Context(), &bucket, Accepted, time.Time{}, time.Time{}) {
		if o.Key != names[0] {
			t.Errorf("after the end: %s", o.Key)
		}
		break
	}
}

func TestProofsAreFoundByTheIDsThatTheyConcern(t *testing.T) {
	var bucket objects.Memory
	one, other := uuid.New().String(), uuid.New().String()
	first := parkedAt(Invalid, noon, one, other, one)
	first.DeliveryID = strings.ToUpper(first.DeliveryID)
	names := []string{put(t, &bucket, first),
		put(t, &bucket, parkedAt(Conflict, noon.Add(-time.Hour), strings.ToUpper(one)))}
	put(t, &bucket, parkedAt(Accepted, noon, one))
	unknown := parkedAt(Invalid, noon.Add(time.Hour))
	unknown.DeliveryID = ""
	put(t, &bucket, unknown)
	for range 299 {
		put(t, &bucket, parkedAt(Invalid, noon.Add(time.Hour)))
	}
	read := 0
	all, err := Concerned(t.Context(), &bucket, func(more int) { read += more })
	if err != nil || read != 302 {
		t.Errorf("%d were read, %v", read, err)
	}
	for id, want := range map[string][]string{one: names, other: names[:1], uuid.New().String(): nil,
		strings.ToLower(first.DeliveryID): names[:1], "": nil} {
		if got := all[id]; !slices.Equal(got, want) {
			t.Errorf("%s: %v", id, got)
		}
	}
	for _, id := range []string{first.DeliveryID, strings.ToLower(first.DeliveryID)} {
		if got, err := FindDelivery(t.Context(), &bucket, id); err != nil || !slices.Equal(got, names[:1]) {
			t.Errorf("%v, %v", got, err)
		}
	}
	// What ends between the list and the reading is not an error. What was changed is.
	bucket.Fails = func(_ context.Context, call, key string) error {
		if call == "Get" && key == names[0] {
			return objects.ErrNotFound
		}
		return nil
	}
	if all, err := Concerned(t.Context(), &bucket, nil); err != nil || !slices.Equal(all[one], names[1:]) {
		t.Errorf("%v, %v", all[one], err)
	}
	bucket.Fails = nil
	if err := bucket.Put(t.Context(), names[0], []byte("{}")); err != nil {
		t.Fatal(err)
	}
	all, err = Concerned(t.Context(), &bucket, nil)
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), names[0]) || !slices.Equal(all[one], names[1:]) {
		t.Errorf("%v, %v", all[one], err)
	}
	// After an error, nothing more is read.
	var tried atomic.Int64
	bucket.Fails = func(ctx context.Context, call, _ string) error {
		if call == "Get" && ctx.Err() == nil {
			tried.Add(1)
			return errDown
		}
		return ctx.Err()
	}
	if _, err := Concerned(t.Context(), &bucket, nil); !errors.Is(err, errDown) || tried.Load() > 100 {
		t.Errorf("%d of 302 are read: %v", tried.Load(), err)
	}
}

var errDown = errors.New("bucket is down")

func TestEveryErrorOfTheBucketIsReturned(t *testing.T) {
	fails := "none" // the beginning of the keys and prefixes for which the bucket fails
	bucket := &objects.Memory{Fails: func(_ context.Context, _, key string) error {
		if strings.HasPrefix(key, fails) {
			return errDown
		}
		return nil
	}}
	event := uuid.New().String()
	p := parkedAt(Conflict, noon, event)
	name := put(t, bucket, p)
	put(t, bucket, parkedAt(Invalid, noon))
	for what, test := range map[string]struct {
		prefixes []string
		do       func(ctx context.Context) error
	}{
		"Put": {[]string{"conflict/"}, func(ctx context.Context) error {
			_, _, err := Put(ctx, bucket, p)
			return err
		}},
		"Get": {[]string{"conflict/"}, func(ctx context.Context) error {
			_, err := Get(ctx, bucket, name)
			return err
		}},
		"List": {[]string{"conflict/"}, func(ctx context.Context) (err error) {
			for _, err = range List(ctx, bucket, Conflict, noon, noon.Add(time.Hour)) {
			}
			return err
		}},
		"FindDelivery": {[]string{"invalid/", "conflict/"}, func(ctx context.Context) error {
			_, err := FindDelivery(ctx, bucket, p.DeliveryID)
			return err
		}},
		"Concerned": {[]string{"invalid/", "conflict/", name}, func(ctx context.Context) error {
			_, err := Concerned(ctx, bucket, nil)
			return err
		}},
		"Decide": {[]string{"dismissed/"}, func(ctx context.Context) error {
			return Decide(ctx, bucket, Dismissed, name, Note{})
		}},
		"DecisionOn": {[]string{"dismissed/", "replayed/"}, func(ctx context.Context) error {
			_, _, err := DecisionOn(ctx, bucket, name)
			return err
		}},
		"CountOpen": {[]string{"dismissed/", "replayed/", "invalid/", "conflict/", "rejected/"},
			func(ctx context.Context) error {
				_, err := CountOpen(ctx, bucket)
				return err
			}},
	} {
		for _, prefix := range test.prefixes {
			if fails = "none"; test.do(t.Context()) != nil {
				t.Errorf("%s: %v", what, test.do(t.Context()))
			}
			if fails = prefix; !errors.Is(test.do(t.Context()), errDown) {
				t.Errorf("%s without %s: %v", what, prefix, test.do(t.Context()))
			}
		}
	}
}

func TestDecisionsAreStoredWithTheirNotes(t *testing.T) {
	var bucket objects.Memory
	next := func() string { return put(t, &bucket, parkedAt(Conflict, noon)) }
	open, replayed, dismissed, both := next(), next(), next(), next()
	request := put(t, &bucket, rejected("x"))
	note := Note{By: "arn:aws:iam::123456789012:user/ann", At: noon, Reason: "the service sent it again"}
	for _, name := range []string{replayed, both, request} {
		if err := Decide(t.Context(), &bucket, Replayed, name, Note{At: noon, Content: "stored"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{dismissed, both, dismissed} {
		if err := Decide(t.Context(), &bucket, Dismissed, name, note); err != nil {
			t.Fatal(err)
		}
		note.Reason = "a second decision" // the first one is kept
	}
	want := map[string]Decision{replayed: Replayed, dismissed: Dismissed, both: Replayed, request: Replayed}
	got, err := Decisions(t.Context(), &bucket)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	want[open] = Open
	for name, decision := range want {
		got, n, err := DecisionOn(t.Context(), &bucket, name)
		if got != decision || err != nil || (decision == Open) != (n == Note{}) {
			t.Errorf("%s: %s, %+v, %v", decision, got, n, err)
		}
	}
	note.Reason = "the service sent it again"
	if _, n, _ := DecisionOn(t.Context(), &bucket, dismissed); n != note {
		t.Errorf("got %+v", n)
	}
	if _, ok := bucket.Objects()["dismissed/"+dismissed]; !ok {
		t.Errorf("%q", bucket.Keys())
	}
	if err := Decide(t.Context(), &bucket, Dismissed, "x", note); !errors.Is(err, ErrName) {
		t.Error(err)
	}
	if err := bucket.Put(t.Context(), "dismissed/"+open, []byte("{")); err != nil {
		t.Fatal(err)
	}
	if decision, _, err := DecisionOn(t.Context(), &bucket, open); err == nil || decision != "" {
		t.Errorf("%q, %v", decision, err)
	}
}

func TestANoteIsLimited(t *testing.T) {
	var bucket objects.Memory
	name := put(t, &bucket, parkedAt(Invalid, noon))
	n := Note{By: "ann", At: noon}
	frame := len(`{"by":"ann","at":"2026-01-31T12:00:00.005Z","reason":""}`)
	for _, want := range []error{ErrNote, nil} { // one byte too many first
		n.Reason = strings.Repeat("x", MaxNote-frame)
		if want != nil {
			n.Reason += "x"
		}
		if err := n.Check(); err != want {
			t.Error(err)
		}
		if err := Decide(t.Context(), &bucket, Replayed, name, n); err != want {
			t.Error(err)
		}
	}
	if d, got, err := DecisionOn(t.Context(), &bucket, name); d != Replayed || got != n || err != nil {
		t.Errorf("%s, %+v, %v", d, got, err)
	}
}

func TestOnlyWhatIsStoredAndNotDecidedIsOpen(t *testing.T) {
	var bucket objects.Memory
	for _, reason := range []Reason{Invalid, Conflict, Invalid} {
		put(t, &bucket, parkedAt(reason, noon))
	}
	put(t, &bucket, rejected("x"))
	for _, d := range []Decision{Replayed, Dismissed} {
		// The note of what the retention has deleted remains.
		for _, name := range []string{put(t, &bucket, parkedAt(Conflict, noon)), parkedAt(Conflict, noon).Name()} {
			if err := Decide(t.Context(), &bucket, d, name, Note{At: noon}); err != nil {
				t.Fatal(err)
			}
		}
	}
	open, err := CountOpen(t.Context(), &bucket)
	if diff := cmp.Diff(map[Reason]int{Invalid: 2, Conflict: 1, Rejected: 1}, open); diff != "" || err != nil {
		t.Error(diff, err)
	}
}
