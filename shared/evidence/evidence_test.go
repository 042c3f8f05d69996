package evidence

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/keys"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/signature"
)

var testKey = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(2048) })

// record returns a record of a delivery with that payload.
func record(t *testing.T, payload []byte, signed, certified bool) Record {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Millisecond)
	deliveryID, eventIDs := payment.PeekIDs(payload, math.MaxInt)
	r := Record{AcceptedAt: now, FunctionVersion: "v1", DeliveryID: deliveryID, EventIDs: eventIDs,
		Payload: payload}
	if signed {
		key := testKey()
		r.Timestamp, r.KeyID = signature.FormatAuto.Text(now), key.ID
		r.JWK = keys.FormatJWK(key.ID, &key.Private.PublicKey)
		var err error
		if r.Signature, err = signature.Sign(key.Private, payload, r.Timestamp, r.KeyID); err != nil {
			t.Fatal(err)
		}
	}
	if certified {
		ca := paymenttest.NewCA("CA")
		r.Certificate = NewCertificate(payload, []*x509.Certificate{ca.Client(nil).Leaf, ca.Certificate}, now)
	}
	return r
}

func lines(t *testing.T, r Record) [][]byte {
	t.Helper()
	lines, err := r.Lines()
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// mechanisms are what a record can be authenticated by: a signature, a certificate.
var mechanisms = map[string][2]bool{"signature": {true, false}, "mtls": {false, true}, "both": {true, true}}

func TestEveryFlippedBitIsFound(t *testing.T) {
	for name, by := range mechanisms {
		t.Run(name, func(t *testing.T) {
			r := record(t, paymenttest.Delivery(paymenttest.Events(2)...), by[0], by[1])
			line := lines(t, r)[0]
			got, err := Decode(line)
			if err != nil || got.Verify() != nil {
				t.Fatal(err, got.Verify())
			}
			if diff := cmp.Diff(r, got); diff != "" {
				t.Error(diff)
			}
			for bit := range 8 * (len(line) - 1) {
				if _, err := Decode(flip(line, bit)); !errors.Is(err, ErrDamaged) {
					t.Fatalf("bit %d of byte %d: %v", bit%8, bit/8, err)
				}
			}
			if _, err := Decode(flip(line, 8*(len(line)-1))); !errors.Is(err, ErrDamaged) {
				t.Error("the line feed")
			}
		})
	}
}

// Whoever changes a record and computes its digest again can change only what the doc
// comment of Verify names.
func TestADigestThatIsComputedAgainHidesNothingThatIsProven(t *testing.T) {
	for name, by := range mechanisms {
		t.Run(name, func(t *testing.T) {
			line := bytes.TrimSuffix(lines(t, record(t, paymenttest.Delivery(paymenttest.Event()), by[0], by[1]))[0],
				[]byte("\n"))
			body := line[:len(line)-digestSize]
			free := string(body[:bytes.Index(body, []byte(`,"deliveryId"`))]) // acceptedAt, functionVersion
			found := 0
			for bit := range 8 * len(body) {
				changed := flip(body, bit)
				changed = fmt.Appendf(changed, digestFormat, sha256.Sum256(changed))
				r, err := Decode(changed)
				if err == nil {
					err = r.Verify()
				}
				if err != nil {
					found++
				} else if bit/8 >= len(free) || by[1] && bit/8 < strings.Index(free, "functionVersion") {
					t.Fatalf("bit %d of byte %d (%.60s)", bit%8, bit/8, body[max(0, bit/8-30):])
				}
			}
			if found < 8*(len(body)-len(free)) {
				t.Error(found, len(body))
			}
		})
	}
}

func flip(line []byte, bit int) []byte {
	line = slices.Clone(line)
	line[bit/8] ^= 1 << (bit % 8)
	return line
}

func TestPartsOfALargeRecordAreJoinedInAnyOrder(t *testing.T) {
	text := strings.Repeat(`é"\`, 1<<20) // as much escaping as there can be, and runes of two bytes
	payload := []byte(`{"deliveryId":"` + text + `"}`)
	small, large := record(t, []byte("{}"), true, false), record(t, payload, true, true)
	large.FunctionVersion = text
	all := lines(t, large)
	if len(all) < 3 {
		t.Fatal(len(all))
	}
	for i, line := range all {
		if len(line) > MaxLine || bytes.IndexByte(line, '\n') != len(line)-1 {
			t.Errorf("line %d has %d bytes", i, len(line))
		}
	}
	stored := slices.Concat(all, all, lines(t, small))
	rand.Shuffle(len(stored), func(i, j int) { stored[i], stored[j] = stored[j], stored[i] })
	var j Joiner
	got := map[string]int{}
	for _, line := range stored {
		joined, err := j.Join(line)
		if err != nil {
			t.Fatal(err)
		}
		if joined == nil {
			continue
		}
		r, err := Decode(joined)
		if err != nil || r.Verify() != nil {
			t.Error(err, r.Verify())
		}
		got[string(bytes.Join(lines(t, r), nil))]++
	}
	if len(got) != 2 || got[string(bytes.Join(all, nil))] != 1 || got[string(lines(t, small)[0])] != 1 ||
		len(j.Incomplete()) > 0 {
		t.Error(len(got), j.Incomplete())
	}
}

func TestTheLongestLine(t *testing.T) {
	r := record(t, []byte("{}"), true, false)
	r.FunctionVersion = strings.Repeat("v", MaxLine-len(lines(t, r)[0])+len(r.FunctionVersion))
	if all := lines(t, r); len(all) != 1 || len(all[0]) != MaxLine {
		t.Error(len(all), len(all[0]))
	}
	r.FunctionVersion += "v"
	if all := lines(t, r); len(all) != 2 {
		t.Error(len(all))
	}
}

func TestMissingAndDamagedPartsAreFound(t *testing.T) {
	all := lines(t, record(t, bytes.Repeat([]byte(" "), 3*partData), true, false))
	for i := range all {
		var j Joiner
		for _, line := range slices.Delete(slices.Clone(all), i, i+1) {
			if record, err := j.Join(line); record != nil || err != nil {
				t.Error(i, err)
			}
		}
		if len(j.Incomplete()) != 1 {
			t.Error(i, j.Incomplete())
		}
	}
	last := all[len(all)-1] // has little text
	for bit := range 8 * len(last) {
		var j Joiner
		record, err := j.Join(flip(last, bit))
		if err == nil && record != nil { // it does not look like a part any more
			_, err = Decode(record)
		}
		if !errors.Is(err, ErrDamaged) {
			t.Fatalf("bit %d of byte %d: %v", bit%8, bit/8, err)
		}
	}
}

func TestIncompleteRecordsSayWhereTheyAre(t *testing.T) {
	one := lines(t, record(t, bytes.Repeat([]byte(" "), 3*partData), true, false))
	two := lines(t, record(t, bytes.Repeat([]byte("x"), 3*partData), true, false))
	three := lines(t, record(t, bytes.Repeat([]byte("y"), 3*partData), true, false))
	var j Joiner
	joined := 0
	for n, line := range slices.Concat(one, two[:2], one, three[1:], two[:1]) { // those of one are repeated
		j.At = string(rune('a' + n))
		record, err := j.Join(line)
		if err != nil {
			t.Fatal(n, err)
		}
		if record != nil {
			joined++
		}
	}
	if joined != 1 || !slices.Equal(j.Incomplete(), []string{"f", "m"}) {
		t.Error(joined, j.Incomplete())
	}
}

func TestPartsOfDifferentRecordsAreNotJoined(t *testing.T) {
	data := []byte("xxxx")
	for name, parts := range map[string][]part{
		"another number of parts": {{1, 2, "r", data, "", ""}, {2, 3, "r", data, "", ""}},
		"a number beyond the end": {{3, 2, "r", data, "", ""}},
		"no number":               {{0, 2, "r", data, "", ""}},
		"two texts of a part":     {{1, 2, "r", data, "", ""}, {1, 2, "r", nil, "", ""}},
		"not a record":            {{1, 2, "r", data, "", ""}, {2, 2, "r", data, "", ""}},
		"another record": {{Part: 1, Parts: 1, Record: "r",
			Data: lines(t, record(t, []byte("{}"), true, false))[0]}},
	} {
		var j Joiner
		var failed error
		for _, p := range parts {
			line, err := seal(p)
			if err != nil {
				t.Fatal(err)
			}
			record, err := j.Join(line)
			if record != nil {
				t.Errorf("%s: joined", name)
			}
			failed = errors.Join(failed, err)
		}
		if !errors.Is(failed, ErrDamaged) && len(j.Incomplete()) != 1 {
			t.Errorf("%s: %v", name, failed)
		}
	}
}

func TestVerifyRejectsWhatDoesNotBelongTogether(t *testing.T) {
	other := record(t, paymenttest.Delivery(paymenttest.Event()), true, true)
	key := paymenttest.NewKey(2048)
	weak := []byte(`{"kty":"RSA","alg":"RS256","use":"sig","kid":"` + key.ID + `","n":"AQAB","e":"AQ"}`)
	for name, change := range map[string]func(*Record){
		"the ids of another payload": func(r *Record) { r.EventIDs = other.EventIDs },
		"another delivery id":        func(r *Record) { r.DeliveryID = other.DeliveryID },
		"one event id less":          func(r *Record) { r.EventIDs = r.EventIDs[1:] },
		"another payload":            func(r *Record) { r.Payload = other.Payload },
		"another key":                func(r *Record) { r.JWK = keys.FormatJWK(r.KeyID, &key.Private.PublicKey) },
		"a weak key":                 func(r *Record) { r.KeyID, r.JWK = key.ID, weak },
		"a JWK with more members": func(r *Record) {
			r.JWK = append(slices.Clone(r.JWK[:len(r.JWK)-1]), `,"x5c":[]}`...)
		},
		"no signature":  func(r *Record) { r.Signature = "" },
		"no proof":      func(r *Record) { r.Proof = Proof{Payload: r.Payload} },
		"another chain": func(r *Record) { r.Certificate.Chain = other.Certificate.Chain },
		"a CA too many": func(r *Record) {
			r.Certificate.Chain = append(r.Certificate.Chain, other.Certificate.Chain[1])
		},
		"no chain":               func(r *Record) { r.Certificate.Chain = nil },
		"a line feed in the PEM": func(r *Record) { r.Certificate.Chain[1] += "\n" },
		"not a certificate":      func(r *Record) { r.Certificate.Chain[0] = "x" },
		"an expired certificate": func(r *Record) {
			r.AcceptedAt = r.AcceptedAt.AddDate(50, 0, 0)
			r.Certificate.AcceptedAt = r.AcceptedAt
		},
		"two times of acceptance": func(r *Record) { r.AcceptedAt = r.AcceptedAt.Add(time.Millisecond) },
	} {
		r := record(t, paymenttest.Delivery(paymenttest.Events(2)...), true, true)
		if err := r.Verify(); err != nil {
			t.Fatal(err)
		}
		if change(&r); r.Verify() == nil {
			t.Errorf("%s: it verifies", name)
		}
	}
}

func TestADeliveryThatIsNotValidHasTheIDsThatCanBeRead(t *testing.T) {
	id := "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d"
	r := record(t, []byte(`{"deliveryId":"`+id+`","events":[{"eventId":"`+id+`"}]`), true, false)
	if r.DeliveryID != id || !slices.Equal(r.EventIDs, []string{id}) || r.Verify() != nil {
		t.Errorf("%+v: %v", r, r.Verify())
	}
}
