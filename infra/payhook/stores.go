package payhook

import (
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// buckets are the buckets of payments: of large events that the bus refers to, of parked deliveries and rejected
// webhooks, and of proofs of accepted deliveries, which is nil without the setting evidence.
type buckets struct{ largeEvents, parking, evidence awss3.IBucket }

func (p *Payhook) newBuckets() buckets {
	conf, accessLogs := p.conf, p.newAccessLogs()
	b := buckets{
		largeEvents: p.newBucket("LargeEvents", conf.LargeEventBucket, days(conf.LargeEventRetention), accessLogs, nil),
		parking:     p.newBucket(parkingID, conf.ParkingBucket, days(conf.ParkedRetention), accessLogs, nil),
	}
	if lockDays, compliance := conf.EvidenceLock(); lockDays > 0 {
		// Each object is locked. The function names no retention when it stores a proof, so it needs no permission to
		// set one (AWS, https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-lock-managing.html).
		lock := awss3.ObjectLockRetention_Governance
		if compliance {
			lock = awss3.ObjectLockRetention_Compliance
		}
		b.evidence = p.newBucket("Evidence", "", lockDays, accessLogs,
			lock(awscdk.Duration_Days(jsii.Number(lockDays))))
		p.output(settings.EvidenceBucketOutput, "the bucket with a proof of each accepted delivery",
			b.evidence.BucketName())
	}
	return b
}

// days returns the days of a retention, and 0 for [Off] and [Never].
func days(retention time.Duration) int { return int(retention.Hours()) / 24 }

// newAccessLogs creates the bucket into which S3 writes the requests to the other buckets. S3 delivers the lines on a
// best-effort basis, most within hours (AWS, "Logging requests with server access logging" in the S3 User Guide).
//
// It is always encrypted with keys of S3: S3 does not deliver access logs to a bucket
// whose default encryption is SSE-KMS (same page).
func (p *Payhook) newAccessLogs() awss3.IBucket {
	// The configuration of existing buckets is not changed.
	if p.conf.LargeEventBucket != "" && p.conf.ParkingBucket != "" && p.conf.Evidence == "off" {
		return nil
	}
	bucket := p.newBucket("AccessLogs", "", p.conf.LogRetentionDays, nil, nil)
	explain(bucket, "CKV_AWS_18")
	return bucket
}

const parkingID = "Parking"

// The folders of the proofs (package proof) and of the notes about them. Accepted ones are in the evidence bucket, and
// the others in the parking bucket.
const (
	acceptedFolder  = "accepted/"
	invalidFolder   = "invalid/"
	conflictFolder  = "conflict/"
	rejectedFolder  = "rejected/"
	replayedFolder  = "replayed/"
	dismissedFolder = "dismissed/"
)

// in returns the ARNs of the objects in folders of a bucket.
func in(bucket awss3.IBucket, folders ...string) (arns []*string) {
	for _, folder := range folders {
		arns = append(arns, bucket.ArnForObjects(jsii.String(folder+"*")))
	}
	return arns
}

// recoverable is for how many days an expired, deleted or overwritten object can be restored.
const recoverable = 30

// newBucket creates a bucket, unless existing is the name of one, which stays unchanged. Its objects expire after the
// given number of days; 0 means never. S3 logs the requests to it in accessLogs, unless that is nil. lock can be nil.
func (p *Payhook) newBucket(id, existing string, days int, accessLogs awss3.IBucket,
	lock awss3.ObjectLockRetention) awss3.IBucket {
	if existing != "" {
		return awss3.Bucket_FromBucketName(p, jsii.String(id), jsii.String(existing))
	}
	rules := []*awss3.LifecycleRule{{
		Id:                          jsii.String("Recoverable"),
		NoncurrentVersionExpiration: awscdk.Duration_Days(jsii.Number(recoverable)),
		// Delete markers of objects without any version.
		ExpiredObjectDeleteMarker: jsii.Bool(true),
	}}
	if days > 0 {
		rule := &awss3.LifecycleRule{
			Id:         jsii.String("Retention"),
			Expiration: awscdk.Duration_Days(jsii.Number(days)),
		}
		if lock != nil {
			// The proofs of another setting have another folder: they are locked for another time, and a rule hides
			// locked objects as well, with a delete marker (AWS,
			// https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-lock-managing.html).
			rule.Prefix = jsii.String(fmt.Sprintf("%s%d/", acceptedFolder, days))
		}
		rules = append(rules, rule)
	}
	if id == parkingID {
		// The rule is there without storeRejected as well, so that what was stored is deleted after the setting was
		// removed. S3 adds a day to the time of creation and rounds up to the next midnight UTC. Then the object
		// becomes noncurrent, and is deleted a day later, rounded in the same way
		// (https://docs.aws.amazon.com/AmazonS3/latest/userguide/intro-lifecycle-rules.html). Of two rules that expire
		// an object, the shorter one is applied
		// (https://docs.aws.amazon.com/AmazonS3/latest/userguide/lifecycle-conflicts.html).
		rules = append(rules, &awss3.LifecycleRule{
			Id:                          jsii.String("Rejected"),
			Prefix:                      jsii.String(rejectedFolder),
			Expiration:                  awscdk.Duration_Days(jsii.Number(1)),
			NoncurrentVersionExpiration: awscdk.Duration_Days(jsii.Number(1)),
		})
	}
	props := &awss3.BucketProps{
		Encryption:                 awss3.BucketEncryption_S3_MANAGED,
		Versioned:                  jsii.Bool(true),
		BlockPublicAccess:          awss3.BlockPublicAccess_BLOCK_ALL(),
		ObjectOwnership:            awss3.ObjectOwnership_BUCKET_OWNER_ENFORCED,
		EnforceSSL:                 jsii.Bool(true),
		LifecycleRules:             &rules,
		ObjectLockDefaultRetention: lock,
		RemovalPolicy:              keptUnlessLocal(p.conf),
	}
	if accessLogs != nil {
		props.ServerAccessLogsBucket = accessLogs
		props.ServerAccessLogsPrefix = jsii.String(strings.ToLower(id) + "/")
		if p.key != nil {
			props.Encryption, props.EncryptionKey = awss3.BucketEncryption_KMS, p.key
			props.BucketKeyEnabled = jsii.Bool(true)
		}
	}
	bucket := awss3.NewBucket(p, jsii.String(id), props)
	if accessLogs != nil {
		p.stores(bucket)
	}
	// A retained bucket requires TLS also after the stack is deleted.
	bucket.Policy().ApplyRemovalPolicy(keptUnlessLocal(p.conf))
	return bucket
}

// named returns the names of the resources that the functions that publish use.
func (p *Payhook) named() settings.Resources {
	r := settings.Resources{
		settings.LedgerTableEnv: *p.ledger.TableName(), settings.KeysTableEnv: *p.keysTable.TableName(),
		settings.LargeEventBucketEnv: *p.buckets.largeEvents.BucketName(),
		settings.ParkingBucketEnv:    *p.buckets.parking.BucketName(),
		settings.EventBusNameEnv:     p.conf.EventBusName, // literal: another bus is another version
	}
	if p.buckets.evidence != nil {
		r[settings.EvidenceBucketEnv] = *p.buckets.evidence.BucketName()
	}
	if p.token.store.id != nil {
		r[p.token.store.variable] = *p.token.store.id
	}
	return r
}

// allowWrite lets the function write large events and conflicts, but not read or delete them. The permissions name
// folders, because the keys of objects depend on their content.
func (b buckets) allowWrite(f function) {
	f.role.allow([]string{"s3:PutObject"}, append(in(b.largeEvents, "events/"), in(b.parking, conflictFolder)...)...)
}

// allowReplay lets the function read parked deliveries, and store that they were replayed or dismissed.
//
// It includes s3:ListBucket, because S3 answers a GetObject of a missing object with 404 only to callers with this
// permission, and with 403 to all others (AWS, "GetObject" in the S3 API reference). Without it, a name that does not
// exist looks like a missing permission. The statement has no condition on s3:prefix: that key is part of requests that
// list a bucket (AWS, "Actions, resources, and condition keys for Amazon S3" in the Service Authorization Reference),
// and AWS does not document that a GetObject satisfies a condition on it. The function can write to most folders of the
// bucket anyway.
//
// It may list the bucket of large events as well, to find out whether one still exists, but not read them.
func (b buckets) allowReplay(f function) {
	f.role.allow([]string{"s3:ListBucket"}, b.parking.BucketArn(), b.largeEvents.BucketArn())
	f.role.allow(
		[]string{"s3:GetObject"},
		in(b.parking, invalidFolder, conflictFolder, replayedFolder, dismissedFolder)...)
	f.role.allow([]string{"s3:PutObject"}, in(b.parking, replayedFolder, dismissedFolder)...)
}

// newLedger creates the table of events, with a sparse index of those that are pending or parked.
func (p *Payhook) newLedger() awsdynamodb.ITableV2 {
	conf := p.conf
	if conf.LedgerTable != "" {
		return awsdynamodb.TableV2_FromTableAttributes(p, jsii.String("Ledger"), &awsdynamodb.TableAttributesV2{
			TableName:     jsii.String(conf.LedgerTable),
			GlobalIndexes: jsii.Strings(settings.LedgerIndex),
		})
	}
	table := p.newTable("Ledger", &awsdynamodb.TablePropsV2{
		PartitionKey:        attribute(settings.LedgerKey, awsdynamodb.AttributeType_STRING),
		TimeToLiveAttribute: jsii.String(settings.LedgerTTL),
		GlobalSecondaryIndexes: &[]*awsdynamodb.GlobalSecondaryIndexPropsV2{{
			IndexName:    jsii.String(settings.LedgerIndex),
			PartitionKey: attribute(settings.LedgerShard, awsdynamodb.AttributeType_STRING),
			SortKey:      attribute(settings.LedgerIndexTime, awsdynamodb.AttributeType_NUMBER),
			// Redrive measures how long events have been pending, and leases as many as fit into
			// its memory, without reading them. So do people who list what is parked.
			ProjectionType:   awsdynamodb.ProjectionType_INCLUDE,
			NonKeyAttributes: jsii.Strings(settings.LedgerProjection()...),
		}},
		// A protected table cannot be deleted by any user or process (AWS, "AWS::DynamoDB::GlobalTable" in the
		// CloudFormation reference), including the rollback of a failed creation. If the rollback tried to delete it,
		// the rollback would fail. So the table is retained there as well: an empty table costs nothing, and its
		// generated name does not block a later attempt.
		DeletionProtection: jsii.Bool(!conf.Local()),
		RemovalPolicy:      awscdk.RemovalPolicy_RETAIN,
	})
	if conf.Local() {
		table.ApplyRemovalPolicy(awscdk.RemovalPolicy_DESTROY)
	}
	return table
}

// newKeysTable creates the table in which all execution environments of the webhook function share the service's
// public keys and the budget for fetching them. It is a cache, and deleted with the stack.
func (p *Payhook) newKeysTable() awsdynamodb.ITableV2 {
	return p.newTable("Keys", &awsdynamodb.TablePropsV2{
		PartitionKey:        attribute(settings.KeysKey, awsdynamodb.AttributeType_STRING),
		TimeToLiveAttribute: jsii.String(settings.KeysTTL),
		RemovalPolicy:       awscdk.RemovalPolicy_DESTROY,
	})
}

// newTable creates a table with on-demand billing and point-in-time recovery for 35 days.
func (p *Payhook) newTable(id string, props *awsdynamodb.TablePropsV2) awsdynamodb.TableV2 {
	props.Billing = awsdynamodb.Billing_OnDemand(nil)
	props.PointInTimeRecoverySpecification = &awsdynamodb.PointInTimeRecoverySpecification{
		PointInTimeRecoveryEnabled: jsii.Bool(true),
	}
	table := awsdynamodb.NewTableV2(p, jsii.String(id), props)
	if p.key != nil {
		// TableEncryptionV2_CustomerManagedKey needs a stack with a Region.
		resource := table.Node().DefaultChild().(awsdynamodb.CfnGlobalTable)
		resource.SetSseSpecification(&awsdynamodb.CfnGlobalTable_SSESpecificationProperty{
			SseEnabled: jsii.Bool(true), SseType: jsii.String("KMS")})
		// The CDK writes the replicas later.
		resource.AddPropertyOverride(jsii.String("Replicas.0.SSESpecification.KMSMasterKeyId"), p.key.KeyArn())
		p.stores(table)
	}
	return table
}

func attribute(name string, kind awsdynamodb.AttributeType) *awsdynamodb.Attribute {
	return &awsdynamodb.Attribute{Name: jsii.String(name), Type: kind}
}
