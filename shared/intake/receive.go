package intake

import (
	"cmp"
	"context"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/keys"
	"payhook.example/shared/payment"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

// Delivery is a webhook as it came over the wire.
type Delivery struct {
	Payload  []byte            // as received, not decoded in any way
	Headers  map[string]string // as [signature.Headers] returns them; names of any case
	RawQuery string            // without the question mark
	// SenderIP is the peer of the TCP connection that the webhook came by. It decides which budget of key lookups
	// applies, and nothing else. The zero Addr is an unknown sender.
	SenderIP netip.Addr
	// Certificate is the client certificate, in PEM, that API Gateway passed on; "" for none. The
	// caller must know that the webhook came through API Gateway.
	Certificate string
	// ArrivedAt is the time as of which the age of the webhook is checked. The zero Time is now.
	ArrivedAt time.Time
}

// CheckSender returns the sender address of a request: an IPv4 address that is written as IPv6 as IPv4, and
// the zero Addr, which no network contains, for what is no address. The error is [SenderNotAllowed] if no allowed
// network contains it; nil allows every address.
func CheckSender(text string, allowed []netip.Prefix) (netip.Addr, error) {
	sender, _ := netip.ParseAddr(text)
	sender = sender.Unmap()
	contains := func(network netip.Prefix) bool { return network.Contains(sender) }
	if allowed != nil && !slices.ContainsFunc(allowed, contains) {
		return sender, fmt.Errorf("%w: %s", SenderNotAllowed, sender)
	}
	return sender, nil
}

// CheckMethod returns [MethodNotAllowed] for a method that is not one of webhooks.
func CheckMethod(method string) error {
	if !slices.Contains(settings.Methods(), method) {
		return MethodNotAllowed
	}
	return nil
}

// Keys finds keys by their ids. [keys.Cache] implements it.
type Keys interface {
	Lookup(ctx context.Context, id string, from netip.Addr) (keys.Found, error)
	Refetch(ctx context.Context, id string, failed keys.Found, from netip.Addr) (keys.Found, error)
	RecordSender(ctx context.Context, from netip.Addr)
}

// Mechanisms are the authentication mechanisms that a delivery must pass (section
// 5.2 of the interface): a signature, mTLS, or both.
type Mechanisms struct {
	Signature *Signature           // nil: no signature is required
	MTLS      *clientcert.Verifier // nil: no client certificate is required
}

// Signature is the authentication by signature.
type Signature struct {
	Scheme    signature.Scheme // where the proof travels
	Tolerance time.Duration    // of the timestamp, as for [signature.CheckTime]
	Keys      Keys
	// Revoked has the ids and the JWK thumbprints of keys, and the SHA-256 of their subject
	// public key infos, that are rejected.
	Revoked clientcert.Revocations
}

// Receiver receives deliveries. It is safe for concurrent use.
type Receiver struct {
	pipeline   *Pipeline
	mechanisms Mechanisms
}

// NewReceiver returns a receiver that passes what is authentic to the pipeline. It panics if no mechanism is given.
func NewReceiver(p *Pipeline, m Mechanisms) *Receiver {
	if m.Signature == nil && m.MTLS == nil {
		panic("intake: a receiver without authentication")
	}
	return &Receiver{p, m}
}

// Receive authenticates a delivery, records its events, and publishes those that are
// new. It returns before ctx's deadline, early enough to give the answer.
func (r *Receiver) Receive(ctx context.Context, d Delivery) Result {
	inv, ctx, cancel := r.pipeline.begin(ctx)
	defer cancel()
	by, err := r.authenticate(ctx, d, inv.start)
	authenticated := r.pipeline.since(inv.start)
	var result Result
	if err != nil {
		result = Failed(err)
		result.UnverifiedID = payment.PeekDeliveryID(d.Payload)
		by.Key.Save(ctx)
	} else {
		// At the same time as the events, which do not depend on it.
		saved := make(chan keys.Found, 1)
		go func() { saved <- r.mechanisms.Signature.save(ctx, by.Key, d.SenderIP) }()
		result = r.pipeline.process(ctx, d.Payload, by, inv, false)
		if by.Key = <-saved; by.Key.UnusualExponent() {
			result.Deviations = append(result.Deviations, "key.e")
		}
	}
	result.By, result.Steps.Authenticate = by, authenticated
	return result
}

// authenticate returns what shows that d is authentic. With an error, it returns what is known all the same.
func (r *Receiver) authenticate(ctx context.Context, d Delivery, now time.Time) (by Authentication, err error) {
	by.acceptedAt = now
	// First the certificate: it costs no call.
	if m := r.mechanisms.MTLS; m != nil {
		if by.Chain, err = m.Verify(d.Certificate, now); err != nil {
			return by, err
		}
	}
	if s := r.mechanisms.Signature; s != nil {
		err = s.authenticate(ctx, d, now, &by)
	}
	return by, err
}

// Check returns nil if the signature of d verifies, and the error of the first check
// that fails otherwise. [Receiver.Receive] makes the same checks in the same order. Afterwards, like Receive, Check
// records the sender of a signature that verifies, so that a new key is fetched for it whatever key ids strangers send.
func (s *Signature) Check(ctx context.Context, d Delivery, now time.Time) error {
	var by Authentication
	err := s.authenticate(ctx, d, now, &by)
	if err != nil {
		by.Key.Save(ctx)
	} else {
		s.save(ctx, by.Key, d.SenderIP)
	}
	return err
}

// save saves the key and the sender of an authentic webhook, and returns the key. Without a signature, it does nothing.
func (s *Signature) save(ctx context.Context, key keys.Found, sender netip.Addr) keys.Found {
	if s != nil {
		key.Save(ctx)
		s.Keys.RecordSender(ctx, sender)
	}
	return key
}

// authenticate adds the signature of d and the key that verified it, or with an error, what is known all the same.
func (s *Signature) authenticate(ctx context.Context, d Delivery, now time.Time, by *Authentication) (err error) {
	if by.signature, err = s.Scheme.Extract(d.Headers, d.RawQuery); err != nil {
		return err
	}
	// The checks without a call come first.
	if err := signature.CheckTime(by.signature.Timestamp, cmp.Or(d.ArrivedAt, now), s.Tolerance); err != nil {
		return err
	}
	// What can't be a signature of any key must not use the budget of key lookups.
	if err := signature.CheckForm(by.signature.Signature, keys.MinModulusBytes, keys.MaxModulusBytes); err != nil {
		return err
	}
	keyID := by.signature.KeyID
	if err = checkRevoked(s.Revoked, keyID, nil); err == nil {
		by.Key, err = s.verify(ctx, d, by.signature)
	}
	// The service can have put another key under the id of a revoked one, so only the key that verified counts.
	if err == nil {
		err = checkRevoked(s.Revoked, "", by.Key.Key)
	}
	if !errors.Is(err, keys.ErrMalformedID) {
		by.KeyID = keyID
	}
	return err
}

// checkRevoked returns an error if a key is revoked, by its id or by itself. Either can be unknown.
func checkRevoked(revoked clientcert.Revocations, id string, key *rsa.PublicKey) error {
	if len(revoked) == 0 {
		return nil
	}
	if revoked.Has(id) {
		return fmt.Errorf("%w: its id", KeyRevoked)
	}
	if key == nil {
		return nil
	}
	info, _ := x509.MarshalPKIXPublicKey(key) // which does not fail for an RSA key
	if revoked.Has(keys.Thumbprint(key)) || revoked.HasSHA256(info) {
		return fmt.Errorf("%w: its thumbprint is %s", KeyRevoked, keys.Thumbprint(key))
	}
	return nil
}

// verify returns the key that verifies the signature of d. With an error, it returns what was found all the same.
func (s *Signature) verify(ctx context.Context, d Delivery, parts signature.Parts) (keys.Found, error) {
	found, err := s.Keys.Lookup(ctx, parts.KeyID, d.SenderIP)
	if err != nil {
		return found, err
	}
	// The service may have put another key under the same id: the table has one, or the service yet another.
	for range 2 {
		mismatch := signature.Verify(found.Key, d.Payload, parts)
		if mismatch == nil {
			return found, nil
		}
		found.Save(ctx)
		again, failed := s.Keys.Refetch(ctx, parts.KeyID, found, d.SenderIP)
		again.TableFailed = again.TableFailed || found.TableFailed
		if failed != nil || again.Key == nil {
			again.Save(ctx)
			found.TableFailed, found.Withdrawn = again.TableFailed, found.Withdrawn || again.Withdrawn
			// A key that can't be fetched now may be the one that verifies.
			if errors.Is(failed, keys.ErrUnavailable) || errors.Is(failed, keys.ErrOutOfBudget) {
				return found, failed
			}
			return found, mismatch
		}
		found = again
	}
	return found, signature.Verify(found.Key, d.Payload, parts)
}
