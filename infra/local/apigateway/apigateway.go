// Package apigateway replaces Amazon API Gateway on this machine: it is the
// endpoint of an HTTP API on a custom domain, with or without mutual TLS, in front
// of a Lambda function. The emulator of the local run stores HTTP APIs, domains
// and truststores; it does not serve TLS or verify client certificates.
//
// It guarantees that a request reaches the function only if API Gateway would let
// it, as far as AWS documents that, and that the event which the function gets has
// the payload format 2.0 (AWS, "Create AWS Lambda proxy integrations for HTTP APIs
// in API Gateway"). What AWS does not document is named where it is decided.
//
// With a truststore, a client certificate is verified as AWS describes it in "How
// to turn on mutual TLS authentication for your HTTP APIs in API Gateway": its
// validity, its chain to the CAs of the truststore, at most four of them, and the
// strength of keys and signatures. Neither revocation nor the extended key usage is
// checked. It listens on 127.0.0.1 only.
package apigateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"golang.org/x/time/rate"
)

// The quotas (AWS, "Quotas for configuring and running an HTTP API in API
// Gateway"). None of them can be increased.
const (
	maxPayload = 10 << 20         // bytes
	maxHeader  = 10240            // bytes of the request line and the values of headers
	maxTimeout = 30 * time.Second // of an integration
)

// API is an HTTP API on its custom domain, as it is deployed.
type API struct {
	Domain  string
	ID      string
	Account string
	Stage   string
	Routes  map[string]Route // by route key: METHOD /path, ANY /path or $default
	// Truststore holds CA certificates in PEM. Without them, clients need no
	// certificate.
	Truststore []byte
	// Rate and Burst are how many requests are passed on a second, and at once; 0
	// stands for any number.
	Rate  float64
	Burst int
}

// Route is what is behind a route.
type Route struct {
	Function string        // ARN, with its qualifier
	Timeout  time.Duration // maxTimeout if 0
	// Denied says that the function's policy does not allow this API to invoke it
	// for this route.
	Denied bool
}

// Invoker invokes functions. An [lambda.Client] does.
type Invoker interface {
	Invoke(context.Context, *lambda.InvokeInput, ...func(*lambda.Options)) (*lambda.InvokeOutput, error)
}

// Options are what an endpoint needs beside its API.
type Options struct {
	Certificate tls.Certificate // the server's
	Log         *slog.Logger    // gets a line for each request; nil for none
	Closer      io.Closer       // closed with the endpoint; nil for nothing
	Now         func() time.Time
}

// Endpoint serves an API. It is safe for concurrent use.
type Endpoint struct {
	// URL is https on 127.0.0.1.
	URL string

	opts     Options
	invoker  Invoker
	deployed atomic.Pointer[deployed]
	server   *http.Server
}

// deployed is an API with what is derived from it.
type deployed struct {
	API
	trust   *trust // nil without a truststore
	limiter *rate.Limiter
}

// Start starts an endpoint on a free port. The caller must Close it.
func Start(api API, invoker Invoker, opts Options) (*Endpoint, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	e := &Endpoint{opts: opts, invoker: invoker}
	if err := e.Deploy(api); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e.URL = "https://" + listener.Addr().String() + "/"
	e.server = &http.Server{
		Handler: e, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 4 * maxHeader,
		ErrorLog: log.New(lines{opts.Log}, "", 0),
		TLSConfig: &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config,
			error) {
			return e.tlsConfig(), nil
		},
			Certificates: []tls.Certificate{opts.Certificate}, MinVersion: tls.VersionTLS12},
	}
	go e.server.ServeTLS(listener, "", "")
	return e, nil
}

// lines writes what the HTTP server says, such as of failed handshakes, to a log.
type lines struct{ log *slog.Logger }

func (l lines) Write(text []byte) (int, error) {
	l.log.Info(strings.TrimSpace(string(text)))
	return len(text), nil
}

// Deploy replaces the API, as the next deployment does.
func (e *Endpoint) Deploy(api API) error {
	d := &deployed{API: api}
	if len(api.Truststore) > 0 {
		var err error
		if d.trust, err = newTrust(api.Truststore); err != nil {
			return err
		}
	}
	for key := range api.Routes {
		if strings.ContainsAny(key, "{+") {
			return fmt.Errorf("apigateway: route %s: path variables are not supported", key)
		}
	}
	if api.Rate > 0 {
		d.limiter = rate.NewLimiter(rate.Limit(api.Rate), api.Burst)
	}
	e.deployed.Store(d)
	return nil
}

// Close stops the endpoint, and cuts the connections that are still open.
func (e *Endpoint) Close() {
	e.server.Close()
	if e.opts.Closer != nil {
		e.opts.Closer.Close()
	}
}

// tlsConfig asks for a client certificate if there is a truststore. AWS does not
// document what becomes of a client without a certificate. Here the connection
// fails, as TLS has it; the client gets no HTTP response.
func (e *Endpoint) tlsConfig() *tls.Config {
	c := &tls.Config{
		Certificates: []tls.Certificate{e.opts.Certificate}, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"}, SessionTicketsDisabled: true,
	}
	if e.deployed.Load().trust != nil {
		// It is verified afterwards, since the answer to one that is not trusted is
		// an HTTP response.
		c.ClientAuth = tls.RequireAnyClientCert
	}
	return c
}

// answer is an HTTP response.
type answer struct {
	status int
	header http.Header
	body   []byte
	reason error // for the log; nil if the function answered
}

// refuse returns an answer of API Gateway itself.
func refuse(status int, message string, reason error) answer {
	body, err := json.Marshal(map[string]string{"message": message})
	if err != nil {
		panic(err)
	}
	return answer{status, http.Header{"Content-Type": {"application/json"}}, body, reason}
}

func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := newRequestID()
	a := e.answer(r, id)
	for name, values := range a.header {
		w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	w.Header().Set("Apigw-Requestid", id)
	w.WriteHeader(a.status)
	w.Write(a.body)
	attributes := []any{"requestId", id, "method", r.Method, "path", r.URL.Path, "status", a.status}
	if a.reason != nil {
		attributes = append(attributes, "reason", a.reason.Error())
	}
	e.opts.Log.Info("request", attributes...)
}

func (e *Endpoint) answer(r *http.Request, id string) answer {
	d := e.deployed.Load()
	var certificate *ClientCert
	if d.trust != nil {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			return refuse(http.StatusForbidden, "Forbidden", errors.New("there is no client certificate"))
		}
		if err := d.trust.verify(r.TLS.PeerCertificates[0], e.opts.Now()); err != nil {
			return refuse(http.StatusForbidden, "Forbidden", err)
		}
		certificate = Describe(r.TLS.PeerCertificates[0])
	}
	if !d.hasHost(r.Host) {
		return refuse(http.StatusForbidden, "Forbidden", fmt.Errorf("there is no API on the domain %s", r.Host))
	}
	if headerSize(r) > maxHeader {
		return refuse(http.StatusRequestHeaderFieldsTooLarge, "Request Header Fields Too Large",
			errors.New("the header is too large"))
	}
	key, route, ok := d.route(r)
	if !ok {
		return refuse(http.StatusNotFound, "Not Found", errors.New("no route"))
	}
	if d.limiter != nil && !d.limiter.AllowN(e.opts.Now(), 1) {
		return refuse(http.StatusTooManyRequests, "Too Many Requests", errors.New("throttled"))
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxPayload+1))
	if err != nil {
		return refuse(http.StatusBadRequest, "Bad Request", err)
	}
	if len(body) > maxPayload {
		return refuse(http.StatusRequestEntityTooLarge, "Request Entity Too Large",
			errors.New("the payload is larger than API Gateway takes"))
	}
	if route.Denied {
		return refuse(http.StatusInternalServerError, "Internal Server Error",
			errors.New("the function's policy does not allow this API to invoke it"))
	}
	event, err := encode(newEvent(d.API, key, id, r, body, certificate, e.opts.Now()))
	if err != nil {
		return refuse(http.StatusInternalServerError, "Internal Server Error", err)
	}
	return e.invoke(r.Context(), route, event)
}

// hasHost reports whether a request is for the domain. Clients of this machine may
// name the machine instead, as the domain need not resolve.
func (d *deployed) hasHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.EqualFold(host, d.Domain) || host == "127.0.0.1" || host == "localhost"
}

func (d *deployed) route(r *http.Request) (key string, route Route, ok bool) {
	path := r.URL.EscapedPath()
	if path == "" {
		path = "/"
	}
	for _, key := range []string{r.Method + " " + path, "ANY " + path, "$default"} {
		if route, ok := d.Routes[key]; ok {
			return key, route, true
		}
	}
	return "", Route{}, false
}

// headerSize is the size of the request line and of the values of the headers.
func headerSize(r *http.Request) int {
	size := len(r.Method) + len(r.RequestURI) + len(r.Proto) + 2 + len(r.Host)
	for _, values := range r.Header {
		for _, value := range values {
			size += len(value)
		}
	}
	return size
}

func encode(event event) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(event)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// invoke invokes the function and returns its answer. What API Gateway makes of
// Lambda's errors is documented for REST APIs only; here a client gets 413 for an
// event that is too large for Lambda, 503 for a function that is throttled or late,
// and 500 for every other error.
func (e *Endpoint) invoke(ctx context.Context, route Route, event []byte) answer {
	timeout := maxTimeout
	if route.Timeout > 0 {
		timeout = min(route.Timeout, maxTimeout)
	}
	// The function goes on when the client is gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	out, err := e.invoker.Invoke(ctx, &lambda.InvokeInput{FunctionName: &route.Function, Payload: event})
	_, tooLarge := errors.AsType[*types.RequestTooLargeException](err)
	_, throttled := errors.AsType[*types.TooManyRequestsException](err)
	switch {
	case tooLarge:
		return refuse(http.StatusRequestEntityTooLarge, "Request Entity Too Large",
			errors.New("the event is larger than Lambda takes"))
	case throttled:
		return refuse(http.StatusServiceUnavailable, "Service Unavailable", errors.New("the function is throttled"))
	case err != nil && ctx.Err() != nil:
		return refuse(http.StatusServiceUnavailable, "Service Unavailable",
			fmt.Errorf("the function has not answered within %s", timeout))
	case err != nil:
		return refuse(http.StatusInternalServerError, "Internal Server Error", err)
	case out.FunctionError != nil:
		return refuse(http.StatusInternalServerError, "Internal Server Error",
			fmt.Errorf("the function failed: %s", out.Payload))
	}
	a, err := translate(out.Payload)
	if err != nil {
		return refuse(http.StatusInternalServerError, "Internal Server Error", err)
	}
	return a
}
