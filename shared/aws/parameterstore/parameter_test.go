package parameterstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"payhook.example/shared/aws/parameterstore"
	"payhook.example/shared/awstest"
	"payhook.example/shared/token"
)

// answering returns a client of a server with these answers.
func answering(t *testing.T, answers ...string) (*parameterstore.Client, *awstest.Wire) {
	t.Helper()
	w := awstest.NewWire(t, awstest.InTurn(answers...))
	return parameterstore.NewClient(awstest.Config(w.URL)), w
}

// The codes of a key that is another one now, or no more, are those of a parameter that can be replaced.
func TestAParameterIsReadOrTheReasonIsReported(t *testing.T) {
	for code, replaceable := range map[string]bool{"AccessDeniedException": true, "InvalidKeyId": true,
		"ValidationException": false} {
		client, _ := answering(t, awstest.Refused(code))
		_, err := parameterstore.NewToken(client, "/token").Load(t.Context())
		e, ok := errors.AsType[*token.StoreError](err)
		if !ok || e.Replaceable != replaceable || err.Error() !=
			"token: the parameter with the token: Parameter Store GetParameter: "+code {
			t.Errorf("%#v, %v", e, err)
		}
	}
	client, w := answering(t, `{"Parameter":{"Value":"text"}}`, awstest.Refused("ParameterNotFound"))
	p := parameterstore.NewToken(client, "/token")
	if text, err := p.Load(t.Context()); text != "text" || err != nil ||
		w.Requests()[0].Body != `{"Name":"/token","WithDecryption":true}` {
		t.Error(text, err)
	}
	if _, err := p.Load(t.Context()); err != token.ErrNone {
		t.Error(err)
	}
}

func TestAParameterIsEncryptedAndReplaced(t *testing.T) {
	for key, member := range map[string]string{"": "", "key": `"KeyId":"key",`} {
		client, w := answering(t, `{}`)
		s := parameterstore.NewStore(client, "/token", key)
		want := `{` + member + `"Name":"/token","Overwrite":true,"Tier":"Intelligent-Tiering","Type":"SecureString",` +
			`"Value":"text"}`
		if err := s.Save(t.Context(), "text"); err != nil || s.Limited() || w.Requests()[0].Body != want {
			t.Error(err)
		}
	}
	// More than 4 KB do not fit in a standard parameter.
	s := parameterstore.NewStore(parameterstore.NewClient(awstest.Config(awstest.NewValues(t).URL)), "/token", "")
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

func TestATokenThatCannotBeStoredIsReported(t *testing.T) {
	for name, test := range map[string]struct{ code, text, want string }{
		"denied": {"AccessDeniedException", "t", "Parameter Store PutParameter: AccessDeniedException"},
		"a label": {"ParameterMaxVersionLimitExceeded", "t", "Parameter Store PutParameter: " +
			"ParameterMaxVersionLimitExceeded: the oldest of 100 versions has a label, which only a person adds; " +
			"remove the label"},
		"too long": {"", strings.Repeat("x", 8<<10+1), "PutParameter: the token is too long: a parameter takes 8 KB; " +
			"a secret takes 64 KB (tokenStore=secret)"},
	} {
		client, _ := answering(t, awstest.Refused(test.code))
		err := parameterstore.NewStore(client, "/token", "").Save(t.Context(), test.text)
		if fmt.Sprint(err) != "token: the parameter with the token: "+test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
