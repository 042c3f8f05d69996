package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

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
	h := &handler{redriver: intake.NewRedriver(p, 20), parking: noParking(), log: telemetry.New(log, "Payhook")}
	got, err := h.Handle(t.Context(), event{})
	if err != nil || got.Found != 3 || got.Published != 3 || got.Failed != 0 || got.Left {
		t.Errorf("got %+v, %v", got, err)
	}
	var line map[string]any
	if err := json.Unmarshal(log.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if line["found"] != 3.0 || line["published"] != 3.0 || line["OldestPending"].(float64) < 60 ||
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
	if !r.Left || line["left"] != true || line["OldestPending"] != nil {
		t.Errorf("%+v, %v", r, line)
	}
	d.log.Reset()
	r = d.run(t)
	if err := json.Unmarshal(d.log.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if r.Left || line["left"] != false || line["OldestPending"] == nil {
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
	h := &handler{redriver: intake.NewRedriver(p, 20), parking: noParking(), log: telemetry.New(log, "Payhook")}
	if _, err := h.Handle(t.Context(), event{}); err == nil {
		t.Error("no error")
	}
	if !strings.Contains(log.String(), `"level":"ERROR"`) || !strings.Contains(log.String(), "index is broken") ||
		strings.Contains(log.String(), "OldestPending") {
		t.Errorf("logged %s", log)
	}
}
