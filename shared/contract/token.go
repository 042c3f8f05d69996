package contract

import (
	"net/url"
	"regexp"
	"strings"
	"time"
)

// The settings around the access token.
var (
	KeysAuth = &Setting{Key: "keysAuth", Default: "none", Example: "bearer", Section: "4.2",
		Meaning: "whether fetching a key needs the access token: none or bearer"}
	Scopes = &Setting{Key: "scopes", Example: "payments.read payments.write", Section: "5.1",
		Meaning: "the scopes to ask a token for, joined by spaces (RFC 6749, section 3.3); the parameter is not sent when left out"}
	CredentialEncoding = &Setting{Key: "credentialEncoding", Default: "literal", Example: "form", Section: "4.1",
		Meaning: "how client id and secret enter HTTP Basic: literal (RFC 7617), or form for form-encoded first (RFC 6749, section 2.3.1)"}
	TokenRefreshPercent = &Setting{Key: "tokenRefreshPercent", Default: "66", Example: "50", Section: "8",
		Meaning: "the share of a token's lifetime, in percent, that is kept for tries: a token with less life left than that is refreshed"}
	TokenEndpointTimeout = &Setting{Key: "tokenEndpointTimeout", Default: "10s", Example: "5s", Section: "4.1",
		Meaning: "how long one call of the token endpoint may take"}
	TokenTimeout = &Setting{Key: "tokenTimeout", Default: "55s", Example: "30s",
		Meaning: "how long one run of the token function may take, in whole seconds; less than the minute between two runs"}
)

// TokenInterval is the time between two scheduled runs of the token function.
//
// With it, the defaults give these tries for a token of 5 minutes, the
// shortest that is planned for: 66 % of 300 s are 198 s, in which at least
// three runs start, whatever their offset (198/60 = 3.3), and each of them
// calls the endpoint up to five times while that can help. A token of an hour
// is refreshed after 20 minutes and leaves 39 minutes and as many runs. One
// write in 10 minutes, which is what AWS advises at most (AWS, PutSecretValue),
// is held from a lifetime of 10 min / (1 - 0.66) = 29 min 25 s on; a shorter
// one is warned of.
const TokenInterval = time.Minute

// Environment variables that name the two secrets, by name or ARN: the one
// with the access token, and the one with the client id and secret.
const (
	TokenSecretEnv       = "PAYHOOK_TOKEN_SECRET"
	CredentialsSecretEnv = "PAYHOOK_CREDENTIALS_SECRET"
)

// The metrics of the token function. Every run writes the two gauges, unless
// it could not read the secret: an alarm on them treats missing data as
// breaching, and so finds a function that does not run at all.
const (
	// Seconds of life left in the stored token after the run; 0 if it has
	// expired or there is none.
	TokenRemainingMetric = "TokenRemainingSeconds"
	// The same in percent of the token's lifetime. Since no lifetime is shown
	// (section 8), this is what an alarm can have a threshold for: a run that
	// finds less than TokenRefreshPercent refreshes, so that less than half of
	// it means that refreshing has failed for some time.
	TokenRemainingPercentMetric = "TokenRemainingPercent"

	TokenRefreshedMetric          = "TokenRefreshed"          // 1 for a run that stored a new token, or 0
	TokenFailedMetric             = "TokenFailed"             // 1 for a run that should have and could not, or 0
	TokenCredentialsMissingMetric = "TokenCredentialsMissing" // 1 if the client credentials are not there yet or unusable, or 0; TokenFailed is 1 as well
	TokenWritesTooOftenMetric     = "TokenWritesTooOften"     // 1 for a run that stored a token so short-lived that writes come more often than AWS advises, or 0
)

// Token is what the token function is told.
type Token struct {
	TokenSecret       string // name or ARN
	CredentialsSecret string // name or ARN

	AuthURL        *url.URL
	TokenManagerID string
	Scopes         []string // none: the parameter is not sent
	FormEncoded    bool     // client id and secret are form-encoded before they enter HTTP Basic

	RefreshPercent  int
	EndpointTimeout time.Duration
	Timeout         time.Duration
}

// AlarmPercent is the threshold of the alarm on [TokenRemainingPercentMetric]:
// half of what is kept for tries. Half of the tries have failed then, and the
// other half is left for a person.
func (t Token) AlarmPercent() int { return t.RefreshPercent / 2 }

// TokenSettings are the settings that the token function reads from its
// environment.
func TokenSettings() []*Setting {
	return []*Setting{
		AuthURL, TokenManagerID, Scopes, CredentialEncoding,
		TokenRefreshPercent, TokenEndpointTimeout, TokenTimeout,
	}
}

// ParseToken reads the environment of the token function.
func ParseToken(getenv func(string) string) (Token, error) {
	r := fromEnvironment(getenv)
	t := r.token()
	t.TokenSecret = r.resource(TokenSecretEnv)
	t.CredentialsSecret = r.resource(CredentialsSecretEnv)
	return t, r.err()
}

func (r *reader) token() Token {
	t := Token{
		AuthURL:         r.url(AuthURL),
		TokenManagerID:  r.some(TokenManagerID),
		Scopes:          r.scopes(),
		FormEncoded:     r.choice(CredentialEncoding, "literal", "form") == "form",
		RefreshPercent:  r.integer(TokenRefreshPercent, 10, 90),
		EndpointTimeout: r.duration(TokenEndpointTimeout, 100*time.Millisecond, time.Minute),
		Timeout:         r.wholeSeconds(TokenTimeout, 10*time.Second, TokenInterval),
	}
	if t.EndpointTimeout >= t.Timeout {
		r.wrong(TokenEndpointTimeout, "must be shorter than "+r.name(TokenTimeout))
	}
	return t
}

// keysBearer reports whether fetching a key needs the access token.
func (r *reader) keysBearer() bool { return r.choice(KeysAuth, "none", "bearer") == "bearer" }

// RFC 6749, section 3.3: a scope is made of visible ASCII without quotation
// mark and backslash.
var scope = regexp.MustCompile(`^[\x21\x23-\x5B\x5D-\x7E]+$`)

func (r *reader) scopes() []string {
	scopes := strings.Fields(r.text(Scopes))
	for _, s := range scopes {
		if !scope.MatchString(s) {
			r.wrong(Scopes, "must be visible ASCII without quotation marks and backslashes, joined by spaces")
			return nil
		}
	}
	return scopes
}

func (r *reader) choice(s *Setting, options ...string) string {
	v := r.text(s)
	for _, o := range options {
		if v == o {
			return v
		}
	}
	r.wrong(s, "must be "+strings.Join(options, " or "))
	return ""
}
