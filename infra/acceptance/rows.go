package acceptance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	ebtypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/smithy-go"
	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/infra/local"
	"payhook.example/shared/ledger"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// The needs of rows, beside those of the table.
const (
	// EventBridge means that events pass through EventBridge itself, which can write
	// numbers in another way.
	EventBridge local.Need = "EventBridge itself"
	// BusLimits means that the bus rejects an entry that is too large.
	BusLimits local.Need = "EventBridge's limits of size"
	// BusPolicies means that the policy of a bus is enforced.
	BusPolicies local.Need = "policies of buses"
	// Metrics means that CloudWatch has metrics, and evaluates alarms on them in time.
	Metrics local.Need = "CloudWatch"
	// Times means that there are Lambda's times and DynamoDB's metrics.
	Times local.Need = "Lambda's times and DynamoDB's metrics"
	// Long means that rows that take many minutes are shown.
	Long local.Need = "many minutes"
	// MTLS means that the endpoint has a domain name and requires client certificates.
	MTLS local.Need = "a domain name with client certificates"
)

// emulatorLacks is what MiniStack is not.
var emulatorLacks = map[local.Need]string{
	EventBridge: "the emulator has its own implementation of rules, which writes numbers in its own way",
	BusPolicies: "the emulator does not enforce policies of buses",
	Long:        "it takes 15 minutes; the table shows it with a token of 5 seconds, renewed by invocations",
	Metrics:     "time cannot be made to pass for the CloudWatch of this emulator: use --local",
	Times: "the emulator has no metrics of DynamoDB, and the times of its functions are those of processes on this " +
		"machine: make bench measures them",
	MTLS: "the emulator serves no domain names; make run shows client certificates with an endpoint of its own",
}

// check is one row with what shows it.
type check struct {
	what, expected string
	needs          []local.Need
	// measured means that there is no expected value.
	measured bool
	bench    string // what infra/bench measured of the same; "" for nothing
	do       func(context.Context) (actual string, right bool, err error)
}

// section is a part of the report with what shows it.
type section struct {
	title string
	show  func(context.Context) ([]Row, error)
}

// sections are all parts, in the order in which they are shown.
func (d *deployed) sections() []section {
	var in *local.Arrivals
	return []section{
		{"Webhooks, events and tokens", func(ctx context.Context) ([]Row, error) {
			// The table has receivers of its own. One that has ended can take an event with it.
			parts, err := d.Show(ctx)
			in = d.Receive()
			var rows []Row
			for _, p := range parts {
				rows = append(append(rows, rowsOf(p.Webhooks)...), rowsOf(p.Checks)...)
			}
			return rows, err
		}},
		d.checks("What EventBridge does to the bytes of an event", func() []check { return d.detailChecks(in) }),
		d.checks("Numeric patterns of EventBridge", d.patternChecks),
		d.checks("Who can publish", func() []check { return []check{d.foreignCheck(), d.deniedCheck(in)} }),
		d.checks("A deployment under load", func() []check { return []check{d.deploymentCheck(in)} }),
		d.checks("An event that redrive gave up on", func() []check { return []check{d.givenUpCheck(in)} }),
		// Before others raise the alarms with an hour of data.
		{"Alarms", d.showAlarms},
		d.checks("The largest event and the largest webhook", func() []check { return d.sizeChecks(in) }),
		d.checks("A short-lived token", func() []check { return []check{d.tokenCheck()} }),
		d.checks("Times, requests and write units", d.timeChecks),
		{"Dashboard", d.showDashboard},
		d.checks("The client certificate behind API Gateway", func() []check {
			defer in.Stop() // the last one
			return d.certificateChecks()
		}),
	}
}

// checks is a section of checks.
func (d *deployed) checks(title string, all func() []check) section {
	return section{title, func(ctx context.Context) ([]Row, error) {
		var rows []Row
		for _, c := range all() {
			rows = append(rows, c.show(ctx, d.Lacks))
			if ctx.Err() != nil {
				return rows, ctx.Err()
			}
		}
		return rows, nil
	}}
}

// show returns the row, with what came of it.
func (c check) show(ctx context.Context, lacks map[local.Need]string) Row {
	row := Row{What: c.what, Expected: c.expected, Status: NotShown, Bench: c.bench}
	for _, need := range c.needs {
		if row.Reason = lacks[need]; row.Reason != "" {
			row.Actual = "not shown"
			return row
		}
	}
	actual, right, err := c.do(ctx)
	row.Actual, row.Status = actual, Wrong
	switch {
	case err != nil:
		row.Actual = strings.TrimPrefix(actual+", "+err.Error(), ", ")
	case c.measured:
		row.Status = Measured
	case right:
		row.Status = Passed
	}
	return row
}

// send sends a signed payload, and returns the answer's status.
func (d *deployed) send(ctx context.Context, w paymenttest.Webhook) (paymenttest.Answer, error) {
	w.URL = d.WebhookURL
	return d.service.Sender().Send(ctx, w)
}

// arrives sends an event, and returns its detail as it arrived behind the rule for released
// payments.
func (d *deployed) arrives(ctx context.Context, in *local.Arrivals, event []byte) ([]byte, error) {
	id := uuid.New().String()
	answer, err := d.send(ctx, paymenttest.Webhook{Payload: paymenttest.RawDelivery(id, event)})
	if err != nil {
		return nil, err
	}
	if answer.Status/100 != 2 {
		return nil, fmt.Errorf("answered %d %s", answer.Status, answer.Body)
	}
	var detail []byte
	_, err = in.Await(ctx, arrivalTimeout, func(all []local.Arrived) bool {
		for _, a := range all {
			if a.Rule == released && a.DeliveryID == id {
				detail = a.Detail
			}
		}
		return detail != nil
	})
	return detail, err
}

const (
	released       = "released" // a rule of the consumer
	arrivalTimeout = time.Minute
)

// withMember returns an event with a further member of its data, or with another amount.
func withMember(name, value string) []byte {
	event := paymenttest.Encode(paymenttest.Event())
	if name == "amount" {
		return bytes.Replace(event, []byte(`"amount":1250.00`), []byte(`"amount":`+value), 1)
	}
	return fmt.Appendf(event[:len(event)-1], `,%q:%s}`, name, value)
}

// amounts are amounts that a program can write in several ways.
var amounts = []string{"1234567890.10", "1E3", "0.00", "123456789012345678", "0.123456789012345678", "-0", "1e-7",
	"9007199254740993"}

// texts are values other than numbers.
var texts = []struct{ what, value string }{
	{"a string of 100,000 characters", `"` + strings.Repeat("x", 100_000) + `"`},
	{"escapes", `"\u00e9\ud83d\ude00\/\"\\\b\f\n\r\t"`},
	{"characters that are not ASCII", `"é😀ß漢"`},
	{"the characters < > &", `"<a href='x'>&amp;</a>"`},
	{"nested nulls", `{"a":null,"b":[null,{"c":null}],"d":{}}`},
	{"spaces between members", `{ "a" : [ 1 , 2 ] }`},
}

// detailChecks state what EventBridge does to values on their way through a rule.
func (d *deployed) detailChecks(in *local.Arrivals) []check {
	var checks []check
	for _, amount := range amounts {
		checks = append(checks, check{
			what: "the amount " + amount, expected: "the same value", needs: []local.Need{EventBridge},
			do: func(ctx context.Context) (string, bool, error) {
				detail, err := d.arrives(ctx, in, withMember("amount", amount))
				if err != nil {
					return "", false, err
				}
				var got struct {
					EventData struct{ Amount json.RawMessage }
				}
				if err := json.Unmarshal(detail, &got); err != nil {
					return "", false, err
				}
				arrived := string(got.EventData.Amount)
				return describe(amount, arrived), sameNumber(amount, arrived), nil
			}})
	}
	for _, text := range texts {
		checks = append(checks, check{
			what: text.what, expected: "the same value", needs: []local.Need{EventBridge},
			do: func(ctx context.Context) (string, bool, error) {
				detail, err := d.arrives(ctx, in, withMember("note", text.value))
				if err != nil {
					return "", false, err
				}
				var got struct{ Note json.RawMessage }
				if err := json.Unmarshal(detail, &got); err != nil {
					return "", false, err
				}
				return describe(text.value, string(got.Note)), sameJSON(text.value, string(got.Note)), nil
			}})
	}
	return checks
}

// describe states in which form a value arrived.
func describe(sent, arrived string) string {
	if sent == arrived {
		return "the same bytes"
	}
	const limit = 200
	if len(arrived) > limit {
		arrived = arrived[:limit] + "…"
	}
	return "written as " + arrived
}

func sameNumber(a, b string) bool {
	x, okX := new(big.Rat).SetString(a)
	y, okY := new(big.Rat).SetString(b)
	return okX && okY && x.Cmp(y) == 0
}

func sameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	textX, _ := json.Marshal(x)
	textY, _ := json.Marshal(y)
	return bytes.Equal(textX, textY)
}

// patternChecks ask EventBridge whether amounts match numeric patterns. Its documentation
// states values from -5.0e9 to 5.0e9 and 15 digits of precision, with six digits to the
// right of the decimal point (https://docs.aws.amazon.com/eventbridge/latest/userguide/
// eb-create-pattern-operators.html#eb-filtering-numeric-matching).
func (d *deployed) patternChecks() []check {
	rules := eventbridge.NewFromConfig(d.AWS)
	test := func(ctx context.Context, condition, amount string) (string, error) {
		event := fmt.Sprintf(`{"id":"1","account":%q,"source":"x","time":"2026-01-01T00:00:00Z","region":%q,`+
			`"resources":[],"detail-type":"x","detail":{"amount":%s}}`, d.run.target.Account, d.AWS.Region, amount)
		out, err := rules.TestEventPattern(ctx, &eventbridge.TestEventPatternInput{Event: &event,
			EventPattern: aws.String(`{"detail":{"amount":[{"numeric":` + condition + `}]}}`)})
		if err != nil {
			return "", err
		}
		return map[bool]string{true: "matches", false: "does not match"}[out.Result], nil
	}
	var checks []check
	for _, c := range []struct{ condition, amount, expected string }{
		{`[">=",1000000]`, "1000000.00", "matches"},
		{`[">=",1000000]`, "999999.99", "does not match"},
		{`["=",5000000000]`, "5000000000", "matches"},
		{`[">",0]`, "5000000000.01", ""},
		{`[">",0]`, "123456789012345678", ""},
		{`["=",0.1]`, "0.10", "matches"},
		{`["=",0.1]`, "1E-1", "matches"},
		{`["=",0]`, "-0", ""},
		{`["=",123456789.123456]`, "123456789.123456", "matches"},
		{`["=",123456789.123456]`, "123456789.1234561", ""},
	} {
		checks = append(checks, check{
			what:     "numeric " + c.condition + " for the amount " + c.amount,
			expected: c.expected, measured: c.expected == "", needs: []local.Need{EventBridge},
			do: func(ctx context.Context) (string, bool, error) {
				got, err := test(ctx, c.condition, c.amount)
				return got, got == c.expected, err
			}})
	}
	return checks
}

// busLimit is the size of the smallest entry that EventBridge rejects (AWS, "Amazon
// EventBridge event size": https://docs.aws.amazon.com/eventbridge/latest/userguide/
// eb-putevents.html#eb-event-size).
const busLimit = 1 << 20

// sizeChecks look for the limits of size, at the bus and at the endpoint.
func (d *deployed) sizeChecks(in *local.Arrivals) []check {
	client := eventbridge.NewFromConfig(d.AWS)
	// Payhook's own bus accepts entries of its functions only.
	bus := strings.ToLower(d.Stack) + "-limits"
	put := func(ctx context.Context, size int) (bool, error) {
		const source, kind, start, end = "payhook.acceptance", "SIZE", `{"x":"`, `"}`
		filler := strings.Repeat("x", size-len(source)-len(kind)-len(start)-len(end))
		out, err := client.PutEvents(ctx, &eventbridge.PutEventsInput{Entries: []ebtypes.PutEventsRequestEntry{{
			EventBusName: &bus, Source: aws.String(source), DetailType: aws.String(kind),
			Detail: aws.String(start + filler + end)}}})
		if err != nil {
			api, ok := errors.AsType[smithy.APIError](err)
			if ok && (api.ErrorCode() == "ValidationException" || api.ErrorCode() == "RequestEntityTooLargeException") {
				return false, nil
			}
			return false, err
		}
		return out.FailedEntryCount == 0, nil
	}
	post := func(contentType string) func(context.Context, int) (bool, error) {
		return func(ctx context.Context, size int) (bool, error) {
			// Without a signature, the function answers 401 to what reaches it, or 413 as
			// problem+json; what is too large for Lambda is answered by AWS.
			answer, err := d.send(ctx, paymenttest.Webhook{Payload: bytes.Repeat([]byte(" "), size),
				ContentType: contentType, Flaw: paymenttest.SignatureMissing})
			return strings.HasPrefix(answer.Header.Get("Content-Type"), "application/problem+json"), err
		}
	}
	largest := func(contentType string) func(context.Context) (string, bool, error) {
		return func(ctx context.Context) (string, bool, error) {
			size, err := search(ctx, 1<<20, 7<<20, post(contentType))
			return fmt.Sprint(size), true, err
		}
	}
	return []check{
		{what: "an entry of PutEvents of 1,048,575 bytes, and one of 1,048,576 bytes", needs: []local.Need{BusLimits},
			expected: "accepted, rejected", do: func(ctx context.Context) (actual string, right bool, err error) {
				if _, err := client.CreateEventBus(ctx, &eventbridge.CreateEventBusInput{Name: &bus,
					Tags: []ebtypes.Tag{{Key: aws.String(RunTag), Value: &d.run.ID}}}); err != nil {
					return "", false, err
				}
				defer func() {
					_, failed := client.DeleteEventBus(context.WithoutCancel(ctx),
						&eventbridge.DeleteEventBusInput{Name: &bus})
					err = errors.Join(err, failed)
				}()
				last, err := put(ctx, busLimit-1)
				if err != nil {
					return "", false, err
				}
				first, err := put(ctx, busLimit)
				words := map[bool]string{true: "accepted", false: "rejected"}
				return words[last] + ", " + words[first], last && !first, err
			}},
		{what: "the largest webhook, in bytes of text, that reaches the function",
			needs: []local.Need{local.LambdaLimits}, measured: true, do: largest("application/json")},
		{what: "the largest webhook, in bytes, that reaches the function in base64",
			needs: []local.Need{local.LambdaLimits}, measured: true, do: largest("application/octet-stream")},
		{what: "an event of 900,000 bytes", expected: "arrives", do: func(ctx context.Context) (string, bool, error) {
			detail, err := d.arrives(ctx, in, withMember("note", `"`+strings.Repeat("x", 900_000)+`"`))
			if err != nil {
				return "", false, err
			}
			form := "as a reference"
			if len(detail) > 900_000 {
				form = "whole"
			}
			return fmt.Sprintf("arrives, %s: a detail of %d bytes", form, len(detail)), true, nil
		}},
	}
}

// search returns the largest size from low on, below high, that is accepted.
func search(ctx context.Context, low, high int, accepts func(context.Context, int) (bool, error)) (int, error) {
	if ok, err := accepts(ctx, low); err != nil || !ok {
		return 0, errors.Join(err, fmt.Errorf("%d bytes are not accepted", low))
	}
	for high-low > 1 {
		middle := (low + high) / 2
		ok, err := accepts(ctx, middle)
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

// denyPolicy is the name of the inline policies of deny.
const denyPolicy = "payhook-acceptance-deny"

// deny denies actions to roles, by a policy of each. If that fails, it has denied nothing.
func (d *deployed) deny(ctx context.Context, actions []string, roles ...string) error {
	document, err := json.Marshal(map[string]any{"Version": "2012-10-17",
		"Statement": []any{map[string]any{"Effect": "Deny", "Action": actions, "Resource": "*"}}})
	if err != nil {
		return err
	}
	for _, role := range roles {
		if _, err := iam.NewFromConfig(d.AWS).PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: &role,
			PolicyName: aws.String(denyPolicy), PolicyDocument: aws.String(string(document))}); err != nil {
			return errors.Join(err, d.allow(ctx, roles...))
		}
	}
	return nil
}

// allow ends what deny has denied to roles, also after the end of ctx.
func (d *deployed) allow(ctx context.Context, roles ...string) (err error) {
	for _, role := range roles {
		err = errors.Join(err, allow(context.WithoutCancel(ctx), iam.NewFromConfig(d.AWS), role))
	}
	return err
}

func allow(ctx context.Context, identities *iam.Client, role string) error {
	_, err := identities.DeleteRolePolicy(ctx,
		&iam.DeleteRolePolicyInput{RoleName: &role, PolicyName: aws.String(denyPolicy)})
	if noSuchEntity(err) {
		return nil
	}
	return err
}

// foreignCheck publishes to Payhook's bus as somebody else, who has the permission.
func (d *deployed) foreignCheck() check {
	return check{
		what:     "somebody with events:PutEvents publishes to Payhook's bus",
		expected: "denied by the policy of the bus", needs: []local.Need{BusPolicies},
		do: func(ctx context.Context) (string, bool, error) {
			_, err := eventbridge.NewFromConfig(d.AWS).PutEvents(ctx, &eventbridge.PutEventsInput{
				Entries: []ebtypes.PutEventsRequestEntry{{EventBusName: &d.Bus,
					Source: aws.String("payhook.acceptance"), DetailType: aws.String("FOREIGN"),
					Detail: aws.String("{}")}}})
			api, ok := errors.AsType[smithy.APIError](err)
			if ok && strings.HasPrefix(api.ErrorCode(), "AccessDenied") {
				return "denied by the policy of the bus", true, nil
			}
			return "accepted", false, err
		},
	}
}

// deniedCheck denies the functions' roles to publish for a while, and expects every event
// that was accepted meanwhile to arrive after that. On AWS, a change of a policy takes
// effect with a delay (https://docs.aws.amazon.com/IAM/latest/UserGuide/
// troubleshoot.html#troubleshoot_general_eventual-consistency), so not every event is denied.
func (d *deployed) deniedCheck(in *local.Arrivals) check {
	duration := 2 * time.Minute
	if d.run.target.emulated() {
		duration = 5 * time.Second // it enforces a policy at once
	}
	return check{
		what:     "a policy denies PutEvents to the functions for " + duration.String() + ", while webhooks arrive",
		expected: "all webhooks are accepted, some events are pending, all arrive after the policy is removed",
		do: func(ctx context.Context) (actual string, right bool, err error) {
			roles, err := d.publishers(ctx)
			if err != nil {
				return "", false, err
			}
			if err := d.deny(ctx, []string{"events:PutEvents"}, roles...); err != nil {
				return "", false, err
			}
			sent := d.load(ctx, duration, 200*time.Millisecond)
			pending, errPending := d.pending(ctx)
			if err := errors.Join(errPending, d.allow(ctx, roles...), ctx.Err()); err != nil {
				return "", false, err
			}
			once, err := d.arriveOnce(ctx, in, sent.accepted, d.run.target.emulated())
			return fmt.Sprintf("%d accepted, %d not; %d pending at the end; %s", len(sent.accepted), sent.rejected,
				pending, once), err == nil && pending > 0 && len(sent.accepted) > 0 && sent.rejected == 0, err
		},
	}
}

func noSuchEntity(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return err == nil || ok && strings.HasPrefix(api.ErrorCode(), "NoSuchEntity")
}

// publishers are the names of the roles of the functions that publish.
func (d *deployed) publishers(ctx context.Context) ([]string, error) {
	functions := lambda.NewFromConfig(d.AWS)
	var roles []string
	for _, name := range []string{"webhook", "redrive"} {
		function := d.Functions[name]
		out, err := functions.GetFunctionConfiguration(ctx,
			&lambda.GetFunctionConfigurationInput{FunctionName: &function})
		if err != nil {
			return nil, err
		}
		role := aws.ToString(out.Role)
		roles = append(roles, role[strings.LastIndex(role, "/")+1:])
	}
	return roles, nil
}

// pending returns how many events are recorded and not published.
func (d *deployed) pending(ctx context.Context) (int, error) {
	all, err := ledger.NewInspector(dynamodb.NewFromConfig(d.AWS), d.LedgerTable).Backlog(ctx, func(int) {})
	return len(all), err
}

// traffic is what was sent, and how it was answered.
type traffic struct {
	accepted []string // ids of the events
	rejected int
	problem  string // the first
}

// load sends one event after another for a while.
func (d *deployed) load(ctx context.Context, duration, interval time.Duration) traffic {
	var all traffic
	for end := time.Now().Add(duration); time.Now().Before(end) && ctx.Err() == nil; {
		d.sendOne(ctx, &all)
		if smithytime.SleepWithContext(ctx, interval) != nil {
			break
		}
	}
	return all
}

func (d *deployed) sendOne(ctx context.Context, all *traffic) {
	event := paymenttest.Event()
	answer, err := d.send(ctx, paymenttest.Webhook{Payload: paymenttest.Delivery(event)})
	switch {
	case err == nil && answer.Status/100 == 2:
		all.accepted = append(all.accepted, event.EventID)
	case ctx.Err() == nil:
		all.rejected++
		if all.problem == "" {
			all.problem = fmt.Sprintf("%d %s %v", answer.Status, answer.Body, err)
		}
	}
}

// arriveOnce waits until every event has arrived behind the rule for released payments,
// and states whether one arrived twice. invoke runs redrive, where no schedule does.
func (d *deployed) arriveOnce(ctx context.Context, in *local.Arrivals, ids []string, invoke bool) (string, error) {
	if invoke {
		function := d.Functions["redrive"]
		functions := lambda.NewFromConfig(d.AWS)
		for deadline := time.Now().Add(2 * time.Minute); ; {
			if _, err := functions.Invoke(ctx, &lambda.InvokeInput{FunctionName: &function,
				Payload: []byte("{}")}); err != nil {
				return "", err
			}
			n, err := d.pending(ctx)
			if err != nil {
				return "", err
			}
			if n == 0 || time.Now().After(deadline) {
				break
			}
			if err := smithytime.SleepWithContext(ctx, time.Second); err != nil {
				return "", err
			}
		}
	}
	times := map[string]int{}
	_, err := in.Await(ctx, 15*time.Minute, func(all []local.Arrived) bool {
		clear(times)
		for _, a := range all {
			if a.Rule == released {
				times[a.EventID]++
			}
		}
		for _, id := range ids {
			if times[id] == 0 {
				return false
			}
		}
		return true
	})
	missing, twice := 0, 0
	for _, id := range ids {
		switch n := times[id]; {
		case n == 0:
			missing++
		case n > 1:
			twice++
		}
	}
	// EventBridge delivers at least once, so an event can arrive twice without a fault of
	// Payhook.
	text := fmt.Sprintf("%d arrived, %d missing, %d twice", len(ids)-missing, missing, twice)
	if err == nil && missing > 0 {
		err = errors.New("events are missing")
	}
	return text, err
}

// afterRedeployment are the settings that the second deployment changes. With these, redrive
// gives up on an event after one attempt, and a key is fetched again after a minute: what
// follows would take hours otherwise.
var afterRedeployment = map[string]string{
	settings.WebhookMemory.Key: "640", settings.RedriveAttempts.Key: "1", settings.KeyFreshness.Key: "1m",
}

// deploymentCheck deploys Payhook again while webhooks arrive.
func (d *deployed) deploymentCheck(in *local.Arrivals) check {
	return check{
		what: "Payhook is deployed again with webhookMemory=640, redriveAttempts=1 and keyFreshness=1m, while " +
			"webhooks arrive",
		expected: "every webhook is accepted, every event arrives",
		do: func(ctx context.Context) (string, bool, error) {
			done, stop := context.WithCancel(ctx)
			var (
				sending sync.WaitGroup
				sent    traffic
			)
			sending.Go(func() {
				for done.Err() == nil {
					// A webhook that was sent is waited for.
					d.sendOne(ctx, &sent)
				}
			})
			err := d.redeploy(ctx, afterRedeployment)
			stop()
			sending.Wait()
			if err != nil {
				return "", false, err
			}
			once, err := d.arriveOnce(ctx, in, sent.accepted, d.run.target.emulated())
			return strings.TrimSpace(fmt.Sprintf("%d accepted, %d not; %s %s", len(sent.accepted), sent.rejected, once,
				sent.problem)), sent.rejected == 0 && len(sent.accepted) > 0, err
		},
	}
}

// givenUpCheck denies PutEvents until redrive parks an event, allows it again, and replays the
// event. It needs the settings of [afterRedeployment].
func (d *deployed) givenUpCheck(in *local.Arrivals) check {
	return check{
		what:     "PutEvents is denied until redrive parks an accepted event; it is replayed after that",
		expected: "parked: unpublishable; replayed: accepted; arrives",
		do: func(ctx context.Context) (actual string, right bool, err error) {
			roles, err := d.publishers(ctx)
			if err != nil {
				return "", false, err
			}
			if err := d.deny(ctx, []string{"events:PutEvents"}, roles...); err != nil {
				return "", false, err
			}
			allowed := false
			defer func() {
				if !allowed {
					err = errors.Join(err, d.allow(ctx, roles...))
				}
			}()
			id, err := d.sendUntil(ctx, func(pending bool) bool { return pending })
			if err != nil {
				return "", false, err
			}
			name, reason, err := d.awaitParked(ctx, id)
			if err != nil {
				return "", false, err
			}
			allowed = true
			if err := d.allow(ctx, roles...); err != nil {
				return "", false, err
			}
			if _, err := d.sendUntil(ctx, func(pending bool) bool { return !pending }); err != nil {
				return "", false, err
			}
			if !d.run.target.emulated() {
				// The two roles do not change at the same moment.
				if err := smithytime.SleepWithContext(ctx, time.Minute); err != nil {
					return "", false, err
				}
			}
			outcome, err := d.Replay(ctx, name)
			if err != nil {
				return "", false, err
			}
			actual = fmt.Sprintf("parked: %s; replayed: %s", reason, outcome)
			if _, err := in.Await(ctx, 5*time.Minute, func(all []local.Arrived) bool {
				return slices.ContainsFunc(all, func(a local.Arrived) bool { return a.EventID == id })
			}); err != nil {
				return actual, false, err
			}
			return actual + "; arrives", reason == "unpublishable" && outcome == "accepted", nil
		},
	}
}

// sendUntil sends new events until one that is accepted is pending, or is not, as enough says,
// and returns its id. A change of a policy takes a while to take effect.
func (d *deployed) sendUntil(ctx context.Context, enough func(pending bool) bool) (eventID string, err error) {
	for deadline := time.Now().Add(5 * time.Minute); ; {
		event := paymenttest.Event()
		answer, err := d.send(ctx, paymenttest.Webhook{Payload: paymenttest.Delivery(event)})
		if err != nil {
			return "", err
		}
		if answer.Status/100 != 2 {
			return "", fmt.Errorf("answered %d %s", answer.Status, answer.Body)
		}
		pending, err := ledger.NewInspector(dynamodb.NewFromConfig(d.AWS), d.LedgerTable).Backlog(ctx, func(int) {})
		if err != nil {
			return "", err
		}
		if enough(slices.ContainsFunc(pending, func(p ledger.Pending) bool { return p.EventID == event.EventID })) {
			return event.EventID, nil
		}
		if time.Now().After(deadline) {
			return "", errTooLate
		}
		if err := smithytime.SleepWithContext(ctx, 2*time.Second); err != nil {
			return "", err
		}
	}
}

// awaitParked waits until redrive has parked an event, and returns its name and reason.
func (d *deployed) awaitParked(ctx context.Context, eventID string) (name, reason string, err error) {
	for deadline := time.Now().Add(10 * time.Minute); ; {
		if d.run.target.emulated() { // no schedule runs redrive
			if err := d.invoke(ctx, "redrive", "{}"); err != nil {
				return "", "", err
			}
		}
		name, reason, err = d.ParkedEvent(ctx, eventID)
		if err == nil || time.Now().After(deadline) {
			return name, reason, err
		}
		if err := smithytime.SleepWithContext(ctx, time.Second); err != nil {
			return "", "", err
		}
	}
}
