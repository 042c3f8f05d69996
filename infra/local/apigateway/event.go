package apigateway

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// event is an event in payload format 2.0. API Gateway leaves out what is empty.
type event struct {
	Version               string            `json:"version"`
	RouteKey              string            `json:"routeKey"`
	RawPath               string            `json:"rawPath"`
	RawQueryString        string            `json:"rawQueryString"`
	Cookies               []string          `json:"cookies,omitempty"`
	Headers               map[string]string `json:"headers"`
	QueryStringParameters map[string]string `json:"queryStringParameters,omitempty"`
	RequestContext        requestContext    `json:"requestContext"`
	Body                  string            `json:"body,omitempty"`
	IsBase64Encoded       bool              `json:"isBase64Encoded"`
}

type requestContext struct {
	AccountID      string          `json:"accountId"`
	APIID          string          `json:"apiId"`
	Authentication *authentication `json:"authentication,omitempty"`
	DomainName     string          `json:"domainName"`
	DomainPrefix   string          `json:"domainPrefix"`
	HTTP           httpContext     `json:"http"`
	RequestID      string          `json:"requestId"`
	RouteKey       string          `json:"routeKey"`
	Stage          string          `json:"stage"`
	Time           string          `json:"time"`
	TimeEpoch      int64           `json:"timeEpoch"`
}

type httpContext struct {
	Method    string `json:"method"`
	Path      string `json:"path"`
	Protocol  string `json:"protocol"`
	SourceIP  string `json:"sourceIp"`
	UserAgent string `json:"userAgent"`
}

type authentication struct {
	ClientCert *ClientCert `json:"clientCert"`
}

// ClientCert is what an event says of a client certificate.
type ClientCert struct {
	PEM          string   `json:"clientCertPem"`
	SubjectDN    string   `json:"subjectDN"`
	IssuerDN     string   `json:"issuerDN"`
	SerialNumber string   `json:"serialNumber"`
	Validity     Validity `json:"validity"`
}

// Validity is when a certificate is valid.
type Validity struct {
	NotBefore string `json:"notBefore"`
	NotAfter  string `json:"notAfter"`
}

func newRequestID() string { return rand.Text()[:16] }

// newEvent returns the event for a request. key is that of the route.
func newEvent(api API, key, id string, r *http.Request, body []byte, certificate *ClientCert, now time.Time) event {
	source, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		source = r.RemoteAddr
	}
	path := r.URL.EscapedPath()
	if path == "" {
		path = "/"
	}
	prefix, _, _ := strings.Cut(api.Domain, ".")
	e := event{
		Version: "2.0", RouteKey: key, RawPath: path, RawQueryString: r.URL.RawQuery,
		Headers: map[string]string{}, QueryStringParameters: queryParameters(r.URL.RawQuery),
		RequestContext: requestContext{
			AccountID: api.Account, APIID: api.ID, DomainName: api.Domain, DomainPrefix: prefix,
			HTTP: httpContext{Method: r.Method, Path: path, Protocol: r.Proto, SourceIP: source,
				UserAgent: r.UserAgent()},
			RequestID: id, RouteKey: key, Stage: api.Stage,
			Time: now.UTC().Format("02/Jan/2006:15:04:05 +0000"), TimeEpoch: now.UnixMilli(),
		},
	}
	for name, values := range r.Header {
		if name == "Cookie" {
			for _, value := range values {
				for cookie := range strings.SplitSeq(value, ";") {
					e.Cookies = append(e.Cookies, strings.TrimSpace(cookie))
				}
			}
			continue
		}
		e.Headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	e.Headers["host"] = api.Domain
	if r.ContentLength >= 0 && r.Header.Get("Content-Length") == "" {
		e.Headers["content-length"] = fmt.Sprint(len(body))
	}
	if before := e.Headers["x-forwarded-for"]; before != "" {
		source = before + ", " + source
	}
	e.Headers["x-forwarded-for"], e.Headers["x-forwarded-port"], e.Headers["x-forwarded-proto"] = source, "443", "https"
	if e.Headers["x-amzn-trace-id"] == "" {
		e.Headers["x-amzn-trace-id"] = fmt.Sprintf("Root=1-%08x-%s", now.Unix(),
			hex.EncodeToString([]byte(rand.Text()[:12])))
	}
	if certificate != nil {
		e.RequestContext.Authentication = &authentication{certificate}
	}
	if isText(r.Header.Get("Content-Type")) {
		e.Body = string(body)
	} else if len(body) > 0 {
		e.Body, e.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	}
	return e
}

// isText reports whether a body is passed on as text. AWS does not list the types;
// these are those that were found by trying (MiniStack's pull request 766, "v2
// Lambda-proxy honors isBase64Encoded in both directions"). No type is binary.
func isText(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (strings.HasPrefix(kind, "text/") ||
		slices.Contains([]string{"application/json", "application/xml", "application/javascript"}, kind))
}

func queryParameters(raw string) map[string]string {
	values, err := url.ParseQuery(raw)
	if err != nil && len(values) == 0 {
		return nil
	}
	parameters := map[string]string{}
	for name, v := range values {
		parameters[name] = strings.Join(v, ",")
	}
	return parameters
}

// Describe returns what an event says of a client certificate. The formats are
// those of AWS's examples: names as C=US,O=Company,CN=Name in the order of the
// certificate, serial numbers as a1:a1:a1, times as May 28 12:30:02 2019 GMT.
func Describe(c *x509.Certificate) *ClientCert {
	const layout = "Jan _2 15:04:05 2006 GMT"
	return &ClientCert{
		PEM:       string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})),
		SubjectDN: name(c.RawSubject), IssuerDN: name(c.RawIssuer), SerialNumber: serial(c.SerialNumber.Bytes()),
		Validity: Validity{c.NotBefore.UTC().Format(layout), c.NotAfter.UTC().Format(layout)},
	}
}

func serial(number []byte) string {
	octets := make([]string, len(number))
	for i, octet := range number {
		octets[i] = fmt.Sprintf("%02x", octet)
	}
	text := strings.Join(octets, ":")
	if len(octets) == 1 {
		return strings.TrimLeft(text, "0")
	}
	return text
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

// translate returns the HTTP response that a function's answer stands for. An
// answer without statusCode is the body of a response with status 200 (AWS, "Create
// AWS Lambda proxy integrations for HTTP APIs in API Gateway").
func translate(payload []byte) (answer, error) {
	var response struct {
		StatusCode      *int            `json:"statusCode"`
		Headers         map[string]any  `json:"headers"`
		Body            json.RawMessage `json:"body"`
		IsBase64Encoded bool            `json:"isBase64Encoded"`
		Cookies         []string        `json:"cookies"`
	}
	if err := json.Unmarshal(payload, &response); err != nil || response.StatusCode == nil {
		if !json.Valid(payload) {
			return answer{}, errors.New("the function's answer is not JSON")
		}
		body := payload
		var text string
		if json.Unmarshal(payload, &text) == nil {
			body = []byte(text)
		}
		return answer{http.StatusOK, http.Header{"Content-Type": {"application/json"}}, body, nil}, nil
	}
	if *response.StatusCode < 200 || *response.StatusCode > 599 {
		return answer{}, fmt.Errorf("the function answered with the status %d", *response.StatusCode)
	}
	a := answer{status: *response.StatusCode, header: http.Header{}}
	for _, name := range slices.Sorted(maps.Keys(response.Headers)) {
		a.header.Set(name, fmt.Sprint(response.Headers[name]))
	}
	for _, cookie := range response.Cookies {
		a.header.Add("Set-Cookie", cookie)
	}
	var text string
	if len(response.Body) > 0 && json.Unmarshal(response.Body, &text) != nil {
		text = string(response.Body)
	}
	a.body = []byte(text)
	if response.IsBase64Encoded {
		var err error
		if a.body, err = base64.StdEncoding.DecodeString(text); err != nil {
			return answer{}, fmt.Errorf("the function's answer: %w", err)
		}
	}
	if a.header.Get("Content-Type") == "" && len(a.body) > 0 {
		a.header.Set("Content-Type", "text/plain;charset=UTF-8")
	}
	return a, nil
}

// Event returns the event that the endpoint makes of a request with a client
// certificate, or without one if it is nil. It is for tests that invoke the function
// without the endpoint.
func (e *Endpoint) Event(r *http.Request, body []byte, certificate *x509.Certificate) ([]byte, error) {
	d := e.deployed.Load()
	key, _, ok := d.route(r)
	if !ok {
		return nil, errors.New("apigateway: there is no route for the request")
	}
	var presented *ClientCert
	if certificate != nil {
		presented = Describe(certificate)
	}
	return encode(newEvent(d.API, key, newRequestID(), r, body, presented, e.opts.Now()))
}
