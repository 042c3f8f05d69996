package payhook

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/jsii-runtime-go"
)

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
		create(stack, jsii.String("Default"), p, programs(""))
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
		got := fmt.Sprint(policy["EventBusName"], " ", at(policy, "Statement", "Resource"))
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

// CloudFormation creates the archive of another bus before it deletes that of the first one, so their names must
// differ. The name does not depend on how a bus is imported, because another name is another archive.
func TestEachBusHasAnArchiveOfItsOwnName(t *testing.T) {
	long := strings.Repeat("payments.", 20)
	seen := map[string]string{}
	check := func(bus, name string) {
		if seen[name] != "" != (bus == busARN+"a") || len(name) > 48 || !strings.HasPrefix(name, "Payhook") {
			t.Errorf("%s: %q, as %q", bus, name, seen[name])
		}
		seen[name] = bus
	}
	for _, bus := range []string{"payments", "payments-staging", long + "a", long + "b", long[:48], long[:49]} {
		_, p := newPayhook(t, "", map[string]any{"eventBusName": bus})
		check(bus, p.archiveName())
	}
	for _, bus := range []string{"a", "b", busARN + "a", busARN + "c", "+d", "+e"} {
		tm, err := onBuses(t, false, bus)
		if err != nil {
			t.Fatal(err)
		}
		check(bus, fmt.Sprint(tm.get(t, "Archive", "AWS::Events::Archive").Properties["ArchiveName"]))
	}
}
