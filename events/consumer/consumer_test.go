package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

// synthesize returns the templates of the app with this context, by the ids of the stacks.
func synthesize(t *testing.T, given map[string]any) map[string]template {
	t.Helper()
	values := *context(t, "cdk.json")
	maps.Copy(values, given)
	app := awscdk.NewApp(&awscdk.AppProps{AutoSynth: jsii.Bool(false), Outdir: jsii.String(t.TempDir()),
		Context: &values})
	if err := build(app, filepath.Join("..", "rules"), func(string) (string, error) {
		program := t.TempDir()
		return program, os.WriteFile(filepath.Join(program, "bootstrap"), []byte("program"), 0o755)
	}); err != nil {
		t.Fatal(err)
	}
	assembly := app.Synth(nil)
	templates := map[string]template{}
	for _, stack := range *assembly.Stacks() {
		text, err := os.ReadFile(*stack.TemplateFullPath())
		if err != nil {
			t.Fatal(err)
		}
		var made template
		if err := json.Unmarshal(text, &made); err != nil {
			t.Fatal(err)
		}
		templates[*stack.Id()] = made
	}
	return templates
}

// consumer returns the template of the consumer's stack.
func consumer(t *testing.T, given map[string]any) template {
	t.Helper()
	return synthesize(t, given)["PayhookConsumer"]
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

func context(t *testing.T, file string) *map[string]any {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var config struct{ Context map[string]any }
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	return &config.Context
}

func TestEveryPatternBecomesARule(t *testing.T) {
	rules, err := readRules(filepath.Join("..", "rules"), "")
	if err != nil {
		t.Fatal(err)
	}
	tm := consumer(t, map[string]any{"eventBusName": "payments"})
	resources, outputs := tm.Resources, tm.Outputs
	var made []any
	for _, r := range resources {
		if r.Type != "AWS::Events::Rule" {
			continue
		}
		made = append(made, r.Properties["EventPattern"])
		if r.Properties["EventBusName"] != "payments" {
			t.Errorf("a rule on the bus %v", r.Properties["EventBusName"])
		}
	}
	if len(made) != len(rules)+1 { // one for the function
		t.Errorf("%d rules from %d files", len(made), len(rules))
	}
	queues := asText(t, outputs["Queues"].Value)
	for _, r := range rules {
		var found bool
		for _, pattern := range made {
			found = found || cmp.Equal(any(r.pattern), pattern)
		}
		if !found {
			t.Errorf("no rule has the pattern of %s.json", r.name)
		}
		if outputs[words(r.name)+"QueueUrl"].Value == nil {
			t.Errorf("no output %sQueueUrl", words(r.name))
		}
		if !strings.Contains(queues, `\"`+r.name+`\":`) {
			t.Errorf("%s is not in the output Queues: %s", r.name, queues)
		}
	}
}

func TestQueuesAreEncryptedAndOnlyTheirRulesCanWrite(t *testing.T) {
	resources := maps.Clone(consumer(t, map[string]any{"rules": "high-value"}).Resources)
	maps.DeleteFunc(resources, func(id string, _ resource) bool { return strings.HasPrefix(id, "HighValuePayments") })
	var queues, policies int
	for id, r := range resources {
		switch r.Type {
		case "AWS::SQS::Queue":
			queues++
			if r.Properties["SqsManagedSseEnabled"] != true {
				t.Errorf("%s is not encrypted", id)
			}
		case "AWS::SQS::QueuePolicy":
			for _, s := range r.Properties["PolicyDocument"].(map[string]any)["Statement"].([]any) {
				statement := s.(map[string]any)
				if statement["Effect"] != "Allow" {
					continue
				}
				policies++
				if statement["Action"] != "sqs:SendMessage" ||
					!strings.Contains(asText(t, statement["Condition"]), "HighValueRule") {
					t.Errorf("%s allows %s", id, asText(t, statement))
				}
			}
		case "AWS::Events::Rule":
			target := asText(t, r.Properties["Targets"])
			if !strings.Contains(target, "HighValueQueue") || !strings.Contains(target, "HighValueUndelivered") {
				t.Errorf("%s sends to %s", id, target)
			}
		}
	}
	if queues != 2 || policies != 2 {
		t.Errorf("%d queues, %d permissions", queues, policies)
	}
}

// An event that EventBridge cannot hand to the function goes to one queue, an event that the
// function cannot process to another.
func TestTheFunctionLosesNoEvent(t *testing.T) {
	tm := consumer(t, map[string]any{"rules": "euro"})
	rule := tm.get(t, "AWS::Events::Rule", "HighValuePayments")
	target := asText(t, rule["Targets"])
	if !strings.Contains(target, "HighValuePaymentsFunction") ||
		!strings.Contains(target, "HighValuePaymentsUndelivered") {
		t.Errorf("the rule sends to %s", target)
	}
	config := tm.get(t, "AWS::Lambda::EventInvokeConfig", "HighValuePayments")
	if !strings.Contains(asText(t, config["DestinationConfig"]), "HighValuePaymentsFailed") ||
		config["MaximumRetryAttempts"] != 2.0 || config["MaximumEventAgeInSeconds"] != 21600.0 {
		t.Errorf("failures: %s", asText(t, config))
	}
	permission := tm.get(t, "AWS::Lambda::Permission", "HighValuePayments")
	if permission["Principal"] != "events.amazonaws.com" ||
		!strings.Contains(asText(t, permission["SourceArn"]), "HighValuePaymentsRule") {
		t.Errorf("the function may be invoked by %s", asText(t, permission))
	}
	table := asText(t, tm.get(t, "AWS::DynamoDB::GlobalTable", "HighValuePayments"))
	if !strings.Contains(table, `"AttributeName":"expires","Enabled":true`) {
		t.Errorf("items do not expire: %s", table)
	}
}

// The function has the permissions of its calls and no others.
func TestTheFunctionHasThePermissionsThatItNeeds(t *testing.T) {
	policy := consumer(t, map[string]any{"rules": "euro"}).get(t, "AWS::IAM::Policy", "HighValuePayments")
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
	const target = "arn:aws:events:us-east-1:444455556666:event-bus/payhook-receiver"
	templates := synthesize(t, map[string]any{"rules": "euro", "targetBus": target, "sourceAccount": "111122223333"})
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
	const same = "arn:aws:events:us-east-1:111122223333:event-bus/mine"
	named := synthesize(t, map[string]any{"rules": "euro", "targetBus": same, "sourceAccount": "111122223333",
		"receiverStackName": "Mine", "receiverBus": "mine"})
	if got := named["PayhookReceiver"].get(t, "AWS::Events::EventBus", "Bus")["Name"]; got != "mine" {
		t.Errorf("the bus with a name of its own is called %v", got)
	}
	if _, ok := named["PayhookConsumer"].Outputs["FunctionName"]; !ok {
		t.Error("the function's name is no output")
	}
	if _, ok := synthesize(t, map[string]any{"rules": "euro"})["PayhookReceiver"]; ok {
		t.Error("there is a receiver without sourceAccount")
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
	if diff := cmp.Diff(context(t, filepath.Join("..", "..", "cdk.json")), context(t, "cdk.json")); diff != "" {
		t.Errorf("(-Payhook +consumer)\n%s", diff)
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
