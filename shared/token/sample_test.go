package token_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"payhook.example/shared/paymenttest"
	"payhook.example/shared/token"
)

// The sample is a separate module, like that of a user. No other test builds it.
func TestSampleCallsAProtectedAPI(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	program := filepath.Join(t.TempDir(), "client")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = filepath.Join("..", "..", "events", "client")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}

	r := newRig(t, hangsUp)
	s := paymenttest.NewServer(paymenttest.Options{})
	t.Cleanup(s.Close)
	r.fill(s.Client())
	// The sample uses the real clock.
	refresher := token.NewRefresher(r.secrets.SDK(), tokenSecret, credentialsSecret,
		token.NewEndpoint(parse(t, s.URL), "manager-1", token.EndpointOptions{}), token.RefresherOptions{})
	sample := func(args ...string) (string, string, error) {
		var out, stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), "BASE_URL="+s.URL, "TOKEN_SECRET="+tokenSecret,
			"AWS_ENDPOINT_URL="+r.secrets.URL, "AWS_REGION=eu-central-1", "AWS_ACCESS_KEY_ID=id",
			"AWS_SECRET_ACCESS_KEY=secret")
		cmd.Stdout, cmd.Stderr = &out, &stderr
		err := cmd.Run()
		return out.String(), stderr.String(), err
	}

	if _, stderr, err := sample("GET", paymenttest.ProtectedPath); err == nil ||
		!strings.Contains(stderr, token.ErrNone.Error()) {
		t.Errorf("without a token: %v, %s", err, stderr)
	}
	if report, err := refresher.Run(t.Context()); err != nil {
		t.Fatalf("%+v, %v", report, err)
	}
	for _, args := range [][]string{
		{"GET", paymenttest.ProtectedPath},
		{"POST", paymenttest.ProtectedPath + "payments", `{"amount":1}`},
	} {
		if out, stderr, err := sample(args...); err != nil || out != `{"ok":true}` || stderr != "200 OK\n" {
			t.Errorf("%v: %v, %s%s", args, err, out, stderr)
		}
	}
	s.RevokeTokens()
	if out, stderr, err := sample("GET", paymenttest.ProtectedPath); err == nil || !strings.HasPrefix(stderr, "401 ") {
		t.Errorf("with a token that was revoked: %v, %s%s", err, out, stderr)
	}
}
