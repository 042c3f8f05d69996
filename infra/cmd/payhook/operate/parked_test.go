package operate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/parking"
)

// about says which events what is parked is about.
func about(ids ...string) func(*parking.Parked) {
	return func(p *parking.Parked) { p.EventIDs = ids }
}

func TestNothingParkedIsFine(t *testing.T) {
	w := newWorld(t)
	out, _ := w.expect(0, "parked", "list")
	w.contains(out, "nothing is parked")
	if out, _ = w.expect(0, "parked", "list", "--json"); out != "" {
		t.Errorf("%q", out)
	}
}

func TestListIsByTimeWithStates(t *testing.T) {
	w := newWorld(t)
	last, _ := w.park(time.Minute, parking.Unpublishable)
	first, _ := w.park(48*time.Hour, parking.Conflict)
	middle, _ := w.park(time.Hour, parking.Invalid)
	other, _ := w.park(30*time.Minute, parking.Invalid)
	w.replayed(middle)
	if err := w.store.Settle(t.Context(), other, parking.Note{Reason: "why"}); err != nil {
		t.Fatal(err)
	}
	// What is decided is not listed unless asked for.
	out, _ := w.expect(cli.StatusFailed, "parked", "list", "--json")
	same(t, "open", list(lines[listed](t, out)), []string{first, last})
	out, _ = w.expect(cli.StatusFailed, "parked", "list", "--state", "any")
	w.contains(out, "4 listed, 2 of them open", "2026-01-29T12:00:00.000Z  conflict       open      "+first,
		"2026-01-31T11:00:00.000Z  invalid        replayed  "+middle,
		"2026-01-31T11:30:00.000Z  invalid        settled   "+other)
	if strings.Count(out, "STATE") != 1 {
		t.Errorf("%s", out)
	}
	out, _ = w.expect(cli.StatusFailed, "parked", "list", "--state", "any", "--json")
	want := []listed{
		{Name: first, Time: noon.Add(-48 * time.Hour), Reason: "conflict", State: "open"},
		{Name: middle, Time: noon.Add(-time.Hour), Reason: "invalid", State: "replayed"},
		{Name: other, Time: noon.Add(-30 * time.Minute), Reason: "invalid", State: "settled"},
		{Name: last, Time: noon.Add(-time.Minute), Reason: "unpublishable", State: "open"},
	}
	if diff := cmp.Diff(want, lines[listed](t, out)); diff != "" {
		t.Error(diff)
	}
	if w.s3.Calls("GetObject") > 0 {
		t.Error("it read what it does not show")
	}
	w.replayed(first)
	w.replayed(last)
	out, _ = w.expect(0, "parked", "list")
	w.contains(out, "nothing is parked")
	w.expect(0, "parked", "list", "--state", "any")
}

func TestFiltersFindExactlyWhatTheyName(t *testing.T) {
	w := newWorld(t)
	event, other := uuid.New().String(), uuid.New().String()
	old, oldOnes := w.park(48*time.Hour, parking.Conflict, about(event, other))
	mid, midOnes := w.park(25*time.Hour, parking.Invalid, about(event))
	now, _ := w.park(time.Hour, parking.Conflict, about(other))
	w.replayed(mid)
	for _, test := range []struct {
		filters string
		want    []string
	}{
		{"", []string{old, now}},
		{"--state any", []string{old, mid, now}},
		{"--from 24h", []string{now}},
		{"--from 25h --state any", []string{mid, now}},
		{"--until 25h", []string{old}},
		{"--from 2d --until 24h --state any", []string{old, mid}},
		{"--from 2026-01-30T12:00:00+01:00 --state any", []string{mid, now}},
		{"--from 2026-01-31T00:00:00Z --until 2026-01-31T06:00:00-06:00", []string{now}},
		{"--reason conflict", []string{old, now}},
		{"--reason unpublishable", nil},
		{"--state replayed", []string{mid}},
		{"--state open", []string{old, now}},
		{"--state any --event " + event, []string{old, mid}},
		{"--state any --event " + strings.ToUpper(event), []string{old, mid}},
		{"--event " + other + " --from 24h", []string{now}},
		{"--event " + other + " --until 24h", []string{old}},
		{"--state any --event " + event + " --reason invalid", []string{mid}},
		{"--event " + event + " --reason invalid", nil},
		{"--event " + event + " --state open", []string{old}},
		{"--delivery " + oldOnes.DeliveryID, []string{old}},
		{"--state any --delivery " + midOnes.DeliveryID + " --event " + event, []string{mid}},
		{"--delivery " + midOnes.DeliveryID + " --event " + other, nil},
		{"--event " + uuid.New().String(), nil},
	} {
		out, err, _ := w.operate(append([]string{"parked", "list", "--json"}, strings.Fields(test.filters)...)...)
		same(t, test.filters+" "+err, list(lines[listed](t, out)), test.want)
	}
	// "24h ago" is one argument of a shell.
	out, _, _ := w.operate("parked", "list", "--json", "--from", "24h ago")
	same(t, "24h ago", list(lines[listed](t, out)), []string{now})
}

// The index of what is parked is written before it.
func TestWhatFailedToBeParkedIsNotListed(t *testing.T) {
	w := newWorld(t)
	event := uuid.New().String()
	w.s3.Fails = func(_, key string) error {
		if strings.HasPrefix(key, "parked/") {
			return errors.New("down")
		}
		return nil
	}
	if _, _, err := w.store.Park(t.Context(),
		parking.Parked{Reason: parking.Invalid, ParkedAt: w.now, EventIDs: []string{event}}); err == nil {
		t.Fatal("parked")
	}
	w.s3.Fails = nil
	// Another one has the same time.
	if _, _, err := w.store.Park(t.Context(), parking.Parked{Reason: parking.Invalid, ParkedAt: w.now}); err != nil {
		t.Fatal(err)
	}
	out, _ := w.expect(0, "parked", "list", "--event", event)
	w.contains(out, "nothing is parked")
}

func TestWhatIsParkedIsShownWithItsProof(t *testing.T) {
	w := newWorld(t)
	name, p := w.park(time.Hour, parking.Conflict)
	sum := sha256.Sum256(p.Payload)
	for _, given := range []string{name, "parked/" + name} {
		out, _ := w.expect(0, "parked", "show", given)
		w.contains(out, name, "conflict", "why", "2026-01-31T11:00:00.000Z (1h ago)", p.DeliveryID, p.EventIDs[0],
			"17 bytes",
			hex.EncodeToString(sum[:]), p.Timestamp, p.KeyID, p.Signature, string(p.JWK))
	}
	out, _ := w.expect(0, "parked", "show", name, "--json")
	got := document[proof](t, out)
	want := proof{Name: name, Time: p.ParkedAt, State: "open", Parked: p, PayloadBytes: 17,
		PayloadSHA256: hex.EncodeToString(sum[:])}
	want.Payload = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	e := w.record(2 * time.Hour)
	name, _ = w.park(time.Hour, parking.Unpublishable, asEvent(e))
	out, _ = w.expect(0, "parked", "show", name)
	w.contains(out, "unpublishable", e.DeliveryID, "20 by redrive", hex.EncodeToString(e.Digest[:]),
		"2026-01-31T10:00:00.000Z (2h ago)")
	out, _ = w.expect(0, "parked", "show", name, "--json")
	w.contains(out, `"digest":"`+hex.EncodeToString(e.Digest[:])+`"`, `"attempts":20`)
}

func TestADecisionIsShown(t *testing.T) {
	w := newWorld(t)
	name, _ := w.park(time.Hour, parking.Conflict)
	note := parking.Note{By: callerARN, At: noon.Add(-time.Minute), Reason: "the first version stays", Version: "first"}
	if err := w.store.Settle(t.Context(), name, note); err != nil {
		t.Fatal(err)
	}
	out, _ := w.expect(0, "parked", "show", name)
	w.contains(out, "settled", "(1m ago)", note.By, note.Reason, "version    first")
	out, _ = w.expect(0, "parked", "show", name, "--json")
	if got := document[proof](t, out); got.State != "settled" || got.Decision == nil || *got.Decision != note {
		t.Errorf("%s", out)
	}
}

func TestThePayloadIsWrittenByteForByte(t *testing.T) {
	w := newWorld(t)
	name, p := w.park(time.Hour, parking.Invalid,
		func(p *parking.Parked) { p.Payload = []byte("\xef\xbb\xbf{\r\n\x00\xff") })
	out, _ := w.expect(0, "parked", "show", name, "--payload")
	if !bytes.Equal([]byte(out), p.Payload) {
		t.Errorf("%q", out)
	}
	e := w.record(time.Hour)
	name, _ = w.park(time.Hour, parking.Unpublishable, asEvent(e))
	if out, _ = w.expect(0, "parked", "show", name, "--payload"); out != string(e.Detail) {
		t.Errorf("%q", out)
	}
}

func TestWhatIsNotParkedIsNotShown(t *testing.T) {
	w := newWorld(t)
	for _, flags := range [][]string{nil, {"--payload"}, {"--json"}} {
		out, err := w.expect(cli.StatusFailed,
			append([]string{"parked", "show", "2026/01/31/12/20260131T120000.000Z-invalid-0b7e4c1e.json"}, flags...)...)
		w.contains(err, "nothing is parked under the name 2026/01/31/12/")
		if out != "" {
			t.Errorf("%q", out)
		}
	}
}
