package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/objects"
	"payhook.example/shared/proof"
)

// What is printed can be copied into the file, and for the local run into a shell. What is not sufficient is marked.
func TestThePrintedSettingsCanBeCopied(t *testing.T) {
	const command = "\nIn the local run:\n  make down && make up SETTINGS=\"encryption=a " +
		"keyIdLocation=header:Key timestampLocation=header:X-Brand-Time\"\n"
	explained := func(c *call, local bool) (string, error) {
		var out bytes.Buffer
		o := explainOptions{Program: &cli.Program{Out: &out}}
		d := &deployment.Deployment{Local: local, Given: map[string]string{"encryption": "a"}}
		err := o.explain(t.Context(), d, c.request)
		return out.String(), err
	}
	for _, local := range []bool{false, true} {
		c := sent(t)
		c.move("X-SVC-Timestamp", "X-Brand-Time")
		c.move("X-SVC-Key-Id", "Key")
		out, failed := explained(c, local)
		_, lines, found := strings.Cut(out, "Settings for infra/settings.json:\n")
		lines, _, _ = strings.Cut(lines, "\n\n")
		var printed map[string]string
		err := json.Unmarshal([]byte("{"+strings.TrimRight(lines, ",\n")+"}"), &printed)
		if err != nil || failed != nil || !found || len(printed) != 2 || strings.Contains(out, command) != local {
			t.Errorf("local: %t: %v, %v\n%s", local, failed, err, out)
		}
	}
	c := sent(t)
	c.move("X-SVC-Key-Id", "Key")
	c.request.ReceivedAt = received.Add(time.Hour)
	if out, err := explained(c, true); err != cli.ErrAttention || strings.Contains(out, "make up") ||
		!strings.Contains(out, "They are necessary, but not sufficient:\n  \"keyIdLocation\"") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestTheLastOrTheNamedWebhookIsExplained(t *testing.T) {
	var bucket objects.Memory
	put := func(p proof.Proof) string {
		t.Helper()
		name, _, err := proof.Put(t.Context(), &bucket, p)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	rejected := func(outcome string, at time.Time) string {
		return put(proof.Proof{Reason: proof.Rejected, Payload: []byte(outcome),
			Request: &proof.Request{Outcome: outcome, ReceivedAt: at}})
	}
	if _, _, err := storedWebhook(t.Context(), &bucket, ""); !errors.Is(err, errNone) {
		t.Error(err)
	}
	second, first := rejected("b", received.Add(time.Minute)), rejected("a", received)
	invalid := put(proof.Proof{Reason: proof.Invalid})
	for beginning, want := range map[string]string{"": "b", first: "a", second[:len(second)-9]: "b"} {
		r, name, err := storedWebhook(t.Context(), &bucket, beginning)
		if err != nil || r.Outcome != want || string(r.Payload) != want || !strings.HasPrefix(name, beginning) {
			t.Errorf("%s: %s, %+v, %v", beginning, name, r, err)
		}
	}
	_, _, err := storedWebhook(t.Context(), &bucket, "rejected/")
	if err == nil || !strings.Contains(err.Error(), second) {
		t.Error(err)
	}
	bucket.Delete(first)
	for _, name := range []string{first, invalid, "a"} {
		if _, _, err := storedWebhook(t.Context(), &bucket, name); !errors.Is(err, errNone) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Nothing is read before the arguments are known to be right: there is no stack here.
func TestWrongArgumentsAreNamedFirst(t *testing.T) {
	for args, want := range map[string]string{
		"-c foo=1": "-c foo=1: foo: ", "-c foo": `-c foo: "foo" must be KEY=VALUE`,
		"--key-id nope":                                  "--key-id nope: must be a UUID",
		"-c baseUrl=http://a.example":                    "-c baseUrl=http://a.example: must be an https URL",
		"-c timestampTolerance=1x":                       "-c timestampTolerance=1x: must be",
		"-c archiveRetention=1d":                         "-c archiveRetention=1d: archiveRetention cannot be set here",
		"-c signatureHeader=A -c keyIdLocation=header:a": "-c keyIdLocation=header:a: must differ",
		"-c timestampLocation=header:X-SVC-Key-Id":       "not reached",
	} {
		var stderr bytes.Buffer
		p := &cli.Program{Out: &bytes.Buffer{}, Err: &stderr, Target: deployment.Deployment{Profile: "none"}}
		root := p.Root()
		root.AddCommand((&program{p, newStack}).explainCommand())
		t.Setenv("AWS_CONFIG_FILE", os.DevNull)
		status := p.Run(t.Context(), root, append([]string{"explain", "--profile", "none"}, strings.Fields(args)...))
		if got := strings.HasPrefix(stderr.String(), "payhook: "+want); got != (want != "not reached") ||
			got != (status == cli.StatusUsage) {
			t.Errorf("%s: %d, %s", args, status, &stderr)
		}
	}
}

func TestTheStatusSaysWhetherItVerifies(t *testing.T) {
	denied := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"__type":"AccessDeniedException"}`)
	}))
	defer denied.Close()
	tokenSecret := ""
	for name, test := range map[string]struct {
		context string // -c
		change  func(*call)
		status  int
		message string
	}{
		"authentic": {"baseUrl=", func(*call) {}, 0, ""},
		"changed": {"baseUrl=", func(c *call) { c.request.Payload = []byte("{}") }, cli.StatusFailed,
			""},
		"no key endpoint":      {"baseUrl=http://127.0.0.1:1", func(*call) {}, cli.StatusUnreachable, "is down"},
		"plain http":           {"baseUrl=http://a.example", func(*call) {}, cli.StatusUsage, "must be an https URL"},
		"a client certificate": {"authentication=mtls", func(*call) {}, cli.StatusUsage, "authentication is mtls"},
		"an unknown setting":   {"nothing=1", func(*call) {}, cli.StatusUsage, "-c nothing=1"},
		"a bearer": {"keysAuth=bearer", func(*call) {}, cli.StatusUnreachable,
			"was not asked: keysAuth is bearer, and the stack has tokenStore=none"},
		"a token that may not be read": {"keysAuth=bearer", func(*call) { tokenSecret = "secret" },
			cli.StatusUnreachable, "was not asked: it needs the access token, which AskWithToken of policy.json " +
				"allows to read: the secret with the token: Secrets Manager GetSecretValue: AccessDeniedException"},
	} {
		c := sent(t)
		tokenSecret = ""
		test.change(c)
		if test.context == "baseUrl=" {
			test.context += c.request.Settings["baseUrl"]
		}
		var out, stderr bytes.Buffer
		p := &cli.Program{Out: &out, Err: &stderr, Stack: &deployment.Deployment{TokenSecret: tokenSecret,
			AWS: deployment.EmulatorConfig(denied.URL, "us-east-1")}}
		o := explainOptions{Program: p, context: []string{test.context}}
		root := p.Root()
		root.AddCommand(&cobra.Command{Use: "explain", RunE: p.OnStack(
			func(ctx context.Context, d *deployment.Deployment, _ []string) error {
				return o.explain(ctx, d, c.request)
			})})
		status := p.Run(t.Context(), root, []string{"explain"})
		if status != test.status || !strings.Contains(stderr.String(), test.message) {
			t.Errorf("%s: %d, %s%s", name, status, &stderr, &out)
		}
	}
}
