package endpoint

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
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

// Event returns the event that the endpoint makes of a request with a client certificate, which is
// nil without mutual TLS. It has no cookies, query parameters and trace id.
func (e *Endpoint) Event(r *http.Request, body []byte, certificate *x509.Certificate) ([]byte, error) {
	api, now := e.api, time.Now()
	source, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		source = r.RemoteAddr
	}
	prefix, _, _ := strings.Cut(api.Domain, ".")
	event := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: api.RouteKey, RawPath: r.URL.EscapedPath(), RawQueryString: r.URL.RawQuery,
		Headers: map[string]string{},
		RequestContext: events.APIGatewayV2HTTPRequestContext{
			AccountID: api.Account, APIID: api.ID, DomainName: api.Domain, DomainPrefix: prefix,
			HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{Method: r.Method, Path: r.URL.EscapedPath(),
				Protocol: r.Proto, SourceIP: source, UserAgent: r.UserAgent()},
			RequestID: rand.Text()[:16], RouteKey: api.RouteKey, Stage: api.Stage,
			Time: now.UTC().Format("02/Jan/2006:15:04:05 +0000"), TimeEpoch: now.UnixMilli(),
		},
	}
	for name, values := range r.Header {
		event.Headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	event.Headers["host"] = api.Domain
	if r.ContentLength >= 0 {
		event.Headers["content-length"] = fmt.Sprint(len(body))
	}
	if before := event.Headers["x-forwarded-for"]; before != "" {
		source = before + ", " + source
	}
	event.Headers["x-forwarded-for"], event.Headers["x-forwarded-port"] = source, "443"
	event.Headers["x-forwarded-proto"] = "https"
	if certificate != nil {
		event.RequestContext.Authentication.ClientCert = Describe(certificate)
	}
	if isText(r.Header.Get("Content-Type")) {
		event.Body = string(body)
	} else if len(body) > 0 {
		event.Body, event.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	}
	return json.Marshal(event)
}

// isText reports whether a body is passed on as text. AWS does not list the types;
// these are those that were found by trying (MiniStack's pull request 766, "v2
// Lambda-proxy honors isBase64Encoded in both directions"). No type is binary.
func isText(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (strings.HasPrefix(kind, "text/") ||
		slices.Contains([]string{"application/json", "application/xml", "application/javascript"}, kind))
}

// Describe returns the fields of an event for a client certificate. The formats are
// those of AWS's examples: names as C=US,O=Company,CN=Name in the order of the
// certificate, serial numbers as a1:a1:a1, times as May 28 12:30:02 2019 GMT.
func Describe(c *x509.Certificate) events.APIGatewayV2HTTPRequestContextAuthenticationClientCert {
	const layout = "Jan _2 15:04:05 2006 GMT"
	serial := make([]string, len(c.SerialNumber.Bytes()))
	for i, octet := range c.SerialNumber.Bytes() {
		serial[i] = fmt.Sprintf("%02x", octet)
	}
	text := strings.Join(serial, ":")
	if len(serial) == 1 {
		text = strings.TrimLeft(text, "0")
	}
	return events.APIGatewayV2HTTPRequestContextAuthenticationClientCert{
		ClientCertPem: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})),
		SubjectDN:     name(c.RawSubject), IssuerDN: name(c.RawIssuer), SerialNumber: text,
		Validity: events.APIGatewayV2HTTPRequestContextAuthenticationClientCertValidity{
			NotBefore: c.NotBefore.UTC().Format(layout), NotAfter: c.NotAfter.UTC().Format(layout)},
	}
}

// name returns a distinguished name in the order in which a certificate has it.
func name(raw []byte) string {
	var sequence pkix.RDNSequence
	if _, err := asn1.Unmarshal(raw, &sequence); err != nil {
		return "" // it was read before
	}
	// RDNSequence.String begins with the last, as RFC 4514 says.
	slices.Reverse(sequence)
	return sequence.String()
}
