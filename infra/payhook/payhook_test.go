package payhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
)

// functions are the names of the functions in the template by their folder.
var functions = map[string]string{"webhook": "Webhook/Function", "redrive": "Redrive/Function",
	"token": "Token/Function"}

// grants lists, for each resource, the actions that a role can perform on it.
func (tm *template) grants(t *testing.T, role string) map[string][]string {
	t.Helper()
	properties := tm.get(t, role, "AWS::IAM::Role").Properties
	for _, other := range []string{"ManagedPolicyArns", "Policies"} {
		if properties[other] != nil {
			t.Errorf("%s has %s: %v", role, other, properties[other])
		}
	}
	grants := map[string][]string{}
	for name, policy := range tm.all(t, "AWS::IAM::Policy") {
		roles := policy.Properties["Roles"].([]any)
		if !slices.ContainsFunc(roles, func(r any) bool { return tm.render(r) == role }) {
			continue
		}
		if len(roles) > 1 {
			t.Errorf("%s is the policy of more than one role", name)
		}
		for _, statement := range at(policy.Properties, "PolicyDocument", "Statement").([]any) {
			s := statement.(map[string]any)
			if s["Effect"] != "Allow" || s["NotAction"] != nil || s["NotResource"] != nil {
				t.Errorf("%s: not a plain permission: %v", name, s)
			}
			for _, r := range list(s["Resource"]) {
				on := tm.render(r)
				for _, action := range list(s["Action"]) {
					grants[on] = append(grants[on], action.(string))
				}
			}
		}
	}
	for _, actions := range grants {
		slices.Sort(actions)
	}
	return grants
}

func list(value any) []any {
	if l, ok := value.([]any); ok {
		return l
	}
	return []any{value}
}

// TestEachFunctionHasExactlyThePermissionsOfItsCalls derives from the functions'
// programs the calls that they make, so that neither a call without a permission nor a
// permission without a call can be deployed.
func TestEachFunctionHasExactlyThePermissionsOfItsCalls(t *testing.T) {
	for folder, path := range functions {
		for _, conf := range []map[string]any{nil, {"keysAuth": "bearer"}, {"captureRejected": "1h"},
			{"evidence": "1d"}} {
			t.Run(fmt.Sprint(folder, conf), func(t *testing.T) {
				want := needs(t, folder)
				// Its program can read the token, and store rejected requests, and does so only if
				// these are set.
				if folder == "webhook" && conf["keysAuth"] == nil {
					delete(want, "Token/Secret.Id")
				}
				if folder == "webhook" && conf["captureRejected"] == nil {
					delete(want, "Parking.Arn/captured/*")
				}
				if folder == "redrive" || conf["evidence"] == nil {
					delete(want, "Records.Arn/accepted/*")
				}
				if folder == "redrive" {
					// Its program can read the last client certificate, and does so only with
					// mtls and both.
					delete(want, "Keys.Arn")
				}
				part, _, _ := strings.Cut(path, "/")
				// Lambda writes the log, with the permissions of the function's role.
				want[part+"/Logs.Arn"] = []string{"logs:CreateLogStream", "logs:PutLogEvents"}
				tm := payhook(t, conf)
				if got := tm.render(tm.get(t, path, "AWS::Lambda::Function").Properties["Role"]); got != part+
					"/Role.Arn" {
					t.Errorf("runs as %s", got)
				}
				if diff := cmp.Diff(want, tm.grants(t, part+"/Role")); diff != "" {
					t.Errorf("(-what it calls +what it may do)\n%s", diff)
				}
			})
		}
	}
}

// The keys of objects are not known in advance: the folders of objects that are
// written or read end in an asterisk. Other resources must not.
func TestPoliciesHaveWildcardsOnlyForObjectsOfAFolder(t *testing.T) {
	tm := payhook(t, map[string]any{"keysAuth": "bearer", "captureRejected": "1h"})
	folders := []string{
		"Claims.Arn/events/*", "Parking.Arn/parked/*", "Parking.Arn/event/*", "Parking.Arn/delivery/*",
		"Parking.Arn/replayed/*", "Parking.Arn/settled/*", "Parking.Arn/captured/*",
	}
	for name, policy := range tm.all(t, "AWS::IAM::Policy") {
		for _, s := range at(policy.Properties, "PolicyDocument", "Statement").([]any) {
			for _, part := range []string{"Action", "Resource"} {
				for _, value := range list(at(s, part)) {
					text, err := json.Marshal(value)
					if err != nil {
						t.Fatal(err)
					}
					if bytes.Contains(text, []byte("*")) &&
						!(part == "Resource" && slices.Contains(folders, tm.render(value))) {
						t.Errorf("%s: %s %s", name, part, text)
					}
				}
			}
		}
	}
}

func TestRolesAreForOneService(t *testing.T) {
	tm := payhook(t, nil)
	for name, role := range tm.all(t, "AWS::IAM::Role") {
		statements := at(role.Properties, "AssumeRolePolicyDocument", "Statement").([]any)
		if len(statements) != 1 {
			t.Fatalf("%s: %v", name, statements)
		}
		want := map[string]any{"Service": "lambda.amazonaws.com"}
		if strings.HasSuffix(name, "/ScheduleRole") {
			want["Service"] = "scheduler.amazonaws.com"
			if account := at(statements[0], "Condition", "StringEquals",
				"aws:SourceAccount"); tm.render(account) != "AWS::AccountId" {
				t.Errorf("%s: schedules of any account may use it", name)
			}
		}
		if diff := cmp.Diff(want, at(statements[0], "Principal")); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

func TestScheduledFunctionsRunEveryMinute(t *testing.T) {
	if settings.TokenInterval.Minutes() != 1 {
		t.Errorf("the token function counts on a run every %s", settings.TokenInterval)
	}
	tm := payhook(t, nil)
	schedules := tm.all(t, "AWS::Scheduler::Schedule")
	if diff := cmp.Diff([]string{"Redrive/Schedule", "Token/Schedule"},
		slices.Sorted(maps.Keys(schedules))); diff != "" {
		t.Error(diff)
	}
	for name, s := range schedules {
		part, _, _ := strings.Cut(name, "/")
		if got := s.Properties["ScheduleExpression"]; got != "rate(1 minute)" {
			t.Errorf("%s: %v", name, got)
		}
		if got := at(s.Properties, "FlexibleTimeWindow", "Mode"); got != "OFF" {
			t.Errorf("%s: %v", name, got)
		}
		if got := s.Properties["State"]; got != nil && got != "ENABLED" {
			t.Errorf("%s is %v", name, got)
		}
		if got := tm.render(at(s.Properties, "Target", "Arn")); got != part+"/Alias" {
			t.Errorf("%s runs %s", name, got)
		}
		if got := tm.render(at(s.Properties, "Target", "RoleArn")); got != part+"/ScheduleRole.Arn" {
			t.Errorf("%s runs as %s", name, got)
		}
		want := map[string][]string{
			part + "/Alias":                {"lambda:InvokeFunction"},
			part + "/ScheduleFailures.Arn": {"sqs:SendMessage"},
		}
		if diff := cmp.Diff(want, tm.grants(t, part+"/ScheduleRole")); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
		if got := tm.render(at(s.Properties, "Target", "DeadLetterConfig", "Arn")); got != part+
			"/ScheduleFailures.Arn" {
			t.Errorf("failures of %s go to %s", name, got)
		}
		if at(tm.get(t, part+"/Alias/EventInvokeConfig", "AWS::Lambda::EventInvokeConfig").Properties,
			"MaximumRetryAttempts") != 0.0 {
			t.Errorf("a failed run of %s is retried", name)
		}
	}
}

func TestTablesHaveTheKeysThatTheFunctionsUse(t *testing.T) {
	tm := payhook(t, nil)
	ledger := tm.get(t, "Ledger", "AWS::DynamoDB::GlobalTable").Properties
	keys := tm.get(t, "Keys", "AWS::DynamoDB::GlobalTable").Properties

	attributes := func(table map[string]any) map[string]any {
		kinds := map[string]any{}
		for _, a := range table["AttributeDefinitions"].([]any) {
			kinds[at(a, "AttributeName").(string)] = at(a, "AttributeType")
		}
		return kinds
	}
	key := func(name string) []any {
		return []any{map[string]any{"AttributeName": name, "KeyType": "HASH"}}
	}
	ttl := func(name string) map[string]any { return map[string]any{"AttributeName": name, "Enabled": true} }

	want := map[string]any{names.LedgerKey: "S", names.LedgerPendingShard: "S", names.LedgerPendingDue: "N"}
	if diff := cmp.Diff(want, attributes(ledger)); diff != "" {
		t.Errorf("ledger's attributes (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(map[string]any{names.KeysKey: "S"}, attributes(keys)); diff != "" {
		t.Errorf("keys' attributes (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(key(names.LedgerKey), ledger["KeySchema"]); diff != "" {
		t.Errorf("ledger's key (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(key(names.KeysKey), keys["KeySchema"]); diff != "" {
		t.Errorf("keys' key (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(ttl(names.LedgerTTL), ledger["TimeToLiveSpecification"]); diff != "" {
		t.Errorf("ledger's time to live (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(ttl(names.KeysTTL), keys["TimeToLiveSpecification"]); diff != "" {
		t.Errorf("keys' time to live (-want +got)\n%s", diff)
	}
	index := []any{map[string]any{
		"IndexName": names.LedgerPendingIndex,
		"KeySchema": append(key(names.LedgerPendingShard),
			map[string]any{"AttributeName": names.LedgerPendingDue, "KeyType": "RANGE"}),
		"Projection": map[string]any{"ProjectionType": "INCLUDE", "NonKeyAttributes": []any{"recordedAt", "size"}},
	}}
	if diff := cmp.Diff(index, ledger["GlobalSecondaryIndexes"]); diff != "" {
		t.Errorf("ledger's index (-want +got)\n%s", diff)
	}
	for name, table := range tm.all(t, "AWS::DynamoDB::GlobalTable") {
		if table.Properties["BillingMode"] != "PAY_PER_REQUEST" {
			t.Errorf("%s: billed %v", name, table.Properties["BillingMode"])
		}
		if at(table.Properties, "Replicas", 0, "PointInTimeRecoverySpecification",
			"PointInTimeRecoveryEnabled") != true {
			t.Errorf("%s can't be restored", name)
		}
	}
}

func TestOnlyALocalDeploymentDeletesItsData(t *testing.T) {
	for kind, conf := range map[string]map[string]any{"cloud": nil, "local": local} {
		tm := payhook(t, conf)
		isLocal := kind == "local"
		ledger := tm.get(t, "Ledger", "AWS::DynamoDB::GlobalTable")
		if got := at(ledger.Properties, "Replicas", 0, "DeletionProtectionEnabled"); got != !isLocal {
			t.Errorf("%s: the ledger is protected from deletion: %v", kind, got)
		}
		kept := tm.all(t, "AWS::S3::Bucket")
		maps.Copy(kept, tm.all(t, "AWS::S3::BucketPolicy"))
		maps.Copy(kept, tm.all(t, "AWS::Logs::LogGroup"))
		kept["Token/Credentials"] = tm.get(t, "Token/Credentials", "AWS::SecretsManager::Secret")
		kept["Ledger"] = ledger
		for name, r := range kept {
			deletion, replacement := "RetainExceptOnCreate", "Retain"
			switch {
			case isLocal:
				deletion, replacement = "Delete", "Delete"
			case name == "Ledger": // a rollback cannot delete it
				deletion = "Retain"
			}
			// Delete is the default.
			if got := r.DeletionPolicy; got != deletion && !(isLocal && got == "") {
				t.Errorf("%s: %s: on deletion %s, want %s", kind, name, got, deletion)
			}
			if got := r.UpdateReplacePolicy; got != replacement && !(isLocal && got == "") {
				t.Errorf("%s: %s: on replacement %s, want %s", kind, name, got, replacement)
			}
		}
	}
}

func TestKeysTableIsDeletedWithTheStack(t *testing.T) {
	keys := payhook(t, nil).get(t, "Keys", "AWS::DynamoDB::GlobalTable")
	if keys.DeletionPolicy != "Delete" || at(keys.Properties, "Replicas", 0, "DeletionProtectionEnabled") == true {
		t.Errorf("on deletion %s, protected: %v", keys.DeletionPolicy,
			at(keys.Properties, "Replicas", 0, "DeletionProtectionEnabled"))
	}
}

func TestOnlyTheWebhookFunctionHasAPublicURL(t *testing.T) {
	tm := payhook(t, nil)
	urls := tm.all(t, "AWS::Lambda::Url")
	if len(urls) != 1 {
		t.Errorf("%d URLs", len(urls))
	}
	for name, url := range urls {
		if url.Properties["AuthType"] != "NONE" ||
			tm.render(url.Properties["TargetFunctionArn"]) != "Webhook/Function.Arn" ||
			url.Properties["Qualifier"] != aliasName {
			t.Errorf("%s: %v", name, url.Properties)
		}
	}
	// AWS requires both actions, the second one only through the URL.
	actions := map[any]any{}
	for name, p := range tm.all(t, "AWS::Lambda::Permission") {
		if tm.render(p.Properties["FunctionName"]) != "Webhook/Alias" {
			t.Errorf("%s opens %v", name, p.Properties["FunctionName"])
		}
		if p.Properties["FunctionUrlAuthType"] != "NONE" && p.Properties["InvokedViaFunctionUrl"] != true {
			t.Errorf("%s opens more than the URL", name)
		}
		actions[p.Properties["Action"]] = p.Properties["Principal"]
	}
	if diff := cmp.Diff(map[any]any{"lambda:InvokeFunctionUrl": "*", "lambda:InvokeFunction": "*"},
		actions); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestEnvironmentsContainExactlyTheSettings(t *testing.T) {
	conf := map[string]any{"keysAuth": "bearer", "timestampTolerance": "2m", "eventBusName": "payments",
		"scopes": "a b"}
	tm := payhook(t, conf)
	environment := func(function string) map[string]string {
		values := map[string]string{}
		for name, value := range at(tm.get(t, functions[function], "AWS::Lambda::Function").Properties, "Environment",
			"Variables").(map[string]any) {
			values[name] = tm.render(value)
		}
		return values
	}
	deployment, err := parse(t, required, conf)
	if err != nil {
		t.Fatal(err)
	}
	for function, want := range map[string]struct {
		settings  []*settings.Setting
		resources map[string]string
		parse     func(func(string) string) error
	}{
		"webhook": {
			settings.WebhookSettings(),
			map[string]string{
				names.LedgerTableEnv: "Ledger", names.KeysTableEnv: "Keys", names.TokenSecretEnv: "Token/Secret.Id",
				names.ClaimBucketEnv: "Claims", names.ParkingBucketEnv: "Parking",
			},
			func(getenv func(string) string) error { _, err := settings.ParseWebhook(getenv); return err },
		},
		"redrive": {
			settings.RedriveSettings(),
			map[string]string{
				names.LedgerTableEnv: "Ledger", names.ClaimBucketEnv: "Claims", names.ParkingBucketEnv: "Parking",
			},
			func(getenv func(string) string) error { _, err := settings.ParseRedrive(getenv); return err },
		},
		"token": {
			settings.TokenSettings(),
			map[string]string{names.TokenSecretEnv: "Token/Secret.Id",
				names.CredentialsSecretEnv: "Token/Credentials.Id"},
			func(getenv func(string) string) error { _, err := settings.ParseToken(getenv); return err },
		},
	} {
		got := environment(function)
		all := maps.Clone(want.resources)
		all[names.StackEnv] = "Payhook"
		all["SSL_CERT_DIR"] = "/nonexistent" // Go reads the bundle of CA certificates once
		for _, s := range want.settings {
			all[s.Env()] = deployment.Value(s)
		}
		if diff := cmp.Diff(all, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", function, diff)
		}
		if err := want.parse(func(name string) string { return got[name] }); err != nil {
			t.Errorf("%s would not start: %v", function, err)
		}
	}
	// The certificates of a user's machine are searched as usual.
	variables := payhook(t, local).get(t, functions["token"], "AWS::Lambda::Function").Properties
	if got := at(variables, "Environment", "Variables", "SSL_CERT_DIR"); got != nil {
		t.Errorf("local: SSL_CERT_DIR is %v", got)
	}
}

func TestWebhookKnowsTheTokenOnlyForBearer(t *testing.T) {
	tm := payhook(t, nil)
	variables := at(tm.get(t, functions["webhook"], "AWS::Lambda::Function").Properties, "Environment", "Variables")
	if got := at(variables, names.TokenSecretEnv); got != nil {
		t.Errorf("got %v", got)
	}
}

func TestFunctionLimitsAreConfigurable(t *testing.T) {
	tm := payhook(t, map[string]any{
		"webhookTimeout": "12s", "webhookConcurrency": 50,
	})
	want := map[string]map[string]any{
		"webhook": {"MemorySize": 512.0, "Timeout": 12.0, "ReservedConcurrentExecutions": 50.0},
		"redrive": {"MemorySize": 512.0, "Timeout": 55.0},
		"token":   {"MemorySize": 256.0, "Timeout": 55.0},
	}
	for function, limits := range want {
		p := tm.get(t, functions[function], "AWS::Lambda::Function").Properties
		for name, limit := range limits {
			if p[name] != limit {
				t.Errorf("%s: %s is %v, want %v", function, name, p[name], limit)
			}
		}
	}
	for name, f := range payhook(t, nil).all(t, "AWS::Lambda::Function") {
		if got := f.Properties["ReservedConcurrentExecutions"]; got != nil {
			t.Errorf("%s: concurrency is %v, though none was asked for", name, got)
		}
	}
}

func TestFunctionsHaveTheArchitectureOfTheTarget(t *testing.T) {
	for _, c := range []struct {
		settings map[string]any
		want     string
	}{{nil, "arm64"}, {local, map[string]string{"amd64": "x86_64", "arm64": "arm64"}[thisMachine]}} {
		for name, f := range payhook(t, c.settings).all(t, "AWS::Lambda::Function") {
			if got := at(f.Properties, "Architectures", 0); got != c.want {
				t.Errorf("%s: %v, want %s", name, got, c.want)
			}
			if f.Properties["Runtime"] != "provided.al2023" || f.Properties["PackageType"] != nil {
				t.Errorf("%s: runs on %v", name, f.Properties["Runtime"])
			}
		}
	}
}

func TestLogsAreUnchangedAndExpire(t *testing.T) {
	tm := payhook(t, map[string]any{"logRetentionDays": "365"})
	for folder, name := range functions {
		part, _, _ := strings.Cut(name, "/")
		f := tm.get(t, name, "AWS::Lambda::Function")
		if got := tm.render(at(f.Properties, "LoggingConfig", "LogGroup")); got != part+"/Logs" {
			t.Errorf("%s writes to %s", folder, got)
		}
		if got := at(f.Properties, "LoggingConfig", "LogFormat"); got != "Text" {
			t.Errorf("%s writes %v", folder, got)
		}
		if got := tm.get(t, part+"/Logs", "AWS::Logs::LogGroup").Properties["RetentionInDays"]; got != 365.0 {
			t.Errorf("%s keeps its log for %v days", folder, got)
		}
	}
}

func TestOutputs(t *testing.T) {
	tm := payhook(t, nil)
	want := map[string]string{
		"WebhookUrl":        "Webhook/Alias/FunctionUrl.FunctionUrl",
		"EventBusName":      "Bus",
		"EventBusArn":       "Bus.Arn",
		"LedgerTable":       "Ledger",
		"KeysTable":         "Keys",
		"ClaimBucket":       "Claims",
		"ParkingBucket":     "Parking",
		"WebhookFunction":   "Webhook/Function:live",
		"RedriveFunction":   "Redrive/Function:live",
		"TokenFunction":     "Token/Function:live",
		"WebhookLogs":       "Webhook/Logs",
		"RedriveLogs":       "Redrive/Logs",
		"TokenLogs":         "Token/Logs",
		"TokenSecret":       "Token/Secret.Id",
		"CredentialsSecret": "Token/Credentials.Id",
		"AlarmTopic":        "Alarms/Topic",
		"Dashboard":         "Payhook-AWS::Region",
		"EventArchive":      "Archive",
		"Version":           names.Version(),
	}
	got := map[string]string{}
	for name, output := range tm.Outputs {
		got[name] = tm.render(output.Value)
	}
	sheet := got["SubscriptionDetails"]
	delete(got, "SubscriptionDetails")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, asked := range []string{want["WebhookUrl"], "signature verification", "grouping",
		"PAYMENT_STATUS.RELEASED"} {
		if !strings.Contains(sheet, asked) {
			t.Errorf("the subscription sheet has no %q:\n%s", asked, sheet)
		}
	}
}

// Every payload of the stated size must fit.
func TestTheSubscriptionDetailsPromisesOnlyWhatAlwaysFits(t *testing.T) {
	for limit, want := range map[string]string{"6291456": "up to 3112959 bytes each",
		"3112960": "up to 3112959 bytes each", "3112958": "up to 3112958 bytes each"} {
		tm := payhook(t, map[string]any{"maxPayloadBytes": limit})
		if sheet := tm.render(tm.Outputs["SubscriptionDetails"].Value); !strings.Contains(sheet, want) {
			t.Errorf("maxPayloadBytes=%s: no %q in\n%s", limit, want, sheet)
		}
	}
}

func TestStackAndBusHaveTheConfiguredNames(t *testing.T) {
	if got := payhook(t, map[string]any{"stackName": "PayhookStaging"}).get(t, "Bus",
		"AWS::Events::EventBus").Properties["Name"]; got != "payhookstaging" {
		t.Errorf("the bus is %v", got)
	}
	tm := payhook(t, map[string]any{"eventBusName": "payments"})
	if got := tm.get(t, "Bus", "AWS::Events::EventBus").Properties["Name"]; got != "payments" {
		t.Errorf("the bus is %v", got)
	}
}

func TestNoSecretHasAValueInTheTemplate(t *testing.T) {
	for name, secret := range payhook(t, nil).all(t, "AWS::SecretsManager::Secret") {
		if diff := cmp.Diff([]string{"Description"}, slices.Sorted(maps.Keys(secret.Properties))); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

func TestTracingIsEnabledBySetting(t *testing.T) {
	for _, tracing := range []bool{true, false} {
		tm := payhook(t, map[string]any{"tracing": tracing})
		for name, function := range functions {
			part, _, _ := strings.Cut(function, "/")
			mode := at(tm.get(t, function, "AWS::Lambda::Function").Properties, "TracingConfig", "Mode")
			if (mode == "Active") != tracing {
				t.Errorf("tracing=%t: %s: %v", tracing, name, mode)
			}
			want := map[bool][]string{true: {"xray:PutTelemetryRecords", "xray:PutTraceSegments"}}[tracing]
			if diff := cmp.Diff(want, tm.grants(t, part+"/Role")["*"]); diff != "" {
				t.Errorf("tracing=%t: %s may do on every resource (-want +got)\n%s", tracing, name, diff)
			}
		}
	}
}
