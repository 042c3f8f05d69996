package proof

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
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/signature"
)

var testKey = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(2048) })

var noon = time.Date(2026, 1, 31, 12, 0, 0, 5e6, time.UTC)

// sent returns what is stored of an accepted delivery with that payload, signed at noon.
func sent(t *testing.T, payload []byte, signed, certified bool) Proof {
	t.Helper()
	p := Proof{Payload: payload}.AsAccepted()
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
	return p
}

// as returns p, parked for a reason, for the first of its events.
func as(p Proof, reason Reason) Proof {
	p.Reason, p.StoredAt, p.Cause, p.EventIDs = reason, noon.Add(time.Minute), "why", p.EventIDs[:1]
	if reason == Invalid {
		p.Positions = []int{0}
		return p
	}
	p.Contents = []Content{{EventID: p.EventIDs[0], Digest: []byte("b"), Amount: "10.00", Currency: "EUR", First: First{
		DeliveryID: "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d", Digest: []byte("a"), Amount: "1.00", Currency: "EUR",
		RecordedAt: noon.Add(-time.Hour), State: "published"}}}
	return p
}

func rejected(payload string) Proof {
	return Proof{Reason: Rejected, Cause: "why", Payload: []byte(payload), Request: &Request{ReceivedAt: noon,
		Outcome: "signature-missing", Method: "POST", Path: "/", RawQuery: "a=b", Headers: map[string]string{"a": "b"},
		Settings: map[string]string{"keysAuth": "none"}}}
}

func encode(t *testing.T, p Proof) []byte {
	t.Helper()
	text, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// No digest of the object is needed for this, so it holds in every copy.
func TestEveryFlippedBitIsFound(t *testing.T) {
	payload := paymenttest.Delivery(paymenttest.Events(2)...)
	for name, by := range map[string][2]bool{"signature": {true, false}, "mtls": {false, true}, "both": {true, true}} {
		p := sent(t, payload, by[0], by[1])
		t.Run(name, func(t *testing.T) {
			text := encode(t, p)
			got, err := Decode(text)
			if err != nil {
				t.Fatal(err)
			}
			key, err := got.Verify()
			if err != nil || (key != nil) != by[0] || key != nil && !key.Equal(&testKey().Private.PublicKey) {
				t.Fatal(key, err)
			}
			if diff := cmp.Diff(p, got); diff != "" {
				t.Error(diff)
			}
			for bit := range 8 * len(text) {
				changed := slices.Clone(text)
				changed[bit/8] ^= 1 << (bit % 8)
				p, err := Decode(changed)
				if err == nil {
					_, err = p.Verify()
				}
				if err == nil {
					t.Fatalf("bit %d of byte %d, after %s", bit%8, bit/8, text[max(0, bit/8-30):bit/8])
				}
			}
		})
	}
}

func TestOnlyTheEncodingOfAProofIsOne(t *testing.T) {
	text := string(encode(t, sent(t, paymenttest.Delivery(paymenttest.Event()), true, false)))
	for name, other := range map[string]string{
		"empty":         "",
		"null":          "null",
		"a line feed":   text + "\n",
		"a space":       strings.Replace(text, ",", ", ", 1),
		"an escape":     strings.Replace(text, `"payload"`, `"\u0070ayload"`, 1),
		"a member more": strings.Replace(text, "{", `{"a":1,`, 1),
	} {
		if _, err := Decode([]byte(other)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatDoesNotBelongTogether(t *testing.T) {
	payload := paymenttest.Delivery(paymenttest.Events(2)...)
	signed, certified := sent(t, payload, true, true), sent(t, payload, false, true)
	other := paymenttest.NewKey(2048).ID
	for name, change := range map[string]func(p *Proof){
		"another payload":            func(p *Proof) { p.Payload = paymenttest.Delivery(paymenttest.Event()) },
		"another deliveryId":         func(p *Proof) { p.DeliveryID = other },
		"no deliveryId":              func(p *Proof) { p.DeliveryID = "" },
		"an event that was not sent": func(p *Proof) { p.EventIDs = append(slices.Clone(p.EventIDs), other) },
		"another certificate": func(p *Proof) {
			p.Certificate = sent(t, []byte("{}"), false, true).Certificate
		},
		"no certificate": func(p *Proof) {
			c := *p.Certificate
			c.Chain, p.Certificate = nil, &c
		},
		"another time of acceptance": func(p *Proof) {
			c := *p.Certificate
			c.AcceptedAt, p.Certificate = c.AcceptedAt.Add(time.Millisecond), &c
		},
		"nothing that authenticates": func(p *Proof) {
			p.Timestamp, p.KeyID, p.Signature, p.JWK, p.Certificate = "", "", "", nil, nil
		},
		"no reason":      func(p *Proof) { p.Reason = "" },
		"another reason": func(p *Proof) { p.Reason = "pending" },
		"rejected":       func(p *Proof) { p.Reason = Rejected },
	} {
		for _, p := range []Proof{signed, certified, as(signed, Invalid), as(certified, Conflict)} {
			reason := p.Reason
			if _, err := p.Verify(); err != nil {
				t.Fatalf("%s: %v", reason, err)
			}
			change(&p)
			if _, err := p.Verify(); err == nil || (p.Reason == Rejected) != errors.Is(err, ErrUnauthenticated) {
				t.Errorf("%s, %s: %v", reason, name, err)
			}
		}
	}
	for name, change := range map[string]func(p *Proof){
		"another timestamp":  func(p *Proof) { p.Timestamp = "2026-01-31T12:00:00.006Z" },
		"another key id":     func(p *Proof) { p.KeyID = other },
		"no key":             func(p *Proof) { p.JWK = nil },
		"a member of a key":  func(p *Proof) { p.JWK = []byte(strings.Replace(string(p.JWK), "{", `{"x":1,`, 1)) },
		"the signature only": func(p *Proof) { p.Timestamp, p.KeyID, p.JWK = "", "", nil },
		"an event more":      func(p *Proof) { p.EventIDs = append(slices.Clone(p.EventIDs), p.EventIDs[0]) },
		"the case of an id":  func(p *Proof) { p.EventIDs = []string{strings.ToUpper(p.EventIDs[0]), p.EventIDs[1]} },
		"invalid: a conflict": func(p *Proof) {
			*p = as(*p, Conflict)
			p.Reason = Invalid
		},
		"conflict: no content": func(p *Proof) {
			*p = as(*p, Conflict)
			p.Contents = nil
		},
	} {
		p := signed
		change(&p)
		if _, err := p.Verify(); err == nil {
			t.Errorf("%s: it verifies", name)
		}
	}
}

// The payload of an invalid delivery can have ids twice, and more than its proof has.
func TestWhatCannotBeDecodedIsVerified(t *testing.T) {
	id := func(n string) string { return "0b7e4c1e-3d43-4f26-9c0d-" + strings.Repeat(n, 12) }
	events := strings.Repeat(`{"eventId":"`+id("e")+`"},`, MaxIDs+1)
	for _, payload := range []string{"x", `{"deliveryId":"` + id("1") + `","deliveryId":"` + id("2") + `"`,
		`{"deliveryId":"` + id("1") + `","events":[` + events + `{}],"deliveryId":"` + id("2") + `"}`} {
		p := sent(t, []byte(payload), true, false)
		p.Reason, p.EventIDs = Invalid, p.EventIDs[:min(len(p.EventIDs), MaxIDs)]
		p.DeliveryID, _ = payment.PeekIDs(p.Payload, MaxIDs)
		if _, err := p.Verify(); err != nil || len(p.EventIDs) > MaxIDs {
			t.Errorf("%.80s: %d ids, %v", payload, len(p.EventIDs), err)
		}
	}
}

func TestNames(t *testing.T) {
	payload := []byte(`{"deliveryId":"0B7E4C1E-3d43-4f26-9c0d-2f1f6a5b7c8d","events":[{"eventTimestamp":` +
		`"2026-02-01T13:00:00.000Z","eventId":"6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60"}]}`)
	signed, certified := sent(t, payload, true, false), sent(t, payload, false, true)
	unknown := sent(t, []byte("x"), false, true)
	unknown.Reason = Invalid
	for want, p := range map[string]Proof{
		"accepted/2026/01/31/12/20260131T120000.005Z-0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d-": signed,
		"accepted/2026/02/01/13/20260201T130000.000Z-0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d-": certified,
		"invalid/2026/01/31/12/20260131T120000.005Z-0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d-":  as(signed, Invalid),
		"conflict/2026/01/31/12/20260131T120000.005Z-0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d-": as(signed, Conflict),
		"invalid/1970/01/01/00/19700101T000000.000Z-unknown-":                               unknown,
		"rejected/2026/01/31/12/20260131T120000.005Z-signature-missing-":                    rejected("x"),
	} {
		name := p.Name()
		digits := 32
		if p.Reason == Rejected {
			digits = 26
		}
		if digest, ok := strings.CutPrefix(name, want); !ok || len(digest) != digits+len(".json") {
			t.Errorf("%s, want %s…", name, want)
		}
		n, err := ParseName(name)
		if err != nil || n.Reason != p.Reason || n.stem() != want {
			t.Errorf("%s: %+v, %v", name, n, err)
		}
		// What is known only when it is stored does not count.
		again := p
		again.StoredAt, again.Cause, again.Contents = time.Now(), "other", slices.Clone(p.Contents)
		for i := range again.Contents {
			again.Contents[i].First = First{}
		}
		if c := p.Certificate; c != nil {
			later := *c
			later.AcceptedAt = c.AcceptedAt.Add(time.Hour)
			again.Certificate = &later
		}
		if err := again.CheckName(name); err != nil || (again.Name() == name) != (p.Reason != Rejected) {
			t.Errorf("%s, again %s, %v", name, again.Name(), err)
		}
	}
	for _, text := range []string{"", "x", "pending/2026/01/31/12/20260131T120000.005Z-unknown-0.json",
		"replayed/" + signed.Name(), strings.Replace(signed.Name(), "/12/", "/13/", 1),
		"accepted/2026/01/31/12/20260131T120000.005Z", "accepted/2026/01/31/12/20260131T120000.005Z-0.json",
		"/" + signed.Name()} {
		if n, err := ParseName(text); !errors.Is(err, ErrName) {
			t.Errorf("%s: %+v, %v", text, n, err)
		}
	}
}

func TestAnotherProofHasAnotherName(t *testing.T) {
	payload := paymenttest.Delivery(paymenttest.Event())
	signed, certified := sent(t, payload, true, false), sent(t, payload, false, true)
	conflict := as(signed, Conflict)
	content := conflict.Contents[0]
	seen := map[string]bool{signed.Name(): true, conflict.Name(): true, rejected("x").Name(): true}
	for _, change := range []func(p *Proof){
		func(p *Proof) { p.Reason = Invalid },
		func(p *Proof) { p.Payload = append(slices.Clone(p.Payload), ' ') },
		func(p *Proof) { p.KeyID += "0" },
		func(p *Proof) { p.Signature += "=" },
		func(p *Proof) { p.JWK = append(slices.Clone(p.JWK), ' ') },
		func(p *Proof) { p.Timestamp = "2026-01-31T12:00:00.0050Z" },
		func(p *Proof) { p.Certificate = certified.Certificate },
		func(p *Proof) { p.Certificate = sent(t, payload, false, true).Certificate },
		func(p *Proof) { p.Timestamp, p.KeyID = p.Timestamp+p.KeyID[:1], p.KeyID[1:] },
		func(p *Proof) { p.Contents = []Content{content} },
		func(p *Proof) { p.Contents = []Content{content, {EventID: "2"}} },
		func(p *Proof) { p.Contents = []Content{{EventID: content.EventID, Digest: []byte("c")}} },
		func(p *Proof) { *p = rejected("x") },
	} {
		p := signed
		change(&p)
		if name := p.Name(); seen[name] {
			t.Errorf("two proofs have the name %s", name)
		} else {
			seen[name] = true
		}
		if p.Reason != Rejected && !errors.Is(p.CheckName(signed.Name()), ErrDamaged) {
			t.Errorf("%s can have the name %s", p.Name(), signed.Name())
		}
	}
	reversed := signed
	reversed.Contents = []Content{{EventID: "2"}, content}
	if !seen[reversed.Name()] {
		t.Error("the order of the events in conflict counts")
	}
}
