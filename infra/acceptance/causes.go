package acceptance

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"golang.org/x/sync/errgroup"

	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// causes are what raises each alarm of the stack, in lanes that do not disturb each other, and
// what comes after all lanes. They need the settings of [afterRedeployment].
func (d *deployed) causes() (lanes [][]cause, last []cause) {
	lanes = [][]cause{d.keyCauses(), d.denialCauses(), d.tokenCauses()}
	if usesMTLS(d.Settings) {
		rejected, expires := d.certificateCauses()
		lanes, last = append(lanes, []cause{rejected}), []cause{expires}
	}
	for _, c := range d.webhookCauses() {
		lanes = append(lanes, []cause{c})
	}
	for _, name := range []string{"webhook", "redrive", "token"} {
		lanes = append(lanes, []cause{{
			what:   "the function is invoked three times with an event that it cannot read",
			alarms: []string{name + "-errors"},
			start: func(ctx context.Context) error {
				for range 3 {
					if err := d.invokeWrongly(ctx, name); err != nil {
						return err
					}
				}
				return nil
			},
		}})
	}
	return lanes, last
}

// certificateCauses are those of client certificates: one that is rejected, and one that expires
// soon. While the second is shown, no other webhooks may be sent, because an alarm watches the
// certificate that was accepted last.
func (d *deployed) certificateCauses() (rejected, expires cause) {
	as := func(ctx context.Context, certificate tls.Certificate) error {
		own := d.Identity.Certificate()
		d.Identity.Use(certificate)
		defer d.Identity.Use(own)
		return d.authentic(ctx)
	}
	unknown := cause{
		what:         "client certificates of an unknown CA",
		alarms:       []string{"certificate-forbidden"},
		undocumented: "raised, if API Gateway logs what it rejects, which AWS does not document",
		start: func(ctx context.Context) error {
			for range d.many() {
				if _, err := d.send(ctx, paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event()),
					Certificate: paymenttest.UnknownCA}); err != nil {
					return err
				}
			}
			return nil
		},
	}
	expiring := cause{
		what:     "webhooks with a client certificate that is valid for 10 days",
		alarms:   []string{"trust-expires"},
		interval: time.Minute,
		again:    func(ctx context.Context) error { return as(ctx, d.Certificates.Expiring) },
		end:      func(ctx context.Context) error { return as(ctx, d.Certificates.Renewed) },
	}
	return unknown, expiring
}

// authentic sends a webhook with a new event, whatever is answered.
func (d *deployed) authentic(ctx context.Context) error {
	_, err := d.send(ctx, paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())})
	return err
}

// many is more than the setting alarmUnauthenticated.
func (d *deployed) many() int {
	n, _ := strconv.Atoi(settingOr(d.Settings, settings.AlarmUnauthenticated))
	return n + 2
}

// webhookCauses are webhooks that raise alarms by themselves.
func (d *deployed) webhookCauses() []cause {
	rejected := "rejected-by-aws"
	if settingOr(d.Settings, settings.DomainName) != "" {
		rejected = "rejected-by-api"
	}
	return []cause{
		{what: "forged webhooks", alarms: []string{"unauthenticated"}, start: func(ctx context.Context) error {
			for range d.many() {
				if _, err := d.send(ctx, paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event()),
					Flaw: paymenttest.SignatureChanged}); err != nil {
					return err
				}
			}
			return nil
		}},
		{what: "an authentic webhook with an event that is not valid", alarms: []string{"parked"},
			start: func(ctx context.Context) error {
				_, err := d.send(ctx, paymenttest.Webhook{
					Payload: paymenttest.RawDelivery(uuid.New().String(), []byte(`{}`))})
				return err
			}},
		{what: "an eventId with two amounts", alarms: []string{"conflicts"}, start: func(ctx context.Context) error {
			event := paymenttest.Event()
			first := paymenttest.Delivery(event)
			event.EventData.Amount = "9250.00"
			for _, payload := range [][]byte{first, paymenttest.Delivery(event)} {
				if _, err := d.send(ctx, paymenttest.Webhook{Payload: payload}); err != nil {
					return err
				}
			}
			return nil
		}},
		{what: "webhooks that are too large for Lambda", alarms: []string{rejected}, interval: time.Minute,
			again: func(ctx context.Context) error {
				_, err := d.send(ctx, paymenttest.Webhook{Payload: bytes.Repeat([]byte(" "), 6<<20)})
				return err
			}},
	}
}

// keyCauses are faults of the service's key endpoint, one after another.
func (d *deployed) keyCauses() []cause {
	fault := func(name paymenttest.FaultName) func(context.Context) error {
		return func(ctx context.Context) error {
			return d.service.Misbehave(ctx, paymenttest.Keys, paymenttest.Fault{Name: name})
		}
	}
	unknown := func(ctx context.Context) error {
		// Each has an id of its own.
		_, err := d.send(ctx, paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event()),
			Flaw: paymenttest.KeyIDChanged})
		return err
	}
	budget, _ := strconv.Atoi(settingOr(d.Settings, settings.KeyMissBudget))
	reserve, _ := strconv.Atoi(settingOr(d.Settings, settings.KeyMissReserve))
	return []cause{
		// A key is withdrawn for good after keyUnknownGrace.
		{what: "the key endpoint answers 404 for the key that webhooks use", alarms: []string{"key-withdrawn"},
			start: fault(paymenttest.NotFound), again: d.authentic, interval: 15 * time.Second,
			end: fault(""), hold: d.unknownGrace() / 2},
		{what: "the key endpoint answers 503, for a known and an unknown key",
			alarms: []string{"key-stale", "key-unavailable"}, start: fault(paymenttest.Down),
			again: func(ctx context.Context) error { return errors.Join(d.authentic(ctx), unknown(ctx)) },
			end:   fault(""), interval: time.Minute},
		// Last, because a key that is not known is not looked up while there is no budget.
		{what: "more webhooks with invented key ids in a minute than the budget allows", alarms: []string{"key-budget"},
			interval: time.Minute,
			again: func(ctx context.Context) error {
				const atOnce = 10
				group, together := errgroup.WithContext(ctx)
				group.SetLimit(atOnce)
				for range budget + reserve + 20 {
					group.Go(func() error { return unknown(together) })
				}
				return group.Wait()
			}},
	}
}

func (d *deployed) unknownGrace() time.Duration {
	grace, _ := settings.ParseDuration(settingOr(d.Settings, settings.KeyUnknownGrace))
	return grace
}

// tokenCauses are faults of the service's token endpoint.
func (d *deployed) tokenCauses() []cause {
	refresh := func(ctx context.Context) error { return d.invoke(ctx, "token", `{"refresh":true}`) }
	short := time.Minute
	if d.run.target.Pass != nil {
		short = 5 * time.Second // a token is refreshed when it has lived a third, by the clock of the function
	}
	normal := func(ctx context.Context) error {
		return errors.Join(d.service.Misbehave(ctx, paymenttest.Token, paymenttest.Fault{}),
			d.service.SetTokenLifetime(ctx, paymenttest.DefaultTokenLifetime))
	}
	return []cause{
		// Three periods of 20 minutes.
		{what: "tokens live 10 minutes, for more than an hour", alarms: []string{"token-quota"},
			start: func(ctx context.Context) error {
				if err := d.service.SetTokenLifetime(ctx, 10*time.Minute); err != nil {
					return err
				}
				return refresh(ctx)
			},
			end:    func(ctx context.Context) error { return errors.Join(normal(ctx), refresh(ctx)) },
			raised: 100 * time.Minute},
		{what: fmt.Sprintf("the token endpoint answers 503, and the stored token lives %s", short),
			alarms: []string{"token-failed", "token-life"},
			start: func(ctx context.Context) error {
				if err := d.service.SetTokenLifetime(ctx, short); err != nil {
					return err
				}
				if err := refresh(ctx); err != nil {
					return err
				}
				return d.service.Misbehave(ctx, paymenttest.Token, paymenttest.Fault{Name: paymenttest.Down})
			}, end: normal},
	}
}

// denialCauses take permissions and concurrency away from the functions, one after another.
func (d *deployed) denialCauses() []cause {
	// denied returns a cause that denies actions to roles, by their logical ids without hash.
	denied := func(c cause, actions []string, logical ...string) cause {
		var roles []string
		c.start = func(ctx context.Context) (err error) {
			if roles, err = d.physical(ctx, "AWS::IAM::Role", logical...); err != nil {
				return err
			}
			return d.deny(ctx, actions, roles...)
		}
		c.end = func(ctx context.Context) error { return d.allow(ctx, roles...) }
		return c
	}
	schedules := denied(cause{what: "the schedules may not invoke the functions, and redrive does not run",
		alarms: []string{"oldest-pending", "redrive-schedule", "token-schedule"}},
		[]string{"lambda:InvokeFunction"}, "RedriveScheduleRole", "TokenScheduleRole")
	allowSchedules := schedules.end
	schedules.end = func(ctx context.Context) error {
		return errors.Join(allowSchedules(ctx), d.purge(ctx, "RedriveScheduleFailures", "TokenScheduleFailures"))
	}
	causes := []cause{
		denied(cause{what: "PutEvents is denied to the functions", again: d.authentic, interval: 30 * time.Second,
			alarms: []string{"left-pending", "redrive-failed", "redrive-parked"}},
			[]string{"events:PutEvents"}, "WebhookRole", "RedriveRole"),
		denied(cause{what: "DynamoDB is denied to the webhook function", again: d.authentic, interval: 15 * time.Second,
			alarms: []string{"not-stored"}}, []string{"dynamodb:*"}, "WebhookRole"),
		schedules,
	}
	for _, name := range []string{"webhook", "redrive", "token"} {
		causes = append(causes, cause{what: "the function has a reserved concurrency of 0, and is invoked",
			alarms: []string{name + "-throttles"}, interval: time.Minute,
			start: func(ctx context.Context) error { return d.stopFunction(ctx, name) },
			again: func(ctx context.Context) error { return d.invokeThrottled(ctx, name) },
			end:   func(ctx context.Context) error { return d.startFunction(ctx, name) }})
	}
	return causes
}

// physical returns the names of the stack's resources of a type whose logical ids have these
// prefixes, one each.
func (d *deployed) physical(ctx context.Context, kind string, logical ...string) ([]string, error) {
	found := map[string]string{}
	pages := cloudformation.NewListStackResourcesPaginator(cloudformation.NewFromConfig(d.AWS),
		&cloudformation.ListStackResourcesInput{StackName: &d.Stack})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range page.StackResourceSummaries {
			if aws.ToString(r.ResourceType) == kind {
				found[aws.ToString(r.LogicalResourceId)] = aws.ToString(r.PhysicalResourceId)
			}
		}
	}
	const hash = 8 // characters, which the CDK appends
	var list []string
	for _, prefix := range logical {
		before := len(list)
		for id, name := range found {
			if len(id) == len(prefix)+hash && strings.HasPrefix(id, prefix) {
				list = append(list, name)
			}
		}
		if len(list) != before+1 {
			return nil, fmt.Errorf("the stack has %d resources %s %s", len(list)-before, kind, prefix)
		}
	}
	return list, nil
}

// purge removes the messages of queues, by their logical ids without hash.
func (d *deployed) purge(ctx context.Context, logical ...string) error {
	queues, err := d.physical(ctx, "AWS::SQS::Queue", logical...)
	if err != nil {
		return err
	}
	for _, queue := range queues {
		if _, err := sqs.NewFromConfig(d.AWS).PurgeQueue(ctx, &sqs.PurgeQueueInput{QueueUrl: &queue}); err != nil {
			return err
		}
	}
	return nil
}

// functionName returns the name of a function without its alias.
func (d *deployed) functionName(name string) string {
	text := d.Functions[name]
	if before, _, arn := strings.Cut(text, ":function:"); arn {
		text = text[len(before)+len(":function:"):]
	}
	text, _, _ = strings.Cut(text, ":")
	return text
}

// invoke invokes a function, which must not fail.
func (d *deployed) invoke(ctx context.Context, name, event string) error {
	function := d.Functions[name]
	out, err := lambda.NewFromConfig(d.AWS).Invoke(ctx, &lambda.InvokeInput{FunctionName: &function,
		Payload: []byte(event)})
	if err == nil && out.FunctionError != nil {
		err = fmt.Errorf("the %s function failed: %s", name, out.Payload)
	}
	return err
}

// invokeWrongly invokes a function with an event that it cannot read. It must fail.
func (d *deployed) invokeWrongly(ctx context.Context, name string) error {
	function := d.Functions[name]
	out, err := lambda.NewFromConfig(d.AWS).Invoke(ctx, &lambda.InvokeInput{FunctionName: &function,
		Payload: []byte(`"not an event"`)})
	if err == nil && out.FunctionError == nil {
		err = fmt.Errorf("the %s function did not fail: %s", name, out.Payload)
	}
	return err
}

// stopFunction reserves no concurrency for a function, so that Lambda runs it no more. Lambda
// does not count an asynchronous event of such a function as throttled: it discards it (AWS, "How
// Lambda handles errors and retries with asynchronous invocation":
// https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html).
func (d *deployed) stopFunction(ctx context.Context, name string) error {
	_, err := lambda.NewFromConfig(d.AWS).PutFunctionConcurrency(ctx, &lambda.PutFunctionConcurrencyInput{
		FunctionName: aws.String(d.functionName(name)), ReservedConcurrentExecutions: aws.Int32(0)})
	return err
}

// startFunction ends stopFunction: the function has the concurrency of the settings again.
func (d *deployed) startFunction(ctx context.Context, name string) error {
	function, reserved := aws.String(d.functionName(name)), 0
	switch name {
	case "webhook":
		reserved, _ = strconv.Atoi(settingOr(d.Settings, settings.WebhookConcurrency))
	case "redrive":
		reserved, _ = strconv.Atoi(settingOr(d.Settings, settings.RedriveConcurrency))
	}
	client := lambda.NewFromConfig(d.AWS)
	if reserved > 0 {
		_, err := client.PutFunctionConcurrency(ctx, &lambda.PutFunctionConcurrencyInput{FunctionName: function,
			ReservedConcurrentExecutions: aws.Int32(int32(reserved))})
		return err
	}
	_, err := client.DeleteFunctionConcurrency(ctx, &lambda.DeleteFunctionConcurrencyInput{FunctionName: function})
	return err
}

// invokeThrottled invokes a function three times that has no concurrency. That it runs is no
// error: the change takes a moment.
func (d *deployed) invokeThrottled(ctx context.Context, name string) error {
	function, event := d.Functions[name], "{}"
	if name == "webhook" {
		event = `{"version":"2.0","requestContext":{"http":{"method":"GET"}}}`
	}
	client := lambda.NewFromConfig(d.AWS, func(o *lambda.Options) { o.RetryMaxAttempts = 1 })
	for range 3 {
		_, err := client.Invoke(ctx, &lambda.InvokeInput{FunctionName: &function, Payload: []byte(event)})
		if status, ok := httpStatus(err); err != nil && (!ok || status != http.StatusTooManyRequests) {
			return err
		}
	}
	return nil
}
