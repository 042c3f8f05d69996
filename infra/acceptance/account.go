package acceptance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	logtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"payhook.example/infra/local"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/token"
)

// These rows need an account. The code calls the real APIs; it has not run on AWS.

// tokenCheck calls the protected API for 15 minutes, with tokens that live 4 minutes and
// are renewed by the schedule alone.
func (d *deployed) tokenCheck() check {
	const duration, life = 15 * time.Minute, 4 * time.Minute
	return check{
		what:     "calls of the protected API for 15 minutes, with tokens that live 4 minutes",
		expected: "0 calls fail", needs: []local.Need{Long},
		do: func(ctx context.Context) (actual string, right bool, err error) {
			if err := d.service.SetTokenLifetime(ctx, life); err != nil {
				return "", false, err
			}
			defer func() {
				err = errors.Join(err,
					d.service.SetTokenLifetime(context.WithoutCancel(ctx), paymenttest.DefaultTokenLifetime))
			}()
			reader := token.NewReader(secretsmanager.NewFromConfig(d.AWS), d.TokenSecret, token.ReaderOptions{})
			tokens, calls, failed := map[string]bool{}, 0, 0
			for end := time.Now().Add(duration); time.Now().Before(end); {
				now, err := reader.TokenContext(ctx)
				if err != nil {
					return "", false, err
				}
				tokens[now.AccessToken] = true
				r, err := http.NewRequestWithContext(ctx, http.MethodGet,
					d.service.url+paymenttest.ProtectedPath+"payments", nil)
				if err != nil {
					return "", false, err
				}
				now.SetAuthHeader(r)
				r.Header.Set("Content-Type", "application/json")
				calls++
				if resp, err := d.Client.Do(r); err != nil {
					failed++
				} else {
					resp.Body.Close()
					if resp.StatusCode != http.StatusOK {
						failed++
					}
				}
				if err := pause(ctx, time.Second); err != nil {
					return "", false, err
				}
			}
			return fmt.Sprintf("%d of %d calls failed, %d tokens", failed, calls, len(tokens)),
				failed == 0 && len(tokens) > 1, nil
		},
	}
}

// provocation raises an alarm and ends its cause.
type provocation struct {
	alarm      string
	raise, end func(context.Context) error // end may be nil
}

func (d *deployed) provocations() []provocation {
	fault := func(e paymenttest.Endpoint, name paymenttest.FaultName) func(context.Context) error {
		return func(ctx context.Context) error { return d.service.Misbehave(ctx, e, paymenttest.Fault{Name: name}) }
	}
	send := func(ctx context.Context, w paymenttest.Webhook) error {
		_, err := d.send(ctx, w)
		return err
	}
	return []provocation{
		{"unauthenticated", func(ctx context.Context) error {
			for range 12 {
				if err := send(ctx, paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event()),
					Flaw: paymenttest.SignatureChanged}); err != nil {
					return err
				}
			}
			return nil
		}, nil},
		{"parked", func(ctx context.Context) error {
			return send(ctx, paymenttest.Webhook{Payload: paymenttest.RawDelivery(uuid.New().String(), []byte(`{}`))})
		}, nil},
		{"conflicts", func(ctx context.Context) error {
			event := paymenttest.Event()
			first := paymenttest.Delivery(event)
			event.EventData.Amount = "9250.00"
			return errors.Join(send(ctx, paymenttest.Webhook{Payload: first}),
				send(ctx, paymenttest.Webhook{Payload: paymenttest.Delivery(event)}))
		}, nil},
		{"key-unavailable", func(ctx context.Context) error {
			// The new key cannot be fetched.
			if err := errors.Join(fault(paymenttest.Keys, paymenttest.Down)(ctx), d.service.Rotate(ctx)); err != nil {
				return err
			}
			return send(ctx, paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())})
		}, fault(paymenttest.Keys, "")},
		{"token-failed", func(ctx context.Context) error {
			// So that each run has to refresh.
			return errors.Join(fault(paymenttest.Token, paymenttest.Down)(ctx),
				d.service.SetTokenLifetime(ctx, time.Minute))
		}, func(ctx context.Context) error {
			return errors.Join(fault(paymenttest.Token, "")(ctx),
				d.service.SetTokenLifetime(ctx, paymenttest.DefaultTokenLifetime))
		}},
	}
}

// alarmChecks raise alarms on purpose and wait until each is OK again.
func (d *deployed) alarmChecks() []check {
	client := cloudwatch.NewFromConfig(d.AWS)
	state := func(ctx context.Context, alarm string) (cwtypes.StateValue, error) {
		pages := cloudwatch.NewDescribeAlarmsPaginator(client, &cloudwatch.DescribeAlarmsInput{
			AlarmNamePrefix: aws.String(d.Stack + "-" + alarm)})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return "", err
			}
			for _, a := range page.MetricAlarms {
				if aws.ToString(a.AlarmName) == d.Stack+"-"+alarm {
					return a.StateValue, nil
				}
			}
		}
		return "", fmt.Errorf("the stack has no alarm %s", alarm)
	}
	await := func(ctx context.Context, alarm string, want cwtypes.StateValue, timeout time.Duration) error {
		for deadline := time.Now().Add(timeout); ; {
			now, err := state(ctx, alarm)
			if err != nil || now == want {
				return err
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("it is %s, not %s, after %s", now, want, timeout)
			}
			if err := pause(ctx, 10*time.Second); err != nil {
				return err
			}
		}
	}
	var checks []check
	for _, p := range d.provocations() {
		checks = append(checks, check{
			what: "the alarm " + p.alarm, expected: "raised, and OK again", needs: []local.Need{Metrics},
			do: func(ctx context.Context) (string, bool, error) {
				err := p.raise(ctx)
				if err == nil {
					err = await(ctx, p.alarm, cwtypes.StateValueAlarm, 20*time.Minute)
				}
				if p.end != nil {
					err = errors.Join(err, p.end(context.WithoutCancel(ctx)))
				}
				if err != nil {
					return "", false, err
				}
				return "raised, and OK again", true, await(ctx, p.alarm, cwtypes.StateValueOk, time.Hour)
			}})
	}
	return checks
}

// metricChecks state what CloudWatch has measured.
func (d *deployed) metricChecks() []check {
	client := cloudwatch.NewFromConfig(d.AWS)
	var checks []check
	for _, function := range []string{"webhook", "redrive", "token"} {
		checks = append(checks, check{
			what: "durations of the " + function + " function in milliseconds", measured: true,
			needs: []local.Need{Metrics},
			do: func(ctx context.Context) (string, bool, error) {
				text, err := d.durations(ctx, d.Functions[function])
				return text, true, err
			}})
	}
	sums := []struct{ what, namespace, metric, dimension, value string }{
		{"write units of the ledger", "AWS/DynamoDB", "ConsumedWriteCapacityUnits", "TableName", d.LedgerTable},
	}
	for _, function := range []string{"webhook", "redrive", "token"} {
		name, _, _ := strings.Cut(d.Functions[function], ":")
		sums = append(sums, struct{ what, namespace, metric, dimension, value string }{
			"invocations of the " + function + " function", "AWS/Lambda", "Invocations", "FunctionName", name})
	}
	for _, s := range sums {
		checks = append(checks, check{what: s.what, measured: true, needs: []local.Need{Metrics},
			do: func(ctx context.Context) (string, bool, error) {
				out, err := client.GetMetricStatistics(ctx, &cloudwatch.GetMetricStatisticsInput{
					Namespace: &s.namespace, MetricName: &s.metric,
					StartTime: aws.Time(d.run.start), EndTime: aws.Time(time.Now()),
					Period: aws.Int32(3600), Statistics: []cwtypes.Statistic{cwtypes.StatisticSum},
					Dimensions: []cwtypes.Dimension{{Name: &s.dimension, Value: &s.value}}})
				if err != nil {
					return "", false, err
				}
				sum := 0.0
				for _, point := range out.Datapoints {
					sum += aws.ToFloat64(point.Sum)
				}
				return fmt.Sprint(sum), true, nil
			}})
	}
	return checks
}

// durations returns the times of a function's runs from the REPORT lines of its log.
func (d *deployed) durations(ctx context.Context, function string) (string, error) {
	configuration, err := lambda.NewFromConfig(d.AWS).GetFunctionConfiguration(ctx,
		&lambda.GetFunctionConfigurationInput{FunctionName: &function})
	if err != nil {
		return "", err
	}
	logs := cloudwatchlogs.NewFromConfig(d.AWS)
	query, err := logs.StartQuery(ctx, &cloudwatchlogs.StartQueryInput{
		LogGroupName: configuration.LoggingConfig.LogGroup,
		StartTime:    aws.Int64(d.run.start.Unix()), EndTime: aws.Int64(time.Now().Unix()),
		QueryString: aws.String(`filter @type = "REPORT" | stats count(*) as runs, pct(@duration, 50) as p50, ` +
			`pct(@duration, 99) as p99, count(@initDuration) as cold, pct(@initDuration, 50) as initP50, ` +
			`pct(@initDuration, 99) as initP99, max(@maxMemoryUsed / 1048576) as maxMiB`)})
	if err != nil {
		return "", err
	}
	for {
		out, err := logs.GetQueryResults(ctx, &cloudwatchlogs.GetQueryResultsInput{QueryId: query.QueryId})
		if err != nil {
			return "", err
		}
		switch out.Status {
		case logtypes.QueryStatusComplete:
			var fields []string
			for _, line := range out.Results {
				for _, field := range line {
					fields = append(fields, aws.ToString(field.Field)+" "+aws.ToString(field.Value))
				}
			}
			return strings.Join(fields, ", "), nil
		case logtypes.QueryStatusRunning, logtypes.QueryStatusScheduled:
		default:
			return "", fmt.Errorf("the query is %s", out.Status)
		}
		if err := pause(ctx, time.Second); err != nil {
			return "", err
		}
	}
}

// certificateChecks states why client certificates are not shown.
func (d *deployed) certificateChecks() []check {
	return []check{{what: "valid and invalid client certificates", expected: "accepted and rejected",
		needs: []local.Need{MTLS}, do: func(context.Context) (string, bool, error) {
			return "", false, errors.New("not done")
		}}}
}
