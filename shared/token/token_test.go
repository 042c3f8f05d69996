package token_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"payhook.example/shared/token"
)

func TestSecretIsRedactedInEveryOutput(t *testing.T) {
	secret := token.NewSecret(clientSecret)
	type inner struct{ hidden token.Secret }
	nested := struct {
		C token.Credentials
		B token.Bearer
		i inner
		p *inner
	}{token.Credentials{ClientSecret: secret}, token.Bearer{AccessToken: secret}, inner{secret}, &inner{secret}}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%T"} {
		fmt.Fprintf(&out, verb+" "+verb+" "+verb+"\n", secret, &secret, nested)
	}
	fmt.Fprintln(&out, secret)
	for _, handler := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
		slog.New(handler).Info("x", "secret", secret, "pointer", &secret, "nested", nested)
	}
	if err := json.NewEncoder(&out).Encode([]any{secret, nested, map[string]any{"x": secret}}); err != nil {
		t.Fatal(err)
	}
	for _, canary := range []string{clientSecret, fmt.Sprintf("%x", clientSecret), fmt.Sprintf("%X", clientSecret)} {
		if strings.Contains(out.String(), canary) {
			t.Errorf("%q is in:\n%s", canary, out.String())
		}
	}
	if secret.Reveal() != clientSecret || (token.Secret{}).Reveal() != "" {
		t.Error("Reveal returns another text")
	}
}
