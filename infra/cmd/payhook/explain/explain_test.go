package explain

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/explain"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/signature"
)

// run runs the command in a folder with that cdk.json.
func run(t *testing.T, context map[string]any, in string, args ...string) (out, stderr string, status int) {
	t.Helper()
	t.Chdir(t.TempDir())
	if context != nil {
		text, err := json.Marshal(map[string]any{"app": "x", "context": context})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("cdk.json", text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var o, e bytes.Buffer
	p := &cli.Program{In: strings.NewReader(in), Out: &o, Err: &e, Now: time.Now}
	root, where := p.Root("test"), &deployment.Target{}
	cli.TargetFlags(root, where)
	root.AddCommand(Command(p, where))
	status = p.Run(t.Context(), root, append([]string{"explain"}, args...))
	return o.String(), e.String(), status
}

// webhook returns a request of a service that carries timestamp and key id in places of
// its own. The payload has what shells and dumps treat specially.
func webhook(t *testing.T, s *paymenttest.Server) (*http.Request, []byte) {
	t.Helper()
	timestamp, err := signature.ParseCarrier("header:X-Brand-Time")
	if err != nil {
		t.Fatal(err)
	}
	keyID, err := signature.ParseCarrier("query:kid")
	if err != nil {
		t.Fatal(err)
	}
	sender := s.Sender()
	sender.Scheme = signature.Scheme{SignatureHeader: "X-Brand-Signature", Timestamp: timestamp, KeyID: keyID}
	payload := []byte(`{"a":"it's \"$HOME\" \\ ! ` + "`id` ö" + `","b":[1.00]}`)
	r, err := sender.Request(t.Context(), paymenttest.Webhook{URL: "https://hook.example/in?x=1", Payload: payload})
	if err != nil {
		t.Fatal(err)
	}
	return r, payload
}

// dump returns the request as HTTP/1.1 has it.
func dump(r *http.Request, payload []byte, lineBreak, further string) string {
	var text strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&text, format+lineBreak, args...) }
	line("%s %s HTTP/1.1", r.Method, r.URL.RequestURI())
	line("Host: hook.example")
	for name := range r.Header {
		line("%s: %s", name, r.Header.Get(name))
	}
	if further != "" {
		line("%s", further)
	}
	line("")
	return text.String() + string(payload)
}

func curl(r *http.Request, data string) string {
	text := "curl '" + r.URL.String() + "' \\\n  --compressed -sS"
	for name := range r.Header {
		text += " \\\n  -H '" + name + ": " + r.Header.Get(name) + "'"
	}
	return text + " \\\n  " + data + "\n"
}

func event(t *testing.T, r *http.Request, payload []byte, encoded bool) string {
	t.Helper()
	e := events.APIGatewayV2HTTPRequest{Version: "2.0", RawPath: r.URL.Path, RawQueryString: r.URL.RawQuery,
		Headers: map[string]string{}, Body: string(payload), IsBase64Encoded: encoded}
	if encoded {
		e.Body = base64.StdEncoding.EncodeToString(payload)
	}
	for name := range r.Header {
		e.Headers[strings.ToLower(name)] = r.Header.Get(name)
	}
	e.RequestContext.HTTP.Method = r.Method
	e.RequestContext.TimeEpoch = time.Now().UnixMilli()
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The same webhook in all formats has the same explanation.
func TestEveryFormatIsRead(t *testing.T) {
	s := paymenttest.NewServer(paymenttest.Options{})
	defer s.Close()
	r, payload := webhook(t, s)
	single := "'" + strings.ReplaceAll(string(payload), "'", `'\''`) + "'"
	ansi := "$'" + strings.NewReplacer(`\`, `\\`, "'", `\'`, "!", `\u0021`).Replace(string(payload)) + "'"
	double := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(string(payload)) + `"`
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, payload, 0o600); err != nil {
		t.Fatal(err)
	}
	length := "Content-Length: " + strconv.Itoa(len(payload))
	for name, text := range map[string]string{
		"dump with CR LF":       dump(r, payload, "\r\n", length),
		"dump with LF":          dump(r, payload, "\n", ""),
		"dump with a line feed": dump(r, payload, "\n", length) + "\n",
		"dump in chunks": dump(r, fmt.Appendf(nil, "%x\r\n%s\r\n0\r\n\r\n", len(payload), payload), "\r\n",
			"Transfer-Encoding: chunked"),
		"curl in single quotes":   curl(r, "--data-raw "+single),
		"curl with ANSI-C quotes": curl(r, "--data-raw "+ansi),
		"curl in double quotes":   "$ " + curl(r, "-d "+double),
		"curl --data-binary":      curl(r, "-XPOST --data-binary "+single),
		"curl --json":             curl(r, "--json "+single),
		"curl with a file":        curl(r, "--data-binary @"+body),
		"event of a function URL": event(t, r, payload, false),
		"event with base64":       event(t, r, payload, true),
		"event after white space": "\n " + event(t, r, payload, false),
	} {
		t.Run(name, func(t *testing.T) {
			settings := map[string]any{"baseUrl": s.URL, "@aws-cdk/x": true, "maxPayloadBytes": 100000}
			out, stderr, status := run(t, settings, text, "--json", "-")
			if status != 0 || stderr != "" {
				t.Fatalf("%d: %s%s", status, out, stderr)
			}
			var got struct {
				Verdict  string
				Outcome  string
				Settings []struct{ Setting, Value, Was string }
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatal(err)
			}
			if got.Verdict != "settings" || got.Outcome != "signature-missing" {
				t.Errorf("%+v", got)
			}
			want := []struct{ Setting, Value, Was string }{
				{"signatureHeader", "X-Brand-Signature", "X-SVC-Signature"},
				{"timestampCarrier", "header:X-Brand-Time", "header:X-SVC-Timestamp"},
				{"keyIdCarrier", "query:kid", "header:X-SVC-Key-Id"},
			}
			if diff := cmp.Diff(want, got.Settings); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What is printed can be copied into cdk.json, and the request verifies with it.
func TestThePrintedSettingsAreThoseOfCDK(t *testing.T) {
	s := paymenttest.NewServer(paymenttest.Options{})
	defer s.Close()
	r, payload := webhook(t, s)
	text := dump(r, payload, "\n", "")
	settings := map[string]any{"baseUrl": s.URL}
	out, stderr, status := run(t, settings, text, "-")
	if status != 0 || stderr != "" {
		t.Fatalf("%d: %s%s", status, out, stderr)
	}
	_, lines, found := strings.Cut(out, "Settings for cdk.json, under \"context\":\n")
	lines, _, end := strings.Cut(lines, "\n\n")
	var printed map[string]any
	if err := json.Unmarshal([]byte("{"+lines+"}"), &printed); err != nil || !found || !end || len(printed) != 3 {
		t.Fatalf("%v: %s", err, out)
	}
	for _, secret := range []string{r.Header.Get("X-Brand-Signature"), "$HOME"} {
		if strings.Contains(out, secret) {
			t.Errorf("%q is printed", secret)
		}
	}
	maps.Copy(settings, printed)
	out, _, status = run(t, settings, text, "-", "--received", time.Now().Format(time.RFC3339))
	if status != 0 || !strings.Contains(out, "rejected  no: every check of the signature succeeds\n") ||
		strings.Contains(out, "The age") {
		t.Errorf("%d: %s", status, out)
	}
	later := time.Now().Add(time.Hour + 20*time.Second).Format(time.RFC3339)
	out, _, status = run(t, settings, text, "-", "--received", later)
	if status != cli.StatusFailed || strings.Contains(out, `"timestampTolerance"`) {
		t.Errorf("an hour later: %d: %s", status, out)
	}
}

func TestWhatCannotBeExplainedHasAStatus(t *testing.T) {
	s := paymenttest.NewServer(paymenttest.Options{})
	defer s.Close()
	r, payload := webhook(t, s)
	good := dump(r, payload, "\n", "")
	settings := map[string]any{"baseUrl": s.URL}
	for name, test := range map[string]struct {
		settings map[string]any
		text     string
		args     []string
		status   int
		message  string
	}{
		"empty": {settings, " \n", nil, cli.StatusUsage,
			"it is empty"},
		"only a body": {settings, `{"deliveryId":"x"}`, nil, cli.StatusUsage, "A body alone cannot be explained"},
		"no request line": {settings, "hello\n\nworld", nil, cli.StatusUsage,
			"not a request line"},
		"no body": {settings, "POST / HTTP/1.1\nA: b", nil, cli.StatusUsage,
			"no empty line"},
		"bad header": {settings, "POST / HTTP/1.1\nA b\n\nx", nil, cli.StatusUsage,
			"headers cannot be read"},
		"unclosed quote": {settings, "curl 'https://a.example", nil, cli.StatusUsage,
			"curl command cannot be read"},
		"a substitution": {settings, "curl https://a.example -d $(touch ran)", nil, cli.StatusUsage,
			"without substitutions"},
		"unknown flag": {settings, "curl https://a.example --form a=b", nil, cli.StatusUsage,
			"unknown flag: --form"},
		"no settings": {nil, good, nil, cli.StatusUsage, "baseUrl: is required"},
		"plain http": {map[string]any{"baseUrl": "http://a.example"}, good, nil, cli.StatusUsage,
			"must be an https URL"},
		"mtls": {settings, good, []string{"-c", "authentication=mtls"}, cli.StatusUsage,
			"authentication is mtls"},
		"unknown setting":  {settings, good, []string{"-c", "nothing=1"}, cli.StatusUsage, "-c nothing=1"},
		"a wrong time":     {settings, good, []string{"--received", "today"}, cli.StatusUsage, "is not a time"},
		"no such settings": {settings, good, []string{"--settings", "none.json"}, cli.StatusUsage, "none.json"},
		"no signature":     {settings, "POST / HTTP/1.1\nA: b\n\nx", nil, cli.StatusFailed, ""},
		"no key service": {map[string]any{"baseUrl": "http://127.0.0.1:1"}, good, nil, cli.StatusUnreachable,
			"did not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			_, stderr, status := run(t, test.settings, test.text, append(test.args, "-")...)
			if status != test.status || !strings.Contains(stderr, test.message) {
				t.Errorf("%d, %q", status, stderr)
			}
			if _, err := os.Stat("ran"); err == nil {
				t.Error("the command was executed")
			}
		})
	}
}

// With keysAuth=bearer, the token comes from a stack.
// For a webhook that the local run captured, the command that deploys the settings there
// is printed in one line.
func TestTheLocalRunIsStartedAgainWithThePrintedSettings(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir(filepath.Dir(deployment.Path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (&deployment.Deployment{Simulated: true, Given: map[string]string{"eventSource": strings.Repeat("a", 90)}}).
		Write("."); err != nil {
		t.Fatal(err)
	}
	command := `make down && make up SETTINGS="eventSource=` + strings.Repeat("a", 90) +
		` timestampCarrier=header:X-Brand-Time"`
	found := []explain.Change{{Setting: "timestampCarrier", Value: "header:X-Brand-Time"}}
	for _, test := range []struct {
		local    bool
		captured map[string]string
		verdict  explain.Verdict
		want     bool
	}{
		{true, map[string]string{}, explain.Settings, true},
		{true, map[string]string{}, explain.Unsupported, false},
		{false, map[string]string{}, explain.Settings, false},
		{true, nil, explain.Settings, false}, // its settings are those of a file
	} {
		var out bytes.Buffer
		o := options{p: &cli.Program{Out: &out}, target: &deployment.Target{Local: test.local}}
		if err := o.print(&explain.Report{Verdict: test.verdict, Settings: found},
			source{settings: test.captured}); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "\n  "+command+"\n") != test.want ||
			strings.Contains(out.String(), "make") != test.want {
			t.Errorf("%+v: %s", test, &out)
		}
	}
}

func TestABearerNeedsAStack(t *testing.T) {
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	s := paymenttest.NewServer(paymenttest.Options{})
	defer s.Close()
	r, payload := webhook(t, s)
	_, stderr, status := run(t, map[string]any{"baseUrl": s.URL, "keysAuth": "bearer"}, dump(r, payload, "\n", ""), "-")
	if status != cli.StatusUnreachable || !strings.Contains(stderr, "the token is in the stack") {
		t.Errorf("%d, %q", status, stderr)
	}
}

// curl removes line breaks from the file of -d, and joins several.
func TestTheDataOfCurlIsJoined(t *testing.T) {
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, []byte("a\r\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"curl h.example -d @" + file + " --data-raw @c": "ab&@c",
		"curl h.example --data-binary @" + file:         "a\r\nb\n",
		"curl -G h.example?x=1 -d a=b":                  "",
	} {
		s, err := parseRequest([]byte(command))
		if err != nil || string(s.Payload) != want {
			t.Errorf("%s: %q, %v", command, s.Payload, err)
		}
		if strings.Contains(command, "-G") && (s.RawQuery != "x=1&a=b" || s.Method != "GET") {
			t.Errorf("%s: %s %s", command, s.Method, s.RawQuery)
		}
	}
	s, err := parseRequest([]byte("curl h.example -H 'A: 1' -H 'a: 2' -XPUT"))
	if err != nil || s.Headers["a"] != "1,2" || s.Method != "PUT" {
		t.Errorf("%+v, %v", s, err)
	}
}

func FuzzParseRequest(f *testing.F) {
	for _, text := range []string{"POST /a?b HTTP/1.1\r\nA: b\r\n\r\nx", "curl -H 'A: b' https://a.example -d $'x'",
		`{"headers":{},"body":"x"}`, "POST / HTTP/1.1\nTransfer-Encoding: chunked\n\n1\r\na\r\n0\r\n\r\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.Contains(text, []byte("@")) {
			t.Skip() // reads files
		}
		_, _ = parseRequest(text)
	})
}
