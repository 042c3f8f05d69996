package simulation

import (
	"strings"
	"sync"

	"payhook.example/shared/evidence"
	"payhook.example/shared/intake"
)

// evidenceBucket is the bucket with the records of accepted deliveries.
const evidenceBucket = "evidence"

// verified are the results of records that differ in nothing that is verified.
var verified sync.Map

// kept checks an object of the evidence bucket that was written for a delivery, unless it was there before.
func (f *facts) kept(s *sent, key string, before bool) {
	if before {
		f.Again++
		return
	}
	f.Records++
	r, err := evidence.Decode(f.w.s3.Objects(evidenceBucket)[key])
	if err == nil {
		of := string(r.Payload) + r.Timestamp + r.Signature + string(r.JWK)
		if _, known := verified.Load(of); !known || r.Certificate != nil {
			if err = r.Verify(); err == nil {
				verified.Store(of, true)
			}
		}
	}
	switch {
	case err != nil:
		f.violated("the record of %s: %v", s.name, err)
	case string(r.Payload) != string(s.payload) || r.DeliveryID != s.id || r.Key() != key:
		f.violated("the record of %s is that of another delivery", s.name)
	}
	if f.records == nil {
		f.records = map[string]int{}
	}
	if f.records[f.request(s)]++; f.records[f.request(s)] > 1 {
		f.violated("%s has two records", s.name)
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
	if !f.w.evidence || !s.genuine() {
		return
	}
	switch r.Outcome {
	case intake.EvidenceUnavailable:
		f.Unproven++
	case intake.Accepted, intake.Conflict, intake.Invalid:
		if f.records[f.request(s)] == 0 && !s.invalid {
			f.violated("%s is answered %s, and no record exists", s.name, r.Outcome)
		}
	}
}

// checkEvidence checks that nothing but records is in the bucket.
func (f *facts) checkEvidence() {
	objects := f.w.s3.Objects(evidenceBucket)
	if len(objects) != f.Records {
		f.violated("%d records are stored, and %d were written", len(objects), f.Records)
	}
	for key := range objects {
		if !strings.HasPrefix(key, evidence.Prefix) {
			f.violated("%s is in the bucket of records", key)
		}
	}
}
