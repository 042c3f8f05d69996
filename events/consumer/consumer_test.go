package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) {
	status := m.Run()
	jsii.Close()
	os.Exit(status)
}

type resource struct {
	Type       string
	Properties map[string]any
}

// template is the part of a template that the tests read.
type template struct {
	Resources map[string]resource
	Outputs   map[string]struct{ Value any }
}

// target is the bus of another account.
const target = "arn:aws:events:us-east-1:444455556666:event-bus/payhook-receiver"

// stacks returns the templates of the app with both stacks, by their ids. They are
// synthesized once.
func stacks(t *testing.T) map[string]template {
	t.Helper()
	templates, err := synthesized()
	if err != nil {
		t.Fatal(err)
	}
	return templates
}

var synthesized = sync.OnceValues(func() (map[string]template, error) {
	return synthesize(map[string]any{"eventBusName": "payments", "targetBus": target, "sourceAccount": "111122223333"})
})

// synthesize returns the templates of the app with this context.
func synthesize(given map[string]any) (map[string]template, error) {
	folder, err := os.MkdirTemp("", "consumer-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	values, err := context("cdk.json")
	if err != nil {
		return nil, err
	}
	maps.Copy(values, given)
	app := awscdk.NewApp(&awscdk.AppProps{AutoSynth: jsii.Bool(false), Context: &values,
		Outdir: jsii.String(filepath.Join(folder, "out"))})
	if err := build(app, filepath.Join("..", "rules"), func(string) (string, error) {
		program := filepath.Join(folder, "program")
		return program, os.CopyFS(program, fstest.MapFS{"bootstrap": {Data: []byte("program"), Mode: 0o755}})
	}); err != nil {
		return nil, err
	}
	templates := map[string]template{}
	for _, stack := range *app.Synth(nil).Stacks() {
		text, err := os.ReadFile(*stack.TemplateFullPath())
		if err != nil {
			return nil, err
		}
		var made template
		if err := json.Unmarshal(text, &made); err != nil {
			return nil, err
		}
		templates[*stack.Id()] = made
	}
	return templates, nil
}

// get returns the only resource of a type whose logical id begins with prefix.
func (t template) get(test *testing.T, kind, prefix string) map[string]any {
	test.Helper()
	var found []map[string]any
	for id, r := range t.Resources {
		if r.Type == kind && strings.HasPrefix(id, prefix) {
			found = append(found, r.Properties)
		}
	}
	if len(found) != 1 {
		test.Fatalf("%d resources %s %s", len(found), kind, prefix)
	}
	return found[0]
}

func context(file string) (map[string]any, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var config struct{ Context map[string]any }
	err = json.Unmarshal(text, &config)
	return config.Context, err
}

func TestEveryPatternBecomesARule(t *testing.T) {
	rules, err := readRules(filepath.Join("..", "rules"), "")
	if err != nil {
		t.Fatal(err)
	}
	tm := stacks(t)["PayhookConsumer"]
	var made []any
	for _, r := range tm.Resources {
		if r.Type != "AWS::Events::Rule" {
			continue
		}
		made = append(made, r.Properties["EventPattern"])
		if r.Properties["EventBusName"] != "payments" {
			t.Errorf("a rule on the bus %v", r.Properties["EventBusName"])
		}
	}
	if len(made) != len(rules)+2 { // one for the function, and one for the other bus
		t.Errorf("%d rules from %d files", len(made), len(rules))
	}
	queues := asText(t, tm.Outputs["Queues"].Value)
	for _, r := range rules {
		var found bool
		for _, pattern := range made {
			found = found || cmp.Equal(any(r.pattern), pattern)
		}
		if !found {
			t.Errorf("no rule has the pattern of %s.json", r.name)
		}
		if tm.Outputs[words(r.name)+"QueueUrl"].Value == nil {
			t.Errorf("no output %sQueueUrl", words(r.name))
		}
		if !strings.Contains(queues, `\"`+r.name+`\":`) {
			t.Errorf("%s is not in the output Queues: %s", r.name, queues)
		}
	}
}

func TestQueuesAreEncryptedAndOnlyTheirRulesCanWrite(t *testing.T) {
	tm := stacks(t)["PayhookConsumer"]
	rule := asText(t, tm.get(t, "AWS::Events::Rule", "EuroRule")["Targets"])
	for _, name := range []string{"EuroQueue", "EuroUndelivered"} {
		if tm.get(t, "AWS::SQS::Queue", name)["SqsManagedSseEnabled"] != true {
			t.Errorf("%s is not encrypted", name)
		}
		if !strings.Contains(rule, name) {
			t.Errorf("the rule sends to %s", rule)
		}
		policy := tm.get(t, "AWS::SQS::QueuePolicy", name)["PolicyDocument"].(map[string]any)
		for _, s := range policy["Statement"].([]any) {
			statement := s.(map[string]any)
			if statement["Effect"] == "Allow" && (statement["Action"] != "sqs:SendMessage" ||
				!strings.Contains(asText(t, statement["Condition"]), `"aws:SourceArn":{"Fn::GetAtt":["EuroRule`)) {
				t.Errorf("%s allows %s", name, asText(t, statement))
			}
		}
	}
}

// An event that EventBridge cannot hand to the function goes to one queue, an event that the
// function cannot process to another.
func TestTheFunctionLosesNoEvent(t *testing.T) {
	tm := stacks(t)["PayhookConsumer"]
	rule := tm.get(t, "AWS::Events::Rule", "LatestStatus")
	target := asText(t, rule["Targets"])
	if !strings.Contains(target, "LatestStatusFunction") ||
		!strings.Contains(target, "LatestStatusUndelivered") {
		t.Errorf("the rule sends to %s", target)
	}
	config := tm.get(t, "AWS::Lambda::EventInvokeConfig", "LatestStatus")
	if !strings.Contains(asText(t, config["DestinationConfig"]), "LatestStatusFailed") ||
		config["MaximumRetryAttempts"] != 2.0 || config["MaximumEventAgeInSeconds"] != 21600.0 {
		t.Errorf("failures: %s", asText(t, config))
	}
	permission := tm.get(t, "AWS::Lambda::Permission", "LatestStatus")
	if permission["Principal"] != "events.amazonaws.com" ||
		!strings.Contains(asText(t, permission["SourceArn"]), "LatestStatusRule") {
		t.Errorf("the function may be invoked by %s", asText(t, permission))
	}
	table := asText(t, tm.get(t, "AWS::DynamoDB::GlobalTable", "LatestStatus"))
	if !strings.Contains(table, `"KeySchema":[{"AttributeName":"paymentId","KeyType":"HASH"}]`) ||
		strings.Contains(table, "TimeToLive") {
		t.Errorf("the table is %s", table)
	}
}

// The function has the permissions of its calls and no others.
func TestTheFunctionHasThePermissionsThatItNeeds(t *testing.T) {
	policy := stacks(t)["PayhookConsumer"].get(t, "AWS::IAM::Policy", "LatestStatus")
	var actions []string
	for _, s := range policy["PolicyDocument"].(map[string]any)["Statement"].([]any) {
		statement := s.(map[string]any)
		switch a := statement["Action"].(type) {
		case string:
			actions = append(actions, a)
		case []any:
			for _, action := range a {
				actions = append(actions, action.(string))
			}
		}
		if resource := asText(t, statement["Resource"]); resource == `"*"` {
			t.Errorf("%v on every resource", statement["Action"])
		}
	}
	slices.Sort(actions)
	want := []string{"dynamodb:PutItem", "logs:CreateLogStream", "logs:PutLogEvents", "s3:GetObject", "s3:ListBucket",
		"sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:SendMessage"}
	if diff := cmp.Diff(want, actions); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// The rule assumes a role that may publish on the other bus only, and the other bus takes events
// from the account of Payhook only.
func TestEventsAreSentToAnotherAccount(t *testing.T) {
	templates := stacks(t)
	tm := templates["PayhookConsumer"]
	rule := asText(t, tm.get(t, "AWS::Events::Rule", "OtherAccount")["Targets"])
	for _, want := range []string{`"Arn":"` + target + `"`, `"RoleArn":{"Fn::GetAtt":["OtherAccountRole`,
		"OtherAccountUndelivered"} {
		if !strings.Contains(rule, want) {
			t.Errorf("%s is not in %s", want, rule)
		}
	}
	policy := asText(t, tm.get(t, "AWS::IAM::Policy", "OtherAccount")["PolicyDocument"])
	want := `"Statement":[{"Action":"events:PutEvents","Effect":"Allow","Resource":"` + target + `"}]`
	if !strings.Contains(policy, want) {
		t.Errorf("the role has %s", policy)
	}
	receiver := templates["PayhookReceiver"]
	allowed := asText(t, receiver.get(t, "AWS::Events::EventBusPolicy", "BusPolicy")["Statement"])
	for _, want := range []string{`:iam::111122223333:root`, `"Action":"events:PutEvents"`, `"Effect":"Allow"`} {
		if !strings.Contains(allowed, want) {
			t.Errorf("%s is not in %s", want, allowed)
		}
	}
	if got := receiver.get(t, "AWS::Events::EventBus", "Bus")["Name"]; !strings.HasSuffix(target, "/"+got.(string)) {
		t.Errorf("the bus is called %v", got)
	}
	if got := asText(t, receiver.get(t, "AWS::Events::Rule", "Everything")["EventPattern"]); got !=
		`{"account":["111122223333"]}` {
		t.Errorf("the pattern is %s", got)
	}
	// With one account and other names.
	named, err := synthesize(map[string]any{"rules": "euro", "receiverStackName": "Mine", "receiverBus": "mine",
		"targetBus": "arn:aws:events:us-east-1:111122223333:event-bus/mine", "sourceAccount": "111122223333"})
	if err != nil {
		t.Fatal(err)
	}
	if got := named["PayhookReceiver"].get(t, "AWS::Events::EventBus", "Bus")["Name"]; got != "mine" {
		t.Errorf("the bus with a name of its own is called %v", got)
	}
	if without, err := synthesize(map[string]any{"rules": "euro"}); err != nil || len(without) != 1 {
		t.Errorf("%d stacks without sourceAccount, %v", len(without), err)
	}
}

func TestReadRulesRejectsInvalidFolders(t *testing.T) {
	for name, text := range map[string]string{
		"":                "",
		"High_Value.json": `{"source":["x"]}`,
		"broken.json":     `{"source":`,
		"list.json":       `["x"]`,
		// The CDK would remove it, and the rule would match other events.
		"null.json": `{"detail":{"x":[null]}}`,
	} {
		folder := t.TempDir()
		if name != "" {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		rules, err := readRules(folder, "")
		if err == nil || !strings.Contains(err.Error(), filepath.Join(folder, name)) {
			t.Errorf("%q: got %v, error %v", name, rules, err)
		}
	}
}

func TestReadRulesReadsTheNamedPatterns(t *testing.T) {
	rules, err := readRules(filepath.Join("..", "rules"), "released,euro")
	if err != nil || len(rules) != 2 || rules[0].name != "released" || rules[1].name != "euro" {
		t.Errorf("got %v, %v", rules, err)
	}
	if _, err := readRules(filepath.Join("..", "rules"), "released,none"); err == nil ||
		!strings.Contains(err.Error(), "none.json") {
		t.Errorf("a pattern that does not exist: %v", err)
	}
}

func TestFeatureFlagsAreThoseOfPayhook(t *testing.T) {
	payhook, err := context(filepath.Join("..", "..", "cdk.json"))
	own, ownErr := context("cdk.json")
	if diff := cmp.Diff(payhook, own); diff != "" || err != nil || ownErr != nil {
		t.Errorf("%v, %v (-Payhook +consumer)\n%s", err, ownErr, diff)
	}
}

func asText(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
