package awstest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/firehose"
	"github.com/aws/aws-sdk-go-v2/service/firehose/types"
)

// The limits of PutRecordBatch (AWS,
// https://docs.aws.amazon.com/firehose/latest/APIReference/API_PutRecordBatch.html).
const (
	maxRecords      = 500
	maxRecordBytes  = 1000 << 10
	maxRecordsBytes = 4 << 20
)

// Firehose is a set of streams in memory that take records and deliver them nowhere. Its zero
// value has no stream.
type Firehose struct {
	Hook Hook // nil: none
	// Fails, if set, returns the code with which a record is not taken, or "".
	Fails func(record []byte) (code string)

	mu      sync.Mutex
	streams map[string][][]byte
	calls   int
}

// CreateStream creates a stream.
func (f *Firehose) CreateStream(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams == nil {
		f.streams = map[string][][]byte{}
	}
	f.streams[name] = [][]byte{}
}

// Records returns the records that a stream took, in order.
func (f *Firehose) Records(stream string) [][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.streams[stream])
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
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n := len(in.Records); n == 0 || n > maxRecords {
		return nil, invalid(fmt.Sprintf("1 to %d records", maxRecords))
	}
	size := 0
	for _, r := range in.Records {
		if len(r.Data) > maxRecordBytes {
			return nil, invalid(fmt.Sprintf("a record has at most %d bytes", maxRecordBytes))
		}
		size += len(r.Data)
	}
	name := aws.ToString(in.DeliveryStreamName)
	stream, ok := f.streams[name]
	if !ok {
		return nil, &types.ResourceNotFoundException{Message: aws.String("Firehose " + name + " not found")}
	}
	if size > maxRecordsBytes {
		return nil, &types.InvalidArgumentException{Message: aws.String("Records size exceeds 4 MB limit")}
	}
	out := &firehose.PutRecordBatchOutput{FailedPutCount: aws.Int32(0), Encrypted: aws.Bool(false)}
	for _, r := range in.Records {
		code := ""
		if f.Fails != nil {
			code = f.Fails(r.Data)
		}
		if code != "" {
			*out.FailedPutCount++
			out.RequestResponses = append(out.RequestResponses,
				types.PutRecordBatchResponseEntry{ErrorCode: &code, ErrorMessage: &code})
			continue
		}
		stream = append(stream, slices.Clone(r.Data)) // the caller can reuse it
		out.RequestResponses = append(out.RequestResponses,
			types.PutRecordBatchResponseEntry{RecordId: aws.String(strconv.Itoa(len(stream)))})
	}
	f.streams[name] = stream
	return out, nil
}
