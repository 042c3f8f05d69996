package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"payhook.example/shared/awstest"
	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/telemetry"
)

func TestARunIsReportedInTheAnswerTheLogAndTheMetrics(t *testing.T) {
	db, eb, log := awstest.NewDynamoDB(), &awstest.EventBridge{}, &bytes.Buffer{}
	db.CreateLedger("ledger")
	table := ledger.New(db, "ledger", "bus", ledger.Options{})
	for range 3 {
		raw, err := payment.DecodeRawEvent(paymenttest.Encode(paymenttest.Event()))
		if err != nil {
			t.Fatal(err)
		}
		e := ledger.NewEntry(raw, uuid.New().String(), time.Now().Add(-time.Minute))
		if err := table.Record(t.Context(), []ledger.Entry{e}, ledger.NewHolder(),
			time.Now().Add(-time.Minute))[0].Err; err != nil {
			t.Fatal(err)
		}
	}
	p := intake.NewPipeline(table, bus.New(eb, "bus", "source", bus.Options{}), nil, nil, intake.Options{})
	h := &handler{redriver: intake.NewRedriver(p, 20), parking: noParking(), log: telemetry.New(log, "redrive")}
	got, err := h.Handle(t.Context(), event{})
	if err != nil || got.Found != 3 || got.Published != 3 || got.Failed != 0 || got.Left {
		t.Errorf("got %+v, %v", got, err)
	}
	var line map[string]any
	if err := json.Unmarshal(log.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if line["RedriveFound"] != 3.0 || line["RedrivePublished"] != 3.0 || line["OldestPending"].(float64) < 60 ||
		line["level"] != nil || !strings.Contains(log.String(), `{"Name":"OldestPending","Unit":"Seconds"}`) {
		t.Errorf("got %v", line)
	}
}

// noParking returns a parking bucket with nothing in it.
func noParking() *parking.Store {
	buckets := awstest.NewS3()
	buckets.MakeBucket("parking")
	return parking.NewStore(buckets, "parking")
}

// open returns the count of what is parked and open in the line of the next run, or nil.
func (d *deployment) open() any {
	d.t.Helper()
	d.log.Reset()
	if _, err := d.Handle(d.t.Context(), event{}); err != nil {
		d.t.Fatal(err)
	}
	var line map[string]any
	if err := json.Unmarshal(d.log.Bytes(), &line); err != nil {
		d.t.Fatal(err)
	}
	return line["ParkedOpen"]
}

func TestARunCountsWhatIsParkedAndOpenEveryTenMinutes(t *testing.T) {
	d := newDeployment(t)
	now := noon
	d.now = func() time.Time { return now }
	settled := d.park(parking.Invalid, nil, newEvent())
	d.park(parking.Invalid, nil, newEvent())
	if got := d.open(); got != 2.0 {
		t.Errorf("the first run counts %v, want 2", got)
	}
	d.handle(event{Settle: []string{settled}, Reason: "a test"})
	now = now.Add(10*time.Minute - time.Second)
	if got := d.open(); got != nil {
		t.Errorf("a run within ten minutes counts %v", got)
	}
	now = now.Add(time.Second)
	if got := d.open(); got != 1.0 {
		t.Errorf("the run after ten minutes counts %v, want 1", got)
	}
}

func TestARunThatCannotCountWhatIsParkedSucceedsAndCountsNextTime(t *testing.T) {
	d := newDeployment(t)
	d.buckets.Fails = func(_, _ string) error { return errors.New("S3 does not answer") }
	if got := d.open(); got != nil || !bytes.Contains(d.log.Bytes(), []byte(`"parkedCause"`)) {
		t.Errorf("counted %v: %s", got, d.log)
	}
	d.buckets.Fails = nil
	if got := d.open(); got != 0.0 {
		t.Errorf("counted %v, want 0", got)
	}
}

// silent is an S3 that does not answer.
type silent struct{ *awstest.S3 }

func (silent) ListObjectsV2(ctx context.Context, _ *s3.ListObjectsV2Input,
	_ ...func(*s3.Options)) (*s3.ListObjectsV2Output, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestARunCountsWhatIsParkedForFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployWith(t, nil)
		d.parking = parking.NewStore(silent{d.buckets}, "parking")
		start := time.Now()
		d.run(t)
		if took := time.Since(start); took != 5*time.Second || !strings.Contains(d.log.String(), `"level":"WARN"`) {
			t.Errorf("after %s: %s", took, &d.log)
		}
	})
}

func TestARunThatHasNoTimeLeavesTheRest(t *testing.T) {
	d := deployWith(t, nil)
	d.record(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	r, _ := d.Handle(ctx, event{})
	var line map[string]any
	if err := json.Unmarshal(d.log.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if !r.Left || line["RedriveLeft"] != 1.0 || line["ParkedOpen"] != nil || line["parkedCause"] != nil ||
		d.buckets.Calls("ListObjectsV2") != 0 {
		t.Errorf("%+v, %v", r, line)
	}
	d.log.Reset()
	r = d.run(t)
	if err := json.Unmarshal(d.log.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if r.Left || line["RedriveLeft"] != 0.0 {
		t.Errorf("%+v, %v", r, line)
	}
}

type broken struct{ *awstest.DynamoDB }

func (broken) Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	return nil, errors.New("index is broken")
}

func TestARunThatCannotReadTheLedgerFails(t *testing.T) {
	log := &bytes.Buffer{}
	table := ledger.New(broken{}, "ledger", "bus", ledger.Options{})
	p := intake.NewPipeline(table, bus.New(nil, "bus", "source", bus.Options{}), nil, nil, intake.Options{})
	h := &handler{redriver: intake.NewRedriver(p, 20), parking: noParking(), log: telemetry.New(log, "redrive")}
	if _, err := h.Handle(t.Context(), event{}); err == nil {
		t.Error("no error")
	}
	if !strings.Contains(log.String(), `"level":"ERROR"`) || !strings.Contains(log.String(), "index is broken") {
		t.Errorf("logged %s", log)
	}
}
