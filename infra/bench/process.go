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
	next    chan time.Time
	work    chan []byte
	answers chan answer
	exited  chan struct{}
}

type answer struct {
	at   time.Time
	text string
}

// startProcess starts a function and returns when it asks for its first invocation.
func startProcess(ctx context.Context, path string, env []string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, path), next: make(chan time.Time, 1), work: make(chan []byte),
		answers: make(chan answer, 1), exited: make(chan struct{})}
	log, err := os.CreateTemp(filepath.Dir(path), "log-")
	if err != nil {
		return nil, err
	}
	p.log = log
	p.api = httptest.NewServer(http.HandlerFunc(p.serve))
	p.cmd.Env = append(env, "AWS_LAMBDA_RUNTIME_API="+p.api.Listener.Addr().String())
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	started := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	ready, err := receive(p, p.next)
	if err != nil {
		p.stop()
	}
	p.start = ready.Sub(started)
	return p, err
}

// receive returns what a channel receives, or an error if the process ends.
func receive[T any](p *process, c chan T) (value T, err error) {
	select {
	case value = <-c:
		return value, nil
	case <-p.exited:
		text, _ := os.ReadFile(p.log.Name())
		return value, fmt.Errorf("%s ended: %s", p.cmd.Path, text)
	}
}

func (p *process) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		text, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		p.answers <- answer{time.Now(), string(text)}
		return
	}
	p.next <- time.Now()
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
func (p *process) invoke(payload []byte) (s sample, text string, err error) {
	before, err := p.sample()
	if err != nil {
		return s, "", err
	}
	start := time.Now()
	p.work <- payload
	got, err := receive(p, p.answers)
	if err == nil {
		_, err = receive(p, p.next)
	}
	if err != nil {
		return s, "", err
	}
	s, err = p.sample()
	s[took] = got.at.Sub(start).Seconds() * 1000
	s[cpu] -= before[cpu]
	s[logged] -= before[logged]
	return s, got.text, err
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
	<-p.exited
	p.api.CloseClientConnections()
	p.api.Close()
	_ = p.log.Close()
}
