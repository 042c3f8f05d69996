// Package lambdaruntime has what every Lambda function of Payhook needs: Go's runtime ([Adapt]), and log lines
// with metrics ([Log]).
package lambdaruntime

import (
	"bytes"
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"io"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"payhook.example/shared/settings"
)

// Value is the value of a metric in one outcome line.
type Value struct {
	Metric settings.Metric
	Value  float64
}

// Log writes JSON lines that CloudWatch Logs Insights can query, with the metrics in the
// same lines: one line for each outcome, with stable names. It is safe for concurrent use.
type Log struct {
	mu    sync.Mutex
	w     io.Writer
	stack string
}

// NewLog returns a log that writes to w. stack is the name of the stack, which is the dimension of its metrics.
func NewLog(w io.Writer, stack string) *Log { return &Log{w: w, stack: stack} }

// Outcome writes one line with the members of line, a struct, and the values of metrics, which CloudWatch extracts from
// the line (AWS, "Specification: Embedded metric format"); a line without values has none. Every line has the Lambda
// request id, and its level unless that is INFO, which almost all lines have: CloudWatch charges for each byte. Its
// only time is that of the metrics: CloudWatch stores the time of each line.
func (l *Log) Outcome(ctx context.Context, level slog.Level, msg string, line any, values ...Value) {
	b := bytes.NewBuffer(make([]byte, 0, 1<<10))
	head := head{Msg: msg}
	if level != slog.LevelInfo {
		head.Level = level.String()
	}
	add(b, head)
	add(b, line)
	var tail tail
	if len(values) > 0 {
		tail.Stack = l.stack
		tail.AWS = &metadata{Timestamp: time.Now().UnixMilli(), Directives: [1]directive{{
			Namespace:  settings.MetricNamespace,
			Dimensions: [1][1]string{{settings.MetricDimension}},
			Metrics:    make([]settings.Metric, len(values)),
		}}}
	}
	for i, v := range values {
		tail.AWS.Directives[0].Metrics[i] = v.Metric
		b.WriteString(`,"` + v.Metric.Name + `":`)
		b.Write(strconv.AppendFloat(b.AvailableBuffer(), math.Round(1000*v.Value)/1000, 'f', -1, 64))
	}
	if lc, ok := lambdacontext.FromContext(ctx); ok {
		tail.RequestID = lc.AwsRequestID
	}
	add(b, tail)
	b.WriteString("}\n")
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.w.Write(b.Bytes()) // there is no other place to report it
}

// add adds the members of an object to one that is not closed.
func add(b *bytes.Buffer, object any) {
	n := b.Len()
	if err := json.MarshalWrite(b, object, jsontext.AllowInvalidUTF8(true), json.Deterministic(true)); err != nil {
		b.Truncate(n)
		add(b, struct{ Unwritten string }{err.Error()})
		return
	}
	b.Truncate(b.Len() - 1) // the closing brace
	switch {
	case b.Len() == n+1: // it has no members
		b.Truncate(n)
	case n > 0:
		b.Bytes()[n] = ','
	}
}

// head is the begin of each line.
type head struct {
	Level string `json:"level,omitzero"`
	Msg   string `json:"msg"`
}

// tail is the end of each line.
type tail struct {
	Stack     string    `json:"StackName,omitzero"`
	AWS       *metadata `json:"_aws,omitzero"`
	RequestID string    `json:"requestId,omitzero"`
}

// metadata is the member _aws of a line, which tells CloudWatch which members of the line are metrics.
type metadata struct {
	Timestamp  int64        // Unix milliseconds
	Directives [1]directive `json:"CloudWatchMetrics"`
}

// directive is a MetricDirective.
type directive struct {
	Namespace  string
	Dimensions [1][1]string
	Metrics    []settings.Metric
}

// packages are the names with which the errors of Payhook's packages begin. Only who reads the code knows them.
var packages = []string{"bus", "clientcert", "intake", "keys", "ledger", "objects", "payment", "paymenttest",
	"proof", "redrive", "signature", "token"}

// Cause returns the text of an error for people, without the names of packages; "" for nil.
func Cause(err error) string {
	if err == nil {
		return ""
	}
	parts := strings.Split(err.Error(), ": ")
	last := len(parts) - 1 // it is no prefix
	before := slices.DeleteFunc(parts[:last:last], func(part string) bool { return slices.Contains(packages, part) })
	return strings.Join(append(before, parts[last]), ": ")
}
