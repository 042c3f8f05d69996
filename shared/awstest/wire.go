// Package awstest has what the tests of the adapters and of the functions need: servers with the protocols of AWS that
// throttle, fail, hang up, enforce quotas, or have prepared answers.
package awstest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// TargetHeader has the operation of a request, such as DynamoDB_20120810.PutItem. Those of S3 do not have it.
const TargetHeader = "X-Amz-Target"

// Request is a request that a [Wire] got.
type Request struct {
	Operation string // such as PutItem
	Body      string
	At        time.Time // of its signature
}

// Wire is a server of AWS with prepared answers in AWS JSON. Its clients may run in a bubble of testing/synctest if it
// was started outside of it.
type Wire struct {
	*httptest.Server
	mu       sync.Mutex
	requests []Request
}

// CutOff is the answer of a server that closes the connection instead.
const CutOff = ""

// Refused is an answer with the code of an error, and other members of its JSON. Its message has an ARN, as those of
// AWS have.
func Refused(code string, members ...string) string {
	return Status(http.StatusBadRequest,
		fmt.Sprintf(`{"__type":%q,"message":"of arn:aws:sts::123456789012:assumed-role/r/f"`, code)+
			strings.Join(append([]string{""}, members...), ",")+"}")
}

// Status is an answer with another status than 200.
func Status(status int, body string) string { return fmt.Sprintf("%s%d%s", hasStatus, status, body) }

const hasStatus = "status "

// Answering starts a [Wire] with these answers in turn, and returns the configuration of its clients.
func Answering(tb testing.TB, answers ...string) (aws.Config, *Wire) {
	w := NewWire(tb, InTurn(answers...))
	return Config(w.URL), w
}

// NewWire starts a server that answers as answer says: a body, [Status], [Refused] or [CutOff]. It stops when the test
// ends.
func NewWire(tb testing.TB, answer func(Request) string) *Wire {
	w := &Wire{}
	w.Server = newServer(tb, func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		_, operation, _ := strings.Cut(r.Header.Get(TargetHeader), ".")
		at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if err != nil {
			tb.Error(err)
		}
		request := Request{operation, string(body), at}
		w.mu.Lock()
		w.requests = append(w.requests, request)
		w.mu.Unlock()
		text := answer(request)
		if text == CutOff {
			panic(http.ErrAbortHandler)
		}
		if after, ok := strings.CutPrefix(text, hasStatus); ok {
			status, _ := strconv.Atoi(after[:3])
			rw.WriteHeader(status)
			text = after[3:]
		}
		_, _ = io.WriteString(rw, text)
	})
	return w
}

// newServer starts a server whose clients may run in a bubble: an idle connection would stop the clock of a bubble,
// and the SDK adapts its clock to the date of an answer.
func newServer(tb testing.TB, handler http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		w.Header()["Date"] = nil
		handler(w, r)
	}))
	tb.Cleanup(s.Close)
	return s
}

// InTurn returns these answers one after the other, and then the last one again and again.
func InTurn(answers ...string) func(Request) string {
	var mu sync.Mutex
	return func(Request) string {
		mu.Lock()
		defer mu.Unlock()
		answer := answers[0]
		if len(answers) > 1 {
			answers = answers[1:]
		}
		return answer
	}
}

// Requests returns the requests since the last call of Requests.
func (w *Wire) Requests() []Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	requests := w.requests
	w.requests = nil
	return requests
}

// Config is the configuration of clients of a server. They try a call up to three times, without a pause.
func Config(url string) aws.Config {
	return aws.Config{
		Region: "eu-central-1", BaseEndpoint: &url,
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
		Retryer: func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) {
				o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
			})
		},
	}
}

// Outage is a server of AWS that fails for a time.
type Outage struct {
	*httptest.Server
	Failed atomic.Int64 // how many requests failed
}

// NewOutage starts a server that answers requests with next, except those for which of returns true: it
// answers them with fail until the clock of a bubble of testing/synctest, in which its clients run, has
// continued for that time. Start it outside of the bubble. The time of a request is that of its signature.
func NewOutage(tb testing.TB, lasts time.Duration, of func(*http.Request) bool, fail, next http.HandlerFunc) *Outage {
	end := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(lasts) // the clock of a bubble begins in 2000
	o := &Outage{}
	o.Server = newServer(tb, func(w http.ResponseWriter, r *http.Request) {
		signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if err != nil {
			tb.Error(err)
		}
		if signed.Before(end) && of(r) {
			o.Failed.Add(1)
			fail(w, r)
			return
		}
		next(w, r)
	})
	return o
}
