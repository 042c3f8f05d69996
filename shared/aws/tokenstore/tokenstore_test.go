package tokenstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"payhook.example/shared/aws/tokenstore"
	"payhook.example/shared/awstest"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/token"
)

func inSecret(cfg aws.Config) token.Store    { return tokenstore.New(cfg, "", "", "token") }
func inParameter(cfg aws.Config) token.Store { return tokenstore.New(cfg, "/token", "", "") }

func TestATextIsReadOrTheReasonIsReported(t *testing.T) {
	const inSecret, inParameter = `{"SecretId":"token"}`, `{"Name":"/token","WithDecryption":true}`
	const ofParameter = " token: the parameter with the token: Parameter Store GetParameter: "
	type source struct {
		of      func(aws.Config) token.Source
		request string
	}
	credentials := source{func(c aws.Config) token.Source { return tokenstore.Credentials(c, "token") }, inSecret}
	secret := source{func(c aws.Config) token.Source { return tokenstore.Source(c, "", "token") }, inSecret}
	parameter := source{func(c aws.Config) token.Source { return tokenstore.Source(c, "/token", "token") }, inParameter}
	for _, c := range []struct {
		source       source
		answer, want string
		replaceable  bool
	}{
		{credentials, `{"SecretString":"a"}`, "a <nil>", false},
		{credentials, `{"SecretBinary":"Yg=="}`, "b <nil>", false}, // of a file
		{credentials, awstest.Refused("ResourceNotFoundException"), " " + token.ErrNone.Error(), false},
		{secret, `{"SecretString":""}`, " " + token.ErrNone.Error(), false},
		{secret, `{}`, " " + token.ErrNone.Error(), false},
		{parameter, `{"Parameter":{"Value":""}}`, " " + token.ErrNone.Error(), false},
		{credentials, awstest.Refused("AccessDeniedException"), " token: the secret with the client " +
			"credentials: Secrets Manager GetSecretValue: AccessDeniedException", false},
		{secret, awstest.Refused("DecryptionFailure"), " token: the secret with the token: " +
			"Secrets Manager GetSecretValue: DecryptionFailure", false},
		{parameter, `{"Parameter":{"Value":"text"}}`, "text <nil>", false},
		{parameter, awstest.Refused("ParameterNotFound"), " " + token.ErrNone.Error(), false},
		// The key of the parameter is another one now, or no more.
		{parameter, awstest.Refused("AccessDeniedException"), ofParameter + "AccessDeniedException", true},
		{parameter, awstest.Refused("InvalidKeyId"), ofParameter + "InvalidKeyId", true},
		{parameter, awstest.Refused("ValidationException"), ofParameter + "ValidationException", false},
	} {
		cfg, w := awstest.Answering(t, c.answer)
		text, err := c.source.of(cfg).Load(t.Context())
		e, ok := errors.AsType[*token.StoreError](err)
		if got := fmt.Sprint(text, " ", err); got != c.want || (ok && e.Replaceable) != c.replaceable ||
			w.Requests()[0].Body != c.source.request {
			t.Errorf("%s: %s, want %s", c.answer, got, c.want)
		}
	}
}

func TestAWriteOfASecretWithALostAnswerIsNotMadeTwice(t *testing.T) {
	cfg, w := awstest.Answering(t, awstest.CutOff, "{}")
	s := inSecret(cfg)
	err := s.Save(t.Context(), "text")
	puts := w.Requests()
	if err != nil || len(puts) != 2 || puts[0].Body != puts[1].Body || !s.Limited() ||
		!strings.Contains(puts[0].Body, `"ClientRequestToken":"`) {
		t.Errorf("%v, %v", puts, err)
	}
}

// A secret accepts no version after the hundredth of a day.
func TestAFullSecretAcceptsATokenAfterADay(t *testing.T) {
	values := awstest.NewValues(t)
	values.Create("token", "")
	s := inSecret(awstest.Config(values.URL))
	synctest.Test(t, func(t *testing.T) {
		for n := range 100 {
			if err := s.Save(t.Context(), fmt.Sprint(n)); err != nil {
				t.Fatal(err)
			}
		}
		const full = "token: the secret with the token: Secrets Manager PutSecretValue: LimitExceededException: the " +
			"secret has 100 versions of the last 24 hours and accepts no more until one is older"
		if err := s.Save(t.Context(), "100"); fmt.Sprint(err) != full {
			t.Error(err)
		}
		time.Sleep(24 * time.Hour)
		if err := s.Save(t.Context(), "101"); err != nil {
			t.Error(err)
		}
		if text, err := s.Load(t.Context()); text != "101" || err != nil {
			t.Error(text, err)
		}
	})
}

func TestAParameterIsEncryptedAndReplaced(t *testing.T) {
	for key, member := range map[string]string{"": "", "key": `"KeyId":"key",`} {
		cfg, w := awstest.Answering(t, `{}`)
		s := tokenstore.New(cfg, "/token", key, "")
		want := `{` + member + `"Name":"/token","Overwrite":true,"Tier":"Intelligent-Tiering","Type":"SecureString",` +
			`"Value":"text"}`
		if err := s.Save(t.Context(), "text"); err != nil || s.Limited() || w.Requests()[0].Body != want {
			t.Error(err)
		}
	}
	// More than 4 KB do not fit in a standard parameter.
	s := inParameter(awstest.Config(awstest.NewValues(t).URL))
	for _, n := range []int{10, 8 << 10} {
		want := strings.Repeat("x", n)
		if err := s.Save(t.Context(), want); err != nil {
			t.Error(err)
		}
		if text, err := s.Load(t.Context()); text != want || err != nil {
			t.Error(len(text), err)
		}
	}
}

func TestATokenThatCannotBeStoredInAParameterIsReported(t *testing.T) {
	for name, test := range map[string]struct{ code, text, want string }{
		"denied": {"AccessDeniedException", "t", "Parameter Store PutParameter: AccessDeniedException"},
		"a label": {"ParameterMaxVersionLimitExceeded", "t", "Parameter Store PutParameter: " +
			"ParameterMaxVersionLimitExceeded: the oldest of 100 versions has a label, which only a person adds; " +
			"remove the label"},
		"too long": {"", strings.Repeat("x", 8<<10+1), "PutParameter: the token is too long: a parameter takes 8 KB; " +
			"a secret takes 64 KB (tokenStore=secret)"},
	} {
		cfg, _ := awstest.Answering(t, awstest.Refused(test.code))
		if err := inParameter(cfg).Save(t.Context(), test.text); fmt.Sprint(err) !=
			"token: the parameter with the token: "+test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

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
