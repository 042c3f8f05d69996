package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// processTimeout limits each wait for a process.
const processTimeout = time.Minute

// process is a running function, and the Runtime API that it runs under (AWS, "Using
// the Lambda runtime API for custom runtimes" in the Lambda developer guide,
// https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html).
type process struct {
	cmd     *exec.Cmd
	api     *http.Server
	started time.Time
	start   time.Duration // from the start to the first request for an invocation
	log     output

	next      chan time.Time // a request for an invocation was received
	work      chan []byte
	responses chan response
	exited    chan struct{}
	n         int // invocations
}

type response struct {
	at   time.Time
	ok   bool // it is an answer and not an error
	body []byte
}

// output is what a process writes. It is a file, so that all of it is there when the
// process answers.
type output struct{ *os.File }

func newOutput() (output, error) {
	file, err := os.CreateTemp("", "bench-output-")
	if err != nil {
		return output{}, err
	}
	return output{file}, os.Remove(file.Name()) // it exists until it is closed
}

func (o output) size() int {
	info, err := o.Stat()
	if err != nil {
		return 0
	}
	return int(info.Size())
}

// String returns the end of the output.
func (o output) String() string {
	text := make([]byte, 8<<10)
	n, _ := o.ReadAt(text, max(0, int64(o.size()-len(text))))
	return string(text[:n])
}

// startProcess starts a function with that environment alone, and returns when it asks
// for its first invocation.
func startProcess(ctx context.Context, path string, env []string) (*process, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	log, err := newOutput()
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	p := &process{log: log, next: make(chan time.Time, 1), work: make(chan []byte),
		responses: make(chan response, 1), exited: make(chan struct{})}
	p.api = &http.Server{Handler: http.HandlerFunc(p.serve)}
	go func() { _ = p.api.Serve(listener) }()
	p.cmd = exec.CommandContext(ctx, path)
	p.cmd.Env = append([]string{"AWS_LAMBDA_RUNTIME_API=" + listener.Addr().String()}, env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log.File, p.log.File
	p.started = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, p.api.Close(), log.Close())
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	ready, err := p.ready()
	if err != nil {
		p.stop()
		return nil, err
	}
	p.start = ready.Sub(p.started)
	return p, nil
}

// ready waits until the process asks for an invocation.
func (p *process) ready() (time.Time, error) {
	select {
	case at := <-p.next:
		return at, nil
	case <-p.exited:
		return time.Time{}, fmt.Errorf("the function ended: %s", p.log)
	case <-time.After(processTimeout):
		return time.Time{}, errors.New("the function does not ask for an invocation")
	}
}

func (p *process) serve(w http.ResponseWriter, r *http.Request) {
	const prefix = "/2018-06-01/runtime/"
	what, ok := strings.CutPrefix(r.URL.Path, prefix)
	switch {
	case ok && what == "invocation/next":
		p.next <- time.Now()
		select {
		case payload := <-p.work:
			h := w.Header()
			h.Set("Content-Type", "application/json")
			h.Set("Content-Length", strconv.Itoa(len(payload)))
			h.Set("Lambda-Runtime-Aws-Request-Id", fmt.Sprintf("8476a536-e9f4-11e8-9739-%012d", p.n))
			h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(time.Now().Add(30*time.Second).UnixMilli(), 10))
			h.Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:eu-central-1:111122223333:function:"+
				functionName+":live")
			h.Set("Lambda-Runtime-Trace-Id",
				"Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700;Parent=9a9197af755a6419;Sampled=0")
			w.Write(payload)
		case <-r.Context().Done():
		}
	case ok && strings.HasPrefix(what, "invocation/") && r.Method == http.MethodPost:
		body, err := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		p.responses <- response{time.Now(), err == nil && strings.HasSuffix(what, "/response"), body}
	default:
		http.NotFound(w, r)
	}
}

// invocation is what one invocation took.
type invocation struct {
	took time.Duration // from the invocation to the response
	cpu  time.Duration // of the process, until it asks for the next invocation
	log  int           // bytes
	body []byte        // of the response
}

// invoke invokes the function, and waits until it asks for the next invocation.
func (p *process) invoke(payload []byte) (invocation, error) {
	cpu, err := p.cpu()
	if err != nil {
		return invocation{}, err
	}
	logged := p.log.size()
	p.n++
	start := time.Now()
	p.work <- payload
	var r response
	select {
	case r = <-p.responses:
	case <-p.exited:
		return invocation{}, fmt.Errorf("the function ended: %s", p.log)
	case <-time.After(processTimeout):
		return invocation{}, errors.New("the function does not answer")
	}
	if _, err := p.ready(); err != nil {
		return invocation{}, err
	}
	if !r.ok {
		return invocation{}, fmt.Errorf("the function failed: %s", r.body)
	}
	after, err := p.cpu()
	return invocation{took: r.at.Sub(start), cpu: after - cpu, log: p.log.size() - logged, body: r.body}, err
}

// cpu returns the CPU time that the process has used, in all of its threads. A Go
// program ends its threads only when it ends.
func (p *process) cpu() (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	if err != nil || len(files) == 0 {
		return 0, errors.New("no CPU times under /proc: whole processes are measured on Linux only")
	}
	var total time.Duration
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		spent, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(spent, 10, 64)
		if err != nil {
			return 0, err
		}
		total += time.Duration(n)
	}
	return total, nil
}

// memory returns the largest resident set of the process so far, in bytes.
func (p *process) memory() (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return 0, err
	}
	return kib << 10, nil
}

// stop ends the process and its Runtime API.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.exited
	_ = p.api.Close()
	_ = p.log.Close()
}
