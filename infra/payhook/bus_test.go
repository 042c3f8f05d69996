package payhook

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

const busARN = "arn:aws:events:eu-central-1:111122223333:event-bus/"

// given returns a bus of the app, if its name begins with a plus sign, and otherwise one that is imported by its ARN or
// its name.
func given(scope constructs.Construct, id, bus string) awsevents.IEventBus {
	if name, ok := strings.CutPrefix(bus, "+"); ok {
		return awsevents.NewEventBus(scope, &id, &awsevents.EventBusProps{EventBusName: &name})
	}
	if strings.HasPrefix(bus, busARN) {
		return awsevents.EventBus_FromEventBusArn(scope, &id, &bus)
	}
	return awsevents.EventBus_FromEventBusName(scope, &id, &bus)
}

// protect synthesizes an app with a stack for each bus, in which a construct protects it: Bus0, Bus1 ... It returns the
// folder.
func protect(t *testing.T, buses ...string) (string, error) {
	t.Helper()
	app, created := newApp(t), map[string]awsevents.IEventBus{}
	for i, bus := range buses {
		stack := awscdk.NewStack(app, jsii.String(fmt.Sprint("Bus", i)), nil)
		if created[bus] == nil {
			created[bus] = given(stack, "Given", bus)
		}
		create(stack, jsii.String("Default"), &Props{BaseURL: "https://a.example", AuthURL: "https://b.example",
			TokenManagerID: "c", ProtectBus: jsii.Bool(true), Bus: created[bus]}, programs(""))
	}
	return *app.Outdir(), synthesize(app)
}

func TestAGivenBusCanBeProtected(t *testing.T) {
	const here = "arn:AWS::Partition:events:AWS::Region:AWS::AccountId:event-bus/"
	folder, err := protect(t, "payments", busARN+"bank", "+new", "+newer")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"payments " + here + "payments", "bank " + busARN + "bank",
		"Bus2/Given Bus2/Given.Arn", "Bus3/Given Bus3/Given.Arn"} {
		name := fmt.Sprint("Bus", i)
		policy := readTemplate(t, filepath.Join(folder, name+".template.json")).
			get(t, name+"/Default/BusPolicy", "AWS::Events::EventBusPolicy").Properties
		got := fmt.Sprint(policy["EventBusName"], " ", at(policy, "Statement", "Resource"))
		if got != want {
			t.Errorf("the policy is that of %s, want %s", got, want)
		}
	}
}

// Each would deny what the other publishes.
func TestABusIsProtectedByOneConstruct(t *testing.T) {
	if _, err := protect(t, "+a", "+a"); !strings.Contains(fmt.Sprint(err), "for two constructs on one bus") {
		t.Error(err)
	}
}

// CloudFormation creates the archive of another bus before it deletes that of the first one, so their names must
// differ. The name does not depend on how a bus is imported, because another name is another archive.
func TestEachBusHasAnArchiveOfItsOwnName(t *testing.T) {
	conf, err := parse(t, required)
	if err != nil {
		t.Fatal(err)
	}
	stack, seen, long := emptyStack(t, "Bank"), map[string]string{}, strings.Repeat("payments.", 20)
	for _, bus := range []string{"a", "b", busARN + "a", busARN + "c", "+d", "+e", long + "a", long + "b", long[:48],
		long[:49]} {
		p := &Payhook{conf: conf, bus: given(stack, bus, bus)}
		constructs.NewConstruct_Override(p, stack, jsii.String("On "+bus))
		name := p.archiveName()
		if seen[name] != "" != (bus == busARN+"a") || len(name) > 48 || !strings.HasPrefix(name, "Bank") {
			t.Errorf("%s: %q, as %q", bus, name, seen[name])
		}
		seen[name] = bus
	}
}
