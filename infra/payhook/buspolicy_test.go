package payhook

import (
	"path/filepath"
	"slices"
	"strings"
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

const busARN = "arn:aws:events:eu-central-1:111122223333:event-bus/"

// onBuses synthesizes stacks with a construct on each bus: a bus of the app, if its name begins with a plus sign,
// and otherwise one that is imported by its ARN or its name. It returns the template of the first one.
func onBuses(t *testing.T, protect bool, buses ...string) (*template, error) {
	t.Helper()
	app := newApp(t)
	created := map[string]awsevents.IEventBus{}
	for i, bus := range buses {
		stack := awscdk.NewStack(app, jsii.String("Payhook"+strings.Repeat("2", i)), nil)
		p := &Props{BaseURL: "https://a.example", AuthURL: "https://b.example", TokenManagerID: "c",
			ProtectBus: &protect, Bus: created[bus]}
		switch name, ok := strings.CutPrefix(bus, "+"); {
		case p.Bus != nil:
		case ok:
			p.Bus = awsevents.NewEventBus(stack, jsii.String("Given"), &awsevents.EventBusProps{EventBusName: &name})
			created[bus] = p.Bus
		case strings.HasPrefix(bus, busARN):
			p.Bus = awsevents.EventBus_FromEventBusArn(stack, jsii.String("Given"), &bus)
		default:
			p.Bus = awsevents.EventBus_FromEventBusName(stack, jsii.String("Given"), &bus)
		}
		create(stack, jsii.String("Default"), p, func(string) (map[string][]byte, error) {
			return map[string][]byte{"webhook": nil, "redrive": nil, "token": nil}, nil
		})
	}
	if err := synthesize(app); err != nil {
		return nil, err
	}
	return readTemplate(t, filepath.Join(*app.Outdir(), "Payhook.template.json")), nil
}

func TestAGivenBusCanBeProtected(t *testing.T) {
	const here = "arn:AWS::Partition:events:AWS::Region:AWS::AccountId:event-bus/"
	for bus, want := range map[string]string{"payments": "payments " + here + "payments",
		busARN + "bank": "bank " + busARN + "bank", "+new": "Payhook/Given Payhook/Given.Arn"} {
		tm, err := onBuses(t, true, bus)
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
	for buses, ok := range map[[2]string]bool{{"+a", "+a"}: false, {"+a", "+b"}: true, {"a", busARN + "b"}: true} {
		if _, err := onBuses(t, true, buses[:]...); (err == nil) != ok {
			t.Errorf("%q: %v", buses, err)
		}
	}
}
