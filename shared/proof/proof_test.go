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

// lockDays are those of evidence=7y.
const lockDays = 2562

// sent returns what is stored of an accepted delivery with that payload, signed at noon.
func sent(t *testing.T, payload []byte, signed, certified bool) Proof {
	t.Helper()
	p := Proof{Payload: payload, LockDays: lockDays}.AsAccepted()
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
	p.Reason, p.LockDays, p.StoredAt, p.EventIDs = reason, 0, noon.Add(time.Minute), p.EventIDs[:1]
	if reason == Invalid {
		p.Cause, p.Positions = "why", []int{0}
		return p
	}
	p.Contents = []Content{{EventID: p.EventIDs[0], Digest: []byte("b"), Amount: "10.00", Currency: "EUR", First: First{
		DeliveryID: "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d", Digest: []byte("a"), Amount: "1.00", Currency: "EUR",
		RecordedAt: noon.Add(-time.Hour), State: "published"}}}
	return p
}

func rejected(payload string) Proof {
	return Proof{Reason: Rejected, Cause: "why", Payload: []byte(payload), Request: &RejectedRequest{ReceivedAt: noon,
		Outcome: "signature-missing", Method: "POST", Path: "/", RawQuery: "a=b", Headers: map[string]string{"a": "b"},
		Settings: map[string]string{"keyEndpointAuth": "none"}}}
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
	const id = "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d"
	payload := paymenttest.RawDelivery(id, []byte(`{"eventId":"`+id+`"}`), []byte(`{"eventId":"1`+id[1:]+`"}`))
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
			if got.LockDays = lockDays; cmp.Diff(p, got) != "" {
				t.Error(cmp.Diff(p, got))
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

// A member that nobody signed would be taken for a part of what was authenticated, and a request would give the record
// the time that its author chose.
func TestAProofHasTheMembersOfItsReason(t *testing.T) {
	signed := sent(t, paymenttest.Delivery(paymenttest.Events(2)...), true, true)
	invalid, conflict := as(signed, Invalid), as(signed, Conflict)
	all := map[string]func(p *Proof){
		"cause":      func(p *Proof) { p.Cause = "approved by the board" },
		"storedAt":   func(p *Proof) { p.StoredAt = noon },
		"positions":  func(p *Proof) { p.Positions = []int{0} },
		"contents":   func(p *Proof) { p.Contents = conflict.Contents },
		"request":    func(p *Proof) { p.Request = &RejectedRequest{ReceivedAt: noon.AddDate(-2, 0, 0), Outcome: "x"} },
		"deliveryId": func(p *Proof) { p.DeliveryID = testKey().ID },
		"eventIds":   func(p *Proof) { p.EventIDs = []string{testKey().ID} },
		"timestamp":  func(p *Proof) { p.Timestamp = signed.Timestamp },
		"keyId":      func(p *Proof) { p.KeyID = signed.KeyID },
		"signature":  func(p *Proof) { p.Signature = signed.Signature },
		"jwk":        func(p *Proof) { p.JWK = signed.JWK },
		"certificate": func(p *Proof) {
			p.Certificate = signed.Certificate
		},
	}
	for _, test := range []struct {
		p    Proof
		none []string // members that its reason does not have
	}{
		{signed, []string{"cause", "storedAt", "positions", "contents", "request", "deliveryId", "eventIds"}},
		{invalid, []string{"contents", "request"}},
		{conflict, []string{"cause", "positions", "request"}},
		{rejected("x"), []string{"storedAt", "positions", "contents", "deliveryId", "eventIds", "timestamp", "keyId",
			"signature", "jwk", "certificate"}},
	} {
		if _, err := Decode(encode(t, test.p)); err != nil {
			t.Fatalf("%s: %v", test.p.Reason, err)
		}
		for _, member := range test.none {
			p := test.p
			all[member](&p)
			if _, err := Decode(encode(t, p)); !errors.Is(err, ErrDamaged) {
				t.Errorf("%s with %s: %v", p.Reason, member, err)
			}
			if _, err := p.Verify(); err == nil {
				t.Errorf("%s with %s verifies", p.Reason, member)
			}
			if p.SentAt() != test.p.SentAt() {
				t.Errorf("%s with %s has the time %s", p.Reason, member, p.SentAt())
			}
		}
	}
	if _, err := Decode([]byte(`{"reason":"rejected"}`)); !errors.Is(err, ErrDamaged) {
		t.Error("a rejected webhook without a request:", err)
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
	signedBy := func(t *testing.T, id string) Proof { // as somebody does who writes records
		p := sent(t, payload, true, false)
		p.KeyID, p.JWK = id, keys.FormatJWK(id, &testKey().Private.PublicKey)
		p.Signature, _ = signature.Sign(testKey().Private, payload, p.Timestamp, id)
		return p
	}
	if _, err := signedBy(t, strings.ReplaceAll(other, "-", "")).Verify(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(p *Proof){
		"another timestamp":  func(p *Proof) { p.Timestamp = "2026-01-31T12:00:00.006Z" },
		"another key id":     func(p *Proof) { p.KeyID = other },
		"no UUID":            func(p *Proof) { *p = signedBy(t, "$(id)") },
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
	unknown.Reason, unknown.LockDays = Invalid, 0
	for want, p := range map[string]Proof{
		"accepted/2562/2026/01/31/12/20260131T120000.005Z-0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d-": signed,
		"accepted/2562/2026/02/01/13/20260201T130000.000Z-0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d-": certified,
		"invalid/2026/01/31/12/20260131T120000.005Z-0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d-":       as(signed, Invalid),
		"conflict/2026/01/31/12/20260131T120000.005Z-0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d-":      as(signed, Conflict),
		"invalid/1970/01/01/00/19700101T000000.000Z-unknown-":                                    unknown,
		"rejected/2026/01/31/12/20260131T120000.005Z-signature-missing-":                         rejected("x"),
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
		if err != nil || n.Reason != p.Reason || n.LockDays != p.LockDays || n.stem() != want {
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
}

// A name is printed, and used as a path and in commands.
func TestOnlyWhatHasTheFormOfANameIsOne(t *testing.T) {
	name := sent(t, paymenttest.Delivery(paymenttest.Event()), true, false).Name()
	request := rejected("x").Name()
	changed := func(name, old, replacement string) string {
		other := strings.Replace(name, old, replacement, 1)
		if other == name {
			t.Fatalf("%s has no %s", name, old)
		}
		return other
	}
	digest := name[len(name)-len(".json")-32:]
	bad := []string{"", "x", "/" + name, "./" + name, "replayed/" + name, name + "\n", name + "/", name[:len(name)-5],
		changed(name, "accepted", "pending"), changed(name, "accepted", "invalid"), changed(name, "/2562", ""),
		changed(request, "rejected", "rejected/1"), changed(name, "2562", "0"), changed(name, "2562", "02562"),
		changed(name, "2562", "-1"), changed(name, "2562", "100000"), changed(name, "2562", "٣"),
		changed(name, "/12/", "/13/"), changed(name, "/12/", "//"),
		changed(name, "01/31/12/20260131T12", "13/31/12/20261331T12"),
		changed(name, digest, ""), changed(name, digest, "0"), changed(name, digest, strings.ToUpper(digest)),
		changed(name, digest, request[len(request)-31:]), changed(request, "-missing-", "-missing-0"),
		changed(request, "signature-missing", ""), changed(request, "signature", strings.Repeat("s", 60)),
		changed(name, "2026/01/31/12/2026", "1969/01/31/12/1969"), strings.Repeat(name, 9)}
	for _, odd := range []string{"x;touch pwned;", "$(id)", "`id`", "..", "../..", "/", "\\", "\x1b[2J", "\x00", "\n",
		"\r",
		"\u009b", "\u202e", "é", "е", "\xff", "%2e", "~", "*", "?", "'", `"`, " ", "=", "A", "_"} {
		bad = append(bad, changed(request, "missing", "mis"+odd+"sing"), changed(name, "Z-", "Z-"+odd),
			changed(name, ".json", odd+".json"), changed(name, "accepted/", "accepted/"+odd))
	}
	for _, text := range bad {
		if n, err := ParseName(text); err != ErrName || n != (Name{}) {
			t.Errorf("%q: %+v, %v", text, n, err)
		}
	}
	p := rejected("x")
	p.Request.Outcome = "x;touch pwned;"
	if err := p.CheckName(p.Name()); !errors.Is(err, ErrDamaged) {
		t.Error(err)
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
