package payhook

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/evidence"
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

func TestTheWebhookFunctionOnlyWritesRecords(t *testing.T) {
	if evidencePrefix != evidence.Prefix {
		t.Errorf("%s, but records have the prefix %s", evidencePrefix, evidence.Prefix)
	}
	for _, conf := range []map[string]any{nil, {"evidence": "1d"}} {
		tm := payhook(t, conf)
		want, bucket := "", ""
		if conf != nil {
			want, bucket = "s3:PutObject", "Records"
		}
		variables := at(tm.get(t, functions["webhook"], "AWS::Lambda::Function").Properties, "Environment", "Variables")
		if got := at(variables, names.EvidenceBucketEnv); conf != nil && tm.render(got) != bucket ||
			conf == nil && got != nil {
			t.Errorf("%v: it writes to %v", conf, got)
		}
		if got := tm.render(tm.Outputs[names.EvidenceBucketOutput].Value); conf != nil && got != bucket {
			t.Errorf("the output is %s", got)
		}
		for _, role := range []string{"Webhook/Role", "Redrive/Role", "Token/Role"} {
			for resource, actions := range tm.grants(t, role) {
				if strings.HasPrefix(resource, "Records") && (role != "Webhook/Role" ||
					resource != "Records.Arn/accepted/*" || strings.Join(actions, " ") != want) {
					t.Errorf("%s may do %s on %s", role, actions, resource)
				}
			}
		}
	}
}
