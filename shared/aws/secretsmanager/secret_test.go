package secretsmanager_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"payhook.example/shared/aws/secretsmanager"
	"payhook.example/shared/awstest"
	"payhook.example/shared/token"
)

// answering returns a client of a server with these answers.
func answering(t *testing.T, answers ...string) (*secretsmanager.Client, *awstest.Wire) {
	t.Helper()
	w := awstest.NewWire(t, awstest.InTurn(answers...))
	return secretsmanager.NewClient(awstest.Config(w.URL)), w
}

func TestASecretIsReadOrTheReasonIsReported(t *testing.T) {
	for answer, want := range map[string]string{
		`{"SecretString":"a"}`:                       "a <nil>",
		`{"SecretBinary":"Yg=="}`:                    "b <nil>", // of a file
		awstest.Refused("ResourceNotFoundException"): " " + token.ErrNone.Error(),
		awstest.Refused("AccessDeniedException"): " token: the secret with the client credentials: " +
			"Secrets Manager GetSecretValue: AccessDeniedException",
	} {
		client, w := answering(t, answer)
		text, err := secretsmanager.NewCredentials(client, "id").Load(t.Context())
		if got := fmt.Sprint(text, " ", err); got != want || w.Requests()[0].Body != `{"SecretId":"id"}` {
			t.Errorf("%s: %s, want %s", answer, got, want)
		}
	}
	client, _ := answering(t, awstest.Refused("DecryptionFailure"))
	if _, err := secretsmanager.NewToken(client, "id").Load(t.Context()); fmt.Sprint(err) !=
		"token: the secret with the token: Secrets Manager GetSecretValue: DecryptionFailure" {
		t.Error(err)
	}
}

func TestAWriteWithALostAnswerIsNotMadeTwice(t *testing.T) {
	client, w := answering(t, awstest.CutOff, "{}")
	s := secretsmanager.NewStore(client, "id")
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
	s := secretsmanager.NewStore(secretsmanager.NewClient(awstest.Config(values.URL)), "token")
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
