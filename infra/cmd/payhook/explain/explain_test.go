package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
		o := options{Program: &cli.Program{Out: &out}}
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
	c.sign(at + "." + body)
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
	if _, _, err := stored(t.Context(), &bucket, ""); !errors.Is(err, errNone) {
		t.Error(err)
	}
	second, first := rejected("b", received.Add(time.Minute)), rejected("a", received)
	invalid := put(proof.Proof{Reason: proof.Invalid})
	for beginning, want := range map[string]string{"": "b", first: "a", second[:len(second)-9]: "b"} {
		r, name, err := stored(t.Context(), &bucket, beginning)
		if err != nil || r.Outcome != want || string(r.Payload) != want || !strings.HasPrefix(name, beginning) {
			t.Errorf("%s: %s, %+v, %v", beginning, name, r, err)
		}
	}
	if _, _, err := stored(t.Context(), &bucket, "rejected/"); err == nil || !strings.Contains(err.Error(), second) {
		t.Error(err)
	}
	bucket.Delete(first)
	for _, name := range []string{first, invalid, "a"} {
		if _, _, err := stored(t.Context(), &bucket, name); !errors.Is(err, errNone) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheStatusSaysWhetherItVerifies(t *testing.T) {
	for name, test := range map[string]struct {
		context string // -c
		change  func(*call)
		status  int
		message string
	}{
		"authentic": {"baseUrl=", func(*call) {}, 0, ""},
		"changed": {"baseUrl=", func(c *call) { c.request.Payload = []byte("{}") }, cli.StatusFailed,
			""},
		"no key service":       {"baseUrl=http://127.0.0.1:1", func(*call) {}, cli.StatusUnreachable, "did not answer"},
		"plain http":           {"baseUrl=http://a.example", func(*call) {}, cli.StatusUsage, "must be an https URL"},
		"a client certificate": {"authentication=mtls", func(*call) {}, cli.StatusUsage, "authentication is mtls"},
		"an unknown setting":   {"nothing=1", func(*call) {}, cli.StatusUsage, "-c nothing=1"},
		"a bearer":             {"keysAuth=bearer", func(*call) {}, cli.StatusUnreachable, "tokenStore=none"},
	} {
		c := sent(t)
		test.change(c)
		if test.context == "baseUrl=" {
			test.context += c.request.Settings["baseUrl"]
		}
		var out, stderr bytes.Buffer
		p := &cli.Program{Out: &out, Err: &stderr, Stack: &deployment.Deployment{}}
		o := options{Program: p, context: []string{test.context}}
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
