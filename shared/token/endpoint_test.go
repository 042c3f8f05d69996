package token_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/token"
)

var testCredentials = token.Credentials{ClientID: clientID, ClientSecret: token.NewSecret(clientSecret)}

func TestFetchSendsTheRequestOfTheInterface(t *testing.T) {
	tests := map[string]struct {
		credentials token.Credentials
		options     token.EndpointOptions
		authURL     string // below the server's
		user        string
		password    string
		form        url.Values
		path        string
	}{
		"client id and secret enter HTTP Basic literally": {
			credentials: token.Credentials{ClientID: "client 1/ü", ClientSecret: token.NewSecret("p:+%ß 1")},
			user:        "client 1/ü", password: "p:+%ß 1",
			form: url.Values{"grant_type": {"client_credentials"}},
			path: "/as/token.oauth2",
		},
		"client id and secret are form-encoded first": {
			credentials: token.Credentials{ClientID: "client:1/ü", ClientSecret: token.NewSecret("p:+%ß 1")},
			options:     token.EndpointOptions{FormEncoded: true},
			user:        "client%3A1%2F%C3%BC", password: "p%3A%2B%25%C3%9F+1",
			form: url.Values{"grant_type": {"client_credentials"}},
			path: "/as/token.oauth2",
		},
		"scopes are sent": {
			credentials: testCredentials,
			options:     token.EndpointOptions{Scopes: []string{"payments.read", "payments.write"}},
			user:        clientID, password: clientSecret,
			form: url.Values{"grant_type": {"client_credentials"}, "scope": {"payments.read payments.write"}},
			path: "/as/token.oauth2",
		},
		"the auth URL has a path": {
			credentials: testCredentials,
			authURL:     "/tenant-1",
			user:        clientID, password: clientSecret,
			form: url.Values{"grant_type": {"client_credentials"}},
			path: "/tenant-1/as/token.oauth2",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := newEndpoint(t, returns(canaryToken, time.Hour))
			e := token.NewEndpoint(parse(t, server.URL+test.authURL), "manager 1&x", test.options)
			if _, err := e.Fetch(t.Context(), test.credentials); err != nil {
				t.Fatal(err)
			}
			r := server.calls()[0]
			if r.Method != http.MethodPost || r.URL.Path != test.path {
				t.Errorf("%s %s, want POST %s", r.Method, r.URL.Path, test.path)
			}
			if diff := cmp.Diff(url.Values{"access_token_manager_id": {"manager 1&x"}}, r.URL.Query()); diff != "" {
				t.Errorf("query (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.form, r.PostForm); diff != "" {
				t.Errorf("form (-want +got):\n%s", diff)
			}
			if got := r.Header.Get("Content-Type"); got != "application/x-www-form-urlencoded" {
				t.Errorf("Content-Type %q", got)
			}
			user, password, _ := r.BasicAuth()
			if user != test.user || password != test.password {
				t.Errorf("Basic %q %q, want %q %q", user, password, test.user, test.password)
			}
		})
	}
}

func TestFetchReturnsTheToken(t *testing.T) {
	tests := map[string]string{
		"plain":  `{"access_token":"t-._~+/9==","token_type":"Bearer","expires_in":3600}`,
		"bearer": `{"access_token":"t-._~+/9==","token_type":"bearer","expires_in":3600}`,
		"BEARER": `{"access_token":"t-._~+/9==","token_type":"BEARER","expires_in":3600}`,
		"further members": `{"access_token":"t-._~+/9==","token_type":"Bearer","expires_in":3600,` +
			`"scope":"a","x":{"y":[1.5]}}`,
		"in another order": ` { "expires_in" : 3600 , "token_type" : "Bearer" , "access_token" : "t-._~+/9==" } `,
	}
	for name, body := range tests {
		t.Run(name, func(t *testing.T) {
			clock := newClock()
			sent := clock.Now()
			server := newEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
				clock.Advance(20 * time.Second)
				answers(http.StatusOK, body)(w, r)
			})
			b, err := token.NewEndpoint(parse(t, server.URL), "manager-1",
				token.EndpointOptions{Now: clock.Now}).Fetch(t.Context(), testCredentials)
			want := token.Bearer{AccessToken: token.NewSecret("t-._~+/9=="), IssuedAt: sent,
				ExpiresAt: sent.Add(time.Hour)}
			if diff := cmp.Diff(want, b); err != nil || diff != "" {
				t.Errorf("Fetch: %v (-want +got, counted from before it was sent):\n%s", err, diff)
			}
		})
	}
}

func TestFetchRejectsMalformedAnswers(t *testing.T) {
	const (
		noObject = "the answer is not one JSON object without duplicate names"
		chars    = "access_token has invalid characters"
		whole    = "expires_in is not a whole number"
		positive = "expires_in is not greater than 0"
		number   = "expires_in is not a number"
		long     = "expires_in is longer than 366 days"
		bearer   = "token_type is not Bearer"
		typed    = "the Content-Type of the answer is not JSON"
	)
	access := `{"access_token":` + `"` + canaryToken + `",`
	expires := func(v string) string { return access + `"token_type":"Bearer","expires_in":` + v + `}` }
	tests := map[string]struct {
		body        string
		contentType string // "": JSON
		problem     string
	}{
		"empty":               {body: "", problem: noObject},
		"no JSON":             {body: "access_token=" + canaryToken, problem: noObject},
		"an array":            {body: "[" + expires("3600") + "]", problem: noObject},
		"null":                {body: "null", problem: noObject},
		"something behind it": {body: expires("3600") + "{}", problem: noObject},
		"a name twice": {body: access + access[1:] + `"token_type":"Bearer","expires_in":3600}`,
			problem: noObject},
		"an unknown name twice": {body: access + `"x":1,"x":1,"token_type":"Bearer","expires_in":3600}`,
			problem: noObject},
		"broken UTF-8": {body: "{\"access_token\":\"\xff\",\"token_type\":\"Bearer\",\"expires_in\":3600}",
			problem: noObject},
		"HTML": {body: "<html>" + canaryToken + "</html>", contentType: "text/html",
			problem: typed},
		"JSON with the type of HTML":  {body: expires("3600"), contentType: "text/html; charset=utf-8", problem: typed},
		"no Content-Type that parses": {body: expires("3600"), contentType: ";", problem: typed},
		"a parameter without a value": {body: expires("3600"), contentType: "application/json; x", problem: typed},
		"too long": {body: expires("3600") + strings.Repeat(" ", 64<<10+1-len(expires("3600"))),
			problem: "the answer is longer than 64 KiB"},

		"no access_token": {body: `{"token_type":"Bearer","expires_in":3600}`,
			problem: "access_token is missing"},
		"access_token otherwise": {body: `{"Access_Token":"` + canaryToken +
			`","token_type":"Bearer","expires_in":3600}`, problem: "access_token is missing"},
		"access_token empty": {body: `{"access_token":"","token_type":"Bearer","expires_in":3600}`,
			problem: "access_token is empty"},
		"access_token null": {body: `{"access_token":null,"token_type":"Bearer","expires_in":3600}`,
			problem: "access_token is not a string"},
		"access_token a number": {body: `{"access_token":12,"token_type":"Bearer","expires_in":3600}`,
			problem: "access_token is not a string"},
		"access_token too long": {body: `{"access_token":"` + strings.Repeat("a", 32<<10+1) +
			`","token_type":"Bearer","expires_in":3600}`, problem: "access_token is longer than 32 KiB"},
		"access_token with space": {body: `{"access_token":"a b","token_type":"Bearer","expires_in":3600}`,
			problem: chars},
		"access_token with break": {body: `{"access_token":"a\r\nX-Evil: 1","token_type":"Bearer","expires_in":3600}`,
			problem: chars},
		"access_token with umlaut": {body: `{"access_token":"ü","token_type":"Bearer","expires_in":3600}`,
			problem: chars},
		"access_token only =": {body: `{"access_token":"==","token_type":"Bearer","expires_in":3600}`,
			problem: chars},
		"access_token = inside": {body: `{"access_token":"a=b","token_type":"Bearer","expires_in":3600}`,
			problem: chars},

		"no token_type":        {body: access + `"expires_in":3600}`, problem: bearer},
		"token_type mac":       {body: access + `"token_type":"mac","expires_in":3600}`, problem: bearer},
		"token_type null":      {body: access + `"token_type":null,"expires_in":3600}`, problem: bearer},
		"token_type with more": {body: access + `"token_type":"Bearer ","expires_in":3600}`, problem: bearer},

		"no expires_in":                    {body: access + `"token_type":"Bearer"}`, problem: "expires_in is missing"},
		"expires_in null":                  {body: expires("null"), problem: number},
		"expires_in a text":                {body: expires(`"3600"`), problem: number},
		"expires_in 0":                     {body: expires("0"), problem: positive},
		"expires_in -0":                    {body: expires("-0"), problem: positive},
		"expires_in -1":                    {body: expires("-1"), problem: positive},
		"expires_in 0.0":                   {body: expires("0.0"), problem: whole},
		"expires_in 59.5":                  {body: expires("59.5"), problem: whole},
		"expires_in 3600.0":                {body: expires("3600.0"), problem: whole},
		"expires_in 36e2":                  {body: expires("36e2"), problem: whole},
		"expires_in milliseconds":          {body: expires("3600000000"), problem: long},
		"expires_in Unix time":             {body: expires("1893456000"), problem: long},
		"expires_in 366 days and 1 second": {body: expires("31622401"), problem: long},
		"expires_in endless":               {body: expires("99999999999999999999999999"), problem: long},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			contentType := test.contentType
			if contentType == "" {
				contentType = "application/json"
			}
			server := newEndpoint(t, answers(http.StatusOK, test.body, "Content-Type", contentType))
			_, err := token.NewEndpoint(parse(t, server.URL), "manager-1", token.EndpointOptions{}).Fetch(t.Context(),
				testCredentials)
			expectEndpointError(t, err, http.StatusOK, "", test.problem)
		})
	}
}

func TestFetchAcceptsTheLargestValues(t *testing.T) {
	const longest = 366 * 24 * 60 * 60
	full := fmt.Sprintf(`{"access_token":"%s","token_type":"Bearer","expires_in":%d}`, strings.Repeat("a", 32<<10),
		longest)
	for name, body := range map[string]string{
		"64 KiB, with a token of 32 KiB for 366 days": full + strings.Repeat(" ", 64<<10-len(full)),
		"a token of one character for one second":     `{"access_token":"t","token_type":"Bearer","expires_in":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			server := newEndpoint(t, answers(http.StatusOK, body))
			_, err := token.NewEndpoint(parse(t, server.URL), "manager-1", token.EndpointOptions{}).Fetch(t.Context(),
				testCredentials)
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFetchReadsAtMost64KiB(t *testing.T) {
	server := newEndpoint(t, func(w http.ResponseWriter, request *http.Request) {
		answers(http.StatusOK, strings.Repeat(" ", 64<<10+1))(w, request)
		_ = http.NewResponseController(w).Flush()
		<-request.Context().Done() // until the caller has gone
	})
	_, err := token.NewEndpoint(parse(t, server.URL), "manager-1", token.EndpointOptions{}).Fetch(t.Context(),
		testCredentials)
	expectEndpointError(t, err, http.StatusOK, "", "the answer is longer than 64 KiB")
}

func TestEndpointErrorContainsOnlyStatusAndRegisteredCode(t *testing.T) {
	body := func(code string) string {
		return `{"error":"` + code + `","error_description":"` + clientSecret + `","access_token":"` + canaryToken +
			`"}`
	}
	tests := map[string]struct {
		status int
		body   string
		code   string
	}{
		"400 invalid_client":          {400, body("invalid_client"), "invalid_client"},
		"400 invalid_scope":           {400, body("invalid_scope"), "invalid_scope"},
		"401 invalid_client":          {401, body("invalid_client"), "invalid_client"},
		"503 temporarily_unavailable": {503, body("temporarily_unavailable"), "temporarily_unavailable"},
		"a code that is the secret":   {400, body(clientSecret), ""},
		"a code that is not a string": {400, `{"error":["invalid_client"]}`, ""},
		"a body that is not JSON":     {401, clientSecret, ""},
		"a body that is too long":     {400, body("invalid_client") + strings.Repeat(" ", 64<<10), ""},
		"a name twice":                {400, `{"error":"invalid_client","error":"invalid_client"}`, ""},
		"no body":                     {500, "", ""},
		"201 with what would be right": {201,
			`{"access_token":"` + canaryToken + `","token_type":"Bearer","expires_in":3600}`, ""},
		"403": {403, body("x"), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := newEndpoint(t, answers(test.status, test.body))
			_, err := token.NewEndpoint(parse(t, server.URL), "manager-1", token.EndpointOptions{}).Fetch(t.Context(),
				testCredentials)
			expectEndpointError(t, err, test.status, test.code, "no registered OAuth error code")
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

func TestFetchDoesNotFollowRedirects(t *testing.T) {
	for _, status := range []int{300, 301, 302, 303, 307, 308, 399} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			other := newEndpoint(t, returns(canaryToken, time.Hour))
			server := newEndpoint(t, answers(status, "", "Location", other.URL+"/as/token.oauth2"))
			_, err := token.NewEndpoint(parse(t, server.URL), "manager-1", token.EndpointOptions{}).Fetch(t.Context(),
				testCredentials)
			expectEndpointError(t, err, status, "", "redirects are not followed")
			if n := len(other.calls()); n != 0 {
				t.Errorf("the other host got %d requests", n)
			}
		})
	}
}

func TestFetchReportsWhyThereIsNoAnswer(t *testing.T) {
	release := make(chan struct{})
	tests := map[string]struct {
		answer  http.HandlerFunc
		timeout time.Duration // zero: the default
		problem string
	}{
		"slow": {func(http.ResponseWriter, *http.Request) { <-release }, 100 * time.Millisecond,
			"timed out"},
		"hanging up": {hangsUp, 0, "the connection was closed"},
		"speaking another way": {func(w http.ResponseWriter,
			_ *http.Request) {
			speak(w, "SSH-2.0 "+canaryToken+"\r\n")
		}, 0, "not a valid HTTP answer"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := newEndpoint(t, test.answer)
			_, err := token.NewEndpoint(parse(t, server.URL), "manager-1",
				token.EndpointOptions{Timeout: test.timeout}).Fetch(t.Context(), testCredentials)
			expectEndpointError(t, err, 0, "", test.problem)
			if name == "slow" {
				close(release) // or the server would not close
			}
		})
	}
	t.Run("breaking off", func(t *testing.T) {
		server := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request) {
			speak(w, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "+
				"500\r\n\r\n{\"access_token\":\""+canaryToken)
		})
		_, err := token.NewEndpoint(parse(t, server.URL), "manager-1", token.EndpointOptions{}).Fetch(t.Context(),
			testCredentials)
		expectEndpointError(t, err, 200, "", "the answer is incomplete: the connection was closed")
	})
	t.Run("not there", func(t *testing.T) {
		server := newEndpoint(t, hangsUp)
		server.Close()
		_, err := token.NewEndpoint(parse(t, server.URL), "manager-1", token.EndpointOptions{}).Fetch(t.Context(),
			testCredentials)
		if failure, ok := errors.AsType[*token.EndpointError](err); !ok || failure.Status != 0 ||
			!strings.Contains(failure.Problem, "connection refused") {
			t.Errorf("%v, want that the connection was refused", err)
		}
	})
}

// speak writes bytes to the connection and closes it.
func speak(w http.ResponseWriter, text string) {
	connection, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = connection.Write([]byte(text))
	_ = connection.Close()
}

func TestTheDefaultTransportHasTheTimeoutsOfGo(t *testing.T) {
	got, want := token.NewTransportOf(), http.DefaultTransport.(*http.Transport)
	if got.TLSHandshakeTimeout != want.TLSHandshakeTimeout || got.IdleConnTimeout != want.IdleConnTimeout ||
		got.ExpectContinueTimeout != want.ExpectContinueTimeout || got.ForceAttemptHTTP2 != want.ForceAttemptHTTP2 {
		t.Errorf("%+v", got)
	}
}

func TestFetchRequiresTrustedTLS12(t *testing.T) {
	tests := map[string]struct {
		max     uint16
		trusted bool
		ok      bool
	}{
		"TLS 1.3":                   {tls.VersionTLS13, true, true},
		"TLS 1.2":                   {tls.VersionTLS12, true, true},
		"TLS 1.1":                   {tls.VersionTLS11, true, false},
		"a certificate of no one's": {tls.VersionTLS13, false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			reached := false
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				reached = true
				returns(canaryToken, time.Hour)(w, r)
			}))
			server.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: test.max}
			server.Config.ErrorLog = silent
			server.StartTLS()
			defer server.Close()
			e := token.NewEndpoint(parse(t, server.URL), "manager-1", token.EndpointOptions{})
			if test.trusted {
				token.Trust(e, server.Certificate())
			}
			_, err := e.Fetch(t.Context(), testCredentials)
			if (err == nil) != test.ok || reached != test.ok {
				t.Errorf("%v, and the endpoint was reached: %t; want %t", err, reached, test.ok)
			}
		})
	}
}

func TestFetchRejectsCredentialsInvalidForBasic(t *testing.T) {
	tests := map[string]struct{ id, secret string }{
		"a colon in the id":          {"client:1", clientSecret},
		"a line break in the id":     {"client\n", clientSecret},
		"a line break in the secret": {clientID, clientSecret + "\n"},
		"a DEL in the secret":        {clientID, clientSecret + "\x7f"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := newEndpoint(t, returns(canaryToken, time.Hour))
			_, err := token.NewEndpoint(parse(t, server.URL), "manager-1", token.EndpointOptions{}).
				Fetch(t.Context(), token.Credentials{ClientID: test.id, ClientSecret: token.NewSecret(test.secret)})
			if _, ok := errors.AsType[*token.CredentialsError](err); !ok || len(server.calls()) > 0 {
				t.Errorf("%v after %d calls, want a CredentialsError after none", err, len(server.calls()))
			}
			expectNoCanary(t, fmt.Sprint(err))
		})
	}
}

// A URL that no request can be made to is an error that a retry can't change.
func TestFetchReportsAnInvalidURL(t *testing.T) {
	e := token.NewEndpoint(&url.URL{Scheme: "https", Host: "a b"}, "manager-1", token.EndpointOptions{})
	_, err := e.Fetch(t.Context(), testCredentials)
	if err == nil || err.Error() != "token: endpoint: no answer: its URL is invalid" {
		t.Errorf("got %v", err)
	}
}

func TestAHostThatIsNotFoundIsNamed(t *testing.T) {
	transport := roundTripper(func(*http.Request) (*http.Response, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "auth.payments.example", IsNotFound: true}
	})
	_, err := token.NewEndpoint(parse(t, "https://auth.payments.example"), "manager-1",
		token.EndpointOptions{Transport: transport}).Fetch(t.Context(), testCredentials)
	expectEndpointError(t, err, 0, "", "lookup auth.payments.example: no such host")
}
