package status

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cftypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/awstest"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
)

// world is a healthy deployment in memory.
type world struct {
	t       *testing.T
	now     time.Time
	db      *awstest.DynamoDB
	s3      *awstest.S3
	secrets *awstest.SecretsManager
	// metrics are the values of the last minute, by dimension, a space, and name.
	metrics map[string]float64
	age     time.Duration               // of these values
	alarms  map[string]types.StateValue // of all stacks
	named   []string                    // the alarms of the stack; nil: all
	denied  error                       // of GetMetricData
	secret  string                      // the name of the secret of the token
	bus     string                      // of the events that are recorded
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: time.Now().UTC(), db: awstest.NewDynamoDB(), s3: awstest.NewS3(),
		secrets: awstest.NewSecretsManager(t),
		secret:  "token",
		bus:     "bus",
		age:     time.Minute,
		metrics: map[string]float64{"Payhook OldestPending": 0, "Payhook TokenShortfallSeconds": 0,
			"Payhook Accepted": 17, "Payhook Unauthenticated": 3},
		alarms: map[string]types.StateValue{"Payhook-parked": types.StateValueOk,
			"Payhook-token-failed": types.StateValueOk}}
	w.db.CreateLedger("ledger")
	w.s3.MakeBucket("parking")
	w.secrets.Create("token")
	w.storeToken(time.Hour)
	return w
}

const accessToken1 = "CANARY-of-the-token"

func (w *world) storeToken(left time.Duration) {
	w.secrets.Put("token", fmt.Sprintf(`{"access_token":%q,"token_type":"Bearer","issued_at":%q,"expires_at":%q}`,
		accessToken1, w.now.Add(-time.Minute).Format(time.RFC3339), w.now.Add(left).Format(time.RFC3339)))
}

func (w *world) GetMetricData(_ context.Context, in *cloudwatch.GetMetricDataInput,
	_ ...func(*cloudwatch.Options)) (*cloudwatch.GetMetricDataOutput, error) {
	out := &cloudwatch.GetMetricDataOutput{}
	for _, q := range in.MetricDataQueries {
		m := q.MetricStat.Metric
		r := types.MetricDataResult{Id: q.Id}
		at := w.now.Add(-w.age)
		value, ok := w.metrics[aws.ToString(m.Dimensions[0].Value)+" "+aws.ToString(m.MetricName)]
		if ok && !at.Before(*in.StartTime) {
			r.Values, r.Timestamps = []float64{value}, []time.Time{at}
		}
		out.MetricDataResults = append(out.MetricDataResults, r)
	}
	return out, w.denied
}

func (w *world) DescribeAlarms(_ context.Context, in *cloudwatch.DescribeAlarmsInput,
	_ ...func(*cloudwatch.Options)) (*cloudwatch.DescribeAlarmsOutput, error) {
	if len(in.AlarmNames) > 100 || aws.ToInt32(in.MaxRecords) < int32(len(in.AlarmNames)) {
		return nil, fmt.Errorf("ValidationError: %d names for %d records", len(in.AlarmNames),
			aws.ToInt32(in.MaxRecords))
	}
	out := &cloudwatch.DescribeAlarmsOutput{}
	for _, name := range in.AlarmNames {
		if s, ok := w.alarms[name]; ok {
			out.MetricAlarms = append(out.MetricAlarms, types.MetricAlarm{AlarmName: &name, StateValue: s})
		}
	}
	return out, nil
}

// ListStackResources returns pages with one alarm and one other resource.
func (w *world) ListStackResources(_ context.Context, in *cloudformation.ListStackResourcesInput,
	_ ...func(*cloudformation.Options)) (*cloudformation.ListStackResourcesOutput, error) {
	if w.named == nil {
		w.named = slices.Sorted(maps.Keys(w.alarms))
	}
	out, at := &cloudformation.ListStackResourcesOutput{}, 0
	if in.NextToken != nil {
		at, _ = strconv.Atoi(*in.NextToken)
	}
	if at < len(w.named) {
		out.NextToken = aws.String(strconv.Itoa(at + 1))
		out.StackResourceSummaries = []cftypes.StackResourceSummary{
			{ResourceType: aws.String("AWS::CloudWatch::Alarm"), PhysicalResourceId: &w.named[at]},
			{ResourceType: aws.String("AWS::SQS::Queue"), PhysicalResourceId: aws.String("queue")}}
	}
	return out, nil
}

func (w *world) status(asJSON bool) (string, error) {
	w.t.Helper()
	var out bytes.Buffer
	p := &cli.Program{Out: &out, Err: &out, Now: func() time.Time { return w.now }, JSON: asJSON}
	d := &stack{
		Deployment: &deployment.Deployment{Name: "stack Payhook (nowhere)", Stack: "Payhook",
			LedgerTable: "ledger", ParkingBucket: "parking", Bus: "bus", TokenSecret: w.secret,
			Functions: map[string]string{"webhook": "webhook:live", "redrive": "redrive:live", "token": "token:live"}},
		db: w.db, buckets: w.s3, secrets: w.secrets.SDK(), metrics: w, stacks: w,
	}
	err := d.status(w.t.Context(), p)
	if strings.Contains(out.String(), accessToken1) {
		w.t.Error("the access token is shown")
	}
	return out.String(), err
}

func TestHealthyDeploymentIsHealthy(t *testing.T) {
	out, err := newWorld(t).status(false)
	if err != nil || !strings.Contains(out, "\nhealthy\n") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, text := range []string{"nothing is pending", "nothing is open", "valid for", "17 accepted, 3 401",
		"no client certificate is required", "none of 2 is raised"} {
		if !strings.Contains(out, text) {
			t.Errorf("%q is not in\n%s", text, out)
		}
	}
}

func TestAlarmsOfOtherStacksDoNotCount(t *testing.T) {
	w := newWorld(t)
	w.named = slices.Sorted(maps.Keys(w.alarms))
	w.alarms["Payhook-Staging-parked"] = types.StateValueAlarm
	if out, err := w.status(false); err != nil || !strings.Contains(out, "none of 2 is raised") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Each problem alone makes the deployment unhealthy.
func TestEachProblemNeedsAttention(t *testing.T) {
	for name, c := range map[string]struct {
		cause func(*world)
		want  string
	}{
		"overdue": {func(w *world) { w.record(time.Hour) }, "pending       attention     1 event"},
		"parked": {func(w *world) {
			if _, _, err := parking.NewStore(w.s3, "parking").Park(w.t.Context(),
				parking.Parked{Reason: parking.Invalid, ParkedAt: w.now}); err != nil {
				w.t.Fatal(err)
			}
		}, "parked        attention     1 open"},
		"a token that ends": {func(w *world) { w.storeToken(time.Minute) }, "token         attention     valid for"},
		"an expired token":  {func(w *world) { w.storeToken(-time.Second) }, "token         attention"},
		"no token": {func(w *world) { w.secrets.Create("token2"); w.secret = "token2" },
			"token         attention"},
		"an answer of 503":    {func(w *world) { w.metrics["Payhook NotStored"] = 1 }, "3 401, 1 503"},
		"no key":              {func(w *world) { w.metrics["Payhook KeyUnavailable"] = 1 }, "3 401, 1 503"},
		"a failed run":        {func(w *world) { w.metrics["webhook Errors"] = 1 }, "1 runs failed or did not start"},
		"a throttled webhook": {func(w *world) { w.metrics["webhook Throttles"] = 1 }, "webhooks      attention"},
		"redrive stopped":     {func(w *world) { w.age = 6 * time.Minute }, "redrive       attention"},
		"a certificate": {func(w *world) { w.metrics["Payhook TrustDaysLeft"] = 29 },
			"certificates  attention     29"},
		"an alarm": {func(w *world) { w.alarms["Payhook-parked"] = types.StateValueAlarm },
			"alarms        attention     1 of 2: parked"},
		"an alarm, another has no data": {func(w *world) {
			w.alarms["Payhook-parked"], w.alarms["Payhook-token-failed"] = types.StateValueAlarm, "INSUFFICIENT_DATA"
		}, "1 of 2: parked; 1 of 2 have no data: token-failed"},
		"the last of 101 alarms": {func(w *world) {
			for i := range 99 {
				w.alarms[fmt.Sprintf("Payhook-%02d", i)] = types.StateValueOk
			}
			w.alarms["Payhook-token-failed"] = types.StateValueAlarm
		}, "alarms        attention     1 of 101: token-failed"},
	} {
		w := newWorld(t)
		c.cause(w)
		out, err := w.status(false)
		if !errors.Is(err, cli.ErrAttention) || !strings.Contains(out, c.want) ||
			!strings.Contains(out, "NOT HEALTHY") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// Nothing is healthy by default.
func TestNothingUnmeasuredIsHealthy(t *testing.T) {
	for name, cause := range map[string]func(*world){
		"no metrics":              func(w *world) { w.metrics = nil },
		"no metrics of redrive":   func(w *world) { delete(w.metrics, "Payhook OldestPending") },
		"no metrics of the token": func(w *world) { delete(w.metrics, "Payhook TokenShortfallSeconds") },
		"no alarms":               func(w *world) { w.named = []string{} },
		"an alarm without data":   func(w *world) { w.alarms["Payhook-parked"] = types.StateValueInsufficientData },
		"an alarm that is gone":   func(w *world) { w.named = append(w.named, "Payhook-gone") },
	} {
		w := newWorld(t)
		cause(w)
		out, err := w.status(false)
		if !errors.Is(err, cli.ErrAttention) || !strings.Contains(out, "not measured") ||
			!strings.Contains(out, "\nUNKNOWN: ") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

func TestStatusAsJSON(t *testing.T) {
	w := newWorld(t)
	w.metrics["Payhook NotStored"] = 2
	out, err := w.status(true)
	var h health
	if jsonErr := json.Unmarshal([]byte(out), &h); jsonErr != nil || !errors.Is(err, cli.ErrAttention) {
		t.Fatalf("%v, %v in %s", err, jsonErr, out)
	}
	if h.Healthy || h.Stack != "Payhook" || len(h.Checks) != 8 || !h.At.Equal(w.now) {
		t.Errorf("got %+v", h)
	}
}

// Another stack has the same ledger. It publishes its events itself, unless it was deleted.
func TestEventsOfOtherBusesAreShown(t *testing.T) {
	w := newWorld(t)
	w.bus = "other"
	w.record(time.Second)
	out, err := w.status(false)
	if err != nil || !strings.Contains(out, "nothing is pending") || !strings.Contains(out, "other buses") ||
		!strings.Contains(out, "1 event, the oldest for 1s") {
		t.Errorf("%v\n%s", err, out)
	}
	w.record(time.Hour)
	out, err = w.status(false)
	if !errors.Is(err, cli.ErrAttention) ||
		!strings.Contains(out, "2 events, the oldest for 1h, 1 overdue: payhook pending move, if their stack is gone") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestDeniedCallIsAnError(t *testing.T) {
	w := newWorld(t)
	w.denied = errors.New("AccessDenied")
	if out, err := w.status(false); err == nil || errors.Is(err, cli.ErrAttention) || out != "" {
		t.Errorf("%v\n%s", err, out)
	}
}

// record records an event that was due that long ago, less a minute.
func (w *world) record(age time.Duration) {
	w.t.Helper()
	event, err := payment.DecodeRawEvent([]byte(fmt.Sprintf(`{"eventName":"PAYMENT_STATUS.RELEASED","eventId":"%s",`+
		`"eventTimestamp":"2026-01-31T12:00:00.123Z","eventData":{"amount":1}}`, uuid.New().String())))
	if err != nil {
		w.t.Fatal(err)
	}
	e := ledger.NewEntry(event, uuid.New().String(), w.now.Add(-age))
	table := ledger.New(w.db, "ledger", w.bus, ledger.Options{})
	if r := table.Record(w.t.Context(), []ledger.Entry{e}, ledger.NewHolder(),
		e.RecordedAt.Add(time.Minute))[0]; r.Err != nil {
		w.t.Fatal(r.Err)
	}
}
