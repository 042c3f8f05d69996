package evidence

import (
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/keys"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/signature"
)

var testKey = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(2048) })

// record returns a record of a delivery with that payload, signed at noon.
func record(t *testing.T, payload []byte, signed, certified bool) Record {
	t.Helper()
	p := Proof{Payload: payload}
	if signed {
		key := testKey()
		p.Timestamp, p.KeyID = "2026-01-31T12:00:00.005Z", key.ID
		p.JWK = keys.FormatJWK(key.ID, &key.Private.PublicKey)
		var err error
		if p.Signature, err = signature.Sign(key.Private, payload, p.Timestamp, p.KeyID); err != nil {
			t.Fatal(err)
		}
	}
	if certified {
		ca := paymenttest.NewCA("CA")
		p.Certificate = NewCertificate(payload, []*x509.Certificate{ca.Client(nil).Leaf, ca.Certificate}, time.Now())
	}
	return NewRecord(p)
}

func encode(t *testing.T, r Record) []byte {
	t.Helper()
	text, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// mechanisms are what a record can be authenticated by: a signature, a certificate.
var mechanisms = map[string][2]bool{"signature": {true, false}, "mtls": {false, true}, "both": {true, true}}

// No digest of the object is needed for this, so it holds in every copy.
func TestEveryFlippedBitIsFound(t *testing.T) {
	for name, by := range mechanisms {
		t.Run(name, func(t *testing.T) {
			r := record(t, paymenttest.Delivery(paymenttest.Events(2)...), by[0], by[1])
			text := encode(t, r)
			got, err := Decode(text)
			if err != nil || got.Verify() != nil {
				t.Fatal(err, got.Verify())
			}
			if diff := cmp.Diff(r, got); diff != "" {
				t.Error(diff)
			}
			for bit := range 8 * len(text) {
				changed := slices.Clone(text)
				changed[bit/8] ^= 1 << (bit % 8)
				r, err := Decode(changed)
				if err == nil {
					err = r.Verify()
				}
				if err == nil {
					t.Fatalf("bit %d of byte %d, after %s", bit%8, bit/8, text[max(0, bit/8-30):bit/8])
				}
			}
		})
	}
}

func TestOnlyTheEncodingOfARecordIsOne(t *testing.T) {
	text := string(encode(t, record(t, paymenttest.Delivery(paymenttest.Event()), true, false)))
	for name, other := range map[string]string{
		"empty":         "",
		"null":          "null",
		"a line feed":   text + "\n",
		"a space":       strings.Replace(text, ",", ", ", 1),
		"an escape":     strings.Replace(text, `"payload"`, `"\u0070ayload"`, 1),
		"a member more": strings.Replace(text, "{", `{"a":1,`, 1),
		"a member less": text[:strings.Index(text, `,"jwk"`)] + "}",
	} {
		r, err := Decode([]byte(other))
		if name == "a member less" && err == nil {
			err = r.Verify()
		}
		if err == nil || name != "a member less" && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatDoesNotBelongTogether(t *testing.T) {
	payload := paymenttest.Delivery(paymenttest.Event())
	signed, certified := record(t, payload, true, true), record(t, payload, false, true)
	for name, change := range map[string]func(r *Record){
		"another payload":     func(r *Record) { r.Proof.Payload = paymenttest.Delivery(paymenttest.Event()) },
		"another deliveryId":  func(r *Record) { r.DeliveryID = strings.ToUpper(r.DeliveryID) },
		"an event more":       func(r *Record) { r.EventIDs = append(slices.Clone(r.EventIDs), r.EventIDs[0]) },
		"no event":            func(r *Record) { r.EventIDs = nil },
		"another certificate": func(r *Record) { r.Certificate = record(t, []byte("{}"), false, true).Certificate },
		"no certificate": func(r *Record) {
			c := *r.Certificate
			c.Chain, r.Certificate = nil, &c
		},
		"another time of acceptance": func(r *Record) {
			c := *r.Certificate
			c.AcceptedAt, r.Certificate = c.AcceptedAt.Add(time.Millisecond), &c
		},
		"nothing that authenticates": func(r *Record) { r.Proof = Proof{Payload: r.Payload} },
	} {
		for _, r := range []Record{signed, certified} {
			change(&r)
			if err := r.Verify(); err == nil {
				t.Errorf("%s: it verifies", name)
			}
		}
	}
	for name, change := range map[string]func(r *Record){
		"another timestamp":  func(r *Record) { r.Timestamp = "2026-01-31T12:00:00.006Z" },
		"another key id":     func(r *Record) { r.KeyID = "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d" },
		"no key":             func(r *Record) { r.JWK = nil },
		"a member of a key":  func(r *Record) { r.JWK = []byte(strings.Replace(string(r.JWK), "{", `{"x":1,`, 1)) },
		"the signature only": func(r *Record) { r.Timestamp, r.KeyID, r.JWK = "", "", nil },
	} {
		r := signed
		change(&r)
		if err := r.Verify(); err == nil {
			t.Errorf("%s: it verifies", name)
		}
	}
}

func TestTheKeyOfARecord(t *testing.T) {
	payload := []byte(`{"deliveryId":"0B7E4C1E-3d43-4f26-9c0d-2f1f6a5b7c8d","events":[{"eventTimestamp":` +
		`"2026-02-01T13:00:00.000Z"}]}`)
	signed, certified := record(t, payload, true, false), record(t, payload, false, true)
	for want, r := range map[string]Record{
		"accepted/2026/01/31/12/20260131T120000.005Z-0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d-": signed,
		"accepted/2026/02/01/13/20260201T130000.000Z-0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d-": certified,
	} {
		if digest, ok := strings.CutPrefix(r.Key(), want); !ok || len(digest) != len(".json")+32 {
			t.Errorf("%s, want %s…", r.Key(), want)
		}
		again := r
		if c := r.Certificate; c != nil {
			later := *c
			later.AcceptedAt = c.AcceptedAt.Add(time.Hour)
			again.Certificate = &later
		}
		if again.Key() != r.Key() {
			t.Errorf("%s, again %s", r.Key(), again.Key())
		}
	}
	seen := map[string]bool{signed.Key(): true}
	for _, change := range []func(r *Record){
		func(r *Record) { r.Proof.Payload = append(slices.Clone(r.Proof.Payload), ' ') },
		func(r *Record) { r.KeyID += "0" },
		func(r *Record) { r.Signature += "=" },
		func(r *Record) { r.JWK = append(slices.Clone(r.JWK), ' ') },
		func(r *Record) { r.Timestamp = "2026-01-31T12:00:00.0050Z" },
		func(r *Record) { r.Certificate = certified.Certificate },
		func(r *Record) { r.Certificate = record(t, payload, false, true).Certificate },
		func(r *Record) { r.Timestamp, r.KeyID = r.Timestamp+r.KeyID[:1], r.KeyID[1:] },
	} {
		r := signed
		change(&r)
		if seen[r.Key()] {
			t.Error("two records have the same key")
		}
		seen[r.Key()] = true
	}
}
