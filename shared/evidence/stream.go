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

// maxBatchBytes is the size that the records of one PutRecordBatch can have. So many bytes of
// parts are fewer than 500, which is the other limit (AWS,
// https://docs.aws.amazon.com/firehose/latest/APIReference/API_PutRecordBatch.html).
const maxBatchBytes = 4 << 20

const (
	attempts = 6                      // how often a line is tried in total
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

// Put stores a record and returns nil once Firehose has acknowledged all of its lines. It tries
// again only the lines that are not acknowledged, until ctx ends. After an error, each line can
// be stored or not; a complete record can be stored as well, if an answer was lost.
func (s *Stream) Put(ctx context.Context, r Record) error {
	r.FunctionVersion = s.version
	lines, err := r.Lines()
	if err != nil {
		return err
	}
	var batches [][]types.Record
	size := maxBatchBytes
	for _, line := range lines {
		if size += len(line); size > maxBatchBytes {
			batches, size = append(batches, nil), len(line)
		}
		last := len(batches) - 1
		batches[last] = append(batches[last], types.Record{Data: line})
	}
	results := make([]error, len(batches))
	parallel.Each(len(batches), len(batches), func(i int) { results[i] = s.put(ctx, batches[i]) })
	return errors.Join(results...)
}

// put stores the lines of one batch.
func (s *Stream) put(ctx context.Context, records []types.Record) error {
	for attempt := 1; ; attempt++ {
		out, err := s.client.PutRecordBatch(ctx,
			&firehose.PutRecordBatchInput{DeliveryStreamName: s.name, Records: records})
		switch {
		case err != nil:
			if !transient(err) {
				return fmt.Errorf("evidence: put: %w", err)
			}
		case len(out.RequestResponses) != len(records):
			err = errors.New("PutRecordBatch did not answer every record")
		default:
			if records, err = failed(records, out.RequestResponses); err == nil {
				return nil
			}
		}
		if attempt == attempts || parallel.Pause(ctx, backoff<<(attempt-1)) != nil {
			return fmt.Errorf("evidence: put: %w", err)
		}
	}
}

// failed returns the records that Firehose has not acknowledged, and why the last is not. It
// answers 200 with failed records inside.
func failed(records []types.Record, answers []types.PutRecordBatchResponseEntry) (left []types.Record, err error) {
	for i, answer := range answers {
		if answer.ErrorCode != nil || aws.ToString(answer.RecordId) == "" {
			left, err = append(left, records[i]), fmt.Errorf("record not taken: %s", aws.ToString(answer.ErrorCode))
		}
	}
	return left, err
}

var retryable = retry.IsErrorRetryables(retry.DefaultRetryables)

// transient reports whether a call that failed may succeed if it is made again. Above the
// throughput of the stream, Firehose answers ServiceUnavailableException.
func transient(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return retryable.IsErrorRetryable(err) == aws.TrueTernary || !ok || api.ErrorFault() == smithy.FaultServer
}
