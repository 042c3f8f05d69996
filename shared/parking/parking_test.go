package parking_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook/shared/awstest"
	"payhook/shared/parking"
	"payhook/shared/uuid"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 123e6, time.UTC)

func newLot() (*parking.Lot, *awstest.S3) {
	bucket := awstest.NewS3()
	bucket.MakeBucket("parking")
	return parking.NewLot(bucket, "parking"), bucket
}

func parked(at time.Time, events ...string) parking.Parked {
	return parking.Parked{
		Reason: parking.Conflict, Cause: "why", ParkedAt: at, DeliveryID: uuid.New(), EventIDs: events,
		Payload: []byte("\x00 bytes \xff"), Timestamp: "1", KeyID: uuid.New(), Signature: "c2ln", JWK: []byte(`{"kty":"RSA"}`),
	}
}

func park(t *testing.T, lot *parking.Lot, p parking.Parked) string {
	t.Helper()
	name, err := lot.Park(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func TestWhatIsParkedComesBackWhole(t *testing.T) {
	lot, _ := newLot()
	want := parked(noon, uuid.New())
	got, err := lot.Get(t.Context(), park(t, lot, want))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := lot.Get(t.Context(), "2026/01/31/12/none"); !errors.Is(err, parking.ErrNotParked) {
		t.Errorf("got %v", err)
	}
}

func TestListingIsByTime(t *testing.T) {
	lot, _ := newLot()
	var names []string
	for _, after := range []time.Duration{48 * time.Hour, 0, time.Minute, -time.Millisecond, 13 * time.Hour} {
		names = append(names, park(t, lot, parked(noon.Add(after))))
	}
	slices.Sort(names)
	list := func(from, until time.Time) (got []string) {
		t.Helper()
		if err := lot.List(t.Context(), from, until, func(name string) bool {
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
		t.Errorf("from noon on, before one at night: %v", got)
	}
	for i, name := range names[:2] {
		if at, err := parking.TimeOf(name); err != nil || !at.Equal(noon.Add(time.Duration(i-1)*time.Millisecond)) {
			t.Errorf("%s is of %s, %v", name, at, err)
		}
	}
}

func TestItIsFoundByItsIDs(t *testing.T) {
	lot, _ := newLot()
	one, other := uuid.New(), uuid.New()
	first := parked(noon, one, other)
	names := []string{park(t, lot, first), park(t, lot, parked(noon.Add(time.Hour), strings.ToUpper(one), "no id"))}
	if got, err := lot.FindEvent(t.Context(), one); err != nil || !slices.Equal(got, names) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := lot.FindEvent(t.Context(), strings.ToUpper(other)); err != nil || !slices.Equal(got, names[:1]) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := lot.FindDelivery(t.Context(), first.DeliveryID); err != nil || !slices.Equal(got, names[:1]) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := lot.FindEvent(t.Context(), uuid.New()); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestWhatCannotBeFoundLaterIsNotParked(t *testing.T) {
	lot, bucket := newLot()
	down := errors.New("bucket is down")
	for _, prefix := range []string{"event/", "delivery/", "parked/"} {
		bucket.Fails = func(_, key string) error {
			if strings.HasPrefix(key, prefix) {
				return down
			}
			return nil
		}
		if name, err := lot.Park(t.Context(), parked(noon, uuid.New())); !errors.Is(err, down) || name != "" {
			t.Errorf("%s: got %q, %v", prefix, name, err)
		}
		for key := range bucket.Objects("parking") {
			if strings.HasPrefix(key, "parked/") {
				t.Errorf("%s is parked and can't be found", key)
			}
		}
	}
}

func TestReplayedIsRemembered(t *testing.T) {
	lot, _ := newLot()
	name := park(t, lot, parked(noon))
	if err := lot.MarkReplayed(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if got, err := lot.Replayed(t.Context()); err != nil || !got[name] || len(got) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
}
