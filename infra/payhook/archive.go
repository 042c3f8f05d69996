package payhook

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/names"
	"payhook.example/shared/settings"
)

// newArchive creates the archive from which operators replay published events
// again. It contains every event with the source that Payhook publishes with, whatever
// its detail-type. It does nothing if the setting archiveRetention is off.
//
// EventBridge does not archive what it replays: the rule that it creates and manages
// for an archive also requires that an event has no replay-name
// (https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-archive.html).
//
// The archive is deleted with the stack, as the bus is: EventBridge replays an archive
// only to the bus that it was created for
// (https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_ReplayDestination.html).
func newArchive(stack awscdk.Stack, conf settings.Deployment, bus awsevents.EventBus) {
	if conf.ArchiveRetention == 0 {
		return
	}
	archive := awsevents.NewCfnArchive(stack, jsii.String("Archive"), &awsevents.CfnArchiveProps{
		ArchiveName:   jsii.String(archiveName(conf)),
		Description:   jsii.String("Payment events that Payhook has published, for replays"),
		SourceArn:     bus.EventBusArn(),
		EventPattern:  map[string]any{"source": []string{conf.Webhook.EventSource}},
		RetentionDays: jsii.Number(conf.ArchiveRetention),
	})
	if !conf.Local { // the emulator has no archive
		output(stack, names.ArchiveOutput, "the archive of the published events", archive.Ref())
	}
}

// maxArchiveName is the maximum length of the name of an archive
// (https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_CreateArchive.html).
const maxArchiveName = 48

// archiveName returns the name of the archive: that of the bus, or its begin and a
// digest if it is too long. The policy of a key needs the name before the archive
// exists. A bus with another name has another archive, because CloudFormation cannot
// replace an archive by one of the same name.
func archiveName(conf settings.Deployment) string {
	name := conf.Webhook.EventBusName
	if len(name) <= maxArchiveName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	digest := "-" + hex.EncodeToString(sum[:4])
	return name[:maxArchiveName-len(digest)] + digest
}
