package token

import (
	"context"
	"crypto/tls"
	"encoding/json/v2"
	"errors"
	"net/url"
	"strings"
)

// Credentials are the client id and secret that the service assigned
// (section 5.1 of the interface), and the client certificate that was stored with them.
type Credentials struct {
	ClientID     string
	ClientSecret Secret

	certificate *tls.Certificate // that the endpoint asks for; nil: none
	value       Secret           // of the secret
}

// CredentialsError is returned when the secret with the client credentials is missing
// or invalid. A [Refresher] returns it until a valid value is stored.
type CredentialsError struct {
	Problem string // contains no data of the secret
}

func (e *CredentialsError) Error() string {
	return "token: the secret with the client credentials " + e.Problem +
		`; store {"client_id": "...", "client_secret": "..."} in it`
}

// credentials loads the client credentials, and checks that they can be sent. Its errors are [*CredentialsError] and
// [*StoreError].
func credentials(ctx context.Context, source Source, formEncoded bool) (Credentials, error) {
	text, err := load(ctx, source)
	switch {
	case errors.Is(err, ErrNone):
		return Credentials{}, &CredentialsError{"has no value yet"}
	case err != nil:
		return Credentials{}, err
	}
	var v struct {
		ClientID     string `json:"client_id"`
		ClientSecret string `json:"client_secret"`
		Certificate  string `json:"certificate"`
		PrivateKey   string `json:"private_key"`
	}
	if json.Unmarshal([]byte(text), &v) != nil || v.ClientID == "" || v.ClientSecret == "" {
		return Credentials{}, &CredentialsError{"is not a JSON object with two strings that are not empty"}
	}
	c := Credentials{v.ClientID, NewSecret(v.ClientSecret), nil, NewSecret(text)}
	if v.Certificate+v.PrivateKey != "" {
		pair, err := tls.X509KeyPair(inLines(v.Certificate), inLines(v.PrivateKey))
		if err != nil { // which can quote the texts
			return Credentials{}, &CredentialsError{"has a certificate and a private_key that are not a pair in PEM; " +
				"the key must not be encrypted"}
		}
		c.certificate = &pair
	}
	_, _, err = c.basic(formEncoded)
	return c, err
}

// inLines returns a text in PEM whose line feeds became spaces or "\n", as in a field of the console.
func inLines(text string) []byte {
	parts := strings.Split(strings.ReplaceAll(text, `\n`, "\n"), "-----")
	for i := 1; i < len(parts); i += 2 { // BEGIN and END
		parts[i] = "\n-----" + parts[i] + "-----\n"
	}
	return []byte(strings.Join(parts, ""))
}

// basic returns user and password for HTTP Basic: unchanged (RFC 7617), or form-encoded (RFC 6749, section 2.3.1).
func (c Credentials) basic(formEncoded bool) (user, password string, err error) {
	// RFC 7617, section 2, allows neither. The most likely one is a line break at the end of a pasted secret.
	const control = " with a control character, such as a line break at its end"
	user, password = c.ClientID, c.ClientSecret.Reveal()
	switch {
	case formEncoded:
		user, password = url.QueryEscape(user), url.QueryEscape(password)
	case strings.Contains(user, ":"):
		err = &CredentialsError{"has a client_id with a colon, which HTTP Basic does not allow without form-encoding"}
	case strings.ContainsFunc(user, isControl):
		err = &CredentialsError{"has a client_id" + control}
	case strings.ContainsFunc(password, isControl):
		err = &CredentialsError{"has a client_secret" + control}
	}
	return user, password, err
}

func isControl(r rune) bool { return r < 0x20 || r == 0x7F }
