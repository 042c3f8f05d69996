package awstest

import (
	"context"
	"slices"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/firehose"
	"github.com/aws/aws-sdk-go-v2/service/firehose/types"
)

// Firehose is a stream in memory that takes records and delivers them nowhere.
type Firehose struct {
	Stream string                   // its name
	Hook   Hook                     // nil: none
	Fails  func(record []byte) bool // whether a record is not taken; nil: none

	mu      sync.Mutex
	records [][]byte
	calls   int
}

// Records returns the records that the stream took, in order.
func (f *Firehose) Records() [][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.records)
}

// Calls returns the number of requests, including failed ones.
func (f *Firehose) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// PutRecordBatch takes records.
func (f *Firehose) PutRecordBatch(ctx context.Context, in *firehose.PutRecordBatchInput,
	_ ...func(*firehose.Options)) (*firehose.PutRecordBatchOutput, error) {
	return hooked(ctx, f.Hook, in, f.putRecordBatch)
}

func (f *Firehose) putRecordBatch(ctx context.Context,
	in *firehose.PutRecordBatchInput) (*firehose.PutRecordBatchOutput, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	largest, size := 0, 0
	for _, r := range in.Records {
		largest, size = max(largest, len(r.Data)), size+len(r.Data)
	}
	// The limits are those of AWS
	// (https://docs.aws.amazon.com/firehose/latest/APIReference/API_PutRecordBatch.html).
	switch n := len(in.Records); {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case n == 0 || n > 500 || largest > 1000<<10:
		return nil, invalid("too many records, or too large ones, or none")
	case aws.ToString(in.DeliveryStreamName) != f.Stream:
		return nil, &types.ResourceNotFoundException{Message: aws.String("stream not found")}
	case size > 4<<20:
		return nil, &types.InvalidArgumentException{Message: aws.String("Records size exceeds 4 MB limit")}
	}
	out := &firehose.PutRecordBatchOutput{FailedPutCount: aws.Int32(0)}
	for _, r := range in.Records {
		answer := types.PutRecordBatchResponseEntry{RecordId: aws.String("id")}
		if f.Fails != nil && f.Fails(r.Data) {
			*out.FailedPutCount++
			answer = types.PutRecordBatchResponseEntry{ErrorCode: aws.String("ServiceUnavailableException")}
		} else {
			f.records = append(f.records, slices.Clone(r.Data)) // the caller can reuse it
		}
		out.RequestResponses = append(out.RequestResponses, answer)
	}
	return out, nil
}
