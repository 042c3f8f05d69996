package payhook

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// lockEvidence locks each record of an accepted delivery for the time of the setting evidence. It does
// nothing if the setting is off. The function names no retention when it stores a record, so it needs no
// permission to set one (AWS, https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-lock-managing.html).
func (p *Payhook) lockEvidence() {
	bucket := p.buckets.evidence
	if bucket == nil {
		return
	}
	mode := "GOVERNANCE"
	if p.conf.EvidenceLock == settings.Compliance {
		mode = "COMPLIANCE"
	}
	locked := bucket.Node().DefaultChild().(awss3.CfnBucket)
	locked.SetObjectLockEnabled(jsii.Bool(true))
	retention := &awss3.CfnBucket_DefaultRetentionProperty{Mode: &mode, Days: jsii.Number(days(p.conf.Evidence))}
	locked.SetObjectLockConfiguration(&awss3.CfnBucket_ObjectLockConfigurationProperty{
		ObjectLockEnabled: jsii.String("Enabled"),
		Rule:              &awss3.CfnBucket_ObjectLockRuleProperty{DefaultRetention: retention},
	})
	p.output(settings.EvidenceBucketOutput, "the bucket with a record of each accepted delivery", bucket.BucketName())
}
