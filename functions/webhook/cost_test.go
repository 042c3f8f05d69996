package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"payhook.example/shared/awstest"
	"payhook.example/shared/ledger"
	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
)

// AWS's list prices in us-east-1 in November 2026, in dollars.
const (
	// https://aws.amazon.com/dynamodb/pricing/on-demand/
	perWriteUnit = 0.625 / 1e6
	perReadUnit  = 0.125 / 1e6
	// https://aws.amazon.com/eventbridge/pricing/
	perEvent    = 1.00 / 1e6
	perSchedule = 1.00 / 1e6
	// https://aws.amazon.com/lambda/pricing/ (Arm)
	perRequest  = 0.20 / 1e6
	perGBSecond = 0.0000133334
	// https://aws.amazon.com/cloudwatch/pricing/
	perLogByte   = 0.50 / (1 << 30)
	perAlarm     = 0.10 // for each metric that it watches
	perMetric    = 0.30
	perDashboard = 3.00
	// https://aws.amazon.com/secrets-manager/pricing/
	perSecret      = 0.40
	perSecretCall  = 0.05 / 10_000
	perS3Put       = 5e-6 // https://aws.amazon.com/s3/pricing/
	perS3ByteMonth = 0.023 / (1 << 30)
)

// lambdaMilliseconds are assumed: three round trips of 10 ms, and the CPU time that make
// bench measures, on the 0.29 of a CPU that 512 MB have.
var lambdaMilliseconds = map[int]float64{1: 37, 10: 40, 100: 65}

// platformLines are the lines that Lambda writes for each invocation.
const platformLines = "START RequestId: 8476a536-e9f4-11e8-9739-2d7598c3fe81 Version: 12\n" +
	"END RequestId: 8476a536-e9f4-11e8-9739-2d7598c3fe81\n" +
	"REPORT RequestId: 8476a536-e9f4-11e8-9739-2d7598c3fe81\tDuration: 40.12 ms\tBilled Duration: 41 ms\t" +
	"Memory Size: 512 MB\tMax Memory Used: 32 MB\t\n"

// used is what a delivery uses.
type used struct{ units, events, logBytes int }

// use counts what a delivery of n new events uses whose key is in memory.
func use(t *testing.T, n int) (u used) {
	t.Helper()
	deliver := func(change func(*endpoint)) *endpoint {
		e := newEndpoint(t, nil)
		e.send(t, paymenttest.Event()) // the key is in memory now
		e.log.Reset()
		change(e)
		if r := e.send(t, paymenttest.Events(n)...); r.StatusCode != 200 {
			t.Fatalf("%d %s", r.StatusCode, r.Body)
		}
		return e
	}
	// The items as they are before the mark.
	pending := deliver(func(e *endpoint) {
		e.bus.Answer = func([]types.PutEventsRequestEntry) (map[int]string, error) {
			return nil, errors.New("the bus fails")
		}
	}).db.Items("ledger")
	found := 0
	for _, item := range pending {
		if item[names.LedgerPendingShard] == nil {
			continue // the first
		}
		found++
		// Record and mark write the item. In the index they write and delete an entry.
		// A write is charged by the larger of the item before and after it.
		const inIndex = 1
		u.units += 2 * ((awstest.ItemSize(item)+1023)/1024 + inIndex)
	}
	if found != n {
		t.Fatalf("%d items are pending", found)
	}
	e := deliver(func(*endpoint) {})
	for _, entry := range e.bus.Entries()[1:] {
		u.events += (len(*entry.Detail) + 64<<10) / (64 << 10) // each 64 KB is an event
	}
	// With the stack's name, steps and request id as they are on Lambda.
	line := regexp.MustCompile(`"ms":{[^}]*},`).ReplaceAllString(e.log.String(), "")
	line = strings.Replace(line, `"StackName":"webhook"`,
		`"ms":{"record":10,"publish":10,"mark":10},"StackName":"Payhook"`, 1)
	line = strings.Replace(line, `request-1`, `8476a536-e9f4-11e8-9739-2d7598c3fe81`, 1)
	u.logBytes = len(line) + len(platformLines)
	return u
}

// evidenceOf returns the size of the record of a delivery of n events, in bytes.
func evidenceOf(t *testing.T, n int) (size int) {
	t.Helper()
	e := newEndpoint(t, map[string]string{names.EvidenceBucketEnv: "evidence"})
	if r := e.send(t, paymenttest.Events(n)...); r.StatusCode != 200 {
		t.Fatalf("%d %s", r.StatusCode, r.Body)
	}
	for _, object := range e.buckets.Objects("evidence") {
		size += len(object)
	}
	return size
}

// alarms counts the alarms of the runbook's table that a stack has with the default
// settings, and the metrics that they watch.
func alarms(t *testing.T) (alarms, watched int) {
	t.Helper()
	text, err := os.ReadFile("../../infra/cmd/payhook/RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, begun := strings.Cut(string(text), "<!-- alarms -->")
	table, _, ended := strings.Cut(table, "<!-- /alarms -->")
	if !begun || !ended {
		t.Fatal("the runbook has no table of alarms")
	}
	for line := range strings.Lines(table) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` | ")
		if !ok || slices.Contains(notByDefault, name) {
			continue
		}
		_, rest, _ = strings.Cut(rest, "<br>")
		condition, _, _ := strings.Cut(rest, " | ")
		alarms++
		watched += 1 + strings.Count(condition, " less `")
	}
	return alarms, watched
}

// notByDefault are the alarms of domain names, client certificates, encryption keys and alarmSilence.
var notByDefault = []string{"rejected-by-api", "certificate-forbidden", "trust-expires", "bus-failures", "silence"}

// alwaysWritten are the metrics that are written in an hour in which nothing goes wrong.
var alwaysWritten = []names.Metric{
	names.AcceptedMetric, names.ClientErrorsMetric, names.OldestPendingMetric, names.TokenShortfallMetric,
}

// The tables of costs in functions/COST.md are computed from what is counted.
func TestTheTablesOfCostsAreComputed(t *testing.T) {
	var rows []string
	for _, n := range []int{1, 10, 100} {
		u := use(t, n)
		ms := lambdaMilliseconds[n]
		cost := float64(u.units)*perWriteUnit + float64(u.events)*perEvent + perRequest +
			ms/1000*0.5*perGBSecond + float64(u.logBytes)*perLogByte
		rows = append(rows, fmt.Sprintf("| %d | %d | %d | %d | %.0f ms | %.2f $ | %.2f $ |", n, u.units, u.events,
			u.logBytes, ms, cost*1e6, cost*1e6/float64(n)))
		size := evidenceOf(t, n)
		rows = append(rows, fmt.Sprintf("| %d | %.1f KB | %.2f $ | %.2f $ |", n, float64(size)/1e3, perS3Put*1e6,
			float64(size)*perS3ByteMonth*1e6))
	}
	const runs = 60 * 730 // of each scheduled function in a month
	alarms, watched := alarms(t)
	total := 0.0
	for _, fixed := range []struct {
		what string
		cost float64
	}{
		{fmt.Sprintf("%d alarms on %d metrics", alarms, watched), float64(watched) * perAlarm},
		{fmt.Sprintf("%d metrics", len(alwaysWritten)), float64(len(alwaysWritten)) * perMetric},
		{"the dashboard", perDashboard},
		{"2 secrets, and a read of the token function a run", 2*perSecret + runs*perSecretCall},
		{"2 schedules, every minute", 2 * runs * perSchedule},
		{"their runs in Lambda, of 100 ms with 512 MB", 2 * runs * (perRequest + 0.1*0.5*perGBSecond)},
		{"their lines in the log, of 1,000 bytes", 2 * runs * 1000 * perLogByte},
		{fmt.Sprintf("the queries of redrive, of %d shards", ledger.Shards), runs * ledger.Shards * perReadUnit / 2},
	} {
		rows = append(rows, fmt.Sprintf("| %s | %.2f $ |", fixed.what, fixed.cost))
		total += fixed.cost
	}
	rows = append(rows, fmt.Sprintf("| **together** | **%.2f $** |", total))
	if total > 8 {
		t.Errorf("the fixed cost is %.2f $ a month", total)
	}
	text, err := os.ReadFile("../COST.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if !strings.Contains(string(text), row+"\n") {
			t.Errorf("functions/COST.md lacks this row:\n%s", row)
		}
	}
}
