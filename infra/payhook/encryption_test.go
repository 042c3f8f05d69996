package payhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/regioninfo"
	"github.com/aws/jsii-runtime-go"
	"github.com/google/go-cmp/cmp"
)

const (
	someKey    = "arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
	furtherKey = "arn:aws:kms:eu-central-1:123456789012:key/aaaaaaaa-12ab-34cd-56ef-1234567890ab"
)

// encrypted are settings with a customer managed key, and the rendered ARN.
var encrypted = []struct {
	settings map[string]any
	key      string
}{
	{map[string]any{"encryption": "cmk", "keyEndpointAuth": "bearer", "evidence": "7y"}, "Encryption/Key.Arn"},
	{map[string]any{"encryption": someKey, "keyEndpointAuth": "bearer", "evidence": "7y"}, someKey},
}

// storesNothing are the resource types that store no data.
var storesNothing = []string{
	"AWS::CloudWatch::Dashboard",
	"AWS::CloudWatch::Alarm", "AWS::Events::EventBusPolicy", "AWS::IAM::Policy", "AWS::IAM::Role", "AWS::KMS::Key",
	"AWS::Lambda::Alias", "AWS::Lambda::EventInvokeConfig", "AWS::Lambda::Permission", "AWS::Lambda::Url",
	"AWS::Lambda::Version", "AWS::Logs::LogStream", "AWS::S3::BucketPolicy",
	"AWS::SNS::TopicPolicy", "AWS::SQS::QueuePolicy",
	"AWS::Lambda::Function",    // environments hold names and settings and no secret
	"AWS::Scheduler::Schedule", // schedules have no input
}

// A deployment that changes the key lets the functions use it before tables, buckets, secrets and
// queues have it. So the policies cannot refer to these: cfn-lint finds such a cycle.
func TestAllStoredDataIsEncryptedWithTheKeyWhoseUseIsAllowedFirst(t *testing.T) {
	for _, c := range encrypted {
		tm := payhook(t, c.settings)
		var policies []string
		for name := range tm.Resources {
			if strings.HasSuffix(name, "Role/Keys") {
				policies = append(policies, name)
			}
		}
		if roles := tm.all(t, "AWS::IAM::Role"); len(policies) != len(roles) {
			t.Errorf("policies %q for the roles %q", policies, slices.Sorted(maps.Keys(roles)))
		}
		for name, r := range tm.Resources {
			// S3 delivers no access logs to a bucket with the key, and the queue must take messages while the key
			// cannot be used.
			if slices.Contains(storesNothing, r.Type) || name == "AccessLogs" || name == "Encryption/BusFailures" {
				continue
			}
			if !strings.Contains(fmt.Sprint(r.Properties), c.key) {
				t.Errorf("%s, a %s, is not encrypted with %s", name, r.Type, c.key)
			}
			for _, policy := range policies {
				if !slices.Contains(r.DependsOn, policy) {
					t.Errorf("%s does not depend on %s", name, policy)
				}
			}
		}
	}
}

// uses lists the actions of a role on a key, with their conditions.
func (tm *template) uses(t *testing.T, role, key string) (uses []string) {
	t.Helper()
	for _, s := range tm.statements(t, role) {
		if slices.Contains(list(s["Resource"]), any(key)) {
			uses = append(uses, fmt.Sprint(s["Action"], " ", s["Condition"]))
		}
	}
	slices.Sort(uses)
	return uses
}

// reads is the permission to decrypt through a service, in an encryption context.
func reads(service, key, value string) string {
	return fmt.Sprintf("kms:Decrypt map[StringEquals:map[kms:ViaService:[%[1]s.AWS::Region.amazonaws.com "+
		"%[1]s.AWS::Region.AWS::URLSuffix]] StringLike:map[kms:EncryptionContext:%[2]s:[%[3]s]]]", service, key, value)
}

// The functions need the same of the own key of an existing resource, or of an earlier key, as of the
// key of encryption. They do not run before they have it.
func TestFunctionsCanUseFurtherKeys(t *testing.T) {
	existing := map[string]any{"ledgerTable": "old-ledger", "largeEventBucket": "old-large-events",
		"parkingBucket": "old-parking"}
	withSecret := map[string][]string{}
	for _, c := range []struct{ encryption, key, store, reader string }{
		{"cmk", "Encryption/Key.Arn", "parameter", reads("ssm", "PARAMETER_ARN", parameter)},
		{someKey, someKey, "secret", reads("secretsmanager", "SecretARN", "Token/Secret.Id")},
		{"aws", "", "secret", reads("secretsmanager", "SecretARN", "Token/Secret.Id")},
	} {
		app, p := newPayhook(t, "", map[string]any{"encryption": c.encryption, "keyEndpointAuth": "bearer",
			"tokenStore": c.store}, existing)
		stack := awscdk.Stack_Of(p)
		p.UseKey(awskms.Key_FromKeyArn(stack, jsii.String("Further"), jsii.String(furtherKey)))
		named := func(w string) bool { return strings.Contains(w, useKeyWarning) }
		if slices.ContainsFunc(printed(p, "warning"), named) {
			t.Errorf("%s: it warns of keys although one is given", c.encryption)
		}
		p.GrantReadToken(awsiam.NewRole(stack, jsii.String("Reader"), &awsiam.RoleProps{
			AssumedBy: awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil)}))
		if err := synthesize(app); err != nil {
			t.Fatal(err)
		}
		tm := readTemplate(t, filepath.Join(*app.Outdir(), *stack.TemplateFile()))
		for role := range tm.all(t, "AWS::IAM::Role") {
			want, got := tm.uses(t, role, c.key), tm.uses(t, role, furtherKey)
			switch {
			case strings.HasSuffix(role, "ScheduleRole"): // of no function
				want = nil
			case strings.HasSuffix(role, "Reader"):
				want = []string{c.reader}
			case c.key == "":
				want = withSecret[role]
			}
			if diff := cmp.Diff(want, got); diff != "" || want == nil != strings.HasSuffix(role, "ScheduleRole") {
				t.Errorf("%s: %s (-want +got)\n%s", c.encryption, role, diff)
			}
			withSecret[role] = got
		}
		for name := range tm.Resources {
			function, _, ok := strings.Cut(name, "/Role/Key")
			if !ok {
				continue
			}
			if f := tm.Resources[function+"/Function"]; !slices.Contains(f.DependsOn, name) ||
				tm.Resources[name].Properties["PolicyName"] != name {
				t.Errorf("%s: %s does not wait for %s, or a deployment changes it", c.encryption, function, name)
			}
		}
	}
}

// For a key that exists, cdk synth prints the statements that the policy of a key of the stack has, without variables.
func TestThreeServicesCanUseAKeyThatExists(t *testing.T) {
	_, p := newPayhook(t, "", encrypted[0].settings)
	if texts := printed(p, "info"); len(texts) > 0 {
		t.Errorf("for a key of the stack: %q", texts)
	}
	_, p = newPayhook(t, "", encrypted[1].settings)
	texts := printed(p, "info")
	if len(texts) != 1 || !strings.Contains(texts[0], "the policy of "+someKey+" needs these statements:\n{") {
		t.Fatalf("printed: %q", texts)
	}
	var policy struct{ Statement []any }
	if err := json.NewDecoder(strings.NewReader(texts[0][strings.Index(texts[0], "{"):])).Decode(&policy); err != nil {
		t.Fatal(err)
	}
	tm := payhook(t, encrypted[0].settings)
	created := at(tm.get(t, "Encryption/Key", "AWS::KMS::Key").Properties, "KeyPolicy", "Statement").([]any)
	// The first statement of a created key lets the account's IAM policies give access to it.
	want := strings.NewReplacer("AWS::Partition", "aws", "AWS::Region", "eu-central-1",
		"AWS::AccountId", "123456789012", "AWS::URLSuffix", "amazonaws.com").Replace(fmt.Sprint(created[1:]))
	if diff := cmp.Diff(want, fmt.Sprint(tm.plain(policy.Statement))); diff != "" || len(policy.Statement) != 5 {
		t.Errorf("%d statements (-want +got)\n%s", len(policy.Statement), diff)
	}
}

// AWS rejects the policy of a key if one of its principals does not exist.
func TestThePrincipalOfCloudWatchLogsHasTheSuffixOfThePartition(t *testing.T) {
	for region, suffix := range map[string]string{"cn-north-1": "amazonaws.com.cn", "us-gov-west-1": "amazonaws.com"} {
		want := "logs." + region + "." + suffix
		app := newApp(t)
		stack := awscdk.NewStack(app, jsii.String("Bank"), &awscdk.StackProps{Env: &awscdk.Environment{Region: &region,
			Account: jsii.String("123456789012")}})
		props := &Props{BaseURL: "https://a.example", AuthURL: "https://b.example", TokenManagerID: "c"}
		props.Encryption, props.DomainName, props.HostedZoneID = "cmk", "hook.bank.example", "Z0123456789ABC"
		create(stack, jsii.String("Default"), props, programs(""))
		if err := synthesize(app); err != nil {
			t.Fatal(err)
		}
		tm := readTemplate(t, filepath.Join(*app.Outdir(), *stack.TemplateFile()))
		created := at(tm.get(t, "Bank/Default/Encryption/Key", "AWS::KMS::Key").Properties, "KeyPolicy", "Statement")
		key := *stack.FormatArn(&awscdk.ArnComponents{Service: jsii.String("kms"), Resource: jsii.String("key"),
			ResourceName: jsii.String("1234abcd-12ab-34cd-56ef-1234567890ab"),
			Partition:    regioninfo.RegionInfo_Get(&region).Partition()})
		_, existing := newPayhook(t, "", map[string]any{"encryption": key})
		for _, policy := range []string{fmt.Sprint(created), strings.Join(printed(existing, "info"), "")} {
			if !regexp.MustCompile(`[": ]` + regexp.QuoteMeta(want) + `["\]]`).MatchString(policy) {
				t.Errorf("%s is not in %s", want, policy)
			}
		}
	}
}

// A nested stack depends on a key of the stack that contains it, so the key cannot depend on the nested stack.
func TestAKeyCanEncryptWhatIsInANestedStack(t *testing.T) {
	app := newApp(t)
	stack := awscdk.NewStack(app, jsii.String("Bank"), nil)
	key := awskms.NewKey(stack, jsii.String("Key"), nil)
	nested := awscdk.NewNestedStack(stack, jsii.String("Nested"), nil)
	create(nested, jsii.String("Payments"), &Props{BaseURL: "https://a.example", AuthURL: "https://b.example",
		TokenManagerID: "c", EncryptionKey: key}, programs(""))
	if err := synthesize(app); err != nil {
		t.Fatal(err)
	}
	tm := readTemplate(t, filepath.Join(*app.Outdir(), *stack.TemplateFile()))
	if text := fmt.Sprint(tm.get(t, "Bank/Key", "AWS::KMS::Key").Properties); strings.Contains(text, "NestedStack") ||
		!strings.Contains(text, "log-group:Bank-*") {
		t.Errorf("the policy of the key is %s", text)
	}
}
