package tokenstore_test

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"payhook.example/shared/awstest"
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
	build.Dir = filepath.Join("..", "..", "..", "events", "client")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	secrets, s := awstest.NewValues(t), paymenttest.NewServer(paymenttest.Options{})
	defer s.Close()
	base, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ out, stderr string }{
		{"", token.ErrNone.Error()}, {`{"ok":true}`, "200 OK\n"}, {"", "401 "},
	} {
		if i == 1 {
			id, secret := s.Client()
			b, err := token.NewEndpoint(base, "manager-1", token.EndpointOptions{}).
				Fetch(t.Context(), token.Credentials{ClientID: id, ClientSecret: token.NewSecret(secret)})
			if err != nil {
				t.Fatal(err)
			}
			secrets.Create("token", fmt.Sprintf(
				`{"access_token":%q,"token_type":"Bearer","issued_at":%q,"expires_at":%q}`, b.AccessToken.Reveal(),
				b.IssuedAt.UTC().Format(time.RFC3339Nano), b.ExpiresAt.UTC().Format(time.RFC3339Nano)))
		} else if i == 2 {
			s.Change(func(s *paymenttest.State) { s.TokenKey = []byte("another") })
		}
		var out, stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), program, "POST", paymenttest.ProtectedPath+"payments", `{"amount":1}`)
		cmd.Env = append(os.Environ(), "BASE_URL="+s.URL, "TOKEN_SECRET=token", "AWS_ENDPOINT_URL="+secrets.URL,
			"AWS_REGION=eu-central-1", "AWS_ACCESS_KEY_ID=id", "AWS_SECRET_ACCESS_KEY=secret")
		cmd.Stdout, cmd.Stderr = &out, &stderr
		if err := cmd.Run(); (err == nil) != (i == 1) || !strings.Contains(out.String(), want.out) ||
			!strings.Contains(stderr.String(), want.stderr) {
			t.Errorf("%d: %v, %s%s", i, err, &out, &stderr)
		}
	}
}
