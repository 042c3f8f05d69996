package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"payhook.example/infra/local/emulator"
)

// proxy stands between the functions and the emulator: it receives every call of
// the AWS APIs as the functions send it, and a test decides how it is handled.
type proxy struct {
	*httptest.Server
	emulator string
	// credentials sign what the proxy changes: the emulator verifies every signature. They
	// allow everything.
	credentials aws.CredentialsProvider

	mu    sync.Mutex
	calls []call
	rule  func(call) verdict
	open  int        // calls that are under way
	idle  *sync.Cond // on mu; told when none is
}

// call is one call of an AWS API.
type call struct {
	target string // as in DynamoDB_20120810.PutItem; "" where the API has none
	body   []byte
	status int
	answer []byte // to a batch of statements that was run
	denied string // the action that IAM denied, as in dynamodb:PutItem; "" if it did not
}

// notAuthorized is how AWS says that IAM denies a call.
var notAuthorized = regexp.MustCompile(`not authorized to perform: ([a-z0-9-]+:[A-Za-z]+)`)

// verdict says how a call is handled. The zero verdict forwards it.
type verdict struct {
	fail     bool // answer 500 instead
	throttle bool // answer that there are too many calls instead
	cut      bool // cut the connection before passing it on
	lose     bool // pass it on, and cut the connection instead of answering
	// some passes on the first half of the entries or statements, and answers that the rest
	// failed.
	some  bool
	delay time.Duration // before passing it on
}

func newProxy() *proxy {
	p := &proxy{}
	p.idle = sync.NewCond(&p.mu)
	p.Server = httptest.NewServer(p)
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.count(1)
	defer p.count(-1)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	c := call{target: r.Header.Get("X-Amz-Target"), body: body}
	p.mu.Lock()
	rule := p.rule
	p.mu.Unlock()
	var v verdict
	if rule != nil {
		v = rule(c)
	}
	switch {
	case v.cut:
		p.record(c)
		panic(http.ErrAbortHandler)
	case v.fail, v.throttle:
		c.status = http.StatusInternalServerError
		text := `{"__type":"InternalFailure","message":"injected"}`
		if v.throttle {
			c.status, text = http.StatusBadRequest, `{"__type":"ThrottlingException","message":"injected"}`
		}
		p.record(c)
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		w.WriteHeader(c.status)
		io.WriteString(w, text)
		return
	}
	if v.delay > 0 {
		select {
		case <-time.After(v.delay):
		case <-r.Context().Done():
		}
	}
	failed := 0
	if v.some {
		body, failed = firstHalf(body)
		c.body = body
	}
	// What has reached the proxy takes effect, even if its caller is gone. Only waiting for
	// messages ends with the caller.
	ctx := context.WithoutCancel(r.Context())
	if c.is("ReceiveMessage") {
		ctx = r.Context()
	}
	out, err := http.NewRequestWithContext(ctx, r.Method, p.emulator+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out.Header, out.Host = r.Header.Clone(), r.Host
	if v.some {
		if err := p.sign(out, body); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	resp, err := emulator.Direct.Do(out)
	if err != nil {
		p.record(c)
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	c.status = resp.StatusCode
	if resp.StatusCode >= http.StatusBadRequest {
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if found := notAuthorized.FindSubmatch(text); found != nil {
			c.denied = string(found[1])
		}
		resp.Body = io.NopCloser(bytes.NewReader(text))
	}
	if c.is("BatchExecuteStatement") {
		if c.answer, err = io.ReadAll(resp.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
		resp.Body = io.NopCloser(bytes.NewReader(c.answer))
	}
	p.record(c)
	if v.lose {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), resp.Header)
	if failed == 0 {
		w.WriteHeader(resp.StatusCode)
		io.Copy(w, resp.Body)
		return
	}
	var answer struct {
		FailedEntryCount int              `json:",omitempty"`
		Entries          []map[string]any `json:",omitempty"`
		Responses        []any            `json:",omitempty"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		panic(http.ErrAbortHandler)
	}
	for range failed {
		if c.is("BatchExecuteStatement") {
			answer.Responses = append(answer.Responses,
				map[string]any{"Error": map[string]any{"Code": "ThrottlingError", "Message": "injected"}})
			continue
		}
		answer.FailedEntryCount++
		answer.Entries = append(answer.Entries,
			map[string]any{"ErrorCode": "InternalFailure", "ErrorMessage": "injected"})
	}
	w.Header().Del("Content-Length")
	w.Header().Del("X-Amz-Crc32") // of what DynamoDB answered
	w.WriteHeader(resp.StatusCode)
	json.NewEncoder(w).Encode(answer)
}

// sign replaces the signature of a request whose body was changed. The credential scope
// names region and service (AWS,
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html).
func (p *proxy) sign(r *http.Request, body []byte) error {
	_, scope, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	parts := strings.Split(scope, "/")
	if len(parts) < 5 {
		return errors.New("the request is not signed")
	}
	who, err := p.credentials.Retrieve(r.Context())
	if err != nil {
		return err
	}
	r.Header.Del("X-Amz-Security-Token")
	digest := sha256.Sum256(body)
	return v4.NewSigner().SignHTTP(r.Context(), who, r, hex.EncodeToString(digest[:]), parts[3], parts[2], time.Now())
}

// firstHalf returns a PutEvents request or a batch with the first half of its entries or
// statements, at least one, and how many were left out.
func firstHalf(body []byte) ([]byte, int) {
	var request map[string][]json.RawMessage
	if json.Unmarshal(body, &request) != nil {
		return body, 0
	}
	left := 0
	for name, parts := range request {
		keep := (len(parts) + 1) / 2
		left += len(parts) - keep
		request[name] = parts[:keep]
	}
	half, err := json.Marshal(request)
	if err != nil {
		return body, 0
	}
	return half, left
}

func (p *proxy) record(c call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, c)
}

func (p *proxy) count(change int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open += change; p.open == 0 {
		p.idle.Broadcast()
	}
}

// awaitIdle waits until no call is under way: a program that has ended may have
// left some.
func (p *proxy) awaitIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.open > 0 {
		p.idle.Wait()
	}
}

// forget drops what was recorded so far.
func (p *proxy) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = nil
}

// to returns the recorded calls of one operation, as in PutEvents; all if it is
// empty.
func (p *proxy) to(operation string) []call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.calls), func(c call) bool { return operation != "" && !c.is(operation) })
}

// denied returns the actions that IAM denied, each once.
func (p *proxy) denied() (actions []string) {
	for _, c := range p.to("") {
		if c.denied != "" && !slices.Contains(actions, c.denied) {
			actions = append(actions, c.denied)
		}
	}
	return actions
}

func (c call) is(operation string) bool { return strings.HasSuffix(c.target, "."+operation) }

// decide lets rule decide over the calls until the test ends, or until the
// function that is returned is called.
func (p *proxy) decide(t *testing.T, rule func(call) verdict) (end func()) {
	set := func(rule func(call) verdict) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.rule = rule
	}
	set(rule)
	end = func() { set(nil) }
	t.Cleanup(end)
	return end
}
