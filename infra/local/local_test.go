package local

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/infra/local/emulator"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/paymenttest"
)

// startParentAndChild starts a process with a child, both of which ignore SIGTERM, and
// returns their group when both run.
// programs makes a folder with programs that print a version the only one in which
// programs are searched.
// command runs a command as the program does.
func command(t *testing.T, args ...string) (out, stderr string, status int) {
	t.Helper()
	var o, e bytes.Buffer
	p := &cli.Program{In: strings.NewReader(""), Out: &o, Err: &e, Now: time.Now}
	root, meant := p.Root(""), deployment.Target{}
	cli.TargetFlags(root, &meant)
	root.AddCommand(Command(p))
	status = p.Run(t.Context(), root, append([]string{"local"}, args...))
	return o.String(), e.String(), status
}

// programs makes a folder with programs that print a version the only one of PATH.
func programs(t *testing.T, versions map[string]string) {
	t.Helper()
	folder := t.TempDir()
	t.Setenv("PATH", folder)
	for name, version := range versions {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\necho "+version+"\n"),
			0o700); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheckShowsVersions(t *testing.T) {
	programs(t, map[string]string{"node": "v20.11.1", "npm": "10.2.4", "python3": "Python 3.11.7"})
	out, stderr, status := command(t, "check")
	for _, want := range []string{"node     20.11.1; it works, but is no longer supported by its makers: 22 or newer " +
		"is recommended\n", "npm      10.2.4\n", "python3  3.11.7\n", "Everything that is needed is installed."} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
	if status != 0 || stderr != "" {
		t.Errorf("%d, %s", status, stderr)
	}
	programs(t, map[string]string{"node": "v22.1.0", "npm": "10.2.4", "python3": "Python 3.9.1"})
	if out, stderr, status := command(t, "check"); status != cli.StatusFailed ||
		!strings.Contains(stderr, "python3 is too old (Python 3.9.1)") || !strings.Contains(out, "22.1.0\n") {
		t.Errorf("%d, %s%s", status, out, stderr)
	}
}

// The versions that the README names are those that the check needs and recommends.
// project makes a folder with a go.mod the current one.
func project(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "go.mod"), nil, 0o600); err != nil {
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

	// A process that holds the lock, as run and up do, until it is asked to end.
	state := filepath.Join(folder, ".local", "run")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	holder := exec.Command(os.Args[0], "-test.run=^TestHoldTheLock$")
	holder.Env = append(emulator.EnvironmentWithout("PAYHOOK_"), "PAYHOOK_TEST_HOLDS="+state)
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "locked\n" {
		t.Fatalf("%q, %v", line, err)
	}
	ended := make(chan struct{})
	go func() {
		holder.Wait() // so that it does not stay as a zombie
		close(ended)
	}()
	if out, _, status := command(t, "status"); status != cli.StatusFailed || !strings.Contains(out, "starting") {
		t.Errorf("%d, %s", status, out)
	}
	want := fmt.Sprintf("The local run has ended (process %d); nothing is left running.\n", holder.Process.Pid)
	if got, stderr, status := command(t, "down"); status != 0 || got != want {
		t.Errorf("%d, %s%s", status, got, stderr)
	}
	<-ended
}

// TestHoldTheLock is the process that TestDownEndsTheRun ends.
func TestHoldTheLock(t *testing.T) {
	state := os.Getenv("PAYHOOK_TEST_HOLDS")
	if state == "" {
		t.Skip("it is run by another test")
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	l, err := emulator.Lock(state)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("locked")
	<-ctx.Done()
	l.Close()
}

func TestStatusShowsTheState(t *testing.T) {
	folder := project(t)
	if out, _, status := command(t, "status"); status != cli.StatusFailed || out != "state  down\n" {
		t.Errorf("%d, %q", status, out)
	}
	l, err := emulator.Lock(filepath.Join(folder, ".local", "run"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	healthy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != emulator.HealthPath {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(healthy.Close)
	for _, test := range []struct {
		endpoint, state string
		status          int
	}{{healthy.URL, stateUp, 0}, {"http://127.0.0.1:1", stateBroken, cli.StatusFailed}} {
		if err := (&deployment.Deployment{Endpoint: test.endpoint, Stack: "Payhook",
			WebhookURL: "http://127.0.0.1:2/"}).Write(folder); err != nil {
			t.Fatal(err)
		}
		out, _, status := command(t, "status", "--json")
		var got struct {
			State, WebhookURL string
			PID               int
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil || status != test.status || got.State != test.state ||
			got.PID != os.Getpid() || got.WebhookURL != "http://127.0.0.1:2/" {
			t.Errorf("%d, %s, %v", status, out, err)
		}
		if out, _, _ := command(t, "status"); !strings.Contains(out, test.state) ||
			!strings.Contains(out, "http://127.0.0.1:2/") {
			t.Error(out)
		}
	}
}

func TestHintsForAnotherPaymentServiceNameTheKey(t *testing.T) {
	if text := hints(&deployment.Deployment{Simulated: true}); !strings.Contains(text, "make send  ") ||
		strings.Contains(text, "--key") {
		t.Error(text)
	}
	text := hints(&deployment.Deployment{PaymentService: "https://api.payments.example"})
	if !strings.Contains(text, `make send ARGS="--key FILE --key-id UUID"`) ||
		!strings.Contains(text, "https://api.payments.example") || strings.Contains(text, "make send  ") {
		t.Error(text)
	}
}

func TestWrongCallStartsNothing(t *testing.T) {
	project(t)
	for args, message := range map[string]string{
		"":                               "needs a command",
		"upp":                            "did you mean up?",
		"run --base-url http://a":        "use payhook local up",
		"run --truststore ca.pem":        "use payhook local up",
		"up stray":                       "takes no argument",
		"up -c nothing=1":                "there is no such setting",
		"up -c baseUrl=http://127.0.0.1": "not a setting of local runs",
		"down --stack Other":             "takes no --stack",
		"status --profile x":             "takes no --profile",
	} {
		if out, stderr, status := command(t, strings.Fields(args)...); status != cli.StatusUsage ||
			!strings.Contains(stderr, message) || out != "" {
			t.Errorf("%s: %d, %s%s", args, status, out, stderr)
		}
	}
	t.Chdir(t.TempDir())
	if _, stderr, status := command(t, "down"); status != cli.StatusUsage ||
		!strings.Contains(stderr, "not in the project") {
		t.Errorf("%d, %s", status, stderr)
	}
}

// up passes its flags on to its process in the background.
func TestBackgroundProcessGetsTheFlags(t *testing.T) {
	parse := func(args []string) *options {
		o := &options{}
		cmd := &cobra.Command{}
		o.register(cmd)
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		return o
	}
	want := parse([]string{"--base-url", "http://a", "--auth-url", "http://b", "--truststore", "ca.pem", "-c",
		"payhook:redriveGrace=1m keyMissBudget=7", "-c", "eventSource=a"})
	got := parse(want.args())
	if got.baseURL != want.baseURL || got.authURL != want.authURL || got.truststore != want.truststore ||
		!maps.Equal(got.given, want.given) || len(got.given) != 3 {
		t.Errorf("%+v became %+v", want, got)
	}
}

func TestSettingsAreCheckedByName(t *testing.T) {
	got := map[string]string{}
	if err := addSettings(got, " timestampTolerance=2m  keyMissBudget=100 "); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"timestampTolerance": "2m", "keyMissBudget": "100"}, got); diff != "" {
		t.Error(diff)
	}
	for _, text := range []string{"timestampTolerance", "timestamptolerance=2m", "local=false",
		"baseUrl=http://127.0.0.1"} {
		if err := addSettings(got, text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

// The CDK app follows cdk.json, and so does the simulated service.
func TestServiceFollowsCdkJSON(t *testing.T) {
	top := project(t)
	given := func(args ...string) map[string]string {
		t.Helper()
		o, cmd := &options{}, &cobra.Command{}
		o.register(cmd)
		cmd.RunE = local(&cli.Program{}, o, func(context.Context) error { return nil })
		cmd.SetArgs(append([]string{}, args...)) // nil would be the arguments of the test
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := len(args) / 2; len(o.given) != want {
			t.Errorf("%v were given, want %d", o.given, want)
		}
		return o.settings
	}
	if got := given(); len(got) > 0 {
		t.Errorf("without cdk.json: %v", got)
	}
	const file = `{"app":"x","context":{"timestampCarrier":"query:ts","keyIdCarrier":"query:kid","captureRejected":7,` +
		`"baseUrl":"https://a","truststore":"ca.pem","@aws-cdk/x":true}}`
	if err := os.WriteFile(filepath.Join(top, "cdk.json"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"timestampCarrier": "query:ts", "keyIdCarrier": "header:K", "captureRejected": "7"}
	if diff := cmp.Diff(want, given("-c", "keyIdCarrier=header:K")); diff != "" {
		t.Error(diff)
	}
	if err := os.WriteFile(filepath.Join(top, "cdk.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, status := command(t, "up"); status != cli.StatusUsage || !strings.Contains(stderr, "cdk.json") {
		t.Errorf("%d, %s", status, stderr)
	}
}

func TestUpCapturesRejectedWebhooks(t *testing.T) {
	for _, test := range []struct {
		capture bool
		conf    map[string]string
		want    string
	}{
		{true, nil, "7d"},
		{true, map[string]string{"authentication": "both"}, "7d"},
		{true, map[string]string{"captureRejected": "off"}, "off"},
		{true, map[string]string{"authentication": "mtls"}, ""}, // it would be rejected
		{false, nil, ""},
	} {
		before := maps.Clone(test.conf)
		got := withCapture(options{capture: test.capture, settings: test.conf})
		if got["captureRejected"] != test.want || got["authentication"] != test.conf["authentication"] {
			t.Errorf("%v became %v", test.conf, got)
		}
		if !maps.Equal(before, test.conf) {
			t.Errorf("%v was changed", before)
		}
	}
}

// TestMiniStackDoesNotStartWithAPatchThatDoesNotFit runs the launcher on
// packages that are named like MiniStack and differ from it.
func TestMissingSettingsOfTheEndpointAreAdded(t *testing.T) {
	m := &machine{opts: options{state: t.TempDir()}, serverCA: paymenttest.NewCA("Local Server CA")}
	m.identity = paymenttest.NewIdentity(m.serverCA.Certificate)
	files := m.tlsFiles()
	for _, test := range []struct{ given, want map[string]string }{
		{map[string]string{}, map[string]string{}},
		{map[string]string{"authentication": "signature"}, map[string]string{"authentication": "signature"}},
		{map[string]string{"authentication": "both"}, map[string]string{
			"authentication": "both", "domainName": localDomain, "certificateArn": localCertificate,
			"truststore": files.truststore}},
		{map[string]string{"authentication": "mtls", "domainName": "a.example", "hostedZoneId": "Z1",
			"truststore": "their.pem"}, map[string]string{
			"authentication": "mtls", "domainName": "a.example", "hostedZoneId": "Z1", "truststore": "their.pem"}},
		{map[string]string{"domainName": "a.example"},
			map[string]string{"domainName": "a.example", "certificateArn": localCertificate}},
	} {
		s, err := m.newStack(test.given)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, s.Settings); diff != "" {
			t.Errorf("%v (-want +got):\n%s", test.given, diff)
		}
	}
	text, err := os.ReadFile(files.truststore)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clientcert.ParseTruststore(text, time.Now()); err != nil {
		t.Errorf("the truststore is refused at synth: %v", err)
	}
	if _, err := tls.LoadX509KeyPair(files.clientCert, files.clientKey); err != nil {
		t.Error(err)
	}

	m.opts.truststore = "other.pem"
	if s, err := m.newStack(map[string]string{"authentication": "mtls"}); err != nil ||
		s.Settings["truststore"] != "other.pem" {
		t.Errorf("%+v, %v, want the given truststore", s, err)
	}
	if _, err := m.newStack(map[string]string{}); err == nil {
		t.Error("a truststore was taken without mTLS")
	}
}
