package local

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/paymenttest"
)

// startParentAndChild starts a process with a child, both of which ignore SIGTERM, and
// returns their group when both run.
func startParentAndChild(t *testing.T, folder string) *group {
	t.Helper()
	script := filepath.Join(folder, "children.sh")
	text := "#!/bin/sh\ntrap '' TERM\n(trap '' TERM; echo child; while :; do sleep 1; done) &\necho parent\nwait\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd := exec.Command("/bin/sh", script)
	cmd.Stdout = write
	g, err := startGroup(cmd)
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(-g.pid, syscall.SIGKILL) })
	output := make([]byte, len("child\nparent\n"))
	for n := 0; n < len(output); {
		more, err := read.Read(output[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += more
	}
	return g
}

func TestStoppingAGroupEndsEveryProcessOfIt(t *testing.T) {
	for _, grace := range []time.Duration{0, 10 * time.Millisecond} {
		g := startParentAndChild(t, t.TempDir())
		g.stop(grace)
		if runs(g.pid) {
			t.Errorf("grace %s: a process is left", grace)
		}
	}
}

func TestACommandEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	folder := t.TempDir()
	log := filepath.Join(folder, "log")
	ended := make(chan error, 1)
	go func() { ended <- logged(ctx, log, exec.Command("sleep", "1000")) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want context canceled", err)
	}
}

func TestAFailedCommandShowsWhatItSaid(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	err := logged(t.Context(), log, exec.Command("sh", "-c", "echo for this reason; exit 3"))
	if err == nil || !strings.Contains(err.Error(), "for this reason") ||
		!strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error = %v", err)
	}
	text, readErr := os.ReadFile(log)
	if readErr != nil || !strings.Contains(string(text), "for this reason") {
		t.Errorf("the log has %q, %v", text, readErr)
	}
}

func TestOneProcessAtATimeUsesAFolder(t *testing.T) {
	folder := t.TempDir()
	first, err := lockFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	_, err = lockFolder(folder)
	held, ok := errors.AsType[errLocked](err)
	if !ok || held.pid != os.Getpid() {
		t.Errorf("a second lock: %v, want that process %d holds it", err, os.Getpid())
	}
	first.release()
	second, err := lockFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	second.release()
}

func TestProcessesOfAKilledRunAreEnded(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	ours := startParentAndChild(t, folder)
	if err := remember(folder, ours.pid); err != nil {
		t.Fatal(err)
	}
	if !endLeftovers(folder) || runs(ours.pid) {
		t.Error("the process is left")
	}

	// The number is another process' by now.
	others := startParentAndChild(t, t.TempDir())
	if err := remember(folder, others.pid); err != nil {
		t.Fatal(err)
	}
	if endLeftovers(folder) || !runs(others.pid) {
		t.Error("a process that is not ours was ended")
	}
	if endLeftovers(folder) {
		t.Error("it is remembered still")
	}
	others.stop(0)
}

func TestVersionsAreCompared(t *testing.T) {
	for text, want := range map[string]bool{
		"v20.0.0": true, "v20.11.1\n": true, "v22.1.0": true, "Python 20.0": true,
		"v19.9.9": false, "8.0": false, "": false, "none": false,
	} {
		if got := atLeast(text, 20, 0); got != want {
			t.Errorf("%q is at least 20.0: %t, want %t", text, got, want)
		}
	}
	if atLeast("3.9.18", 3, 10) || !atLeast("Python 3.10.0", 3, 10) {
		t.Error("the minor version is not compared as a number")
	}
}

// programs makes a folder with programs that print a version the only one in which
// programs are searched.
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

func TestMissingProgramsAreNamed(t *testing.T) {
	programs(t, map[string]string{"node": "v1.2.3"})
	_, err := findTools()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"node is too old (v1.2.3); version 20.0", "npm is not installed",
		"python3 is not installed; version 3.10 or newer is needed"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
}

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

func TestTheCheckShowsWhatItFound(t *testing.T) {
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
func TestTheREADMENamesTheVersionsThatAreChecked(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requirements {
		want := map[string]string{
			"node":    fmt.Sprintf("Node %d (%d works", r.recommended, r.major),
			"python3": fmt.Sprintf("Python %d.%d", r.major, r.minor),
		}[r.program]
		if !strings.Contains(string(text), want) {
			t.Errorf("README.md does not contain %q", want)
		}
	}
}

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

func TestDownPrintsWhatItEnded(t *testing.T) {
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
	holder.Env = append(environmentWithout("PAYHOOK_"), "PAYHOOK_TEST_HOLDS="+state)
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

// TestHoldTheLock is the process that TestDownPrintsWhatItEnded ends.
func TestHoldTheLock(t *testing.T) {
	state := os.Getenv("PAYHOOK_TEST_HOLDS")
	if state == "" {
		t.Skip("it is run by another test")
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	l, err := lockFolder(state)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("locked")
	<-ctx.Done()
	l.release()
}

func TestTheStatusSaysWhetherEverythingIsUp(t *testing.T) {
	folder := project(t)
	if out, _, status := command(t, "status"); status != cli.StatusFailed || out != "state  down\n" {
		t.Errorf("%d, %q", status, out)
	}
	l, err := lockFolder(filepath.Join(folder, ".local", "run"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.release()
	healthy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != healthPath {
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

func TestTheHintsSayThatAnotherPaymentServiceNeedsAKey(t *testing.T) {
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

func TestAWrongCallStartsNothing(t *testing.T) {
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

// What up passes on to its process in the background is what it was given.
func TestTheProcessInTheBackgroundGetsTheFlags(t *testing.T) {
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
		"redriveGrace=1m keyMissBudget=7", "-c", "eventSource=a"})
	got := parse(want.args())
	if got.baseURL != want.baseURL || got.authURL != want.authURL || got.truststore != want.truststore ||
		!maps.Equal(got.given, want.given) || len(got.given) != 3 {
		t.Errorf("%+v became %+v", want, got)
	}
}

func TestTheTableFitsTheTerminal(t *testing.T) {
	right := Result{Right: true, Topic: ofDeliveries, What: strings.Repeat("what ", 20), Got: "200 1 new, 0 known",
		Expected: "200", Arrived: map[string]int{released: 1, needsAttention: 1},
		ExpectedArrived: map[string]int{released: 1, needsAttention: 1}, Milliseconds: 1200}
	wrong := right
	wrong.Right, wrong.Topic = false, ofParked
	wrong.Got = strings.Repeat("a long detail ", 20) + strings.Repeat("x", 200)
	show := func(width int, wide bool, results ...Result) string {
		var out bytes.Buffer
		r := report{Parts: []Part{{Webhooks: results, Checks: []Result{right}},
			{Title: "PayhookMTLS", Checks: []Result{right}}}, Note: strings.Repeat("a note ", 30)}
		if err := r.print(&out, width, wide); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	words := func(text string) string { return strings.Join(strings.Fields(text), "") }
	for _, width := range []int{60, 80, 100, 120, 300} {
		text := show(width, false, right, wrong, right)
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("a line has %d columns, want at most %d: %s", n, width, line)
			}
		}
		// What is wrong is shown in full.
		_, last, _ := strings.Cut(text, "WRONG     what")
		want := words("result " + wrong.Got + "expected 200 arrived needs-attention 1, released 1")
		if !strings.Contains(words(last), want) || !strings.Contains(last, "1 of 5 results are wrong.") {
			t.Errorf("width %d: the wrong result is not shown in full:\n%s", width, text)
		}
	}
	text := show(80, false, right, right)
	for _, want := range []string{
		"\nTOPIC                                          RESULTS  WRONG  TIME\n" +
			"Deliveries, duplicates and rules               2        -      2.4 s\n" +
			"Deliveries, duplicates and rules               1        -      1.2 s\n" +
			"PayhookMTLS: deliveries, duplicates and rules  1        -      1.2 s\n",
		"\nAll 4 results are as expected.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	text = show(80, true, right)
	for _, want := range []string{right.What, "EXPECTED", "1200\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

func TestACellIsWrappedWithoutLosingAnything(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 12, []string{""}},
		{"as it is", 8, []string{"as it is"}},
		{"two lines", 8, []string{"two", "lines"}},
		{"a\nline break", 12, []string{"a line break"}},
		{"ab abcdefghij c", 4, []string{"ab", "abcd", "efgh", "ij c"}},
		{"größer größer", 6, []string{"größer", "größer"}},
	} {
		if got := wrap(c.text, c.width); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
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

func TestEachEventIsAttributedToTheRowThatCausedIt(t *testing.T) {
	events := paymenttest.Events(3)
	first, second, forged := &row{webhook: deliver(events...)}, &row{webhook: deliver(events...)},
		&row{webhook: raw([]byte("{"))}
	rows := []*row{first, second, forged}
	var all []arrival
	for _, e := range events {
		all = append(all, arrival{rule: released, eventID: e.EventID})
	}
	attribute(rows, append(all, arrival{rule: euro, eventID: events[0].EventID},
		arrival{rule: euro, eventID: "another"}))
	if diff := cmp.Diff([]map[string]int{{released: 3, euro: 1}, {}, {}},
		[]map[string]int{first.arrived, second.arrived, forged.arrived}); diff != "" {
		t.Error(diff)
	}
	// A duplicate that got through shows where it was sent.
	attribute(rows, append(all, all[0], all[0]))
	if diff := cmp.Diff([]map[string]int{{released: 3}, {released: 2}},
		[]map[string]int{first.arrived, second.arrived}); diff != "" {
		t.Error(diff)
	}
}

func TestARowIsRightOnlyIfEveryPartIs(t *testing.T) {
	newRow := func() *row {
		return &row{
			sent: "one", status: 200, answer: `"recorded":1`, header: "Allow", arrivals: map[string]int{released: 1},
			arrived: map[string]int{released: 1},
			got: paymenttest.Answer{Status: 200,
				Header: http.Header{"Allow": {"POST"}, "Content-Type": {"application/json"}},
				Body:   []byte(`{ "recorded": 1 }`)},
		}
	}
	if !newRow().right() {
		t.Error("a row that is right is wrong")
	}
	for name, change := range map[string]func(*row){
		"status":      func(r *row) { r.got.Status = 202 },
		"body":        func(r *row) { r.got.Body = []byte(`{"recorded":2}`) },
		"header":      func(r *row) { r.got.Header.Del("Allow") },
		"type":        func(r *row) { r.got.Header.Set("Content-Type", "text/plain") },
		"none":        func(r *row) { r.arrived = map[string]int{} },
		"twice":       func(r *row) { r.arrived = map[string]int{released: 2} },
		"other rule":  func(r *row) { r.arrived = map[string]int{released: 1, euro: 1} },
		"unreachable": func(r *row) { r.err = errors.New("no answer") },
	} {
		r := newRow()
		change(r)
		if r.right() {
			t.Errorf("%s: a row that is wrong is right", name)
		}
		if got := rowResults([]*row{newRow(), r}); !got[0].Right || got[1].Right {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestRejectionsThatDifferAreWrong(t *testing.T) {
	refused := func(body string) *row {
		return &row{status: 401, arrived: map[string]int{}, got: paymenttest.Answer{
			Status: 401, Header: http.Header{"Content-Type": {"application/problem+json"}}, Body: []byte(body)}}
	}
	if got := rowResults([]*row{refused(`{"a":1}`), refused(`{"a":2}`), refused(`{"a":1}`)}); wrongOf(got) != 1 ||
		got[1].Right {
		t.Errorf("%+v, want that the second is wrong", got)
	}
}

// The CDK app follows cdk.json, and so does the simulated service.
func TestTheSettingsOfTheServiceAreAlsoThoseOfCdkJSON(t *testing.T) {
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
	const file = `{"app":"x","context":{"timestampCarrier":"query:ts","keyIdCarrier":"query:kid","captureRefused":7,` +
		`"baseUrl":"https://a","truststore":"ca.pem","@aws-cdk/x":true}}`
	if err := os.WriteFile(filepath.Join(top, "cdk.json"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"timestampCarrier": "query:ts", "keyIdCarrier": "header:K", "captureRefused": "7"}
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

func TestUpStoresRejectedWebhooksUnlessTheSettingsSayOtherwise(t *testing.T) {
	for _, test := range []struct {
		capture bool
		conf    map[string]string
		want    string
	}{
		{true, nil, "7d"},
		{true, map[string]string{"authentication": "both"}, "7d"},
		{true, map[string]string{"captureRefused": "off"}, "off"},
		{true, map[string]string{"authentication": "mtls"}, ""}, // it would be rejected
		{false, nil, ""},
	} {
		before := maps.Clone(test.conf)
		got := withCapture(options{capture: test.capture, settings: test.conf})
		if got["captureRefused"] != test.want || got["authentication"] != test.conf["authentication"] {
			t.Errorf("%v became %v", test.conf, got)
		}
		if !maps.Equal(before, test.conf) {
			t.Errorf("%v was changed", before)
		}
	}
}

// TestMiniStackDoesNotStartWithAPatchThatDoesNotFit runs the launcher on
// packages that are named like MiniStack and differ from it.
func TestMiniStackDoesNotStartWithAPatchThatDoesNotFit(t *testing.T) {
	top, err := projectTop()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, app, message string }{
		{"a function is gone", "", "there is no function pin_request_origin"},
		{"a function has other parameters", "def pin_request_origin(origin): pass\n", "has the parameters ['origin']"},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			other := filepath.Join(folder, "ministack")
			if err := os.Mkdir(other, 0o700); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"__init__.py": "", "__main__.py": "print('started')\n",
				"app.py": test.app} {
				if err := os.WriteFile(filepath.Join(other, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			// Only the patch that is looked at: the others do not fit either.
			for _, name := range []string{"start.py", "patching.py", "secure_transport.py"} {
				text, err := os.ReadFile(filepath.Join(filepath.Dir(tools{top}.ministack()), name))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.Command("python3", filepath.Join(folder, "start.py")).CombinedOutput()
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.ExitCode() != patchDoesNotFit {
				t.Errorf("it ends with %v, want status %d", err, patchDoesNotFit)
			}
			if text := string(out); !strings.Contains(text, "secure_transport.py") ||
				!strings.Contains(text, test.message) || strings.Contains(text, "started") {
				t.Errorf("output %q, want the patch's name and %q", text, test.message)
			}
		})
	}
}

func TestTheSettingsOfTheEndpointAreFilledIn(t *testing.T) {
	s := &stack{opts: options{state: t.TempDir()}}
	s.newIdentity()
	files := s.tlsFiles()
	for _, test := range []struct{ given, want map[string]string }{
		{nil, map[string]string{}},
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
		got, err := s.completeSettings(test.given)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
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

	s.opts.truststore = "other.pem"
	if got, err := s.completeSettings(map[string]string{"authentication": "mtls"}); err != nil ||
		got["truststore"] != "other.pem" {
		t.Errorf("the truststore is %q, %v, want the one that was given", got["truststore"], err)
	}
	if _, err := s.completeSettings(nil); err == nil {
		t.Error("a truststore was taken without mTLS")
	}
}
