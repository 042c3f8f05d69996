package intake_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/paymenttest"
)

// keyCache has one key, and records its calls. It calls before, if it is set, for every look-up.
type keyCache struct {
	key    func() paymenttest.Key
	before func(ctx context.Context)
	// For Lookup and for Refetch: whether the table fails, and whether the key is withdrawn.
	failed, withdrawn [2]bool
	next              *paymenttest.Key // the key that Refetch finds; nil: none
	afterwards        *paymenttest.Key // the key that it finds the second time; nil: the same
	refetchErr        error            // of Refetch
	lookups           []netip.Addr
	refetch           []netip.Addr
	senders           []netip.Addr
}

func (r *keyCache) Lookup(ctx context.Context, id string, from netip.Addr) (keys.Found, error) {
	r.lookups = append(r.lookups, from)
	if r.before != nil {
		r.before(ctx)
	}
	if id != r.key().ID {
		return keys.Found{}, keys.ErrUnknown
	}
	return keys.Found{Key: &r.key().Private.PublicKey, Source: keys.InMemory, TableFailed: r.failed[0],
		Withdrawn: r.withdrawn[0]}, nil
}

func (r *keyCache) Refetch(_ context.Context, _ string, _ keys.Found, from netip.Addr) (keys.Found, error) {
	r.refetch = append(r.refetch, from)
	if len(r.refetch) == 2 && r.afterwards != nil {
		r.next = r.afterwards
	}
	if r.next != nil {
		return keys.Found{Key: &r.next.Private.PublicKey, Source: keys.Service, TableFailed: r.failed[1]}, nil
	}
	return keys.Found{Withdrawn: r.withdrawn[1], TableFailed: r.failed[1]}, r.refetchErr
}

func (r *keyCache) RecordSender(_ context.Context, from netip.Addr) {
	r.senders = append(r.senders, from)
}

// sent returns an authentic delivery of one event.
func (r *keyCache) sent(w *world, payload []byte) intake.Delivery {
	w.t.Helper()
	d := signedAt(w.t, r.key(), payload, w.now)
	d.SenderIP = netip.MustParseAddr("192.0.2.10")
	return d
}

func newSigned(t *testing.T, revoked ...string) (*keyCache, *world) {
	t.Helper()
	r, w := &keyCache{key: serviceKey}, newWorld(t)
	w.mechanisms.Signature = &intake.Signature{Scheme: paymenttest.DefaultScheme(),
		Tolerance: 5 * time.Minute, Keys: r, Revoked: revoked}
	return r, w
}

func TestASignatureOfNoPossibleKeySpendsNoLookup(t *testing.T) {
	of := func(size int) string { return base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte("\x01"), size)) }
	for text, possible := range map[string]bool{of(255): false, of(256): true, of(512): true, of(513): false,
		strings.Repeat("+/", 171): false} {
		r, w := newSigned(t)
		d := r.sent(w, paymenttest.Delivery(paymenttest.Event()))
		d.Headers["x-svc-signature"] = text
		got := w.receive(t.Context(), d)
		if (len(r.lookups) == 1) != possible || got.Outcome == intake.Accepted || len(r.senders) != 0 ||
			!possible && (got.Outcome != intake.SignatureMalformed || len(r.refetch) != 0) {
			t.Errorf("%d characters: %s, with %d look-ups", len(text), got.Outcome, len(r.lookups))
		}
	}
}

func TestOnlyTheSenderOfAnAuthenticWebhookBecomesKnown(t *testing.T) {
	r, w := newSigned(t)
	d := r.sent(w, paymenttest.Delivery(paymenttest.Event()))
	forged := d
	forged.Payload = paymenttest.Delivery(paymenttest.Event())
	for _, c := range []struct {
		sent    intake.Delivery
		want    intake.Outcome
		senders int
	}{
		{forged, intake.SignatureMismatch, 0}, {d, intake.Accepted, 1},
		{r.sent(w, []byte("{}")), intake.Invalid, 2}, // it is authentic, though it is not a delivery
	} {
		if got := w.receive(t.Context(), c.sent); got.Outcome != c.want || len(r.senders) != c.senders {
			t.Errorf("%s, senders %v, want %s", got.Outcome, r.senders, c.want)
		}
	}
	for _, addr := range slices.Concat(r.lookups, r.refetch, r.senders) {
		if addr != d.SenderIP {
			t.Errorf("a key was looked up for %v", addr)
		}
	}
}

func TestAResultSaysThatTheTableFailedOrTheKeyIsWithdrawnAtAnyTime(t *testing.T) {
	r, w := newSigned(t)
	forged := r.sent(w, paymenttest.Delivery(paymenttest.Event()))
	forged.Payload = paymenttest.Delivery(paymenttest.Event())
	either := [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}}
	for _, failed := range either {
		for _, withdrawn := range either {
			r.failed, r.withdrawn = failed, withdrawn
			got := w.receive(t.Context(), forged).By.Key
			if got.TableFailed != (r.failed[0] || r.failed[1]) || got.Withdrawn != (r.withdrawn[0] || r.withdrawn[1]) {
				t.Errorf("%v, %v: failed %t, withdrawn %t", r.failed, r.withdrawn, got.TableFailed, got.Withdrawn)
			}
		}
	}
}

// The service can have another key under the id of the cached one. If that cannot be fetched, the webhook can be
// authentic: the sender has to send it again.
func TestASignatureThatDoesNotVerifyIsNotAuthenticOnlyIfTheServiceHasNoOtherKey(t *testing.T) {
	for err, want := range map[error]intake.Outcome{
		nil: intake.SignatureMismatch,
		fmt.Errorf("503: %w", keys.ErrUnavailable): intake.KeyUnavailable,
		keys.ErrOutOfBudget:                        intake.KeyOutOfBudget,
		keys.ErrUnknown:                            intake.SignatureMismatch,
		&keys.PolicyError{}:                        intake.SignatureMismatch,
	} {
		r, w := newSigned(t)
		r.refetchErr = err
		forged := r.sent(w, paymenttest.Delivery(paymenttest.Event()))
		forged.Payload = paymenttest.Delivery(paymenttest.Event())
		got := w.receive(t.Context(), forged)
		if got.Outcome != want || len(w.table.Items()) > 0 || len(r.senders) > 0 {
			t.Errorf("%v: %s, want %s", err, got.Outcome, want)
		}
	}
}

// The table can have another key than memory, and the service yet another.
func TestEveryKeyOfAnIDIsTried(t *testing.T) {
	old, next, latest := paymenttest.NewKey(2048), paymenttest.NewKey(2048), paymenttest.NewKey(2048)
	next.ID, latest.ID = old.ID, old.ID
	r, w := newSigned(t)
	r.key, r.next = func() paymenttest.Key { return old }, &next
	d := signedAt(t, latest, paymenttest.Delivery(paymenttest.Event()), w.now)
	if got := w.receive(t.Context(), d); got.Outcome != intake.SignatureMismatch || len(r.refetch) != 2 {
		t.Errorf("%s after %d calls", got.Outcome, len(r.refetch))
	}
	r.afterwards = &latest
	r.refetch = nil
	if got := w.receive(t.Context(), d); got.Outcome != intake.Accepted || len(r.refetch) != 2 {
		t.Errorf("%s after %d calls", got.Outcome, len(r.refetch))
	}
}

// Only the key that verified counts: the service can have put another one under its id.
func TestARevokedKeyIsRejected(t *testing.T) {
	key, old := paymenttest.NewKey(2048), paymenttest.NewKey(2048)
	old.ID = key.ID
	info, err := x509.MarshalPKIXPublicKey(&key.Private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	pin := sha256.Sum256(info)
	thumbprint := keys.Thumbprint(&key.Private.PublicKey)
	revoked, otherKey, otherID := intake.KeyRevoked, keys.Thumbprint(&old.Private.PublicKey), uuid.New().String()
	for name, c := range map[string]struct {
		revoked            string
		id                 string          // as it is sent; "": key.ID
		cached, signedWith paymenttest.Key // zero: key
		want               intake.Outcome
		lookups            int
	}{
		"by its id":                {revoked: key.ID, want: revoked},
		"its id is in upper case":  {revoked: key.ID, id: strings.ToUpper(key.ID), want: revoked},
		"its id has no hyphens":    {revoked: key.ID, id: strings.ReplaceAll(key.ID, "-", ""), want: revoked},
		"a forgery with its id":    {revoked: key.ID, signedWith: old, want: revoked},
		"by its thumbprint":        {revoked: thumbprint, want: revoked, lookups: 1},
		"by its SHA-256":           {revoked: hex.EncodeToString(pin[:]), want: revoked, lookups: 1},
		"found by Refetch":         {revoked: thumbprint, cached: old, want: revoked, lookups: 1},
		"its successor has its id": {revoked: otherKey, cached: old, want: intake.Accepted, lookups: 1},
		"a forgery":                {revoked: thumbprint, signedWith: old, want: intake.SignatureMismatch, lookups: 1},
		"another id is revoked":    {revoked: otherID, want: intake.Accepted, lookups: 1},
		"another is revoked":       {revoked: otherKey, want: intake.Accepted, lookups: 1},
	} {
		c.id, c.cached, c.signedWith = cmp.Or(c.id, key.ID), cmp.Or(c.cached, key), cmp.Or(c.signedWith, key)
		r, w := newSigned(t, "0", parsed(t, c.revoked))
		r.next, c.signedWith.ID = &key, c.id
		r.key = func() paymenttest.Key { return c.cached }
		got := w.receive(t.Context(), signedAt(t, c.signedWith, paymenttest.Delivery(paymenttest.Event()), w.now))
		if got.Outcome != c.want || len(r.lookups) != c.lookups || got.By.KeyID != c.id ||
			(got.By.Key.Source == keys.Service) != (c.lookups > 0 && c.cached.Private != c.signedWith.Private) {
			t.Errorf("%s: %s %s, with %d look-ups, want %s", name, got.By.KeyID, got.Outcome, len(r.lookups), c.want)
		}
		if written := len(w.table.Items()) + len(r.senders); (written > 0) != (c.want == intake.Accepted) {
			t.Errorf("%s: %s: %d are written", name, got.Outcome, written)
		}
		if text := fmt.Sprint(got.Err); c.want == revoked && !strings.Contains(text, "revokedKeys") {
			t.Errorf("%s: the cause is %s", name, text)
		}
	}
}

// The age of a webhook is that when it arrived.
func TestTheAgeIsCheckedAsOfTheArrival(t *testing.T) {
	for arrived, want := range map[time.Duration]intake.Outcome{ // after it was signed; 0: now
		0: intake.TimestampOutside, time.Second: intake.Accepted,
		6 * time.Minute: intake.TimestampOutside, -6 * time.Minute: intake.TimestampOutside,
	} {
		r, w := newSigned(t)
		d := r.sent(w, paymenttest.Delivery(paymenttest.Event()))
		if arrived != 0 {
			d.ArrivedAt = w.now.Add(arrived)
		}
		w.now = w.now.Add(time.Hour)
		if got := w.receive(t.Context(), d).Outcome; got != want {
			t.Errorf("%s: %s, want %s", arrived, got, want)
		}
	}
}
