package simulation

import (
	"context"
	"sync"

	"payhook.example/shared/intake"
	"payhook.example/shared/proof"
)

// verified has the proofs that were verified. Those with a certificate differ in each history.
var verified sync.Map

// kept checks an object of the evidence bucket that was written for a delivery, unless it was there before.
func (f *facts) kept(s *sent, key string, before bool) {
	if before {
		f.Again++
		return
	}
	f.Proofs++
	p, err := proof.Get(context.Background(), &f.w.evidence, key)
	if err == nil {
		of := string(p.Payload) + p.Timestamp + p.Signature + string(p.JWK)
		if _, known := verified.Load(of); !known || p.Certificate != nil {
			if _, err = p.Verify(); err == nil {
				verified.Store(of, true)
			}
		}
	}
	switch {
	case err != nil:
		f.violated("the proof of %s: %v", s.name, err)
	case string(p.Payload) != string(s.payload) || p.DeliveryID != s.id || p.Reason != proof.Accepted:
		f.violated("the proof of %s is that of another delivery", s.name)
	}
	if f.proofs == nil {
		f.proofs = map[string]int{}
	}
	if f.proofs[f.request(s)]++; f.proofs[f.request(s)] > 1 {
		f.violated("%s has two proofs", s.name)
	}
}

// request identifies a request: one that is sent again without being signed again is the same.
func (f *facts) request(s *sent) string {
	if f.w.mechanism == byMTLS {
		return string(s.payload)
	}
	return string(s.payload) + s.at.String()
}

// evidenced checks the evidence of a delivery that was answered.
func (f *facts) evidenced(inv *invocation) {
	r, s := inv.result, inv.sent
	if !f.w.proofs || !s.genuine() {
		return
	}
	switch r.Outcome {
	case intake.EvidenceUnavailable:
		f.Unproven++
	case intake.Accepted, intake.Conflict, intake.Invalid:
		if f.proofs[f.request(s)] == 0 && !s.invalid {
			f.violated("%s is answered %s, and no proof exists", s.name, r.Outcome)
		}
	}
}
