package local

import (
	"context"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"payhook.example/shared/names"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// synthesizeAndDeploy does what cdk deploy does, with the stack's settings.
func (s *stack) synthesizeAndDeploy(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	assembly := filepath.Join(s.opts.state, name+".out")
	args := append([]string{"synth", "--quiet", "--output", assembly}, s.context()...)
	if err := s.cdk(ctx, "synth-"+name, "", s.opts.top, args...); err != nil {
		t.Fatal(err)
	}
	outputs, err := s.deployStack(ctx, "deploy-"+name, assembly, "Payhook")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.readOutputs(ctx, outputs); err != nil {
		t.Fatal(err)
	}
}

func (s *stack) destroy(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	assembly := filepath.Join(s.opts.state, name+".out")
	if err := s.cdk(ctx, "destroy-"+name, s.Endpoint, s.opts.state, "destroy", "--all", "--force", "--app",
		assembly); err != nil {
		t.Fatal(err)
	}
}

// destroyFurther deletes the further stacks.
func (s *stack) destroyFurther(ctx context.Context, t *testing.T) {
	t.Helper()
	args := append([]string{"destroy"}, furtherPaths()...)
	if err := s.cdk(ctx, "destroy-further", s.Endpoint, s.opts.state,
		append(args, "--force", "--app", s.assembly())...); err != nil {
		t.Error(err)
	}
}

// Two versions are deployed while webhooks arrive, the second as the first was.
// The status of an answer shows which of them gave it.
func TestADeploymentLosesNoWebhook(t *testing.T) {
	f := deployed(t)
	var (
		mu       sync.Mutex
		events   []payment.Event
		answers  = map[int]int{} // by status
		failures atomic.Int64
	)
	send := func(event payment.Event) int {
		got, err := f.service.Send(t.Context(),
			paymenttest.Webhook{URL: f.WebhookURL, Payload: paymenttest.Delivery(event)})
		if err != nil || got.Status/100 != 2 {
			t.Errorf("answered %d %s, %v", got.Status, got.Body, err)
			failures.Add(1)
		}
		mu.Lock()
		defer mu.Unlock()
		events = append(events, event)
		answers[got.Status]++
		return got.Status
	}
	deployed := make(chan struct{})
	var senders sync.WaitGroup
	for range 3 {
		senders.Go(func() {
			for failures.Load() < 10 {
				select {
				case <-deployed:
					return
				default:
					send(paymenttest.Event())
				}
			}
		})
	}
	stop := sync.OnceFunc(func() {
		close(deployed)
		senders.Wait()
	})
	defer stop()

	for _, version := range []struct {
		settings map[string]string
		status   int
	}{
		{map[string]string{settings.SuccessStatus.Key: "202", settings.WebhookMemory.Key: "640",
			settings.RedriveAttempts.Key: "21"}, http.StatusAccepted},
		{nil, http.StatusOK},
	} {
		f.with(version.settings).synthesizeAndDeploy(t.Context(), t, "again")
		if got := send(paymenttest.Event()); got != version.status {
			t.Errorf("once it is deployed, a webhook is answered %d, want %d", got, version.status)
		}
	}
	stop()
	t.Logf("%d events, answered %v", len(events), answers)
	if len(answers) != 2 || answers[http.StatusOK] == 0 || answers[http.StatusAccepted] == 0 {
		t.Errorf("answered %v, want 200 and 202", answers)
	}
	f.arriveOnce(t, events...)
}

// A second environment needs another name only. Its data outlive it: on AWS the
// stack retains them, which the emulator does not do, so that they are here before
// the stack is.
func TestADeletedStackIsDeployedAgainWithItsData(t *testing.T) {
	f := deployed(t)
	const table, claims, parking = "second-ledger", "second-claims", "second-parking"
	hash := []types.KeySchemaElement{{AttributeName: aws.String(names.LedgerKey), KeyType: types.KeyTypeHash}}
	if _, err := dynamodb.NewFromConfig(f.aws).CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: aws.String(table), BillingMode: types.BillingModePayPerRequest, KeySchema: hash,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String(names.LedgerKey), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String(names.LedgerPendingShard), AttributeType: types.ScalarAttributeTypeN},
			{AttributeName: aws.String(names.LedgerPendingDue), AttributeType: types.ScalarAttributeTypeN},
		},
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{
			IndexName:  aws.String(names.LedgerPendingIndex),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly},
			KeySchema: []types.KeySchemaElement{
				{AttributeName: aws.String(names.LedgerPendingShard), KeyType: types.KeyTypeHash},
				{AttributeName: aws.String(names.LedgerPendingDue), KeyType: types.KeyTypeRange},
			},
		}},
	}); err != nil {
		t.Fatal(err)
	}
	buckets := s3.NewFromConfig(f.aws, func(o *s3.Options) { o.UsePathStyle = true })
	for _, name := range []string{claims, parking} {
		if _, err := buckets.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(name)}); err != nil {
			t.Fatal(err)
		}
	}
	second := f.with(map[string]string{
		settings.StackName.Key: "PayhookSecond",
		// Left out, since the emulator has no CodeDeploy.
		settings.DeploymentStrategy.Key: settings.Canary,
		settings.LedgerTable.Key:        table, settings.ClaimBucket.Key: claims, settings.ParkingBucket.Key: parking,
	})
	beside := &fixture{stack: second, proxy: f.proxy, arrivals: f.arrivals}
	delivery, invalid := paymenttest.Delivery(paymenttest.Event()), []byte(`{"authentic":"and of no use"}`)

	second.synthesizeAndDeploy(t.Context(), t, "second")
	if second.Bus != "payhooksecond" || second.Bus == f.Bus || second.LedgerTable != table {
		t.Fatalf("the bus is %s and the ledger %s", second.Bus, second.LedgerTable)
	}
	beside.send(t, delivery).want(t, http.StatusOK, 1, 0)
	if a := beside.send(t, invalid); a.status != http.StatusUnprocessableEntity {
		t.Errorf("what is of no use is answered %d", a.status)
	}
	// The stack is deleted before redrive gets to this one.
	late := paymenttest.Event()
	back := f.proxy.decide(t, func(c call) verdict { return verdict{fail: c.is("PutEvents")} })
	beside.send(t, paymenttest.Delivery(late)).want(t, http.StatusOK, 1, 0)
	second.destroy(t.Context(), t, "second")
	back()
	if len(beside.pending(t, late)) != 1 {
		t.Error("the event is not pending")
	}

	second.synthesizeAndDeploy(t.Context(), t, "second")
	t.Cleanup(func() { second.destroy(context.WithoutCancel(t.Context()), t, "second") })
	beside.send(t, delivery).want(t, http.StatusOK, 0, 1)
	beside.redrive(t, late)
	parked, err := buckets.ListObjectsV2(t.Context(),
		&s3.ListObjectsV2Input{Bucket: aws.String(parking), Prefix: aws.String("parked/")})
	if err != nil || len(parked.Contents) == 0 {
		t.Errorf("what was parked is gone: %v", err)
	}
}
