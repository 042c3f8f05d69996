package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/awstest"
	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
	"payhook.example/shared/names"
	"payhook.example/shared/parking"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/setup"
)

// marksFail is a DynamoDB that writes no mark, and does not read shard 7 if unread.
type marksFail struct {
	*awstest.DynamoDB
	unread bool
}

var errMark = errors.New("not marked")

func (db marksFail) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	if strings.Contains(*in.UpdateExpression, "#at = :now") {
		return nil, errMark
	}
	return db.DynamoDB.UpdateItem(ctx, in, opts...)
}

func (db marksFail) Query(ctx context.Context, in *dynamodb.QueryInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	if shard, ok := in.ExpressionAttributeValues[":shard"].(*types.AttributeValueMemberS); db.unread && ok &&
		shard.Value == "payhook/7" {
		return nil, errors.New("index is broken")
	}
	return db.DynamoDB.Query(ctx, in, opts...)
}

// unrecorded is a DynamoDB that does not write the event of an id.
type unrecorded struct {
	*awstest.DynamoDB
	id string
}

func (db unrecorded) PutItem(ctx context.Context, in *dynamodb.PutItemInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	if id, ok := in.Item[names.LedgerKey].(*types.AttributeValueMemberS); ok && id.Value == db.id {
		return nil, errors.New("not written")
	}
	return db.DynamoDB.PutItem(ctx, in, opts...)
}

// BatchExecuteStatement leaves every event to PutItem.
func (db unrecorded) BatchExecuteStatement(context.Context, *dynamodb.BatchExecuteStatementInput,
	...func(*dynamodb.Options)) (*dynamodb.BatchExecuteStatementOutput, error) {
	return nil, &smithy.GenericAPIError{Code: "ValidationException"}
}

// The line of a run is what an operator reads, and what alarms and the dashboard count.
func TestTheLineOfEachRun(t *testing.T) {
	for name, test := range map[string]struct {
		setUp func(d *deployed)
		want  map[string]any // what differs from a run that finds nothing
		err   string
	}{
		"nothing is due": {func(*deployed) {}, nil, ""},
		"published": {func(d *deployed) { d.record(t, 3) },
			map[string]any{"leased": 3.0, "found": 3.0, "published": 3.0}, ""},
		"rejected": {func(d *deployed) {
			d.bus.Answer = refuse
			d.record(t, 1)
		}, map[string]any{"level": "WARN", "cause": "bus: entry not taken: InvalidArgument", "leased": 1.0,
			"found": 1.0, "failed": 1.0}, ""},
		"rejected too often": {func(d *deployed) {
			d.setUp(t, map[string]string{settings.RedriveAttempts.Env(): "1"}, d.db)
			d.bus.Answer = refuse
			d.record(t, 2)
		}, map[string]any{"level": "WARN", "cause": "bus: entry not taken: InvalidArgument", "leased": 2.0,
			"found": 2.0, "failed": 2.0, "Parked": 2.0}, ""},
		"not marked": {func(d *deployed) {
			d.setUp(t, nil, marksFail{DynamoDB: d.db})
			d.record(t, 1)
		}, map[string]any{"level": "ERROR", "leased": 1.0, "unmarked": 1.0, "found": 1.0}, ""},
		"the ledger can't be read": {func(d *deployed) {
			d.setUp(t, nil, marksFail{DynamoDB: d.db, unread: true})
		}, map[string]any{"level": "ERROR", "errors": 2.0, "cause": "ledger: pending in shard payhook/7: index is broken"},
			"redrive: ledger: pending in shard payhook/7: index is broken"},
		"with certificates": {func(d *deployed) {
			ca := paymenttest.NewCA("CA")
			d.setUp(t, withCertificates(t, settings.ByMTLS, ca), d.db)
			d.now = func() time.Time { return ca.Certificate.NotAfter.Add(-48 * time.Hour) }
		}, map[string]any{"TrustDaysLeft": 2.0}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := deployWith(t, nil)
			test.setUp(d)
			r, err := d.Handle(t.Context(), event{})
			if (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("got the error %v", err)
			}
			want := map[string]any{
				"msg": "redrive", "leased": 0.0, "unmarked": 0.0, "errors": 0.0,
				"found": 0.0, "published": 0.0, "failed": 0.0, "left": false,
			}
			maps.Copy(want, test.want)
			got := lineOf(t, &d.log)
			// Without this metric, the alarm oldest-pending is raised.
			if _, measured := got["OldestPending"]; measured == strings.Contains(test.err, "pending in shard") {
				t.Errorf("the line has the age of the oldest item: %v", measured)
			}
			delete(got, "OldestPending")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the line (-want +got):\n%s", diff)
			}
			parked, _ := want["Parked"].(float64)
			answer := report{Found: int(want["found"].(float64)), Published: int(want["published"].(float64)),
				Failed: int(want["failed"].(float64)), Parked: int(parked)}
			if diff := cmp.Diff(answer, r); diff != "" {
				t.Errorf("the answer (-want +got):\n%s", diff)
			}
		})
	}
}

// slow is a DynamoDB whose queries take half a second.
type slow struct{ *awstest.DynamoDB }

func (db slow) Query(ctx context.Context, in *dynamodb.QueryInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	time.Sleep(time.Second / 2)
	return db.DynamoDB.Query(ctx, in, opts...)
}

// A run that reads the ledger until there is no time to publish has work left, and no error.
func TestTheLineOfARunThatLeavesWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployWith(t, nil)
		d.setUp(t, nil, slow{d.db})
		d.record(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		if r, err := d.Handle(ctx, event{}); err != nil || !r.Left {
			t.Errorf("%+v, %v", r, err)
		}
		got := lineOf(t, &d.log)
		delete(got, "OldestPending")
		if diff := cmp.Diff(map[string]any{
			"msg": "redrive", "level": "WARN", "leased": 0.0, "unmarked": 0.0, "errors": 0.0,
			"found": 1.0, "published": 0.0, "failed": 0.0, "left": true,
		}, got); diff != "" {
			t.Errorf("the line (-want +got):\n%s", diff)
		}
	})
}

// lineOf returns the one line of a log, without the names of its metrics. They must be
// the members that are metrics. Their dimension is left out, too.
func lineOf(t *testing.T, log *bytes.Buffer) map[string]any {
	t.Helper()
	var line map[string]any
	if err := json.Unmarshal(log.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, log)
	}
	declared := map[string]bool{}
	if embedded, ok := line["_aws"].(map[string]any); ok {
		directive := embedded["CloudWatchMetrics"].([]any)[0].(map[string]any)
		for _, m := range directive["Metrics"].([]any) {
			declared[m.(map[string]any)["Name"].(string)] = true
		}
		if line[names.MetricDimension] != "Payhook" {
			t.Errorf("the dimension is %v", line[names.MetricDimension])
		}
	}
	delete(line, "_aws")
	delete(line, names.MetricDimension)
	for name := range line {
		if metric := 'A' <= name[0] && name[0] <= 'Z'; declared[name] != metric {
			t.Errorf("%s is a metric of the line: %v", name, declared[name])
		}
	}
	return line
}

// The level of the line of a replay or a decision says whether a person must look.
func TestTheLinesOfReplaysAndDecisions(t *testing.T) {
	d := newDeployment(t)
	fine, unmarked := d.park(parking.Invalid, nil, newEvent()), d.park(parking.Invalid, nil, newEvent())
	first, other := twoContents()
	d.handle(event{Replay: []string{d.park(parking.Invalid, nil, first)}})
	conflict, settled := d.park(parking.Conflict, [][]byte{other}, other), d.park(parking.Invalid, nil, other)
	d.buckets.Fails = func(operation, key string) error {
		if operation == "PutObject" && strings.HasSuffix(key, strings.ReplaceAll(unmarked, "/", "-")) {
			return errors.New("the bucket is down")
		}
		return nil
	}
	for name, test := range map[string]struct {
		event event
		want  map[string]any
	}{
		"replayed": {event{Replay: []string{fine}}, map[string]any{"msg": "replay", "name": fine, "reason": "invalid",
			"outcome": "accepted", "cause": "", "recorded": 1.0}},
		"replayed, and not marked": {event{Replay: []string{unmarked}}, map[string]any{"level": "WARN", "msg": "replay",
			"name": unmarked, "reason": "invalid", "outcome": "accepted", "cause": "parking: put: the bucket is down",
			"recorded": 1.0}},
		"no version": {event{Replay: []string{conflict}}, map[string]any{"level": "WARN", "msg": "replay",
			"name": conflict, "reason": "conflict", "outcome": "version-missing", "cause": "", "recorded": 0.0}},
		"not parked": {event{Replay: []string{"x"}}, map[string]any{"level": "WARN", "msg": "replay", "name": "x",
			"reason": "", "outcome": "", "cause": parking.ErrNotParked.Error(), "recorded": 0.0}},
		"settled": {event{Settle: []string{settled}, Reason: "why"}, map[string]any{"msg": "settle", "name": settled,
			"cause": ""}},
		"not settled": {event{Settle: []string{"x"}, Reason: "why"}, map[string]any{"level": "WARN", "msg": "settle",
			"name": "x", "cause": parking.ErrNotParked.Error()}},
	} {
		d.log.Reset()
		d.handle(test.event)
		var line map[string]any
		if err := json.Unmarshal(d.log.Bytes(), &line); err != nil {
			t.Fatalf("%v: %s", err, d.log)
		}
		for _, other := range []string{"time", "version", "deliveryId", "duplicates", "conflicts", "unverified"} {
			delete(line, other)
		}
		if diff := cmp.Diff(test.want, line); diff != "" {
			t.Errorf("%s: the line (-want +got):\n%s", name, diff)
		}
	}
}

// A delivery of which an event could not be recorded stays open, although its events in
// conflict are parked as a new object.
func TestAReplayThatCouldNotRecordEveryEventStaysOpen(t *testing.T) {
	d := newDeployment(t)
	first, other := twoContents()
	d.handle(event{Replay: []string{d.park(parking.Invalid, nil, first)}})
	missing := newEvent()
	name := d.park(parking.Invalid, nil, other, missing)
	d.replayer = intake.NewReplayer(setup.Pipeline(unrecorded{d.db, ledger.Key(idOf(t, missing))}, d.bus, d.buckets,
		settings.Publishing{LedgerTable: "ledger", EventBusName: "bus", EventSource: "payhook",
			ParkingBucket: "parking"},
		time.Minute), []int{65537}, nil)
	r := d.handle(event{Replay: []string{name}}).Replayed[0]
	if r.Outcome != intake.LedgerUnavailable || r.Parked == "" || r.Conflicts != 1 {
		t.Errorf("%+v", r)
	}
	d.decided(name, parking.Open)
}
