// Package telemetry writes what a function has to say: JSON lines on which
// CloudWatch Logs can be queried, and metrics in the same lines.
//
// It guarantees one line for each outcome, with stable names, and errors told
// by their kind: what AWS says of a failure may name accounts and resources,
// and stays out.
package telemetry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/smithy-go"

	"payhook.example/shared/names"
)

// Unit is the unit of a metric (AWS, MetricDatum).
type Unit string

// The units that are used.
const (
	Count        Unit = "Count"
	Milliseconds Unit = "Milliseconds"
	Seconds      Unit = "Seconds"
)

// Metric is one figure of an outcome line.
type Metric struct {
	Name string
	Unit Unit
}

// Value is what a metric is in one outcome line.
type Value struct {
	Metric Metric
	Value  float64
}

// Log writes JSON lines. It is safe for concurrent use.
type Log struct {
	logger   *slog.Logger
	function string

	mu    sync.Mutex
	w     io.Writer
	lines sync.Pool // of *line
}

// line is where an outcome line is put together.
type line struct {
	buffer  bytes.Buffer
	handler slog.Handler
}

// New returns a log that writes to w. function is the name of the Lambda
// function, by which its metrics are told apart.
func New(w io.Writer, function string) *Log {
	l := &Log{function: function, w: w}
	l.logger = slog.New(withRequestID{slog.NewJSONHandler(l, nil)})
	l.lines.New = func() any {
		line := &line{}
		line.handler = withRequestID{slog.NewJSONHandler(&line.buffer, nil)}
		return line
	}
	return l
}

// Logger returns the logger for lines without metrics.
func (l *Log) Logger() *slog.Logger { return l.logger }

// Write writes a whole line at a time, so that no two are mixed.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(line)
}

// Outcome writes one line with attrs and the values of metrics, which
// CloudWatch takes from the line (AWS, "Specification: Embedded metric
// format"). The Lambda request id stands on every line.
func (l *Log) Outcome(ctx context.Context, level slog.Level, msg string, values []Value, attrs ...slog.Attr) {
	now := time.Now()
	r := slog.NewRecord(now, level, msg, 0)
	r.AddAttrs(attrs...)
	for _, v := range values {
		r.AddAttrs(slog.Float64(v.Metric.Name, v.Value))
	}
	r.AddAttrs(slog.String(names.MetricDimension, l.function))

	line := l.lines.Get().(*line)
	defer l.lines.Put(line)
	line.buffer.Reset()
	if err := line.handler.Handle(ctx, r); err != nil {
		return
	}
	// slog knows no arrays but by reflection, and the directive is one: it is
	// put in before the brace that ends the line.
	line.buffer.Truncate(line.buffer.Len() - len("}\n"))
	line.buffer.Write(appendDirective(line.buffer.AvailableBuffer(), now, values))
	line.buffer.WriteString("}\n")
	_, _ = l.Write(line.buffer.Bytes())
}

// appendDirective appends the _aws member, which tells CloudWatch which members
// of the line are metrics.
func appendDirective(b []byte, now time.Time, values []Value) []byte {
	b = append(b, `,"_aws":{"Timestamp":`...)
	b = strconv.AppendInt(b, now.UnixMilli(), 10)
	b = append(b, `,"CloudWatchMetrics":[{"Namespace":"`+names.MetricNamespace+`","Dimensions":[["`+names.MetricDimension+`"]],"Metrics":[`...)
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"Name":"`...)
		b = append(b, v.Metric.Name...)
		b = append(b, `","Unit":"`...)
		b = append(b, v.Metric.Unit...)
		b = append(b, `"}`...)
	}
	return append(b, `]}]}`...)
}

// Milli returns a duration as a number of milliseconds.
func Milli(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Cause returns what may be told of an error: of what AWS answered the
// operation and the error's code, and of everything else its text.
func Cause(err error) string {
	if err == nil {
		return ""
	}
	what := ""
	var operation *smithy.OperationError
	var api smithy.APIError
	if errors.As(err, &operation) {
		what = operation.Service() + " " + operation.Operation() + ": "
	}
	switch {
	case errors.As(err, &api):
		return what + api.ErrorCode()
	case operation == nil:
		return err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return what + "out of time"
	case errors.Is(err, context.Canceled):
		return what + "canceled"
	default:
		return what + "no answer"
	}
}

// withRequestID puts the Lambda request id on every line.
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
