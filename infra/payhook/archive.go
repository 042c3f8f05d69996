package payhook

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// newArchive creates the archive from which operators replay published events again. It contains every event with the
// source that Payhook publishes with, whatever its detail-type. It does nothing if the setting archiveRetention is off.
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
	if !conf.Local { // the emulator has no archive
		p.output("EventArchive", "the ARN of the archive of the published events", archive.AttrArn())
	}
}

// archiveName returns the name of the archive: that of the deployment with a digest of it and the bus. The policy of a
// key needs the name before the archive exists. Another bus has another name of the archive, because CloudFormation
// cannot replace an archive by one of the same name. A name has at most 48 characters
// (https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_CreateArchive.html).
func (p *Payhook) archiveName() string {
	sum := sha256.Sum256([]byte(p.conf.StackName + " " + p.busName()))
	return cut(p.conf.StackName, 39) + "-" + hex.EncodeToString(sum[:4])
}
