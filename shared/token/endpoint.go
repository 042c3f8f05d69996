package token

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"encoding/json/jsontext"
	"encoding/json/v2"
)

// Endpoint is the service's token endpoint (section 4.1 of the interface). It
// is safe for concurrent use.
//
// It follows no redirect, so that a client secret goes to no host but the one
// that was configured; it speaks TLS 1.2 or newer, and reads no more than
// 64 KiB of an answer.
type Endpoint struct {
	url         string
	form        string
	formEncoded bool
	timeout     time.Duration
	now         func() time.Time
	client      *http.Client
}

// EndpointOptions are the optional parameters of an [Endpoint].
type EndpointOptions struct {
	Scopes      []string          // none: the parameter is not sent
	FormEncoded bool              // client id and secret are form-encoded before they enter HTTP Basic (RFC 6749, section 2.3.1); else they enter it literally (RFC 7617)
	Timeout     time.Duration     // of one call; zero: 10 s
	Now         func() time.Time  // nil: time.Now
	Transport   http.RoundTripper // nil: one of its own, which speaks TLS 1.2 or newer
}

// NewEndpoint returns the token endpoint {authURL}/as/token.oauth2 for the
// token manager that the service's operator assigned.
func NewEndpoint(authURL *url.URL, managerID string, o EndpointOptions) *Endpoint {
	target := authURL.JoinPath("as", "token.oauth2")
	target.RawQuery = url.Values{"access_token_manager_id": {managerID}}.Encode()
	form := url.Values{"grant_type": {"client_credentials"}}
	if len(o.Scopes) > 0 {
		form.Set("scope", strings.Join(o.Scopes, " "))
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Transport == nil {
		t := newTransport()
		// Calls are minutes apart: the other side would mostly have closed a
		// connection that was kept.
		t.DisableKeepAlives = true
		t.MaxResponseHeaderBytes = maxAnswer
		o.Transport = t
	}
	return &Endpoint{
		url:         target.String(),
		form:        form.Encode(),
		formEncoded: o.FormEncoded,
		timeout:     o.Timeout,
		now:         o.Now,
		client: &http.Client{
			Transport:     o.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// newTransport returns a transport like Go's default, with TLS 1.2 or newer and
// more idle connections.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
	}
}

// maxAnswer is the most that is read of an answer, in bytes.
const maxAnswer = 64 << 10

// EndpointError says why the token endpoint returned no token. It holds nothing of
// the answer's body except a registered error code.
type EndpointError struct {
	// Status of the answer; 0 if there was none.
	Status int
	// Code is the OAuth error code, if it is a registered one (RFC 6749,
	// section 5.2); "" otherwise.
	Code string
	// Problem says in words of this package what was wrong.
	Problem string

	retry      bool // trying again can help
	retryAfter time.Duration
}

func (e *EndpointError) Error() string {
	switch {
	case e.Status == 0:
		return "token: endpoint: no answer: " + e.Problem
	case e.Code != "":
		return fmt.Sprintf("token: endpoint answered %d %s", e.Status, e.Code)
	default:
		return fmt.Sprintf("token: endpoint answered %d: %s", e.Status, e.Problem)
	}
}

// Fetch calls the endpoint once and returns the token that it gives. Its
// errors are [*EndpointError] and, if credentials can't be sent as they are,
// [*CredentialsError].
//
// An answer is accepted only if it is 200 and a JSON object in which no name
// occurs twice, with an access_token of legal characters (RFC 6750, section
// 2.1), a token_type that is Bearer in any case, and an expires_in that is a
// number of whole seconds, greater than 0 and at most 366 days. Other members
// are ignored (RFC 6749, section 5.1).
func (e *Endpoint) Fetch(ctx context.Context, c Credentials) (Bearer, error) {
	user, password, err := c.basic(e.formEncoded)
	if err != nil {
		return Bearer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, strings.NewReader(e.form))
	if err != nil {
		return Bearer{}, &EndpointError{Problem: "its URL can't be used"}
	}
	request.SetBasicAuth(user, password)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "application/json")

	sent := e.now()
	response, err := e.client.Do(request)
	if err != nil {
		return Bearer{}, &EndpointError{Problem: connectionProblem(err), retry: !untrusted(err)}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))

	status := response.StatusCode
	switch {
	case status == http.StatusOK && err != nil:
		return Bearer{}, &EndpointError{Status: status, Problem: "the answer broke off: " + connectionProblem(err), retry: true}
	case status == http.StatusOK:
		b, problem := accept(response.Header, body, sent)
		if problem != "" {
			return Bearer{}, &EndpointError{Status: status, Problem: problem}
		}
		return b, nil
	case status >= 300 && status < 400:
		return Bearer{}, &EndpointError{Status: status, Problem: "a redirect, which is not followed"}
	}
	return Bearer{}, &EndpointError{
		Status:     status,
		Code:       errorCode(body),
		Problem:    "no OAuth error code that is known",
		retry:      status == http.StatusTooManyRequests || status >= 500,
		retryAfter: retryAfter(response.Header.Get("Retry-After"), e.now()),
	}
}

// accept returns the token of an answer, or what is wrong with it.
func accept(header http.Header, body []byte, sent time.Time) (b Bearer, problem string) {
	if len(body) > maxAnswer {
		return b, "the answer is longer than 64 KiB"
	}
	if kind, _, err := mime.ParseMediaType(header.Get("Content-Type")); err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return b, "the answer is no JSON by its Content-Type"
	}
	var v struct {
		AccessToken jsontext.Value `json:"access_token"`
		TokenType   jsontext.Value `json:"token_type"`
		ExpiresIn   jsontext.Value `json:"expires_in"`
	}
	// The decoder's errors quote what they refuse.
	if json.Unmarshal(body, &v) != nil || jsontext.Value(body).Kind() != '{' {
		return b, "the answer is not one JSON object in which each name occurs once"
	}
	access, ok := stringOf(v.AccessToken)
	switch {
	case v.AccessToken == nil:
		return b, "access_token is missing"
	case !ok:
		return b, "access_token is not a text"
	case access == "":
		return b, "access_token is empty"
	case len(access) > maxTokenLength:
		return b, "access_token is longer than 32 KiB"
	case !legal(access):
		return b, "access_token has characters that no token has"
	}
	if kind, ok := stringOf(v.TokenType); !ok || !strings.EqualFold(kind, bearerType) {
		return b, "token_type is not Bearer"
	}
	lifetime, problem := lifetimeOf(v.ExpiresIn)
	if problem != "" {
		return b, problem
	}
	return Bearer{AccessToken: NewSecret(access), IssuedAt: sent, ExpiresAt: sent.Add(lifetime)}, ""
}

func lifetimeOf(v jsontext.Value) (lifetime time.Duration, problem string) {
	switch {
	case v == nil:
		return 0, "expires_in is missing"
	case v.Kind() != '0':
		return 0, "expires_in is not a number"
	case strings.HasPrefix(string(v), "-") || string(v) == "0":
		return 0, "expires_in is not greater than 0"
	case strings.Trim(string(v), "0123456789") != "":
		return 0, "expires_in is not written as a whole number"
	}
	seconds, err := strconv.ParseUint(string(v), 10, 31)
	if err != nil || time.Duration(seconds)*time.Second > maxLifetime {
		return 0, "expires_in is longer than 366 days"
	}
	return time.Duration(seconds) * time.Second, ""
}

// errorCode returns the OAuth error code of an answer's body if it is one of
// those that the RFCs register for a token endpoint or for any endpoint. Every
// other text could be anything, a secret among them.
func errorCode(body []byte) string {
	var v struct {
		Error jsontext.Value `json:"error"`
	}
	if len(body) > maxAnswer || json.Unmarshal(body, &v) != nil {
		return ""
	}
	switch code, _ := stringOf(v.Error); code {
	case "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope", // RFC 6749, section 5.2
		"access_denied", "server_error", "temporarily_unavailable", // RFC 6749, section 4.1.2.1
		"slow_down",      // RFC 8628, section 3.5
		"invalid_target": // RFC 8707, section 2
		return code
	}
	return ""
}

// retryAfter reads a Retry-After header (RFC 9110, section 10.2.3); what it
// can't read is 0.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// connectionProblem returns why there was no answer. The text holds nothing that
// the other side sent.
func connectionProblem(err error) string {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return "timed out"
	}
	if errors.Is(err, context.Canceled) {
		return "canceled"
	}
	if untrusted(err) {
		return "its TLS certificate does not verify"
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.Error()
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Error()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the connection was closed"
	}
	return "none that is valid"
}

func untrusted(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}
