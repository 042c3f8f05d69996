// Command consumer is an example of a CDK app that consumes events of Payhook. It refers to
// the bus by its name, and creates a rule and a queue for each pattern in events/rules. The
// queue receives the events that match. Copy it as a starting point.
//
// The CDK CLI starts it in this folder:
//
//	npx cdk deploy -c eventBusName=payhook
//
// Context: eventBusName, payhook by default; stackName, PayhookConsumer by default; and rules,
// the names of the patterns, separated by commas, all by default.
// Outputs: Queues, a JSON object with the URL of each rule's queue by the rule's name; and
// each URL in its own output, such as HighValueQueueUrl for the rule high-value.
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

func main() {
	defer jsii.Close()
	app := awscdk.NewApp(nil)
	rules, err := readRules(filepath.Join("..", "rules"), contextOr(app, "rules", ""))
	if err != nil {
		fmt.Fprintln(os.Stderr, "consumer:", err)
		os.Exit(1)
	}
	newStack(app, contextOr(app, "stackName", "PayhookConsumer"), contextOr(app, "eventBusName", "payhook"), rules)
	app.Synth(nil)
}

func contextOr(app awscdk.App, key, otherwise string) string {
	if text, ok := app.Node().TryGetContext(jsii.String(key)).(string); ok && text != "" {
		return text
	}
	return otherwise
}

// rule is an EventBridge rule. Its name is that of its file without .json.
type rule struct {
	name    string
	pattern map[string]any
}

// ruleName matches the name of a rule: words joined by hyphens, from which the name of an
// output can be formed.
var ruleName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// readRules reads the event patterns in a folder with these names, separated by commas, or
// all if names is empty.
func readRules(folder, names string) ([]rule, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	if names != "" {
		files = nil
		for name := range strings.SplitSeq(names, ",") {
			files = append(files, filepath.Join(folder, name+".json"))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no event patterns (*.json) in %s", folder)
	}
	var rules []rule
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		r := rule{name: strings.TrimSuffix(filepath.Base(file), ".json")}
		if !ruleName.MatchString(r.name) {
			return nil, fmt.Errorf("%s: a rule's name must be lower-case words and digits, joined by hyphens", file)
		}
		if err := json.Unmarshal(text, &r.pattern); err != nil {
			return nil, fmt.Errorf("%s is not an event pattern: %w", file, err)
		}
		if hasNull(r.pattern) {
			return nil, fmt.Errorf("%s: the CDK drops null from a pattern, and the rule would match other events", file)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func hasNull(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), hasNull)
	case []any:
		return slices.ContainsFunc(v, hasNull)
	}
	return false
}

func newStack(scope constructs.Construct, name, bus string, rules []rule) awscdk.Stack {
	stack := awscdk.NewStack(scope, jsii.String("PayhookConsumer"), &awscdk.StackProps{
		StackName:   jsii.String(name),
		Description: jsii.String("Rules and queues for the events on the bus " + bus),
	})
	urls := map[string]*string{}
	for _, r := range rules {
		queue := newRule(stack, bus, r)
		urls[r.name] = queue.QueueUrl()
		awscdk.NewCfnOutput(stack, jsii.String(words(r.name)+"QueueUrl"), &awscdk.CfnOutputProps{
			Description: jsii.String("events that match " + r.name + ".json"),
			Value:       queue.QueueUrl(),
		})
	}
	awscdk.NewCfnOutput(stack, jsii.String("Queues"), &awscdk.CfnOutputProps{
		Description: jsii.String("the queue of each rule"),
		Value:       stack.ToJsonString(urls, nil),
	})
	return stack
}

// newRule creates a rule on the bus and its queue. Events that EventBridge cannot deliver
// to that queue go to a dead-letter queue.
func newRule(scope constructs.Construct, bus string, r rule) awssqs.Queue {
	scope = constructs.NewConstruct(scope, jsii.String(words(r.name)))
	queue, failed := newQueue(scope, "Queue"), newQueue(scope, "Undelivered")
	made := awsevents.NewCfnRule(scope, jsii.String("Rule"), &awsevents.CfnRuleProps{
		EventBusName: jsii.String(bus),
		EventPattern: r.pattern,
		Targets: []*awsevents.CfnRule_TargetProperty{{
			Id:               jsii.String("Queue"),
			Arn:              queue.QueueArn(),
			DeadLetterConfig: &awsevents.CfnRule_DeadLetterConfigProperty{Arn: failed.QueueArn()},
		}},
	})
	for _, q := range []awssqs.Queue{queue, failed} {
		q.AddToResourcePolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
			Principals: &[]awsiam.IPrincipal{awsiam.NewServicePrincipal(jsii.String("events.amazonaws.com"), nil)},
			Actions:    jsii.Strings("sqs:SendMessage"),
			Resources:  &[]*string{q.QueueArn()},
			Conditions: &map[string]any{"ArnEquals": map[string]any{"aws:SourceArn": made.AttrArn()}},
		}))
	}
	return queue
}

func newQueue(scope constructs.Construct, id string) awssqs.Queue {
	return awssqs.NewQueue(scope, jsii.String(id), &awssqs.QueueProps{
		Encryption: awssqs.QueueEncryption_SQS_MANAGED,
		EnforceSSL: jsii.Bool(true),
	})
}

// words converts high-value to HighValue.
func words(name string) string {
	var out strings.Builder
	for word := range strings.SplitSeq(name, "-") {
		out.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return out.String()
}
