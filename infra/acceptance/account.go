package acceptance

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	logtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"payhook.example/infra/local"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/keys"
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

// certificateChecks look at the client certificate that the function got from API Gateway. The
// table has the others.
func (d *deployed) certificateChecks() []check {
	return []check{{what: "client certificates: the table above has the valid and the invalid ones; the one that the " +
		"function accepted last", expected: "one that was presented", needs: []local.Need{MTLS},
		do: func(ctx context.Context) (string, bool, error) {
			if err := d.authentic(ctx); err != nil {
				return "", false, err
			}
			// A process of the function writes each certificate once a day.
			presented := []tls.Certificate{d.Identity.Certificate(), d.Certificates.Next, d.Certificates.Expiring,
				d.Certificates.Renewed}
			last, err := keys.LastCertificate(ctx, dynamodb.NewFromConfig(d.AWS), d.KeysTable)
			if err != nil {
				return "", false, err
			}
			if last == nil {
				return "none", false, nil
			}
			return "fingerprint " + last.Fingerprint, slices.ContainsFunc(presented, func(c tls.Certificate) bool {
				return clientcert.Fingerprint(c.Leaf) == last.Fingerprint
			}), nil
		}}}
}
