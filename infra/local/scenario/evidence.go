package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"
	"uuid"

	"payhook.example/infra/cmd/payhook/evidence"
	"payhook.example/infra/deployment"
	records "payhook.example/shared/evidence"
	"payhook.example/shared/paymenttest"
)

// evidenceChecks returns the checks of the records of accepted deliveries.
func (s *Scenario) evidenceChecks() []*Check {
	if s.EvidenceBucket == "" {
		return []*Check{{What: "the records of accepted deliveries", NotShown: "the setting evidence is off"}}
	}
	checks := []*Check{NewCheck("a webhook, the same again, a large one", "1 and 1 record, all verify", s.recorded)}
	if s.Endpoint != "" { // on AWS, a policy takes effect with a delay
		checks = append(checks, NewCheck("Firehose refuses records, and takes them again",
			fmt.Sprintf("503, then %d and 1 record", s.successStatus()), s.refused))
	}
	return checks
}

func (s *Scenario) recorded(ctx context.Context) string {
	one, large := uuid.New().String(), uuid.New().String()
	first := paymenttest.RawDelivery(one, paymenttest.Encode(paymenttest.Event()))
	s.post(ctx, first)
	s.post(ctx, first)
	s.post(ctx, paymenttest.RawDelivery(large, padded(paymenttest.Event(), 2_000_000)))
	found := s.records(ctx, one, large)
	for bit := range 8 * len(found[one][0]) {
		line := []byte(found[one][0])
		line[bit/8] ^= 1 << (bit % 8)
		if _, err := records.Decode(line); err == nil {
			return fmt.Sprintf("bit %d of byte %d can be flipped", bit%8, bit/8)
		}
	}
	return fmt.Sprintf("%d and %d record, all verify; each flipped bit is found", len(found[one]), len(found[large]))
}

func (s *Scenario) refused(ctx context.Context) string {
	id, role := uuid.New().String(), s.RoleOf(ctx, "webhook")
	payload := paymenttest.RawDelivery(id, paymenttest.Encode(paymenttest.Event()))
	set := func(policy string) {
		const name = "payhook-refuses-evidence"
		Require(deployment.SetRolePolicy(context.WithoutCancel(ctx), s.AWS, role, name, policy))
	}
	defer set("")
	set(`{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Action":"firehose:*","Resource":"*"}]}`)
	refused := s.post(ctx, payload).Status
	set("")
	again := s.post(ctx, payload).Status
	return fmt.Sprintf("%d, then %d and %d record", refused, again, len(s.records(ctx, id)[id]))
}

// records waits until the bucket has records of deliveries, and returns the lines of all records by
// deliveryId. It ends the check that runs if one does not verify.
func (s *Scenario) records(ctx context.Context, ids ...string) (found map[string][]string) {
	Require(Poll(ctx, s.within(30*time.Second), s.within(50*time.Millisecond), func() (bool, error) {
		found = map[string][]string{}
		err := evidence.Scan(ctx, s.S3(), s.EvidenceBucket, func(line []byte, r records.Record, err error) {
			Require(err)
			if !slices.Contains(found[r.DeliveryID], string(line)) { // Firehose can deliver a line again
				found[r.DeliveryID] = append(found[r.DeliveryID], string(line))
			}
		})
		return !slices.ContainsFunc(ids, func(id string) bool { return found[id] == nil }), err
	}))
	return found
}
