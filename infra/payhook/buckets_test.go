package payhook

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBucketsAreEncryptedVersionedAndPrivate(t *testing.T) {
	tm := payhook(t, map[string]any{"evidence": "1d"})
	buckets := tm.all(t, "AWS::S3::Bucket")
	if diff := cmp.Diff([]string{"AccessLogs", "Claims", "Parking", "Records"},
		slices.Sorted(maps.Keys(buckets))); diff != "" {
		t.Error(diff)
	}
	for name, bucket := range buckets {
		p := bucket.Properties
		if got := at(p, "BucketEncryption", "ServerSideEncryptionConfiguration", 0, "ServerSideEncryptionByDefault",
			"SSEAlgorithm"); got != "AES256" {
			t.Errorf("%s is encrypted with %v", name, got)
		}
		if got := at(p, "VersioningConfiguration", "Status"); got != "Enabled" {
			t.Errorf("%s: versions are %v", name, got)
		}
		closed := map[string]any{"BlockPublicAcls": true, "BlockPublicPolicy": true, "IgnorePublicAcls": true,
			"RestrictPublicBuckets": true}
		if diff := cmp.Diff(closed, p["PublicAccessBlockConfiguration"]); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
		if got := at(p, "OwnershipControls", "Rules", 0, "ObjectOwnership"); got != "BucketOwnerEnforced" {
			t.Errorf("%s: objects are owned as %v", name, got)
		}
	}
}

func TestBucketsRequireTLS(t *testing.T) {
	tm := payhook(t, map[string]any{"evidence": "1d"})
	for name := range tm.all(t, "AWS::S3::Bucket") {
		statements := at(tm.get(t, name+"/Policy", "AWS::S3::BucketPolicy").Properties, "PolicyDocument",
			"Statement").([]any)
		// Another test checks the other statements of the access logs' policy.
		if name != "AccessLogs" && len(statements) != 1 {
			t.Errorf("%s: %v", name, statements)
		}
		s := statements[0]
		if at(s, "Effect") != "Deny" || at(s, "Action") != "s3:*" || at(s, "Principal", "AWS") != "*" ||
			at(s, "Condition", "Bool", "aws:SecureTransport") != "false" {
			t.Errorf("%s can be reached without TLS, or by other principals: %v", name, s)
		}
		var on []string
		for _, r := range at(s, "Resource").([]any) {
			on = append(on, tm.render(r))
		}
		slices.Sort(on)
		if diff := cmp.Diff([]string{name + ".Arn", name + ".Arn/*"}, on); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

// Parked deliveries were not published, so they do not expire by default.
func TestObjectsExpireAsConfigured(t *testing.T) {
	for _, c := range []struct {
		settings        map[string]any
		claims, parking any // days
	}{
		{nil, 365.0, nil},
		{map[string]any{"claimRetention": "never", "parkedRetention": "3653d"}, nil, 3653.0},
	} {
		tm := payhook(t, c.settings)
		for name, want := range map[string]any{"Claims": c.claims, "Parking": c.parking} {
			var ends, recoverable []any
			short := name != "Parking"
			for _, rule := range at(tm.get(t, name, "AWS::S3::Bucket").Properties, "LifecycleConfiguration",
				"Rules").([]any) {
				// Rejected requests end after a day, with every setting.
				if name == "Parking" && at(rule, "Prefix") == "captured/" && at(rule, "Status") == "Enabled" &&
					at(rule, "ExpirationInDays") == 1.0 &&
					at(rule, "NoncurrentVersionExpiration", "NoncurrentDays") == 1.0 {
					short = true
					continue
				}
				if at(rule, "Status") != "Enabled" || at(rule, "Prefix") != nil {
					t.Errorf("%s: %v", name, rule)
				}
				if days := at(rule, "ExpirationInDays"); days != nil {
					ends = append(ends, days)
				}
				if days := at(rule, "NoncurrentVersionExpiration", "NoncurrentDays"); days != nil {
					recoverable = append(recoverable, days)
				}
			}
			if !short {
				t.Errorf("%s: rejected requests do not end after a day", name)
			}
			if want == nil && ends != nil || want != nil && !slices.Equal(ends, []any{want}) {
				t.Errorf("%s with %v: objects end after %v days, want %v", name, c.settings, ends, want)
			}
			if !slices.Equal(recoverable, []any{30.0}) {
				t.Errorf("%s: a version that is replaced or deleted ends after %v days", name, recoverable)
			}
		}
	}
}

func TestEveryRequestToABucketIsLogged(t *testing.T) {
	tm := payhook(t, map[string]any{"logRetentionDays": "180"})
	prefixes := map[string]string{"Claims": "claims/", "Parking": "parking/"}
	for name, bucket := range tm.all(t, "AWS::S3::Bucket") {
		logging := bucket.Properties["LoggingConfiguration"]
		// A bucket that logs its own requests would write a log for every log.
		if name == "AccessLogs" {
			if logging != nil {
				t.Errorf("%s: %v", name, logging)
			}
			continue
		}
		if got := tm.render(at(logging, "DestinationBucketName")); got != "AccessLogs" {
			t.Errorf("%s is logged to %s", name, got)
		}
		if got := at(logging, "LogFilePrefix"); got != prefixes[name] {
			t.Errorf("%s is logged under %v", name, got)
		}
	}

	// Only S3 can write there, for these buckets and this account.
	statements := at(tm.get(t, "AccessLogs/Policy", "AWS::S3::BucketPolicy").Properties, "PolicyDocument",
		"Statement").([]any)
	written := map[string]string{}
	for _, s := range statements[1:] {
		if at(s, "Effect") != "Allow" || at(s, "Action") != "s3:PutObject" ||
			at(s, "Principal", "Service") != "logging.s3.amazonaws.com" ||
			tm.render(at(s, "Condition", "StringEquals", "aws:SourceAccount")) != "AWS::AccountId" {
			t.Errorf("got %v", s)
		}
		written[tm.render(at(s, "Resource"))] = tm.render(at(s, "Condition", "ArnLike", "aws:SourceArn"))
	}
	want := map[string]string{"AccessLogs.Arn/claims/*": "Claims.Arn", "AccessLogs.Arn/parking/*": "Parking.Arn"}
	if diff := cmp.Diff(want, written); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	var days any
	for _, rule := range at(tm.get(t, "AccessLogs", "AWS::S3::Bucket").Properties, "LifecycleConfiguration",
		"Rules").([]any) {
		if d := at(rule, "ExpirationInDays"); d != nil {
			days = d
		}
	}
	if days != 180.0 {
		t.Errorf("access logs end after %v days", days)
	}
}
