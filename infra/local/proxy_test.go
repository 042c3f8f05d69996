package local

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"

	"payhook.example/infra/stack"
)

// proxy stands between the functions and the emulator: it receives every call of the AWS APIs as
// the functions send it, and a test decides how it is handled.
type proxy struct {
	*httptest.Server
	emulator string
	calls    sync.RWMutex // read by each call that is under way

	mu      sync.Mutex
	actions []string // that IAM denied, as in dynamodb:PutItem
	rule    func(operation string) fault
}

// fault is how a call goes wrong; "" if it does not.
type fault string

const (
	failed    fault = "answered 500"
	throttled fault = "throttled"
	cutBefore fault = "cut before it took effect"
	cutAfter  fault = "cut after it took effect"
)

// forwarded is the rule by which no call goes wrong.
func forwarded(string) fault { return "" }

func newProxy() *proxy {
	p := &proxy{rule: forwarded}
	p.Server = httptest.NewServer(p)
	return p
}

// notAuthorized is how AWS says that IAM denies a call.
var notAuthorized = regexp.MustCompile(`not authorized to perform: ([a-z0-9-]+:[A-Za-z]+)`)

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.calls.RLock()
	defer p.calls.RUnlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	// As in DynamoDB_20120810.PutItem; some APIs have none.
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if r.Header.Get("If-None-Match") != "" {
		operation = "PutObject"
	}
	p.mu.Lock()
	what := p.rule(operation)
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	switch what {
	case cutBefore:
		panic(http.ErrAbortHandler)
	case failed:
		w.WriteHeader(http.StatusInternalServerError)
		io.WriteString(w, `{"__type":"InternalFailure","message":"injected"}`)
		return
	case throttled:
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"__type":"ThrottlingException","message":"injected"}`)
		return
	}
	// What has reached the proxy takes effect, even if its caller is gone.
	out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method,
		p.emulator+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out.Header, out.Host = r.Header.Clone(), r.Host
	resp, err := stack.Direct.Do(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || what == cutAfter {
		panic(http.ErrAbortHandler)
	}
	if found := notAuthorized.FindSubmatch(text); found != nil && resp.StatusCode >= http.StatusBadRequest {
		p.mu.Lock()
		p.actions = append(p.actions, string(found[1]))
		p.mu.Unlock()
	}
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	w.Write(text)
}

// awaitIdle waits until no call is under way: a program that has ended may have
// left some.
func (p *proxy) awaitIdle() {
	p.calls.Lock()
	defer p.calls.Unlock()
}

// forget drops the actions that were denied so far.
func (p *proxy) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.actions = nil
}

// denied returns the actions that IAM denied, each once.
func (p *proxy) denied() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(p.actions)))
}

// decide lets rule decide over the calls.
func (p *proxy) decide(rule func(operation string) fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = rule
}
