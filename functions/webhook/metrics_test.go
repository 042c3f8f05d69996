package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json/v2"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/telemetry"
)

// The metrics of alarms are written, and no other. Of zeros, only those of ClientErrors
// are written, which an alarm needs.
func TestTheMetricsOfAlarmsAreWritten(t *testing.T) {
	watched := map[string]bool{ // whether 0 is written
		names.KeyUnavailableMetric: false, names.KeyOutOfBudgetMetric: false, names.KeyStaleMetric: false,
		names.KeyWithdrawnMetric: false, names.NotStoredMetric: false, names.ParkedMetric: false,
		names.ConflictsMetric: false, names.UnauthenticatedMetric: false, names.LeftPendingMetric: false,
		names.ClientErrorsMetric: true,
	}
	for name, c := range map[string]struct {
		result intake.Result
		counts map[string]float64
	}{
		"taken":       {intake.Result{Outcome: intake.Accepted, Recorded: 3, Published: 3}, nil},
		"a duplicate": {intake.Result{Outcome: intake.Accepted, Duplicates: 3}, nil},
		"left to redrive": {intake.Result{Outcome: intake.Accepted, Recorded: 3, Pending: 2},
			map[string]float64{names.LeftPendingMetric: 2}},
		"a key that is not fresh": {intake.Result{Outcome: intake.Accepted,
			Key: keys.Found{Source: keys.Stale}}, map[string]float64{names.KeyStaleMetric: 1}},
		"no key": {intake.Result{Outcome: intake.KeyUnavailable},
			map[string]float64{names.KeyUnavailableMetric: 1}},
		"out of budget": {intake.Result{Outcome: intake.KeyOutOfBudget},
			map[string]float64{names.KeyOutOfBudgetMetric: 1}},
		"a forgery": {intake.Result{Outcome: intake.SignatureMismatch},
			map[string]float64{names.UnauthenticatedMetric: 1}},
		"an unknown key": {intake.Result{Outcome: intake.KeyUnknown},
			map[string]float64{names.UnauthenticatedMetric: 1}},
		"the ledger down": {intake.Result{Outcome: intake.LedgerUnavailable, Unrecorded: 1},
			map[string]float64{names.NotStoredMetric: 1}},
		"out of time": {intake.Result{Outcome: intake.OutOfTime, Unrecorded: 1},
			map[string]float64{names.NotStoredMetric: 1}},
		"parking down": {intake.Result{Outcome: intake.ParkingFailed},
			map[string]float64{names.NotStoredMetric: 1}},
		"parked": {intake.Result{Outcome: intake.Invalid, Parked: "x"},
			map[string]float64{names.ParkedMetric: 1}},
		"an event that EventBridge rejects": {intake.Result{Outcome: intake.Accepted, Recorded: 3, Published: 1,
			Unpublishable: 2}, map[string]float64{names.ParkedMetric: 2}},
		"a conflict": {intake.Result{Outcome: intake.Conflict, Conflicts: 2, Parked: "x"},
			map[string]float64{names.ParkedMetric: 1, names.ConflictsMetric: 2}},
		"a key in its grace": {intake.Result{Outcome: intake.Accepted,
			Key: keys.Found{Source: keys.Stale, Withdrawn: true}},
			map[string]float64{names.KeyStaleMetric: 1, names.KeyWithdrawnMetric: 1}},
		"a key that was removed": {intake.Result{Outcome: intake.KeyUnknown,
			Key: keys.Found{Withdrawn: true}},
			map[string]float64{names.UnauthenticatedMetric: 1, names.KeyWithdrawnMetric: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			h := &handler{log: telemetry.New(&log, "webhook")}
			answer := intake.AnswerTo(c.result.Outcome)
			h.write(t.Context(), c.result, answer)
			var line map[string]any
			if err := json.Unmarshal(log.Bytes(), &line); err != nil {
				t.Fatal(err)
			}
			for metric, zero := range watched {
				want, counted := c.counts[metric]
				if answer.Status >= 400 && answer.Status <= 499 && metric == names.ClientErrorsMetric {
					want, counted = 1, true
				}
				got, written := line[metric]
				if written != (counted || zero) || written && got != want {
					t.Errorf("%s is %v, want %v", metric, got, want)
				}
			}
		})
	}
}

// CloudWatch charges for each byte of a line. The names are as long as in a stack with
// the default name.
func TestTheLineOfAPlainDeliveryIsShort(t *testing.T) {
	const limit = 600
	var log bytes.Buffer
	h := &handler{authentication: settings.BySignature,
		log: telemetry.New(&log, "Payhook-WebhookFunction8C3FBA4E-aBcDeFgHiJkL")}
	ctx := lambdacontext.NewContext(t.Context(),
		&lambdacontext.LambdaContext{AwsRequestID: "8476a536-e9f4-11e8-9739-2d7598c3fe81"})
	h.write(ctx, intake.Result{
		Outcome: intake.Accepted,
		KeyID:   uuid.New().String(), Key: keys.Found{Source: keys.Memory},
		DeliveryID: uuid.New().String(),
		Events:     1, Recorded: 1, Published: 1,
		EventIDs: intake.EventIDs{intake.Published: {uuid.New().String()}},
		Steps: intake.Steps{Authenticate: 260 * time.Microsecond, Decode: 30 * time.Microsecond,
			Record: 10300 * time.Microsecond, Publish: 10200 * time.Microsecond, Mark: 10100 * time.Microsecond},
	}, intake.Answer{Status: http.StatusOK, Metric: "Accepted"})
	if n := log.Len(); n > limit {
		t.Errorf("%d bytes, and the limit is %d: %s", n, limit, log.String())
	}
	if strings.Contains(log.String(), "keySource") {
		t.Errorf("the source of a key in memory is logged: %s", log.String())
	}
	if want := `"ms":{"record":10,"publish":10,"mark":10}`; !strings.Contains(log.String(), want) {
		t.Errorf("%s\nwithout %s: steps of 1 ms or more", log.String(), want)
	}
}

// Lambda also counts a request that AWS rejects before the function as 4xx. An alarm is
// on the difference.
func TestEveryAnswerFrom400To499IsCounted(t *testing.T) {
	for status, want := range map[int]float64{200: 0, 202: 0, 399: 0, 400: 1, 401: 1, 405: 1, 409: 1, 413: 1, 422: 1,
		499: 1, 500: 0, 503: 0} {
		var log bytes.Buffer
		h := &handler{authentication: settings.BySignature, log: telemetry.New(&log, "webhook")}
		h.write(t.Context(), intake.Result{}, intake.Answer{Status: status})
		var line map[string]any
		if err := json.Unmarshal(log.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if line[names.ClientErrorsMetric] != want {
			t.Errorf("%d: %v", status, line[names.ClientErrorsMetric])
		}
		for _, absent := range []string{"authentication", "certificate", "cause", "keyId", "keySource", "deliveryId",
			"unrecorded", "unmarked", "unpublishable", "ids", "events", "idsLeftOut", "parked", "ms"} {
			if v, ok := line[absent]; ok {
				t.Errorf("%d: the line contains %s, which is not known: %v", status, absent, v)
			}
		}
	}
}

// A function URL's JSON for a request must be less than 6 MB (AWS, "Lambda
// quotas").
func TestTheSafePayloadAlwaysFitsIntoAnInvocation(t *testing.T) {
	const limit = 6 << 20
	signed := newEndpoint(t, nil).request(t, paymenttest.Webhook{Payload: []byte("{}")})
	signed.RawQueryString, signed.Headers["x-padding"] = strings.Repeat("q", 8<<10), ""
	for i := range 100 {
		signed.Headers[fmt.Sprintf("x-header-%d", i)] = strings.Repeat("h", 400)
	}
	size := func(payload []byte, asBase64 bool) int {
		r := signed
		r.Body, r.IsBase64Encoded = string(payload), asBase64
		if asBase64 {
			r.Body = base64.StdEncoding.EncodeToString(payload)
		}
		text, err := json.Marshal(r) // of encoding/json/v2: escapes what RFC 8259 requires
		if err != nil {
			t.Fatal(err)
		}
		return len(text)
	}
	signed.Headers["x-padding"] = strings.Repeat("h", 64<<10+1-size([]byte("x"), false)) // the rest has 64 KiB
	for name, part := range map[string]string{
		"quotation marks": `"`, "backslashes": `\`, "line breaks": "\n", "tabs": "\t", "letters": "x", "two bytes": "é",
		"three bytes": "€", "four bytes": "😀",
	} {
		payload := []byte(strings.Repeat(part, settings.SafePayloadBytes/len(part)))
		for _, asBase64 := range []bool{false, true} {
			if got := size(payload, asBase64); got >= limit {
				t.Errorf("%s, base64 %t: %d bytes", name, asBase64, got)
			}
		}
	}
	// The limit is not lower than it has to be.
	if got := size(bytes.Repeat([]byte{'"'}, settings.SafePayloadBytes+32<<10), false); got < limit {
		t.Errorf("32 KiB more are %d bytes", got)
	}
	// functions/README.md states this of larger ones.
	one := paymenttest.Encode(paymenttest.Event())
	fits := func(megabytes float64, asBase64 bool) bool {
		payload := bytes.Repeat(one, int(megabytes*(1<<20))/len(one))
		return size(payload, asBase64) < limit
	}
	if !fits(5, false) || fits(5.6, false) || !fits(4.4, true) || fits(4.5, true) {
		t.Error("larger typical payloads fit")
	}
}
