package checks

import (
	"context"
	"fmt"
	"strings"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"payhook.example/infra/cmd/payhook/evidence"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
)

// evidenceChecks returns the checks of the records of accepted deliveries.
func (s *Scenario) evidenceChecks() []*Check {
	checks := []*Check{check("a webhook, signed twice, and a large one", "2 and 1 record, all verify", s.recorded),
		check("a record is deleted, or written without a checksum", "both refused by S3", s.locked)}
	if s.Endpoint != "" { // on AWS, a policy takes effect with a delay
		checks = append(checks, check("the bucket refuses records, and takes them again",
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
	found := s.records(ctx)
	if !UsesSignature(s.Settings) && len(found[one]) == 1 {
		return "2 and 1 record, all verify; without a signature, both are the same request"
	}
	return fmt.Sprintf("%d and %d record, all verify", len(found[one]), len(found[large]))
}

// locked tries what Object Lock forbids: to delete a version, and to write an object without a checksum (AWS,
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-lock-managing.html).
func (s *Scenario) locked(ctx context.Context) string {
	client := s.S3()
	all := Must(client.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: &s.EvidenceBucket})).Versions
	_, deleted := client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.EvidenceBucket, Key: all[0].Key,
		VersionId: all[0].VersionId})
	_, written := s3.NewFromConfig(s.AWS, func(o *s3.Options) {
		o.UsePathStyle, o.RequestChecksumCalculation = true, aws.RequestChecksumCalculationWhenRequired
	}).PutObject(ctx, &s3.PutObjectInput{Bucket: &s.EvidenceBucket, Key: aws.String("other"),
		Body: strings.NewReader("{}")})
	if deleted == nil || written == nil {
		return fmt.Sprintf("deleted: %t, written: %t", deleted == nil, written == nil)
	}
	return "both refused by S3"
}

func (s *Scenario) refused(ctx context.Context) string {
	id := uuid.New().String()
	payload := paymenttest.RawDelivery(id, paymenttest.Encode(paymenttest.Event()))
	const name = "payhook-refuses-evidence"
	defer s.Allow(context.WithoutCancel(ctx), name)
	Require(s.Deny(ctx, name, "s3:PutObject", "arn:aws:s3:::"+s.EvidenceBucket+"/*"))
	refused := s.post(ctx, payload).Status
	Require(s.Allow(ctx, name))
	again := s.post(ctx, payload).Status
	return fmt.Sprintf("%d, then %d and %d record", refused, again, len(s.records(ctx)[id]))
}

// records returns all records by deliveryId. It ends the check that runs if one does not verify.
func (s *Scenario) records(ctx context.Context) map[string][]proof.Proof {
	found := map[string][]proof.Proof{}
	Require(evidence.Scan(ctx, s.S3(), s.EvidenceBucket, evidence.Section{}, func(o evidence.Object) {
		Require(o.Err)
		found[o.Proof.DeliveryID] = append(found[o.Proof.DeliveryID], o.Proof)
	}))
	return found
}
