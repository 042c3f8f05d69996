package main

import (
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
)

// buckets are where whole payments are kept: large events that the bus refers
// to, and what is parked.
type buckets struct{ claims, parking awss3.IBucket }

func newBuckets(scope constructs.Construct, conf settings.Deployment) buckets {
	accessLogs := newAccessLogs(scope, conf)
	return buckets{
		claims:  newBucket(scope, "Claims", conf, conf.ClaimBucket, conf.ClaimRetention, accessLogs),
		parking: newBucket(scope, "Parking", conf, conf.ParkingBucket, conf.ParkedRetention, accessLogs),
	}
}

// newAccessLogs makes the bucket into which S3 writes the requests to the other
// buckets, or returns nil if the setting accessLogs is false. S3 delivers the
// records when it can, most within hours, and not necessarily all of them (AWS,
// "Logging requests with server access logging" in the S3 User Guide).
//
// It is always encrypted with keys of S3: S3 delivers no access logs to a bucket
// whose default encryption is SSE-KMS (same page).
func newAccessLogs(scope constructs.Construct, conf settings.Deployment) awss3.IBucket {
	// Buckets that exist keep the configuration of their logs.
	if !conf.AccessLogs || conf.ClaimBucket != "" && conf.ParkingBucket != "" {
		return nil
	}
	return newBucket(scope, "AccessLogs", conf, "", conf.LogRetention, nil)
}

// recoverable is for how many days what expired, was deleted or was overwritten
// can be had back: a version of its own, which ends then.
const recoverable = 30

// newBucket makes a bucket that is encrypted, versioned, open to nobody else, and
// reached over TLS only, and that outlives the stack unless it is a local one.
// Its objects expire after so many days; 0: never. S3 writes the requests to it
// into accessLogs, unless that is nil. If existing is the name of a bucket, that
// one is used as it is.
func newBucket(scope constructs.Construct, id string, conf settings.Deployment, existing string, days int, accessLogs awss3.IBucket) awss3.IBucket {
	if existing != "" {
		return awss3.Bucket_FromBucketName(scope, jsii.String(id), jsii.String(existing))
	}
	rules := []*awss3.LifecycleRule{{
		Id:                          jsii.String("Recoverable"),
		NoncurrentVersionExpiration: awscdk.Duration_Days(jsii.Number(recoverable)),
		// What is left of an object whose versions have all ended.
		ExpiredObjectDeleteMarker: jsii.Bool(true),
	}}
	if days > 0 {
		rules = append(rules, &awss3.LifecycleRule{
			Id:         jsii.String("Retention"),
			Expiration: awscdk.Duration_Days(jsii.Number(days)),
		})
	}
	props := &awss3.BucketProps{
		Encryption:        awss3.BucketEncryption_S3_MANAGED,
		Versioned:         jsii.Bool(true),
		BlockPublicAccess: awss3.BlockPublicAccess_BLOCK_ALL(),
		ObjectOwnership:   awss3.ObjectOwnership_BUCKET_OWNER_ENFORCED,
		EnforceSSL:        jsii.Bool(true),
		LifecycleRules:    &rules,
		RemovalPolicy:     keptUnlessLocal(conf),
	}
	if accessLogs != nil {
		props.ServerAccessLogsBucket = accessLogs
		props.ServerAccessLogsPrefix = jsii.String(strings.ToLower(id) + "/")
	}
	bucket := awss3.NewBucket(scope, jsii.String(id), props)
	// A bucket that outlives the stack is reached over TLS only after that, too.
	bucket.Policy().ApplyRemovalPolicy(keptUnlessLocal(conf))
	return bucket
}

// environment names the buckets to a function.
func (b buckets) environment() map[string]*string {
	return map[string]*string{
		names.ClaimBucketEnv:   b.claims.BucketName(),
		names.ParkingBucketEnv: b.parking.BucketName(),
	}
}

// letKeep lets the function write the objects that packages claimcheck and
// parking write, and neither read nor delete any. A permission for objects names
// the folder that they are in: their names are made of what they hold.
func (b buckets) letKeep(f function) {
	f.allow([]string{"s3:PutObject"},
		b.claims.ArnForObjects(jsii.String("events/*")),
		b.parking.ArnForObjects(jsii.String("parked/*")),
		b.parking.ArnForObjects(jsii.String("event/*")),
		b.parking.ArnForObjects(jsii.String("delivery/*")))
}

// letReplay lets the function read what is parked, and note that it was replayed
// or settled.
//
// It may list the bucket, because S3 answers a GetObject of a missing object with
// 404 only to those that may, and with 403 to all others (AWS, "GetObject" in the
// S3 API reference): without it, a name that does not exist looks like a missing
// permission. The grant has no condition on s3:prefix: that key is part of the
// requests that list a bucket (AWS, "Actions, resources, and condition keys for
// Amazon S3" in the Service Authorization Reference), and AWS does not say that a
// GetObject meets a condition on it. The function can write to every prefix of
// the bucket anyway.
func (b buckets) letReplay(f function) {
	f.allow([]string{"s3:ListBucket"}, b.parking.BucketArn())
	f.allow([]string{"s3:GetObject"}, b.parking.ArnForObjects(jsii.String("parked/*")))
	f.allow([]string{"s3:PutObject"},
		b.parking.ArnForObjects(jsii.String("replayed/*")),
		b.parking.ArnForObjects(jsii.String("settled/*")))
}
