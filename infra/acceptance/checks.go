package acceptance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	ebtypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/infra/deployment"
	"payhook.example/infra/local/scenario"
	"payhook.example/shared/ledger"
	"payhook.example/shared/paymenttest"
)

// show does the checks of the local run, and those of AWS.
func (r *Run) show(ctx context.Context, report *Report) error {
	in := scenario.Receive(r.AWS, r.Queues)
	defer in.Stop()
	table, err := r.Scenario.Show(ctx, in, func(context.Context) ([]scenario.Section, error) { return nil, nil })
	report.Parts = table.Parts
	for _, part := range []scenario.Section{
		{Title: "The bytes of an event behind a rule", Checks: r.onAWS(r.detailChecks(in)...)},
		{Title: "Who can publish", Checks: append(r.onAWS(r.foreignCheck()), r.deniedCheck(in))},
		{Title: "The largest entry and the largest webhook", Checks: r.sizeChecks()},
		{Title: "A token that the schedule renews", Checks: r.onAWS(r.tokenCheck())},
		{Title: "Times", Checks: r.onAWS(r.timeChecks()...)},
	} {
		if err == nil {
			err = r.Progress.Step(part.Title, func() error { return r.Run(ctx, part.Checks...) })
			report.Parts = append(report.Parts, part)
		}
	}
	return err
}

// onAWS returns checks that an emulator cannot show.
func (r *Run) onAWS(checks ...*scenario.Check) []*scenario.Check {
	for _, c := range checks {
		if r.Endpoint != "" {
			c.NotShown = "the emulator has its own rules, times and schedules, and no policies of buses"
		}
	}
	return checks
}

// send sends a webhook to the endpoint.
func (r *Run) send(ctx context.Context, w paymenttest.Webhook) (paymenttest.Answer, error) {
	w.URL = r.WebhookURL
	return r.service.Sender().Send(ctx, w)
}

// mustSend sends a payload that must be accepted.
func (r *Run) mustSend(ctx context.Context, payload []byte) {
	answer := scenario.Must(r.send(ctx, paymenttest.Webhook{Payload: payload}))
	if answer.Status/100 != 2 {
		scenario.Require(fmt.Errorf("answered %d %s", answer.Status, answer.Body))
	}
}

// reachedFunction reports whether the function answered a webhook that it rejects, and not AWS.
func reachedFunction(answer paymenttest.Answer) bool {
	return strings.HasPrefix(answer.Header.Get("Content-Type"), "application/problem+json")
}

// values are values of an event that a program can write in several ways.
var values = []string{
	"1234567890.10", "1E3", "0.00", "123456789012345678", "0.123456789012345678", "-0", "1e-7", "9007199254740993",
	`"\u00e9\ud83d\ude00\/\"\\\b\f\n\r\t"`, `"é😀ß漢"`, `"<a href='x'>&amp;</a>"`,
	`{"a":null,"b":[null,{"c":null}],"d":{}}`, `{ "a" : [ 1 , 2 ] }`,
}

// detailChecks compare values with those that arrive behind a rule.
func (r *Run) detailChecks(in *scenario.Arrivals) []*scenario.Check {
	var checks []*scenario.Check
	for _, value := range values {
		checks = append(checks, scenario.NewCheck(value, "the same value", func(ctx context.Context) string {
			event := paymenttest.Event()
			text := paymenttest.Encode(event)
			r.mustSend(ctx, paymenttest.RawDelivery(uuid.New().String(),
				fmt.Appendf(text[:len(text)-1], `,"note":%s}`, value)))
			arrived := in.AwaitOne(ctx, time.Minute,
				func(one scenario.Arrival) bool {
					return one.Rule == scenario.Released && one.EventID == event.EventID
				})
			var detail struct{ Note json.RawMessage }
			scenario.Require(json.Unmarshal(arrived.Detail, &detail))
			switch note := string(detail.Note); {
			case note == value:
				return "the same value; the same bytes"
			case sameValue(note, value):
				return "the same value; written as " + note
			default:
				return "another value: " + note
			}
		}))
	}
	return checks
}

// sameValue reports whether two JSON texts have the same value. Numbers are compared exactly.
func sameValue(a, b string) bool {
	x, okX := new(big.Rat).SetString(a)
	y, okY := new(big.Rat).SetString(b)
	if okX && okY {
		return x.Cmp(y) == 0
	}
	var v, w any
	return json.Unmarshal([]byte(a), &v) == nil && json.Unmarshal([]byte(b), &w) == nil && reflect.DeepEqual(v, w)
}

// foreignCheck publishes on Payhook's bus with the permissions of the caller.
func (r *Run) foreignCheck() *scenario.Check {
	const denied = "denied by the policy of the bus"
	return scenario.NewCheck("someone else with events:PutEvents publishes on Payhook's bus", denied,
		func(ctx context.Context) string {
			_, err := r.put(ctx, r.Bus, 100)
			if hasCode(err, "AccessDeniedException", "AccessDenied") {
				return denied
			}
			scenario.Require(err)
			return "accepted"
		})
}

// put publishes an entry of a size in bytes on a bus, and reports whether it was accepted.
func (r *Run) put(ctx context.Context, bus string, size int) (bool, error) {
	const source, kind, start, end = "payhook.acceptance", "SIZE", `{"x":"`, `"}`
	filler := strings.Repeat("x", size-len(source)-len(kind)-len(start)-len(end))
	out, err := eventbridge.NewFromConfig(r.AWS).PutEvents(ctx, &eventbridge.PutEventsInput{
		Entries: []ebtypes.PutEventsRequestEntry{{EventBusName: &bus, Source: aws.String(source),
			DetailType: aws.String(kind), Detail: aws.String(start + filler + end)}}})
	if hasCode(err, "ValidationException", "RequestEntityTooLargeException") {
		return false, nil
	}
	return err == nil && out.FailedEntryCount == 0, err
}

// busLimit is the size of the smallest entry that EventBridge rejects (AWS, "Amazon
// EventBridge event size": https://docs.aws.amazon.com/eventbridge/latest/userguide/
// eb-putevents.html#eb-event-size).
const busLimit = 1 << 20

// sizeChecks look for the limits of size, at a bus and at the endpoint.
func (r *Run) sizeChecks() []*scenario.Check {
	checks := []*scenario.Check{
		scenario.NewCheck("an entry of PutEvents of 1,048,575 bytes, and one of 1,048,576 bytes", "true, false",
			func(ctx context.Context) string {
				below := scenario.Must(r.put(ctx, r.limitsBus, busLimit-1))
				return fmt.Sprintf("%t, %t", below, scenario.Must(r.put(ctx, r.limitsBus, busLimit)))
			})}
	for _, contentType := range []string{"application/json", "application/octet-stream"} {
		checks = append(checks, scenario.NewCheck("the largest webhook, in bytes, of "+contentType, "",
			func(ctx context.Context) string {
				const least, most = 1 << 20, 7 << 20
				rejected := sort.Search(most-least, func(more int) bool {
					// Without a signature, it has no effect.
					return !reachedFunction(scenario.Must(r.send(ctx, paymenttest.Webhook{
						Payload:     bytes.Repeat([]byte(" "), least+more),
						ContentType: contentType, Flaw: paymenttest.SignatureMissing})))
				})
				return strconv.Itoa(least + rejected - 1)
			}))
	}
	return checks
}

// denyPolicy is the name of the policy with which deniedCheck denies PutEvents to a role.
const denyPolicy = "payhook-acceptance-deny"

func allow(ctx context.Context, t Target, role string) error {
	return deployment.SetRolePolicy(ctx, t.AWS, role, denyPolicy, "")
}

// deniedCheck denies PutEvents to the functions for a while, and expects every event that is
// accepted meanwhile to arrive later. On AWS, a change of a policy takes effect with a delay
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot.html#troubleshoot_general_eventual-consistency),
// so not every event is denied.
func (r *Run) deniedCheck(in *scenario.Arrivals) *scenario.Check {
	duration := 2 * time.Minute
	if r.Endpoint != "" {
		duration = 2 * time.Second // the emulator enforces a policy at once
	}
	return scenario.NewCheck(
		"a policy denies PutEvents to the functions for "+duration.String()+", while webhooks arrive",
		"all are accepted, some are pending, all arrive after the policy is removed",
		func(ctx context.Context) string {
			var roles []string
			lift := func() (err error) {
				for _, role := range roles {
					err = errors.Join(err, allow(context.WithoutCancel(ctx), r.Target, role))
				}
				return err
			}
			defer lift()
			for _, name := range []string{"webhook", "redrive"} {
				role := r.RoleOf(ctx, name)
				roles = append(roles, role)
				scenario.Require(deployment.SetRolePolicy(ctx, r.AWS, role, denyPolicy, `{"Version":"2012-10-17",`+
					`"Statement":[{"Effect":"Deny","Action":"events:PutEvents","Resource":"*"}]}`))
			}
			accepted := map[string]bool{}
			for end := time.Now().Add(duration); time.Now().Before(end); {
				event := paymenttest.Event()
				r.mustSend(ctx, paymenttest.Delivery(event))
				accepted[event.EventID] = true
				scenario.Require(smithytime.SleepWithContext(ctx, 200*time.Millisecond))
			}
			pending := r.pending(ctx)
			scenario.Require(lift())
			r.awaitAll(ctx, in, accepted)
			if pending == 0 {
				return "no event is pending"
			}
			return fmt.Sprintf("all are accepted, some are pending, all arrive after the policy is removed; "+
				"%d accepted, %d pending", len(accepted), pending)
		})
}

// pending returns how many events are recorded and not published.
func (r *Run) pending(ctx context.Context) int {
	return len(scenario.Must(ledger.NewInspector(dynamodb.NewFromConfig(r.AWS), r.LedgerTable).Backlog(ctx)))
}

// awaitAll waits until events have arrived behind the rule for released payments. On the emulator,
// which runs no schedule in time, it invokes redrive.
func (r *Run) awaitAll(ctx context.Context, in *scenario.Arrivals, ids map[string]bool) {
	scenario.Require(scenario.Poll(ctx, 15*time.Minute, 200*time.Millisecond, func() (bool, error) {
		if r.Endpoint == "" {
			return true, nil
		}
		err := r.Invoke(ctx, "redrive", scenario.AsScheduled, &struct{}{})
		return r.pending(ctx) == 0, err
	}))
	scenario.Must(in.Await(ctx, 15*time.Minute, func(all []scenario.Arrival) bool {
		arrived := map[string]bool{}
		for _, a := range all {
			if a.Rule == scenario.Released && ids[a.EventID] {
				arrived[a.EventID] = true
			}
		}
		return len(arrived) == len(ids)
	}))
}

// tokenCheck calls the protected API for 15 minutes with tokens that live 4 minutes. The schedule
// alone renews them.
func (r *Run) tokenCheck() *scenario.Check {
	return scenario.NewCheck("calls of the protected API for 15 minutes, with tokens that live 4 minutes",
		"several tokens, 0 calls fail", func(ctx context.Context) string {
			scenario.Require(r.service.SetTokenLifetime(ctx, 4*time.Minute))
			defer r.service.SetTokenLifetime(context.WithoutCancel(ctx), paymenttest.DefaultTokenLifetime)
			// The first one must have the short life.
			scenario.Must(r.RunToken(ctx, scenario.RefreshNow))
			caller, tokens, result := r.NewCaller(), map[string]bool{}, "one token, "
			calls := caller.During(ctx, func() {
				for end := time.Now().Add(15 * time.Minute); time.Now().Before(end); {
					tokens[scenario.Must(caller.Reader.TokenContext(ctx)).AccessToken] = true
					scenario.Require(smithytime.SleepWithContext(ctx, time.Second))
				}
			})
			if len(tokens) > 1 {
				result = "several tokens, "
			}
			return result + calls
		})
}

// The queries of times in REPORT lines, which Lambda writes.
const (
	warmQuery = `filter @type = "REPORT" and not ispresent(@initDuration) | stats count(*) as runs, ` +
		`pct(@duration, 50) as p50, pct(@duration, 99) as p99`
	coldQuery = `filter @type = "REPORT" and ispresent(@initDuration) | stats count(*) as runs, ` +
		`pct(@initDuration + @duration, 50) as p50, pct(@initDuration + @duration, 99) as p99`
)

// timeChecks measure runs of the webhook function, and the first runs of all processes.
func (r *Run) timeChecks() []*scenario.Check {
	var checks []*scenario.Check
	for _, load := range []struct{ webhooks, events int }{{200, 1}, {20, 100}} {
		what := fmt.Sprintf("%d webhooks of %d events: a run of the webhook function", load.webhooks, load.events)
		checks = append(checks, scenario.NewCheck(what, "", func(ctx context.Context) string {
			start := time.Now()
			for range load.webhooks {
				r.mustSend(ctx, paymenttest.Delivery(paymenttest.Events(load.events)...))
			}
			return r.times(ctx, "webhook", warmQuery, start, load.webhooks*9/10)
		}))
	}
	for _, function := range []string{"webhook", "redrive", "token"} {
		checks = append(checks, scenario.NewCheck("start and first run of a process, "+function, "",
			func(ctx context.Context) string {
				return r.times(ctx, function, coldQuery, time.Now().Add(-24*time.Hour), 1)
			}))
	}
	return checks
}

// times queries a log group until it has enough runs since start, because logs are late.
func (r *Run) times(ctx context.Context, function, query string, start time.Time, enough int) string {
	client, group, line := cloudwatchlogs.NewFromConfig(r.AWS), r.Logs[function], map[string]string{}
	scenario.Require(scenario.Poll(ctx, 10*time.Minute, time.Second, func() (bool, error) {
		id := scenario.Must(client.StartQuery(ctx, &cloudwatchlogs.StartQueryInput{LogGroupName: &group,
			QueryString: &query, StartTime: aws.Int64(start.Unix()), EndTime: aws.Int64(time.Now().Unix())})).QueryId
		scenario.Require(smithytime.SleepWithContext(ctx, 10*time.Second))
		out := scenario.Must(client.GetQueryResults(ctx, &cloudwatchlogs.GetQueryResultsInput{QueryId: id}))
		if out.Status == types.QueryStatusComplete && len(out.Results) == 1 {
			for _, field := range out.Results[0] {
				line[aws.ToString(field.Field)] = aws.ToString(field.Value)
			}
		}
		runs, _ := strconv.ParseFloat(line["runs"], 64)
		return int(runs) >= enough, nil
	}))
	return fmt.Sprintf("p50 %s ms, p99 %s ms, %s runs", line["p50"], line["p99"], line["runs"])
}
