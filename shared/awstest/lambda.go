package awstest

import (
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"payhook.example/shared/settings"
)

// Main fails a test unless main, which starts a Lambda function, starts with nothing but its required settings and its
// resources, fits Go's runtime to the memory of the function, opens that many connections to AWS, and answers an
// invocation, and unless its settings name the resources that are missing. It returns the answer: "response" or "error"
// and the JSON. Every call of AWS is denied.
//
// main waits for a second invocation until the process ends.
func Main(t *testing.T, main func(), function string, resources []string, invocation string,
	connections int) (answer string) {
	t.Helper()
	opened := make(chan net.Conn, 100)
	aws := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"__type":"AccessDeniedException"}`)
	}))
	aws.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened <- conn
		}
	}
	aws.Start()
	t.Cleanup(aws.Close)
	api, answers := runtimeAPI(invocation)
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "PAYHOOK_") {
			t.Setenv(name, "")
		}
	}
	env := map[string]string{"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": aws.URL, "AWS_ACCESS_KEY_ID": "id",
		"AWS_SECRET_ACCESS_KEY": "secret", "AWS_LAMBDA_FUNCTION_NAME": "function", "AWS_LAMBDA_RUNTIME_API": api,
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512"}
	for _, s := range settings.ReadBy(function) {
		if s.Required {
			env[s.Env()] = s.Example
		}
	}
	_, err := settings.ParseConfig(function, func(name string) string { return env[name] })
	for _, name := range resources {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
		env[name] = "x"
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
	cpus, percent := runtime.GOMAXPROCS(0), debug.SetGCPercent(100)
	t.Cleanup(func() {
		runtime.GOMAXPROCS(cpus)
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(math.MaxInt64)
	})
	go main()
	answer = <-answers
	for range connections {
		select {
		case <-opened:
		case <-time.After(10 * time.Second):
			t.Errorf("fewer than %d connections are open", connections)
		}
	}
	if limit := debug.SetMemoryLimit(-1); limit != 384<<20 {
		t.Errorf("the memory limit is %d: the runtime is not fitted to the memory", limit)
	}
	return answer
}

// runtimeAPI starts Lambda's runtime API with one invocation (AWS, "Using the Lambda runtime API for custom runtimes",
// https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html). It never stops: without it, main would end the
// process.
func runtimeAPI(invocation string) (address string, answers <-chan string) {
	next, received := make(chan string, 1), make(chan string, 1)
	next <- invocation
	lambda := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			text := <-next // there is no second invocation
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", "id")
			w.Header().Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(30*time.Second).UnixMilli()))
			_, _ = io.WriteString(w, text)
			return
		}
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		received <- r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:] + " " + string(body)
	}))
	return lambda.Listener.Addr().String(), received
}
