package operate

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/v2"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/awstest"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
)

// about says which events what is parked is about.
func about(ids ...string) func(*parking.Parked) {
	return func(p *parking.Parked) { p.EventIDs = ids }
}

func TestParkedListHasTimesAndStates(t *testing.T) {
	w := newWorld(t)
	open, _ := w.park(48*time.Hour, parking.Conflict)
	replayed, _ := w.park(time.Hour, parking.Invalid)
	w.replayed(replayed)
	dismissed, _ := w.park(30*time.Minute, parking.Unpublishable)
	if err := w.store.Dismiss(t.Context(), dismissed, parking.Note{Reason: "why"}); err != nil {
		t.Fatal(err)
	}
	out, err := w.expect(0, "parked", "list", "--state", "any")
	w.contains(out, "TIME ", "2026-01-29T12:00:00.000Z (2d ago)   conflict       open       "+open+"\n",
		"2026-01-31T11:00:00.000Z (1h ago)   invalid        replayed   "+replayed+"\n",
		"2026-01-31T11:30:00.000Z (30m ago)  unpublishable  dismissed  "+dismissed+"\n")
	w.contains(err, "3 listed, 1 of them open")
	out, _ = w.expect(0, "parked", "list", "--json")
	want := []listed{{noon.Add(-48 * time.Hour), "conflict", "open", open}}
	if diff := cmp.Diff(want, lines[listed](t, out)); diff != "" {
		t.Error(diff)
	}
	if w.s3.Calls("GetObject") > 0 {
		t.Error("it read what it does not show")
	}
	w.replayed(open)
	if out, _ = w.expect(0, "parked", "list"); out != "" {
		t.Errorf("%q", out)
	}
}

func TestFiltersFindExactlyWhatTheyName(t *testing.T) {
	w := newWorld(t)
	event, other := uuid.New().String(), uuid.New().String()
	old, delivery := w.park(48*time.Hour, parking.Conflict, about(event, other))
	mid, _ := w.park(25*time.Hour, parking.Invalid, about(event))
	now, _ := w.park(time.Hour, parking.Conflict, about(other))
	w.replayed(mid)
	for filters, want := range map[string][]string{
		"":                                  {old, now},
		"--state any":                       {old, mid, now},
		"--state replayed":                  {mid},
		"--from 25h --state any":            {mid, now},
		"--until 25h":                       {old},
		"--from 2d --until 24h --state any": {old, mid},
		"--from 2026-01-30T12:00:00+01:00 --state any":  {mid, now},
		"--reason unpublishable":                        nil,
		"--state any --event " + strings.ToUpper(event): {old, mid},
		"--event " + other + " --from 24h":              {now},
		"--event " + other + " --until 24h":             {old},
		"--state any --reason invalid --event " + event: {mid},
		"--delivery " + delivery.DeliveryID:             {old},
		"--delivery " + uuid.New().String():             nil,
	} {
		out, err, _ := w.operate(append([]string{"parked", "list", "--json"}, strings.Fields(filters)...)...)
		var got []string
		for _, l := range lines[listed](t, out) {
			got = append(got, l.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q: %s", filters, got, want, err)
		}
	}
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
	w.expect(cli.StatusUnreachable, "parked", "list", "--event", event)
	w.s3.Fails = nil
	w.expect(0, "parked", "list", "--event", event)
}

func TestParkedIsShownWithProofAndDecision(t *testing.T) {
	w := newWorld(t)
	name, p := w.park(time.Hour, parking.Invalid)
	note := parking.Note{By: callerARN, At: noon.Add(-time.Minute), Reason: "sent again"}
	if err := w.store.Dismiss(t.Context(), name, note); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(p.Payload)
	out, _ := w.expect(0, "parked", "show", "parked/"+name)
	w.contains(out, name, "invalid", "why", "2026-01-31T11:00:00.000Z (1h ago)", p.DeliveryID, p.EventIDs[0],
		hex.EncodeToString(sum[:]), p.Timestamp, p.KeyID, p.Signature, "dismissed", "sent again", callerARN)
	out, _ = w.expect(0, "parked", "show", name, "--json")
	want := proof{Name: name, State: "dismissed", Parked: p, PayloadBytes: 17,
		PayloadSHA256: hex.EncodeToString(sum[:]), Decision: &note}
	want.Payload = nil
	if diff := cmp.Diff(want, document[proof](t, out)); diff != "" {
		t.Error(diff)
	}
	e := w.record(2 * time.Hour)
	name, _ = w.park(time.Hour, parking.Unpublishable, asEvent(e))
	out, _ = w.expect(0, "parked", "show", name)
	w.contains(out, "unpublishable", e.DeliveryID, "attempts       20", hex.EncodeToString(e.Digest[:]))
}

func TestWhatIsNotStoredIsNotShown(t *testing.T) {
	w := newWorld(t)
	for call, says := range map[string]string{
		"parked show 2026/01/31/12/20260131T120000.000Z-invalid-0b7e4c1e.json": "nothing is parked under the name",
		"captured show none": "no rejected webhook of this name",
	} {
		out, err := w.expect(cli.StatusFailed, strings.Fields(call)...)
		w.contains(err, says)
		if out != "" {
			t.Errorf("%q", out)
		}
	}
	out, err := w.expect(0, "captured", "list")
	if w.contains(err, "captureRejected is off or has ended"); out != "" {
		t.Errorf("%q", out)
	}
}

// capture stores a rejected webhook.
func (w *world) capture(payload []byte) string {
	w.t.Helper()
	name, err := w.store.Capture(w.t.Context(), parking.Captured{ReceivedAt: noon, RequestID: "request-1",
		Outcome: "key-unknown", Method: "POST", Path: "/", RawQuery: "a=b",
		Headers: map[string]string{"X-Key": "k\x1b"},
		Payload: payload, Settings: map[string]string{"timestampTolerance": "5m"}})
	if err != nil {
		w.t.Fatal(err)
	}
	return name
}

func TestRejectedWebhookIsListedAndShown(t *testing.T) {
	w := newWorld(t)
	name := w.capture([]byte(`{"a":"b"}`))
	out, _ := w.expect(0, "captured", "list")
	w.contains(out, "2026-01-31T12:00:00.000Z (0ms ago)  key-unknown  "+name)
	out, _ = w.expect(0, "captured", "show", name)
	w.contains(out, "request-1", "a=b", "headers.X-Key", `"k\x1b"`, "settings.timestampTolerance", "5m")
	note := parking.Note{By: "ann", At: noon, Reason: "wrong header", AgeAccepted: true}
	if err := w.store.MarkReplayed(t.Context(), "captured/"+name, note); err != nil {
		t.Fatal(err)
	}
	out, _ = w.expect(0, "captured", "show", name)
	w.contains(out, "replayed.by", "ann", "replayed.reason", "wrong header", "replayed.ageAccepted", "true")
	large := w.capture(make([]byte, parking.MaxCapturedPayload+1))
	_, said := w.expect(cli.StatusUnreachable, "captured", "show", large, "--payload")
	w.contains(said, "it has 262145 bytes")
}

func TestAnEventIsFollowedOnItsWay(t *testing.T) {
	w := newWorld(t)
	out, _ := w.expect(cli.StatusFailed, "event", uuid.New().String())
	w.contains(out, "unknown")
	e := w.record(2 * time.Minute)
	w.lease(e, w.now.Add(time.Minute))
	out, _ = w.expect(0, "event", e.EventID)
	w.contains(out, "pending", e.DeliveryID, "2026-01-31T11:58:00.000Z (2m ago)", "(in 1m)", "attempts    1")

	w.publish(e)
	conflict, _ := w.park(0, "conflict", about(e.EventID))
	out, _ = w.expect(cli.StatusFailed, "event", e.EventID)
	w.contains(out, "published", "(in 30d)", "conflict  open   "+conflict)
	w.replayed(conflict)
	out, _ = w.expect(0, "event", e.EventID, "--json")
	want := eventState{
		EventID: e.EventID, State: "published", DeliveryID: e.DeliveryID, RecordedAt: e.RecordedAt,
		PublishedAt: noon, EventTimestamp: e.EventTimestamp.Truncate(time.Millisecond),
		ExpiresAt: noon.Add(30 * 24 * time.Hour), SHA256: hex.EncodeToString(e.Digest[:]),
		Parked: []listed{{noon, "conflict", "replayed", conflict}},
	}
	if diff := cmp.Diff(want, document[eventState](t, out)); diff != "" {
		t.Error(diff)
	}
	parked := w.record(time.Hour)
	if err := w.ledger.MarkParked(t.Context(), parked); err != nil {
		t.Fatal(err)
	}
	out, _ = w.expect(cli.StatusFailed, "event", parked.EventID)
	w.contains(out, "state       parked")
}

// cache puts a key into the table as the functions do; without a JWK, it is an id that the
// service did not know. It was first called unknown so long ago, unless that is zero.
func (w *world) cache(id string, jwk []byte, age, unknown time.Duration) {
	w.t.Helper()
	number := func(n int64) types.AttributeValue {
		return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
	}
	at := w.now.Add(-age)
	canonical, ok := payment.KeyID(id)
	if !ok {
		canonical = id
	}
	item := awstest.Item{names.KeysKey: &types.AttributeValueMemberS{Value: canonical},
		"sentAs": &types.AttributeValueMemberS{Value: id}, "fetchedAt": number(at.UnixMilli()),
		names.KeysTTL: number(at.Add(24 * time.Hour).Unix())}
	if jwk != nil {
		item["jwk"] = &types.AttributeValueMemberS{Value: string(jwk)}
	}
	if unknown > 0 {
		item["unknownSince"] = number(w.now.Add(-unknown).UnixMilli())
	}
	if _, err := w.db.PutItem(w.t.Context(),
		&dynamodb.PutItemInput{TableName: aws.String("keys"), Item: item}); err != nil {
		w.t.Fatal(err)
	}
}

func TestKeyIsShownWithItsState(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	key := &private.PublicKey
	id := uuid.New().String()
	jwk := keys.FormatJWK(id, key)
	for state, test := range map[string]struct {
		cache  func(*world)
		status int
		want   []string
	}{
		"cached": {func(w *world) { w.cache(id, jwk, 12*time.Minute, 0) }, 0, []string{"2048", "65537",
			keys.Thumbprint(key), "2026-01-31T11:48:00.000Z (12m ago)", "(in 23h48m)"}},
		"stale": {func(w *world) { w.cache(id, jwk, time.Hour, 0) }, 0, []string{"(1h ago)"}},
		"withdrawn": {func(w *world) { w.cache(id, jwk, time.Hour, 3*time.Minute) }, 1,
			[]string{"2026-01-31T11:57:00.000Z (3m ago)", keys.Thumbprint(key)}},
		"removed": {func(w *world) { w.cache(id, nil, time.Minute, 8*time.Minute) }, 1, []string{"(8m ago)"}},
		"unknown": {func(w *world) { w.cache(id, nil, time.Minute, 0) }, 1, nil},
		"expired": {func(w *world) { w.cache(id, jwk, 24*time.Hour, 0) }, 1, nil},
		"rejected": {func(w *world) { w.cache(id, keys.FormatJWK(uuid.New().String(), key), time.Minute, 0) }, 1,
			[]string{"cause"}},
		"absent": {func(*world) {}, 1, nil},
		"revoked": {func(w *world) {
			w.cache(id, jwk, time.Minute, 0)
			w.revoked = "CN=a; " + keys.Thumbprint(key)
		}, 1, []string{keys.Thumbprint(key)}},
	} {
		t.Run(state, func(t *testing.T) {
			w := newWorld(t)
			test.cache(w)
			out, _ := w.expect(test.status, "keys", id)
			w.contains(out, test.want...)
			for _, spelling := range []string{id, strings.ToUpper(id), strings.ReplaceAll(id, "-", "")} {
				out, _ = w.expect(test.status, "keys", spelling, "--json")
				if got := document[cachedKey](t, out); got.State != state || got.KeyID != spelling || got.Dropped {
					t.Errorf("%s", out)
				}
			}
		})
	}
}

func TestDroppedKeyIsDeleted(t *testing.T) {
	id, other := uuid.New().String(), uuid.New().String()
	for _, spelling := range []string{id, strings.ToUpper(id), strings.ReplaceAll(id, "-", "")} {
		w := newWorld(t)
		w.cache(id, nil, time.Minute, 0)
		w.cache(other, nil, time.Minute, 0)
		out, err := w.expect(0, "keys", spelling, "--drop")
		w.contains(out, "dropped    true")
		w.contains(err, "a running function keeps its own copy")
		if left := w.db.Items("keys"); len(left) != 1 {
			t.Errorf("%v is left", left)
		}
		w.expect(cli.StatusFailed, "keys", spelling, "--drop")
	}
}

func TestCertificatesNeedThirtyDays(t *testing.T) {
	const reported = `{"certificates":{"authentication":"both","daysLeft":29.5,
		"cas":[{"subject":"CN=Operator CA","notAfter":"2036-01-31T12:00:00Z"}],"pins":["e3b0"],"subjects":["CN=a"],
		"revokedKeys":["ca97"],"last":{"subject":"CN=hooks","notAfter":"2026-03-02T00:00:00Z"}}}`
	for name, test := range map[string]struct {
		answer string
		status int
		want   []string
	}{
		"too few days": {reported, cli.StatusFailed,
			[]string{"29.5", "CN=Operator CA", "2036-01-31T12:00:00.000Z", "e3b0",
				"CN=a", "ca97", "accepted last  CN=hooks", "  29        2026-03-02T00:00:00.000Z (in 29d12h)"}},
		"enough days": {strings.ReplaceAll(reported, "29.5", "30"), 0, []string{"30"}},
		"by signature": {`{"certificates":{"authentication":"signature","daysLeft":0,"cas":null}}`, 0,
			[]string{"signature"}},
		"no answer": {`{"errorMessage":"x"}`, cli.StatusUnreachable, nil},
		"no report": {`{"found":0}`, cli.StatusUnreachable, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.redrive = func(request) (string, error) { return test.answer, nil }
			out, _ := w.expect(test.status, "keys")
			w.contains(out, test.want...)
		})
	}
}

// Budgets, sources and certificates are in the same table.
func TestKeysAreListedWithoutOtherItems(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.redrive = func(request) (string, error) { return "", errors.New("down") } // the keys are shown without it
	var ids [4]string
	for i := range ids {
		ids[i] = uuid.New().String()
	}
	stale, cached, withdrawn, unknown := ids[0], ids[1], ids[2], ids[3]
	w.revoked = strings.ToUpper(withdrawn)
	w.cache(unknown, nil, time.Second, 0)
	w.cache(stale, keys.FormatJWK(stale, &private.PublicKey), 30*time.Minute, 0)
	w.cache(cached, keys.FormatJWK(cached, &private.PublicKey), 30*time.Minute-time.Second, 0)
	w.cache(withdrawn, keys.FormatJWK(withdrawn, &private.PublicKey), 40*time.Minute, time.Minute)
	w.cache("captured#7", nil, time.Minute, 0)
	for _, name := range []string{"misses#1", "source#x", "certificate#last"} {
		item := awstest.Item{names.KeysKey: &types.AttributeValueMemberS{Value: name},
			names.KeysTTL: &types.AttributeValueMemberN{Value: "1800000000"}}
		if _, err := w.db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("keys"),
			Item: item}); err != nil {
			t.Fatal(err)
		}
	}
	out, _ := w.expect(cli.StatusUnreachable, "keys", "--json")
	var shown struct {
		Keys []cachedKey `json:"keys"`
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range shown.Keys {
		got = append(got, k.KeyID+" "+k.State)
	}
	if diff := cmp.Diff([]string{cached + " cached", stale + " stale", withdrawn + " revoked",
		unknown + " unknown"}, got); diff != "" {
		t.Error(diff)
	}
	out, _ = w.expect(cli.StatusUnreachable, "keys")
	w.contains(out, keys.Thumbprint(&private.PublicKey), "(30m ago)")
}
