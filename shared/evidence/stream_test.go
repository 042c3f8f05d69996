package evidence

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/firehose"
	"github.com/aws/aws-sdk-go-v2/service/firehose/types"

	"payhook.example/shared/awstest"
	"payhook.example/shared/paymenttest"
)

func newFirehose() *awstest.Firehose {
	return &awstest.Firehose{Stream: "evidence"}
}

// Through the SDK's client, as the function calls it.
func TestALargeRecordIsSentInSeveralCalls(t *testing.T) {
	f := newFirehose()
	server := httptest.NewServer(awstest.Handler{Firehose: f})
	defer server.Close()
	client := firehose.New(firehose.Options{BaseEndpoint: &server.URL, Region: "eu-central-1",
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""), Retryer: aws.NopRetryer{}})
	r := record(t, bytes.Repeat([]byte(" "), 6<<20), true, true)
	if err := NewStream(client, "evidence", "v2").Put(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	r.FunctionVersion = "v2"
	if err := NewStream(client, "other", "v2").Put(t.Context(), r); err == nil || f.Calls() != 12 {
		t.Errorf("%v, %d calls", err, f.Calls())
	}
	var j Joiner
	var got []byte
	for _, line := range f.Records() {
		if joined, err := j.Join(line); err != nil {
			t.Error(err)
		} else if joined != nil {
			got = joined
		}
	}
	if decoded, err := Decode(got); err != nil ||
		!bytes.Equal(bytes.Join(lines(t, decoded), nil), bytes.Join(lines(t, r), nil)) {
		t.Error(err)
	}
}

func TestOnlyWhatIsNotAcknowledgedIsSentAgain(t *testing.T) {
	f := newFirehose()
	var mu sync.Mutex
	failures := map[byte]int{}
	f.Fails = func(line []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		number := line[len(partBegin)]
		failures[number]++
		return failures[number] <= int(number-'0')
	}
	r := record(t, bytes.Repeat([]byte(" "), 1500<<10), true, false) // 3 parts
	synctest.Test(t, func(t *testing.T) {
		if err := NewStream(f, "evidence", "v1").Put(t.Context(), r); err != nil {
			t.Error(err)
		}
	})
	if n := len(f.Records()); n != 3 || f.Calls() != 9 {
		t.Errorf("%d records after %d calls", n, f.Calls())
	}
	failures['3'] = 3 - attempts // fails at each attempt
	synctest.Test(t, func(t *testing.T) {
		if err := NewStream(f, "evidence", "v1").Put(t.Context(), r); err == nil {
			t.Error("it is stored")
		}
	})
}

func TestALargeRecordIsStoredByAStreamThatTakesOneMiBASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFirehose()
		var taken time.Time
		f.Fails = func([]byte) bool {
			if time.Since(taken) < time.Second {
				return true
			}
			taken = time.Now()
			return false
		}
		r := record(t, bytes.Repeat([]byte(" "), 6<<20), true, true)
		if err := NewStream(f, "evidence", "").Put(t.Context(), r); err != nil {
			t.Error(err)
		}
	})
}

func TestCallsThatFail(t *testing.T) {
	r := record(t, paymenttest.Delivery(paymenttest.Event()), true, false)
	for name, test := range map[string]struct {
		answer func(ctx context.Context, in any, next awstest.Next) (any, error)
		calls  int
		took   time.Duration
	}{
		"throttled": {func(context.Context, any, awstest.Next) (any, error) {
			return nil, &types.ServiceUnavailableException{}
		}, attempts, 0},
		"no answer": {func(context.Context, any, awstest.Next) (any, error) {
			return nil, errors.New("connection reset")
		}, attempts, 0},
		"an answer without the record": {func(context.Context, any, awstest.Next) (any, error) {
			return &firehose.PutRecordBatchOutput{}, nil
		}, attempts, 0},
		"an answer without its id": {func(context.Context, any, awstest.Next) (any, error) {
			return &firehose.PutRecordBatchOutput{RequestResponses: make([]types.PutRecordBatchResponseEntry, 1)}, nil
		}, attempts, 0},
		"no such stream": {func(context.Context, any, awstest.Next) (any, error) {
			return nil, &types.ResourceNotFoundException{}
		}, 1, 0},
		"the time is over": {func(ctx context.Context, _ any, _ awstest.Next) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, 1, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFirehose()
			calls := 0
			f.Hook = func(ctx context.Context, in any, next awstest.Next) (any, error) {
				calls++
				return test.answer(ctx, in, next)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			start := time.Now()
			if err := NewStream(f, "evidence", "v1").Put(ctx, r); err == nil || calls != test.calls ||
				test.took > 0 && time.Since(start) != test.took {
				t.Errorf("%s: %v after %d calls and %s", name, err, calls, time.Since(start))
			}
		})
	}
}

func TestAnErrorOfTheServiceIsTransient(t *testing.T) {
	for status, again := range map[int]bool{http.StatusBadRequest: false, http.StatusServiceUnavailable: true} {
		calls := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			calls++
			w.WriteHeader(status)
		}))
		client := firehose.New(firehose.Options{BaseEndpoint: &server.URL, Region: "eu-central-1",
			Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""), Retryer: aws.NopRetryer{}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := NewStream(client, "evidence", "").Put(ctx, record(t, []byte("{}"), true, false))
		cancel()
		server.Close()
		if err == nil || (calls == attempts) != again || (calls == 1) == again {
			t.Errorf("status %d: %d calls, %v", status, calls, err)
		}
	}
}
