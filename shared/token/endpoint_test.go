package token_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/paymenttest"
	"payhook.example/shared/token"
)

var testCredentials = token.Credentials{ClientID: clientID, ClientSecret: token.NewSecret(clientSecret)}

func TestFetchSendsTheRequestOfTheInterface(t *testing.T) {
	odd := token.Credentials{ClientID: "client 1/ü", ClientSecret: token.NewSecret("p:+%ß 1")}
	for name, test := range map[string]struct {
		credentials    token.Credentials
		options        token.EndpointOptions
		path           string // below the server's
		user, password string
		scope          []string
	}{
		"literal": {credentials: odd, user: "client 1/ü", password: "p:+%ß 1"},
		"form-encoded": {credentials: odd, options: token.EndpointOptions{FormEncoded: true}, user: "client+1%2F%C3%BC",
			password: "p%3A%2B%25%C3%9F+1"},
		"a colon, form-encoded": {credentials: token.Credentials{ClientID: "a:b", ClientSecret: token.NewSecret("c")},
			options: token.EndpointOptions{FormEncoded: true}, user: "a%3Ab", password: "c"},
		"scopes": {credentials: testCredentials, user: clientID, password: clientSecret,
			options: token.EndpointOptions{Scopes: []string{"payments.read", "payments.write"}},
			scope:   []string{"payments.read payments.write"}},
		"a URL with a path": {credentials: testCredentials, path: "/tenant-1", user: clientID, password: clientSecret},
	} {
		t.Run(name, func(t *testing.T) {
			server := &endpoint{answers: []http.HandlerFunc{returns(canaryToken, time.Hour)}}
			e := token.NewEndpoint(parse(t, "https://auth.example"+test.path), "manager 1&x", test.options)
			if _, err := token.Direct(e, direct{server}).Fetch(t.Context(), test.credentials); err != nil {
				t.Fatal(err)
			}
			r := server.calls()[0]
			if r.Method != http.MethodPost || r.URL.Path != test.path+"/as/token.oauth2" {
				t.Errorf("%s %s", r.Method, r.URL.Path)
			}
			form := url.Values{"grant_type": {"client_credentials"}}
			if test.scope != nil {
				form["scope"] = test.scope
			}
			if diff := cmp.Diff(url.Values{"access_token_manager_id": {"manager 1&x"}}, r.URL.Query()) +
				cmp.Diff(form, r.PostForm); diff != "" {
				t.Errorf("query and form (-want +got):\n%s", diff)
			}
			// A gateway before the service wants to know who asks, and for what.
			if accept := r.Header.Get("Accept"); !strings.HasPrefix(accept, "application/json") ||
				!strings.Contains(accept, "*/*") || !strings.HasPrefix(r.Header.Get("User-Agent"), "payhook/") {
				t.Errorf("%v", r.Header)
			}
			user, password, _ := r.BasicAuth()
			if user != test.user || password != test.password {
				t.Errorf("Basic %q %q, want %q %q", user, password, test.user, test.password)
			}
		})
	}
}

func TestFetchReturnsTheToken(t *testing.T) {
	answer := func(access, kind, expires string) string {
		return `{"access_token":` + access + `,"token_type":"` + kind + `","expires_in":` + expires + `}`
	}
	full := answer(`"`+strings.Repeat("a", 32<<10)+`"`, "Bearer", "31622400")
	type result struct {
		access   string
		lifetime time.Duration
	}
	tests := map[string]result{ // by answer
		answer(`"t"`, "BEARER", "1"):                            {"t", time.Second},
		answer(`"t"`, "bearer", `3600,"x":{"y":[1.5]}`):         {"t", time.Hour},
		answer(`"t"`, "Bearer", `3600,"error":"invalid_scope"`): {"t", time.Hour},
		"\uFEFF" + answer(`"t"`, "Bearer", "3600"):              {"t", time.Hour},
		answer(`"t"`, "Bearer", `"\u0033600"`):                  {"t", time.Hour},
		answer(`"t"`, "", "3600"):                               {"t", time.Hour},
		`{"access_token":"t","token_type":null,"expires_in":1}`: {"t", time.Second},
		`{"access_token":"t","expires_in":1,"Token_type":"x"}`:  {"t", time.Second},
		full + strings.Repeat(" ", 64<<10-len(full)):            {strings.Repeat("a", 32<<10), 366 * 24 * time.Hour},
	}
	for _, access := range []string{"t-._~+/9==", "00D50!AQ.x", "1|abc", "perm:abc==.x==.y", "==", "a=b", `"\`, "!~"} {
		quoted, _ := json.Marshal(access)
		tests[answer(string(quoted), "Bearer", "3600")] = result{access, time.Hour}
	}
	for lifetime, numbers := range map[time.Duration][]string{
		time.Hour: {"3600", "3600.0", "3.6e3", "36E+2", "360000e-2", "3600.0000000000000000000001", "3600.9"},
		366 * 24 * time.Hour: {"31622400", "31622400.5", "31708800", "9223372036854775807", "18446744073709551616",
			"1e999999999", "1" + strings.Repeat("0", 9999)},
	} {
		for _, number := range numbers {
			tests[answer(`"t"`, "Bearer", number)] = result{"t", lifetime}
			tests[answer(`"t"`, "Bearer", `"`+number+`"`)] = result{"t", lifetime}
		}
	}
	for body, want := range tests {
		bubble(t, body[:min(len(body), 90)], func(t *testing.T) {
			sent := time.Now()
			b, err := newEndpoint(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(9 * time.Second)
				answers(http.StatusOK, body)(w, r)
			})).Fetch(t.Context(), testCredentials)
			if err != nil || b.AccessToken.Reveal() != want.access || !b.IssuedAt.Equal(sent) ||
				!b.ExpiresAt.Equal(sent.Add(want.lifetime)) {
				t.Errorf("from %s to %s, %v; want a life counted from before it was sent", b.IssuedAt, b.ExpiresAt, err)
			}
		})
	}
}

func TestFetchRejectsMalformedAnswers(t *testing.T) {
	const object = "the answer is not one JSON object without duplicate names"
	good := `{"access_token":"` + canaryToken + `","token_type":"Bearer","expires_in":3600}`
	with := func(old, by string) string { return strings.Replace(good, old, by, 1) }
	type answer struct{ body, contentType string }
	problems := map[answer]string{
		{"<html>" + canaryToken, "text/html; charset=utf-8"}: object + "; its Content-Type is text/html",
		{"<html>" + canaryToken, ";"}:                        object + "; its Content-Type is malformed",
	}
	for problem, bodies := range map[string][]string{
		"the answer is longer than 64 KiB": {good + strings.Repeat(" ", 64<<10+1-len(good))},
		object: {"", "access_token=" + canaryToken, "[" + good + "]", "null", good + "{}", `"` + canaryToken + `"`,
			with("{", `{"access_token":"x",`), with("{", `{"x":1,"x":1,`), with(canaryToken, "\xff")},
		"access_token is missing or not a valid token of at most 32 KiB": {with("access_token", "x"),
			with("access_token", "Access_Token"), with(canaryToken, ""), with(`"`+canaryToken+`"`, "null"),
			with(`"`+canaryToken+`"`, "12"), with(canaryToken, strings.Repeat("a", 32<<10+1)),
			with(canaryToken, "a b"), with(canaryToken, `a\r\nX-Evil: 1`), with(canaryToken, "ü"),
			with(canaryToken, "\x7f")},
		"token_type is not Bearer": {with("Bearer", "mac"), with("Bearer", "DPoP"), with(`"Bearer"`, "7"),
			with(`"Bearer"`, "[]"), with("Bearer", "Bearer ")},
	} {
		for _, body := range bodies {
			problems[answer{body, "application/json"}] = problem
		}
	}
	for _, text := range []string{"null", `{}`, `[3600]`, "true", "0", "-0", "-1", "0.999", "-1e999999999",
		"1e-999999999", `""`, `" 3600"`, `"3600\n"`, `"0x10"`, `"3600s"`, `"3_600"`, `"3,600"`, `"3600/1"`, `"Inf"`,
		`"NaN"`, `"e"`, `"-3600"`, `"\"3600\""`} {
		problems[answer{with("3600", text), "application/json"}] =
			"expires_in is not a number of seconds, or less than 1"
	}
	problems[answer{with("expires_in", "x"), "application/json"}] =
		"expires_in is not a number of seconds, or less than 1"
	for a, problem := range problems {
		t.Run(a.body[max(0, len(a.body)-60):], func(t *testing.T) {
			_, err := newEndpoint(t, answers(http.StatusOK, a.body, "Content-Type", a.contentType)).
				Fetch(t.Context(), testCredentials)
			expectEndpointError(t, err, http.StatusOK, "", problem)
		})
	}
}

// The interface does not promise a type.
func TestATokenOfAnyContentTypeIsStoredAndItsTypeReported(t *testing.T) {
	for header, want := range map[string]string{"application/json; x": "", "application/vnd.token+json": "",
		"text/plain; charset=utf-8": "text/plain", ";" + clientSecret: "malformed", "": "none"} {
		bubble(t, header, func(t *testing.T) {
			r := newRig(t, answers(http.StatusOK, `{"access_token":"t-1","token_type":"Bearer","expires_in":3600}`,
				"Content-Type", header))
			if report := r.run(t, token.Refreshed); report.UnexpectedType != want {
				t.Errorf("reported %q", report.UnexpectedType)
			}
		})
	}
}

func expectEndpointError(t *testing.T, err error, status int, code, problem string) {
	t.Helper()
	failure, ok := errors.AsType[*token.EndpointError](err)
	if !ok {
		t.Fatalf("%v, want an EndpointError", err)
	}
	if failure.Status != status || failure.Code != code || failure.Problem != problem {
		t.Errorf("%d %q %q, want %d %q %q", failure.Status, failure.Code, failure.Problem, status, code, problem)
	}
	expectNoCanary(t, fmt.Sprintf("%v %+v %#v", err, err, failure))
}

func expectNoCanary(t *testing.T, text string) {
	t.Helper()
	for _, canary := range []string{clientSecret, canaryToken, "arn:aws"} {
		if strings.Contains(text, canary) {
			t.Errorf("%q is in: %s", canary, text)
		}
	}
}

func TestACallHasItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := newEndpoint(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		})).Fetch(t.Context(), testCredentials)
		expectEndpointError(t, err, 0, "", "timed out")
		if time.Since(start) != 10*time.Second {
			t.Errorf("after %s", time.Since(start))
		}
	})
}

func TestFetchReportsWhyThereIsNoToken(t *testing.T) {
	body := func(code string) string {
		return `{"error":"` + code + `","error_description":"` + clientSecret + `","access_token":"` + canaryToken +
			`"}`
	}
	const (
		none     = "no registered OAuth error code"
		missing  = "access_token is missing or not a valid token of at most 32 KiB"
		redirect = "redirects are not followed"
		invalid  = "not a valid HTTP answer"
	)
	status := func(status int, body string) http.HandlerFunc { return answers(status, body, "Location", "/other") }
	for name, test := range map[string]struct {
		answer        http.HandlerFunc
		status        int
		code, problem string
	}{
		"a code":                 {status(400, body("invalid_client")), 400, "invalid_client", none},
		"with a byte order mark": {status(400, "\uFEFF"+body("invalid_scope")), 400, "invalid_scope", none},
		"a code with 200":        {status(200, `{"error":"invalid_client"}`), 200, "invalid_client", missing},
		"a code and a token": {status(200, body("invalid_client")), 200, "invalid_client",
			"expires_in is not a number of seconds, or less than 1"},
		"another code with 200": {status(200, `{"error":"`+clientSecret+`"}`), 200, "", missing},
		"a code with 503":       {status(503, body("temporarily_unavailable")), 503, "temporarily_unavailable", none},
		"another code":          {status(400, body(clientSecret)), 400, "", none},
		"a list":                {status(400, `{"error":["invalid_client"]}`), 400, "", none},
		"a text":                {status(401, clientSecret), 401, "", none},
		"a long answer":         {status(400, body("invalid_client")+strings.Repeat(" ", 64<<10)), 400, "", none},
		"two codes":             {status(400, `{"error":"invalid_client","error":"invalid_client"}`), 400, "", none},
		"201": {status(201, `{"access_token":"`+canaryToken+`","token_type":"Bearer","expires_in":3600}`), 201, "",
			none},
		"300":          {status(300, ""), 300, "", redirect},
		"307":          {status(307, ""), 307, "", redirect},
		"399":          {status(399, ""), 399, "", redirect},
		"hanging up":   {hangsUp, 0, "", "the connection was closed"},
		"not HTTP":     {speaks("SSH-2.0 " + canaryToken + "\r\n"), 0, "", invalid},
		"long headers": {answers(200, "", "X", strings.Repeat("x", 80<<10)), 0, "", invalid},
		"an early end": {speaks("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n" +
			`{"access_token":"` + canaryToken), 200, "", "the answer is incomplete: the connection was closed"},
		"an early end of a 401": {speaks("HTTP/1.1 401 Unauthorized\r\nContent-Length: 500\r\n\r\n" + canaryToken),
			401, "", none},
		"no end": {func(w http.ResponseWriter, request *http.Request) {
			_ = request.ParseForm() // a server notices the end of a connection only after the body
			answers(http.StatusOK, strings.Repeat(" ", 64<<10+1))(w, request)
			_ = http.NewResponseController(w).Flush()
			<-request.Context().Done() // until the caller has gone
		}, 200, "", "the answer is longer than 64 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				test.answer(w, r)
			}))
			defer server.Close()
			_, err := token.NewEndpoint(parse(t, server.URL), "manager-1", token.EndpointOptions{}).
				Fetch(t.Context(), testCredentials)
			expectEndpointError(t, err, test.status, test.code, test.problem)
			if requests.Load() != 1 {
				t.Errorf("%d requests", requests.Load())
			}
		})
	}
}

func TestFetchReportsWhyThereIsNoAnswer(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	closed := httptest.NewServer(nil)
	closed.Close()
	at := func(u *url.URL) *token.Endpoint { return token.NewEndpoint(u, "manager-1", token.EndpointOptions{}) }
	for want, test := range map[string]struct {
		endpoint *token.Endpoint
		ctx      context.Context
	}{
		"canceled":           {at(parse(t, closed.URL)), canceled},
		"connection refused": {at(parse(t, closed.URL)), t.Context()},
		"its URL is invalid": {at(&url.URL{Scheme: "https", Host: "a b"}), t.Context()},
		"lookup auth.invalid: no such host": {token.Direct(at(parse(t, "https://auth.invalid")),
			roundTripper(func(*http.Request) (*http.Response, error) {
				return nil, &net.DNSError{Err: "no such host", Name: "auth.invalid", IsNotFound: true}
			})), t.Context()},
	} {
		_, err := test.endpoint.Fetch(test.ctx, testCredentials)
		e, ok := errors.AsType[*token.EndpointError](err)
		if !ok || e.Status != 0 || !strings.HasSuffix(e.Problem, want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// serveTLS returns the URL of a server with a configuration that returns a token, an endpoint with that URL that trusts
// a CA, and the number of its connections.
func serveTLS(t *testing.T, ca *paymenttest.CA, config *tls.Config) (*url.URL, *token.Endpoint, *atomic.Int32) {
	t.Helper()
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(returns(canaryToken, time.Hour))
	server.TLS, server.Config.ErrorLog = config, log.New(io.Discard, "", 0)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	roots, u := x509.NewCertPool(), parse(t, server.URL)
	roots.AddCert(ca.Certificate)
	return u, token.NewEndpoint(u, "manager-1", token.EndpointOptions{RootCAs: roots}), &connections
}

// The certificate's names, serial number and times are data of the server.
func TestFetchReportsWhatIsWrongWithACertificate(t *testing.T) {
	ca, now := paymenttest.NewCA("CA"), time.Now()
	expires := func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(-2*time.Hour), now.Add(-time.Hour) }
	begins := func(c *x509.Certificate) { c.NotBefore = now.Add(time.Hour) }
	const (
		own     = "its TLS certificate"
		expired = own + ", or that of a CA, has expired"
		early   = own + ", or that of a CA, is not yet valid"
		other   = own + " is for another host"
		unknown = own + " is from an unknown CA"
	)
	for name, test := range map[string]struct {
		ca      *paymenttest.CA
		change  func(*x509.Certificate)
		problem string // "": none
	}{
		"none":                       {ca, nil, ""},
		"expired":                    {ca, expires, expired},
		"not yet valid":              {ca, begins, early},
		"another address":            {ca, func(c *x509.Certificate) { c.IPAddresses = nil }, other},
		"another CA":                 {paymenttest.NewCA(clientSecret), nil, unknown},
		"expired, of another CA":     {paymenttest.NewCA("CA"), expires, expired},
		"a CA that has expired":      {ca.NewIntermediate(clientSecret, expires), nil, expired},
		"a CA that is not yet valid": {ca.NewIntermediate(clientSecret, begins), nil, early},
		"of a client":                {ca, func(c *x509.Certificate) { c.ExtKeyUsage[0]++ }, own + " is not valid"},
	} {
		t.Run(name, func(t *testing.T) {
			config := &tls.Config{Certificates: []tls.Certificate{test.ca.Client(func(c *x509.Certificate) {
				c.Subject.CommonName, c.DNSNames = clientSecret, []string{clientSecret + ".example"}
				c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
				c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
				if test.change != nil {
					test.change(c)
				}
			})}}
			_, e, _ := serveTLS(t, ca, config)
			_, err := e.Fetch(t.Context(), testCredentials)
			if test.problem != "" {
				expectEndpointError(t, err, 0, "", test.problem)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// The client secret is not sent to a server that knows older versions of TLS alone, nor the token.
func TestNothingIsSentWithAnOlderTLS(t *testing.T) {
	ca := paymenttest.NewCA("CA")
	for version := uint16(tls.VersionTLS10); version <= tls.VersionTLS13; version++ {
		u, e, _ := serveTLS(t, ca, &tls.Config{Certificates: []tls.Certificate{ca.Server()},
			MinVersion: tls.VersionTLS10, MaxVersion: version})
		_, err := e.Fetch(t.Context(), testCredentials)
		r := newRig(t, hangsUp)
		r.put(canaryToken, time.Hour)
		client := token.NewClient(r.reader(), u)
		token.Base(client).TLSClientConfig.RootCAs = token.Roots(e)
		response, failed := client.Get(u.String())
		if failed == nil {
			_ = response.Body.Close()
		}
		if ok := version >= tls.VersionTLS12; (err == nil) != ok || (failed == nil) != ok {
			t.Errorf("%s: %v, %v", tls.VersionName(version), err, failed)
		}
	}
}

// Minutes pass between two calls. A connection that was closed meanwhile would cost one of them.
func TestEachCallHasAConnectionOfItsOwn(t *testing.T) {
	ca := paymenttest.NewCA("CA")
	_, e, connections := serveTLS(t, ca, &tls.Config{Certificates: []tls.Certificate{ca.Server()}})
	for n := range int32(3) {
		if _, err := e.Fetch(t.Context(), testCredentials); err != nil || connections.Load() != n+1 {
			t.Errorf("call %d: %v, %d connections", n, err, connections.Load())
		}
	}
}

// speaks answers with these bytes and closes the connection.
func speaks(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = connection.Write([]byte(text))
		_ = connection.Close()
	}
}
