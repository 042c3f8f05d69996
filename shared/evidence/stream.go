package evidence

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	attempts = 6                      // how often a line is tried in total
	backoff  = 100 * time.Millisecond // the longest first pause, doubled for every further one
	// batchLines is how many lines are sent at once. A PutRecordBatch can have 4 MiB (AWS,
	// https://docs.aws.amazon.com/firehose/latest/APIReference/API_PutRecordBatch.html).
	batchLines = 4 << 20 / MaxLine
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
	batches := slices.Collect(slices.Chunk(lines, batchLines))
	results := make([]error, len(batches))
	parallel.Each(len(batches), len(batches), func(i int) { results[i] = s.put(ctx, batches[i]) })
	return errors.Join(results...)
}

// put stores the lines of one batch.
func (s *Stream) put(ctx context.Context, lines [][]byte) error {
	for attempt := 1; ; attempt++ {
		in := &firehose.PutRecordBatchInput{DeliveryStreamName: s.name}
		for _, line := range lines {
			in.Records = append(in.Records, types.Record{Data: line})
		}
		out, err := s.client.PutRecordBatch(ctx, in)
		if err == nil {
			lines, err = failed(lines, out.RequestResponses)
		}
		if err == nil {
			return nil
		}
		if !transient(err) || attempt == attempts || parallel.Pause(ctx, backoff<<(attempt-1)) != nil {
			return fmt.Errorf("evidence: put: %w", err)
		}
	}
}

// failed returns the lines that Firehose has not acknowledged, and why the last is not. It
// answers 200 with failed records inside.
func failed(lines [][]byte, answers []types.PutRecordBatchResponseEntry) (left [][]byte, err error) {
	answers = append(answers, make([]types.PutRecordBatchResponseEntry, len(lines))...) // if one is missing
	for i, line := range lines {
		if code := answers[i].ErrorCode; code != nil || aws.ToString(answers[i].RecordId) == "" {
			left, err = append(left, line), fmt.Errorf("record not taken: %s", aws.ToString(code))
		}
	}
	return left, err
}

// transient reports whether a call that failed may succeed if it is made again. Above the
// throughput of the stream, Firehose answers ServiceUnavailableException.
func transient(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return !ok || api.ErrorFault() == smithy.FaultServer ||
		retry.IsErrorRetryables(retry.DefaultRetryables).IsErrorRetryable(err) == aws.TrueTernary
}
