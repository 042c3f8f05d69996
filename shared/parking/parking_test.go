package parking_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/aws/client"
	"payhook.example/shared/awstest"
	"payhook.example/shared/parking"
	"payhook.example/shared/signature"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 123e6, time.UTC)

func newStore() (*parking.Store, *awstest.S3) {
	bucket := awstest.NewS3()
	bucket.MakeBucket("parking")
	return parking.NewStore(bucket, "parking"), bucket
}

func parked(at time.Time, events ...string) parking.Parked {
	return parking.Parked{
		Reason: parking.Conflict, Cause: "why", ParkedAt: at, DeliveryID: uuid.New().String(), EventIDs: events,
		Payload: []byte("\x00 bytes \xff"), Timestamp: signature.FormatTime(at),
		KeyID: uuid.New().String(), Signature: "c2ln", JWK: []byte(`{"kty":"RSA"}`),
	}
}

func park(t *testing.T, store *parking.Store, p parking.Parked) string {
	t.Helper()
	name, before, err := store.Park(t.Context(), p)
	if err != nil || before {
		t.Fatalf("parked before: %v, %v", before, err)
	}
	return name
}

func TestGetReturnsWhatWasParked(t *testing.T) {
	store, _ := newStore()
	want := parked(noon, uuid.New().String())
	got, err := store.Get(t.Context(), park(t, store, want))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := store.Get(t.Context(), "2026/01/31/12/none"); !errors.Is(err, parking.ErrNotParked) {
		t.Errorf("got %v", err)
	}
}

func TestListIsInOrderOfTime(t *testing.T) {
	store, _ := newStore()
	var names []string
	for _, after := range []time.Duration{48 * time.Hour, 0, time.Minute, -time.Millisecond, 13 * time.Hour} {
		names = append(names, park(t, store, parked(noon.Add(after))))
	}
	slices.Sort(names)
	list := func(from, until time.Time) (got []string) {
		t.Helper()
		if err := store.List(t.Context(), from, until, func(name string) bool {
			got = append(got, name)
			return true
		}); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := list(time.Time{}, time.Time{}); !slices.Equal(got, names) {
		t.Errorf("got %v", got)
	}
	if got := list(noon, noon.Add(13*time.Hour)); !slices.Equal(got, names[1:3]) {
		t.Errorf("from noon until before one at night: %v", got)
	}
	for i, name := range names[:2] {
		if at, err := parking.TimeOf(name); err != nil || !at.Equal(noon.Add(time.Duration(i-1)*time.Millisecond)) {
			t.Errorf("%s has the time %s, %v", name, at, err)
		}
	}
}

func TestFindByDeliveryIDAndEventID(t *testing.T) {
	store, _ := newStore()
	one, other := uuid.New().String(), uuid.New().String()
	first := parked(noon, one, other)
	names := []string{park(t, store, first),
		park(t, store, parked(noon.Add(time.Hour), strings.ToUpper(one), "not an id"))}
	if got, err := store.FindEvent(t.Context(), one); err != nil || !slices.Equal(got, names) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := store.FindEvent(t.Context(), strings.ToUpper(other)); err != nil || !slices.Equal(got, names[:1]) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := store.FindDelivery(t.Context(), first.DeliveryID); err != nil || !slices.Equal(got, names[:1]) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := store.FindEvent(t.Context(), uuid.New().String()); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

// The index is limited, so that a delivery of many events is parked in the time of an
// invocation.
func TestTheIndexIsLimitedAndHoldsOnlyIDs(t *testing.T) {
	for name, test := range map[string]struct {
		deliveryID string
		ids        []string
		want       int
	}{
		"none":                {"", nil, 0},
		"no ids":              {"not an id", []string{"", "../x", "not an id"}, 0},
		"as many as possible": {uuid.New().String(), ids(999), 1000},
		"one more":            {uuid.New().String(), ids(1000), 1000},
		"many more":           {"not an id", ids(1100), 1000},
	} {
		store, bucket := newStore()
		p := parked(noon, test.ids...)
		p.DeliveryID = test.deliveryID
		park(t, store, p)
		if n := len(bucket.Objects("parking")) - 1; n != test.want {
			t.Errorf("%s: %d index objects, want %d", name, n, test.want)
		}
	}
}

func ids(n int) (ids []string) {
	for range n {
		ids = append(ids, uuid.New().String())
	}
	return ids
}

func TestEveryErrorOfS3IsReturned(t *testing.T) {
	store, bucket := newStore()
	name := park(t, store, parked(noon, uuid.New().String()))
	down := errors.New("bucket is down")
	for what, do := range map[string]func() error{
		"Park":         func() error { _, _, err := store.Park(t.Context(), parked(noon)); return err },
		"Get":          func() error { _, err := store.Get(t.Context(), name); return err },
		"MarkReplayed": func() error { return store.MarkReplayed(t.Context(), name, parking.Note{}) },
		"Dismiss":      func() error { return store.Dismiss(t.Context(), name, parking.Note{}) },
		"States":       func() error { _, err := store.States(t.Context()); return err },
		"CountOpen":    func() error { _, err := store.CountOpen(t.Context()); return err },
		"Decision":     func() error { _, _, err := store.Decision(t.Context(), name); return err },
		"FindEvent":    func() error { _, err := store.FindEvent(t.Context(), uuid.New().String()); return err },
		"FindDelivery": func() error { _, err := store.FindDelivery(t.Context(), uuid.New().String()); return err },
		"List": func() error {
			return store.List(t.Context(), noon, noon, func(string) bool { return true })
		},
	} {
		bucket.Fails = nil
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		bucket.Fails = func(string, string) error { return down }
		if err := do(); !errors.Is(err, down) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	for _, prefix := range []string{"parked/", "replayed/", "dismissed/"} {
		bucket.Fails = func(_, key string) error {
			if strings.HasPrefix(key, prefix) {
				return down
			}
			return nil
		}
		if _, err := store.CountOpen(t.Context()); !errors.Is(err, down) {
			t.Errorf("CountOpen without %s: got %v", prefix, err)
		}
	}
}

// cut is an S3 whose objects break off.
type cut struct {
	*awstest.S3
	err error
}

func (c cut) GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error) {
	body := io.MultiReader(strings.NewReader("{}"), iotest.ErrReader(c.err))
	return &s3.GetObjectOutput{Body: io.NopCloser(body)}, nil
}

func TestAnObjectThatCannotBeReadIsAnError(t *testing.T) {
	reset := errors.New("connection reset")
	_, bucket := newStore()
	if p, err := parking.NewStore(cut{bucket, reset}, "parking").Get(t.Context(), "x"); !errors.Is(err, reset) {
		t.Errorf("got %+v, %v", p, err)
	}
	for _, key := range []string{"parked/x", "dismissed/x"} {
		if _, err := bucket.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String("parking"), Key: &key,
			Body: strings.NewReader(`{"reason":"invalid"`)}); err != nil {
			t.Fatal(err)
		}
	}
	store := parking.NewStore(bucket, "parking")
	p, err := store.Get(t.Context(), "x")
	if err == nil || !strings.HasPrefix(err.Error(), "parking: parked/x: ") {
		t.Errorf("got %+v, %v", p, err)
	}
	if state, _, err := store.Decision(t.Context(), "x"); err == nil || state != "" {
		t.Errorf("got %q, %v", state, err)
	}
}

func TestParkWritesTheIndexFirst(t *testing.T) {
	store, bucket := newStore()
	down := errors.New("bucket is down")
	for _, prefix := range []string{"event/", "delivery/", "parked/"} {
		bucket.Fails = func(_, key string) error {
			if strings.HasPrefix(key, prefix) {
				return down
			}
			return nil
		}
		if name, _, err := store.Park(t.Context(), parked(noon, uuid.New().String())); !errors.Is(err, down) ||
			name != "" {
			t.Errorf("%s: got %q, %v", prefix, name, err)
		}
		for key := range bucket.Objects("parking") {
			if strings.HasPrefix(key, "parked/") {
				t.Errorf("%s is parked but not in the index", key)
			}
		}
	}
}

func TestDecisionsAreStoredWithTheirNotes(t *testing.T) {
	store, _ := newStore()
	open, replayed, dismissed, both := park(t, store, parked(noon)), park(t, store, parked(noon)),
		park(t, store, parked(noon)),
		park(t, store, parked(noon))
	note := parking.Note{By: "arn:aws:iam::123456789012:user/ann", At: noon, Reason: "the service sent it again"}
	for _, name := range []string{replayed, both} {
		if err := store.MarkReplayed(t.Context(), name, parking.Note{At: noon, Version: "parked"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{dismissed, both, dismissed} {
		if err := store.Dismiss(t.Context(), name, note); err != nil {
			t.Fatal(err)
		}
		note.Reason = "a second decision" // the first one is kept
	}
	want := map[string]parking.State{replayed: parking.Replayed, dismissed: parking.Dismissed, both: parking.Replayed}
	got, err := store.States(t.Context())
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	want[open] = parking.Open
	for name, state := range want {
		got, n, err := store.Decision(t.Context(), name)
		if got != state || err != nil || state == parking.Open && n != (parking.Note{}) {
			t.Errorf("%s: %s, %+v, %v", state, got, n, err)
		}
	}
	if _, n, _ := store.Decision(t.Context(), dismissed); n.Reason != "the service sent it again" ||
		!n.At.Equal(noon) ||
		n.By != note.By {
		t.Errorf("got %+v", n)
	}
}

func TestOnlyWhatIsStillParkedAndNotDecidedIsOpen(t *testing.T) {
	store, _ := newStore()
	const want = 3
	for range want {
		park(t, store, parked(noon))
	}
	for _, decide := range []func(context.Context, string, parking.Note) error{store.MarkReplayed, store.Dismiss} {
		if err := decide(t.Context(), park(t, store, parked(noon)), parking.Note{At: noon}); err != nil {
			t.Fatal(err)
		}
		// The note of what the retention has deleted remains.
		if err := decide(t.Context(), "2020/01/31/12/20200131T120000.000Z-invalid-gone.json",
			parking.Note{At: noon}); err != nil {
			t.Fatal(err)
		}
	}
	if open, err := store.CountOpen(t.Context()); open != want || err != nil {
		t.Errorf("%d are open (%v), want %d", open, err, want)
	}
}

func TestParkStoresTheSameContentOnce(t *testing.T) {
	store, bucket := newStore()
	first := parked(noon, uuid.New().String(), uuid.New().String())
	name := park(t, store, first)
	objects := bucket.Objects("parking")
	again := first
	again.ParkedAt = noon.Add(time.Hour)
	again.EventIDs = []string{first.EventIDs[1], first.EventIDs[0]}
	if got, before, err := store.Park(t.Context(), again); got != name || !before || err != nil {
		t.Errorf("got %s, %v, %v, want %s", got, before, err, name)
	}
	if diff := cmp.Diff(objects, bucket.Objects("parking")); diff != "" {
		t.Errorf("the second time changed the bucket: %s", diff)
	}

	event := parking.Parked{
		Reason: parking.Unpublishable, ParkedAt: noon.Add(time.Hour), DeliveryID: uuid.New().String(),
		EventIDs: []string{uuid.New().String()},
		Event:    []byte("{}"), Digest: []byte("digest"), RecordedAt: noon, Attempts: 20,
	}
	name = park(t, store, event)
	event.Attempts, event.ParkedAt = 21, noon.Add(2*time.Hour)
	if got, before, err := store.Park(t.Context(), event); got != name || !before || err != nil {
		t.Errorf("got %s, %v, %v, want %s", got, before, err, name)
	}
	// The event was replayed and failed again. It is parked a second time.
	for _, after := range []time.Duration{time.Millisecond, 24 * time.Hour} {
		event.RecordedAt = noon.Add(after)
		if got := park(t, store, event); got == name {
			t.Errorf("an event that was recorded again after %s has the same name", after)
		}
	}
}

func TestParkNamesDifferentContentDifferently(t *testing.T) {
	store, _ := newStore()
	first := parked(noon, uuid.New().String())
	names := map[string]string{park(t, store, first): "the first"}
	for what, change := range map[string]func(p *parking.Parked){
		"proof":  func(p *parking.Parked) { p.Payload = []byte("other") }, // package evidence tests its digest
		"reason": func(p *parking.Parked) { p.Reason = parking.Invalid },
		"event ids": func(p *parking.Parked) {
			p.EventIDs = append(slices.Clone(p.EventIDs),
				uuid.New().String())
		},
		"digest":                                func(p *parking.Parked) { p.Digest = []byte{1} },
		"content of an event":                   func(p *parking.Parked) { p.EventDigests = [][]byte{{1}} },
		"content, in the same number of events": func(p *parking.Parked) { p.EventDigests = [][]byte{{2}} },
	} {
		p := first
		change(&p)
		name := park(t, store, p)
		if other, ok := names[name]; ok {
			t.Errorf("another %s has the name of %s", what, other)
		}
		names[name] = "another " + what
	}
}

func TestNamesContainTheSignedTime(t *testing.T) {
	store, _ := newStore()
	for timestamp, want := range map[string]string{
		"2026-01-31T12:00:00.123Z":      "2026/01/31/12/20260131T120000.123Z-conflict-",
		"1769860800":                    "2026/01/31/12/20260131T120000.000Z-conflict-",
		"Sat, 31 Jan 2026 12:00:00 GMT": "2026/01/31/12/20260131T120000.000Z-conflict-",
		"1769860800123":                 "2026/01/31/12/20260131T120000.123Z-conflict-",
		// With timestampTolerance off, a timestamp can be any text.
		"":                     "1970/01/01/00/19700101T000000.000Z-conflict-",
		"soon":                 "1970/01/01/00/19700101T000000.000Z-conflict-",
		"0001-01-01T00:00:00Z": "1970/01/01/00/19700101T000000.000Z-conflict-",
		"2026-01-31T12:00:00":  "1970/01/01/00/19700101T000000.000Z-conflict-",
		"1971-01-31T12:00:00Z": "1971/01/31/12/19710131T120000.000Z-conflict-",
		"1970-06-30T12:00:00Z": "1970/06/30/12/19700630T120000.000Z-conflict-",
		"1969-12-31T23:59:59Z": "1970/01/01/00/19700101T000000.000Z-conflict-",
		"9999-12-31T23:59:59Z": "9999/12/31/23/99991231T235959.000Z-conflict-",
		// In UTC, that is in the year 10000.
		"Fri, 31 Dec 9999 23:59:59 -0100": "1970/01/01/00/19700101T000000.000Z-conflict-",
		"9999-12-31T23:59:59-01:00":       "1970/01/01/00/19700101T000000.000Z-conflict-",
	} {
		p := parked(noon)
		p.Timestamp = timestamp
		name := park(t, store, p)
		if !strings.HasPrefix(name, want) || !regexp.MustCompile(`-[0-9a-f]{32}\.json$`).MatchString(name) {
			t.Errorf("%q: %s", timestamp, name)
		}
		if got, err := store.Get(t.Context(), name); err != nil || got.Timestamp != timestamp {
			t.Errorf("%q: %v", timestamp, err)
		}
	}
}

// cutOff is an answer that is lost with its connection.
const cutOff = 0

// storeAnswering returns a Store whose S3 client, that of the functions, gets these
// statuses for its writes.
func storeAnswering(t *testing.T, answers ...int) *parking.Store {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("If-None-Match") != "*" || len(answers) == 0 {
			t.Errorf("%s %s, If-None-Match %q", r.Method, r.URL, r.Header.Get("If-None-Match"))
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		status := answers[0]
		answers = answers[1:]
		if status == cutOff {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
		if code := map[int]string{409: "ConditionalRequestConflict", 412: "PreconditionFailed", 500: "InternalError",
			403: "AccessDenied"}[status]; code != "" {
			_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code></Error>")
		}
	}))
	t.Cleanup(server.Close)
	client := s3.New(s3.Options{
		Region: "eu-west-1", BaseEndpoint: &server.URL, UsePathStyle: true,
		HTTPClient:  client.NewConnections(1).Client(),
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) {
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
		}),
	})
	t.Cleanup(func() {
		if len(answers) > 0 {
			t.Errorf("%d responses were not used", len(answers))
		}
	})
	return parking.NewStore(client, "parking")
}

func TestParkHandlesTheResponsesOfS3(t *testing.T) {
	p := parked(noon)
	p.DeliveryID, p.EventIDs = "", nil // one object
	for _, test := range []struct {
		name    string
		answers []int
		before  bool
		fails   bool
	}{
		{name: "written", answers: []int{200}},
		{name: "exists already", answers: []int{412}, before: true},
		{name: "another write is in progress", answers: []int{409, 200}},
		{name: "the other write was first", answers: []int{409, 412}},
		{name: "its own write, whose response was lost", answers: []int{500, 412}},
		{name: "denied", answers: []int{403}, fails: true},
		{name: "down", answers: []int{500, 500, 500}, fails: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			name, before, err := storeAnswering(t, test.answers...).Park(t.Context(), p)
			if (err != nil) != test.fails || before != test.before || (name == "") != test.fails {
				t.Errorf("got %q, %v, %v", name, before, err)
			}
		})
	}
}

// S3 has stored the object, and the connection breaks before its answer. The connection
// was open before.
func TestAFirstWriteIsReportedAsFirstWhenItsAnswerIsLost(t *testing.T) {
	one, other := parked(noon), parked(noon)
	one.DeliveryID, other.DeliveryID = "", "" // one object each
	store := storeAnswering(t, 200, cutOff, 412)
	park(t, store, one)
	park(t, store, other)
}

// A bucket lists 1,000 objects at a time.
func TestListReadsEveryPage(t *testing.T) {
	store, bucket := newStore()
	const n = 2100
	event := uuid.New().String()
	for i := range n {
		name := fmt.Sprintf("2026/01/31/12/20260131T120000.%03dZ-conflict-%032x.json", i%1000, i)
		for _, key := range []string{"parked/" + name, "replayed/" + strings.ReplaceAll(name, "/", "-"),
			"event/" + event + "/" + strings.ReplaceAll(name, "/", "-")} {
			if _, err := bucket.PutObject(t.Context(),
				&s3.PutObjectInput{Bucket: aws.String("parking"), Key: &key}); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A listing ends with the page that ends it.
	visited := 0
	if err := store.List(t.Context(), time.Time{}, noon, func(string) bool { visited++; return true }); err != nil ||
		visited != 2*123+100 || bucket.Calls("ListObjectsV2") != 1 {
		t.Errorf("visited %d before noon with %d calls, %v", visited, bucket.Calls("ListObjectsV2"), err)
	}
	visited = 0
	if err := store.List(t.Context(), time.Time{}, time.Time{}, func(string) bool {
		visited++
		return visited < 3
	}); err != nil || visited != 3 || bucket.Calls("ListObjectsV2") != 2 {
		t.Errorf("visited %d with %d calls, %v", visited, bucket.Calls("ListObjectsV2"), err)
	}
	// Without the continuation token, a listing would start again and never end.
	pages := 0
	bucket.Fails = func(string, string) error {
		if pages++; pages > 3*3+1 { // plus one page without dismissed objects
			return errors.New("too many pages")
		}
		return nil
	}
	found := 0
	if err := store.List(t.Context(), time.Time{}, time.Time{},
		func(string) bool { found++; return true }); err != nil ||
		found != n {
		t.Errorf("listed %d, %v", found, err)
	}
	if names, err := store.FindEvent(t.Context(), event); err != nil || len(names) != n {
		t.Errorf("found %d, %v", len(names), err)
	}
	if names, err := store.States(t.Context()); err != nil || len(names) != n {
		t.Errorf("%d replayed, %v", len(names), err)
	}
}
