package payhook

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/jsii-runtime-go"
	"github.com/google/go-cmp/cmp"
)

// busStatement returns the one statement of the bus's policy, its conditions
// rendered.
func (tm *template) busStatement(t *testing.T) any {
	t.Helper()
	policy := tm.get(t, "BusPolicy", "AWS::Events::EventBusPolicy").Properties
	if got := tm.render(policy["EventBusName"]); got != "Bus" {
		t.Errorf("the policy is that of %s", got)
	}
	if policy["StatementId"] != at(policy, "Statement", "Sid") {
		t.Errorf("StatementId %v, Sid %v", policy["StatementId"], at(policy, "Statement", "Sid"))
	}
	return policy["Statement"]
}

func TestBusDeniesAllButThePublishers(t *testing.T) {
	tm := payhook(t, nil)
	s := tm.busStatement(t)
	if at(s, "Effect") != "Deny" || at(s, "Action") != "events:PutEvents" || at(s, "Principal") != "*" ||
		tm.render(at(s, "Resource")) != "Bus.Arn" {
		t.Errorf("got %v", s)
	}
	var publishers []string
	for _, role := range list(at(s, "Condition", "ArnNotEquals", "aws:PrincipalArn")) {
		publishers = append(publishers, tm.render(role))
	}
	slices.Sort(publishers)
	if diff := cmp.Diff([]string{"Redrive/Role.Arn", "Webhook/Role.Arn"}, publishers); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}

	// The roles with permission to publish must be exactly these.
	var allowed []string
	for name := range tm.all(t, "AWS::IAM::Role") {
		if slices.Contains(tm.grants(t, name)["Bus.Arn"], "events:PutEvents") {
			allowed = append(allowed, name+".Arn")
		}
	}
	slices.Sort(allowed)
	if diff := cmp.Diff(allowed, publishers); diff != "" {
		t.Errorf("roles with PutEvents, and those that the bus does not deny (-want +got)\n%s", diff)
	}
}

// A statement applies only if all its conditions are met. A further condition would
// exempt other principals.
func TestBusPolicyExemptsOnlyAWSServices(t *testing.T) {
	want := map[string]any{
		"ArnNotEquals": map[string]any{"aws:PrincipalArn": at(payhook(t, nil).busStatement(t), "Condition",
			"ArnNotEquals", "aws:PrincipalArn")},
		"BoolIfExists": map[string]any{"aws:PrincipalIsAWSService": "false"},
	}
	if diff := cmp.Diff(want, at(payhook(t, nil).busStatement(t), "Condition")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestBusPolicyCanBeDisabled(t *testing.T) {
	for name, r := range payhook(t, map[string]any{"protectBus": false}).Resources {
		if r.Type == "AWS::Events::EventBusPolicy" {
			t.Errorf("%s is there", name)
		}
	}
}

// newBus creates or imports a bus.
type newBus func(awscdk.Stack, *string) awsevents.IEventBus

func imported(name string) newBus {
	return func(stack awscdk.Stack, id *string) awsevents.IEventBus {
		return awsevents.EventBus_FromEventBusName(stack, id, &name)
	}
}

func importedARN(name string) newBus {
	arn := "arn:aws:events:eu-central-1:111122223333:event-bus/" + name
	return func(stack awscdk.Stack, id *string) awsevents.IEventBus {
		return awsevents.EventBus_FromEventBusArn(stack, id, &arn)
	}
}

func created(name string) newBus {
	props := &awsevents.EventBusProps{}
	if name != "" {
		props.EventBusName = &name
	}
	return func(stack awscdk.Stack, id *string) awsevents.IEventBus {
		return awsevents.NewEventBus(stack, id, props)
	}
}

// onBuses synthesizes a stack with a construct on each bus. The first one has the id Default.
func onBuses(t *testing.T, props Props, buses ...newBus) (*template, error) {
	t.Helper()
	app := newApp(t)
	stack := awscdk.NewStack(app, jsii.String("Payhook"), nil)
	props.BaseURL, props.AuthURL, props.TokenManagerID = "https://a.example", "https://b.example", "c"
	id := "Default"
	for i, bus := range buses {
		props.Bus = bus(stack, jsii.String(fmt.Sprint("Bus", i)))
		create(stack, &id, &props, func(string) (map[string][]byte, error) {
			return map[string][]byte{"webhook": nil, "redrive": nil, "token": nil}, nil
		})
		id = fmt.Sprint("Other", i)
	}
	if err := synthesize(app); err != nil {
		return nil, err
	}
	return readTemplate(t, filepath.Join(*app.Outdir(), "Payhook.template.json")), nil
}

func TestAGivenBusCanBeProtected(t *testing.T) {
	const here = "arn:AWS::Partition:events:AWS::Region:AWS::AccountId:event-bus/"
	for want, bus := range map[string]newBus{
		"payments " + here + "payments": imported("payments"), "default " + here + "default": imported("default"),
		"bank arn:aws:events:eu-central-1:111122223333:event-bus/bank": importedARN("bank"),
		"Payhook/Bus0 Payhook/Bus0.Arn":                                created("new"),
	} {
		tm, err := onBuses(t, Props{ProtectBus: jsii.Bool(true)}, bus)
		if err != nil {
			t.Fatal(err)
		}
		policy := tm.get(t, "BusPolicy", "AWS::Events::EventBusPolicy").Properties
		got := tm.render(policy["EventBusName"]) + " " + tm.render(at(policy, "Statement", "Resource"))
		if got != want {
			t.Errorf("the policy is that of %s, want %s", got, want)
		}
	}
}

// Each would deny what the other publishes.
func TestABusIsProtectedByOneConstruct(t *testing.T) {
	var one awsevents.IEventBus
	shared := func(stack awscdk.Stack, id *string) awsevents.IEventBus {
		if one == nil {
			one = created("a")(stack, id)
		}
		return one
	}
	for name, c := range map[string]struct {
		first, second newBus
		ok            bool
	}{
		"one bus of the app":             {shared, shared, false},
		"one bus that is imported twice": {imported("a"), importedARN("a"), false},
		"two buses of the app":           {created("a"), created("b"), true},
		"two imported buses":             {imported("a"), importedARN("b"), true},
	} {
		if _, err := onBuses(t, Props{ProtectBus: jsii.Bool(true)}, c.first, c.second); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
