package acceptance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
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
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/infra/local/scenario"
	"payhook.example/shared/ledger"
	"payhook.example/shared/paymenttest"
)

// AWS is the need of checks that an emulator cannot show.
const AWS scenario.Need = "AWS"

// emulatorLacks is the reason of the emulator.
var emulatorLacks = map[scenario.Need]string{
	AWS: "only AWS can show it: the emulator has its own rules, times and schedules, and no policies of buses",
}

// show does the checks of the local run, and those of AWS.
func (d *deployed) show(ctx context.Context, report *Report) error {
	in := scenario.Receive(d.AWS, d.Queues)
	defer in.Stop()
	table, err := d.Scenario.Show(ctx, in, nil)
	report.Sections = append(report.Sections, table.Parts...)
	if err != nil {
		return err
	}
	for _, part := range []struct {
		title  string
		checks []*scenario.Check
	}{
		{"What EventBridge does to the bytes of an event", d.detailChecks(in)},
		{"Who can publish", []*scenario.Check{d.foreignCheck(), d.deniedCheck(in)}},
		{"The largest entry and the largest webhook", d.sizeChecks()},
		{"A token that the schedule renews", []*scenario.Check{d.tokenCheck()}},
		{"Times", d.timeChecks()},
	} {
		err := d.Progress.Step(part.title, func() error { return d.Run(ctx, part.checks...) })
		report.Sections = append(report.Sections, scenario.Section{Title: part.title, Checks: part.checks})
		if err != nil {
			return err
		}
	}
	return nil
}

// measured returns a check without an expected result.
func measured(what string, do func(context.Context) (string, error)) *scenario.Check {
	return &scenario.Check{What: what, Measured: true, Do: func(ctx context.Context) (string, bool, error) {
		got, err := do(ctx)
		return got, true, err
	}}
}

// send sends a webhook to the endpoint.
func (d *deployed) send(ctx context.Context, w paymenttest.Webhook) (paymenttest.Answer, error) {
	w.URL = d.WebhookURL
	return d.service.Sender().Send(ctx, w)
}

// reachedFunction reports whether the function answered a webhook that it rejects, and not AWS.
func reachedFunction(answer paymenttest.Answer) bool {
	return strings.HasPrefix(answer.Header.Get("Content-Type"), "application/problem+json")
}

// values are values of an event that a program can write in several ways.
var values = []struct{ what, value string }{
	{"the amount", "1234567890.10"}, {"the amount", "1E3"}, {"the amount", "0.00"},
	{"the amount", "123456789012345678"}, {"the amount", "0.123456789012345678"}, {"the amount", "-0"},
	{"the amount", "1e-7"}, {"the amount", "9007199254740993"},
	{"a string of 100,000 characters", `"` + strings.Repeat("x", 100_000) + `"`},
	{"escapes", `"\u00e9\ud83d\ude00\/\"\\\b\f\n\r\t"`},
	{"characters that are not ASCII", `"é😀ß漢"`},
	{"the characters < > &", `"<a href='x'>&amp;</a>"`},
	{"nested nulls", `{"a":null,"b":[null,{"c":null}],"d":{}}`},
	{"spaces between members", `{ "a" : [ 1 , 2 ] }`},
}

// detailChecks compare values with those that arrive behind a rule.
func (d *deployed) detailChecks(in *scenario.Arrivals) []*scenario.Check {
	var checks []*scenario.Check
	for _, v := range values {
		what := v.what
		if what == "the amount" {
			what += " " + v.value
		}
		checks = append(checks, &scenario.Check{What: what, Expected: "the same value", Needs: []scenario.Need{AWS},
			Do: func(ctx context.Context) (string, bool, error) {
				event, id := paymenttest.Event(), uuid.New().String()
				text := paymenttest.Encode(event)
				text = fmt.Appendf(text[:len(text)-1], `,"note":%s}`, v.value)
				answer, err := d.send(ctx, paymenttest.Webhook{Payload: paymenttest.RawDelivery(id, text)})
				if err != nil || answer.Status/100 != 2 {
					return "", false, fmt.Errorf("answered %d %s, %w", answer.Status, answer.Body, err)
				}
				arrived, err := in.AwaitOne(ctx, time.Minute, event.EventID, id)
				if err != nil {
					return "", false, err
				}
				var detail struct{ Note json.RawMessage }
				if err := json.Unmarshal(arrived.Detail, &detail); err != nil {
					return "", false, err
				}
				return describe(v.value, string(detail.Note)), sameValue(v.value, string(detail.Note)), nil
			}})
	}
	return checks
}

// describe states in which form a value arrived.
func describe(sent, arrived string) string {
	if sent == arrived {
		return "the same bytes"
	}
	return "written as " + arrived[:min(len(arrived), 200)]
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
func (d *deployed) foreignCheck() *scenario.Check {
	c := scenario.Exactly("someone else with events:PutEvents publishes on Payhook's bus",
		"denied by the policy of the bus", func(ctx context.Context) (string, error) {
			_, err := d.put(ctx, d.Bus, 100)
			if hasCode(err, "AccessDeniedException", "AccessDenied") {
				return "denied by the policy of the bus", nil
			}
			return "accepted", err
		})
	c.Needs = []scenario.Need{AWS}
	return c
}

// put publishes an entry of a size in bytes on a bus, and reports whether it was accepted.
func (d *deployed) put(ctx context.Context, bus string, size int) (bool, error) {
	const source, kind, start, end = "payhook.acceptance", "SIZE", `{"x":"`, `"}`
	filler := strings.Repeat("x", size-len(source)-len(kind)-len(start)-len(end))
	out, err := eventbridge.NewFromConfig(d.AWS).PutEvents(ctx, &eventbridge.PutEventsInput{
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
func (d *deployed) sizeChecks() []*scenario.Check {
	largest := func(what, contentType string) *scenario.Check {
		c := measured(what, func(ctx context.Context) (string, error) {
			size, err := search(1<<20, 7<<20, func(size int) (bool, error) {
				// Without a signature, it has no effect.
				answer, err := d.send(ctx, paymenttest.Webhook{Payload: bytes.Repeat([]byte(" "), size),
					ContentType: contentType, Flaw: paymenttest.SignatureMissing})
				return reachedFunction(answer), err
			})
			return fmt.Sprint(size), err
		})
		c.Needs = []scenario.Need{scenario.LambdaLimits}
		return c
	}
	return []*scenario.Check{
		scenario.Exactly("an entry of PutEvents of 1,048,575 bytes, and one of 1,048,576 bytes", "true, false",
			func(ctx context.Context) (string, error) {
				below, err := d.put(ctx, d.limitsBus, busLimit-1)
				if err != nil {
					return "", err
				}
				at, err := d.put(ctx, d.limitsBus, busLimit)
				return fmt.Sprintf("%t, %t", below, at), err
			}),
		largest("the largest webhook, in bytes of text, that reaches the function", "application/json"),
		largest("the largest webhook, in bytes, that reaches the function in base64", "application/octet-stream"),
	}
}

// search returns the largest size from low on, below high, that is accepted.
func search(low, high int, accepts func(int) (bool, error)) (int, error) {
	if ok, err := accepts(low); err != nil || !ok {
		return 0, errors.Join(err, fmt.Errorf("%d bytes are not accepted", low))
	}
	for high-low > 1 {
		middle := (low + high) / 2
		ok, err := accepts(middle)
		if err != nil {
			return 0, fmt.Errorf("%d bytes: %w", middle, err)
		}
		if ok {
			low = middle
		} else {
			high = middle
		}
	}
	return low, nil
}

// denyPolicy is the name of the policy with which deniedCheck denies PutEvents to a role.
const denyPolicy = "payhook-acceptance-deny"

func allow(ctx context.Context, identities *iam.Client, role string) error {
	_, err := identities.DeleteRolePolicy(ctx,
		&iam.DeleteRolePolicyInput{RoleName: &role, PolicyName: aws.String(denyPolicy)})
	if hasCode(err, "NoSuchEntity", "NoSuchEntityException") {
		return nil
	}
	return err
}

// deniedCheck denies PutEvents to the functions for a while, and expects every event that is
// accepted meanwhile to arrive later. On AWS, a change of a policy takes effect with a delay
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot.html#troubleshoot_general_eventual-consistency),
// so not every event is denied.
func (d *deployed) deniedCheck(in *scenario.Arrivals) *scenario.Check {
	duration := 2 * time.Minute
	if d.Endpoint != "" {
		duration = 2 * time.Second // the emulator enforces a policy at once
	}
	return &scenario.Check{
		What:     "a policy denies PutEvents to the functions for " + duration.String() + ", while webhooks arrive",
		Expected: "all are accepted, some are pending, all arrive after the policy is removed",
		Do: func(ctx context.Context) (actual string, right bool, err error) {
			identities := iam.NewFromConfig(d.AWS)
			var roles []string
			lift := func() (err error) {
				for _, role := range roles {
					err = errors.Join(err, allow(context.WithoutCancel(ctx), identities, role))
				}
				roles = nil
				return err
			}
			defer func() { err = errors.Join(err, lift()) }()
			for _, name := range []string{"webhook", "redrive"} {
				role, err := d.role(ctx, name)
				if err != nil {
					return "", false, err
				}
				roles = append(roles, role)
				if _, err := identities.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: &role,
					PolicyName: aws.String(denyPolicy), PolicyDocument: aws.String(`{"Version":"2012-10-17",` +
						`"Statement":[{"Effect":"Deny","Action":"events:PutEvents","Resource":"*"}]}`)}); err != nil {
					return "", false, err
				}
			}
			accepted, rejected := map[string]bool{}, 0
			for end := time.Now().Add(duration); time.Now().Before(end); {
				event := paymenttest.Event()
				if answer, err := d.send(ctx, paymenttest.Webhook{Payload: paymenttest.Delivery(event)}); err == nil &&
					answer.Status/100 == 2 {
					accepted[event.EventID] = true
				} else {
					rejected++
				}
				if err := smithytime.SleepWithContext(ctx, 200*time.Millisecond); err != nil {
					return "", false, err
				}
			}
			pending, err := d.pending(ctx)
			if err := errors.Join(err, lift()); err != nil {
				return "", false, err
			}
			missing, err := d.awaitAll(ctx, in, accepted)
			return fmt.Sprintf("%d accepted, %d not; %d pending at the end; %d missing", len(accepted), rejected,
				pending, missing), pending > 0 && len(accepted) > 0 && rejected == 0 && missing == 0, err
		},
	}
}

// role returns the name of a function's role.
func (d *deployed) role(ctx context.Context, name string) (string, error) {
	function := d.Functions[name]
	out, err := lambda.NewFromConfig(d.AWS).GetFunctionConfiguration(ctx,
		&lambda.GetFunctionConfigurationInput{FunctionName: &function})
	if err != nil {
		return "", err
	}
	role := aws.ToString(out.Role)
	return role[strings.LastIndex(role, "/")+1:], nil
}

// pending returns how many events are recorded and not published.
func (d *deployed) pending(ctx context.Context) (int, error) {
	all, err := ledger.NewInspector(dynamodb.NewFromConfig(d.AWS), d.LedgerTable).Backlog(ctx, func(int) {})
	return len(all), err
}

// awaitAll waits until events have arrived behind the rule for released payments, and returns
// how many are missing. On the emulator, which runs no schedule in time, it invokes redrive.
func (d *deployed) awaitAll(ctx context.Context, in *scenario.Arrivals, ids map[string]bool) (missing int, err error) {
	for d.Endpoint != "" {
		if err := d.Invoke(ctx, "redrive", scenario.AsScheduled, &struct{}{}); err != nil {
			return 0, err
		}
		if n, err := d.pending(ctx); n == 0 || err != nil {
			break
		}
		if err := smithytime.SleepWithContext(ctx, 200*time.Millisecond); err != nil {
			return 0, err
		}
	}
	_, err = in.Await(ctx, 15*time.Minute, func(all []scenario.Arrival) bool {
		arrived := map[string]bool{}
		for _, a := range all {
			if a.Rule == scenario.Released && ids[a.EventID] {
				arrived[a.EventID] = true
			}
		}
		missing = len(ids) - len(arrived)
		return missing == 0
	})
	return missing, err
}

// tokenCheck calls the protected API for 15 minutes with tokens that live 4 minutes. The schedule
// alone renews them.
func (d *deployed) tokenCheck() *scenario.Check {
	return &scenario.Check{What: "calls of the protected API for 15 minutes, with tokens that live 4 minutes",
		Expected: "0 calls fail", Needs: []scenario.Need{AWS},
		Do: func(ctx context.Context) (actual string, right bool, err error) {
			if err := d.service.SetTokenLifetime(ctx, 4*time.Minute); err != nil {
				return "", false, err
			}
			defer func() {
				err = errors.Join(err,
					d.service.SetTokenLifetime(context.WithoutCancel(ctx), paymenttest.DefaultTokenLifetime))
			}()
			// The first one must have the short life.
			if _, err := d.RunToken(ctx, scenario.RefreshNow); err != nil {
				return "", false, err
			}
			caller, err := d.NewCaller()
			if err != nil {
				return "", false, err
			}
			tokens := map[string]bool{}
			calls, failed, err := caller.During(ctx, func() error {
				for end := time.Now().Add(15 * time.Minute); time.Now().Before(end); {
					now, err := caller.Reader.TokenContext(ctx)
					if err != nil {
						return err
					}
					tokens[now.AccessToken] = true
					if err := smithytime.SleepWithContext(ctx, time.Second); err != nil {
						return err
					}
				}
				return nil
			})
			return fmt.Sprintf("%d of %d calls failed, %d tokens", failed, calls, len(tokens)),
				failed == 0 && len(tokens) > 1, err
		}}
}

// The queries of times in REPORT lines, which Lambda writes.
const (
	warmQuery = `filter @type = "REPORT" and not ispresent(@initDuration) | stats count(*) as runs, ` +
		`pct(@duration, 50) as p50, pct(@duration, 99) as p99`
	coldQuery = `filter @type = "REPORT" and ispresent(@initDuration) | stats count(*) as runs, ` +
		`pct(@initDuration + @duration, 50) as p50, pct(@initDuration + @duration, 99) as p99`
)

// timeChecks measure runs of the webhook function, and the first runs of all processes.
func (d *deployed) timeChecks() []*scenario.Check {
	var checks []*scenario.Check
	add := func(what string, do func(context.Context) (string, error)) {
		c := measured(what, do)
		c.Needs = []scenario.Need{AWS}
		checks = append(checks, c)
	}
	for _, load := range []struct{ webhooks, events int }{{200, 1}, {20, 100}} {
		add(fmt.Sprintf("%d webhooks of %d events: a run of the webhook function", load.webhooks, load.events),
			func(ctx context.Context) (string, error) {
				start := time.Now()
				for range load.webhooks {
					answer, err := d.send(ctx,
						paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Events(load.events)...)})
					if err != nil || answer.Status/100 != 2 {
						return "", fmt.Errorf("answered %d %s, %w", answer.Status, answer.Body, err)
					}
				}
				return d.times(ctx, "webhook", warmQuery, start, load.webhooks*9/10)
			})
	}
	for _, function := range []string{"webhook", "redrive", "token"} {
		add("start and first run of a process, "+function, func(ctx context.Context) (string, error) {
			return d.times(ctx, function, coldQuery, time.Now().Add(-24*time.Hour), 1)
		})
	}
	return checks
}

// times queries a log group until it has enough runs since start, because logs are late.
func (d *deployed) times(ctx context.Context, function, text string, start time.Time, enough int) (string, error) {
	client, group := cloudwatchlogs.NewFromConfig(d.AWS), d.Logs[function]
	for deadline := time.Now().Add(10 * time.Minute); ; {
		query, err := client.StartQuery(ctx, &cloudwatchlogs.StartQueryInput{LogGroupName: &group, QueryString: &text,
			StartTime: aws.Int64(start.Unix()), EndTime: aws.Int64(time.Now().Unix())})
		if err != nil {
			return "", err
		}
		if err := smithytime.SleepWithContext(ctx, 10*time.Second); err != nil {
			return "", err
		}
		out, err := client.GetQueryResults(ctx, &cloudwatchlogs.GetQueryResultsInput{QueryId: query.QueryId})
		if err != nil {
			return "", err
		}
		line := map[string]string{}
		if out.Status == types.QueryStatusComplete && len(out.Results) == 1 {
			for _, field := range out.Results[0] {
				line[aws.ToString(field.Field)] = aws.ToString(field.Value)
			}
		}
		if runs, _ := strconv.ParseFloat(line["runs"], 64); int(runs) >= enough {
			return fmt.Sprintf("p50 %s ms, p99 %s ms, %s runs", line["p50"], line["p99"], line["runs"]), nil
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("the log does not have %d runs: %v", enough, line)
		}
	}
}
