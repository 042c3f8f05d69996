package payhook

import (
	"crypto/sha256"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	firehose "github.com/aws/aws-cdk-go/awscdk/v2/awskinesisfirehose"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/names"
)

// evidence is the stream that takes a record of each accepted delivery; nil for none.
type evidence struct {
	stream      firehose.CfnDeliveryStream
	role        awsiam.Role
	environment map[string]*string // of the webhook function
}

// newEvidence creates the stream, and locks the objects of the bucket into which it delivers. It
// does nothing if the setting evidence is off. Firehose keeps trying to deliver for 24 hours, and
// then the records are lost (AWS, https://docs.aws.amazon.com/firehose/latest/dev/troubleshooting.html).
//
// AWS does not document whether Firehose can deliver into a bucket with a default retention, for
// which S3 requires a checksum in each upload
// (https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-lock-managing.html). This has not
// been tried on AWS. If it can't, the alarm evidence-delivery is raised.
func (p *Payhook) newEvidence(program []byte) {
	bucket := p.buckets.evidence
	if bucket == nil {
		return
	}
	mode := "GOVERNANCE"
	if p.conf.EvidenceCompliance {
		mode = "COMPLIANCE"
	}
	locked := bucket.Node().DefaultChild().(awss3.CfnBucket)
	locked.SetObjectLockEnabled(jsii.Bool(true))
	retention := &awss3.CfnBucket_DefaultRetentionProperty{Mode: &mode, Days: jsii.Number(p.conf.EvidenceRetention)}
	locked.SetObjectLockConfiguration(&awss3.CfnBucket_ObjectLockConfigurationProperty{
		ObjectLockEnabled: jsii.String("Enabled"),
		Rule:              &awss3.CfnBucket_ObjectLockRuleProperty{DefaultRetention: retention},
	})

	scope := constructs.NewConstruct(p, jsii.String("Evidence"))
	logs := awslogs.NewLogGroup(scope, jsii.String("Logs"), nil)
	logs.Node().DefaultChild().(awslogs.CfnLogGroup).SetRetentionInDays(jsii.Number(p.conf.LogRetention))
	// The trust policy and these actions are those of the guide (AWS,
	// https://docs.aws.amazon.com/firehose/latest/dev/controlling-access.html).
	account := &map[string]any{"StringEquals": map[string]any{"sts:ExternalId": awscdk.Stack_Of(p).Account()}}
	role := awsiam.NewRole(scope, jsii.String("Role"), &awsiam.RoleProps{
		AssumedBy: awsiam.NewServicePrincipal(jsii.String("firehose.amazonaws.com"),
			&awsiam.ServicePrincipalOpts{Conditions: account}),
	})
	allow := function{role: role}.allow
	allow([]string{"s3:GetBucketLocation", "s3:ListBucket", "s3:ListBucketMultipartUploads"}, bucket.BucketArn())
	allow([]string{"s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"}, bucket.ArnForObjects(jsii.String("*")))
	allow([]string{"logs:PutLogEvents"}, logs.LogGroupArn())

	s3 := &firehose.CfnDeliveryStream_ExtendedS3DestinationConfigurationProperty{
		BucketArn:         bucket.BucketArn(),
		RoleArn:           role.RoleArn(),
		Prefix:            jsii.String("!{timestamp:yyyy/MM/dd}/"),
		ErrorOutputPrefix: jsii.String("errors/!{firehose:error-output-type}/!{timestamp:yyyy/MM/dd}/"),
		CompressionFormat: jsii.String("GZIP"),
		FileExtension:     jsii.String(".jsonl.gz"),
		// A record is locked when its object is written, so this is not long. There are at most 288 objects
		// a day unless more than SizeInMBs arrive in this time, so the records of a day are read fast.
		BufferingHints: &firehose.CfnDeliveryStream_BufferingHintsProperty{
			IntervalInSeconds: jsii.Number(300), SizeInMBs: jsii.Number(128)},
		CloudWatchLoggingOptions: &firehose.CfnDeliveryStream_CloudWatchLoggingOptionsProperty{
			Enabled: jsii.Bool(true), LogGroupName: logs.LogGroupName(),
			LogStreamName: logs.AddStream(jsii.String("Errors"), nil).LogStreamName()},
	}
	encryption := &firehose.CfnDeliveryStream_DeliveryStreamEncryptionConfigurationInputProperty{
		KeyType: jsii.String("AWS_OWNED_CMK")}
	stream := firehose.NewCfnDeliveryStream(scope, jsii.String("Stream"), &firehose.CfnDeliveryStreamProps{
		DeliveryStreamType:                         jsii.String("DirectPut"),
		DeliveryStreamEncryptionConfigurationInput: encryption, ExtendedS3DestinationConfiguration: s3,
	})
	stream.Node().AddDependency(role) // with its permissions
	// With a stream, Firehose deletes what it has not delivered yet (AWS,
	// https://docs.aws.amazon.com/firehose/latest/APIReference/API_DeleteDeliveryStream.html). So the
	// stream is retained with all that it needs.
	awscdk.RemovalPolicies_Of(scope).Apply(keptUnlessLocal(p.conf), nil)
	p.evidence = evidence{stream, role, map[string]*string{names.EvidenceStreamEnv: stream.Ref(),
		names.CodeDigestEnv: jsii.Sprintf("%x", sha256.Sum256(program))}}
	p.output(names.EvidenceBucketOutput, "the bucket with a record of each accepted delivery", bucket.BucketName())
}

// alarm returns the alarm for a stream that does not deliver, as AWS recommends it
// (https://docs.aws.amazon.com/firehose/latest/dev/firehose-cloudwatch-metrics-best-practices.html).
func (e evidence) alarm() alarm {
	return alarm{
		name: "evidence-delivery", statistic: maximum, minutes: 5, threshold: 15 * 60, notifyOK: true,
		metric: metric{"AWS/Firehose", "DeliveryToS3.DataFreshness", jsii.String("DeliveryStreamName"), e.stream.Ref()},
		description: "Firehose has records of accepted deliveries that it could not write to the evidence bucket for " +
			"15 minutes. After 24 hours it deletes them.",
		action: "Look up errorCode in the log group of Evidence/Logs. Check the bucket, the key and the permissions " +
			"of the stream's role. If it can't be fixed within a day, set webhookConcurrency to 0 in Lambda's " +
			"console, so that webhooks are answered 429 and no record is lost.",
	}
}
