package payhook

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// newBus creates the event bus, unless one is given. Its name is fixed, so that the stacks of consumers can refer to
// it.
func (p *Payhook) newBus(given awsevents.IEventBus) {
	if p.bus = given; given != nil {
		return
	}
	bus := awsevents.NewEventBus(p, jsii.String("Bus"), &awsevents.EventBusProps{
		EventBusName: jsii.String(p.conf.EventBusName),
		Description:  jsii.String("Payment events that Payhook has authenticated"),
	})
	// The L2 construct would add statements of its own to the policy of the key.
	bus.Node().DefaultChild().(awsevents.CfnEventBus).SetKmsKeyIdentifier(p.keyARN())
	p.stores(bus)
	p.bus = bus
}

// busName returns the name of the bus, which has no token if it is known in the app. Another bus in the account and
// Region has another name.
func (p *Payhook) busName() string {
	name := p.bus.EventBusName()
	if created, ok := p.bus.Node().DefaultChild().(awsevents.CfnEventBus); ok {
		name = created.Name()
	}
	return fmt.Sprint(awscdk.Stack_Of(p).Resolve(name))
}

// ownsBus reports whether the construct created the bus.
func (p *Payhook) ownsBus() bool { return *p.bus.Node().Scope().Node().Path() == *p.Node().Path() }

const onlyPayhookPublishes = "OnlyPayhookPublishes"

// protectBus denies PutEvents on the bus to every principal except the functions that publish, unless the setting is
// false. Otherwise every principal of the account with events:PutEvents could publish events that look authenticated. A
// bus can have this policy from one construct only, because a second one would deny what the first one publishes. It is
// an error for one bus construct, and for two imports in one stack, which the CDK reports.
//
// For a session of a role, aws:PrincipalArn is the ARN of the role, not of the
// session (AWS, "AWS global condition context keys" in the IAM User Guide).
//
// The statement does not apply to AWS services, because EventBridge itself publishes the events of a replay from an
// archive. This gives no access: a service has no identity policy, and no other statement allows it to publish. A bus
// of another account, and a rule with this bus as its target, publish with a role, which is denied.
func (p *Payhook) protectBus() {
	if !*p.conf.ProtectBus {
		return
	}
	for _, entry := range *p.bus.Node().Metadata() {
		if *entry.Type == onlyPayhookPublishes {
			awscdk.Annotations_Of(p).AddError(jsii.String("protectBus is true for two constructs on one bus: each " +
				"would deny what the other publishes"))
			return
		}
	}
	p.bus.Node().AddMetadata(jsii.String(onlyPayhookPublishes), true, nil)
	awsevents.NewCfnEventBusPolicy(p, jsii.String("BusPolicy"), &awsevents.CfnEventBusPolicyProps{
		EventBusName: p.bus.EventBusName(),
		StatementId:  jsii.String(onlyPayhookPublishes),
		// ToJSON of a PolicyStatement would write jsii's internal form of a map into the template.
		Statement: map[string]any{
			"Sid":       onlyPayhookPublishes,
			"Effect":    "Deny",
			"Principal": "*",
			"Action":    "events:PutEvents",
			"Resource":  p.bus.EventBusArn(),
			"Condition": map[string]any{
				"ArnNotEquals": map[string]any{
					"aws:PrincipalArn": []*string{p.webhook.role.RoleArn(), p.redrive.role.RoleArn()}},
				"BoolIfExists": map[string]any{"aws:PrincipalIsAWSService": "false"},
			},
		},
	})
}

// newArchive creates the archive from which operators replay published events, unless archiveRetention is off.
//
// EventBridge does not archive what it replays: the rule that it creates and manages for an archive also requires that
// an event has no replay-name (https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-archive.html).
//
// The archive is deleted with the stack, as the bus is: EventBridge replays an archive only to the bus that it was
// created for (https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_ReplayDestination.html).
func (p *Payhook) newArchive() {
	conf := p.conf
	if conf.ArchiveRetention < 0 {
		return
	}
	archive := awsevents.NewCfnArchive(p, jsii.String("Archive"), &awsevents.CfnArchiveProps{
		ArchiveName:   jsii.String(p.archiveName()),
		Description:   jsii.String("Payment events that Payhook has published, for replays"),
		SourceArn:     p.bus.EventBusArn(),
		EventPattern:  map[string]any{"source": []string{settings.EventSource}},
		RetentionDays: jsii.Number(days(conf.ArchiveRetention)),

		KmsKeyIdentifier: p.keyARN(),
	})
	p.stores(archive)
	if !conf.Local() { // the emulator has no archive
		p.output("EventArchive", "the ARN of the archive of the published events", archive.AttrArn())
	}
}

// archiveName returns the name of the archive: that of the stack with a digest of it and the bus. The policy of a
// key needs the name before the archive exists. Another bus has another name of the archive, because CloudFormation
// cannot replace an archive by one of the same name. A name has at most 48 characters
// (https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_CreateArchive.html).
func (p *Payhook) archiveName() string {
	sum := sha256.Sum256([]byte(p.conf.StackName() + " " + p.busName()))
	return cut(p.conf.StackName(), 39) + "-" + hex.EncodeToString(sum[:4])
}
