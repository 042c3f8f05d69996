package acceptance

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	ebtypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"payhook.example/infra/local"
	"payhook.example/shared/bus"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

// The rows of replays on moto, which a test of infra/local starts with a bus, an archive, two
// rules and a ledger. Moto completes a replay at once, and has no policies of buses.
func TestReplaysOnMoto(t *testing.T) {
	endpoint := os.Getenv("PAYHOOK_MOTO_ENDPOINT")
	if endpoint == "" {
		t.Skip("PAYHOOK_MOTO_ENDPOINT is not set: PAYHOOK_E2E=moto go test -run Moto ./infra/local")
	}
	cfg := aws.Config{Region: "us-east-1", BaseEndpoint: &endpoint,
		Credentials: credentials.NewStaticCredentialsProvider("k", "s", "")}
	queues := map[string]string{"released": "", "other": "", local.OtherBus: ""}
	for name := range queues {
		// It exists, except the last, which is a queue in place of a bus: moto drops the
		// resources of an event that it sends to another bus.
		out, err := sqs.NewFromConfig(cfg).CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name})
		if err != nil {
			t.Fatal(err)
		}
		queues[name] = *out.QueueUrl
	}
	events, arn := eventbridge.NewFromConfig(cfg), "arn:aws:sqs:us-east-1:123456789012:"
	_, err := events.PutRule(t.Context(), &eventbridge.PutRuleInput{Name: aws.String(local.OtherBus),
		EventBusName: aws.String("payhook"),
		EventPattern: aws.String(`{"detail":{"eventData":{"returns":{"hasReturnDetails":[true]}}}}`)})
	if err == nil {
		_, err = events.PutTargets(t.Context(), &eventbridge.PutTargetsInput{Rule: aws.String(local.OtherBus),
			EventBusName: aws.String("payhook"),
			Targets:      []ebtypes.Target{{Id: aws.String("queue"), Arn: aws.String(arn + local.OtherBus)}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	d := &local.Deployment{AWS: cfg, Queues: queues}
	in := d.Receive()
	defer in.Stop()
	var passed atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
	r := &replays{aws: cfg, client: events, stack: "Payhook", bus: "payhook", archive: "payhook",
		queue: arn + "released", otherBus: arn + local.OtherBus, in: in, now: now,
		send: func(ctx context.Context, e payment.Event) error { return publishTo(ctx, cfg, e, now) },
		pause: func(ctx context.Context, d time.Duration) error {
			passed.Add(int64(max(d, 0)))
			return ctx.Err()
		}}
	var statuses []Status
	for _, c := range r.checks() {
		row := c.show(t.Context(), map[local.Need]string{BusPolicies: "moto has none"})
		t.Logf("%s: %s: %s%s", row.Status, row.What, row.Actual, row.Reason)
		statuses = append(statuses, row.Status)
	}
	want := []Status{Passed, Measured, Passed, Passed, Measured, NotShown, Passed, Measured, Measured, Measured,
		Passed, Passed}
	if !slices.Equal(statuses, want) {
		t.Errorf("the rows are %v, want %v", statuses, want)
	}
	if row := r.ended[len(r.ended)-1]; !strings.HasPrefix(row.Name, "payhook-") || row.State != "COMPLETED" {
		t.Errorf("the last replay is %+v", row)
	}
}

// publishTo records, publishes and marks an event as the functions do.
func publishTo(ctx context.Context, cfg aws.Config, event payment.Event, now func() time.Time) error {
	raw, err := payment.DecodeRawEvent(paymenttest.Encode(event))
	if err != nil {
		return err
	}
	l := ledger.New(dynamodb.NewFromConfig(cfg), "ledger", ledger.Options{Now: now})
	e := ledger.NewEntry(raw, "6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60", now())
	recorded := l.Record(ctx, []ledger.Entry{e}, ledger.NewHolder(), now())[0].Err
	published := bus.New(eventbridge.NewFromConfig(cfg), "payhook", "payhook", bus.Options{}).Publish(ctx,
		[]bus.Event{{DetailType: e.EventName, Detail: e.Detail, Time: e.EventTimestamp, DeliveryID: e.DeliveryID}})[0]
	return errors.Join(recorded, published, l.MarkPublished(ctx, []ledger.Entry{e})[0])
}
