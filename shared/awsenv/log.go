package awsenv

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"payhook.example/shared/names"
)

// Value is the value of a metric in one outcome line.
type Value struct {
	Metric names.Metric
	Value  float64
}

// Log writes JSON lines that CloudWatch Logs Insights can query, with the metrics in the
// same lines: one line for each outcome, with stable names. It is safe for concurrent use.
type Log struct {
	logger *slog.Logger
	stack  string
}

// NewLog returns a log that writes to w. stack is the name of the stack, which is the
// dimension of its metrics.
func NewLog(w io.Writer, stack string) *Log {
	return &Log{slog.New(withRequestID{slog.NewJSONHandler(w, &slog.HandlerOptions{ReplaceAttr: shorter})}), stack}
}

// shorter removes the level INFO, which almost all lines have, and digits of a number after the third
// behind the point: CloudWatch charges for each byte.
func shorter(groups []string, a slog.Attr) slog.Attr {
	if a.Key == slog.LevelKey && len(groups) == 0 && a.Value.Any() == slog.LevelInfo {
		return slog.Attr{}
	}
	if a.Value.Kind() == slog.KindFloat64 {
		a.Value = slog.Float64Value(math.Round(1000*a.Value.Float64()) / 1000)
	}
	return a
}

// Logger returns the logger for lines without metrics.
func (l *Log) Logger() *slog.Logger { return l.logger }

// Outcome writes one line with attrs and the values of metrics, which CloudWatch
// extracts from the line (AWS, "Specification: Embedded metric format"); a line without
// values has none. Every line has the Lambda request id. Its only time is that of the
// metrics: CloudWatch stores the time of each line.
func (l *Log) Outcome(ctx context.Context, level slog.Level, msg string, values []Value, attrs ...slog.Attr) {
	now := time.Now()
	r := slog.NewRecord(time.Time{}, level, msg, 0)
	r.AddAttrs(attrs...)
	metrics := make([]names.Metric, len(values))
	for i, v := range values {
		r.AddAttrs(slog.Float64(v.Metric.Name, v.Value))
		metrics[i] = v.Metric
	}
	if len(values) > 0 {
		r.AddAttrs(slog.String(names.MetricDimension, l.stack), slog.Any("_aws", metadata{
			Timestamp: now.UnixMilli(),
			Directives: [1]directive{{
				Namespace:  names.MetricNamespace,
				Dimensions: [1][1]string{{names.MetricDimension}},
				Metrics:    metrics,
			}},
		}))
	}
	_ = l.logger.Handler().Handle(ctx, r) // there is no other place to report it
}

// metadata is the member _aws of a line, which tells CloudWatch which members
// of the line are metrics.
type metadata struct {
	Timestamp  int64        // Unix milliseconds
	Directives [1]directive `json:"CloudWatchMetrics"`
}

// directive is a MetricDirective.
type directive struct {
	Namespace  string
	Dimensions [1][1]string
	Metrics    []names.Metric
}

// Cause returns the text to log for an error: the operation and code of an error of
// AWS, whose message may name accounts and resources, and the text of any other error.
// DynamoDB's reasons for throttling follow the code.
func Cause(err error) string {
	if err == nil {
		return ""
	}
	what := ""
	operation, called := errors.AsType[*smithy.OperationError](err)
	if called {
		what = operation.Service() + " " + operation.Operation() + ": "
	}
	api, answered := errors.AsType[smithy.APIError](err)
	switch {
	case answered:
		return what + api.ErrorCode() + throttling(err)
	case !called:
		return err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return what + "out of time"
	case errors.Is(err, context.Canceled):
		return what + "canceled"
	default:
		return what + "no answer"
	}
}

// throttling returns DynamoDB's reasons for throttling, as in " (TableWriteAccountLimitExceeded)".
// It returns "" for other errors, and for a statement of a batch, whose error has no reasons
// (https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchStatementError.html).
// The resources of the reasons are ARNs and left out.
func throttling(err error) string {
	var reasons []types.ThrottlingReason
	if e, ok := errors.AsType[*types.ProvisionedThroughputExceededException](err); ok {
		reasons = e.ThrottlingReasons
	} else if e, ok := errors.AsType[*types.ThrottlingException](err); ok {
		reasons = e.ThrottlingReasons
	} else if e, ok := errors.AsType[*types.RequestLimitExceeded](err); ok {
		reasons = e.ThrottlingReasons
	}
	var texts []string
	for _, r := range reasons {
		if text := aws.ToString(r.Reason); text != "" && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	if texts == nil {
		return ""
	}
	return " (" + strings.Join(texts, ", ") + ")"
}

// withRequestID adds the Lambda request id to every line.
type withRequestID struct{ slog.Handler }

func (h withRequestID) Handle(ctx context.Context, r slog.Record) error {
	if lc, ok := lambdacontext.FromContext(ctx); ok {
		r.AddAttrs(slog.String("requestId", lc.AwsRequestID))
	}
	return h.Handler.Handle(ctx, r)
}

func (h withRequestID) WithAttrs(attrs []slog.Attr) slog.Handler {
	return withRequestID{h.Handler.WithAttrs(attrs)}
}

func (h withRequestID) WithGroup(name string) slog.Handler {
	return withRequestID{h.Handler.WithGroup(name)}
}
