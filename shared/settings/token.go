package settings

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"payhook.example/shared/names"
)

// The settings of the access token.
var (
	KeysAuth = &Setting{Key: "keysAuth", Default: "none", Example: "bearer", Section: "4.2",
		Description: "whether fetching a key needs the access token: none or bearer"}
	Scopes = &Setting{Key: "scopes", Example: "payments.read payments.write", Section: "5.1",
		Description: "the scopes to ask a token for, joined by spaces (RFC 6749, section 3.3); the parameter is not " +
			"sent when left out"}
	CredentialEncoding = &Setting{Key: "credentialEncoding", Default: "literal", Example: "form", Section: "4.1",
		Description: "how client id and secret are encoded in HTTP Basic: literal (RFC 7617), or form for " +
			"form-encoded first (RFC 6749, section 2.3.1)"}
)

// TokenTimeout is the timeout of one run of the token function: shorter than the minute
// between two runs.
const TokenTimeout = 55 * time.Second

// TokenInterval is the time between two scheduled runs of the token function.
//
// A refresh leaves at least three runs before the token expires, from a lifetime
// of 5 minutes on and with a refresh when 66 % of the lifetime is left: 66 % of 300 s are
// 198 s, and 198/60 = 3.3. From 6 minutes on, it leaves at least 4 minutes.
//
// Each new token creates a version of the secret, and a secret can have 100 versions
// from the last 24 hours (AWS, "AWS Secrets Manager quotas" in the Secrets Manager
// User Guide). Tokens are therefore stored at most every 16 minutes (24 h / 90) if
// this leaves 4 minutes before expiry, which is so for a lifetime of 20 minutes or
// more. Package token describes shorter lifetimes.
const TokenInterval = time.Minute

// Token is the configuration of the token function.
type Token struct {
	TokenSecret       string // name or ARN
	CredentialsSecret string // name or ARN

	AuthURL        *url.URL
	TokenManagerID string
	Scopes         []string // none: the parameter is not sent
	FormEncoded    bool     // client id and secret are form-encoded for HTTP Basic
}

// TokenSettings returns the settings that the token function reads from its
// environment.
func TokenSettings() []*Setting {
	return []*Setting{
		AuthURL, TokenManagerID, Scopes, CredentialEncoding,
	}
}

// ParseToken parses the environment of the token function.
func ParseToken(getenv func(string) string) (Token, error) {
	r := fromEnvironment(getenv)
	t := r.token()
	t.TokenSecret = r.resource(names.TokenSecretEnv)
	t.CredentialsSecret = r.resource(names.CredentialsSecretEnv)
	return t, r.err()
}

func (r *reader) token() Token {
	return Token{
		AuthURL:        r.url(AuthURL),
		TokenManagerID: r.some(TokenManagerID),
		Scopes:         r.scopes(),
		FormEncoded:    r.choice(CredentialEncoding, "literal", "form") == "form",
	}
}

// keysBearer reports whether fetching a key needs the access token.
func (r *reader) keysBearer() bool { return r.choice(KeysAuth, "none", "bearer") == "bearer" }

// RFC 6749, section 3.3: a scope consists of visible ASCII characters except
// quotation mark and backslash.
var scope = lazily(`^[\x21\x23-\x5B\x5D-\x7E]+$`)

func (r *reader) scopes() []string {
	scopes := strings.Fields(r.text(Scopes))
	for _, s := range scopes {
		if !scope(s) {
			r.wrong(Scopes, "must be visible ASCII without quotation marks and backslashes, joined by spaces")
			return nil
		}
	}
	return scopes
}

func (r *reader) choice(s *Setting, options ...string) string {
	v := r.text(s)
	if slices.Contains(options, v) {
		return v
	}
	r.wrong(s, "must be "+strings.Join(options, " or "))
	return ""
}
