package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// proxy stands between the functions and the emulator: it sees every call of the
// AWS APIs as the functions send it, and lets a test decide what becomes of it.
type proxy struct {
	*httptest.Server
	emulator string

	mu    sync.Mutex
	calls []call
	rule  func(call) verdict
}

// call is one call of an AWS API.
type call struct {
	target string // as in DynamoDB_20120810.PutItem; "" where the API has none
	body   []byte
	status int
}

// verdict is what becomes of a call. The zero verdict passes it on.
type verdict struct {
	fail bool            // answer 500 instead
	hold <-chan struct{} // cut the connection, once the channel is closed or the caller is gone
}

func newProxy() *proxy {
	p := &proxy{}
	p.Server = httptest.NewServer(p)
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	case v.hold != nil:
		select {
		case <-v.hold:
		case <-r.Context().Done():
		}
		p.record(c)
		panic(http.ErrAbortHandler)
	case v.fail:
		c.status = http.StatusInternalServerError
		p.record(c)
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		w.WriteHeader(c.status)
		io.WriteString(w, `{"__type":"InternalFailure","message":"injected"}`)
		return
	}
	out, err := http.NewRequestWithContext(r.Context(), r.Method, p.emulator+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out.Header, out.Host = r.Header.Clone(), r.Host
	resp, err := direct.Do(out)
	if err != nil {
		p.record(c)
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	c.status = resp.StatusCode
	p.record(c)
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	io.Copy(w, resp.Body)
}

func (p *proxy) record(c call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, c)
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

func (c call) is(operation string) bool { return strings.HasSuffix(c.target, "."+operation) }

// on reports whether the call is on a table.
func (c call) on(table string) bool {
	var input struct{ TableName string }
	return json.Unmarshal(c.body, &input) == nil && input.TableName == table
}

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
