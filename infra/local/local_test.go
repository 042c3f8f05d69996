package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/stack"
	"payhook.example/shared/paymenttest"
)

// command runs a command as the program does.
func command(t *testing.T, args ...string) (out, stderr string, status int) {
	t.Helper()
	var o, e bytes.Buffer
	p := &cli.Program{In: strings.NewReader(""), Out: &o, Err: &e, Now: time.Now}
	root := p.Root()
	root.AddCommand(Command(p))
	status = p.Run(t.Context(), root, append([]string{"local"}, args...))
	return o.String(), e.String(), status
}

// project makes a folder with a go.mod the current one.
func project(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "go.mod"), []byte("module payhook.example\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(folder)
	return folder
}

func TestDownEndsTheRun(t *testing.T) {
	folder := project(t)
	if out, stderr, status := command(t, "down"); status != 0 || out != "Nothing was running.\n" {
		t.Errorf("%d, %s%s", status, out, stderr)
	}
	if out, _, _ := command(t, "down", "--json"); out != `{"ended":false}`+"\n" {
		t.Error(out)
	}

	// A process that holds the lock, as up does, until it is asked to end.
	held, err := Lock(filepath.Join(folder, ".local", "run"))
	if err != nil {
		t.Fatal(err)
	}
	lock := held.(*os.File)
	owner := exec.CommandContext(t.Context(), "sleep", "1000")
	owner.ExtraFiles = []*os.File{lock}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	pid := owner.Process.Pid
	cut := lock.Truncate(0)
	_, err = lock.WriteAt(fmt.Append(nil, pid), 0)
	if err := errors.Join(cut, err, lock.Close()); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("The local run has ended (process %d); nothing is left running.\n", pid)
	if got, stderr, status := command(t, "down"); status != 0 || got != want {
		t.Errorf("%d, %s%s", status, got, stderr)
	}
	if err := owner.Wait(); err == nil || owner.ProcessState.Success() {
		t.Errorf("it ended by itself: %v", err)
	}
}

// TestMain is also the process in the background that up starts.
func TestMain(m *testing.M) {
	if os.Getenv(inBackground) == "" {
		status := m.Run()
		if shared.emulator != nil {
			shared.stop()
			if left := processes(shared.emulator.state); len(left) > 0 {
				fmt.Fprintf(os.Stderr, "these processes still run: %q\n", left)
				status = 1
			}
		}
		os.Exit(status)
	}
	p := &cli.Program{Out: os.Stdout, Err: os.Stderr, Now: time.Now}
	root := p.Root()
	root.AddCommand(Command(p))
	os.Exit(p.Run(context.Background(), root, []string{"local", "up", "-c", "alarmSilence=x"}))
}

// answering returns the URL of a server of this machine.
func answering(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	return server.URL
}

func TestUpOfARunThatIsUpSaysWhereItIs(t *testing.T) {
	folder := project(t)
	held, err := Lock(filepath.Join(folder, ".local", "run"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	already := fmt.Sprintf("payhook: it is running here already (process %d); make down ends it\n", os.Getpid())
	if _, stderr, status := command(t, "up"); status != cli.StatusFailed || stderr != already {
		t.Errorf("while it starts: %d, %s", status, stderr)
	}
	run := &stack.Stack{Endpoint: answering(t), Given: map[string]string{"alarmSilence": "1h"}}
	if err := run.Write(folder); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"-c", "alarmSilence=1h"}} {
		if out, stderr, status := command(t, append([]string{"up"}, flags...)...); status != 0 ||
			!strings.HasPrefix(out, "Everything is up; .local/up.json says where.") {
			t.Errorf("%q: %d, %s%s", flags, status, out, stderr)
		}
	}
	if out, stderr, status := command(t, "up", "-c", "alarmSilence=2h"); status == 0 || out != "" ||
		!strings.Contains(stderr, `other settings: make down && make up SETTINGS="alarmSilence=2h"`) {
		t.Errorf("%d, %s%s", status, out, stderr)
	}
}

func TestAFailureOnAFullDiskSaysSo(t *testing.T) {
	failed, folder := errors.New("it failed"), t.TempDir()
	if err := withDisk(failed, folder, math.MaxUint64); !errors.Is(err, failed) ||
		!strings.Contains(err.Error(), "it failed\nthe disk of "+folder+" is almost full: ") {
		t.Error(err)
	}
	if err := withDisk(failed, folder, 0); err != failed {
		t.Errorf("on a disk that is not full: %v", err)
	}
	if err := withDisk(nil, folder, math.MaxUint64); err != nil {
		t.Errorf("without a failure: %v", err)
	}
}

func TestUpShowsWhyItDidNotStart(t *testing.T) {
	folder := project(t)
	t.Setenv("PAYHOOK_READY", "1")
	if err := (&stack.Stack{}).Write(folder); err != nil { // a run that was killed left it
		t.Fatal(err)
	}
	if out, stderr, status := command(t, "up"); status != cli.StatusFailed || out != "" ||
		!strings.Contains(stderr, "payhook: these settings are wrong:\n  alarmSilence=x (-c): must be") ||
		!strings.HasSuffix(stderr, "payhook: the process in the background ended: exit status 2\n") {
		t.Errorf("%d, %s%s", status, out, stderr)
	}
}

func TestWrongCallStartsNothing(t *testing.T) {
	project(t)
	for args, message := range map[string]string{
		"":                               "needs a command",
		"upp":                            "did you mean up?",
		"up stray":                       "unknown command \"stray\"",
		"up -c nothing=1":                "nothing: no such setting",
		"up -c timestampTolerance":       "timestampTolerance",
		"up -c timestamptolerance=2m":    "timestamptolerance: no such setting",
		"up -c baseUrl=http://127.0.0.1": "baseUrl cannot be set here",
		"down --stack Other":             "takes no --stack",
		"down --id Payments":             "takes no --id",
	} {
		if out, stderr, status := command(t, strings.Fields(args)...); status != cli.StatusUsage ||
			!strings.Contains(stderr, message) || out != "" {
			t.Errorf("%s: %d, %s%s", args, status, out, stderr)
		}
	}
	t.Chdir(t.TempDir())
	if _, stderr, status := command(t, "down"); status != cli.StatusUsage ||
		!strings.Contains(stderr, "is in no clone of Payhook") {
		t.Errorf("%d, %s", status, stderr)
	}
}

// The CDK app follows settings.json, and so does the simulated service.
func TestTheServiceFollowsTheSettings(t *testing.T) {
	top := project(t)
	given := func(args ...string) map[string]string {
		t.Helper()
		o := &options{given: map[string]string{}}
		cmd := o.command(&cli.Program{}, "up", "",
			func(context.Context, *cli.Program, options) error { return nil })
		o.register(cmd)
		cmd.SetArgs(append([]string{}, args...)) // nil would be the arguments of the test
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return o.settings
	}
	if got := given(); len(got) > 0 {
		t.Errorf("without a file: %v", got)
	}
	const file = `{"timestampLocation":"query:ts","keyIdLocation":"query:kid",` +
		`"storeRejected":7,"baseUrl":"https://a","truststore":"ca.pem"}`
	name := filepath.Join(top, "infra", "settings.json")
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(file), 0o600)); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"timestampLocation": "query:ts", "keyIdLocation": "header:K", "storeRejected": "7",
		"truststore": "ca.pem", "timestampTolerance": "2m", "successStatus": "201"}
	got := given("-c", "keyIdLocation=header:K", "-c", " timestampTolerance=2m  successStatus=201 ")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := os.WriteFile(name, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, status := command(t, "up"); status != cli.StatusUsage || !strings.Contains(stderr, "settings.json") {
		t.Errorf("%d, %s", status, stderr)
	}
}

func TestMissingSettingsAreAdded(t *testing.T) {
	m := &machine{options: options{state: t.TempDir()}, serverCA: paymenttest.NewCA("Local Server CA"),
		service: paymenttest.NewServer(paymenttest.Options{})}
	t.Cleanup(m.service.Close)
	m.identity = paymenttest.NewIdentity(m.serverCA.Certificate)
	type values map[string]string
	for _, test := range []struct{ given, want values }{
		{values{}, values{"storeRejected": "7d"}},
		{values{"authentication": "both", "storeRejected": "off"}, values{"authentication": "both",
			"storeRejected": "off", "domainName": localDomain, "certificateArn": localCertificate,
			"truststore": m.tlsFile("truststore")}},
		{values{"authentication": "mtls", "domainName": "a.example", "hostedZoneId": "Z", "truststore": "a.pem"},
			values{"authentication": "mtls", "domainName": "a.example", "hostedZoneId": "Z", "truststore": "a.pem"}},
		{values{"domainName": "a.example"},
			values{"domainName": "a.example", "certificateArn": localCertificate, "storeRejected": "7d"}},
	} {
		s, err := m.newStack(test.given)
		if err != nil {
			t.Fatal(err)
		}
		test.want["evidence"] = "1d"
		if diff := cmp.Diff(test.want, values(s.Stack.Settings)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", test.given, diff)
		}
	}
}

// A shell evaluates what is printed, in place of a profile that is set.
func TestEnvironmentIsForShells(t *testing.T) {
	folder := project(t)
	if _, message, status := command(t, "env"); status != cli.StatusFailed || !strings.Contains(message, "make up") {
		t.Errorf("%d, %s", status, message)
	}
	const secret = "arn:aws:secretsmanager:us-east-1:000000000000:secret:it's one; exit 1"
	run := &stack.Stack{Endpoint: answering(t), Region: "eu-north-1", TokenSecret: secret,
		PaymentService: "http://127.0.0.1:2"}
	if err := run.Write(folder); err != nil {
		t.Fatal(err)
	}
	t.Setenv("no_proxy", "internal.example")
	t.Setenv("NO_PROXY", "127.0.0.1")
	t.Setenv("AWS_ENDPOINT_URL_S3", "https://s3.example")
	out, _, _ := command(t, "env")
	want := "AWS_ACCESS_KEY_ID=test\nAWS_CONFIG_FILE=/dev/null\nAWS_DEFAULT_REGION=eu-north-1\n" +
		"AWS_EC2_METADATA_DISABLED=true\nAWS_ENDPOINT_URL=" + run.Endpoint + "\nAWS_REGION=eu-north-1\n" +
		"AWS_SECRET_ACCESS_KEY=test\nAWS_SHARED_CREDENTIALS_FILE=/dev/null\nBASE_URL=http://127.0.0.1:2\n" +
		"CDK_VALIDATION=false\nNO_PROXY=127.0.0.1\nTOKEN_SECRET=" + secret + "\nno_proxy=127.0.0.1,internal.example\n"
	for _, name := range []string{"sh", "bash", "zsh"} {
		if _, err := exec.LookPath(name); err != nil && name != "sh" {
			continue
		}
		shell := exec.CommandContext(t.Context(), name, "-c",
			`eval "$1"; env | grep -E "AWS|CDK|TOKEN|BASE_URL|no_proxy|NO_PROXY" | LC_ALL=C sort`, name, out)
		shell.Env = []string{"PATH=/usr/bin:/bin", "AWS_PROFILE=production", "AWS_SESSION_TOKEN=x",
			"AWS_ENDPOINT_URL_S3=https://s3.example", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true"}
		if text, err := shell.Output(); err != nil || string(text) != want {
			t.Errorf("%s: %v, %s", name, err, text)
		}
	}
	out, _, _ = command(t, "env", "--json")
	var all map[string]string
	if err := json.Unmarshal([]byte(out), &all); err != nil || all["TOKEN_SECRET"] != secret || len(all) != 13 {
		t.Errorf("%v, %s", err, out)
	}
}

func TestCommandEndsWithItsContextAndEveryProcess(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	cmd := exec.Command("/bin/sh", "-c", "trap '' TERM; sleep 1000 & echo $!; wait")
	cmd.Stdout = writer
	ended := make(chan error, 1)
	go func() { ended <- runGroup(ctx, cmd) }()
	child, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want context canceled", err)
	}
	if state, _ := exec.Command("ps", "-o", "stat=", "-p", strings.TrimSpace(child)).Output(); len(state) > 0 &&
		state[0] != 'Z' {
		t.Errorf("the child is left: %s", state)
	}
}

func TestFailedCommandShowsItsOutput(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	err := runLogged(t.Context(), log, exec.Command("sh", "-c", "echo for this reason; exit 3"))
	if err == nil || !strings.Contains(err.Error(), "for this reason") ||
		!strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error = %v", err)
	}
	text, readErr := os.ReadFile(log)
	if readErr != nil || !strings.Contains(string(text), "for this reason") {
		t.Errorf("the log has %q, %v", text, readErr)
	}
	if info, err := os.Stat(log); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the log can be read by others: %v, %v", info, err)
	}
}

func TestLongStepShowsItsSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		t.Setenv(startedVariable, strconv.FormatInt(time.Now().Add(-100*time.Second).Unix(), 10))
		failed := errors.New("it failed")
		if err := NewProgress(&out).Step("slow", func() error {
			time.Sleep(20 * time.Second)
			return failed
		}); !errors.Is(err, failed) {
			t.Error(err)
		}
		want := "[   100s] slow ...\n[   108s] slow: 8s so far\n[   116s] slow: 16s so far\n" +
			"[   120s] slow: failed after 20s\n"
		if out.String() != want {
			t.Errorf("%s, want %s", &out, want)
		}
	})
}
