package scenario

import (
	"context"
	"fmt"
	"strings"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"payhook.example/infra/cmd/payhook/evidence"
	"payhook.example/infra/deployment"
	records "payhook.example/shared/evidence"
	"payhook.example/shared/paymenttest"
)

// evidenceChecks returns the checks of the records of accepted deliveries. On AWS, Firehose collects
// records for five minutes, so they wait only once there.
func (s *Scenario) evidenceChecks() []*Check {
	if s.EvidenceBucket == "" {
		return []*Check{{What: "the records of accepted deliveries", NotShown: "the setting evidence is off"}}
	}
	var line []byte // of a record
	recorded := func(ctx context.Context) string {
		one, large := uuid.New().String(), uuid.New().String()
		first := paymenttest.RawDelivery(one, paymenttest.Encode(paymenttest.Event()))
		for _, payload := range [][]byte{first, first,
			paymenttest.RawDelivery(large, padded(paymenttest.Event(), 2_000_000))} {
			if status := s.post(ctx, payload).Status; status != s.successStatus() {
				return fmt.Sprintf("answered %d", status)
			}
		}
		found := s.awaitRecords(ctx, one, large)
		line = found[one][0]
		return fmt.Sprintf("%d and %d record, all verify; of %d deliveries", len(found[one]), len(found[large]),
			len(found))
	}
	flipped := func(context.Context) string {
		if line == nil {
			return "there is no record"
		}
		for bit := range 8 * len(line) {
			line[bit/8] ^= 1 << (bit % 8)
			if _, err := records.Decode(line); err == nil {
				return fmt.Sprintf("bit %d of byte %d is not found", bit%8, bit/8)
			}
			line[bit/8] ^= 1 << (bit % 8)
		}
		return fmt.Sprintf("all are found; %d", 8*len(line))
	}
	checks := []*Check{
		NewCheck("a webhook, the same again, a large one", "1 and 1 record, all verify", recorded),
		NewCheck("one bit of the record is flipped, for each of its bits", "all are found", flipped),
	}
	if s.Endpoint != "" { // on AWS, a policy takes effect with a delay
		checks = append(checks, s.refusedCheck())
	}
	return checks
}

// refusedCheck returns the check of a webhook while Firehose refuses records, and of the same after that.
func (s *Scenario) refusedCheck() *Check {
	return NewCheck("Firehose refuses records, and takes them again",
		fmt.Sprintf("503, then %d and 1 record", s.successStatus()), func(ctx context.Context) string {
			id := uuid.New().String()
			payload := paymenttest.RawDelivery(id, paymenttest.Encode(paymenttest.Event()))
			name := s.Functions["webhook"]
			role := aws.ToString(Must(lambda.NewFromConfig(s.AWS).GetFunctionConfiguration(ctx,
				&lambda.GetFunctionConfigurationInput{FunctionName: &name})).Role)
			role = role[strings.LastIndex(role, "/")+1:]
			set := func(policy string) {
				Require(deployment.SetRolePolicy(context.WithoutCancel(ctx), s.AWS, role, "payhook-refuses-evidence",
					policy))
			}
			defer set("")
			set(`{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Action":"firehose:*","Resource":"*"}]}`)
			refused := s.post(ctx, payload).Status
			set("")
			return fmt.Sprintf("%d, then %d and %d record", refused, s.post(ctx, payload).Status,
				len(s.awaitRecords(ctx, id)[id]))
		})
}

// awaitRecords waits until the bucket has records of deliveries, and returns the lines of all records by
// deliveryId. It ends the check that runs if one does not verify.
func (s *Scenario) awaitRecords(ctx context.Context, ids ...string) (found map[string][][]byte) {
	Require(Poll(ctx, s.within(30*time.Second), s.within(50*time.Millisecond), func() (bool, error) {
		found = map[string][][]byte{}
		seen := map[string]bool{}
		err := evidence.Scan(ctx, s.S3(), s.EvidenceBucket, func(line []byte, r records.Record, err error) {
			Require(err)
			// Firehose can deliver a line again.
			if digest := records.Digest(line); !seen[digest] {
				seen[digest] = true
				found[r.DeliveryID] = append(found[r.DeliveryID], line)
			}
		})
		for _, id := range ids {
			if len(found[id]) == 0 {
				return false, err
			}
		}
		return true, err
	}))
	return found
}
