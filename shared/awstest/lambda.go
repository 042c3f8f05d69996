package awstest

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"payhook.example/shared/settings"
)

// inChild is set in the environment of the process that runs main.
const inChild = "PAYHOOK_TEST_MAIN"

// Main fails a test unless main, which starts a Lambda function, starts with nothing but its required settings and its
// resources, fits Go's runtime to the memory of the function, opens that many connections to AWS, and answers an
// invocation, and without settings exits with code 1 and names what is missing. It returns the answer: "response" or
// "error" and the JSON. Every call of AWS is denied.
//
// Main runs main in a process of its own, which runs the same test.
func Main(t *testing.T, main func(), list []*settings.Setting, resources []string, invocation string,
	connections int) (answer string) {
	t.Helper()
	if os.Getenv(inChild) != "" {
		go main()
		_, _ = io.Copy(io.Discard, os.Stdin)
		fmt.Printf("memory limit %d\n", debug.SetMemoryLimit(-1))
		os.Exit(0)
	}

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
	api, answers := runtimeAPI(t, invocation)
	env := []string{
		inChild + "=1", "AWS_REGION=us-east-1", "AWS_ENDPOINT_URL=" + aws.URL, "AWS_ACCESS_KEY_ID=id",
		"AWS_SECRET_ACCESS_KEY=secret", "AWS_LAMBDA_FUNCTION_NAME=function",
		"AWS_LAMBDA_RUNTIME_API=" + api, "AWS_LAMBDA_FUNCTION_MEMORY_SIZE=512",
	}
	c, _, out := startChild(t, env)
	if err := c.Wait(); c.ProcessState.ExitCode() != 1 {
		t.Errorf("without settings: %v\n%s", err, out)
	}
	for _, name := range resources {
		if !strings.Contains(out.String(), name) {
			t.Errorf("without %s, the function says: %s", name, out)
		}
		env = append(env, name+"=x")
	}
	c, stop, out := startChild(t, append(env, required(list)...))
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	select {
	case answer = <-answers:
	case err := <-ended:
		t.Fatalf("the function ends: %v\n%s", err, out)
	}
	for range connections {
		select {
		case <-opened:
		case <-time.After(10 * time.Second):
			t.Errorf("fewer than %d connections are open", connections)
		}
	}
	stop.Close()
	if err := <-ended; err != nil || !strings.Contains(out.String(), "memory limit 402653184\n") {
		t.Errorf("the runtime is not fitted to the memory: %v\n%s", err, out)
	}
	return answer
}

// required returns the variables of the settings that a function has no default for.
func required(list []*settings.Setting) (env []string) {
	for _, s := range list {
		if s.Required {
			env = append(env, s.Env()+"="+s.Example)
		}
	}
	return env
}

// runtimeAPI starts Lambda's runtime API with one invocation (AWS, "Using the Lambda runtime
// API for custom runtimes", https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html).
func runtimeAPI(t *testing.T, invocation string) (address string, answers <-chan string) {
	next, received := make(chan string, 1), make(chan string, 1)
	next <- invocation
	lambda := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			select {
			case text := <-next:
				w.Header().Set("Lambda-Runtime-Aws-Request-Id", "id")
				w.Header().Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(30*time.Second).UnixMilli()))
				_, _ = io.WriteString(w, text)
			case <-r.Context().Done(): // there is no second invocation
			}
			return
		}
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		received <- r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:] + " " + string(body)
	}))
	t.Cleanup(lambda.Close)
	return lambda.Listener.Addr().String(), received
}

// startChild starts a process that runs main, until stop is closed.
func startChild(t *testing.T, env []string) (c *exec.Cmd, stop io.Closer, out *bytes.Buffer) {
	c, out = exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$"), &bytes.Buffer{}
	c.Env, c.Stdout, c.Stderr = env, out, out
	stop, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, stop, out
}
