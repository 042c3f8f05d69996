package token_test

import (
	"context"
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
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/token"
)

var testCredentials = token.Credentials{ClientID: clientID, ClientSecret: token.NewSecret(clientSecret)}

// fetch calls an endpoint with that answer over a network.
func fetch(t *testing.T, answer http.HandlerFunc) (token.Bearer, error) {
	t.Helper()
	server := httptest.NewServer(answer)
	defer server.Close()
	return token.NewEndpoint(parse(t, server.URL), "manager-1", token.EndpointOptions{}).
		Fetch(t.Context(), testCredentials)
}

func TestFetchSendsTheRequestOfTheInterface(t *testing.T) {
	odd := token.Credentials{ClientID: "client 1/ü", ClientSecret: token.NewSecret("p:+%ß 1")}
	for name, test := range map[string]struct {
		credentials    token.Credentials
		options        token.EndpointOptions
		path           string // below the server's
		user, password string
		scope          []string
	}{
		"literal": {odd, token.EndpointOptions{}, "", "client 1/ü", "p:+%ß 1", nil},
		"form-encoded": {odd, token.EndpointOptions{FormEncoded: true}, "", "client+1%2F%C3%BC", "p%3A%2B%25%C3%9F+1",
			nil},
		"a colon, form-encoded": {token.Credentials{ClientID: "a:b", ClientSecret: token.NewSecret("c")},
			token.EndpointOptions{FormEncoded: true}, "", "a%3Ab", "c", nil},
		"scopes": {testCredentials, token.EndpointOptions{Scopes: []string{"payments.read", "payments.write"}}, "",
			clientID, clientSecret, []string{"payments.read payments.write"}},
		"an auth URL with a path": {testCredentials, token.EndpointOptions{}, "/tenant-1", clientID, clientSecret, nil},
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
	const longest = 366 * 24 * time.Hour
	full := fmt.Sprintf(`{"access_token":"%s","token_type":"Bearer","expires_in":%d}`, strings.Repeat("a", 32<<10),
		longest/time.Second)
	type test struct {
		body     string
		access   string
		lifetime time.Duration
	}
	tests := map[string]test{
		"plain":  {`{"access_token":"t-._~+/9==","token_type":"Bearer","expires_in":3600}`, "t-._~+/9==", time.Hour},
		"BEARER": {`{"access_token":"t","token_type":"BEARER","expires_in":1}`, "t", time.Second},
		"further members": {`{"access_token":"t","token_type":"bearer","expires_in":3600,"x":{"y":[1.5]}}`, "t",
			time.Hour},
		"a byte order mark": {"\uFEFF" + `{"access_token":"t","token_type":"Bearer","expires_in":3600}`, "t",
			time.Hour},
		"an error as well": {`{"access_token":"t","token_type":"Bearer","expires_in":3600,"error":"invalid_scope"}`,
			"t", time.Hour},
		"the largest values": {full + strings.Repeat(" ", 64<<10-len(full)), strings.Repeat("a", 32<<10), longest},
	}
	for _, access := range []string{"00D50!AQ.x", "1|abc", "perm:abc==.x==.y", "==", "a=b", `"\`} {
		quoted, _ := json.Marshal(access)
		tests[access] = test{`{"access_token":` + string(quoted) + `,"token_type":"Bearer","expires_in":3600}`, access,
			time.Hour}
	}
	for _, number := range []string{"3600", "3600.0", "3.6e3", "36E+2", "360000e-2", "3600.000000000000000000000"} {
		for _, text := range []string{number, `"` + number + `"`} {
			tests["expires_in "+text] = test{`{"access_token":"t","token_type":"Bearer","expires_in":` + text + `}`,
				"t", time.Hour}
		}
	}
	tests["expires_in, escaped"] = test{`{"access_token":"t","token_type":"Bearer","expires_in":"\u0033600"}`, "t",
		time.Hour}
	for name, test := range tests {
		bubble(t, name, func(t *testing.T) {
			sent := time.Now()
			b, err := newEndpoint(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(9 * time.Second)
				answers(http.StatusOK, test.body)(w, r)
			})).Fetch(t.Context(), testCredentials)
			if err != nil || b.AccessToken.Reveal() != test.access || !b.IssuedAt.Equal(sent) ||
				!b.ExpiresAt.Equal(sent.Add(test.lifetime)) {
				t.Errorf("from %s to %s, %v; want a life counted from before it was sent", b.IssuedAt, b.ExpiresAt, err)
			}
		})
	}
}

func TestFetchRejectsMalformedAnswers(t *testing.T) {
	const (
		object  = "the answer is not one JSON object without duplicate names"
		access  = "access_token is missing or not a valid token of at most 32 KiB"
		bearer  = "token_type is not Bearer"
		expires = "expires_in is not a whole number of seconds, greater than 0 and at most 366 days"
	)
	good := `{"access_token":"` + canaryToken + `","token_type":"Bearer","expires_in":3600}`
	with := func(old, by string) string { return strings.Replace(good, old, by, 1) }
	type test struct{ body, contentType, problem string }
	tests := map[string]test{
		"HTML": {"<html>" + canaryToken + "</html>", "text/html; charset=utf-8",
			object + "; its Content-Type is text/html"},
		"HTML without a type": {"<html>" + canaryToken + "</html>", ";", object + "; its Content-Type is malformed"},
		"too long": {good + strings.Repeat(" ", 64<<10+1-len(good)), "",
			"the answer is longer than 64 KiB"},
	}
	for problem, bodies := range map[string][]string{
		object: {"", "access_token=" + canaryToken, "[" + good + "]", "null", good + "{}", `"` + canaryToken + `"`,
			with("{", `{"access_token":"x",`), with("{", `{"x":1,"x":1,`), with(canaryToken, "\xff")},
		access: {with("access_token", "x"), with("access_token", "Access_Token"), with(canaryToken, ""),
			with(`"`+canaryToken+`"`, "null"), with(`"`+canaryToken+`"`, "12"),
			with(canaryToken, strings.Repeat("a", 32<<10+1)),
			with(canaryToken, "a b"), with(canaryToken, `a\r\nX-Evil: 1`), with(canaryToken, "ü"),
			with(canaryToken, `\u007f`)},
		bearer: {with("token_type", "x"), with("Bearer", "mac"), with(`"Bearer"`, "null"), with(`"Bearer"`, "7"),
			with("Bearer", "Bearer ")},
		expires: {with("expires_in", "x")},
	} {
		for _, body := range bodies {
			tests[problem+body] = test{body, "", problem}
		}
	}
	for _, text := range []string{"null", `{}`, `[3600]`, "true", "0", "-0", "-1", "0.0", "59.5", "3599.5",
		"0.9999999999999999999",
		"3600.0000000000000000000001", "3599.9999999999999999999999", "36001e-1", "31622401", "31622400.5",
		"1893456000", "99999999999999999999999999", "1e999999999", "1e-999999999", `""`,
		`" 3600"`, `"3600 "`, `"3600\n"`, `"0x10"`,
		`"3600s"`, `"3_600"`, `"3,600"`, `"3600/1"`, `"Inf"`, `"-3600"`, `"1e9"`, `"3600.5"`, `"\"3600\""`} {
		tests["expires_in "+text] = test{with("3600", text), "", expires}
	}
	for name, test := range tests {
		t.Run(name[:min(len(name), 90)], func(t *testing.T) {
			if test.contentType == "" {
				test.contentType = "application/json"
			}
			_, err := newEndpoint(t, answers(http.StatusOK, test.body, "Content-Type", test.contentType)).
				Fetch(t.Context(), testCredentials)
			expectEndpointError(t, err, http.StatusOK, "", test.problem)
		})
	}
}

// The interface does not promise a type.
func TestATokenOfAnyContentTypeIsStoredAndItsTypeReported(t *testing.T) {
	for header, want := range map[string]string{
		"application/json;charset=UTF-8": "", "application/json; x": "", "application/vnd.token+json": "",
		"text/html": "text/html", "text/plain; charset=utf-8": "text/plain", ";" + clientSecret: "malformed",
		"": "none",
	} {
		bubble(t, header, func(t *testing.T) {
			r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
				w.Header()["Content-Type"] = []string{header}
				_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600}`, canaryToken)
			})
			if report := r.run(t, token.Refreshed); report.UnexpectedType != want {
				t.Errorf("reported %q", report.UnexpectedType)
			}
			expectToken(t, r.reader(), canaryToken)
		})
	}
}

func TestFetchReadsAtMost64KiB(t *testing.T) {
	_, err := fetch(t, func(w http.ResponseWriter, request *http.Request) {
		_ = request.ParseForm() // a server notices the end of a connection only after the body
		answers(http.StatusOK, strings.Repeat(" ", 64<<10+1))(w, request)
		_ = http.NewResponseController(w).Flush()
		<-request.Context().Done() // until the caller has gone
	})
	expectEndpointError(t, err, http.StatusOK, "", "the answer is longer than 64 KiB")
}

func TestErrorContainsOnlyStatusAndRegisteredCode(t *testing.T) {
	body := func(code string) string {
		return `{"error":"` + code + `","error_description":"` + clientSecret + `","access_token":"` + canaryToken +
			`"}`
	}
	const (
		none    = "no registered OAuth error code"
		missing = "access_token is missing or not a valid token of at most 32 KiB"
	)
	for _, test := range []struct {
		status        int
		body          string
		code, problem string
	}{
		{400, body("invalid_client"), "invalid_client", none},
		{400, body("invalid_scope"), "invalid_scope", none},
		{400, "\uFEFF" + body("invalid_scope"), "invalid_scope", none},
		{200, `{"error":"invalid_client"}`, "invalid_client", missing},
		{200, body("invalid_client"), "invalid_client", "token_type is not Bearer"},
		{200, `{"error":"` + clientSecret + `"}`, "", missing},
		{503, body("temporarily_unavailable"), "temporarily_unavailable", none},
		{400, body(clientSecret), "", none},
		{400, `{"error":["invalid_client"]}`, "", none},
		{401, clientSecret, "", none},
		{400, body("invalid_client") + strings.Repeat(" ", 64<<10), "", none},
		{400, `{"error":"invalid_client","error":"invalid_client"}`, "", none},
		{201, `{"access_token":"` + canaryToken + `","token_type":"Bearer","expires_in":3600}`, "", none},
		{300, "", "", "redirects are not followed"},
		{307, "", "", "redirects are not followed"},
		{399, "", "", "redirects are not followed"},
	} {
		t.Run(fmt.Sprint(test.status, " ", test.code), func(t *testing.T) {
			requests := 0
			_, err := fetch(t, func(w http.ResponseWriter, r *http.Request) {
				requests++
				answers(test.status, test.body, "Location", "/other")(w, r)
			})
			expectEndpointError(t, err, test.status, test.code, test.problem)
			if requests != 1 {
				t.Errorf("%d requests", requests)
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
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	closed, untrusted := httptest.NewServer(nil), httptest.NewUnstartedServer(nil)
	closed.Close()
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	const invalid = "not a valid HTTP answer"
	for name, test := range map[string]struct {
		answer  http.HandlerFunc // nil: that of the URL
		url     *url.URL
		ctx     context.Context
		status  int
		problem string // its end
	}{
		"hanging up":   {hangsUp, nil, t.Context(), 0, "the connection was closed"},
		"canceled":     {hangsUp, nil, canceled, 0, "canceled"},
		"not HTTP":     {speaks("SSH-2.0 " + canaryToken + "\r\n"), nil, t.Context(), 0, invalid},
		"long headers": {answers(200, "", "X", strings.Repeat("x", 80<<10)), nil, t.Context(), 0, invalid},
		"an early end": {speaks("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n" +
			`{"access_token":"` + canaryToken), nil, t.Context(), 200,
			"the answer is incomplete: the connection was closed"},
		"an early end of a 401": {speaks("HTTP/1.1 401 Unauthorized\r\nContent-Length: 500\r\n\r\n" + canaryToken),
			nil, t.Context(), 401, "no registered OAuth error code"},
		"no server":     {nil, parse(t, closed.URL), t.Context(), 0, "connection refused"},
		"another CA":    {nil, parse(t, untrusted.URL), t.Context(), 0, "its TLS certificate is not valid"},
		"no such host":  {nil, parse(t, "https://auth.invalid"), t.Context(), 0, "lookup auth.invalid: no such host"},
		"no valid host": {nil, &url.URL{Scheme: "https", Host: "a b"}, t.Context(), 0, "its URL is invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.answer != nil {
				server := httptest.NewServer(test.answer)
				defer server.Close()
				test.url = parse(t, server.URL)
			}
			e := token.NewEndpoint(test.url, "manager-1", token.EndpointOptions{})
			if name == "no such host" {
				e = token.Direct(e, roundTripper(func(*http.Request) (*http.Response, error) {
					return nil, &net.DNSError{Err: "no such host", Name: "auth.invalid", IsNotFound: true}
				}))
			}
			_, err := e.Fetch(test.ctx, testCredentials)
			failure, ok := errors.AsType[*token.EndpointError](err)
			if !ok || failure.Status != test.status || !strings.HasSuffix(failure.Problem, test.problem) {
				t.Errorf("got %v, want %s", err, test.problem)
			}
			expectNoCanary(t, fmt.Sprintf("%v %+v %#v", err, err, failure))
		})
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
