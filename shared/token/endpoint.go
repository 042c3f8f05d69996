package token

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"payhook.example/shared/payment"
)

// Endpoint is the service's token endpoint (section 4.1 of the interface). It is safe for concurrent use.
//
// It does not follow redirects, so the client secret is sent only to the configured host. It uses TLS 1.2 or newer, and
// reads at most 64 KiB of an answer.
type Endpoint struct {
	url         string
	form        string
	digest      string // of url, with the token manager, and form, with the scopes
	formEncoded bool
	transport   http.RoundTripper // which follows no redirect
}

// EndpointOptions are the optional parameters of an [Endpoint].
type EndpointOptions struct {
	Scopes []string // none: the parameter is not sent
	// FormEncoded means that client id and secret are form-encoded for HTTP Basic (RFC 6749, section 2.3.1). Otherwise
	// they are sent unchanged (RFC 7617).
	FormEncoded bool
	RootCAs     *x509.CertPool // that are trusted; nil: those of the system
}

// NewEndpoint returns the token endpoint {authURL}/as/token.oauth2 for the token manager that the service assigned.
func NewEndpoint(authURL *url.URL, managerID string, o EndpointOptions) *Endpoint {
	target := authURL.JoinPath("as", "token.oauth2")
	target.RawQuery = url.Values{"access_token_manager_id": {managerID}}.Encode()
	form := url.Values{"grant_type": {"client_credentials"}}
	if len(o.Scopes) > 0 {
		form.Set("scope", strings.Join(o.Scopes, " "))
	}
	transport := newTransport()
	// Calls are minutes apart, so the server has usually closed an idle connection.
	transport.DisableKeepAlives = true
	transport.MaxResponseHeaderBytes = maxAnswer
	transport.TLSClientConfig.RootCAs = o.RootCAs
	digest := sha256.Sum256([]byte(target.String() + "\n" + form.Encode()))
	return &Endpoint{url: target.String(), form: form.Encode(), digest: hex.EncodeToString(digest[:]),
		formEncoded: o.FormEncoded, transport: transport}
}

// newTransport returns a transport like Go's default one, but with TLS 1.2 or newer, more idle connections, and
// HTTP/1.1 alone, which a TLSClientConfig implies: all calls share one connection of HTTP/2, and go on to fail for
// minutes after its network has stopped to deliver (https://go.dev/issue/59690).
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   10 * time.Second,
		MaxIdleConns:          100,
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

const (
	callTimeout = 10 * time.Second
	maxAnswer   = 64 << 10 // bytes
)

// EndpointError is returned when the token endpoint returned no valid token. It contains no data of the answer's body
// except a registered error code.
type EndpointError struct {
	Status  int    // of the answer; 0 if there was none
	Code    string // the OAuth error code, if it is a registered one; "" otherwise
	Problem string // in words of this package

	pauses     bool // the next run does not call again
	retryAfter time.Duration
}

func (e *EndpointError) Error() string {
	switch {
	case e.Status == 0:
		return "token: the token endpoint did not answer: " + e.Problem
	case e.Code != "":
		return fmt.Sprintf("token: the token endpoint answered %d %s", e.Status, e.Code)
	default:
		return fmt.Sprintf("token: the token endpoint answered %d: %s", e.Status, e.Problem)
	}
}

// Fetch calls the endpoint once and returns the token of the answer. Its errors are [*EndpointError] and, if the
// credentials cannot be sent, [*CredentialsError].
//
// An answer is accepted only if it is 200 and a JSON object without duplicate names, of any Content-Type, with an
// access_token of visible ASCII characters, and an expires_in of at least a second: a number, or a text with a decimal
// number and nothing else, such as 3600, "3600" and 3.6e3. A fraction of a second does not count, and more than 366
// days count as 366 days. The token_type is Bearer in any case, "", null or absent. Other members and a byte order mark
// are ignored (RFC 6749, section 5.1; RFC 8259, section 8.1).
func (e *Endpoint) Fetch(ctx context.Context, c Credentials) (Bearer, error) {
	user, password, err := c.basic(e.formEncoded)
	if err != nil {
		return Bearer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, strings.NewReader(e.form))
	if err != nil {
		return Bearer{}, &EndpointError{Problem: "its URL is invalid"}
	}
	request.SetBasicAuth(user, password)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	payment.SetHeaders(request.Header)

	sent := now()
	response, err := e.with(c.certificate).RoundTrip(request)
	if err != nil {
		return Bearer{}, &EndpointError{Problem: connectionProblem(err)}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	status := response.StatusCode
	failed := &EndpointError{Status: status, pauses: status < 500,
		retryAfter: min(payment.RetryAfter(response.Header), maxRetryAfter)}
	switch {
	case status == http.StatusOK && err != nil:
		failed.Problem, failed.pauses = "the answer is incomplete: "+connectionProblem(err), false
	case status == http.StatusOK:
		b, problem := accept(body, sent)
		b.endpoint = e.digest
		b.unexpectedType = payment.UnexpectedType(response.Header.Get("Content-Type"))
		if problem == "" {
			return b, nil
		}
		if failed.Code, failed.Problem = errorCode(body), problem; b.unexpectedType != "" {
			failed.Problem += "; its Content-Type is " + b.unexpectedType
		}
	case status >= 300 && status < 400:
		failed.Problem = "redirects are not followed"
	default:
		failed.Code, failed.Problem = errorCode(body), "no registered OAuth error code"
	}
	return Bearer{}, failed
}

// with returns the transport with a client certificate, or without one. The certificate is sent whatever CAs the server
// names, so that its answer says what is wrong.
func (e *Endpoint) with(certificate *tls.Certificate) http.RoundTripper {
	transport, ok := e.transport.(*http.Transport)
	if certificate == nil || !ok {
		return e.transport
	}
	transport = transport.Clone()
	transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return certificate, nil
	}
	return transport
}

// accept returns the token of an answer, or its problem.
func accept(body []byte, sent time.Time) (b Bearer, problem string) {
	if len(body) > maxAnswer {
		return b, "the answer is longer than 64 KiB"
	}
	var v struct {
		AccessToken string         `json:"access_token"`
		TokenType   string         `json:"token_type"`
		ExpiresIn   jsontext.Value `json:"expires_in"`
	}
	body = payment.WithoutBOM(body)
	err := json.Unmarshal(body, &v)
	// The decoder's error can contain data of the answer, but not the name of a member that has the wrong type.
	wrong, typed := errors.AsType[*json.SemanticError](err)
	switch {
	case err != nil && (!typed || wrong.JSONPointer == "") || jsontext.Value(body).Kind() != '{':
		return b, "the answer is not one JSON object without duplicate names"
	case typed && wrong.JSONPointer == "/access_token", !legal(v.AccessToken):
		return b, "access_token is missing or not a valid token of at most 32 KiB"
	case typed && wrong.JSONPointer == "/token_type", !strings.EqualFold(cmp.Or(v.TokenType, bearerType), bearerType):
		return b, "token_type is not Bearer"
	}
	text, err := jsontext.AppendUnquote(nil, v.ExpiresIn)
	if err != nil { // it is no text
		text = v.ExpiresIn
	}
	lifetime := seconds(string(text), maxLifetime)
	if lifetime == 0 {
		return b, "expires_in is not a number of seconds, or less than 1"
	}
	return Bearer{AccessToken: NewSecret(v.AccessToken), IssuedAt: sent, ExpiresAt: sent.Add(lifetime)}, ""
}

// seconds returns the duration of a decimal number of seconds, without a fraction of a second, or most if that is less.
// It returns 0 for any other text, and for less than a second.
func seconds(text string, most time.Duration) time.Duration {
	n, err := strconv.ParseFloat(text, 64) // an infinite number if it is too large
	switch {
	case strings.Trim(text, "0123456789+-.eE") != "", err != nil && !errors.Is(err, strconv.ErrRange), n < 1:
		return 0
	case n >= most.Seconds():
		return most
	}
	return time.Duration(n) * time.Second
}

// errorCode returns the OAuth error code of an answer's body if the RFCs register it for
// a token endpoint or for any endpoint. Any other text could contain a secret.
func errorCode(body []byte) string {
	var v struct {
		Error string `json:"error"`
	}
	if len(body) > maxAnswer || json.Unmarshal(payment.WithoutBOM(body), &v) != nil {
		return ""
	}
	switch v.Error { // RFC 6749, sections 5.2 and 4.1.2.1; RFC 8628, section 3.5; RFC 8707, section 2
	case "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
		"invalid_scope", "access_denied", "server_error", "temporarily_unavailable", "slow_down", "invalid_target":
		return v.Error
	}
	return ""
}

// connectionProblem returns the reason why there was no answer. The text contains no data from the server.
func connectionProblem(err error) string {
	timeout, _ := errors.AsType[net.Error](err) // such as context.DeadlineExceeded
	dns, _ := errors.AsType[*net.DNSError](err)
	op, _ := errors.AsType[*net.OpError](err)
	switch certificate := payment.CertificateProblem(err); {
	case timeout != nil && timeout.Timeout():
		return "timed out"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case certificate != "":
		return certificate
	case dns != nil:
		return dns.Error()
	case op != nil:
		return op.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed"
	}
	return "not a valid HTTP answer"
}
