// Command consumer is an example of a CDK app that consumes events of Payhook, with two constructs to copy: a rule with
// a queue (queue.go) and with a function (function.go). It refers to Payhook's bus by its name.
//
// The CDK CLI starts it in this folder:
//
//	npx cdk deploy PayhookConsumer -c eventBusName=Payhook --parameters LargeEventBucket=BUCKET
//
// Context: eventBusName, Payhook by default; stackName, PayhookConsumer by default; rules, the names of the patterns in
// events/rules that get a queue, separated by commas, all by default; local, for an emulator.
//
// Outputs: Queues, a JSON object with the URL of each rule's queue by the rule's name; each URL
// in its own output, such as EuroQueueUrl for the rule euro; and the name, the table, the log
// group and the queue of failed events of the function.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/infra/build"
)

func main() {
	defer jsii.Close()
	app := awscdk.NewApp(nil)
	if err := addStacks(app, filepath.Join("..", "rules"), compileFunction); err != nil {
		fmt.Fprintln(os.Stderr, "consumer:", err)
		os.Exit(1)
	}
	app.Synth(nil)
}

// addStacks adds the stacks to the app. compile returns the path of the function's package for an architecture.
func addStacks(app awscdk.App, folder string, compile func(arch string) (string, error)) error {
	local := contextOr(app, "local", "") == "true"
	bus := contextOr(app, "eventBusName", "Payhook")
	rules, err := readRules(folder, contextOr(app, "rules", ""))
	if err != nil {
		return err
	}
	special, err := readRules(folder, "payment-status") // of the function
	if err != nil {
		return err
	}
	program, err := compile(functionArchitecture(local))
	if err != nil {
		return err
	}
	stack := awscdk.NewStack(app, jsii.String("PayhookConsumer"), &awscdk.StackProps{
		StackName:   jsii.String(contextOr(app, "stackName", "PayhookConsumer")),
		Description: jsii.String("Consumers of the events on the bus " + bus),
	})
	output := func(name, description string, value *string) {
		awscdk.NewCfnOutput(stack, jsii.String(name),
			&awscdk.CfnOutputProps{Description: jsii.String(description), Value: value})
	}
	urls := map[string]*string{}
	for _, r := range rules {
		queue := newQueueConsumer(stack, words(r.name), bus, r.pattern)
		urls[r.name] = queue.QueueUrl()
		output(words(r.name)+"QueueUrl", "events that match "+r.name+".json", queue.QueueUrl())
	}
	output("Queues", "the queue of each rule", stack.ToJsonString(urls, nil))

	largeEvents := awscdk.NewCfnParameter(stack, jsii.String("LargeEventBucket"), &awscdk.CfnParameterProps{
		Description: jsii.String("the output LargeEventBucket of Payhook's stack")})
	function := newFunctionConsumer(stack, "LatestStatus", bus, special[0].pattern,
		awslambda.Code_FromAsset(jsii.String(program), nil), largeEvents.ValueAsString(), local)
	output("FunctionName", "the function", function.name)
	output("FunctionLogs", "the log of the function", function.logs.LogGroupName())
	output("PaymentsTable", "the latest status of each payment", function.table.TableName())
	output("FailedQueueUrl", "the events that the function could not process", function.failed.QueueUrl())
	return nil
}

// functionArchitecture returns the architecture of the function, as Go names it.
func functionArchitecture(local bool) string {
	if local {
		return runtime.GOARCH
	}
	return "arm64"
}

// compileFunction builds the program of the function and returns the path of its package.
func compileFunction(arch string) (string, error) {
	name, err := filepath.Abs(filepath.Join("..", "..", ".build", "consumer-function-"+arch+".zip"))
	if err != nil {
		return "", err
	}
	programs, err := build.Programs("", arch, false, "payhook.example/events/consumer/function")
	if err != nil {
		return "", err
	}
	text, err := build.Package(programs["function"], nil)
	if err != nil {
		return "", err
	}
	return name, errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, text, 0o600))
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

// ruleName matches the name of a rule: words joined by hyphens, from which the name of an output can be formed.
var ruleName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// readRules reads the event patterns in a folder with these names, separated by commas, or all if names is empty.
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

// words converts high-value to HighValue.
func words(name string) string {
	var out strings.Builder
	for word := range strings.SplitSeq(name, "-") {
		out.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return out.String()
}
