package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// process is a running function, and its Runtime API (AWS, "Using the Lambda runtime API for custom
// runtimes", https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html).
type process struct {
	cmd     *exec.Cmd
	api     *httptest.Server
	log     *os.File      // so that all of it is there when the function answers
	start   time.Duration // until the first request for an invocation
	work    chan []byte
	calls   chan call // of the Runtime API
	stopped chan struct{}
}

// call is an answer to an invocation, or, without a text, the request for the next one.
type call struct {
	at   time.Time
	text string
}

// startProcess starts a function and returns when it asks for its first invocation.
func startProcess(ctx context.Context, path string, env []string) (*process, error) {
	log, err := os.CreateTemp(filepath.Dir(path), "log-")
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, path), log: log, work: make(chan []byte), calls: make(chan call, 1),
		stopped: make(chan struct{})}
	p.api = httptest.NewServer(p)
	p.cmd.Env = append(env, "AWS_LAMBDA_RUNTIME_API="+p.api.Listener.Addr().String())
	p.cmd.Stdout, p.cmd.Stderr = log, log
	started := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.stopped)
	}()
	ready, err := p.next()
	if err != nil {
		p.stop()
	}
	p.start = ready.at.Sub(started)
	return p, err
}

// next returns the next call of the function, or an error if the process ends.
func (p *process) next() (call, error) {
	select {
	case c := <-p.calls:
		return c, nil
	case <-p.stopped:
		text, _ := os.ReadFile(p.log.Name())
		return call{}, fmt.Errorf("%s ended: %s", p.cmd.Path, text)
	}
}

// ServeHTTP serves the Runtime API.
func (p *process) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	p.calls <- call{time.Now(), string(text)}
	if r.Method == http.MethodPost {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	select {
	case payload := <-p.work:
		h := w.Header()
		h.Set("Content-Length", strconv.Itoa(len(payload)))
		h.Set("Lambda-Runtime-Aws-Request-Id", "8476a536-e9f4-11e8-9739-2d7598c3fe81")
		h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(time.Now().Add(30*time.Second).UnixMilli(), 10))
		h.Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:eu-central-1:111122223333:function:"+functionName)
		h.Set("Lambda-Runtime-Trace-Id", "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700;Parent=9a9197af755a6419;Sampled=0")
		w.Write(payload)
	case <-r.Context().Done():
	}
}

// invoke invokes the function, and waits until it asks for the next invocation.
func (p *process) invoke(payload []byte) (s sample, answer string, err error) {
	before, err := p.sample()
	if err != nil {
		return s, "", err
	}
	start := time.Now()
	p.work <- payload
	answered, err := p.next()
	_, readyErr := p.next()
	s, sampleErr := p.sample()
	s[took] = answered.at.Sub(start).Seconds() * 1000
	s[cpu] -= before[cpu]
	s[logged] -= before[logged]
	return s, answered.text, errors.Join(err, readyErr, sampleErr)
}

// sample returns the CPU time and the memory that the process has used, and the bytes that it has
// written. A Go program ends its threads only when it ends.
func (p *process) sample() (s sample, err error) {
	folder := fmt.Sprintf("/proc/%d", p.cmd.Process.Pid)
	threads, _ := filepath.Glob(folder + "/task/*/schedstat")
	for _, name := range threads {
		var nanoseconds float64
		text, _ := os.ReadFile(name)
		if _, err := fmt.Sscan(string(text), &nanoseconds); err != nil {
			return s, err
		}
		s[cpu] += nanoseconds / 1e6
	}
	status, err := os.ReadFile(folder + "/status")
	if err != nil || len(threads) == 0 {
		return s, errors.New("no CPU times under /proc: whole processes are measured on Linux only")
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	var kib float64
	if _, err := fmt.Sscan(peak, &kib); err != nil {
		return s, err
	}
	info, err := p.log.Stat()
	if err != nil {
		return s, err
	}
	s[memory], s[logged] = kib/1024, float64(info.Size())
	return s, nil
}

// stop ends the process and its Runtime API.
func (p *process) stop() {
	_ = p.cmd.Process.Kill()
	<-p.stopped
	p.api.CloseClientConnections()
	p.api.Close()
	_ = p.log.Close()
}
