package local

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json/v2"
	"encoding/pem"
	"fmt"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
)

// event returns the event that the endpoint makes of a request with a client certificate, which is
// nil without mutual TLS. It has no cookies, query parameters and trace id, and of the certificate
// only the PEM.
func (e *endpoint) event(r *http.Request, body []byte, certificate *x509.Certificate) ([]byte, error) {
	api, now := e.api, time.Now()
	source, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		source = r.RemoteAddr
	}
	prefix, _, _ := strings.Cut(api.Domain, ".")
	made := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: r.Method + " /", RawPath: r.URL.EscapedPath(), RawQueryString: r.URL.RawQuery,
		Headers: map[string]string{},
		RequestContext: events.APIGatewayV2HTTPRequestContext{
			AccountID: api.Account, APIID: api.ID, DomainName: api.Domain, DomainPrefix: prefix,
			HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{Method: r.Method, Path: r.URL.EscapedPath(),
				Protocol: r.Proto, SourceIP: source, UserAgent: r.UserAgent()},
			RequestID: rand.Text()[:16], RouteKey: r.Method + " /", Stage: "$default",
			Time: now.UTC().Format("02/Jan/2006:15:04:05 +0000"), TimeEpoch: now.UnixMilli(),
		},
	}
	for name, values := range r.Header {
		made.Headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	made.Headers["host"] = api.Domain
	if r.ContentLength >= 0 {
		made.Headers["content-length"] = fmt.Sprint(len(body))
	}
	if before := made.Headers["x-forwarded-for"]; before != "" {
		source = before + ", " + source
	}
	made.Headers["x-forwarded-for"], made.Headers["x-forwarded-port"] = source, "443"
	made.Headers["x-forwarded-proto"] = "https"
	if certificate != nil {
		made.RequestContext.Authentication.ClientCert.ClientCertPem = string(
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
	}
	if isText(r.Header.Get("Content-Type")) {
		made.Body = string(body)
	} else if len(body) > 0 {
		made.Body, made.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	}
	return json.Marshal(made)
}

// isText reports whether a body is passed on as text. AWS does not list the types;
// these are those that were found by trying (MiniStack's pull request 766, "v2
// Lambda-proxy honors isBase64Encoded in both directions"). No type is binary.
func isText(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (strings.HasPrefix(kind, "text/") ||
		slices.Contains([]string{"application/json", "application/xml", "application/javascript"}, kind))
}
