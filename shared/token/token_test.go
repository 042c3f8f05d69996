package token_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"payhook.example/shared/token"
)

func TestTheCharactersOfATokenAreVisible(t *testing.T) {
	for c := range 256 {
		text := string([]byte{byte(c)})
		for _, text := range []string{text, "a" + text + "a"} {
			if got, want := token.Legal(text), 0x21 <= c && c <= 0x7e; got != want {
				t.Errorf("%q: %v, want %v", text, got, want)
			}
		}
	}
}

// A secret whose value cannot be read again is not written.
func TestATokenThatIsNotTextIsNotWritten(t *testing.T) {
	text, err := token.TextOf(token.Bearer{AccessToken: token.NewSecret("canary\xff")})
	if text != "" || !errors.Is(err, token.ErrUnreadable) || strings.Contains(err.Error(), "canary") {
		t.Errorf("%q, %v", text, err)
	}
}

func TestSecretIsRedactedInEveryOutput(t *testing.T) {
	secret := token.NewSecret(clientSecret)
	type inner struct{ hidden token.Secret }
	nested := struct {
		C token.Credentials
		B token.Bearer
		i inner
		p *inner
	}{
		token.Credentials{ClientID: clientID, ClientSecret: secret},
		token.Bearer{AccessToken: token.NewSecret(canaryToken), ExpiresAt: time.Now()},
		inner{secret}, &inner{secret},
	}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%T"} {
		fmt.Fprintf(&out, verb+"\n", secret)
		fmt.Fprintf(&out, verb+"\n", &secret)
		fmt.Fprintf(&out, verb+"\n", nested)
	}
	fmt.Fprintln(&out, secret)
	for _, handler := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
		slog.New(handler).Info("x", "secret", secret, "pointer", &secret, "nested", nested, "error",
			fmt.Errorf("%v", secret))
	}
	for _, v := range []any{secret, nested, map[string]any{"x": secret}} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(text)
	}
	for _, canary := range []string{clientSecret, canaryToken, fmt.Sprintf("%x", clientSecret),
		fmt.Sprintf("%X", canaryToken)} {
		if strings.Contains(out.String(), canary) {
			t.Errorf("%q is in:\n%s", canary, out.String())
		}
	}
	if secret.Reveal() != clientSecret || (token.Secret{}).Reveal() != "" {
		t.Error("Reveal returns another text")
	}
}
