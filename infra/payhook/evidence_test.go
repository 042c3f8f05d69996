package payhook

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/names"
)

func TestEvidenceIsLockedForItsRetention(t *testing.T) {
	for _, c := range []struct {
		settings map[string]any
		mode     string
		days     float64
	}{
		{map[string]any{"evidence": "7y"}, "GOVERNANCE", 2562},
		{map[string]any{"evidence": "10d", "evidenceLock": "compliance", "claimBucket": "claims",
			"parkingBucket": "parking"}, "COMPLIANCE", 10},
	} {
		tm := payhook(t, c.settings)
		bucket := tm.get(t, "Records", "AWS::S3::Bucket")
		p := bucket.Properties
		want := map[string]any{"ObjectLockEnabled": "Enabled", "Rule": map[string]any{
			"DefaultRetention": map[string]any{"Mode": c.mode, "Days": c.days}}}
		if diff := cmp.Diff(want, p["ObjectLockConfiguration"]); diff != "" || p["ObjectLockEnabled"] != true {
			t.Errorf("%s, enabled %v", diff, p["ObjectLockEnabled"])
		}
		if !strings.HasPrefix(bucket.DeletionPolicy, "Retain") || bucket.UpdateReplacePolicy != "Retain" {
			t.Errorf("on deletion %s, on replacement %s", bucket.DeletionPolicy, bucket.UpdateReplacePolicy)
		}
		var expires any
		for _, rule := range list(at(p, "LifecycleConfiguration", "Rules")) {
			if days := at(rule, "ExpirationInDays"); days != nil {
				expires = days
			}
		}
		if expires != c.days || tm.render(at(p, "LoggingConfiguration", "DestinationBucketName")) != "AccessLogs" {
			t.Errorf("records expire after %v days; %v", expires, p["LoggingConfiguration"])
		}
	}
}

func TestTheStreamDeliversIntoTheBucketByDay(t *testing.T) {
	tm := payhook(t, map[string]any{"evidence": "7y", "logRetentionDays": "30"})
	p := tm.get(t, "Evidence/Stream", "AWS::KinesisFirehose::DeliveryStream").Properties
	if p["DeliveryStreamType"] != "DirectPut" ||
		at(p, "DeliveryStreamEncryptionConfigurationInput", "KeyType") != "AWS_OWNED_CMK" {
		t.Errorf("%v", p)
	}
	s3 := at(p, "ExtendedS3DestinationConfiguration").(map[string]any)
	for name, want := range map[string]string{"BucketARN": "Records.Arn", "RoleARN": "Evidence/Role.Arn",
		"Prefix": "!{timestamp:yyyy/MM/dd}/", "CompressionFormat": "GZIP", "FileExtension": ".jsonl.gz",
		"ErrorOutputPrefix": "errors/!{firehose:error-output-type}/!{timestamp:yyyy/MM/dd}/"} {
		if got := tm.render(s3[name]); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	logging := s3["CloudWatchLoggingOptions"]
	if at(logging, "Enabled") != true || tm.render(at(logging, "LogGroupName")) != "Evidence/Logs" ||
		tm.get(t, "Evidence/Logs", "AWS::Logs::LogGroup").Properties["RetentionInDays"] != 30.0 {
		t.Errorf("%v", logging)
	}
	want := map[string][]string{
		"Records.Arn":       {"s3:GetBucketLocation", "s3:ListBucket", "s3:ListBucketMultipartUploads"},
		"Records.Arn/*":     {"s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"},
		"Evidence/Logs.Arn": {"logs:PutLogEvents"},
	}
	if diff := cmp.Diff(want, tm.grants(t, "Evidence/Role")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	trust := at(tm.get(t, "Evidence/Role", "AWS::IAM::Role").Properties, "AssumeRolePolicyDocument", "Statement", 0)
	if at(trust, "Principal", "Service") != "firehose.amazonaws.com" ||
		tm.render(at(trust, "Condition", "StringEquals", "sts:ExternalId")) != "AWS::AccountId" {
		t.Errorf("%v", trust)
	}
	// Firehose would delete what it has not delivered.
	for path, r := range tm.Resources {
		if strings.HasPrefix(path, "Evidence/") && !strings.HasPrefix(r.DeletionPolicy, "Retain") {
			t.Errorf("%s is not retained: %s", path, r.DeletionPolicy)
		}
	}
	if got := tm.render(tm.Outputs[names.EvidenceBucketOutput].Value); got != "Records" {
		t.Errorf("the output is %s", got)
	}
}

func TestTheWebhookFunctionKnowsTheStreamAndItsCode(t *testing.T) {
	variables := func(conf map[string]any) (stream, digest any) {
		tm := payhook(t, conf)
		environment := at(tm.get(t, functions["webhook"], "AWS::Lambda::Function").Properties, "Environment",
			"Variables")
		stream = at(environment, names.EvidenceStreamEnv)
		if stream != nil {
			stream = tm.render(stream)
		}
		return stream, at(environment, names.CodeDigestEnv)
	}
	if stream, digest := variables(nil); stream != nil || digest != nil {
		t.Errorf("%v, %v", stream, digest)
	}
	sum := sha256.Sum256(builtFunctions["arm64"]["webhook"])
	if stream, digest := variables(map[string]any{"evidence": "1d"}); stream != "Evidence/Stream" ||
		digest != hex.EncodeToString(sum[:]) {
		t.Errorf("%v, %v", stream, digest)
	}
}
