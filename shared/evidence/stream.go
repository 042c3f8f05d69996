package evidence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/firehose"
	"github.com/aws/aws-sdk-go-v2/service/firehose/types"
	"github.com/aws/smithy-go"

	"payhook.example/shared/parallel"
)

// StreamAPI is what of Firehose a [Stream] needs. Give it a client without retries of its own.
type StreamAPI interface {
	PutRecordBatch(context.Context, *firehose.PutRecordBatchInput,
		...func(*firehose.Options)) (*firehose.PutRecordBatchOutput, error)
}

const (
	attempts = 8                      // how often a line is tried in total
	backoff  = 100 * time.Millisecond // the longest first pause, doubled for every further one
)

// Stream is a Firehose stream that stores records. It is safe for concurrent use.
type Stream struct {
	client  StreamAPI
	name    *string
	version string
}

// NewStream returns the stream of that name. version is the functionVersion of its records.
func NewStream(client StreamAPI, name, version string) *Stream {
	return &Stream{client, &name, version}
}

// Put stores a record and returns nil once Firehose has acknowledged all of its lines. It sends one
// after the other, since in most Regions a stream takes 1 MiB a second, which is hardly more than
// the longest line (AWS, https://docs.aws.amazon.com/firehose/latest/dev/limits.html). It tries a
// line again until ctx ends. After an error, each line can be stored or not; a complete record
// can be stored as well, if an answer was lost.
func (s *Stream) Put(ctx context.Context, r Record) error {
	r.FunctionVersion = s.version
	lines, err := r.Lines()
	if err != nil {
		return err
	}
	for _, line := range lines {
		if err := s.put(ctx, line); err != nil {
			return fmt.Errorf("evidence: put: %w", err)
		}
	}
	return nil
}

// put stores a line.
func (s *Stream) put(ctx context.Context, line []byte) error {
	in := &firehose.PutRecordBatchInput{DeliveryStreamName: s.name, Records: []types.Record{{Data: line}}}
	for attempt := 1; ; attempt++ {
		out, err := s.client.PutRecordBatch(ctx, in)
		if err == nil {
			err = acknowledged(out.RequestResponses)
		}
		if err == nil || !transient(err) || attempt == attempts || parallel.Pause(ctx, backoff<<(attempt-1)) != nil {
			return err
		}
	}
}

// acknowledged returns nil if Firehose has taken the line. It answers 200 also if it has not.
func acknowledged(answers []types.PutRecordBatchResponseEntry) error {
	if len(answers) != 1 {
		return errors.New("PutRecordBatch did not answer the record")
	}
	if code := aws.ToString(answers[0].ErrorCode); code != "" || aws.ToString(answers[0].RecordId) == "" {
		return fmt.Errorf("record not taken: %s", code)
	}
	return nil
}

// transient reports whether a call that failed may succeed if it is made again. Above the
// throughput of the stream, Firehose answers ServiceUnavailableException.
func transient(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return !ok || api.ErrorFault() == smithy.FaultServer ||
		retry.IsErrorRetryables(retry.DefaultRetryables).IsErrorRetryable(err) == aws.TrueTernary
}
